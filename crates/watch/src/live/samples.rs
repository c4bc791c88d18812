//! Sampled accesses as a source: rates and latencies by node, by process, and by page of one process. They are estimates, and labelled as such.
//!
//! If the processor can sample, these are memory accesses. If only page faults are available, they are first touches and, with NUMA balancing, hinting faults.
//! The latter are recognised as faults on pages that were seen before, and only they show locality.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::collections::HashSet;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::sysctl;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::live_sampler::Kind;
use numapilot_perf_events::live_sampler::LiveSampler;
use numapilot_perf_events::live_sampler::Seen;
use numapilot_perf_events::open::Scope;

use crate::figures::MetricValue;
use crate::figures::Sampled;
use crate::figures::SampledNode;
use crate::heat::Heat;
use crate::live::kernel;

/// Maximum number of pages that are remembered as seen.
const PAGES_MAX: usize = 1 << 20;

/// What is sampled, beside counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Nothing is sampled.
    #[default]
    Off,
    /// Memory accesses, if the processor can sample them; otherwise nothing.
    Accesses,
    /// Memory accesses if possible, otherwise page faults.
    AccessesOrFaults,
}

/// Accesses from a node's CPUs, weighted by what each sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct NodeTally {
    local: f64,
    remote: f64,
    unknown: f64,
    /// Weight of the samples that show locality: accesses, and faults on pages that were seen before.
    telling: f64,
    /// The local ones of these.
    telling_local: f64,
    /// Sum of latency times weight.
    latency: f64,
    /// Weight of the samples whose latency is known.
    timed: f64,
}

/// Totals since sampling began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplesReading {
    nodes: Vec<NodeTally>,
    samples: u64,
    lost: u64,
}

/// Memory accesses by process since the last figures: those whose page's home node is known, and the local ones.
type Shares = HashMap<Pid, (f64, f64)>;

/// Opened events and their results.
pub struct Sampler {
    live_sampler: LiveSampler,
    /// CPUs that were offline for a while, and are sampled again.
    resumed: BTreeSet<CpuId>,
    /// The machine, for the indices of nodes.
    machine: Machine,
    seen: Vec<Seen>,
    tally: SamplesReading,
    /// Pages that were seen, by process id and first address.
    known_pages: HashSet<(Pid, u64)>,
    /// Bytes of the kernel's base pages: a fault on one shows any of its addresses.
    page_bytes: u64,
    /// Whether the kernel takes hinting faults on slow memory alone (`kernel.numa_balancing` without its bit 0), which show nothing of the rest.
    is_of_tiers: bool,
    processes: Shares,
    focus: Option<(Pid, Heat)>,
}

impl Sampler {
    /// Opens the best available events; `None`: nothing is requested, or only page faults are available and they are not requested.
    ///
    /// # Errors
    /// The kernel refuses; the error contains the reason and the remedy.
    pub fn open(scope: &Scope, machine: &Machine, sampling: Sampling) -> Result<Option<Sampler>, EventsError> {
        let live_sampler = match sampling {
            Sampling::Off => None,
            Sampling::Accesses => LiveSampler::of_accesses(scope, machine)?,
            Sampling::AccessesOrFaults => Some(LiveSampler::open(scope, machine)?),
        };
        Ok(live_sampler.map(|live_sampler| Sampler::of(live_sampler, machine)))
    }

    fn of(mut live_sampler: LiveSampler, machine: &Machine) -> Sampler {
        live_sampler.watch_cpus();
        Sampler {
            live_sampler,
            resumed: BTreeSet::new(),
            machine: machine.clone(),
            seen: Vec::new(),
            tally: SamplesReading {
                nodes: vec![NodeTally::default(); machine.nodes().len()],
                ..SamplesReading::default()
            },
            known_pages: HashSet::new(),
            page_bytes: page_bytes(),
            is_of_tiers: is_of_tiers(),
            processes: Shares::new(),
            focus: None,
        }
    }

    /// Samples a process too that joined without having inherited the events.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn join(&mut self, pid: Pid) -> Result<bool, EventsError> {
        self.live_sampler.add(pid)
    }

    /// Ends the sampling of processes that joined and have ended, with all that inherited their events.
    pub fn leave(&mut self, pids: &[Pid]) {
        self.live_sampler.leave(pids);
    }

    /// What is sampled, in a few words.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match self.live_sampler.kind {
            Kind::Accesses => "samples (PMU)",
            Kind::Emulated => "samples (EMULATED PMU)",
            Kind::Faults => "sampled page faults",
        }
    }

    /// Whether faults stand in for accesses.
    #[must_use]
    pub fn is_of_faults(&self) -> bool {
        self.live_sampler.kind == Kind::Faults
    }

    /// Notes for the reader, in whole sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let own = self.is_of_faults().then(|| {
            "Page faults are sampled, not accesses: first touches, and hinting faults where the kernel's NUMA balancing is on.".to_owned()
        });
        own.into_iter().chain(self.live_sampler.notes.iter().map(|note| format!("{note}."))).collect()
    }

    /// Processes that this user may not observe.
    #[must_use]
    pub fn refused(&self) -> &[Pid] {
        self.live_sampler.refused()
    }

    /// Selects the process whose samples are kept by page.
    pub fn select_process(&mut self, pid: Option<Pid>) {
        if self.focus.as_ref().map(|(of, _)| *of) != pid {
            self.focus = pid.map(|pid| (pid, Heat::default()));
        }
    }

    /// Samples by page of the selected process; `seconds` is the time since the last call.
    pub fn heat(&mut self, seconds: f64) -> Option<&Heat> {
        let (_, heat) = self.focus.as_mut()?;
        heat.fade(seconds);
        Some(heat)
    }

    /// Reads the rings; to be called at least every few seconds, so that they do not overflow.
    pub fn look(&mut self) {
        // It changes while the machine is watched: `numapilot balance` sets it, too.
        self.is_of_tiers = is_of_tiers();
        let mut seen = std::mem::take(&mut self.seen);
        seen.clear();
        self.live_sampler.look(&mut seen);
        let back = self.live_sampler.follow_cpus().into_iter().filter(|(_, is_open)| *is_open);
        self.resumed.extend(back.map(|(cpu, _)| cpu));
        seen.iter().for_each(|one| self.add(one));
        self.seen = seen;
        self.tally.lost = self.live_sampler.lost;
    }

    /// CPUs that were offline for a while, and are sampled again.
    #[must_use]
    pub fn resumed(&self) -> &BTreeSet<CpuId> {
        &self.resumed
    }

    fn add(&mut self, seen: &Seen) {
        // An access answered by a cache is not a memory access; one of unknown level may be.
        if seen.is_memory == Some(false) {
            return;
        }
        let weight = seen.weight as f64;
        let is_local = seen.node.zip(seen.home).map(|(node, home)| node == home);
        self.tally.samples += 1;
        let tells = !self.is_of_faults() || self.was_seen(seen) && !self.is_of_tiers;
        if let Some(node) = seen.node.and_then(|node| self.machine.node_index(node)) {
            let tally = &mut self.tally.nodes[node];
            match is_local {
                Some(true) => tally.local += weight,
                Some(false) => tally.remote += weight,
                None => tally.unknown += weight,
            }
            if let (true, Some(is_local)) = (tells, is_local) {
                tally.telling += weight;
                tally.telling_local += if is_local { weight } else { 0.0 };
            }
            if let Some(cycles) = seen.latency_cycles.filter(|_| seen.is_memory == Some(true)) {
                tally.latency += f64::from(cycles) * weight;
                tally.timed += weight;
            }
        }
        let Some((pid, _)) = seen.task else { return };
        if let (true, Some(is_local)) = (tells, is_local) {
            let shares = self.processes.entry(pid).or_default();
            *shares = (shares.0 + weight, shares.1 + if is_local { weight } else { 0.0 });
        }
        if let Some((focus, heat)) = &mut self.focus
            && *focus == pid
        {
            heat.add(VirtAddr(seen.address), weight, is_local.filter(|_| tells));
        }
    }

    /// Returns whether a page was seen before, and marks it as seen.
    fn was_seen(&mut self, seen: &Seen) -> bool {
        let Some((pid, _)) = seen.task else { return false };
        let page = (pid, seen.address & !(self.page_bytes - 1));
        if self.known_pages.len() >= PAGES_MAX {
            // Most are of processes that have ended, and no page of a new one would ever be known. The next fault of each counts as its first again.
            self.known_pages.clear();
        }
        !self.known_pages.insert(page)
    }

    /// Reads the waiting samples, and returns the totals since the start.
    pub fn read(&mut self) -> SamplesReading {
        self.look();
        self.tally.clone()
    }

    /// Local access ratio of each process since the last call.
    pub fn take_processes(&mut self) -> HashMap<Pid, f64> {
        let shares = std::mem::take(&mut self.processes);
        shares.into_iter().map(|(pid, (all, local))| (pid, local / all)).collect()
    }

    /// Local access ratio between two readings, of a node or of all.
    #[must_use]
    pub fn local_share(&self, before: &SamplesReading, now: &SamplesReading, node: Option<NodeIndex>) -> MetricValue {
        let sum = now.since(before, node);
        match (sum.telling > 0.0, self.is_of_faults()) {
            (true, false) => MetricValue::estimate(sum.telling_local / sum.telling, self.source()),
            (true, true) => {
                let source = "sampled page faults on pages seen before (hinting faults; one per page and scan)";
                MetricValue::estimate(sum.telling_local / sum.telling, source)
            }
            (false, false) => MetricValue::Missing("no memory access was sampled in the interval".to_owned()),
            // No reason of its own: the reasons of better sources are more useful.
            (false, true) => MetricValue::default(),
        }
    }

    /// Mean latency of memory accesses between two readings.
    #[must_use]
    pub fn latency(&self, before: &SamplesReading, now: &SamplesReading) -> Option<MetricValue> {
        let sum = now.since(before, None);
        (sum.timed > 0.0).then(|| MetricValue::estimate(sum.latency / sum.timed, self.source()))
    }

    /// Rates of a node between two readings.
    #[must_use]
    pub fn of_node(&self, before: &SamplesReading, now: &SamplesReading, node: NodeIndex, seconds: f64) -> SampledNode {
        let sum = now.since(before, Some(node));
        let per_s = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        SampledNode {
            local_per_s: per_s(sum.local),
            remote_per_s: per_s(sum.remote),
            unknown_per_s: per_s(sum.unknown),
            latency_cycles: (sum.timed > 0.0).then(|| sum.latency / sum.timed),
        }
    }

    /// Number of samples between two readings.
    #[must_use]
    pub fn counts(&self, before: &SamplesReading, now: &SamplesReading) -> Sampled {
        Sampled {
            source: self.source().to_owned(),
            samples: now.samples.saturating_sub(before.samples),
            lost: now.lost.saturating_sub(before.lost),
        }
    }
}

/// Whether the kernel takes hinting faults on slow memory alone now.
fn is_of_tiers() -> bool {
    sysctl::numa_balancing().and_then(|mode| u64::try_from(mode).ok()).is_some_and(kernel::is_of_tiers)
}

impl SamplesReading {
    fn since(&self, before: &SamplesReading, node: Option<NodeIndex>) -> NodeTally {
        let mut sum = NodeTally::default();
        for (index, now) in self.nodes.iter().enumerate().filter(|(index, _)| node.is_none_or(|node| node.0 == *index))
        {
            let old = before.nodes.get(index).copied().unwrap_or_default();
            sum.local += now.local - old.local;
            sum.remote += now.remote - old.remote;
            sum.unknown += now.unknown - old.unknown;
            sum.telling += now.telling - old.telling;
            sum.telling_local += now.telling_local - old.telling_local;
            sum.latency += now.latency - old.latency;
            sum.timed += now.timed - old.timed;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    //! A child that touches memory, seen by its faults; and tallies of made-up samples.

    use std::process::Command;

    use numapilot_host::Tid;
    use numapilot_machine::NodeId;

    use super::*;
    use crate::fixture::Tree;

    fn faults() -> Option<Sampler> {
        let machine = Machine::live().unwrap();
        let opened = Sampler::open(&Scope::Children, &machine, Sampling::AccessesOrFaults);
        opened.inspect_err(|error| numapilot_not_run::not_run!(PageFaultEvents, "{error}")).ok().flatten()
    }

    /// A sample of one of the pages of 4 KiB.
    fn sample(page: u64, node: u16, home: Option<u16>) -> Seen {
        Seen {
            task: Some((Pid(7), Tid(7))),
            address: page * 4096,
            node: Some(NodeId(node)),
            home: home.map(NodeId),
            is_memory: Some(true),
            latency_cycles: None,
            weight: 10,
        }
    }

    #[test]
    fn a_command_that_is_started_is_seen_by_its_faults() {
        let Some(mut sampler) = faults() else { return };
        let before = sampler.read();
        assert!(
            Command::new("dd")
                .args(["if=/dev/zero", "of=/dev/null", "bs=8M", "count=1", "status=none"])
                .status()
                .unwrap()
                .success()
        );
        let now = sampler.read();
        let counts = sampler.counts(&before, &now);
        // How many samples stand for them is the kernel's choice: of a burst, few.
        assert!(counts.samples > 0 && counts.source == "sampled page faults", "{counts:?}");
        let sum = now.since(&before, None);
        // 8 MiB are 2,048 pages, or fewer where the kernel gives large ones; with the loader's.
        assert!(sum.local + sum.remote + sum.unknown >= 50.0, "{sum:?}");
    }

    /// Of made-up faults on two nodes, on a kernel with pages of 4 KiB.
    fn of_two_nodes() -> Option<Sampler> {
        let mut sampler = faults()?;
        sampler.machine = Tree::symmetric(2, 1, 4096).machine();
        (sampler.is_of_tiers, sampler.page_bytes) = (false, 4096);
        sampler.tally = SamplesReading { nodes: vec![NodeTally::default(); 2], ..SamplesReading::default() };
        Some(sampler)
    }

    /// Pages of 64 KiB (arm64): later faults at other addresses of a page that was seen were taken for first touches, which say nothing of locality.
    #[test]
    fn a_page_that_was_seen_is_as_large_as_the_kernels() {
        let Some(mut sampler) = of_two_nodes() else { return };
        sampler.page_bytes = 65_536;
        let before = sampler.tally.clone();
        sampler.add(&sample(16, 1, Some(0)));
        assert_eq!(sampler.local_share(&before, &sampler.tally, None), MetricValue::default(), "a first touch");
        sampler.add(&sample(31, 1, Some(1)));
        sampler.add(&sample(32, 1, Some(0)));
        assert_eq!(sampler.local_share(&before, &sampler.tally, None).value(), Some(1.0), "32 is on the next page");
    }

    /// It was read once, at the start.
    #[test]
    fn what_faults_are_of_is_what_the_kernel_is_set_to_now() {
        let Some(mut sampler) = of_two_nodes() else { return };
        let now = is_of_tiers();
        sampler.is_of_tiers = !now;
        sampler.look();
        assert_eq!(sampler.is_of_tiers, now);
    }

    #[test]
    fn pages_of_the_past_leave_room_for_new_ones() {
        let Some(mut sampler) = of_two_nodes() else { return };
        sampler.known_pages = (0..PAGES_MAX as u64).map(|page| (Pid(9), page)).collect();
        let before = sampler.tally.clone();
        sampler.add(&sample(1, 1, Some(0)));
        assert_eq!(sampler.local_share(&before, &sampler.tally, None), MetricValue::default(), "a first touch");
        sampler.add(&sample(1, 1, Some(1)));
        assert_eq!(sampler.local_share(&before, &sampler.tally, None).value(), Some(1.0));
    }

    #[test]
    fn first_touches_say_nothing_of_locality_and_accesses_do() {
        let Some(mut sampler) = of_two_nodes() else { return };
        let before = sampler.tally.clone();
        sampler.select_process(Some(Pid(7)));
        for seen in [sample(1, 0, Some(0)), sample(2, 0, Some(0)), sample(3, 1, None)] {
            sampler.add(&seen);
        }
        assert_eq!(sampler.local_share(&before, &sampler.tally, None), MetricValue::default());
        for seen in [sample(1, 1, Some(0)), sample(2, 0, Some(0)), sample(2, 1, Some(0)), sample(1, 1, Some(0))] {
            sampler.add(&seen);
        }
        let share = |node| sampler.local_share(&before, &sampler.tally, node).value();
        assert_eq!(
            (share(None), share(Some(NodeIndex(0))), share(Some(NodeIndex(1)))),
            (Some(0.25), Some(1.0), Some(0.0))
        );
        let of = sampler.of_node(&before, &sampler.tally, NodeIndex(1), 2.0);
        assert_eq!((of.local_per_s, of.remote_per_s, of.unknown_per_s, of.latency_cycles), (0.0, 15.0, 5.0, None));
        assert_eq!(sampler.take_processes(), HashMap::from([(Pid(7), 0.25)]));
        let (inside, outside) = sampler.heat(0.0).unwrap().by_stretch(&[(VirtAddr(0x2000), VirtAddr(0x3000))]);
        assert_eq!((inside[0].all, inside[0].local_share(), outside.all), (30.0, Some(0.5), 40.0));
        // Those of slow memory alone say nothing of the rest.
        sampler.is_of_tiers = true;
        let before = sampler.tally.clone();
        sampler.add(&sample(1, 1, Some(0)));
        assert_eq!(sampler.local_share(&before, &sampler.tally, None), MetricValue::default());
        assert!(sampler.take_processes().is_empty());
    }
}
