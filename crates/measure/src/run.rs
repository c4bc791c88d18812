//! Executes a plan, one group of measurements after the other, and collects the results. A failed measurement is left out with its reason; the others go on.

use std::collections::BTreeSet;
use std::time::Instant;

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

/// A busy machine may take this many times as long as planned; past that, only what everything else needs is measured.
const LATE: u32 = 3;

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
    let mut runner =
        Runner { late, permit, options, plan, isa, clock_hz: results.host.clock_mhz * 1e6, results, done: 0, progress };
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
        (self.progress)(Progress { done: self.done, of: self.plan.steps().count(), now: now.to_owned() });
        self.done += 1;
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

    /// Everything on one memory: chases idle and under load, cache steps, kernels.
    fn on_memory(&mut self, group: &Group, target: &Target) -> Result<(), MeasureError> {
        let arrays = (group.array_bytes > 0).then(|| self.region(group, target, 3 * group.array_bytes, "arrays"));
        let mut arrays = arrays.transpose()?;
        if group.chase_bytes > 0 {
            let mut memory = self.region(group, target, group.chase_bytes, "a chase")?;
            self.chases(group, target, &mut memory, arrays.as_mut())?;
            self.stairs(group, target, &mut memory)?;
        }
        arrays.as_mut().map_or(Ok(()), |arrays| self.bandwidths(group, target, arrays))
    }

    /// Chases through all of the memory, one way after the other; those under load share the random one.
    fn chases(
        &mut self,
        group: &Group,
        target: &Target,
        memory: &mut Region,
        mut arrays: Option<&mut Region>,
    ) -> Result<(), MeasureError> {
        let of_walk = |step: &Step| match step.task {
            Task::Latency { walk, .. } => Some(walk),
            Task::Loaded { .. } => Some(Walk::Random),
            _ => None,
        };
        let walks: BTreeSet<Walk> = group.steps.iter().filter_map(of_walk).collect();
        for walk in walks {
            let bytes = group.chase_bytes.min(memory.bytes());
            // SAFETY: the region is borrowed for writing until the chase is over, and nothing else is written to it.
            let chase = unsafe {
                Chase::lay(memory.base(), bytes, walk, self.plan.line_bytes, self.options.seed, &group.fillers)
            }?;
            for step in group.steps.iter().filter(|step| of_walk(step) == Some(walk)) {
                match (&step.task, arrays.as_deref_mut()) {
                    (Task::Latency { .. }, _) => self.latency(step, target, &chase, bytes)?,
                    (Task::Loaded { .. }, Some(arrays)) => self.loaded(step, target, &chase, arrays)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn latency(&mut self, step: &Step, target: &Target, chase: &Chase, bytes: usize) -> Result<(), MeasureError> {
        let Task::Latency { from, cpu, walk } = step.task else { return Ok(()) };
        let what = format!("latency from CPU {cpu} to {target}");
        if !self.begins(step, &what) {
            return Ok(());
        }
        let found = chase.time(cpu, step.time);
        if let Some((ns, loads)) = self.keep(&what, found)? {
            let (target, bytes) = (target.clone(), bytes as u64);
            let alone = LatencyCell { from, cpu, target, walk, bytes, loads, ns };
            self.overlap(step, &alone, chase)?;
            self.results.latency.push(alone);
        }
        Ok(())
    }

    /// Several chases at once, on the first core whose own memory is chased through at random: cores are taken to be alike.
    fn overlap(&mut self, step: &Step, alone: &LatencyCell, chase: &Chase) -> Result<(), MeasureError> {
        let is_local = alone.target.node() == Some(alone.from);
        if self.results.overlap.is_some() || !is_local || matches!(alone.walk, Walk::Strided(_)) {
            return Ok(());
        }
        let found = chase.time_side_by_side(alone.cpu, step.time / 2);
        if let Some(ns) = self.keep(&format!("misses outstanding on CPU {}", alone.cpu), found)? {
            self.results.overlap = Some(Overlap::of(alone, CHAINS, ns));
        }
        Ok(())
    }

    fn loaded(&mut self, step: &Step, target: &Target, chase: &Chase, arrays: &mut Region) -> Result<(), MeasureError> {
        let Task::Loaded { from, cpu, neighbours, shares } = &step.task else { return Ok(()) };
        let what = format!("latency under load from node {from} to {target}");
        if !self.begins(step, &what) {
            return Ok(());
        }
        let kernel = self.options.load_kernel;
        let mut beside = Neighbours { memory: arrays.as_doubles(), cpus: neighbours, kernel, isa: self.isa };
        let each = step.time / (shares.len() as u32 + 1);
        let found = curve(&Chaser { chase, cpu: *cpu }, &mut beside, shares, each);
        if let Some(points) = self.keep(&what, found)? {
            let (from, cpu, neighbours) = (*from, *cpu, neighbours.len());
            self.results.loaded.push(Curve { from, cpu, neighbours, kernel, target: target.clone(), points });
        }
        Ok(())
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

    fn bandwidths(&mut self, group: &Group, target: &Target, arrays: &mut Region) -> Result<(), MeasureError> {
        let mut left: Vec<&Step> =
            group.steps.iter().filter(|step| matches!(step.task, Task::Bandwidth { .. })).collect();
        while let Some(Step { task: Task::Bandwidth { from, cpus, .. }, .. }) = left.first().copied() {
            let same = |step: &&Step| matches!(&step.task, Task::Bandwidth { cpus: others, .. } if others == cpus);
            let kernels: Vec<&Step> = left.iter().copied().filter(same).collect();
            left.retain(|step| !same(step));
            let what = format!("bandwidth from node {from} to {target} with {} CPUs", cpus.len());
            let bench = Bench::new(arrays.as_doubles(), cpus, self.isa);
            let Some(mut bench) = self.keep(&what, bench)? else { continue };
            for step in kernels {
                let Task::Bandwidth { kernel, .. } = step.task else { continue };
                if !self.begins(step, &format!("{what}: {}", kernel.word())) {
                    continue;
                }
                let found = bench.time(kernel, step.time, self.clock_hz);
                if let Some(bytes_per_s) = self.keep(&what, found)? {
                    self.results.bandwidth.push(cell(*from, &bench, target, kernel, bytes_per_s));
                }
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
