//! Memory of processes that end while they are watched: a process that has ended has no memory, so it is read while it runs.
//!
//! For `numa_maps` the kernel walks a process's page tables and holds its memory map meanwhile. So a long reading is followed by a longer pause
//! ([`PAUSE_PER_LOOK`]).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_kernel::KernelError;
use numapilot_machine::Machine;

use super::MemoryMap;
use super::Reader;
use crate::error::WatchError;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_text::units;

/// Pause between two readings, in multiples of the time of a reading: watching costs at most 1 % of the time.
const PAUSE_PER_LOOK: u32 = 100;
/// Minimum pause between two readings.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The last reading of each process that had memory.
#[derive(Debug)]
pub struct LastSeen {
    reader: Reader,
    began: Instant,
    seen: BTreeMap<Pid, (Duration, MemoryMap)>,
    /// When the processes started, in clock ticks since the boot: one that gets the id of one that has ended is another.
    started: BTreeMap<Pid, u64>,
    /// Processes for which the kernel did not answer at the last reading: they have not ended.
    locked: BTreeSet<Pid>,
    /// Why processes could not be read at the last reading; without those that have ended.
    failed: BTreeMap<Pid, String>,
    due: Duration,
}

impl Default for LastSeen {
    fn default() -> LastSeen {
        LastSeen {
            reader: Reader::default(),
            began: Instant::now(),
            seen: BTreeMap::new(),
            started: BTreeMap::new(),
            locked: BTreeSet::new(),
            failed: BTreeMap::new(),
            due: Duration::ZERO,
        }
    }
}

impl LastSeen {
    /// Reads the processes, if the last reading is long enough ago.
    pub fn look_if_due(&mut self, root: &Root, machine: &Machine, pids: &[Pid]) {
        if self.began.elapsed() >= self.due {
            self.look(root, machine, pids);
        }
    }

    /// Present memory of the processes; for one that has ended, the last reading with a note of its time.
    pub fn now(&mut self, root: &Root, machine: &Machine, pids: &[Pid]) -> Vec<MemoryMap> {
        let looked_at = self.look(root, machine, pids);
        let told = |(at, map): &(Duration, MemoryMap)| {
            let mut map = map.clone();
            if *at < looked_at {
                let why = match (self.locked.contains(&map.pid), self.failed.get(&map.pid)) {
                    (true, _) => {
                        "The kernel does not answer for the process now, because a thread of it has its address space locked".to_owned()
                    }
                    (false, Some(why)) => format!("The process cannot be read now ({why})"),
                    (false, None) => "The process has ended".to_owned(),
                };
                map.notes.push(format!("{why}: its memory as last read, {:.3} s after the start.", at.as_secs_f64()));
            }
            map
        };
        pids.iter().filter_map(|pid| self.seen.get(pid)).map(told).collect()
    }

    /// That processes have not been read at all, and why the first of them has not, as a sentence; `None`: all have, or have ended.
    #[must_use]
    pub fn unread(&self) -> Option<String> {
        let mut failed = self.failed.iter().filter(|(pid, _)| !self.seen.contains_key(pid));
        let (_, why) = failed.next()?;
        let others = match failed.count() {
            0 => String::new(),
            more => format!(" (and {})", units::counted(more as u64, "other process", "other processes")),
        };
        Some(format!("Memory is not shown: {why}{others}."))
    }

    fn look(&mut self, root: &Root, machine: &Machine, pids: &[Pid]) -> Duration {
        let at = self.began.elapsed();
        // Nobody asks for others any more: those of a unit come and go for months.
        let wanted: BTreeSet<Pid> = pids.iter().copied().collect();
        self.seen.retain(|pid, _| wanted.contains(pid));
        self.started.retain(|pid, _| wanted.contains(pid));
        let mut buffer = Vec::new();
        self.reader.keep(&wanted);
        self.locked.clear();
        self.failed.clear();
        for &pid in pids {
            let start = TaskStat::read(root, pid, &mut buffer).map(|stat| stat.start_ticks);
            if start.is_some_and(|start| *self.started.entry(pid).or_insert(start) != start) {
                continue;
            }
            match self.reader.read(root, machine, pid) {
                // A process that is ending has no memory any more, which is not an error yet.
                Ok(map) if !map.areas.is_empty() || !self.seen.contains_key(&pid) => {
                    self.seen.insert(pid, (at, map));
                }
                Ok(_) | Err(WatchError::Kernel(KernelError::Gone { .. })) => {}
                Err(error) => {
                    if matches!(&error, WatchError::Kernel(error) if error.is_unanswered()) {
                        self.locked.insert(pid);
                    }
                    self.failed.insert(pid, error.to_string());
                }
            }
        }
        let now = self.began.elapsed();
        self.due = now + ((now - at) * PAUSE_PER_LOOK).max(PAUSE_MIN);
        at
    }
}

#[cfg(test)]
mod tests {
    //! A process that ends while it is read.

    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn processes_that_nobody_asks_for_are_forgotten_and_locked_ones_have_not_ended() {
        let tree = Tree::symmetric(1, 2, 1 << 20);
        for pid in [40, 41] {
            tree.process(pid, "app", &[(pid, 0, 10)]);
            tree.put(&format!("proc/{pid}/numa_maps"), "7f0000000000 default anon=9 N0=9 kernelpagesize_kB=4");
        }
        let (root, machine) = (tree.root(), tree.machine());
        let mut seen = LastSeen::default();
        assert_eq!(seen.now(&root, &machine, &[40, 41].map(Pid)).len(), 2);
        // A pipe that nobody writes to: it answers as a process does whose address space is locked.
        tree.remove("proc/41/numa_maps");
        let pipe = root.path().join("proc/41/numa_maps");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let shown = seen.now(&root, &machine, &[Pid(41)]);
        assert!(shown[0].notes.last().is_some_and(|note| note.contains("does not answer")), "{:?}", shown[0].notes);
        assert_eq!(shown[0].bytes_by_node(), [9 * 4096]);
        assert_eq!(seen.seen.keys().copied().collect::<Vec<_>>(), [Pid(41)]);
        assert_eq!(seen.reader.places.keys().copied().collect::<Vec<_>>(), [Pid(41)]);
    }

    /// `stat --pid` had no table of memory, and no word of it.
    #[test]
    fn a_process_whose_memory_cannot_be_read_is_told_and_one_that_has_ended_is_not() {
        let tree = Tree::symmetric(1, 2, 1 << 20);
        for pid in 40..43 {
            tree.process(pid, "app", &[(pid, 0, 10)]);
        }
        tree.put("proc/40/numa_maps", "7f0000000000 default anon=9 N0=9 kernelpagesize_kB=4");
        let (root, machine, mut seen) = (tree.root(), tree.machine(), LastSeen::default());
        seen.now(&root, &machine, &[40, 43].map(Pid));
        assert_eq!(seen.unread(), None);
        seen.now(&root, &machine, &[41, 40].map(Pid));
        let told = seen.unread().unwrap();
        assert!(
            told.starts_with("Memory is not shown: process 41 has no numa_maps") && !told.contains("other"),
            "{told}"
        );
        seen.now(&root, &machine, &[40, 41, 42].map(Pid));
        assert!(seen.unread().is_some_and(|told| told.ends_with("(and 1 other process).")));
        tree.remove("proc/40/numa_maps");
        // It was said to have ended.
        let shown = seen.now(&root, &machine, &[Pid(40)]);
        let told = shown[0].notes.last().unwrap();
        assert!(told.starts_with("The process cannot be read now (process 40 has no numa_maps"), "{told}");
        assert_eq!(seen.unread(), None, "it was read before");
    }

    /// Its memory was shown as that of the process which had the id before.
    #[test]
    fn a_process_that_gets_the_id_of_one_that_has_ended_is_another() {
        let tree = Tree::symmetric(1, 2, 1 << 20);
        let started = |ticks: u32, pages: u32| {
            tree.process(40, "app", &[(40, 0, 10)]);
            let stat = std::fs::read_to_string(tree.root().path().join("proc/40/stat")).unwrap();
            tree.put("proc/40/stat", &stat.replace(" 90 1000000 ", &format!(" {ticks} 1000000 ")));
            tree.put("proc/40/numa_maps", &format!("7f0000000000 default anon={pages} N0={pages} kernelpagesize_kB=4"));
        };
        let (root, machine, mut seen) = (tree.root(), tree.machine(), LastSeen::default());
        for (ticks, pages, told, has_ended) in [(90, 9, 9, false), (90, 8, 8, false), (95, 3, 8, true)] {
            started(ticks, pages);
            let shown = seen.now(&root, &machine, &[Pid(40)]);
            let is_told = shown[0].notes.iter().any(|note| note.contains("The process has ended"));
            assert_eq!((shown[0].bytes_by_node(), is_told), (vec![told * 4096], has_ended), "{:?}", shown[0].notes);
        }
        assert!(seen.now(&root, &machine, &[]).is_empty() && seen.started.is_empty());
    }

    #[test]
    fn a_process_that_has_ended_is_told_as_it_was_last_seen() {
        let (root, machine) = (Root::default(), Machine::live().unwrap());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pids = [Pid::of_child(&child)];
        let mut seen = LastSeen::default();
        // Until the kernel has put the program in place of this one's copy.
        while seen.now(&root, &machine, &pids).first().is_none_or(|map| map.name != "sleep") {
            thread::sleep(Duration::from_millis(5));
        }
        let running = seen.now(&root, &machine, &pids);
        assert!(running[0].notes.is_empty(), "{:?}", running[0].notes);
        let bytes: u64 = running[0].bytes_by_node().iter().sum();
        assert!(bytes > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = seen.now(&root, &machine, &pids);
        assert_eq!(ended[0].bytes_by_node().iter().sum::<u64>(), bytes);
        assert!(ended[0].notes.iter().any(|note| note.contains("as last read")), "{:?}", ended[0].notes);
        seen.due = Duration::ZERO;
        seen.look_if_due(&root, &machine, &pids);
        assert!(seen.due >= PAUSE_MIN);
    }
}
