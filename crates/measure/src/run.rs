//! Executes a plan, one group of measurements after the other, and collects the results. A failed measurement is left out with its reason; the others go on.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use numapilot_host::Root;
use numapilot_machine::Machine;

use crate::bandwidth::Bench;
use crate::caches::climb;
use crate::disturbance::clock_hz;
use crate::error::MeasureError;
use crate::handoff;
use crate::kernels::{CHAINS, Isa, Kernel};
use crate::latency::Chase;
use crate::loaded::{Chaser, Neighbours, curve};
use crate::options::{Options, Pages};
use crate::permit::Permit;
use crate::plan::{Group, Plan, Step, Task};
use crate::region::{Region, Wanted};
use crate::results::{
    BandwidthCell, Curve, Handoff, Host, LatencyCell, Overlap, Results, Staircase, Target, VERSION, Walk,
};
use crate::together::probe;
use crate::trials::{Found, Trial, Trials, node_of};

/// A busy machine may take this many times as long as planned; past that, only what everything else needs is measured.
const LATE: u32 = 3;
/// Measurements of another state of the machine are repeated for as long as all of the same memory were planned to take, once more.
const REPEATS: u32 = 1;
/// The state is looked for again after so long.
const NAP: Duration = Duration::from_millis(50);

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of measurements that are done.
    pub done: usize,
    /// Number of all measurements of the plan.
    pub of: usize,
    /// The present measurement, in words.
    pub now: String,
}

/// Measures what `plan` says on this machine; `progress` is called before each measurement.
///
/// # Errors
/// Memory cannot be had or bound, results are wrong, or nothing at all could be measured.
pub fn run(
    machine: &Machine,
    permit: &Permit,
    options: &Options,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Results, MeasureError> {
    carry_out(machine, permit, options, plan, Instant::now() + LATE * plan.estimate(), progress)
}

fn carry_out(
    machine: &Machine,
    permit: &Permit,
    options: &Options,
    plan: &Plan,
    late: Instant,
    progress: &mut dyn FnMut(Progress),
) -> Result<Results, MeasureError> {
    let isa = options.isa.unwrap_or_else(Isa::best);
    if !isa.works() {
        return Err(MeasureError::Options {
            what: format!("this processor or this build does not support {}", isa.word()),
            remedy: "leave --isa out, or use --isa portable".to_owned(),
        });
    }
    let started = Instant::now();
    let mut results = Results {
        format: "numapilot-measure".to_owned(),
        version: VERSION,
        host: host(machine, plan, isa),
        pages: options.pages,
        left_out: plan.left_out.clone(),
        notes: plan.notes.clone(),
        ..Results::default()
    };
    if options.pages == Pages::Large && !permit.large_pages {
        results.notes.push(
            "This kernel gives no transparent huge pages (transparent_hugepage is `never`): all pages are small."
                .to_owned(),
        );
    }
    let mut runner = Runner {
        late,
        permit,
        options,
        plan,
        isa,
        clock_hz: results.host.clock_mhz * 1e6,
        results,
        done: 0,
        repeats: false,
        progress,
    };
    for group in &plan.groups {
        match &group.target {
            Some(target) => runner.on_memory(group, target)?,
            None => runner.handoffs(group)?,
        }
    }
    let mut results = runner.results;
    results.seconds = started.elapsed().as_secs_f64();
    Ok(results)
}

fn host(machine: &Machine, plan: &Plan, isa: Isa) -> Host {
    Host {
        cpu_model: machine.cpu_model().map(str::to_owned),
        kernel: Root::default().text("proc/sys/kernel/osrelease"),
        clock_mhz: clock_hz() / 1e6,
        isa: Some(isa),
        cache_bytes: plan.cache_bytes,
    }
}

struct Runner<'a> {
    /// Time after which the run counts as late.
    late: Instant,
    permit: &'a Permit,
    options: &'a Options,
    plan: &'a Plan,
    isa: Isa,
    clock_hz: f64,
    results: Results,
    done: usize,
    /// Whether measurements are repeated, which count no more as done.
    repeats: bool,
    progress: &'a mut dyn FnMut(Progress),
}

impl Runner<'_> {
    /// Reports that a step begins; false if there is no time left for it.
    fn begins(&mut self, step: &Step, now: &str) -> bool {
        if step.rank > 0 && Instant::now() > self.late {
            self.results.left_out.push(format!(
                "{now}: this machine is busy, the measurements so far took {LATE} times as long as planned"
            ));
            return false;
        }
        let now = if self.repeats { format!("{now}, again: the machine changed") } else { now.to_owned() };
        (self.progress)(Progress { done: self.done, of: self.plan.steps().count(), now });
        self.done += usize::from(!self.repeats);
        true
    }

    /// Keeps what was found; a CPU that went away, or a thread that does not start, costs its measurement, everything else is fatal.
    fn keep<T>(&mut self, what: &str, found: Result<T, MeasureError>) -> Result<Option<T>, MeasureError> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(
                error @ (MeasureError::Pin { .. }
                | MeasureError::Thread { .. }
                | MeasureError::Silent { .. }
                | MeasureError::NoFigure),
            ) => {
                self.results.left_out.push(format!("{what}: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn region(&mut self, group: &Group, target: &Target, bytes: usize, purpose: &str) -> Result<Region, MeasureError> {
        let region = Region::new(&Wanted {
            bytes,
            target,
            pages: self.options.pages,
            large_page_bytes: self.permit.large_page_bytes as usize,
            single_node: self.plan.single_node,
            fillers: &group.fillers,
            purpose,
        })?;
        let share = region.large_share;
        self.results.large_share = match (self.results.large_share, share) {
            (Some(known), Some(share)) => Some(known.min(share)),
            (known, share) => known.or(share),
        };
        let known = self.results.placements.iter_mut().find(|known| known.0 == *target);
        match known {
            Some(known) => known.1 = known.1.plus(&region.proof),
            None => self.results.placements.push((target.clone(), region.proof.clone())),
        }
        Ok(region)
    }

    /// Everything on one memory: chases idle and under load, kernels, cache steps. What was measured in another state of the machine than most is repeated.
    fn on_memory(&mut self, group: &Group, target: &Target) -> Result<(), MeasureError> {
        let arrays = (group.array_bytes > 0).then(|| self.region(group, target, 3 * group.array_bytes, "arrays"));
        let mut arrays = arrays.transpose()?;
        let chases = (group.chase_bytes > 0).then(|| self.region(group, target, group.chase_bytes, "a chase"));
        let mut chases = chases.transpose()?;
        let mut on = On { group, target, wanted: (0..group.steps.len()).collect(), trials: Trials::new(group) };
        let planned: Duration = group.steps.iter().filter(|step| node_of(step).is_some()).map(|step| step.time).sum();
        let mut until = None;
        while !on.wanted.is_empty() {
            if let Some(memory) = &mut chases {
                self.chases(&mut on, memory, arrays.as_mut())?;
            }
            let Some(arrays) = &mut arrays else { break };
            self.bandwidths(&mut on, arrays)?;
            let until = *until.get_or_insert_with(|| self.late.min(Instant::now() + REPEATS * planned));
            on.wanted = in_state(&on.trials, arrays, until)?;
            self.repeats = true;
        }
        self.repeats = false;
        on.trials.finish(target, &mut self.results);
        chases.as_mut().map_or(Ok(()), |memory| self.stairs(group, target, memory))
    }

    /// Chases through all of the memory, one way after the other; those under load share the random one.
    fn chases(
        &mut self,
        on: &mut On<'_>,
        memory: &mut Region,
        mut arrays: Option<&mut Region>,
    ) -> Result<(), MeasureError> {
        let of_walk = |step: &Step| match step.task {
            Task::Latency { walk, .. } => Some(walk),
            Task::Loaded { .. } => Some(Walk::Random),
            _ => None,
        };
        let walks: BTreeSet<Walk> = on.steps().filter_map(|(_, step)| of_walk(step)).collect();
        for walk in walks {
            let bytes = on.group.chase_bytes.min(memory.bytes());
            // SAFETY: the region is borrowed for writing until the chase is over, and nothing else is written to it.
            let chase = unsafe {
                Chase::lay(memory.base(), bytes, walk, self.plan.line_bytes, self.options.seed, &on.group.fillers)
            }?;
            let steps: Vec<(usize, &Step)> = on.steps().filter(|(_, step)| of_walk(step) == Some(walk)).collect();
            for (index, step) in steps {
                let before = on.probe(step, arrays.as_deref_mut().map(|arrays| vec![arrays.as_doubles()]))?;
                let found = match (&step.task, arrays.as_deref_mut()) {
                    (Task::Latency { .. }, _) => self.latency(on, (index, step), &chase, bytes)?,
                    (Task::Loaded { .. }, Some(arrays)) => self.loaded(step, on.target, &chase, arrays)?,
                    _ => None,
                };
                let after = on.probe(step, arrays.as_deref_mut().map(|arrays| vec![arrays.as_doubles()]))?;
                on.add((index, step), found, before.zip(after));
            }
        }
        Ok(())
    }

    fn latency(
        &mut self,
        on: &On<'_>,
        (index, step): (usize, &Step),
        chase: &Chase,
        bytes: usize,
    ) -> Result<Option<(String, Found)>, MeasureError> {
        let Task::Latency { from, cpu, walk } = step.task else { return Ok(None) };
        let what = format!("latency from CPU {cpu} to {}", on.target);
        if !self.begins(step, &what) {
            return Ok(None);
        }
        let found = chase.time(cpu, step.time);
        let Some((ns, loads)) = self.keep(&what, found)? else { return Ok(None) };
        let (target, bytes) = (on.target.clone(), bytes as u64);
        let alone = LatencyCell { from, cpu, target, walk, bytes, loads, ns };
        let overlap = if on.trials.may_overlap(index) { self.overlap(step, &alone, chase)? } else { None };
        Ok(Some((what, Found::Latency(alone, overlap))))
    }

    /// Several chases at once, on the first core whose own memory is chased through at random: cores are taken to be alike.
    fn overlap(&mut self, step: &Step, alone: &LatencyCell, chase: &Chase) -> Result<Option<Overlap>, MeasureError> {
        let is_local = alone.target.node() == Some(alone.from);
        if self.results.overlap.is_some() || !is_local || matches!(alone.walk, Walk::Strided(_)) {
            return Ok(None);
        }
        let found = chase.time_side_by_side(alone.cpu, step.time / 2);
        let ns = self.keep(&format!("misses outstanding on CPU {}", alone.cpu), found)?;
        Ok(ns.map(|ns| Overlap::of(alone, CHAINS, ns)))
    }

    fn loaded(
        &mut self,
        step: &Step,
        target: &Target,
        chase: &Chase,
        arrays: &mut Region,
    ) -> Result<Option<(String, Found)>, MeasureError> {
        let Task::Loaded { from, cpu, neighbours, shares } = &step.task else { return Ok(None) };
        let what = format!("latency under load from node {from} to {target}");
        if !self.begins(step, &what) {
            return Ok(None);
        }
        let kernel = self.options.load_kernel;
        let mut beside = Neighbours { memory: arrays.as_doubles(), cpus: neighbours, kernel, isa: self.isa };
        let each = step.time / (shares.len() as u32 + 1);
        let found = curve(&Chaser { chase, cpu: *cpu }, &mut beside, shares, each);
        let Some(points) = self.keep(&what, found)? else { return Ok(None) };
        let (from, cpu, neighbours) = (*from, *cpu, neighbours.len());
        let curve = Curve { from, cpu, neighbours, kernel, target: target.clone(), points };
        Ok(Some((what, Found::Loaded(curve))))
    }

    fn stairs(&mut self, group: &Group, target: &Target, memory: &mut Region) -> Result<(), MeasureError> {
        for step in &group.steps {
            let Task::Stairs { from, cpu, walk, sizes } = &step.task else { continue };
            let what = format!("cache steps of CPU {cpu}");
            if !self.begins(step, &what) {
                continue;
            }
            let found = climb(memory, sizes, *walk, self.plan.line_bytes, self.options.seed, (*cpu, step.time));
            if let Some((points, levels)) = self.keep(&what, found)? {
                let (from, cpu, walk) = (*from, *cpu, *walk);
                self.results.caches.push(Staircase { from, cpu, target: target.clone(), walk, points, levels });
            }
        }
        Ok(())
    }

    fn bandwidths(&mut self, on: &mut On<'_>, arrays: &mut Region) -> Result<(), MeasureError> {
        let is_bandwidth = |(_, step): &(usize, &Step)| matches!(step.task, Task::Bandwidth { .. });
        let mut left: Vec<(usize, &Step)> = on.steps().filter(is_bandwidth).collect();
        while let Some((_, Step { task: Task::Bandwidth { from, cpus, .. }, .. })) = left.first().copied() {
            let same = |(_, step): &(usize, &Step)| matches!(&step.task, Task::Bandwidth { cpus: others, .. } if others == cpus);
            let kernels: Vec<(usize, &Step)> = left.iter().copied().filter(same).collect();
            left.retain(|step| !same(step));
            let what = format!("bandwidth from node {from} to {} with {} CPUs", on.target, cpus.len());
            let bench = Bench::new(arrays.as_doubles(), cpus, self.isa);
            let Some(mut bench) = self.keep(&what, bench)? else { continue };
            for (index, step) in kernels {
                let Task::Bandwidth { kernel, .. } = step.task else { continue };
                let what = format!("{what}: {}", kernel.word());
                if !self.begins(step, &what) {
                    continue;
                }
                let before = on.probe(step, Some(bench.memory()))?;
                let found = bench.time(kernel, step.time, self.clock_hz);
                let after = on.probe(step, Some(bench.memory()))?;
                let found = self
                    .keep(&what, found)?
                    .map(|bytes_per_s| (what, Found::Bandwidth(cell(*from, &bench, on.target, kernel, bytes_per_s))));
                on.add((index, step), found, before.zip(after));
            }
        }
        Ok(())
    }

    fn handoffs(&mut self, group: &Group) -> Result<(), MeasureError> {
        for step in &group.steps {
            let Task::Handoff { a, b, relation } = step.task else { continue };
            let what = format!("hand-off between CPUs {a} and {b}");
            if !self.begins(step, &what) {
                continue;
            }
            let found = handoff::time(a, b, step.time);
            if let Some(ns) = self.keep(&what, found)? {
                self.results.handoff.push(Handoff { a, b, relation, ns });
            }
        }
        Ok(())
    }
}

/// The measurements on one memory that are under way.
struct On<'a> {
    group: &'a Group,
    target: &'a Target,
    /// Steps that are to be made, or made again.
    wanted: BTreeSet<usize>,
    trials: Trials,
}

impl<'a> On<'a> {
    /// The steps that are wanted, with their places in the group.
    fn steps(&self) -> impl Iterator<Item = (usize, &'a Step)> + use<'a, '_> {
        self.group.steps.iter().enumerate().filter(|(index, _)| self.wanted.contains(index))
    }

    /// What the CPUs of the step's node read now from this memory; `None` where they cannot be asked.
    fn probe(&self, step: &Step, memory: Option<Vec<&mut [f64]>>) -> Result<Option<f64>, MeasureError> {
        match (node_of(step).and_then(|from| self.trials.probers(from)), memory) {
            (Some(cpus), Some(memory)) => told(probe(memory, cpus)),
            _ => Ok(None),
        }
    }

    fn add(&mut self, (index, step): (usize, &Step), found: Option<(String, Found)>, probes: Option<(f64, f64)>) {
        if let (Some((what, found)), Some(from)) = (found, node_of(step)) {
            self.trials.add(Trial { step: index, from, what, probes, found });
        }
    }
}

/// A CPU that went away, or a thread that does not start, costs the probe and not the measurement.
fn told(probe: Result<Option<f64>, MeasureError>) -> Result<Option<f64>, MeasureError> {
    match probe {
        Err(MeasureError::Pin { .. } | MeasureError::Thread { .. }) => Ok(None),
        told => told,
    }
}

/// Steps that were never made in their node's most frequent state, of nodes that are in that state now; waits for one until then. None where none is missing.
fn in_state(trials: &Trials, arrays: &mut Region, until: Instant) -> Result<BTreeSet<usize>, MeasureError> {
    let missing = trials.missing();
    let nodes: BTreeSet<_> = missing.iter().map(|(from, _)| *from).collect();
    while !missing.is_empty() && Instant::now() < until {
        let mut now = BTreeSet::new();
        for &from in &nodes {
            let Some(cpus) = trials.probers(from) else { continue };
            let found = told(probe(vec![arrays.as_doubles()], cpus))?;
            // Where no state ever lasted for a measurement, any moment is as good.
            if trials.state(from).is_none_or(|state| found.is_some_and(|found| state.holds(found))) {
                now.insert(from);
            }
        }
        if !now.is_empty() {
            return Ok(missing.iter().filter(|(from, _)| now.contains(from)).map(|(_, step)| *step).collect());
        }
        std::thread::sleep(NAP);
    }
    Ok(BTreeSet::new())
}

fn cell(
    from: numapilot_machine::NodeId,
    bench: &Bench<'_>,
    target: &Target,
    kernel: Kernel,
    bytes_per_s: crate::results::Figure,
) -> BandwidthCell {
    let traffic = kernel.traffic_per_element() as f64 / kernel.bytes_per_element() as f64;
    BandwidthCell {
        from,
        cpus: bench.threads(),
        target: target.clone(),
        kernel,
        bytes: bench.bytes(kernel),
        traffic_bytes_per_s: bytes_per_s.best() * traffic,
        bytes_per_s,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_can_be_missed_is_left_out_where_all_takes_far_longer_than_planned() {
        let machine = Machine::from_sysfs(Path::new("/")).expect("this machine");
        let permit = Permit::of_this_process();
        let options = Options { size_bytes: Some(1 << 20), ..Options::default() };
        let mut plan = Plan::new(&machine, &permit, &options).expect("a plan");
        plan.groups.iter_mut().flat_map(|group| &mut group.steps).for_each(|step| step.time /= 50);
        let dispensable = plan.steps().filter(|(_, step)| step.rank > 0).count();
        let mut begun = 0;
        let results =
            carry_out(&machine, &permit, &options, &plan, Instant::now(), &mut |_| begun += 1).expect("results");
        assert_eq!((begun, dispensable > 0), (plan.steps().count() - dispensable, true));
        assert_eq!(results.left_out.iter().filter(|what| what.contains("busy")).count(), dispensable);
        assert!(!results.latency.is_empty(), "{:?}", results.left_out);
    }
}
