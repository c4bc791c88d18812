//! The running machine as a source: a reading is one moment, two readings make an [`Interval`]. Each figure comes from the best source that this machine has,
//! and is labelled with it; without a source it holds the reason.

mod confinement;
pub mod counters;
mod kernel;
mod layout;
mod processes;
mod resctrl;
pub mod samples;
mod tree;
mod uncore;

use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;
use numapilot_perf_events::rights::refused_note;

pub use kernel::VM_COUNTERS;
pub use processes::Processes;
pub use processes::ScanCost;
pub use tree::TreeReading;

use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NumaMetrics;
use counters::Counters;
use counters::CountersReading;
use counters::Scope;
use kernel::KernelReading;
use numapilot_host::Mounts;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::hidden_by;
use resctrl::Resctrl;
use resctrl::ResctrlReading;
use samples::Sampler;
use samples::SamplesReading;
use samples::Sampling;
use uncore::Uncore;
use uncore::UncoreReading;

/// Longest time between two looks at which CPUs are online.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// What is watched, and why some of it cannot be watched.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    /// Scope of the counted events; `None`: none are counted.
    pub scope: Option<Scope>,
    /// Whether accesses are sampled as well.
    pub sampling: Sampling,
    /// Why this machine's processor offers no events, if known.
    pub no_pmu: Option<String>,
    /// Why latencies are not known: no counter measures them, but sampling may.
    pub no_latency: String,
}

/// The running machine as a source of intervals.
pub struct Live {
    root: Root,
    machine: Machine,
    counters: Counters,
    uncore: Uncore,
    resctrl: Resctrl,
    sampler: Option<Sampler>,
    /// Why nothing is sampled although sampling was requested.
    no_samples: Option<String>,
    /// Why a process that joined is not sampled: the first error.
    not_joined: Option<String>,
    no_latency: String,
    no_links: String,
    is_system: bool,
    /// What this process may use of the machine, if not all.
    confinement: Option<String>,
    /// Why it is not known how busy the CPUs of nodes are: their times are those of a container.
    made_up_cpu_times: Option<String>,
    /// Why it is not known how many there are: the list of them is that of a container.
    made_up_cpus: Option<String>,
    /// That /proc hides other users' processes.
    hidden: Option<String>,
    changed_cpus: ChangedCpus,
    followed_at: Instant,
    began: Instant,
    before: Moment,
    buffer: Vec<u8>,
}

/// A time span that is longer than an interval.
pub struct Whole(Moment);

impl Whole {
    /// Figures since the span began.
    pub fn interval(&self, live: &mut Live) -> Interval {
        let now = live.moment();
        live.between(&self.0, &now)
    }
}

/// CPUs that have gone offline or come online since the start.
#[derive(Clone, Debug, Default)]
struct ChangedCpus {
    /// Those that were offline at the start, and are online.
    came: BTreeSet<CpuId>,
    /// Those that were online at the start, and have been offline at some look.
    went: BTreeSet<CpuId>,
    /// Those of them that are online again.
    back: BTreeSet<CpuId>,
}

impl ChangedCpus {
    fn look(&mut self, machine: &Machine, online: &BTreeSet<CpuId>) {
        let first: BTreeSet<CpuId> = machine.cpus().iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect();
        self.went.extend(first.difference(online));
        self.came = online.difference(&first).copied().collect();
        self.back = self.went.intersection(online).copied().collect();
    }

    /// Those that came online; with `back`, also those that were offline for a while.
    fn came_or_came_back(&self, back: bool) -> BTreeSet<CpuId> {
        self.came.iter().chain(self.back.iter().filter(|_| back)).copied().collect()
    }
}

#[derive(Clone, Default)]
struct Moment {
    at_ns: u64,
    kernel: KernelReading,
    counters: CountersReading,
    uncore: UncoreReading,
    resctrl: ResctrlReading,
    samples: SamplesReading,
}

impl Live {
    /// Opens all sources, and takes the first reading.
    #[must_use]
    pub fn open(root: Root, machine: Machine, options: &LiveOptions) -> Live {
        let counters = match &options.scope {
            Some(scope) => Counters::open(&root, &machine, scope, options.no_pmu.as_deref()),
            None => Counters::none("events are not counted here"),
        };
        let scope = options.scope.as_ref();
        let sampler = scope.map_or(Ok(None), |scope| Sampler::open(scope, &machine, options.sampling));
        let no_samples = sampler.as_ref().err().map(ToString::to_string);
        let mounts = Mounts::read(&root);
        let mut live = Live {
            counters,
            sampler: sampler.ok().flatten(),
            no_samples,
            not_joined: None,
            uncore: Uncore::open(&root, &machine),
            resctrl: Resctrl::find(&root, &machine),
            no_latency: options.no_latency.clone(),
            no_links: uncore::why_no_links(&root),
            is_system: options.scope.as_ref().is_none_or(|scope| *scope == Scope::System),
            confinement: confinement::words(&root, &machine),
            made_up_cpu_times: confinement::made_up_cpu_times(&mounts),
            made_up_cpus: confinement::made_up_cpus(&mounts),
            hidden: hidden_by(&mounts, &root).map(|note| note.replacen('p', "P", 1) + "."),
            changed_cpus: ChangedCpus::default(),
            followed_at: Instant::now(),
            began: Instant::now(),
            before: Moment::default(),
            buffer: Vec::new(),
            root,
            machine,
        };
        live.before = live.moment();
        live
    }

    /// The machine that is watched.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Root prefix of the machine's files.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// That processes are hidden from this user, as a sentence; `None`: all are shown.
    #[must_use]
    pub fn hidden(&self) -> Option<&str> {
        self.hidden.as_deref()
    }

    /// What had changed of the machine at the last reading, as sentences: the figures lack it until the sources are opened anew.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let kernel = &self.before.kernel;
        let uncounted = kernel.gone_cpus(&self.machine).into_iter().chain(self.counters.uncounted());
        kernel.changes(&self.machine).into_iter().chain(uncounted).collect()
    }

    /// The sampler of accesses (or faults), if there is one.
    pub fn sampler(&mut self) -> Option<&mut Sampler> {
        self.sampler.as_mut()
    }

    /// Counts and samples these processes too, which joined without having inherited the events. One that has ended is no error.
    pub fn join(&mut self, pids: &[Pid]) {
        self.counters.join(&self.machine, pids);
        for pid in pids {
            if let Some(Err(error)) = self.sampler.as_mut().map(|sampler| sampler.join(*pid)) {
                self.not_joined.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Ends the counting and sampling of processes that have ended, with all that inherited their events ([`numapilot_host::Lineages`]). What they did stays
    /// counted.
    pub fn leave(&mut self, pids: &[Pid]) {
        self.counters.close(pids);
        if let Some(sampler) = &mut self.sampler {
            sampler.leave(pids);
        }
    }

    /// Reads waiting samples, and follows CPUs; to be called within intervals that are longer than a second or two.
    pub fn look(&mut self) {
        if self.followed_at.elapsed() >= FOLLOW_EVERY {
            self.follow_cpus();
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.look();
        }
    }

    /// Events follow CPUs that have gone offline or come online. (A container's list of them says nothing of the machine's.)
    fn follow_cpus(&mut self) {
        self.followed_at = Instant::now();
        if self.made_up_cpus.is_some() {
            return;
        }
        let Some(text) = self.root.text("sys/devices/system/cpu/online") else { return };
        let Ok(online) = parse_cpu_list(&text) else { return };
        let online: BTreeSet<CpuId> = online.into_iter().map(CpuId).collect();
        self.counters.follow_cpus(&self.machine, &online);
        self.changed_cpus.went.extend(self.counters.interrupted());
        self.changed_cpus.look(&self.machine, &online);
    }

    /// What is not counted or sampled on CPUs that have come online since the start, as sentences.
    fn without_events(&self) -> impl Iterator<Item = String> {
        let came = format_cpu_list(self.changed_cpus.came.iter().map(|cpu| cpu.0));
        // An event of a task outlives its CPU's absence, one of the whole machine does not.
        let cpus = self.changed_cpus.came_or_came_back(self.is_system);
        let of_tasks = (self.counters.are_of_tasks_by_cpu() && !came.is_empty()).then(|| {
            format!("Processor events of processes are not counted on CPUs that came online since the start: {came}.")
        });
        let samples = self.sampler.iter().flat_map(move |sampler| unsampled(cpus.clone(), sampler.resumed()));
        of_tasks.into_iter().chain(samples)
    }

    /// Begins a time span that is independent of the intervals in it.
    #[must_use]
    pub fn whole(&self) -> Whole {
        Whole(self.before.clone())
    }

    fn kernel(&mut self) -> KernelReading {
        let mut reading = KernelReading::read(&self.root, &self.machine, &mut self.buffer);
        if self.made_up_cpu_times.is_some() {
            reading.forget_cpu_times();
        }
        reading
    }

    fn moment(&mut self) -> Moment {
        self.follow_cpus();
        Moment {
            at_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            kernel: self.kernel(),
            counters: self.counters.read(),
            uncore: self.uncore.read(),
            resctrl: self.resctrl.read(&self.root),
            samples: self.sampler.as_mut().map(Sampler::read).unwrap_or_default(),
        }
    }

    /// Figures since the last call (or since opening).
    pub fn interval(&mut self) -> Interval {
        let now = self.moment();
        let interval = self.between(&self.before, &now);
        self.before = now;
        interval
    }

    fn between(&self, before: &Moment, now: &Moment) -> Interval {
        let mut interval = Interval { from_ns: before.at_ns, to_ns: now.at_ns, ..Interval::default() };
        let seconds = interval.seconds();
        interval.nodes = now.kernel.nodes_since(&before.kernel, &self.machine);
        for (index, node) in NodeIndex::all(interval.nodes.len()).zip(&mut interval.nodes) {
            let sums = self.counters.sums(&before.counters, &now.counters, Some(index));
            let of_resctrl = || self.resctrl.local_share(&before.resctrl, &now.resctrl, Some(node.node));
            let of_samples = || self.sampled_share(before, now, Some(index));
            node.local_share = self.counters.local_share(&sums).or(of_resctrl).or(of_samples);
            let of_node = |sampler: &Sampler| sampler.of_node(&before.samples, &now.samples, index, seconds);
            node.sampled = self.sampler.as_ref().map(of_node);
            node.l3_mpki = self.counters.l3_mpki(&sums);
            node.ipc = self.counters.ipc(&sums);
            node.controller_bytes_per_s = self.uncore.bytes_per_s(&before.uncore, &now.uncore, index, seconds);
        }
        let sums = self.counters.sums(&before.counters, &now.counters, None);
        interval.events = self.counters.figures(&sums);
        interval.kernel = now.kernel.vm_since(&before.kernel);
        interval.sampled = self.sampler.as_ref().map(|sampler| sampler.counts(&before.samples, &now.samples));
        interval.notes.extend(self.confinement.iter().chain(&self.hidden).filter(|_| self.is_system).cloned());
        let unknown = |what: &str, why: Option<&String>| why.map(|why| format!("{what} is not known: {why}."));
        interval.notes.extend(unknown("How busy the CPUs of nodes are", self.made_up_cpu_times.as_ref()));
        interval.notes.extend(unknown("How many CPUs of nodes are online", self.made_up_cpus.as_ref()));
        interval.no_busy_cpus.clone_from(&self.made_up_cpu_times);
        interval.no_cpus.clone_from(&self.made_up_cpus);
        interval.notes.extend(now.kernel.changes(&self.machine));
        interval.notes.extend(self.without_events());
        interval.notes.extend(self.counters.notes());
        interval.notes.extend(self.sampler.iter().flat_map(Sampler::notes));
        let refused =
            self.counters.denied().chain(self.sampler.iter().flat_map(|sampler| sampler.refused().iter().copied()));
        let refused: BTreeSet<Pid> = refused.collect();
        let refused: Vec<Pid> = refused.into_iter().collect();
        interval.notes.extend(refused_note(&refused).map(|note| format!("{note}.")));
        interval
            .notes
            .extend(self.not_joined.iter().map(|why| format!("A process that joined is not sampled: {why}.")));
        interval.notes.extend(self.no_samples.iter().map(|why| format!("Nothing is sampled: {why}.")));
        interval.metrics = self.metrics(before, now, &sums);
        interval
    }

    fn sampled_share(&self, before: &Moment, now: &Moment, node: Option<NodeIndex>) -> MetricValue {
        let of = |sampler: &Sampler| sampler.local_share(&before.samples, &now.samples, node);
        self.sampler.as_ref().map(of).unwrap_or_default()
    }

    fn metrics(&self, before: &Moment, now: &Moment, sums: &counters::Sums) -> NumaMetrics {
        let mut metrics = NumaMetrics::default();
        // Machine-wide counters do not describe a part of the processes.
        let whole = |told: &dyn Fn() -> MetricValue| match self.is_system {
            true => told(),
            false => MetricValue::Missing("the kernel and resctrl count the whole machine (`--system`)".to_owned()),
        };
        let local = self.counters.local_share(sums);
        let local = local.or(|| whole(&|| self.resctrl.local_share(&before.resctrl, &now.resctrl, None)));
        // Sampled accesses take precedence over the kernel's hinting fault counters; sampled faults are the same data for some processes only.
        let is_of_accesses = self.sampler.as_ref().is_some_and(|sampler| !sampler.is_of_faults());
        let local = if is_of_accesses { local.or(|| self.sampled_share(before, now, None)) } else { local };
        let local = local.or(|| whole(&|| now.kernel.hinted_local_share(&before.kernel)));
        let local = if is_of_accesses { local } else { local.or(|| self.sampled_share(before, now, None)) };
        metrics.set(Metric::LocalShare, local);
        let latency = self.sampler.as_ref().and_then(|sampler| sampler.latency(&before.samples, &now.samples));
        metrics.set(Metric::Latency, latency.unwrap_or_else(|| MetricValue::Missing(self.no_latency.clone())));
        metrics.set(Metric::ControllerImbalance, self.uncore.imbalance(&before.uncore, &now.uncore));
        metrics.set(Metric::LinkUsage, MetricValue::Missing(self.no_links.clone()));
        metrics.set(Metric::LinkImbalance, MetricValue::Missing(self.no_links.clone()));
        metrics.set(Metric::L3Mpki, self.counters.l3_mpki(sums));
        metrics.set(Metric::Ipc, self.counters.ipc(sums));
        metrics
    }
}

/// What is not sampled on CPUs that came online, or were offline for a while, as sentences. `resumed`: those of them that are sampled again.
fn unsampled(mut cpus: BTreeSet<CpuId>, resumed: &BTreeSet<CpuId>) -> Vec<String> {
    cpus.retain(|cpu| !resumed.contains(cpu));
    let list = |cpus: &BTreeSet<CpuId>| format_cpu_list(cpus.iter().map(|cpu| cpu.0));
    let (cpus, resumed) = (list(&cpus), list(resumed));
    let never =
        (!cpus.is_empty()).then(|| format!("Nothing is sampled on CPUs that came online since the start: {cpus}."));
    let gap = (!resumed.is_empty()).then(|| {
        format!("Nothing was sampled on CPUs {resumed}, which were offline for a while, in the seconds after they came back.")
    });
    never.into_iter().chain(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn cpus_that_are_sampled_again_are_told_apart_from_those_that_are_not() {
        let cpus = |ids: &[u32]| ids.iter().copied().map(CpuId).collect::<BTreeSet<_>>();
        assert!(unsampled(cpus(&[]), &cpus(&[])).is_empty());
        let told = unsampled(cpus(&[1, 3]), &cpus(&[3]));
        assert!(told.len() == 2 && told[0].ends_with("since the start: 1."), "{told:?}");
        assert!(told[1].starts_with("Nothing was sampled on CPUs 3, which were offline"), "{told:?}");
    }

    #[test]
    fn cpus_that_came_are_told_apart_from_those_that_were_away() {
        let tree = Tree::symmetric(1, 4, 4096);
        tree.put("sys/devices/system/cpu/online", "0-2");
        let (machine, mut changed) = (tree.machine(), ChangedCpus::default());
        let mut look = |online: &[u32]| {
            let online: BTreeSet<CpuId> = online.iter().copied().map(CpuId).collect();
            changed.look(&machine, &online);
            [false, true].map(|back| format_cpu_list(changed.came_or_came_back(back).iter().map(|cpu| cpu.0)))
        };
        assert_eq!(look(&[0, 1, 2]), ["", ""]);
        assert_eq!(look(&[0, 2, 3]), ["3", "3"]);
        assert_eq!(look(&[0, 1, 2, 3]), ["3", "1,3"]);
        assert_eq!(look(&[0, 1, 2]), ["", "1"]);
    }

    /// It was counted nowhere, until the next start.
    #[test]
    fn a_cpu_that_was_offline_at_the_start_is_followed() {
        let tree = Tree::symmetric(1, 3, 4096);
        tree.put("sys/devices/system/cpu/online", "0-1");
        let mut live = Live::open(tree.root(), tree.machine(), &LiveOptions::default());
        tree.put("sys/devices/system/cpu/online", "0-2");
        live.interval();
        assert!(live.changed_cpus.came.contains(&CpuId(2)) && live.without_events().next().is_none());
    }
}
