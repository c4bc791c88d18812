//! Cgroups and systemd's units: which folder is meant, and which processes are in it. A unit is a cgroup that systemd names after it
//! (`man systemd.slice`, "Control Groups"). `Documentation/admin-guide/cgroup-v2.rst`; on version 1 and on hybrid machines systemd's own hierarchy has the same
//! tree.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

use crate::Pid;
use crate::Root;

/// Where the cgroups of systemd's units are: version 2 alone, version 2 beside version 1, and systemd's own hierarchy of version 1.
const MOUNTS: [&str; 3] = ["sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd"];
/// Kinds of units that have processes.
const SUFFIXES: [&str; 7] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap", ".timer"];
/// Folders of cgroups that are visited at most, and their depth: a tree with more is not read on.
const FOLDERS_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 32;
/// Units that an error names.
const NAMED_MAX: usize = 5;

/// Why a cgroup or a unit cannot be watched.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No hierarchy of cgroups is mounted.
    #[error(
        "there are no cgroups below {}: none are mounted there, or a container hides them; name processes with --pid (`pgrep` and `ps` show their ids)",
        mount.display()
    )]
    NoHierarchy {
        /// Where they should be.
        mount: PathBuf,
    },
    /// The folder is none of a cgroup.
    #[error(
        "--cgroup {}: {} is not the folder of a cgroup; `cat /proc/PID/cgroup` shows the cgroup of a process, `systemd-cgls` all of them",
        named.display(), folder.display()
    )]
    NoCgroup {
        /// As it was named.
        named: PathBuf,
        /// The folder that it means.
        folder: PathBuf,
    },
    /// The cgroup has no processes.
    #[error(
        "--cgroup {}: no process is in this cgroup, nor in any within; `systemd-cgls` shows those that have processes",
        named.display()
    )]
    EmptyCgroup {
        /// As it was named.
        named: PathBuf,
    },
    /// No unit of this name has a cgroup.
    #[error("unit {unit}: no such unit runs here{alike}; `systemctl list-units --state=running` lists those that do")]
    NoUnit {
        /// Its name, with the suffix.
        unit: String,
        /// Running units with a similar name, as a clause; may be empty.
        alike: String,
    },
    /// The unit has a cgroup without processes.
    #[error(
        "unit {unit}: it has no processes{alike}; `systemctl status {unit}` says why, `systemctl start {unit}` starts it"
    )]
    EmptyUnit {
        /// Its name, with the suffix.
        unit: String,
        /// Running units with a similar name, as a clause; may be empty.
        alike: String,
    },
}

/// The folders of a unit's cgroups, as it was named and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The unit, or its instances where it has no processes of its own.
    pub names: Vec<String>,
    /// Folders, in the same order.
    pub folders: Vec<PathBuf>,
}

/// Process ids in the cgroups with these folders and in those within, ascending. A cgroup that is gone has none.
#[must_use]
pub fn processes(folders: &[PathBuf]) -> Vec<Pid> {
    let mut pids = BTreeSet::new();
    let mut seen = 0;
    let mut waiting: Vec<(PathBuf, usize)> = folders.iter().map(|folder| (folder.clone(), 0)).collect();
    while let Some((folder, depth)) = waiting.pop() {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        // 0: a process outside of this namespace of process ids.
        pids.extend(text.lines().filter_map(|line| line.parse::<Pid>().ok()).filter(|pid| *pid != Pid(0)));
        seen += 1;
        if depth < DEPTH_MAX && seen + waiting.len() < FOLDERS_MAX {
            waiting.extend(within(&folder).into_iter().map(|folder| (folder, depth + 1)));
        }
    }
    pids.into_iter().collect()
}

/// Folders directly in a folder, sorted.
fn within(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// The folder of a cgroup that was named by its path: below the mount as the kernel shows it (`/sys/fs/cgroup/batch`), or as `/proc/PID/cgroup` and systemd do
/// (`/system.slice/x.service`, `batch`). It must have processes.
///
/// # Errors
/// There is no such cgroup, or it is empty.
pub fn of_path(root: &Root, named: &Path) -> Result<PathBuf, CgroupError> {
    let relative: PathBuf = named.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let as_it_is = root.path().join(&relative);
    let below = MOUNTS.iter().map(|mount| root.path().join(mount).join(&relative));
    // A path below the mounts wins over one that happens to exist elsewhere.
    let mut candidates: Vec<PathBuf> = below.collect();
    if relative.starts_with("sys/fs/cgroup") {
        candidates.insert(0, as_it_is.clone());
    } else {
        candidates.push(as_it_is.clone());
    }
    let is_cgroup = |folder: &PathBuf| folder.join("cgroup.procs").exists();
    let Some(folder) = candidates.into_iter().find(is_cgroup) else {
        return Err(CgroupError::NoCgroup { named: named.to_owned(), folder: as_it_is });
    };
    match processes(std::slice::from_ref(&folder)).is_empty() {
        false => Ok(folder),
        true => Err(CgroupError::EmptyCgroup { named: named.to_owned() }),
    }
}

/// Names of units and the folders of their cgroups.
type NamedFolders = Vec<(String, PathBuf)>;

/// The hierarchies of cgroups in which units are looked up, each read when it is first needed, and once: it has tens of thousands of folders on some machines.
#[derive(Debug)]
pub struct Hierarchies {
    /// Where the first of them should be.
    first: PathBuf,
    /// The mounts, and the names and folders of the units below each.
    mounts: Vec<(PathBuf, OnceCell<NamedFolders>)>,
}

impl Hierarchies {
    /// Those that are mounted under a root.
    #[must_use]
    pub fn of(root: &Root) -> Hierarchies {
        let mounts = MOUNTS.iter().map(|mount| root.path().join(mount));
        let mounts = mounts.filter(|mount| mount.join("cgroup.procs").exists());
        Hierarchies {
            first: root.path().join(MOUNTS[0]),
            mounts: mounts.map(|mount| (mount, OnceCell::new())).collect(),
        }
    }

    /// The cgroups of a systemd unit: `postgresql` is `postgresql.service`. A unit without processes stands for its running instances
    /// (`postgresql@15-main.service`), as on Debian.
    ///
    /// # Errors
    /// No such unit runs, or no cgroups are mounted.
    pub fn unit(&self, name: &str) -> Result<Unit, CgroupError> {
        if self.mounts.is_empty() {
            return Err(CgroupError::NoHierarchy { mount: self.first.clone() });
        }
        let has_suffix = SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        let unit = if has_suffix { name.to_owned() } else { format!("{name}.service") };
        let (stem, suffix) = unit.rsplit_once('.').unwrap_or((&unit, "service"));
        let is_instance = |found: &str| {
            found.strip_prefix(stem).is_some_and(|rest| rest.starts_with('@') && rest.ends_with(&format!(".{suffix}")))
        };
        let (mut exists, mut alike) = (false, BTreeSet::new());
        for (mount, below) in &self.mounts {
            let units = below.get_or_init(|| units_below(mount));
            let has_processes = |folder: &PathBuf| !processes(std::slice::from_ref(folder)).is_empty();
            let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<(String, PathBuf)> {
                units.iter().filter(|(name, folder)| wanted(name) && has_processes(folder)).cloned().collect()
            };
            let own = of(&|found| found == unit);
            let found = if own.is_empty() { of(&is_instance) } else { own };
            if !found.is_empty() {
                let (names, folders) = found.into_iter().unzip();
                return Ok(Unit { names, folders });
            }
            exists |= units.iter().any(|(found, _)| *found == unit);
            let word = stem.split(['@', '-', '.']).next().unwrap_or(stem);
            let is_alike = |found: &str| !word.is_empty() && found != unit && found.contains(word);
            alike.extend(of(&is_alike).into_iter().map(|(name, _)| name));
        }
        let names: Vec<String> = alike.into_iter().take(NAMED_MAX).collect();
        let alike = if names.is_empty() { String::new() } else { format!(" (running are {})", names.join(", ")) };
        Err(if exists { CgroupError::EmptyUnit { unit, alike } } else { CgroupError::NoUnit { unit, alike } })
    }
}

/// Name and folder of every cgroup below a mount that is named as units are; those of users' managers too.
fn units_below(mount: &Path) -> NamedFolders {
    let mut found = Vec::new();
    let mut waiting = vec![(mount.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = waiting.pop() {
        seen += 1;
        if depth >= DEPTH_MAX || seen + waiting.len() >= FOLDERS_MAX {
            continue;
        }
        for inner in within(&folder) {
            let name = inner.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // systemd puts `_` before names that the kernel's own files could have.
            let name = name.strip_prefix('_').unwrap_or(name);
            if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
                found.push((name.to_owned(), inner.clone()));
            }
            waiting.push((inner, depth + 1));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    //! Made hierarchies.

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn of(groups: &[(&str, &str)]) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            groups.iter().for_each(|(path, pids)| tree.put(path, pids));
            tree
        }

        /// A cgroup, and those above it up to the mount.
        fn put(&self, path: &str, pids: &str) {
            let folder = self.0.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(&folder).unwrap();
            for above in folder.ancestors().take_while(|above| !above.ends_with("fs")) {
                let file = above.join("cgroup.procs");
                if !file.exists() {
                    fs::write(file, "").unwrap();
                }
            }
            fs::write(folder.join("cgroup.procs"), pids.replace(' ', "\n")).unwrap();
        }

        fn root(&self) -> Root {
            Root::new(self.0.path())
        }

        fn pids(&self, name: &str) -> Vec<u32> {
            processes(&Hierarchies::of(&self.root()).unit(name).unwrap().folders).iter().map(|pid| pid.0).collect()
        }

        fn why(&self, name: &str) -> String {
            Hierarchies::of(&self.root()).unit(name).unwrap_err().to_string()
        }
    }

    fn debian() -> Tree {
        Tree::of(&[
            ("system.slice/postgresql.service", ""),
            ("system.slice/system-postgresql.slice/postgresql@15-main.service", "40 41"),
            ("system.slice/system-postgresql.slice/postgresql@16-other.service", "50"),
            ("system.slice/nginx.service", "60 0"),
            ("system.slice/nginx.service/inner", "61"),
            ("user.slice/user-7.slice/user@7.service/app.slice/_redis.service", "70"),
            ("batch/jobs", "80"),
        ])
    }

    #[test]
    fn a_unit_is_found_wherever_its_cgroup_is() {
        let tree = debian();
        assert_eq!(tree.pids("nginx"), [60, 61]);
        assert_eq!(tree.pids("nginx.service"), [60, 61]);
        assert_eq!(tree.pids("redis"), [70]);
        assert_eq!(tree.pids("postgresql@15-main"), [40, 41]);
        assert_eq!(tree.pids("system-postgresql.slice"), [40, 41, 50]);
    }

    #[test]
    fn a_unit_without_processes_stands_for_its_instances() {
        let unit = Hierarchies::of(&debian().root()).unit("postgresql").unwrap();
        assert_eq!(unit.names, ["postgresql@15-main.service", "postgresql@16-other.service"]);
        assert_eq!(debian().pids("postgresql.service"), [40, 41, 50]);
    }

    /// With `--unit` given many times, every folder of the machine's cgroups was read for each of them.
    #[test]
    fn many_units_are_looked_up_in_one_reading() {
        let tree = debian();
        let hierarchies = Hierarchies::of(&tree.root());
        assert_eq!(hierarchies.unit("nginx").unwrap().names, ["nginx.service"]);
        tree.put("system.slice/later.service", "90");
        assert!(hierarchies.unit("later").is_err(), "the folders were read again");
        assert_eq!(hierarchies.unit("redis").unwrap().names, ["redis.service"]);
        assert_eq!(tree.pids("later"), [90]);
    }

    #[test]
    fn a_unit_that_does_not_run_is_an_error_with_the_next_step() {
        let tree = debian();
        tree.put("system.slice/mysql.service", "");
        let why = tree.why("mysql");
        assert!(why.contains("has no processes") && why.contains("systemctl start mysql.service"), "{why}");
        let why = tree.why("postgresql-14");
        assert!(why.contains("no such unit runs here (running are postgresql@15-main.service, "), "{why}");
        assert!(why.contains("systemctl list-units"), "{why}");
        let none = Tree(tempfile::tempdir().unwrap());
        assert!(none.why("nginx").contains("--pid"), "{}", none.why("nginx"));
    }

    #[test]
    fn hybrid_and_first_version_hierarchies_have_units_too() {
        for mount in ["unified", "systemd"] {
            let tree = Tree(tempfile::tempdir().unwrap());
            let folder = tree.0.path().join("sys/fs/cgroup").join(mount).join("system.slice/nginx.service");
            fs::create_dir_all(&folder).unwrap();
            fs::write(tree.0.path().join("sys/fs/cgroup").join(mount).join("cgroup.procs"), "1\n").unwrap();
            fs::write(folder.join("cgroup.procs"), "60\n61\n").unwrap();
            assert_eq!(tree.pids("nginx"), [60, 61], "{mount}");
        }
    }

    #[test]
    fn a_cgroup_is_named_as_the_kernel_or_as_systemd_does() {
        let tree = debian();
        let folder = tree.0.path().join("sys/fs/cgroup/batch");
        for named in ["/sys/fs/cgroup/batch", "/batch", "batch", "batch/"] {
            assert_eq!(of_path(&tree.root(), Path::new(named)).unwrap(), folder, "{named}");
        }
        assert_eq!(processes(&[folder]), [Pid(80)], "those within count");
        let why = |named: &str| of_path(&tree.root(), Path::new(named)).unwrap_err().to_string();
        assert!(why("nothing").contains("systemd-cgls"), "{}", why("nothing"));
        assert!(why("/system.slice/postgresql.service").contains("no process is in this cgroup"));
        assert!(why("../../../etc").contains("is not the folder of a cgroup"), "{}", why("../../../etc"));
    }
}
