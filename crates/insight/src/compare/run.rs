//! One recording, reduced to what a comparison needs: cheap to keep, so that many traces can be compared without being open together.

use std::collections::HashMap;

use numapilot_flows::{Evidence, ObjectKind, Trace};
use numapilot_machine::Machine;
use numapilot_random::quantile::student;
use numapilot_text::units::counted;
use numapilot_trace::engine::RecordedBy;
use numapilot_trace::meta::Meta;
use serde::Serialize;
use serde_json::Value;

use super::change::Repeatability;
use super::idle::idle_ns;
use crate::context::Analysis;
use crate::decision::{DecisionRow, RowKey};
use crate::estimate::{Estimate, share_of_share, sum_of_shares};
use crate::processor_time::processor_ns;
use crate::totals::UNKNOWN_MAX;
use crate::whatif::WhatIfError;

/// A figure of a whole program. Of each, less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From start to end, in nanoseconds.
    RunTime,
    /// Time that the threads worked, all together, in nanoseconds: without waits and sleeps.
    ProcessorTime,
    /// Share of memory accesses that are remote.
    RemoteShare,
    /// Standard deviation over mean of what the controllers served (population definition).
    Imbalance,
    /// Memory accesses.
    Accesses,
    /// Mean latency of a memory access in cycles, where the hardware measured it.
    Latency,
}

impl Metric {
    /// All, in the order in which they are shown.
    pub const ALL: [Metric; 6] = [
        Metric::RunTime,
        Metric::ProcessorTime,
        Metric::RemoteShare,
        Metric::Imbalance,
        Metric::Accesses,
        Metric::Latency,
    ];

    /// How far equal runs may differ in it, where none of their time is open and their machine is simulated.
    #[must_use]
    pub fn repeatability(self) -> Repeatability {
        match self {
            Metric::RemoteShare | Metric::Imbalance => Repeatability::OF_SHARES,
            Metric::RunTime | Metric::ProcessorTime => Repeatability::OF_RUN_TIMES,
            Metric::Accesses | Metric::Latency => Repeatability::OF_AMOUNTS,
        }
    }

    /// Whether it is a time, whose source matters.
    #[must_use]
    pub fn is_time(self) -> bool {
        matches!(self, Metric::RunTime | Metric::ProcessorTime)
    }
}

/// Where a run time comes from. Times of different sources are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// Measured by a clock.
    Measured,
    /// Predicted by the traffic model.
    Modelled,
}

/// A run time and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunTime {
    /// Run time in nanoseconds.
    pub ns: f64,
    /// Whether it was measured or modelled.
    pub source: TimeSource,
    /// Of the run, the nanoseconds in which no thread worked: all slept, or waited for something outside the program. `None` where the recording shows
    /// no waits, as on real machines.
    pub idle_ns: Option<f64>,
    /// Nanoseconds that the threads worked, all together, from the same source; `None` where unknown.
    pub processor_ns: Option<f64>,
}

impl RunTime {
    /// The time of a recording of a real machine, by its clock; `None` where it has none.
    #[must_use]
    pub fn measured(trace: &Trace) -> Option<RunTime> {
        let meta = trace.meta();
        (!meta.simulated && meta.duration_ns > 0).then(|| RunTime {
            ns: meta.duration_ns as f64,
            source: TimeSource::Measured,
            idle_ns: None,
            processor_ns: processor_ns(meta),
        })
    }

    /// The time of a recording on a simulated machine, by the traffic model.
    ///
    /// # Errors
    /// If the recording has no prices.
    pub fn modelled(analysis: &Analysis<'_>, machine: &Machine) -> Result<RunTime, WhatIfError> {
        // The program as it was, by the function that prices findings and `whatif`.
        let run = analysis.predicted_run(machine)?;
        Ok(RunTime {
            ns: run.run_ns,
            source: TimeSource::Modelled,
            idle_ns: Some(idle_ns(analysis.trace())),
            processor_ns: Some(run.worked_ns),
        })
    }
}

/// One recording, reduced to the figures of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Folder of the trace.
    pub trace: String,
    /// Program, without its folder.
    pub program: String,
    /// Name of the machine.
    pub machine: String,
    /// The engine that recorded.
    pub engine: RecordedBy,
    /// Whether its machine was simulated.
    pub is_simulated: bool,
    /// Run time, where one is known.
    pub time: Option<RunTime>,
    /// Whether its samples are memory accesses; page faults, say, do not show how often memory is accessed.
    #[serde(skip)]
    pub is_of_accesses: bool,
    /// Whether there are samples of accesses, and so few, of an engine that does not count them, that no limit can be judged by them.
    #[serde(skip)]
    pub has_too_few_samples: bool,
    /// Whether the machine is known to have one node, so that nothing can be remote.
    #[serde(skip)]
    pub is_of_one_node: bool,
    /// Share of memory accesses that are remote; `None` where the home of more than half of them is unknown.
    pub remote_share: Option<Estimate>,
    /// Controller imbalance (population definition) as a share; `None` likewise.
    pub imbalance: Option<Estimate>,
    /// Number of memory accesses; `None` where the samples are no accesses.
    pub accesses: Option<Estimate>,
    /// Mean measured latency in cycles.
    pub latency_cycles: Option<Estimate>,
    /// Number of records that were lost while recording.
    pub lost_records: u64,
    /// Number of the trace's chunks that are damaged or cut off, whose records are not counted.
    pub damaged_chunks: u64,
    /// Why it is no whole run of the program, as a predicate. Then it has no run time, and its number of accesses is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of_run: Option<String>,
    /// Objects, one for each allocation site.
    #[serde(skip)]
    pub objects: Vec<ObjectSummary>,
    /// Exact accesses of each thread, cached ones too, by the order of creation; 0 where a thread was not counted, and so all on real machines.
    #[serde(skip)]
    pub accesses_by_thread: Vec<u64>,
}

/// All objects of one site in one state of the program (in one recording, or merged over several).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectSummary {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Name of the object.
    pub name: String,
    /// Function that allocates, or empty.
    pub function: String,
    /// Place, such as `streamcluster.cpp:412`, or empty.
    pub place: String,
    /// Source file that allocates or declares, as its compiler named it; empty where unknown.
    pub file: String,
    /// Line in `file`; 0 where unknown.
    pub line: u32,
    /// Number of instances that were accessed.
    pub instances: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Most bytes of the site's objects that were live at one moment.
    pub peak_live_bytes: u64,
    /// Share of the program's memory accesses (mean over recordings).
    pub share: f64,
    /// Of its accesses, the share that is remote (mean over recordings). Not a number (`null` in JSON) where the home of more than half of them is unknown,
    /// as [`ObjectSummary::knows_homes`] says.
    pub remote: f64,
    /// Of its accesses, the share with a known home node: the least of all recordings.
    #[serde(skip)]
    pub known_homes: f64,
    /// Of its accesses, the share served by the node that serves most of them (mean over recordings). Not a number likewise.
    pub busiest_node: f64,
    /// Share of the program's memory accesses that are remote accesses to it, per recording.
    #[serde(skip)]
    pub remote_of_all: Vec<Estimate>,
    /// Mean measured latency in cycles, where known.
    pub latency_cycles: Option<f64>,
}

impl RunSummary {
    /// Reduces an analysis. `time` comes from elsewhere: a clock, or the traffic model.
    #[must_use]
    pub fn new(analysis: &Analysis<'_>, trace: &str, time: Option<RunTime>) -> RunSummary {
        let meta = analysis.trace().meta();
        let totals = analysis.totals();
        let rows = analysis.sites();
        let losses = analysis.trace().losses();
        let is_of_accesses = analysis.trace().evidence() == Evidence::Accesses;
        let part_of_run = part_of_run(meta);
        let knows_homes = is_of_accesses && totals.knows_homes();
        let program = meta.command.first().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
        RunSummary {
            trace: trace.to_owned(),
            program: program.unwrap_or_default(),
            machine: machine_of(meta),
            engine: meta.engine.clone(),
            is_simulated: meta.simulated,
            time: time.filter(|_| part_of_run.is_none()),
            is_of_accesses,
            has_too_few_samples: totals.samples > 0
                && analysis.samples_too_few(totals.samples)
                && !totals.remote_share.is_exact(),
            is_of_one_node: analysis.trace().machine().is_some_and(|machine| machine.nodes().len() == 1),
            remote_share: knows_homes.then_some(totals.remote_share),
            imbalance: knows_homes.then_some(totals.imbalance.population),
            accesses: is_of_accesses.then_some(totals.accesses),
            latency_cycles: mean_latency(analysis).filter(|_| is_of_accesses),
            lost_records: losses.records(),
            damaged_chunks: losses.damaged_chunks.saturating_add(losses.torn_chunks),
            objects: if is_of_accesses { objects_of(&rows, analysis.trace()) } else { Vec::new() },
            part_of_run,
            accesses_by_thread: accesses_by_thread(analysis.trace()),
        }
    }

    /// A figure, if this recording knows it.
    #[must_use]
    pub fn metric(&self, metric: Metric) -> Option<Estimate> {
        match metric {
            Metric::RunTime => self.time.map(|time| Estimate::exact(time.ns)),
            Metric::ProcessorTime => self.time.and_then(|time| time.processor_ns).map(Estimate::exact),
            Metric::RemoteShare => self.remote_share,
            Metric::Imbalance => self.imbalance,
            Metric::Accesses => self.accesses.filter(|_| self.part_of_run.is_none()),
            Metric::Latency => self.latency_cycles,
        }
    }

    /// Mean number of threads that worked while any did; at least 1, also where it is not known.
    #[must_use]
    pub fn threads_at_work(&self) -> f64 {
        let of = |time: RunTime| Some(time.processor_ns? / (time.ns - time.idle_ns.unwrap_or(0.0)));
        self.time.and_then(of).filter(|threads| threads.is_finite()).unwrap_or(1.0).max(1.0)
    }

    /// By how much an equal run may differ in the figure beyond what was ever measured, in its unit: without bound on a real machine, where other programs, the
    /// scheduler and the clock rate change with each run; on a simulated one by the time in which no thread worked.
    #[must_use]
    pub fn open(&self, metric: Metric) -> f64 {
        let idle_ns = || self.time.and_then(|time| time.idle_ns).unwrap_or(0.0);
        match metric {
            _ if !self.is_simulated => f64::INFINITY,
            Metric::RunTime => idle_ns(),
            _ => 0.0,
        }
    }
}

impl ObjectSummary {
    /// Whether enough home nodes of its accesses are known to speak of remote ones. Where it was not accessed there is nothing to know.
    #[must_use]
    pub fn knows_homes(&self) -> bool {
        self.share <= 0.0 || self.known_homes >= 1.0 - UNKNOWN_MAX
    }

    /// The same object with what its unknown homes leave open.
    fn without_unknown(self) -> ObjectSummary {
        if self.knows_homes() { self } else { ObjectSummary { remote: f64::NAN, busiest_node: f64::NAN, ..self } }
    }
}

/// Why a recording is no whole run of its program, as a predicate; `None` if it is one.
fn part_of_run(meta: &Meta) -> Option<String> {
    if meta.config.contains_key("attached") {
        return Some("is of processes that were running already".to_owned());
    }
    if meta.interrupted {
        return Some("ends where its recorder was killed".to_owned());
    }
    // Of a program that began as another one's image (`sh -c "exec ..."`), the last image has the signal.
    let first = meta.exits.iter().find(|exit| exit.process == 0).map(|exit| exit.pid);
    if let Some(signal) = meta.exits.iter().filter(|exit| Some(exit.pid) == first).find_map(|exit| exit.signal) {
        return Some(format!("was ended by signal {signal}"));
    }
    let why = meta.more.get("stopped_early")?.as_str()?;
    // Other reasons: the program had ended, and processes that it left behind were not followed any further.
    let is_cut = why.starts_with("limit") || why.starts_with("write failed");
    is_cut.then(|| format!("stopped before the program's end ({why})"))
}

fn accesses_by_thread(trace: &Trace) -> Vec<u64> {
    let mut threads: Vec<_> = trace.threads().iter().collect();
    threads.sort_by_key(|thread| thread.index);
    threads.iter().map(|thread| thread.counters.as_ref().map_or(0, |counters| counters.accesses)).collect()
}

/// Why a recording's samples do not stand for memory accesses, if so.
#[must_use]
pub fn no_accesses(run: &RunSummary) -> Option<String> {
    (!run.is_of_accesses).then(|| {
        format!(
            "a recording by engine {} does not show how often memory is accessed; record with `--engine instrument` or `emulate`",
            run.engine.name()
        )
    })
}

/// Mean latency over the samples that know one, with the interval of a mean. `None` for fewer than two: one does not say how far latencies scatter.
fn mean_latency(analysis: &Analysis<'_>) -> Option<Estimate> {
    let known = || {
        let accesses = analysis.accesses();
        accesses.filter_map(|access| Some((f64::from(access.weight.max(1)), f64::from(access.latency_cycles?))))
    };
    let (mut samples, mut weight, mut sum) = (0_usize, 0.0, 0.0);
    for (count, cycles) in known() {
        samples += 1;
        weight += count;
        sum += count * cycles;
    }
    if samples < 2 {
        return None;
    }
    let mean = sum / weight;
    // Linearised, as every ratio of two sums over samples.
    let squares: f64 = known().map(|(count, cycles)| (count * (cycles - mean)).powi(2)).sum();
    let variance = squares * samples as f64 / (samples as f64 - 1.0);
    let margin = student(samples - 1) * variance.sqrt() / weight;
    Some(Estimate { value: mean, low: (mean - margin).max(0.0), high: mean + margin })
}

/// The objects behind decision rows, without accesses at no known object.
fn objects_of(rows: &[DecisionRow], trace: &Trace) -> Vec<ObjectSummary> {
    let summary = |row: &DecisionRow| {
        let site = match row.key {
            RowKey::Site(site) => trace.site(site),
            _ => None,
        };
        ObjectSummary {
            kind: row.kind,
            name: row.name.clone(),
            function: row.function.clone(),
            place: row.place.clone(),
            file: site.map(|site| site.file.to_string()).unwrap_or_default(),
            line: site.map_or(0, |site| site.line),
            instances: row.instances,
            bytes: row.bytes,
            peak_live_bytes: row.size.peak_live_bytes,
            share: row.share.value,
            remote: row.remote.value,
            known_homes: row.known_homes,
            busiest_node: row.on_node.iter().map(|node| node.value).fold(0.0, f64::max),
            remote_of_all: vec![share_of_share(row.share, row.remote)],
            latency_cycles: row.mean_latency_cycles,
        }
    };
    rows.iter().filter(|row| row.key != RowKey::Unknown).map(summary).collect()
}

/// Adds an object's latency to a mean, by its share of accesses; `weight`: the shares in that mean.
fn add_latency(mean: &mut Option<f64>, weight: &mut f64, object: &ObjectSummary) {
    let Some(latency) = object.latency_cycles else { return };
    // What was not accessed weighs next to nothing.
    let share = object.share.max(f64::MIN_POSITIVE);
    let sum = mean.unwrap_or(0.0) * *weight + latency * share;
    *weight += share;
    *mean = Some(sum / *weight);
}

/// The machine's name. All that were recorded as they are have one name, so its processor and its size are added: figures of two of them are no change of the
/// program.
fn machine_of(meta: &Meta) -> String {
    if meta.machine_name != "live" {
        return meta.machine_name.clone();
    }
    let cpu = meta.machine.get("cpu_model").and_then(Value::as_str).unwrap_or("processor unknown");
    let count = |what: &str| meta.machine.get(what).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    format!("live ({cpu}, {}, {})", counted(count("nodes"), "node", "nodes"), counted(count("cpus"), "CPU", "CPUs"))
}

/// The objects of one recording, those that a comparison cannot tell apart as one: two files of the same name may have equal objects in equal lines.
fn of_one_run(objects: &[ObjectSummary]) -> Vec<ObjectSummary> {
    let mut merged: Vec<(ObjectSummary, f64)> = Vec::new();
    let mut place: HashMap<(ObjectKind, &str, &str, &str), usize> = HashMap::new();
    for object in objects {
        let key = (object.kind, object.name.as_str(), object.function.as_str(), object.place.as_str());
        if let Some(&index) = place.get(&key) {
            let (known, timed) = &mut merged[index];
            let (share, busiest) = (known.share + object.share, known.busiest_node * known.share);
            add_latency(&mut known.latency_cycles, timed, object);
            known.busiest_node = if share > 0.0 { (busiest + object.busiest_node * object.share) / share } else { 0.0 };
            known.remote_of_all[0] = sum_of_shares(known.remote_of_all[0], object.remote_of_all[0]);
            known.remote = if share > 0.0 { known.remote_of_all[0].value / share } else { 0.0 };
            known.share = share;
            known.instances = known.instances.saturating_add(object.instances);
            known.bytes = known.bytes.saturating_add(object.bytes);
            known.peak_live_bytes = known.peak_live_bytes.saturating_add(object.peak_live_bytes);
            known.known_homes = known.known_homes.min(object.known_homes);
        } else {
            place.insert(key, merged.len());
            let timed = object.latency_cycles.map_or(0.0, |_| object.share.max(f64::MIN_POSITIVE));
            merged.push((object.clone(), timed));
        }
    }
    merged.into_iter().map(|(object, _)| object).collect()
}

/// One list for several recordings of the same state: equal sites are one object, absent ones count as never accessed.
#[must_use]
pub fn merge_objects(runs: &[RunSummary]) -> Vec<ObjectSummary> {
    let count = runs.len().max(1) as f64;
    let mut merged: Vec<ObjectSummary> = Vec::new();
    let mut place: HashMap<(ObjectKind, &str, &str, &str), usize> = HashMap::new();
    let of_runs: Vec<Vec<ObjectSummary>> = runs.iter().map(|run| of_one_run(&run.objects)).collect();
    // Accesses behind each latency.
    let mut timed: Vec<f64> = Vec::new();
    for (run, objects) in of_runs.iter().enumerate() {
        for object in objects {
            let key = (object.kind, object.name.as_str(), object.function.as_str(), object.place.as_str());
            let index = *place.entry(key).or_insert_with(|| {
                let nothing = vec![Estimate::exact(0.0); runs.len()];
                merged.push(ObjectSummary {
                    share: 0.0,
                    remote: 0.0,
                    busiest_node: 0.0,
                    remote_of_all: nothing,
                    latency_cycles: None,
                    ..object.clone()
                });
                timed.push(0.0);
                merged.len() - 1
            });
            let known = &mut merged[index];
            known.instances = known.instances.max(object.instances);
            known.bytes = known.bytes.max(object.bytes);
            known.peak_live_bytes = known.peak_live_bytes.max(object.peak_live_bytes);
            known.share += object.share / count;
            known.busiest_node += object.busiest_node * object.share / count;
            known.remote_of_all[run] = object.remote_of_all[0];
            known.known_homes = known.known_homes.min(object.known_homes);
            add_latency(&mut known.latency_cycles, &mut timed[index], object);
        }
    }
    for object in &mut merged {
        let remote: f64 = object.remote_of_all.iter().map(|remote| remote.value).sum::<f64>() / count;
        object.remote = if object.share > 0.0 { remote / object.share } else { 0.0 };
        object.busiest_node = if object.share > 0.0 { object.busiest_node / object.share } else { 0.0 };
    }
    merged.into_iter().map(ObjectSummary::without_unknown).collect()
}

#[cfg(test)]
mod tests {
    use numapilot_trace::ids::Pid;
    use numapilot_trace::meta::ExitInfo;
    use serde_json::json;

    use super::*;

    fn object(share: f64, remote: f64, latency: Option<f64>) -> ObjectSummary {
        let value = share * remote;
        ObjectSummary {
            kind: ObjectKind::Static,
            name: "state".to_owned(),
            function: String::new(),
            place: "inflate.c:12".to_owned(),
            file: String::new(),
            line: 12,
            instances: 1,
            bytes: 100,
            peak_live_bytes: 100,
            share,
            remote,
            known_homes: 1.0,
            busiest_node: 1.0,
            remote_of_all: vec![Estimate { value, low: value - 0.03, high: value + 0.04 }],
            latency_cycles: latency,
        }
    }

    fn run(objects: Vec<ObjectSummary>) -> RunSummary {
        RunSummary {
            trace: String::new(),
            program: String::new(),
            machine: String::new(),
            engine: RecordedBy::Other(String::new()),
            is_simulated: true,
            time: None,
            is_of_accesses: true,
            has_too_few_samples: false,
            is_of_one_node: false,
            remote_share: None,
            imbalance: None,
            accesses: Some(Estimate::exact(1.0)),
            latency_cycles: None,
            lost_records: 0,
            damaged_chunks: 0,
            part_of_run: None,
            objects,
            accesses_by_thread: Vec::new(),
        }
    }

    #[test]
    fn equal_objects_of_one_recording_add_up() {
        let both = merge_objects(&[run(vec![object(0.2, 1.0, None), object(0.2, 1.0, None)])]);
        let [both] = both.as_slice() else { panic!("{both:?}") };
        assert!((both.share - 0.4).abs() < 1e-12 && (both.remote - 1.0).abs() < 1e-12, "{both:?}");
        let all = both.remote_of_all[0];
        assert!((all.value - 0.4).abs() < 1e-12 && (all.high - 0.4 - 0.04 * 2f64.sqrt()).abs() < 1e-12, "{all:?}");
        assert_eq!((both.instances, both.bytes), (2, 200));
        // The last one is local: so is half.
        let half = merge_objects(&[run(vec![object(0.2, 1.0, None), object(0.2, 0.0, None)])]);
        assert!((half[0].remote - 0.5).abs() < 1e-12, "{half:?}");
    }

    #[test]
    fn what_equal_runs_may_differ_by_is_open_on_real_machines_and_where_time_is_idle() {
        let time = RunTime { ns: 1e9, source: TimeSource::Modelled, idle_ns: Some(9e8), processor_ns: Some(1e8) };
        let simulated = RunSummary { time: Some(time), ..run(Vec::new()) };
        assert!(
            (simulated.threads_at_work() - 1.0).abs() < 1e-9 && (run(Vec::new()).threads_at_work() - 1.0).abs() < 1e-9
        );
        let four = RunTime { processor_ns: Some(4e8), ..time };
        assert!((RunSummary { time: Some(four), ..run(Vec::new()) }.threads_at_work() - 4.0).abs() < 1e-9);
        assert_eq!(simulated.open(Metric::RunTime), 9e8);
        assert_eq!([Metric::ProcessorTime, Metric::RemoteShare].map(|metric| simulated.open(metric)), [0.0, 0.0]);
        let real = RunSummary { is_simulated: false, ..simulated };
        assert!(Metric::ALL.into_iter().all(|metric| real.open(metric).is_infinite()));
    }

    #[test]
    fn a_part_of_a_run_is_known_by_what_the_recorder_wrote() {
        let whole = Meta::default();
        let stopped = |why: &str| {
            let mut meta = whole.clone();
            meta.more.insert("stopped_early".to_owned(), why.into());
            part_of_run(&meta)
        };
        let mut attached = whole.clone();
        attached.config.insert("attached".to_owned(), "system".into());
        assert_eq!((part_of_run(&whole), stopped("main process ended"), stopped("interrupted")), (None, None, None));
        for part in [part_of_run(&attached), stopped("limit on time"), stopped("write failed: disk full")] {
            assert!(part.is_some());
        }
        let exit = |signal| Meta { exits: vec![ExitInfo { signal, ..ExitInfo::default() }], ..whole.clone() };
        assert_eq!(part_of_run(&exit(Some(15))).as_deref(), Some("was ended by signal 15"));
        assert_eq!(part_of_run(&exit(None)), None);
        let image = |process: u32, pid: u32, signal| ExitInfo { process, pid: Pid(pid), signal, code: None };
        let replaced = |exits: Vec<ExitInfo>| part_of_run(&Meta { exits, ..whole.clone() });
        assert!(replaced(vec![image(0, 7, None), image(1, 7, Some(9))]).is_some(), "by exec");
        assert_eq!(replaced(vec![image(0, 7, None), image(1, 8, Some(9))]), None, "a child");
        let cut = Meta { interrupted: true, ..whole.clone() };
        assert_eq!(part_of_run(&cut).as_deref(), Some("ends where its recorder was killed"));
    }

    /// Recordings of two hosts were compared, and judged, as those of one: both are called "live".
    #[test]
    fn machines_that_were_recorded_as_they_are_are_told_apart() {
        let of = |name: &str, cpu: &str, cpus: usize| {
            let machine = json!({ "cpu_model": cpu, "nodes": [{}, {}], "cpus": vec![Value::Null; cpus] });
            machine_of(&Meta { machine_name: name.to_owned(), machine, ..Meta::default() })
        };
        assert_eq!(of("live", "AMD EPYC 7763", 4), "live (AMD EPYC 7763, 2 nodes, 4 CPUs)");
        assert_ne!(of("live", "AMD EPYC 7763", 4), of("live", "AMD EPYC 7763", 8));
        assert_eq!(of("opteron-8385", "4 x AMD Opteron 8385", 16), "opteron-8385");
    }

    #[test]
    fn the_remote_share_of_unknown_homes_is_no_number() {
        let of = |known_homes: f64, share: f64| {
            let object = ObjectSummary { known_homes, ..object(share, 0.0, None) };
            merge_objects(&[run(vec![object])])[0].clone()
        };
        assert!(of(0.4, 0.2).remote.is_nan() && of(0.4, 0.2).busiest_node.is_nan());
        assert_eq!((of(0.6, 0.2).remote, of(0.0, 0.0).remote), (0.0, 0.0));
    }

    #[test]
    fn latencies_of_several_recordings_are_their_mean_by_accesses() {
        let of = |runs: &[RunSummary]| merge_objects(runs)[0].latency_cycles;
        let one = |share, latency| run(vec![object(share, 0.5, latency)]);
        let mean = of(&[one(0.2, Some(200.0)), one(0.2, Some(400.0))]).expect("a latency");
        assert!((mean - 300.0).abs() < 1e-9, "{mean}");
        let mean = of(&[one(0.1, Some(200.0)), one(0.3, Some(400.0)), one(0.2, None)]).expect("a latency");
        assert!((mean - 350.0).abs() < 1e-9, "{mean}");
        assert_eq!(of(&[one(0.2, None), one(0.2, None)]), None);
    }
}
