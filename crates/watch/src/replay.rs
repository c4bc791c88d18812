//! Replay of a recorded trace on a simulated machine, as a source like any other: what `stat` and `top` would show if the program ran there. Nothing in it is
//! measured, and every interval states so.
//!
//! The simulator runs the program once, under a placement that moves nothing (first touch, interleaving). A watcher takes the policy's place: it gives no
//! orders, and records an observation once per interval. Sampling has no simulated cost here, so watching changes nothing. Threads' work, nodes' traffic and
//! the NUMA metrics are the model's exact sums; shares of processes and objects are estimates from the simulated samples.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::Endpoint;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_placement::Action;
use numapilot_placement::Allocation;
use numapilot_placement::Observation;
use numapilot_placement::Policy;
use numapilot_placement::PolicyRequirements;
use numapilot_placement::Sample;
use numapilot_placement::policy_by_name;
use numapilot_simulator::Costs;
use numapilot_simulator::Options;
use numapilot_simulator::Point;
use numapilot_simulator::Simulation;
use numapilot_simulator::program::Program;
use numapilot_simulator::recorded;
use numapilot_simulator::recorded::RecordedOptions;
use numapilot_simulator::recorded::Repeat;

use crate::error::WatchError;
use crate::figures::AreaFigures;
use crate::figures::Interval;
use crate::figures::LinkFigures;
use crate::figures::MemoryView;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NodeFigures;
use crate::figures::ProcessFigures;
use crate::figures::ThreadFigures;

/// Bytes of a cache line, which a memory access transfers.
const LINE_BYTES: f64 = 64.0;
/// Sampling rate, sufficient for shares of objects within a second.
const SAMPLES_PER_S_AND_CPU: f64 = 4000.0;
/// Observations per interval: one shows only the threads that are alive then, and misses threads that end in between.
const LOOKS_PER_INTERVAL: u64 = 16;
/// Maximum time between two observations in nanoseconds.
const LOOK_MAX_NS: u64 = 10_000_000;
/// Label of simulated figures.
const SOURCE: &str = "simulated";
const SAMPLED: &str = "simulated samples";

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Placement policy, which must not move pages.
    pub policy: String,
    /// Length of an interval in nanoseconds of simulated time.
    pub interval_ns: u64,
    /// Approximate time in nanoseconds for which the program's main part is repeated; `None`: it runs once.
    pub length_ns: Option<u64>,
    /// Seed of random numbers.
    pub seed: u64,
}

/// One interval with its details.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Figures of the interval.
    pub interval: Interval,
    /// By process id: its memory according to each source, the most informative first.
    pub views: BTreeMap<Pid, Vec<MemoryView>>,
    /// By process id: its threads.
    pub threads: BTreeMap<Pid, Vec<ThreadFigures>>,
    /// Sum of the listed processes, where they are a group.
    pub total: Option<ProcessFigures>,
}

/// A complete replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The simulated machine.
    pub machine: Machine,
    /// The intervals, in order of time.
    pub frames: Vec<Frame>,
    /// Notes for the reader, in whole sentences.
    pub notes: Vec<String>,
}

/// Replays the trace on the machine (`None`: the one it was recorded on).
///
/// # Errors
/// The trace or the machine cannot be used, or the policy moves memory.
pub fn replay(trace: &Path, machine: Option<Machine>, options: &ReplayOptions) -> Result<Replay, WatchError> {
    let fail = |why: String| WatchError::Option { option: "--replay", why };
    let repeat = options.length_ns.map_or(Repeat::Once, |length| Repeat::UntilNs(length as f64));
    let recorded = recorded::load(trace, &RecordedOptions { repeat, ..RecordedOptions::default() });
    let recorded = recorded.map_err(|error| fail(error.to_string()))?;
    let machine = machine.unwrap_or(recorded.machine);
    let inner = policy_by_name(&options.policy, &machine, options.seed);
    let inner = inner.map_err(|error| WatchError::Option { option: "--policy", why: error.to_string() })?;
    let requirements = inner.requirements();
    if requirements.samples_per_s_and_cpu > 0.0 || requirements.mapped || requirements.homes {
        let why = format!(
            "{} moves memory; a replay supports only policies that do not: first-touch, interleave",
            inner.name()
        );
        return Err(WatchError::Option { option: "--policy", why });
    }
    let mut watcher = Watcher { inner, interval_ns: options.interval_ns, notes: Vec::new() };
    let simulated = Options {
        seed: options.seed,
        series_ns: options.interval_ns as f64,
        epoch_max_ns: Options::default().epoch_max_ns.min(options.interval_ns as f64),
        costs: Costs { sample_cycles: 0.0, ..Costs::default() },
        until_ns: options.length_ns.map(|length| length as f64),
        ..Options::default()
    };
    let simulation =
        Simulation::new(&recorded.program, &machine, simulated).map_err(|error| fail(error.to_string()))?;
    let report = simulation.run(&mut watcher, &mut |_| true).map_err(|error| fail(error.to_string()))?;
    let scene = Scene {
        machine: &machine,
        program: &recorded.program,
        objects: Objects::new(&recorded.program),
        title: format!("{} on {}", recorded.program.name, machine.name()),
        links: machine.links().iter().map(|link| link_name(&machine, link)).collect(),
    };
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    for note in watcher.notes {
        seen.entry(note.now_ns.div_ceil(options.interval_ns)).or_default().add(note);
    }
    let frames = report.series.iter().map(|point| {
        let observation = seen.get(&((point.to_ns.max(1.0) as u64).div_ceil(options.interval_ns)));
        scene.frame(point, observation)
    });
    let frames = frames.collect();
    let mut notes = report.notes;
    notes.insert(0, "Nothing here is measured: a recorded program is replayed on a simulated machine.".to_owned());
    Ok(Replay { frames, notes, machine })
}

/// Takes the policy's place: orders nothing, and keeps its observations.
struct Watcher {
    inner: Box<dyn Policy>,
    interval_ns: u64,
    notes: Vec<Observation>,
}

impl Policy for Watcher {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn initial_allocation(&self) -> Allocation {
        self.inner.initial_allocation()
    }

    fn requirements(&self) -> PolicyRequirements {
        let next_ns = (self.interval_ns / LOOKS_PER_INTERVAL).clamp(1, LOOK_MAX_NS);
        PolicyRequirements { next_ns, samples_per_s_and_cpu: SAMPLES_PER_S_AND_CPU, mapped: false, homes: false }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        self.notes.push(Observation { load: None, ..seen.clone() });
        Vec::new()
    }
}

/// The observations of an interval.
#[derive(Default)]
struct Seen {
    sum: Observation,
    /// Memory accesses that each sample stands for, which differs between observations.
    weights: Vec<f64>,
}

impl Seen {
    fn add(&mut self, next: Observation) {
        self.weights.extend(next.samples.iter().map(|_| next.sample_period));
        let sum = &mut self.sum;
        if sum.elapsed_ns == 0 {
            *sum = next;
            return;
        }
        (sum.now_ns, sum.elapsed_ns) = (next.now_ns, sum.elapsed_ns + next.elapsed_ns);
        for (node, more) in sum.nodes.iter_mut().zip(next.nodes) {
            node.reads_to.iter_mut().zip(more.reads_to).for_each(|(count, more)| *count += more);
            node.writes_to.iter_mut().zip(more.writes_to).for_each(|(count, more)| *count += more);
            node.free_bytes = more.free_bytes;
        }
        for thread in next.threads {
            match sum.threads.binary_search_by_key(&thread.thread, |old| old.thread) {
                Ok(index) => {
                    let old = &mut sum.threads[index];
                    old.node = thread.node;
                    old.busy_ns += thread.busy_ns;
                    old.instructions += thread.instructions;
                    old.memory_accesses += thread.memory_accesses;
                }
                Err(index) => sum.threads.insert(index, thread),
            }
        }
        sum.samples.extend(next.samples);
    }

    /// A process's samples with their weights.
    fn samples(&self, process: u32) -> impl Iterator<Item = (&Sample, f64)> {
        self.sum
            .samples
            .iter()
            .zip(&self.weights)
            .map(|(sample, weight)| (sample, *weight))
            .filter(move |(sample, _)| sample.page.process == process)
    }
}

struct Scene<'a> {
    machine: &'a Machine,
    program: &'a Program,
    objects: Objects<'a>,
    title: String,
    links: Vec<String>,
}

impl Scene<'_> {
    fn frame(&self, point: &Point, seen: Option<&Seen>) -> Frame {
        let mut interval = Interval {
            from_ns: point.from_ns as u64,
            to_ns: point.to_ns as u64,
            simulated: Some(self.title.clone()),
            ..Interval::default()
        };
        self.set_metrics(&mut interval, point);
        let seconds = ((point.to_ns - point.from_ns) / 1e9).max(1e-9);
        let links = self.links.iter().zip(&point.links);
        interval.links = links.map(|(name, load)| LinkFigures { name: name.clone(), load: *load }).collect();
        let mut frame = Frame::default();
        for (index, node) in self.machine.nodes().iter().enumerate() {
            let of = NodeFigures {
                node: node.id,
                cpus: node.cpus.len(),
                memory_bytes: node.memory_bytes,
                free_bytes: Some(node.memory_bytes),
                controller_bytes_per_s: MetricValue::of(
                    point.served.get(index).filter(|_| node.has_memory()).map(|lines| lines * LINE_BYTES / seconds),
                    SOURCE,
                    "the node has no memory",
                ),
                controller_load: point.controllers.get(index).copied().flatten(),
                ..NodeFigures::default()
            };
            interval.nodes.push(of);
        }
        if let Some(seen) = seen {
            self.add_nodes(&mut interval, &seen.sum);
            self.add_processes(&mut interval, &mut frame, seen);
        }
        frame.interval = interval;
        frame
    }

    fn set_metrics(&self, interval: &mut Interval, point: &Point) {
        let metrics = &point.metrics;
        let values = [
            (Metric::LocalShare, metrics.local_access_ratio, "no memory accesses in the interval"),
            (Metric::Latency, metrics.memory_latency_cycles, "no memory accesses in the interval"),
            (
                Metric::ControllerImbalance,
                metrics.controller_imbalance.map(|it| it.population),
                "the controllers were idle",
            ),
            (Metric::LinkUsage, metrics.interconnect_usage, "the model has no links"),
            (Metric::LinkImbalance, metrics.interconnect_imbalance.map(|it| it.population), "the links were idle"),
            (Metric::L3Mpki, metrics.l3_mpki, "the recording does not count instructions"),
            (Metric::Ipc, metrics.ipc, "the recording does not count instructions"),
        ];
        for (metric, value, why) in values {
            interval.metrics.set(metric, MetricValue::of(value, SOURCE, why));
        }
    }

    fn add_nodes(&self, interval: &mut Interval, seen: &Observation) {
        let elapsed = seen.elapsed_ns.max(1) as f64;
        for (index, (node, counters)) in interval.nodes.iter_mut().zip(&seen.nodes).enumerate() {
            let to = |home: usize| {
                let of = |counts: &[f64]| counts.get(home).copied().unwrap_or(0.0);
                of(&counters.reads_to) + of(&counters.writes_to)
            };
            let all: f64 = (0..seen.nodes.len()).map(to).sum();
            node.local_share = MetricValue::of((all > 0.0).then(|| to(index) / all), SOURCE, "no accesses by its CPUs");
            node.free_bytes = Some(counters.free_bytes);
            let work = Work::of(seen.threads.iter().filter(|thread| thread.node.0 == index));
            node.busy_cpus = Some(work.busy_ns / elapsed);
            (node.ipc, node.l3_mpki) = (work.ipc(self), work.mpki(self));
        }
    }

    fn add_processes(&self, interval: &mut Interval, frame: &mut Frame, of: &Seen) {
        let seen = &of.sum;
        let elapsed = seen.elapsed_ns.max(1) as f64;
        for (process, name) in self.program.processes.iter().enumerate() {
            let number = process as u32;
            let threads: Vec<_> = seen.threads.iter().filter(|thread| thread.process == number).collect();
            if threads.is_empty() {
                continue;
            }
            let pid = Pid(number + 1);
            let work = Work::of(threads.iter().copied());
            let all: f64 = of.samples(number).map(|(_, weight)| weight).sum();
            let is_local = |(sample, _): &(&Sample, f64)| sample.from == sample.home;
            let local: f64 = of.samples(number).filter(is_local).map(|(_, weight)| weight).sum();
            let local_share = match all > 0.0 {
                false => MetricValue::Missing("no memory accesses in the interval".to_owned()),
                true => MetricValue::estimate(local / all, SAMPLED),
            };
            let mut by_node: BTreeMap<NodeIndex, f64> = BTreeMap::new();
            threads.iter().for_each(|thread| *by_node.entry(thread.node).or_default() += thread.busy_ns);
            let most = by_node.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(node, _)| *node);
            interval.processes.push(ProcessFigures {
                pid,
                name: name.as_str().into(),
                threads: threads.len() as u32,
                cpus: work.busy_ns / elapsed,
                resident_bytes: self.objects.bytes.get(&number).copied().unwrap_or(0),
                node: most.and_then(|node| self.machine.nodes().get(node.0)).map(|node| node.id),
                local_share,
                accesses_per_s: Some(work.accesses / elapsed * 1e9),
                ipc: work.ipc(self),
                l3_mpki: work.mpki(self),
                ..ProcessFigures::default()
            });
            let figures = threads.iter().map(|thread| ThreadFigures {
                tid: Tid(thread.thread + 1),
                name: self.program.threads.get(thread.thread as usize).map_or(String::new(), |it| it.name.clone()),
                node: self.machine.nodes().get(thread.node.0).map(|node| node.id),
                cpu: None,
                cpus: thread.busy_ns / elapsed,
            });
            frame.threads.insert(pid, figures.collect());
            let title = "objects, by memory accesses (simulated samples)".to_owned();
            let view = MemoryView { title, areas: self.objects.areas(of, number), notes: Vec::new() };
            frame.views.insert(pid, vec![view]);
        }
        interval.processes.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then(a.pid.cmp(&b.pid)));
    }
}

/// Work of a group of threads.
#[derive(Default)]
struct Work {
    busy_ns: f64,
    instructions: f64,
    accesses: f64,
}

impl Work {
    fn of<'a>(threads: impl Iterator<Item = &'a numapilot_placement::ThreadState>) -> Work {
        threads.fold(Work::default(), |sum, thread| Work {
            busy_ns: sum.busy_ns + thread.busy_ns,
            instructions: sum.instructions + thread.instructions,
            accesses: sum.accesses + thread.memory_accesses,
        })
    }

    fn ipc(&self, scene: &Scene<'_>) -> MetricValue {
        let cycles = scene.machine.clock_mhz().map(|mhz| self.busy_ns * mhz / 1000.0).filter(|cycles| *cycles > 0.0);
        self.of_instructions(scene, cycles.map(|cycles| self.instructions / cycles))
    }

    fn mpki(&self, scene: &Scene<'_>) -> MetricValue {
        let known = self.instructions > 0.0;
        self.of_instructions(scene, known.then(|| self.accesses / self.instructions * 1000.0))
    }

    fn of_instructions(&self, scene: &Scene<'_>, value: Option<f64>) -> MetricValue {
        let value = value.filter(|_| scene.program.counts_instructions);
        MetricValue::of(value, SOURCE, "the recording does not count instructions")
    }
}

/// Maps pages to objects.
struct Objects<'a> {
    program: &'a Program,
    /// By process: first page, page after the last, label; the smallest first, because it is the most specific.
    slices: HashMap<u32, Vec<(PageNumber, PageNumber, u32)>>,
    /// Bytes mapped, by process.
    bytes: HashMap<u32, u64>,
}

impl Objects<'_> {
    fn new(program: &Program) -> Objects<'_> {
        let mut slices: HashMap<u32, Vec<(PageNumber, PageNumber, u32)>> = HashMap::new();
        for slice in &program.slices {
            let Some(region) = program.regions.get(slice.region as usize) else { continue };
            let first = region.first_page + slice.first;
            slices.entry(region.process).or_default().push((first, first + slice.pages, slice.label));
        }
        for of_process in slices.values_mut() {
            of_process.sort_unstable();
            of_process.dedup();
            of_process.sort_by_key(|(first, end, _)| *end - *first);
        }
        let mut bytes = HashMap::new();
        for region in &program.regions {
            *bytes.entry(region.process).or_default() += region.pages * PageNumber::BYTES;
        }
        Objects { program, slices, bytes }
    }

    fn areas(&self, seen: &Seen, process: u32) -> Vec<AreaFigures> {
        let nothing = Vec::new();
        let slices = self.slices.get(&process).unwrap_or(&nothing);
        let mut label_of: HashMap<PageNumber, Option<u32>> = HashMap::new();
        let mut sums: BTreeMap<Option<u32>, (f64, f64)> = BTreeMap::new();
        let mut all = 0.0;
        for (sample, weight) in seen.samples(process) {
            let page = sample.small_page;
            let find =
                || slices.iter().find(|(first, end, _)| (*first..*end).contains(&page)).map(|(_, _, label)| *label);
            let sum = sums.entry(*label_of.entry(page).or_insert_with(find)).or_default();
            let local = if sample.from == sample.home { weight } else { 0.0 };
            (sum.0, sum.1, all) = (sum.0 + weight, sum.1 + local, all + weight);
        }
        let name = |label: Option<u32>| label.and_then(|label| self.program.labels.get(label as usize)).cloned();
        let of = |(label, (count, local)): (Option<u32>, (f64, f64))| AreaFigures {
            name: name(label).unwrap_or_else(|| "(no known object)".to_owned()),
            share: Some(count / all),
            local_share: Some(local / count),
            ..AreaFigures::default()
        };
        let mut areas: Vec<AreaFigures> = sums.into_iter().map(of).collect();
        areas.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)).then(a.name.cmp(&b.name)));
        areas
    }
}

fn link_name(machine: &Machine, link: &numapilot_machine::Link) -> String {
    let end = |end: Endpoint| match end {
        Endpoint::Node(node) => node.to_string(),
        Endpoint::Router(router) => {
            machine.routers().get(usize::from(router.0)).map_or_else(String::new, |router| router.name.clone())
        }
    };
    format!("{}→{}", end(link.from), end(link.to))
}

#[cfg(test)]
mod tests {
    //! The recorded trace that tests share, on the machine that it was recorded on and on another.

    use super::*;

    fn options(policy: &str) -> ReplayOptions {
        ReplayOptions { policy: policy.to_owned(), interval_ns: 20_000_000, length_ns: None, seed: 1 }
    }

    fn trace() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace")
    }

    #[test]
    fn a_replay_is_told_by_interval_process_thread_and_object() {
        let replay = replay(&trace(), None, &options("first-touch")).unwrap();
        assert!(replay.frames.len() >= 7, "{} frames of 20 ms", replay.frames.len());
        let middle = &replay.frames[replay.frames.len() / 2];
        let interval = &middle.interval;
        assert!(interval.simulated.as_deref().is_some_and(|title| title.contains("mg on opteron-8385")));
        assert_eq!((interval.nodes.len(), interval.links.len()), (4, 8));
        let local = interval.metrics.get(Metric::LocalShare).value().unwrap();
        let process = &interval.processes[0];
        assert_eq!(&*process.name, "mg");
        let sampled = process.local_share.value().unwrap();
        assert!((local - sampled).abs() < 0.05, "model {local}, its samples {sampled}");
        assert_eq!(middle.threads[&process.pid].len(), process.threads as usize);
        let shares: f64 = middle.views[&process.pid][0].areas.iter().filter_map(|area| area.share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
        // What the nodes' CPUs did is what the machine did.
        let busy: f64 = interval.nodes.iter().filter_map(|node| node.busy_cpus).sum();
        assert!((busy - process.cpus).abs() < 1e-6 * busy, "{busy} by node, {} by process", process.cpus);
    }

    #[test]
    fn the_same_seed_gives_the_same_and_interleaving_spreads() {
        let machine = || Some(Machine::load("memprof-c").unwrap());
        let one = replay(&trace(), machine(), &options("interleave")).unwrap();
        let two = replay(&trace(), machine(), &options("interleave")).unwrap();
        assert_eq!(one.frames.len(), two.frames.len());
        assert!(one.frames.iter().zip(&two.frames).all(|(a, b)| a.interval == b.interval));
        let of = |replay: &Replay| replay.frames[3].interval.metrics.get(Metric::ControllerImbalance).value().unwrap();
        let touched = replay(&trace(), machine(), &options("first-touch")).unwrap();
        assert!(of(&one) < of(&touched) / 2.0, "{} against {}", of(&one), of(&touched));
    }

    #[test]
    fn what_cannot_be_replayed_says_why() {
        let error = replay(&trace(), None, &options("carrefour")).unwrap_err().to_string();
        assert!(error.contains("moves memory"), "{error}");
        assert!(replay(Path::new("/nowhere"), None, &options("first-touch")).is_err());
    }
}
