//! Evidence from the kernel's ring buffers: page faults with address, thread and CPU, and the side-band records of new processes, threads, programs and
//! mappings. With NUMA balancing, which unmaps pages periodically, later faults are uses of pages (docs/fault.md).

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_perf::Record;
use numapilot_perf::SideBand;
use numapilot_perf::abi::sample;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::event::EventRequest;
use numapilot_perf_events::open::EventSet;
use numapilot_perf_events::open::RingSize;
use numapilot_perf_events::open::Scope;
use numapilot_perf_events::ring::Records;

use super::family::Family;
use super::watched::WatchedSets;

/// Size of a CPU's ring in bytes: some ten thousand faults between two observations.
const RING_BYTES: usize = 512 << 10;

/// Details of an access sampled by the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page's home node; `None`: not known.
    pub home: Option<NodeIndex>,
    /// Memory accesses that the sample stands for.
    pub weight: u64,
}

/// A page fault of a target, or a sampled access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Nanoseconds on the kernel's raw monotonic clock.
    pub time_ns: u64,
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Node on which the thread ran.
    pub node: NodeIndex,
    /// The page of 4 KiB.
    pub page: PageNumber,
    /// Details of a sampled access; `None`: a fault.
    pub access: Option<Access>,
}

/// What the kernel's side-band records say about processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A process was created by another.
    Fork {
        /// Process id of the child.
        pid: Pid,
        /// Process id of the parent.
        parent: Pid,
    },
    /// A process executes another program.
    Exec {
        /// Process id.
        pid: Pid,
    },
}

/// Everything read by one observation, in order of time.
#[derive(Debug, Default)]
pub struct Seen {
    /// Faults and sampled accesses.
    pub faults: Vec<Fault>,
    /// Side-band records, each with its time in nanoseconds.
    pub news: Vec<(u64, News)>,
    /// Records that could not be decoded, or are from a CPU whose node is not known (one that was added since the start), and bytes that were no records.
    pub bad: u64,
    /// Records lost because a ring was full, since the previous observation.
    pub lost: u64,
    /// CPUs that were offline and are online again, and whether their events could be opened anew.
    pub returned: Vec<(CpuId, bool)>,
}

/// Samples page faults by events of the kernel.
#[derive(Debug)]
pub struct FaultSampler {
    /// Events with their processes.
    pub(crate) sets: WatchedSets<EventSet>,
    buffer: Vec<u8>,
    node_of_cpu: Vec<Option<NodeIndex>>,
}

impl FaultSampler {
    /// Makes a sampler without events.
    #[must_use]
    pub fn new(machine: &Machine) -> FaultSampler {
        let most = machine.cpus().iter().map(|cpu| cpu.id.0 as usize + 1).max().unwrap_or(1);
        let node = |cpu: usize| machine.node_of_cpu(CpuId(cpu as u32)).and_then(|node| machine.node_index(node));
        let node_of_cpu = (0..most).map(node).collect();
        FaultSampler { sets: WatchedSets::new(EventSet::lost), buffer: Vec::new(), node_of_cpu }
    }

    /// Opens events for processes and their descendants, or for the whole system. Returns the processes among them that this user may not observe.
    ///
    /// # Errors
    /// The kernel refuses; the error contains the reason and the remedy.
    pub fn open(&mut self, scope: &Scope) -> Result<Vec<Pid>, EventsError> {
        let mut request = EventRequest::page_faults(true, 1);
        request.attr.sample_type &= !sample::CALLCHAIN;
        let so_far = self.sets.events().map(EventSet::count).sum();
        let mut set = EventSet::open_beside(so_far, &[request], scope, RingSize { bytes: RING_BYTES })?;
        set.watch_cpus();
        if *scope != Scope::Children {
            set.enable();
        }
        let refused = set.refused.clone();
        self.sets.add(set, Family::of(scope, task::start_ticks_of));
        Ok(refused)
    }

    /// Whether a process's faults are sampled. `start_ticks`: when it started, in clock ticks since boot; `None`: not known.
    #[must_use]
    pub fn sees(&self, pid: Pid, start_ticks: Option<u64>) -> bool {
        self.sets.has(pid, start_ticks)
    }

    /// Reads everything since the previous observation.
    pub fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
        for set in self.sets.events_mut() {
            for ring in &mut set.rings {
                self.buffer.clear();
                seen.bad += ring.ring.take(&mut self.buffer);
                let mut records = Records::new(&self.buffer);
                for (header, body) in records.by_ref() {
                    match set.session.decode(header, body, 0) {
                        Ok(record) => take(&record, &self.node_of_cpu, &mut seen),
                        Err(_) => seen.bad += 1,
                    }
                }
                seen.bad += records.rest() as u64;
            }
            seen.returned.extend(set.follow_cpus());
        }
        // Kernels before 6.0 do not keep this count, but write records of losses.
        seen.lost = seen.lost.max(self.sets.take_lost());
        seen.faults.sort_by_key(|fault| fault.time_ns);
        seen.news.sort_by_key(|(time, _)| *time);
        seen
    }
}

fn take(record: &Record<'_>, node_of_cpu: &[Option<NodeIndex>], seen: &mut Seen) {
    match record {
        Record::Sample(_, sample) => {
            let (Some((pid, tid)), Some(cpu), Some(address)) = (sample.pid_tid, sample.cpu, sample.addr) else {
                return seen.bad += 1;
            };
            // Kernel addresses are not pages of a process.
            if address != 0 && address >> 56 == 0 {
                let Some(node) = node_of_cpu.get(cpu.0 as usize).copied().flatten() else { return seen.bad += 1 };
                let time_ns = sample.time.unwrap_or(0);
                seen.faults.push(Fault { time_ns, pid, tid, node, page: PageNumber::of(address), access: None });
            }
        }
        Record::SideBand(band, id) => {
            let time = id.time.unwrap_or(0);
            match band {
                SideBand::Fork(change) if change.pid != change.parent_pid => {
                    seen.news.push((time, News::Fork { pid: change.pid, parent: change.parent_pid }));
                }
                SideBand::Comm { pid, by_exec: true, .. } => seen.news.push((time, News::Exec { pid: *pid })),
                SideBand::Lost { count, .. } | SideBand::LostSamples { count } => seen.lost += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! A child that touches memory, and samples made up.

    use std::io::Write;
    use std::process::Command;
    use std::process::Stdio;

    use numapilot_perf::Sample;

    use super::*;

    /// What ran on CPUs that were added since the start was taken for accesses from the first node, and their pages were moved there.
    #[test]
    fn a_fault_on_a_cpu_whose_node_is_not_known_is_counted_and_left_out() {
        let (node_of_cpu, mut seen) = ([Some(NodeIndex(1)), None], Seen::default());
        for cpu in [0, 1, 9] {
            let sample = Sample {
                pid_tid: Some((Pid(7), Tid(8))),
                cpu: Some(CpuId(cpu)),
                addr: Some(0x5000),
                ..Sample::default()
            };
            take(&Record::Sample(0, sample), &node_of_cpu, &mut seen);
        }
        let nodes: Vec<NodeIndex> = seen.faults.iter().map(|fault| fault.node).collect();
        assert_eq!((nodes, seen.bad), (vec![NodeIndex(1)], 2));
    }

    #[test]
    fn faults_and_births_of_a_running_process_are_seen() {
        let script = "read x; for i in 1 2 3; do /bin/true; done";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let mut fault_sampler = FaultSampler::new(&Machine::live().unwrap());
        let opened = fault_sampler.open(&Scope::Processes(vec![Pid::of_child(&child)]));
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
        if let Err(error) = opened {
            return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
        }
        let seen = fault_sampler.look();
        assert!(fault_sampler.sees(Pid::of_child(&child), None) && seen.bad == 0);
        let forks = seen
            .news
            .iter()
            .filter(|(_, news)| matches!(news, News::Fork { parent, .. } if *parent == Pid::of_child(&child)));
        assert_eq!(forks.count(), 3);
        assert!(seen.news.iter().any(|(_, news)| matches!(news, News::Exec { .. })));
        assert!(seen.faults.len() > 50 && seen.faults.is_sorted_by_key(|fault| fault.time_ns));
        assert!(fault_sampler.look().faults.is_empty());
    }
}
