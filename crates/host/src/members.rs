//! Which processes belong together: those that are named, the tree of processes below them, or those of cgroups. One finder for every command that watches
//! processes, so that all of them mean the same by `--pid`, `--cgroup` and `--unit`.
//!
//! Processes start, end and get another parent while /proc is read. A process is a member if its parent was one when its line was read *and* still was the same
//! process afterwards (ids are reused; start times tell). Who is a member stays one until it ends, whatever parent it gets.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use crate::Pid;
use crate::Root;
use crate::TaskStat;
use crate::cgroups;

/// Rounds of looking for children of members that were found in the round before.
const ROUNDS_MAX: usize = 8;
/// Time after which units' cgroups are looked up again: a unit starts, or another instance of it. All folders of the hierarchy are read for that.
const UNITS_AGAIN: Duration = Duration::from_secs(2);

/// Processes that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// These processes, by their ids.
    Processes(Vec<Pid>),
    /// These processes, and everything below them.
    Trees(Vec<Pid>),
    /// All processes of the cgroups with these folders, and of the cgroups within.
    Cgroups(Vec<PathBuf>),
    /// All processes of these systemd units, whenever they run: units may start later, stop and start again.
    Units(Vec<String>),
}

impl Group {
    /// Whether processes may join that no member started: any process can be put into a cgroup, and systemd starts those of units.
    #[must_use]
    pub fn takes_unrelated(&self) -> bool {
        matches!(self, Group::Cgroups(_) | Group::Units(_))
    }
}

/// A process of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: Pid,
    /// Its parent when it was found.
    pub parent: Pid,
    /// Start time in clock ticks since boot: with the id it identifies the process.
    pub start_ticks: u64,
    /// Whether a member started it: it inherits the perf events of its parent.
    pub is_child: bool,
}

/// The processes of a group, kept between readings.
#[derive(Clone, Debug)]
pub struct Members {
    group: Group,
    known: BTreeMap<Pid, Member>,
    is_first: bool,
    units: FoundUnits,
}

/// Units as they were last looked up.
#[derive(Clone, Debug, Default)]
struct FoundUnits {
    /// Time of the last look-up; `None`: there was none.
    at: Option<Instant>,
    /// Folders of those that have processes.
    folders: Vec<PathBuf>,
    /// Why the others have none.
    missing: Vec<String>,
}

/// A process as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    /// Process id of its parent.
    pub parent: Pid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// Where processes are read: /proc, a table that somebody keeps of it, or a script of it in tests.
pub trait ProcessTable {
    /// Ids of all processes, ascending.
    fn list(&mut self) -> Vec<Pid>;
    /// A process's line; `None`: it has ended.
    fn line(&mut self, pid: Pid) -> Option<ProcessLine>;
    /// Ids of the processes of a group of cgroups.
    fn of_cgroups(&mut self, folders: &[PathBuf]) -> Vec<Pid>;
    /// For each unit the folders of its cgroups, or why it has no processes.
    fn of_units(&mut self, units: &[String]) -> Vec<Result<Vec<PathBuf>, String>> {
        folders_of_units(&Root::default(), units)
    }
}

fn folders_of_units(root: &Root, units: &[String]) -> Vec<Result<Vec<PathBuf>, String>> {
    let hierarchies = cgroups::Hierarchies::of(root);
    let folders = |unit: &String| hierarchies.unit(unit).map(|found| found.folders).map_err(|error| error.to_string());
    units.iter().map(folders).collect()
}

struct Proc<'a> {
    root: &'a Root,
    buffer: Vec<u8>,
}

impl ProcessTable for Proc<'_> {
    fn list(&mut self) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.root.names("proc").iter().filter_map(|name| name.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }

    fn line(&mut self, pid: Pid) -> Option<ProcessLine> {
        let text = self.root.read(&format!("proc/{pid}/stat"), &mut self.buffer).ok()?;
        let stat = TaskStat::parse(text).filter(|stat| !stat.is_zombie())?;
        Some(ProcessLine { parent: stat.parent, start_ticks: stat.start_ticks })
    }

    fn of_cgroups(&mut self, folders: &[PathBuf]) -> Vec<Pid> {
        cgroups::processes(folders)
    }

    fn of_units(&mut self, units: &[String]) -> Vec<Result<Vec<PathBuf>, String>> {
        folders_of_units(self.root, units)
    }
}

impl Members {
    /// A group of which nothing has been read yet.
    #[must_use]
    pub fn new(group: Group) -> Members {
        Members { group, known: BTreeMap::new(), is_first: true, units: FoundUnits::default() }
    }

    /// Which processes are meant.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Reads /proc: drops members that have ended, and returns those that have joined since the last reading, by process id.
    pub fn refresh(&mut self, root: &Root) -> Vec<Member> {
        self.refresh_from(&mut Proc { root, buffer: Vec::new() })
    }

    /// As [`Members::refresh`], from somebody's table of processes, which must be as recent as the answer is to be.
    pub fn refresh_from(&mut self, table: &mut dyn ProcessTable) -> Vec<Member> {
        self.known.retain(|pid, known| table.line(*pid).is_some_and(|line| line.start_ticks == known.start_ticks));
        let before: Vec<Pid> = self.known.keys().copied().collect();
        match self.group.clone() {
            Group::Processes(pids) => self.take_named(&pids, table),
            Group::Trees(pids) => {
                self.take_named(&pids, table);
                self.take_children(table);
            }
            Group::Cgroups(folders) => self.take_cgroups(&folders, table),
            Group::Units(units) => {
                self.find_units(&units, table);
                self.take_cgroups(&self.units.folders.clone(), table);
            }
        }
        self.is_first = false;
        self.known.values().filter(|member| before.binary_search(&member.pid).is_err()).copied().collect()
    }

    /// Processes are named once: an id that comes back later is another process's.
    fn take_named(&mut self, pids: &[Pid], table: &mut dyn ProcessTable) {
        if self.is_first {
            for &pid in pids {
                let Some(line) = table.line(pid) else { continue };
                self.insert(pid, line, false);
            }
        }
    }

    fn take_children(&mut self, table: &mut dyn ProcessTable) {
        for _ in 0..ROUNDS_MAX {
            let lines: BTreeMap<Pid, ProcessLine> =
                table.list().into_iter().filter_map(|pid| Some((pid, table.line(pid)?))).collect();
            // An id that was reused since the round before is another process's. Who has ended may still be named as parent.
            self.known.retain(|pid, known| lines.get(pid).is_none_or(|line| line.start_ticks == known.start_ticks));
            let mut found = Vec::new();
            for (&pid, line) in &lines {
                if !self.known.contains_key(&pid) && self.descends(pid, *line, &lines) {
                    found.push((pid, *line));
                }
            }
            let mut is_new = false;
            for (pid, line) in found {
                // The parent's id may have gone to another process between the two readings. A parent that has ended was it until then.
                let is_same =
                    |now: ProcessLine| lines.get(&line.parent).is_some_and(|then| then.start_ticks == now.start_ticks);
                if table.line(line.parent).is_none_or(is_same) {
                    is_new |= self.insert(pid, line, true);
                }
            }
            if !is_new {
                break;
            }
        }
    }

    /// Whether a chain of parents leads to a member, each of them older than its child.
    fn descends(&self, pid: Pid, line: ProcessLine, lines: &BTreeMap<Pid, ProcessLine>) -> bool {
        let (mut child, mut at) = (pid, line);
        // No chain is longer than there are processes: ids that were reused could make a circle.
        for _ in 0..lines.len() {
            let parent = at.parent;
            if let Some(known) = self.known.get(&parent) {
                return known.start_ticks <= at.start_ticks;
            }
            let Some(next) = lines.get(&parent).filter(|next| parent != child && next.start_ticks <= at.start_ticks)
            else {
                return false;
            };
            (child, at) = (parent, *next);
        }
        false
    }

    fn find_units(&mut self, units: &[String], table: &mut dyn ProcessTable) {
        if self.units.at.is_some_and(|at| at.elapsed() < UNITS_AGAIN) {
            return;
        }
        let mut found = FoundUnits { at: Some(Instant::now()), ..FoundUnits::default() };
        for unit in table.of_units(units) {
            match unit {
                Ok(folders) => found.folders.extend(folders),
                Err(why) => found.missing.push(why),
            }
        }
        self.units = found;
    }

    /// Cgroups that do not exist and units without processes, each with the next step: nothing is seen of them. Units as at the last reading.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let is_missing = |folder: &&PathBuf| !folder.join("cgroup.procs").exists();
        let says = |folder: &Path| {
            format!("{}: there is no such cgroup (now); `systemd-cgls` shows those that there are", folder.display())
        };
        match &self.group {
            Group::Cgroups(folders) => folders.iter().filter(is_missing).map(|folder| says(folder)).collect(),
            Group::Units(_) => self.units.missing.clone(),
            Group::Processes(_) | Group::Trees(_) => Vec::new(),
        }
    }

    fn take_cgroups(&mut self, folders: &[PathBuf], table: &mut dyn ProcessTable) {
        let pids = table.of_cgroups(folders);
        let mut fresh: Vec<(Pid, ProcessLine)> = Vec::new();
        for pid in pids.into_iter().filter(|pid| !self.known.contains_key(pid)) {
            fresh.extend(table.line(pid).map(|line| (pid, line)));
        }
        // A member that was forked by another one inherits; of two that are new together, the child inherits what the parent has.
        let is_first = self.is_first;
        fresh.sort_by_key(|(pid, line)| (line.start_ticks, *pid));
        for (pid, line) in fresh {
            let parent = self.known.get(&line.parent).filter(|parent| parent.start_ticks <= line.start_ticks);
            let is_child = !is_first && parent.is_some();
            self.insert(pid, line, is_child);
        }
    }

    fn insert(&mut self, pid: Pid, line: ProcessLine, is_child: bool) -> bool {
        let member = Member { pid, parent: line.parent, start_ticks: line.start_ticks, is_child };
        self.known.insert(pid, member).is_none()
    }

    /// The members at the last reading, by process id.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.known.values()
    }

    /// Process ids of the members at the last reading, those that were named first.
    #[must_use]
    pub fn pids(&self) -> Vec<Pid> {
        let named = match &self.group {
            Group::Processes(pids) | Group::Trees(pids) => pids.as_slice(),
            Group::Cgroups(_) | Group::Units(_) => &[],
        };
        let first = named.iter().copied().filter(|pid| self.known.contains_key(pid));
        let mut pids: Vec<Pid> = first.chain(self.known.keys().copied().filter(|pid| !named.contains(pid))).collect();
        let mut seen = std::collections::BTreeSet::new();
        pids.retain(|pid| seen.insert(*pid));
        pids
    }

    /// Whether a process is a member.
    #[must_use]
    pub fn contains(&self, pid: Pid) -> bool {
        self.known.contains_key(&pid)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none: they have all ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// Clock ticks since boot, on the scale of [`Member::start_ticks`].
#[must_use]
pub fn now_ticks() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let per_s = ticks_per_s();
    time.tv_sec.unsigned_abs() * per_s + time.tv_nsec.unsigned_abs() * per_s / 1_000_000_000
}

/// How long ago a moment was that is given in clock ticks since the boot.
#[must_use]
pub fn time_since(ticks: u64) -> Duration {
    Duration::from_millis(now_ticks().saturating_sub(ticks).saturating_mul(1000) / ticks_per_s())
}

/// Clock ticks per second, of the times in /proc.
#[must_use]
pub fn ticks_per_s() -> u64 {
    // SAFETY: sysconf has no conditions.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(per_s).ok().filter(|per_s| *per_s > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    //! Trees on disk, and scripted ones that change while they are read.

    use super::*;

    /// A /proc that changes: at the n-th reading of a line, a script runs.
    #[derive(Default)]
    struct Scripted {
        lines: BTreeMap<Pid, ProcessLine>,
        reads: usize,
        /// Number of the reading before which a line becomes another, or goes.
        changes: Vec<(usize, Pid, Option<ProcessLine>)>,
        groups: Vec<Pid>,
        /// Units that have processes.
        units: Vec<&'static str>,
    }

    impl Scripted {
        fn of(lines: &[(u32, u32, u64)]) -> Scripted {
            let line = |(pid, parent, start_ticks): &(u32, u32, u64)| {
                (Pid(*pid), ProcessLine { parent: Pid(*parent), start_ticks: *start_ticks })
            };
            Scripted { lines: lines.iter().map(line).collect(), ..Scripted::default() }
        }

        fn at(mut self, read: usize, pid: u32, now: Option<(u32, u64)>) -> Scripted {
            let now = now.map(|(parent, start_ticks)| ProcessLine { parent: Pid(parent), start_ticks });
            self.changes.push((read, Pid(pid), now));
            self
        }
    }

    impl ProcessTable for Scripted {
        fn list(&mut self) -> Vec<Pid> {
            self.lines.keys().copied().collect()
        }

        fn line(&mut self, pid: Pid) -> Option<ProcessLine> {
            self.reads += 1;
            for (at, pid, now) in self.changes.clone() {
                if at == self.reads {
                    match now {
                        Some(line) => drop(self.lines.insert(pid, line)),
                        None => drop(self.lines.remove(&pid)),
                    }
                }
            }
            self.lines.get(&pid).copied()
        }

        fn of_cgroups(&mut self, folders: &[PathBuf]) -> Vec<Pid> {
            if folders.is_empty() { Vec::new() } else { self.groups.clone() }
        }

        fn of_units(&mut self, units: &[String]) -> Vec<Result<Vec<PathBuf>, String>> {
            let folders = |unit: &String| {
                let folder = self.units.iter().find(|found| **found == unit.as_str());
                folder.map(|found| vec![found.into()]).ok_or_else(|| format!("unit {unit} does not run"))
            };
            units.iter().map(folders).collect()
        }
    }

    fn pids(members: &[Member]) -> Vec<u32> {
        members.iter().map(|member| member.pid.0).collect()
    }

    /// A postmaster (10) with two backends, one of which has a child with a lower id; and a stranger.
    fn tree() -> Scripted {
        Scripted::of(&[(1, 0, 0), (10, 1, 100), (11, 10, 110), (12, 10, 120), (5, 12, 130), (20, 1, 140)])
    }

    #[test]
    fn a_unit_is_waited_for_and_followed_through_a_restart() {
        let mut members = Members::new(Group::Units(vec!["database".to_owned()]));
        let mut table = Scripted { groups: vec![Pid(10), Pid(11)], ..tree() };
        assert!(members.refresh_from(&mut table).is_empty());
        assert_eq!(members.missing(), ["unit database does not run"]);
        table.units = vec!["database"];
        assert!(members.refresh_from(&mut table).is_empty(), "units are not looked up at every reading");
        members.units.at = None;
        assert_eq!(pids(&members.refresh_from(&mut table)), [10, 11]);
        assert!(members.missing().is_empty() && members.group().takes_unrelated());
        // It stops, and starts anew in the same cgroup.
        table.lines = BTreeMap::new();
        table.groups.clear();
        assert!(members.refresh_from(&mut table).is_empty() && members.is_empty());
        table.lines.insert(Pid(30), ProcessLine { parent: Pid(1), start_ticks: 900 });
        table.groups = vec![Pid(30)];
        assert_eq!(pids(&members.refresh_from(&mut table)), [30]);
    }

    #[test]
    fn a_tree_is_the_named_process_and_all_below_it() {
        let mut members = Members::new(Group::Trees(vec![Pid(10)]));
        assert_eq!(pids(&members.refresh_from(&mut tree())), [5, 10, 11, 12]);
        assert_eq!(members.pids(), [10, 5, 11, 12].map(Pid), "the named one first");
        let children: Vec<bool> = members.all().map(|member| member.is_child).collect();
        assert_eq!(children, [true, false, true, true]);
        assert!(members.refresh_from(&mut tree()).is_empty(), "nobody joined");
        let mut alone = Members::new(Group::Processes(vec![Pid(10)]));
        assert_eq!(pids(&alone.refresh_from(&mut tree())), [10]);
    }

    #[test]
    fn later_forks_join_and_members_with_another_parent_stay() {
        let mut members = Members::new(Group::Trees(vec![Pid(10)]));
        members.refresh_from(&mut tree());
        let mut later = tree();
        later.lines.remove(&Pid(12));
        later.lines.insert(Pid(5), ProcessLine { parent: Pid(1), start_ticks: 130 });
        later.lines.insert(Pid(30), ProcessLine { parent: Pid(5), start_ticks: 200 });
        assert_eq!(pids(&members.refresh_from(&mut later)), [30], "the child of one that was re-parented");
        assert_eq!(members.pids(), [10, 5, 11, 30].map(Pid));
        // The named one ends: the others are members all the same.
        later.lines.remove(&Pid(10));
        later.lines.insert(Pid(11), ProcessLine { parent: Pid(1), start_ticks: 110 });
        later.lines.insert(Pid(31), ProcessLine { parent: Pid(11), start_ticks: 210 });
        assert_eq!(pids(&members.refresh_from(&mut later)), [31]);
        assert_eq!(members.pids(), [5, 11, 30, 31].map(Pid));
    }

    #[test]
    fn a_reused_id_is_no_member() {
        let mut members = Members::new(Group::Trees(vec![Pid(10)]));
        members.refresh_from(&mut tree());
        let mut later = tree();
        later.lines.insert(Pid(11), ProcessLine { parent: Pid(1), start_ticks: 500 });
        later.lines.insert(Pid(40), ProcessLine { parent: Pid(11), start_ticks: 510 });
        assert!(members.refresh_from(&mut later).is_empty());
        assert_eq!(members.pids(), [10, 5, 12].map(Pid));
        // The named id too is taken once only.
        later.lines.insert(Pid(10), ProcessLine { parent: Pid(1), start_ticks: 600 });
        members.refresh_from(&mut later);
        assert!(!members.contains(Pid(10)));
        // A "child" that is older than its parent belongs to an earlier process of that id.
        let mut older = Scripted::of(&[(10, 1, 100), (9, 10, 50), (8, 10, 100)]);
        assert_eq!(pids(&Members::new(Group::Trees(vec![Pid(10)])).refresh_from(&mut older)), [8, 10]);
    }

    #[test]
    fn what_changes_while_the_tree_is_read_neither_adds_strangers_nor_loses_children() {
        // Readings: the named one, then 1, 5, 10, 11, 12, 20, then the parents of what was found.
        for read in 1..12 {
            // 12 ends at any moment: its child is a member if its line still named 12, and is not if it was re-parented before that.
            let mut ends = tree().at(read, 12, None);
            let mut members = Members::new(Group::Trees(vec![Pid(10)]));
            members.refresh_from(&mut ends);
            assert!(members.contains(Pid(10)) && members.contains(Pid(11)), "{read}: {:?}", members.pids());
            assert!(!members.contains(Pid(20)) && !members.contains(Pid(1)), "{read}: {:?}", members.pids());
        }
        // 12's id goes to a stranger after its line was read, and before it is checked: who names it as parent may be the stranger's child.
        let mut reused = tree().at(8, 12, Some((1, 900)));
        let mut members = Members::new(Group::Trees(vec![Pid(10)]));
        members.refresh_from(&mut reused);
        assert!(!members.contains(Pid(5)), "{:?}", members.pids());
        // 11 is re-parented while it is read, after its line was: it stays.
        let mut moved = tree().at(7, 11, Some((1, 110)));
        members = Members::new(Group::Trees(vec![Pid(10)]));
        members.refresh_from(&mut moved);
        assert!(members.contains(Pid(11)), "{:?}", members.pids());
    }

    #[test]
    fn circles_of_parents_end() {
        let mut circle = Scripted::of(&[(10, 1, 1), (2, 3, 5), (3, 2, 5), (4, 4, 5)]);
        assert_eq!(pids(&Members::new(Group::Trees(vec![Pid(10)])).refresh_from(&mut circle)), [10]);
    }

    #[test]
    fn a_cgroup_takes_strangers_and_knows_whose_children_inherit() {
        let mut table = tree();
        table.groups = vec![Pid(10), Pid(11)];
        let mut members = Members::new(Group::Cgroups(vec![PathBuf::from("/x")]));
        assert!(members.group().takes_unrelated());
        assert!(members.refresh_from(&mut table).iter().all(|member| !member.is_child), "nobody has events yet");
        table.groups = [10, 11, 12, 5, 20].map(Pid).to_vec();
        let joined: Vec<(u32, bool)> =
            members.refresh_from(&mut table).iter().map(|member| (member.pid.0, member.is_child)).collect();
        assert_eq!(joined, [(5, true), (12, true), (20, false)]);
        table.lines.remove(&Pid(20));
        members.refresh_from(&mut table);
        assert_eq!((members.len(), members.is_empty()), (4, false));
    }

    #[test]
    fn files_under_a_root_are_read_and_zombies_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let put_threads = |pid: u32, parent: u32, state: char, start: u64, threads: u32| {
            let rest = format!("0 0 0 -1 0 1 0 1 0 1 0 0 0 20 0 {threads} 0");
            let line = format!("{pid} (a) b) {state} {parent} {rest} {start} 1 1 1 1 1 1 0 0 0 0 0 0 0 0 17 0 0 0\n");
            let path = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("stat"), line).unwrap();
        };
        let put = |pid, parent, state, start| put_threads(pid, parent, state, start, 1);
        put(10, 1, 'S', 100);
        put(11, 10, 'S', 110);
        put(12, 10, 'Z', 110);
        // Its first thread has ended, another one runs.
        put_threads(14, 10, 'Z', 110, 2);
        put(20, 1, 'S', 110);
        std::fs::create_dir_all(folder.path().join("proc/13")).unwrap();
        let mut members = Members::new(Group::Trees(vec![Pid(10)]));
        assert_eq!(pids(&members.refresh(&Root::new(folder.path()))), [10, 11, 14]);
        let mut none = Members::new(Group::Trees(vec![Pid(99)]));
        assert!(none.refresh(&Root::new(folder.path())).is_empty() && none.is_empty());
    }

    #[test]
    fn this_process_and_a_child_are_a_tree() {
        let before = now_ticks();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut members = Members::new(Group::Trees(vec![Pid::own()]));
        members.refresh(&Root::default());
        assert!(members.contains(Pid::of_child(&child)), "{:?}", members.pids());
        let started = members.all().find(|member| member.pid == Pid::of_child(&child)).unwrap().start_ticks;
        assert!((before..=now_ticks()).contains(&started), "{before} {started} {}", now_ticks());
        child.kill().unwrap();
        child.wait().unwrap();
        members.refresh(&Root::default());
        assert!(!members.contains(Pid::of_child(&child)) && members.contains(Pid::own()));
    }
}
