//! All processes of a machine at each refresh, at a cost to which thousands of sleeping processes hardly add.
//!
//! Reading `/proc/PID/stat` costs the kernel some microseconds, so an idle process is read less and less often (finally every [`RESTS_MAX`]-th refresh), with
//! its file held open. That is safe because the kernel also reports the busy time of all CPUs (`/proc/stat`): once more processor time was used than the
//! processes that were read account for, all processes are read at once. If that does not explain it either (short-lived processes take their time with them),
//! a slice of the processes is read each time instead, until a slice explains it. New processes are searched for only if a task was created (`processes` in the
//! same file), and then by the ids that were assigned since (`/proc/loadavg`). `/proc` is listed periodically, and if the ids do not suffice.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::cpu_time;
use numapilot_kernel::cpu_time::ticks_per_s;
use numapilot_kernel::inherited;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;

use crate::figures::MetricValue;
use crate::figures::ProcessFigures;
use numapilot_host::Mounts;
use numapilot_host::Pid;
use numapilot_host::ProcessLine;
use numapilot_host::ProcessTable;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::TaskStatus;
use numapilot_host::cgroups;
use numapilot_host::hidden_by;
use numapilot_host::number;

/// Maximum number of refreshes between two readings of a sleeping process.
const RESTS_MAX: u32 = 32;
/// Maximum number of files held open, where the limit on descriptors allows it ([`may_be_open`]).
const OPEN_MAX: usize = 16_384;
/// Share of one CPU that may be unaccounted for before all processes are read: short-lived processes, and the rounding of clock ticks.
const UNACCOUNTED: f64 = 0.05;
/// 1 part in this many is read per refresh if reading all processes did not explain the time.
const SLICES: u32 = 8;
/// Number of refreshes after which a process that slept at its first reading is read again.
const FIRST_REST: u32 = 16;
/// Maximum number of ids assigned since the last refresh that are tried one by one; threads use ids as well.
const TRIED_MAX: u32 = 256;
/// Refreshes between two listings of /proc, if a task was created.
const LIST_EVERY: u32 = 16;
/// Upper bound on the length of the kernel's line.
const LINE_MAX: usize = 1024;

struct Known {
    name: Arc<str>,
    file: Option<File>,
    start_ticks: u64,
    cpu_ticks: u64,
    faults: u64,
    threads: u32,
    resident_pages: u64,
    cpu: CpuId,
    parent: Pid,
    is_zombie: bool,
    is_of_the_kernel: bool,
    /// Time of the last reading in seconds.
    read_at_s: f64,
    /// CPUs' worth of time and faults per second between its last two readings.
    cpus: f64,
    faults_per_s: f64,
    /// Refreshes between two readings, and until the next.
    rest: u32,
    due_in: u32,
}

/// Time and state of a refresh.
struct Moment {
    at_s: f64,
    /// Time of the previous refresh in seconds.
    last_s: f64,
    /// [`Processes::youngest_ticks`] at the previous refresh.
    youngest_ticks: Option<u64>,
}

/// Which processes are read.
#[derive(Clone, Copy)]
enum Due {
    /// Those whose waiting time is over.
    Rested,
    /// Those of the slice of this number.
    Slice(u32),
    /// All processes.
    All,
}

/// Cost of a refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCost {
    /// Number of processes.
    pub known: usize,
    /// Number of processes that were read.
    pub read: usize,
    /// Whether `/proc` was listed.
    pub listed: bool,
}

/// The processes, kept between refreshes.
#[derive(Default)]
pub struct Processes {
    known: BTreeMap<Pid, Known>,
    open: usize,
    /// Files that may be held open: as many as at the last listing of /proc.
    open_max: usize,
    forks: Option<u64>,
    /// The id that was assigned last.
    last_number: Option<u32>,
    /// Refreshes since /proc was listed.
    since_list: u32,
    /// Start time of the youngest known process in clock ticks since boot: those that started later are new.
    youngest_ticks: Option<u64>,
    busy_ticks: u64,
    last_s: f64,
    /// The next slice to read, if reading all processes did not explain the time.
    next_slice: Option<u32>,
    cost: ScanCost,
    buffer: Vec<u8>,
    /// `None`: not looked yet.
    view: Option<View>,
}

/// What this process is not shown as it is.
#[derive(Clone, Copy)]
struct View {
    /// Whether /proc hides some processes, whose time no reading explains.
    hides_some: bool,
    /// Whether the id in /proc/loadavg is that of another namespace: lxcfs shows a container its host's.
    has_foreign_ids: bool,
}

impl View {
    fn of(root: &Root) -> View {
        let mounts = Mounts::read(root);
        View { hides_some: hidden_by(&mounts, root).is_some(), has_foreign_ids: mounts.is_made_up("/proc/loadavg") }
    }
}

impl Processes {
    /// Reads the processes that are due. `at_s`: seconds since the start of watching.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn refresh(&mut self, root: &Root, at_s: f64) -> io::Result<()> {
        let ticks_per_s = ticks_per_s();
        let text = root.read("proc/stat", &mut self.buffer).map_err(io::Error::other)?;
        let forks = text.split(|&byte| byte == b'\n').find_map(|line| number(line.strip_prefix(b"processes ")?));
        let busy: u64 = cpu_time::parse(text).map(|time| time.busy_ticks).sum();
        self.cost = ScanCost::default();
        self.since_list += 1;
        if forks.is_none() || forks != self.forks {
            self.find_new(root)?;
            self.forks = forks;
        }
        let elapsed_s = at_s - self.last_s;
        let moment = Moment { at_s, last_s: self.last_s, youngest_ticks: self.youngest_ticks };
        let used = self.read(root, &moment, Due::Rested);
        let missing = busy.saturating_sub(self.busy_ticks).saturating_sub(used) as f64;
        match missing > UNACCOUNTED * elapsed_s * ticks_per_s {
            true if !self.view(root).hides_some => self.explain(root, &moment, missing),
            _ => self.next_slice = None,
        }
        (self.busy_ticks, self.last_s) = (busy, at_s);
        self.cost.known = self.known.len();
        Ok(())
    }

    fn view(&mut self, root: &Root) -> View {
        *self.view.get_or_insert_with(|| View::of(root))
    }

    /// Searches for the processes that used `missing` clock ticks.
    fn explain(&mut self, root: &Root, moment: &Moment, missing: f64) {
        let explains = |found: u64| found as f64 >= missing / 4.0;
        if let Some(slice) = self.next_slice {
            self.next_slice = Some((slice + 1) % SLICES);
            if !explains(self.read(root, moment, Due::Slice(slice))) {
                return;
            }
        }
        self.next_slice = if explains(self.read(root, moment, Due::All)) { None } else { Some(0) };
    }

    /// Cost of the last refresh.
    #[must_use]
    pub fn cost(&self) -> ScanCost {
        self.cost
    }

    /// Finds processes that started since the last refresh, by the assigned ids; otherwise lists all, and drops those that have ended.
    fn find_new(&mut self, root: &Root) -> io::Result<()> {
        let text = root.read("proc/loadavg", &mut self.buffer).unwrap_or_default();
        let last = text.split(u8::is_ascii_whitespace).nth(4).and_then(|word| u32::try_from(number(word)?).ok());
        let before = std::mem::replace(&mut self.last_number, last);
        let given_out = before.zip(last).filter(|(before, last)| before <= last && last - before <= TRIED_MAX);
        let is_enough = self.since_list < LIST_EVERY && !self.view(root).has_foreign_ids;
        let Some((before, last)) = given_out.filter(|_| is_enough) else { return self.list(root) };
        for pid in (before + 1..=last).map(Pid) {
            if is_process(root, pid, &mut self.buffer) {
                self.known.entry(pid).or_insert_with(Known::fresh);
            }
        }
        Ok(())
    }

    fn list(&mut self, root: &Root) -> io::Result<()> {
        (self.cost.listed, self.since_list) = (true, 0);
        let pids = task::processes_under(root.path()).map_err(io::Error::other)?;
        let there: BTreeSet<Pid> = pids.into_iter().collect();
        self.known.retain(|pid, _| there.contains(pid));
        self.open = self.known.values().filter(|known| known.file.is_some()).count();
        let open = inherited::open_files(&Root::default());
        self.open_max = may_be_open(descriptors_max(), open.saturating_sub(self.open));
        for pid in there {
            self.known.entry(pid).or_insert_with(Known::fresh);
        }
        Ok(())
    }

    /// Reads the due processes that were not read at this refresh. Returns the clock ticks that they used since their previous readings.
    fn read(&mut self, root: &Root, moment: &Moment, due: Due) -> u64 {
        let mut used = 0;
        let mut line = [0; LINE_MAX];
        let (open, open_max) = (&mut self.open, self.open_max);
        let (cost, youngest) = (&mut self.cost, &mut self.youngest_ticks);
        self.known.retain(|&pid, known| {
            if known.read_at_s == moment.at_s {
                return true;
            }
            let is_due = match due {
                Due::Rested => {
                    known.due_in = known.due_in.saturating_sub(1);
                    known.due_in == 0
                }
                Due::Slice(slice) => pid.0 % SLICES == slice,
                Due::All => true,
            };
            if !is_due {
                return true;
            }
            cost.read += 1;
            let had_file = known.file.is_some();
            let length = known.read(root, pid, &mut line, *open < open_max);
            *open = *open + usize::from(known.file.is_some()) - usize::from(had_file);
            let Some(stat) = length.and_then(|length| TaskStat::parse(&line[..length])) else {
                *open -= usize::from(known.file.is_some());
                return false;
            };
            *youngest = (*youngest).max(Some(stat.start_ticks));
            used += known.update(&stat, moment);
            true
        });
        used
    }

    /// The processes as they were last read, by process id. Without the kernel's threads, which have no memory of their own (they are read as well, because
    /// their time is part of the CPUs').
    #[must_use]
    pub fn figures(&self, machine: &Machine) -> Vec<ProcessFigures> {
        let page = page_bytes();
        let of = |(&pid, known): (&Pid, &Known)| ProcessFigures {
            pid,
            name: known.name.clone(),
            threads: known.threads,
            cpus: known.cpus,
            resident_bytes: known.resident_pages * page,
            node: machine.node_of_cpu(known.cpu),
            faults_per_s: known.faults_per_s,
            local_share: MetricValue::Missing(String::new()),
            ..ProcessFigures::default()
        };
        self.known.iter().filter(|(_, known)| !known.is_of_the_kernel).map(of).collect()
    }

    /// Ids of the processes with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Pid> {
        self.known.iter().filter(|(_, known)| *known.name == *name).map(|(pid, _)| *pid).collect()
    }

    /// Process id of a process's parent, if known.
    #[must_use]
    pub fn parent(&self, pid: Pid) -> Option<Pid> {
        self.known.get(&pid).map(|known| known.parent)
    }

    /// When a process started, in clock ticks since boot, if known: an id may have gone to another process.
    #[must_use]
    pub fn start_ticks(&self, pid: Pid) -> Option<u64> {
        self.known.get(&pid).map(|known| known.start_ticks)
    }
}

/// A group of processes is found in what was read anyway: nothing is read for it, whatever the number of processes.
impl ProcessTable for Processes {
    fn list(&mut self) -> Vec<Pid> {
        self.known.keys().copied().collect()
    }

    fn line(&mut self, pid: Pid) -> Option<ProcessLine> {
        let known = self.known.get(&pid).filter(|known| known.start_ticks != u64::MAX && !known.is_zombie)?;
        Some(ProcessLine { parent: known.parent, start_ticks: known.start_ticks })
    }

    fn of_cgroups(&mut self, folders: &[PathBuf]) -> Vec<Pid> {
        cgroups::processes(folders)
    }
}

impl Known {
    fn fresh() -> Known {
        Known {
            name: Arc::default(),
            file: None,
            start_ticks: u64::MAX,
            cpu_ticks: 0,
            faults: 0,
            threads: 0,
            resident_pages: 0,
            cpu: CpuId(0),
            parent: Pid(0),
            is_zombie: false,
            is_of_the_kernel: false,
            read_at_s: f64::NEG_INFINITY,
            cpus: 0.0,
            faults_per_s: 0.0,
            rest: 1,
            due_in: 0,
        }
    }

    /// Reads its line; `None`: it has ended. An open descriptor keeps referring to the process for which it was opened, even if the id is reused.
    fn read(&mut self, root: &Root, pid: Pid, line: &mut [u8], may_hold: bool) -> Option<usize> {
        if let Some(file) = &self.file {
            match file.read_at(line, 0) {
                Ok(length) if length > 0 => return Some(length),
                _ => self.file = None,
            }
        }
        let file = File::open(root.path().join(format!("proc/{pid}/stat"))).ok()?;
        let length = file.read_at(line, 0).ok().filter(|length| *length > 0)?;
        self.file = may_hold.then_some(file);
        Some(length)
    }

    /// Updates the process with a reading. Returns the clock ticks used since the previous one.
    fn update(&mut self, stat: &TaskStat<'_>, moment: &Moment) -> u64 {
        let is_same = self.start_ticks == stat.start_ticks;
        // A process that started since the last refresh used all of its time since then.
        let is_new = !is_same && moment.youngest_ticks.is_some_and(|youngest| stat.start_ticks > youngest);
        let (since_s, ticks, faults) = match (is_same, is_new) {
            (true, _) => (self.read_at_s, self.cpu_ticks, self.faults),
            (_, true) => (moment.last_s, 0, 0),
            (false, false) => (moment.at_s, stat.cpu_ticks(), 0),
        };
        let elapsed_s = moment.at_s - since_s;
        let used = stat.cpu_ticks().saturating_sub(ticks);
        let all_faults = stat.faults.0 + stat.faults.1;
        let per_s = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
        self.cpus = per_s(used) / ticks_per_s();
        self.faults_per_s = per_s(all_faults.saturating_sub(faults));
        self.rest = match (used > 0, is_same) {
            (true, _) => 1,
            (false, true) => (self.rest * 4).min(RESTS_MAX),
            (false, false) if stat.state == b'R' => 1,
            (false, false) => FIRST_REST,
        };
        // Spread over refreshes by process id, so that processes that went idle together are not all read at the same one.
        self.due_in = if self.rest >= FIRST_REST { self.rest - stat.id % (FIRST_REST / 2) } else { self.rest };
        if !is_same || self.name.as_bytes() != stat.name {
            self.name = String::from_utf8_lossy(stat.name).into();
        }
        (self.start_ticks, self.cpu_ticks, self.faults) = (stat.start_ticks, stat.cpu_ticks(), all_faults);
        (self.threads, self.resident_pages, self.cpu, self.parent) =
            (stat.threads, stat.resident_pages, CpuId(stat.cpu), stat.parent);
        self.is_zombie = stat.is_zombie();
        self.is_of_the_kernel = stat.is_of_the_kernel();
        self.read_at_s = moment.at_s;
        used
    }
}

/// Files that may be held open where a process may have `limit` descriptors, and has `others`: half of what is left. A machine of many CPUs has thousands of
/// events and of processes; without a free descriptor no other file could be read, and every process that has none would seem to have ended.
fn may_be_open(limit: usize, others: usize) -> usize {
    (limit.saturating_sub(others) / 2).min(OPEN_MAX)
}

/// Descriptors that this process may have; none where the system does not say.
fn descriptors_max() -> usize {
    inherited::files().map_or(0, |limit| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Whether an id is that of a process, not of a thread or of none.
fn is_process(root: &Root, pid: Pid, buffer: &mut Vec<u8>) -> bool {
    TaskStatus::read(root, pid, buffer).and_then(|status| status.process()) == Some(pid)
}

#[cfg(test)]
mod tests {
    //! Processes of a written tree that work, sleep, wake, end, and come again under an old number.

    use super::*;
    use crate::fixture::Tree;

    /// Set in the process that a test starts with a low limit on descriptors.
    const FEW_DESCRIPTORS: &str = "NUMAPILOT_TEST_FEW_DESCRIPTORS";

    struct World {
        tree: Tree,
        processes: Processes,
        forks: u64,
        time_s: f64,
    }

    impl World {
        fn new() -> World {
            let tree = Tree::symmetric(2, 2, 1 << 20);
            let world = World { tree, processes: Processes::default(), forks: 5, time_s: 0.0 };
            world.stat(0);
            world
        }

        fn stat(&self, busy: u64) {
            self.tree.put("proc/stat", &format!("cpu  0\ncpu0 {busy} 0 0 1000 0 0 0 0\nprocesses {}", self.forks));
        }

        fn step(&mut self, busy: u64) -> ScanCost {
            self.time_s += 1.0;
            self.stat(busy);
            self.processes.refresh(&self.tree.root(), self.time_s).unwrap();
            self.processes.cost()
        }

        fn cpus(&self, pid: u32) -> Option<f64> {
            let figures = self.processes.figures(&self.tree.machine());
            figures.iter().find(|process| process.pid == Pid(pid)).map(|process| process.cpus)
        }
    }

    /// With its 10 events on each of 256 CPUs and a file for each of 3,000 processes `top` had more descriptors than many systems give: it could read nothing
    /// any more, and showed no process that it had no file of.
    #[test]
    fn files_held_open_leave_descriptors_for_others() {
        assert_eq!([may_be_open(4096, 2600), may_be_open(1 << 20, 40), may_be_open(64, 100)], [748, OPEN_MAX, 0]);
        if std::env::var_os(FEW_DESCRIPTORS).is_none() {
            // The limit is the whole process's, in which other tests run.
            let name = "live::processes::tests::files_held_open_leave_descriptors_for_others";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let ended = again.args(["--exact", name, "--test-threads=1"]).env(FEW_DESCRIPTORS, "1").output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            return;
        }
        let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
        // SAFETY: the call reads one rlimit of our own; a limit that is lower may always be set.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut world = World::new();
        for pid in 100..300 {
            world.tree.process(pid, "sleeper", &[(pid, 1, 10)]);
        }
        world.step(0);
        assert_eq!(world.step(0).known, 200);
        assert!(world.processes.open > 0 && world.processes.open <= 50, "{} files", world.processes.open);
    }

    #[test]
    fn time_of_hidden_processes_is_not_searched_for() {
        let mut world = World::new();
        world.tree.put("proc/self/mountinfo", "25 28 0:23 / /proc rw - proc proc rw,hidepid=invisible");
        for pid in 100..150 {
            world.tree.process(pid, "sleeper", &[(pid, 1, 10)]);
        }
        world.step(0);
        // The mounts were read once, for all that they tell.
        world.tree.remove("proc/self/mountinfo");
        let read: usize = (1..=40).map(|second| world.step(300 * second)).map(|cost| cost.read).sum();
        assert!(read < 10 * 50, "{read} readings of 50 idle processes in 40 refreshes");
    }

    #[test]
    fn sleepers_are_read_rarely_and_at_once_when_time_is_unaccounted_for() {
        let mut world = World::new();
        for pid in 100..150 {
            world.tree.process(pid, "sleeper", &[(pid, 1, 10)]);
        }
        world.tree.process(99, "worker", &[(99, 2, 0)]);
        assert_eq!(world.step(0), ScanCost { known: 51, read: 51, listed: true });
        let mut read = 0;
        for second in 1..=40 {
            world.tree.process(99, "worker", &[(99, 2, 50 * second)]);
            let cost = world.step(50 * second);
            assert!(!cost.listed);
            assert_eq!(world.cpus(99), Some(0.5), "second {second}");
            if second > 20 {
                read += cost.read;
            }
        }
        assert!(read < 20 * 51 / 5, "{read} readings in 20 refreshes of 51 processes");
        // One of them wakes and uses a whole CPU: it is seen at that refresh, its time spread over the time since it was read.
        world.tree.process(99, "worker", &[(99, 2, 50 * 41)]);
        world.tree.process(117, "sleeper", &[(117, 3, 110)]);
        let cost = world.step(50 * 41 + 100);
        assert_eq!(cost.read, 51);
        assert!(world.cpus(117).unwrap() > 0.0);
        world.tree.process(99, "worker", &[(99, 2, 50 * 42)]);
        world.tree.process(117, "sleeper", &[(117, 3, 210)]);
        world.step(50 * 42 + 200);
        assert_eq!(world.cpus(117), Some(1.0));
    }

    #[test]
    fn processes_come_end_and_come_again() {
        let mut world = World::new();
        world.tree.process(7, "one", &[(7, 0, 100)]);
        world.step(0);
        world.forks += 1;
        world.tree.process(8, "two", &[(8, 0, 100)]);
        assert_eq!(world.step(0).known, 2);
        // The files of a written tree stay readable through descriptors, as those of ended processes do not: they are let go first.
        world.tree.remove("proc/7");
        world.processes.known.values_mut().for_each(|known| known.file = None);
        world.processes.open = 0;
        world.step(1000);
        assert_eq!(world.cpus(7), None);
        world.forks += 1;
        world.tree.process(7, "three", &[(7, 0, 5)]);
        world.step(1000);
        assert_eq!(world.cpus(7), Some(0.0));
    }

    /// lxcfs has the id that the host assigned last: a process of the container was found at the next listing only, up to 16 refreshes later.
    #[test]
    fn new_processes_are_found_whatever_ids_the_container_is_shown() {
        let mut world = World::new();
        world.tree.process(7, "one", &[(7, 0, 100)]);
        world.tree.put("proc/loadavg", "0.00 0.01 0.05 1/99 70000");
        world.tree.put("proc/self/mountinfo", "31 25 0:28 /proc/loadavg /proc/loadavg rw - fuse.lxcfs lxcfs rw");
        world.step(0);
        world.tree.process(8, "two", &[(8, 0, 100)]);
        world.tree.put("proc/loadavg", "0.00 0.01 0.05 1/99 70001");
        world.forks += 1;
        assert_eq!(world.step(0).known, 2);
    }

    /// `top` had a row for each of them, without memory: hundreds on a large machine.
    #[test]
    fn threads_of_the_kernel_are_no_processes_and_their_time_is_known() {
        let mut world = World::new();
        world.tree.process(7, "program", &[(7, 0, 100)]);
        let kernels = |ticks: u64| {
            let zeros = " 0".repeat(24);
            format!("8 (kswapd0) S 2 0 0 0 -1 2129984 0 0 0 0 0 {ticks} 0 0 20 0 1 0 58 0 0{zeros}")
        };
        world.tree.put("proc/8/stat", &kernels(100));
        world.step(0);
        for second in 1..=40 {
            world.tree.put("proc/8/stat", &kernels(100 + 50 * second));
            let cost = world.step(50 * second);
            assert!(cost.known == 2 && world.cpus(8).is_none() && world.cpus(7).is_some(), "second {second}");
        }
        assert_eq!(world.processes.known[&Pid(8)].cpus, 0.5);
    }

    #[test]
    fn this_machine_has_this_process() {
        let mut processes = Processes::default();
        processes.refresh(&Root::default(), 1.0).unwrap();
        let machine = Machine::live().unwrap();
        let figures = processes.figures(&machine);
        let own = figures.iter().find(|process| process.pid == Pid::own()).unwrap();
        assert!(own.resident_bytes > 1 << 20 && own.threads >= 1);
        assert!(processes.parent(own.pid).is_some());
    }
}
