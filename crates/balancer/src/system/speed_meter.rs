//! What a process's threads do between two looks: how long they run, how long they are ready to run and wait for a CPU, and the instructions that they carry
//! out, where the processor counts them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::Tid;
use numapilot_kernel::task;
use numapilot_kernel::task::SchedTimes;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_perf_events::counter;
use numapilot_perf_events::counter::Count;

use crate::event::EvidenceSource;

/// Threads of a process that are looked at, at most: each takes two system calls and more.
const THREADS_MAX: usize = 256;
/// Threads of a process whose instructions are counted, at most: each takes a descriptor, and a microsecond or so at each of its context switches.
const COUNTED_MAX: usize = 64;

/// Why it is not known how fast processes are.
const UNMEASURED: &str = "whether placed processes become slower is not measured, and nothing is undone, because this kernel does not count how long threads \
                          run and wait for a CPU (CONFIG_SCHED_INFO; before Linux 5.14, `delayacct` on its command line)";
/// How it is known where no instructions are counted.
const UNCOUNTED: &str = "how long threads run and wait for a CPU; what the distance of memory costs is estimated, because instructions cannot be counted";

/// Whether this system shows how fast processes are, and by what.
#[must_use]
pub fn source() -> EvidenceSource {
    let own = Tid::first_of(Pid::own());
    let times = task::sched_times(&Root::default(), Pid::own(), own).filter(|times| times.ran_ns > 0);
    let detail = match (times, counter::of_instructions(own)) {
        (None, _) => UNMEASURED.to_owned(),
        (_, Ok(_)) => "instructions of processes, and how long their threads run and wait for a CPU".to_owned(),
        (_, Err(error)) => format!("{UNCOUNTED} ({error})"),
    };
    EvidenceSource { name: "speed".to_owned(), used: times.is_some(), detail }
}

/// What threads did between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Nanoseconds for which they ran.
    pub ran_ns: u64,
    /// Nanoseconds for which they were ready to run and waited for a CPU.
    pub waited_ns: u64,
    /// Instructions of their own code, of those whose instructions are counted.
    pub instructions: u64,
    /// Nanoseconds for which these ran and were counted; 0: none was.
    pub counted_ns: u64,
    /// Nanoseconds of running by node, of threads whose instructions are not counted; on the node where they ran last.
    pub ran_on: BTreeMap<NodeIndex, u64>,
}

impl Work {
    /// Adds that of other threads.
    pub fn add(&mut self, other: Work) {
        self.ran_ns += other.ran_ns;
        self.waited_ns += other.waited_ns;
        self.instructions += other.instructions;
        self.counted_ns += other.counted_ns;
        for (node, ran_ns) in other.ran_on {
            *self.ran_on.entry(node).or_default() += ran_ns;
        }
    }
}

/// A thread at the last look.
#[derive(Debug)]
struct Metered {
    times: SchedTimes,
    /// The event that counts its instructions; `None`: they are not counted.
    event: Option<OwnedFd>,
    count: Count,
}

impl Metered {
    /// What it has done since the last look, but for where.
    fn since(&mut self, times: SchedTimes) -> Work {
        let mut work = Work {
            ran_ns: times.ran_ns.saturating_sub(self.times.ran_ns),
            waited_ns: times.waited_ns.saturating_sub(self.times.waited_ns),
            ..Work::default()
        };
        self.times = times;
        if let Some(count) = self.event.as_ref().and_then(counter::read) {
            work.instructions = count.value.saturating_sub(self.count.value);
            work.counted_ns = count.running_ns.saturating_sub(self.count.running_ns);
            self.count = count;
        }
        work
    }
}

/// Looks at the threads of one process (see the module's documentation).
#[derive(Debug, Default)]
pub struct SpeedMeter {
    threads: BTreeMap<Tid, Metered>,
}

impl SpeedMeter {
    /// What the threads have done since the last look; nothing at the first one. `room`: how many more threads may have their instructions counted.
    pub fn look(&mut self, root: &Root, pid: Pid, machine: &Machine, room: usize) -> Work {
        let tids = task::threads_under(root.path(), pid).unwrap_or_default();
        self.threads.retain(|tid, _| tids.binary_search(tid).is_ok());
        let (mut work, mut fresh, mut text) = (Work::default(), Vec::new(), Vec::new());
        for tid in tids.into_iter().take(THREADS_MAX) {
            let Some(times) = task::sched_times(root, pid, tid) else { continue };
            let Some(metered) = self.threads.get_mut(&tid) else {
                fresh.push((times.ran_ns, tid));
                self.threads.insert(tid, Metered { times, event: None, count: Count::default() });
                continue;
            };
            let mut of_thread = metered.since(times);
            if metered.event.is_none() && of_thread.ran_ns > 0 {
                let stat = TaskStat::read_thread(root, (pid, tid), &mut text);
                let node = stat.and_then(|stat| machine.node_of_cpu(CpuId(stat.cpu)));
                let node = node.and_then(|node| machine.node_index(node));
                of_thread.ran_on.extend(node.map(|node| (node, of_thread.ran_ns)));
            }
            work.add(of_thread);
        }
        self.count(fresh, room);
        work
    }

    /// Whether there was a look that the next one is compared with.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Number of threads whose instructions are counted.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.threads.values().filter(|metered| metered.event.is_some()).count()
    }

    /// Counts the instructions of threads from now on, those first that have run longest. What the kernel refuses is not counted.
    fn count(&mut self, mut fresh: Vec<(u64, Tid)>, room: usize) {
        fresh.sort_unstable();
        let room = room.min(COUNTED_MAX.saturating_sub(self.counted()));
        for (_, tid) in fresh.into_iter().rev().take(room) {
            let Some(metered) = self.threads.get_mut(&tid) else { continue };
            metered.event = counter::of_instructions(tid).ok();
            metered.count = metered.event.as_ref().and_then(counter::read).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Threads made up, and those of this process.

    use std::fs;

    use super::*;

    #[test]
    fn what_threads_have_done_since_the_last_look_is_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let (root, pid) = (Root::new(folder.path()), Pid(7));
        // Four nodes of four processors.
        let machine = Machine::load("opteron-8385").unwrap();
        let put = |tid: u32, ran_ns: u64, waited_ns: u64, cpu: u32| {
            let thread = folder.path().join(format!("proc/7/task/{tid}"));
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("schedstat"), format!("{ran_ns} {waited_ns} 3\n")).unwrap();
            let zeros = "0 ".repeat(35);
            fs::write(thread.join("stat"), format!("{tid} (a b) R {zeros}{cpu} 0 0\n")).unwrap();
        };
        let cpus: Vec<u32> = [0, 2].iter().map(|node: &usize| machine.nodes()[*node].cpus[1].0).collect();
        put(7, 1000, 10, cpus[0]);
        put(8, 500, 0, cpus[1]);
        let mut meter = SpeedMeter::default();
        assert_eq!(meter.look(&root, pid, &machine, 0), Work::default(), "nothing is known of the time before");
        put(7, 1600, 30, cpus[0]);
        put(8, 500, 70, cpus[1]);
        put(9, 4000, 9, cpus[1]);
        let ran_on = BTreeMap::from([(NodeIndex(0), 600)]);
        let expected = Work { ran_ns: 600, waited_ns: 90, ran_on, ..Work::default() };
        assert_eq!(meter.look(&root, pid, &machine, 0), expected);
        fs::remove_dir_all(folder.path().join("proc/7/task/7")).unwrap();
        put(9, 4050, 9, cpus[1]);
        let expected = Work { ran_ns: 50, ran_on: BTreeMap::from([(NodeIndex(2), 50)]), ..Work::default() };
        assert_eq!(meter.look(&root, pid, &machine, 0), expected);
        assert_eq!((meter.threads.len(), meter.counted()), (2, 0), "a thread that has ended is forgotten");
    }

    #[test]
    fn what_shows_how_fast_processes_are_is_told() {
        let (told, times) = (source(), task::sched_times(&Root::default(), Pid::own(), Tid::first_of(Pid::own())));
        assert_eq!(told.used, times.is_some_and(|times| times.ran_ns > 0), "{told:?}");
        assert!(told.detail.contains("threads run and wait for a CPU"), "{told:?}");
    }

    #[test]
    fn instructions_are_counted_where_the_processor_does() {
        let machine = Machine::live().unwrap();
        let (root, mut meter) = (Root::default(), SpeedMeter::default());
        meter.look(&root, Pid::own(), &machine, 1);
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 50 {}
        let work = meter.look(&root, Pid::own(), &machine, 0);
        let times = task::sched_times(&root, Pid::own(), Tid::first_of(Pid::own()));
        assert!(work.ran_ns > 0 || times.is_none(), "{work:?}");
        assert!(meter.counted() <= 1 && work.instructions.min(1) <= work.counted_ns, "{work:?}");
    }
}
