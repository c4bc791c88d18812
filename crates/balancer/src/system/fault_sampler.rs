//! Evidence from the kernel's ring buffers: page faults with address, thread and CPU, and the side-band records of new processes, threads, programs and
//! mappings. With NUMA balancing, which unmaps pages periodically, later faults are uses of pages (docs/fault.md).
//!
//! A program that fills its memory faults some hundred thousand times a second, and fills a ring within milliseconds. So the rings are read between two
//! observations as well ([`FaultSampler::drain`]), as often as their rate of filling requires.

use std::time::Duration;
use std::time::Instant;

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
/// Share of a ring that may fill between two readings of it, at the rate of the time before.
const FILLED_MAX: f64 = 0.25;
/// Share from which a ring may have been full, so that its rate is not known.
const FULL: f64 = 0.9;
/// Shortest time between two readings. At a microsecond a fault, which is less than a sampled one takes, half of a ring fills in it.
const DRAIN_LEAST: Duration = Duration::from_millis(5);
/// Longest time between two readings, for rates that rise: observations of idle targets are up to two seconds apart.
const DRAIN_MOST: Duration = Duration::from_millis(250);
/// Time after the opening of events in which the rings are read as often as possible: programs fill their memory when they start.
const YOUNG: Duration = Duration::from_secs(1);
/// Share of a ring below which a reading found next to nothing. Where there are thousands of rings, looking at them takes milliseconds.
const NEARLY_EMPTY: f64 = 0.02;
/// Least pause after such a reading, in multiples of the time that it took.
const PAUSE_FOR_NOTHING: u32 = 100;
/// Faults and news that wait for an observation, at most (some 16 MiB). More stay in the rings; what finds no room there is counted as lost.
const WAITING_MAX: usize = 1 << 18;

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
    /// What was read since the previous observation, not in order.
    seen: Seen,
    losses: Losses,
    drained_at: Instant,
    /// Time from then to the next reading.
    pause: Duration,
    /// When events were opened last.
    opened_at: Instant,
}

/// Lost records by two counts, of which either may lack some: the events' own, which kernels before 6.0 do not keep; and the kernel's records of losses, which
/// come once there is room for them, often with a later reading than the count.
#[derive(Debug, Default)]
struct Losses {
    by_records: u64,
    by_count: u64,
    told: u64,
}

impl Losses {
    /// Adds what both say since the last call. Returns the losses that were not returned before.
    fn add(&mut self, by_records: u64, by_count: u64) -> u64 {
        self.by_records += by_records;
        self.by_count += by_count;
        let all = self.by_records.max(self.by_count);
        let new = all - self.told;
        self.told = all;
        new
    }
}

impl FaultSampler {
    /// Makes a sampler without events.
    #[must_use]
    pub fn new(machine: &Machine) -> FaultSampler {
        let most = machine.cpus().iter().map(|cpu| cpu.id.0 as usize + 1).max().unwrap_or(1);
        let node = |cpu: usize| machine.node_of_cpu(CpuId(cpu as u32)).and_then(|node| machine.node_index(node));
        let node_of_cpu = (0..most).map(node).collect();
        let now = Instant::now();
        FaultSampler {
            sets: WatchedSets::new(EventSet::lost),
            buffer: Vec::new(),
            node_of_cpu,
            seen: Seen::default(),
            losses: Losses::default(),
            drained_at: now,
            pause: DRAIN_LEAST,
            opened_at: now,
        }
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
        (self.opened_at, self.pause) = (Instant::now(), DRAIN_LEAST);
        Ok(refused)
    }

    /// Whether a process's faults are sampled. `start_ticks`: when it started, in clock ticks since boot; `None`: not known.
    #[must_use]
    pub fn sees(&self, pid: Pid, start_ticks: Option<u64>) -> bool {
        self.sets.has(pid, start_ticks)
    }

    /// Reads everything since the previous observation.
    pub fn look(&mut self) -> Seen {
        self.drain();
        let mut seen = std::mem::take(&mut self.seen);
        for set in self.sets.events_mut() {
            seen.returned.extend(set.follow_cpus());
        }
        seen.lost = self.losses.add(seen.lost, self.sets.take_lost());
        seen.faults.sort_by_key(|fault| fault.time_ns);
        seen.news.sort_by_key(|(time, _)| *time);
        seen
    }

    /// Reads the rings, for the next observation to return. Makes no system call.
    pub fn drain(&mut self) {
        let (begun, mut fullest) = (Instant::now(), 0.0_f64);
        for set in self.sets.events_mut() {
            for ring in &mut set.rings {
                fullest = fullest.max(ring.ring.waiting_bytes() as f64 / ring.ring.data_bytes() as f64);
                self.buffer.clear();
                self.seen.bad += ring.ring.take(&mut self.buffer);
                let mut records = Records::new(&self.buffer);
                for (header, body) in records.by_ref() {
                    match set.session.decode(header, body, 0) {
                        Ok(record) => take(&record, &self.node_of_cpu, &mut self.seen),
                        Err(_) => self.seen.bad += 1,
                    }
                }
                self.seen.bad += records.rest() as u64;
            }
        }
        let is_young = begun.duration_since(self.opened_at) < YOUNG;
        self.pause = pause(fullest, begun.duration_since(self.drained_at), begun.elapsed(), is_young);
        self.drained_at = begun;
    }

    /// Time until the rings have to be read again ([`FaultSampler::drain`]), zero if they have to be now. While as much waits for an observation as may
    /// wait, they are not read before it.
    #[must_use]
    pub fn drains_in(&self) -> Duration {
        if self.seen.faults.len() + self.seen.news.len() >= WAITING_MAX {
            return Duration::MAX;
        }
        self.pause.saturating_sub(self.drained_at.elapsed())
    }
}

/// Time from one reading of the rings to the next: that in which the fullest ring fills to [`FILLED_MAX`], if it has filled to the share `filled` in `elapsed`;
/// within [`DRAIN_LEAST`] and [`DRAIN_MOST`], and the former while events are young. `took`: time of the reading, which is not to be spent for nothing.
fn pause(filled: f64, elapsed: Duration, took: Duration, is_young: bool) -> Duration {
    let least = match filled < NEARLY_EMPTY {
        true => DRAIN_LEAST.max(took.saturating_mul(PAUSE_FOR_NOTHING)),
        false => DRAIN_LEAST,
    };
    if is_young || filled >= FULL {
        return least;
    }
    let seconds = elapsed.as_secs_f64() * FILLED_MAX / filled;
    // Nothing fills an empty ring: no number of seconds is that long.
    Duration::try_from_secs_f64(seconds).unwrap_or(DRAIN_MOST).min(DRAIN_MOST).max(least)
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

    /// The kernel's count of a loss comes at once, its record with the next reading: each loss was counted twice.
    #[test]
    fn a_loss_is_counted_once_whenever_its_record_comes() {
        let mut losses = Losses::default();
        assert_eq!([losses.add(0, 13_808), losses.add(13_808, 16_180), losses.add(16_180, 0)], [13_808, 16_180, 0]);
        let mut of_old_kernel = Losses::default();
        assert_eq!([of_old_kernel.add(0, 0), of_old_kernel.add(7, 0), of_old_kernel.add(2, 0)], [0, 7, 2]);
    }

    /// Rings were read at observations only, 100 ms and more apart: a program that filled its memory filled them in 10 ms.
    #[test]
    fn rings_are_read_before_they_are_full() {
        let ms = Duration::from_millis;
        let of = |filled, elapsed_ms| pause(filled, ms(elapsed_ms), Duration::ZERO, false);
        assert_eq!([of(1.0, 100), of(0.8, 5), of(0.5, 100), of(0.0, 100)], [ms(5), ms(5), ms(50), ms(250)]);
        assert_eq!(of(0.05, 100), ms(250), "10,000 faults a second on two CPUs");
        assert_eq!(of(0.0, 0), ms(250), "nothing in no time");
        let [young, many_rings] = [ms(0), ms(3)].map(|took| pause(0.0, ms(5), took, true));
        assert_eq!((young, many_rings), (ms(5), ms(300)), "looking costs no more than a hundredth of the time");
        assert_eq!(pause(0.3, ms(5), ms(3), true), ms(5), "unless there is much to read");
    }

    /// What a reading between two observations finds is part of the next one, and more than may wait is left to the rings.
    #[test]
    fn what_is_drained_is_seen_at_the_next_look() {
        let mut fault_sampler = FaultSampler::new(&Machine::live().unwrap());
        fault_sampler.drain();
        assert!(fault_sampler.drains_in() < Duration::MAX);
        let fault = |time_ns| Fault {
            time_ns,
            pid: Pid(7),
            tid: Tid(8),
            node: NodeIndex(0),
            page: PageNumber(5),
            access: None,
        };
        fault_sampler.seen.faults = (1..WAITING_MAX as u64).rev().map(fault).collect();
        fault_sampler.seen.news.push((5, News::Exec { pid: Pid(7) }));
        fault_sampler.seen.bad = 3;
        assert_eq!(fault_sampler.drains_in(), Duration::MAX);
        fault_sampler.drain();
        let seen = fault_sampler.look();
        assert_eq!((seen.faults.len(), seen.news.len(), seen.bad), (WAITING_MAX - 1, 1, 3));
        assert!(seen.faults.is_sorted_by_key(|fault| fault.time_ns) && fault_sampler.look().faults.is_empty());
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
