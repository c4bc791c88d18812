//! The running machine as a source: every reading is a moment, two of them an [`Interval`]. Each figure is taken from the best source that this machine
//! has, is labelled with it, and where there is none says why.

pub mod counters;
mod kernel;
mod processes;
mod resctrl;
mod uncore;

use std::time::Instant;

use numapilot_machine::Machine;

pub use kernel::VM_COUNTERS;
pub use processes::Processes;
pub use processes::ScanCost;
pub(crate) use processes::ticks_per_s;

use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::Seven;
use crate::figures::Told;
use crate::root::Root;
use counters::Counters;
use counters::CountersReading;
use counters::Scope;
use kernel::KernelReading;
use resctrl::Resctrl;
use resctrl::ResctrlReading;
use uncore::Uncore;
use uncore::UncoreReading;

/// What is watched, and why some of it cannot be.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    /// Whose events are counted; `None`: none are.
    pub scope: Option<Scope>,
    /// Why this machine's processor offers no events, where that is known.
    pub no_pmu: Option<String>,
    /// Why latencies cannot be told: nothing counts them, sampling may.
    pub no_latency: String,
}

/// The running machine.
pub struct Live {
    root: Root,
    machine: Machine,
    counters: Counters,
    uncore: Uncore,
    resctrl: Resctrl,
    balancing: Option<u64>,
    no_latency: String,
    no_links: String,
    is_system: bool,
    began: Instant,
    before: Moment,
    buffer: Vec<u8>,
}

/// A stretch that lasts longer than an interval.
pub struct Whole(Moment);

impl Whole {
    /// What has happened since it began.
    pub fn interval(&self, live: &mut Live) -> Interval {
        let now = live.moment();
        live.between(&self.0, &now)
    }
}

#[derive(Clone, Default)]
struct Moment {
    at_ns: u64,
    kernel: KernelReading,
    counters: CountersReading,
    uncore: UncoreReading,
    resctrl: ResctrlReading,
}

impl Live {
    /// Opens what there is, and takes the first reading.
    #[must_use]
    pub fn open(root: Root, machine: Machine, options: &LiveOptions) -> Live {
        let counters = match &options.scope {
            Some(scope) => Counters::open(&root, &machine, scope, options.no_pmu.as_deref()),
            None => Counters::none("events are not counted here"),
        };
        let mut live = Live {
            counters,
            uncore: Uncore::open(&root, &machine),
            resctrl: Resctrl::find(&root, &machine),
            balancing: root.number("proc/sys/kernel/numa_balancing"),
            no_latency: options.no_latency.clone(),
            no_links: uncore::why_no_links(&root),
            is_system: options.scope.as_ref().is_none_or(|scope| *scope == Scope::System),
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

    /// Where it is read.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Marks this moment as the begin of a longer stretch, whatever intervals lie in it.
    #[must_use]
    pub fn whole(&self) -> Whole {
        Whole(self.before.clone())
    }

    fn moment(&mut self) -> Moment {
        Moment {
            at_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            kernel: KernelReading::read(&self.root, &self.machine, &mut self.buffer),
            counters: self.counters.read(),
            uncore: self.uncore.read(),
            resctrl: self.resctrl.read(&self.root),
        }
    }

    /// What happened since the last time (or since opening).
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
        for (index, node) in interval.nodes.iter_mut().enumerate() {
            let sums = self.counters.sums(&before.counters, &now.counters, Some(index));
            let of_resctrl = || self.resctrl.local_share(&before.resctrl, &now.resctrl, Some(node.node));
            node.local_share = self.counters.local_share(&sums).or(of_resctrl);
            node.l3_mpki = self.counters.l3_mpki(&sums);
            node.ipc = self.counters.ipc(&sums);
            node.controller_bytes_per_s = self.uncore.bytes_per_s(&before.uncore, &now.uncore, index, seconds);
        }
        let sums = self.counters.sums(&before.counters, &now.counters, None);
        interval.events = self.counters.figures(&sums);
        interval.kernel = now.kernel.vm_since(&before.kernel);
        interval.seven = self.seven(before, now, &sums);
        interval
    }

    fn seven(&self, before: &Moment, now: &Moment, sums: &counters::Sums) -> Seven {
        let mut seven = Seven::default();
        // What counts the whole machine says nothing of a part of its processes.
        let whole = |told: &dyn Fn() -> Told| match self.is_system {
            true => told(),
            false => Told::Missing("what the kernel and resctrl tell is of the whole machine (`--system`)".to_owned()),
        };
        let local = self.counters.local_share(sums);
        let local = local.or(|| whole(&|| self.resctrl.local_share(&before.resctrl, &now.resctrl, None)));
        let local = local.or(|| whole(&|| now.kernel.hinted_local_share(&before.kernel, self.balancing)));
        seven.set(Metric::LocalShare, local);
        seven.set(Metric::Latency, Told::Missing(self.no_latency.clone()));
        seven.set(Metric::ControllerImbalance, self.uncore.imbalance(&before.uncore, &now.uncore));
        seven.set(Metric::LinkUsage, Told::Missing(self.no_links.clone()));
        seven.set(Metric::LinkImbalance, Told::Missing(self.no_links.clone()));
        seven.set(Metric::L3Mpki, self.counters.l3_mpki(sums));
        seven.set(Metric::Ipc, self.counters.ipc(sums));
        seven
    }
}
