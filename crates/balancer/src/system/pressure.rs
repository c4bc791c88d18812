//! Memory pressure, under which pages stay where they are: of the whole system, and of the cgroups of processes whose pages were to move. Moving a page takes
//! free memory on another node and keeps the page from being reclaimed meanwhile; and what is copied may be swapped out next.
//!
//! Pressure is the share of the last 10 s in which tasks waited for memory (`some avg10` of [`numapilot_host::pressure`]). It is high from more than the
//! greatest share that is allowed until no more than half of that; or until it has not been above that share for long: then it is how this machine always is.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::cgroups;
use numapilot_host::pressure::Pressure;
use numapilot_host::pressure::Resource;

use crate::event;
use crate::event::EvidenceSource;
use crate::status::ResourcePressure;

/// High pressure has ended where it is no more than this part of the greatest share that is allowed.
const ENDS_AT: f64 = 0.5;
/// Readings in turn of no more than the greatest share that is allowed, with which high pressure has ended, too.
const BEARABLE_FOR: u32 = 30;
/// Age from which a cgroup's pressure is read anew: the kernel renews its means as often.
const CGROUPS_EVERY: Duration = Duration::from_secs(2);

/// Whether pressure is high, as last read.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    share: f64,
    is_high: bool,
    /// Readings since the last one above the greatest share that is allowed, while it is high.
    bearable: u32,
}

impl Level {
    /// Takes a reading. Returns whether high pressure has begun or ended with it.
    fn read(&mut self, share: f64, most: f64) -> bool {
        let was_high = self.is_high;
        self.bearable = if was_high && share <= most { self.bearable + 1 } else { 0 };
        let limit = if was_high && self.bearable < BEARABLE_FOR { most * ENDS_AT } else { most };
        self.share = share;
        self.is_high = most < 1.0 && share > limit;
        self.is_high != was_high
    }
}

/// A cgroup's level, and which processes' pages it concerns.
#[derive(Clone, Debug, Default)]
struct OfCgroup {
    level: Level,
    read_at: Option<Instant>,
    processes: Vec<Pid>,
}

impl OfCgroup {
    /// Reads it from the cgroup's folder. Returns whether high pressure has begun or ended with it, as an event. A cgroup that is gone waits for nothing. Where
    /// it is there and cannot be read, it is what it was.
    fn read(&mut self, folder: &Path, most: f64) -> Option<event::Pressure> {
        let read = Pressure::of_cgroup(folder, Resource::Memory).map(|pressure| pressure.some.of_10s);
        let before = || if folder.join("memory.pressure").exists() { self.level.share } else { 0.0 };
        let share = read.unwrap_or_else(before);
        self.level.read(share, most).then(|| told(self.level, folder.display().to_string()))
    }
}

/// The pressure that the balancer knows of.
#[derive(Debug)]
pub struct MemoryPressure {
    root: Root,
    /// Greatest share, 0 to 1, at which pages move.
    most: f64,
    system: Level,
    /// By the folders of the cgroups.
    cgroups: BTreeMap<PathBuf, OfCgroup>,
    /// All resources of the whole system, for the status.
    resources: Vec<ResourcePressure>,
    /// Why the system's memory pressure is not known; `None`: it is.
    missing: Option<String>,
}

impl MemoryPressure {
    /// Reads the system's pressure for the first time. `most`: the greatest share, 0 to 1, at which pages move; at 1 they always do.
    #[must_use]
    pub fn new(root: Root, most: f64) -> MemoryPressure {
        let mut pressure = MemoryPressure {
            root,
            most,
            system: Level::default(),
            cgroups: BTreeMap::new(),
            resources: Vec::new(),
            missing: None,
        };
        pressure.read_system();
        pressure
    }

    /// Sets another greatest share at which pages move.
    pub fn set_most(&mut self, most: f64) {
        self.most = most;
    }

    /// Whether the whole system's is high: no pages are to move.
    #[must_use]
    pub fn is_high(&self) -> bool {
        self.system.is_high
    }

    /// Whether that of a process's cgroup was high when its pages were last to move, and has not ended.
    #[must_use]
    pub fn is_known_high_for(&self, pid: Pid) -> bool {
        self.cgroups.values().any(|cgroup| cgroup.level.is_high && cgroup.processes.contains(&pid))
    }

    /// The whole system's pressure on each resource; empty where the kernel counts none.
    #[must_use]
    pub fn resources(&self) -> &[ResourcePressure] {
        &self.resources
    }

    /// The source as it is reported at the start.
    #[must_use]
    pub fn source(&self) -> EvidenceSource {
        let (used, detail) = match &self.missing {
            None if self.most >= 1.0 => (false, "memory pressure puts no moves off (max-pressure 100%)".to_owned()),
            None => (true, "how long tasks wait for memory: while that is high, no pages are moved".to_owned()),
            Some(why) if self.system.is_high => (true, format!("{why}: moves stay put off, as when it was last read")),
            Some(why) => (false, format!("{why}, so moves are not put off while memory is short")),
        };
        EvidenceSource { name: "pressure".to_owned(), used, detail }
    }

    /// Reads the whole system's pressure, and that of cgroups where it was high. Returns where high pressure has begun or ended.
    pub fn look(&mut self) -> Vec<event::Pressure> {
        let mut changes = Vec::new();
        if self.read_system() {
            changes.push(told(self.system, String::new()));
        }
        let most = self.most;
        self.cgroups.retain(|folder, cgroup| {
            if !cgroup.level.is_high {
                return cgroup.read_at.is_some_and(|at| at.elapsed() < CGROUPS_EVERY);
            }
            changes.extend(cgroup.read(folder, most));
            cgroup.level.is_high
        });
        changes
    }

    /// Whether the pressure of a process's cgroup is high, which is read anew if the last reading is too old. Where high pressure begins, that is added to
    /// `changes`.
    pub fn is_high_for(&mut self, pid: Pid, changes: &mut Vec<event::Pressure>) -> bool {
        if self.most >= 1.0 {
            return false;
        }
        // Where nothing can be read, it is what it was.
        let folder = if self.missing.is_some() { None } else { cgroups::of_process(&self.root, pid) };
        let Some(folder) = folder else { return self.is_known_high_for(pid) };
        let cgroup = self.cgroups.entry(folder.clone()).or_default();
        // Where it is high, `look` reads it.
        if !cgroup.level.is_high && cgroup.read_at.is_none_or(|at| at.elapsed() >= CGROUPS_EVERY) {
            cgroup.read_at = Some(Instant::now());
            changes.extend(cgroup.read(&folder, self.most));
        }
        if cgroup.level.is_high && !cgroup.processes.contains(&pid) {
            cgroup.processes.push(pid);
        }
        cgroup.level.is_high
    }

    /// Returns whether high pressure has begun or ended. Where it cannot be read, it is what it was: not known is not none.
    fn read_system(&mut self) -> bool {
        self.resources.clear();
        self.missing = None;
        let mut share = Some(0.0);
        for resource in Resource::ALL {
            let pressure = match Pressure::of_system(&self.root, resource) {
                Ok(Some(pressure)) => pressure,
                Ok(None) if resource == Resource::Memory => {
                    let why = "this kernel does not count pressure (CONFIG_PSI; psi=1 on its command line where it is off by default)";
                    self.missing = Some(why.to_owned());
                    continue;
                }
                Err(error) if resource == Resource::Memory => {
                    self.missing = Some(format!("pressure cannot be read: {error}"));
                    share = None;
                    continue;
                }
                _ => continue,
            };
            if resource == Resource::Memory {
                share = Some(pressure.some.of_10s);
            }
            // Of the CPUs of the whole system this means nothing.
            let full = pressure.full.filter(|_| resource != Resource::Cpu);
            self.resources.push(ResourcePressure {
                resource: resource.name().to_owned(),
                some: pressure.some.of_10s,
                full: full.map(|waiting| waiting.of_10s),
            });
        }
        self.system.read(share.unwrap_or(self.system.share), self.most)
    }
}

fn told(level: Level, cgroup: String) -> event::Pressure {
    event::Pressure { is_high: level.is_high, waited_percent: 100.0 * level.share, cgroup }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Made trees.

    use std::fs;

    use super::*;

    /// Pressure of the whole system that is high as long as it is not read again.
    pub(crate) fn high() -> MemoryPressure {
        let tree = Tree::new();
        tree.waits("proc/pressure/memory", "90.00");
        tree.pressure(0.1)
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            Tree(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, text: &str) {
            let file = self.0.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        fn waits(&self, path: &str, percent: &str) {
            self.put(path, &format!("some avg10={percent} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"));
        }

        fn pressure(&self, most: f64) -> MemoryPressure {
            MemoryPressure::new(Root::new(self.0.path()), most)
        }
    }

    #[test]
    fn moves_are_put_off_until_the_pressure_has_fallen_by_half() {
        let tree = Tree::new();
        tree.waits("proc/pressure/memory", "10.00");
        let mut pressure = tree.pressure(0.1);
        assert!(!pressure.is_high() && pressure.look().is_empty() && pressure.source().used);
        let mut changes = Vec::new();
        for percent in ["10.50", "80.00", "5.10", "4.90", "9.00"] {
            tree.waits("proc/pressure/memory", percent);
            let told = pressure.look().into_iter().map(|change| (percent, change.is_high, change.cgroup));
            changes.extend(told);
        }
        assert_eq!(changes, [("10.50", true, String::new()), ("4.90", false, String::new())]);
        // What cannot be read is as it was: out of descriptors, the balancer took it for over. What is counted no longer is over.
        tree.waits("proc/pressure/memory", "50.00");
        assert!(pressure.look()[0].is_high);
        let file = tree.0.path().join("proc/pressure/memory");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(pressure.look().is_empty() && pressure.is_high());
        assert!(pressure.source().used && pressure.source().detail.ends_with("as when it was last read"));
        fs::remove_dir(&file).unwrap();
        assert!(!pressure.look()[0].is_high && !pressure.is_high());
    }

    /// After a single peak nothing was ever moved again on a machine whose usual pressure is more than half of what is allowed.
    #[test]
    fn what_is_allowed_and_does_not_fall_further_puts_moves_off_for_a_time_only() {
        let tree = Tree::new();
        tree.waits("proc/pressure/memory", "20.00");
        let mut pressure = tree.pressure(0.1);
        assert!(pressure.is_high());
        let mut looks_until_change = |percent: &str| {
            tree.waits("proc/pressure/memory", percent);
            (1..=2 * BEARABLE_FOR).find(|_| !pressure.look().is_empty())
        };
        assert_eq!(looks_until_change("11.00"), None, "as long as it is above what is allowed");
        assert_eq!(looks_until_change("7.00"), Some(BEARABLE_FOR));
        assert_eq!(looks_until_change("9.00"), None, "it has ended");
        assert_eq!(looks_until_change("10.01"), Some(1));
        assert_eq!(looks_until_change("9.00"), Some(BEARABLE_FOR), "counted anew");
    }

    #[test]
    fn at_a_share_of_one_moves_are_never_put_off() {
        let tree = Tree::new();
        tree.waits("proc/pressure/memory", "100.00");
        let mut pressure = tree.pressure(1.0);
        assert!(!pressure.is_high() && !pressure.source().used);
        pressure.set_most(0.5);
        assert!(pressure.look()[0].is_high && pressure.is_high());
        pressure.set_most(1.0);
        assert!(!pressure.look()[0].is_high && !pressure.is_high());
    }

    #[test]
    fn a_kernel_that_counts_none_is_told_and_puts_nothing_off() {
        let tree = Tree::new();
        let mut pressure = tree.pressure(0.1);
        let source = pressure.source();
        assert!(
            !source.used && source.detail.contains("CONFIG_PSI") && source.detail.contains("not put off"),
            "{source:?}"
        );
        assert!(pressure.look().is_empty() && pressure.resources().is_empty());
        assert!(!pressure.is_high_for(Pid(7), &mut Vec::new()));
    }

    #[test]
    fn every_resource_is_told_and_of_cpus_what_means_something() {
        let tree = Tree::new();
        for resource in ["cpu", "io", "memory"] {
            tree.waits(&format!("proc/pressure/{resource}"), "25.00");
        }
        let pressure = tree.pressure(0.5);
        let told: Vec<_> = pressure.resources().iter().map(|one| (one.resource.as_str(), one.some, one.full)).collect();
        assert_eq!(told, [("cpu", 0.25, None), ("io", 0.25, Some(0.005)), ("memory", 0.25, Some(0.005))]);
    }

    #[test]
    fn a_cgroup_under_pressure_holds_the_pages_of_its_processes_alone() {
        let tree = Tree::new();
        tree.waits("proc/pressure/memory", "1.00");
        tree.put("sys/fs/cgroup/cgroup.controllers", "memory\n");
        for (pid, name) in [(7, "tight"), (8, "roomy"), (9, "uncounted")] {
            tree.put(&format!("proc/{pid}/cgroup"), &format!("0::/{name}\n"));
            tree.put(&format!("sys/fs/cgroup/{name}/cgroup.procs"), &format!("{pid}\n"));
        }
        tree.waits("sys/fs/cgroup/tight/memory.pressure", "60.00");
        tree.waits("sys/fs/cgroup/roomy/memory.pressure", "0.00");
        let (mut pressure, mut changes) = (tree.pressure(0.1), Vec::new());
        let held = [7, 8, 9, 10, 7].map(|pid| pressure.is_high_for(Pid(pid), &mut changes));
        assert_eq!(held, [true, false, false, false, true]);
        assert!(changes.len() == 1 && changes[0].is_high && changes[0].cgroup.ends_with("/tight"), "{changes:?}");
        assert!(!pressure.is_high() && pressure.is_known_high_for(Pid(7)) && !pressure.is_known_high_for(Pid(8)));
        assert!(pressure.look().is_empty());
        // What is there and cannot be read is as it was.
        let file = tree.0.path().join("sys/fs/cgroup/tight/memory.pressure");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(pressure.look().is_empty() && pressure.is_high_for(Pid(7), &mut changes));
        fs::remove_dir(&file).unwrap();
        tree.waits("sys/fs/cgroup/tight/memory.pressure", "4.00");
        let over = pressure.look();
        assert!(over.len() == 1 && !over[0].is_high && over[0].cgroup.ends_with("/tight"), "{over:?}");
        assert!(!pressure.is_known_high_for(Pid(7)));
        // A cgroup that is removed waits for nothing.
        tree.waits("sys/fs/cgroup/tight/memory.pressure", "60.00");
        assert!(pressure.is_high_for(Pid(7), &mut changes));
        fs::remove_dir_all(tree.0.path().join("sys/fs/cgroup/tight")).unwrap();
        assert!(!pressure.look()[0].is_high && !pressure.is_known_high_for(Pid(7)));
    }
}
