//! Cgroups and systemd's units: which folder is meant, which processes are in it, and what its files say. A unit is a cgroup that systemd names after it
//! (`man systemd.slice`, "Control Groups"). `Documentation/admin-guide/cgroup-v2.rst`; on version 1 and on hybrid machines systemd's own hierarchy has the same
//! tree.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

use crate::Pid;
use crate::Root;

/// Where version 2 is mounted: alone, or beside version 1. The hierarchies of version 1 are below the first of these, each by the name of its controller.
const VERSION_2: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Where the cgroups of systemd's units are: version 2, and systemd's own hierarchy of version 1.
const MOUNTS: [&str; 3] = [VERSION_2[0], VERSION_2[1], "sys/fs/cgroup/systemd"];
/// The list of a cgroup's processes: a folder is that of a cgroup where it has this file.
const PROCESSES: &str = "cgroup.procs";
/// Kinds of units that have processes.
const SUFFIXES: [&str; 7] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap", ".timer"];
/// Folders of cgroups that are visited at most, and their depth: a tree with more is not read on.
const FOLDERS_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 32;
/// Units that an error names.
const NAMED_MAX: usize = 5;
/// Digits of a container's number, and those that `docker ps` and `podman ps` show of it.
const LONG_ID: usize = 64;
const SHORT_ID: usize = 12;

/// Why a cgroup or a unit cannot be watched.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No hierarchy of cgroups is mounted.
    #[error(
        "there are no cgroups below {}: none are mounted there, or a container hides them; name processes with --pid (`pgrep` and `ps` show their ids)",
        mount.display()
    )]
    NoHierarchy {
        /// Folder where they would be mounted.
        mount: PathBuf,
    },
    /// The folder is none of a cgroup.
    #[error(
        "--cgroup {}: {} is not the folder of a cgroup; `cat /proc/PID/cgroup` shows the cgroup of a process, `systemd-cgls` all of them",
        named.display(), folder.display()
    )]
    NoCgroup {
        /// The path as the user wrote it.
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
        /// The path as the user wrote it.
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

/// The folder of a process's cgroup of version 2; `None`: the process is gone, or there is no hierarchy of version 2.
#[must_use]
pub fn of_process(root: &Root, pid: Pid) -> Option<PathBuf> {
    let mut mounts = VERSION_2.iter().map(|mount| root.path().join(mount));
    let mount = mounts.find(|mount| mount.join("cgroup.controllers").exists())?;
    let text = memberships(root, &pid.to_string())?;
    let path = path_in(&text, None)?.strip_prefix("/").ok()?;
    // A process outside of this namespace's root has a path that leads out of it.
    (!path.starts_with("..")).then(|| mount.join(path))
}

/// Folders of the cgroups that this process is in, relative to the root, its own first and the hierarchy's last: those of version 2, and those of version 1 for
/// a controller. Version 2 beside version 1 has no controllers, and is left out.
#[must_use]
pub fn of_own(root: &Root, controller: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let text = memberships(root, "self").unwrap_or_default();
    let folders = |mount: &str, path: Option<&Path>| -> Vec<PathBuf> {
        let Some(path) = path else { return Vec::new() };
        let own = Path::new(mount).join(path.strip_prefix("/").unwrap_or(path));
        own.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_path_buf).collect()
    };
    let [mount, _] = VERSION_2;
    (folders(mount, path_in(&text, None)), folders(&format!("{mount}/{controller}"), path_in(&text, Some(controller))))
}

/// The files of a cgroup's folder that limit its memory and say how much it has, by version: `Documentation/admin-guide/cgroup-v2.rst`, "Memory Interface
/// Files", and `cgroup-v1/memory.rst` beside it. Each holds a number of bytes, or a word where there is no limit.
struct MemoryFiles {
    /// The limit: no process gets more.
    max: &'static str,
    /// The limit above which the kernel takes memory back and makes the cgroup's processes wait; version 1 has none.
    high: Option<&'static str>,
    /// What the cgroup has, with pages of files.
    usage: &'static str,
    /// The key of `memory.stat` for pages of files that nobody used lately.
    unused_files: &'static str,
}

const MEMORY_2: MemoryFiles = MemoryFiles {
    max: "memory.max",
    high: Some("memory.high"),
    usage: "memory.current",
    unused_files: "inactive_file",
};
const MEMORY_1: MemoryFiles = MemoryFiles {
    max: "memory.limit_in_bytes",
    high: None,
    usage: "memory.usage_in_bytes",
    unused_files: "total_inactive_file",
};

impl MemoryFiles {
    /// A limit in bytes; `None`: there is none.
    fn limit(root: &Root, folder: &Path, file: &str) -> Option<u64> {
        // Version 1 writes nearly 2^63 where there is no limit.
        root.number(folder.join(file).to_str()?).filter(|bytes| *bytes < 1 << 60)
    }

    /// Bytes of a cgroup that its processes need: all but pages of files that nobody used lately, which the kernel drops. In a cgroup that has run for long
    /// these fill the limit.
    fn used(&self, root: &Root, folder: &Path) -> Option<u64> {
        let usage = root.number(folder.join(self.usage).to_str()?).unwrap_or(0);
        let stat = root.text(folder.join("memory.stat").to_str()?).unwrap_or_default();
        let unused = stat.lines().find_map(|line| line.strip_prefix(self.unused_files)?.strip_prefix(' '));
        Some(usage.saturating_sub(unused.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)))
    }
}

/// The cgroups that limit this process's memory, with the files that say so.
fn memory_groups(root: &Root) -> impl Iterator<Item = (PathBuf, MemoryFiles)> {
    let (version_2, version_1) = of_own(root, "memory");
    let version_2 = version_2.into_iter().map(|folder| (folder, MEMORY_2));
    version_2.chain(version_1.into_iter().map(|folder| (folder, MEMORY_1)))
}

/// Bytes of memory that this process may have, by the tightest limit of the cgroups that it is in; `None`: there is none.
#[must_use]
pub fn memory_limit(root: &Root) -> Option<u64> {
    memory_groups(root).filter_map(|(folder, files)| MemoryFiles::limit(root, &folder, files.max)).min()
}

/// Bytes of memory that the cgroups of this process leave it, without being slowed down; `None`: none of them has a limit.
#[must_use]
pub fn memory_left(root: &Root) -> Option<u64> {
    let left = |(folder, files): (PathBuf, MemoryFiles)| -> Option<u64> {
        let limits = [Some(files.max), files.high].into_iter().flatten();
        let tightest = limits.filter_map(|file| MemoryFiles::limit(root, &folder, file)).min()?;
        Some(tightest.saturating_sub(files.used(root, &folder)?))
    };
    memory_groups(root).filter_map(left).min()
}

/// The text that says in which cgroups a process is: for each hierarchy a line of its number, its controllers and the path in it, with colons between.
fn memberships(root: &Root, process: &str) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    root.read(&format!("proc/{process}/cgroup"), &mut text).ok()?;
    Some(text)
}

/// The path in the hierarchy of version 1 that has a controller, or in that of version 2.
fn path_in<'a>(memberships: &'a [u8], controller: Option<&str>) -> Option<&'a Path> {
    let of_line = |line: &'a [u8]| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match controller {
            Some(controller) => controllers.split(|&byte| byte == b',').any(|known| known == controller.as_bytes()),
            None => number == b"0" && controllers.is_empty(),
        };
        is_it.then_some(Path::new(OsStr::from_bytes(path)))
    };
    memberships.split(|&byte| byte == b'\n').find_map(of_line)
}

/// Processes directly in a cgroup, ascending; 0: one outside of this namespace of process ids. Empty where the cgroup is gone.
#[must_use]
pub fn members(folder: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(folder.join(PROCESSES)).unwrap_or_default();
    let mut pids: Vec<Pid> = text.lines().filter_map(|line| line.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Whether there are cgroups within this one.
#[must_use]
pub fn has_children(folder: &Path) -> bool {
    !within(folder).is_empty()
}

/// The folder of a cgroup, and those of the cgroups around it, up to the hierarchy's.
pub fn with_outer(folder: &Path) -> impl Iterator<Item = &Path> {
    folder.ancestors().take_while(|folder| is_cgroup(folder))
}

fn is_cgroup(folder: &Path) -> bool {
    folder.join(PROCESSES).exists()
}

/// What the files of a cgroup's cpuset say (`Documentation/admin-guide/cgroup-v2.rst`, "Cpuset").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpusetTexts {
    /// CPUs that were asked for; empty: all of its parent's.
    pub cpus: String,
    /// Nodes that were asked for; empty: those of its parent.
    pub mems: String,
    /// Whether its CPUs are set apart, or were to be.
    pub is_partition: bool,
    /// CPUs that its tasks may run on.
    pub effective_cpus: String,
    /// Nodes whose memory its tasks may use.
    pub effective_mems: String,
}

/// A cgroup's cpuset; `None`: it has none of its own (the controller is not enabled there, or it is the root).
#[must_use]
pub fn cpuset(folder: &Path) -> Option<CpusetTexts> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    Some(CpusetTexts {
        cpus: read("cpuset.cpus")?,
        mems: read("cpuset.mems")?,
        is_partition: read("cpuset.cpus.partition").is_some_and(|kind| !kind.is_empty() && kind != "member"),
        effective_cpus: read("cpuset.cpus.effective")?,
        effective_mems: read("cpuset.mems.effective")?,
    })
}

/// Process ids in the cgroups with these folders and in those within, ascending. A cgroup that is gone has none.
#[must_use]
pub fn processes(folders: &[PathBuf]) -> Vec<Pid> {
    let mut pids = BTreeSet::new();
    let mut seen = 0;
    let mut waiting: Vec<(PathBuf, usize)> = folders.iter().map(|folder| (folder.clone(), 0)).collect();
    while let Some((folder, depth)) = waiting.pop() {
        // 0: a process outside of this namespace of process ids.
        pids.extend(members(&folder).into_iter().filter(|pid| *pid != Pid(0)));
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
    if relative.starts_with(MOUNTS[0]) {
        candidates.insert(0, as_it_is.clone());
    } else {
        candidates.push(as_it_is.clone());
    }
    let first = root.path().join(MOUNTS[0]);
    if !is_cgroup(&first) {
        // Version 1 has a tree for each controller; batch systems make folders for their jobs in those that they use, and in no other.
        candidates.extend(within(&first).into_iter().map(|mount| mount.join(&relative)));
    }
    candidates.retain(|folder| is_cgroup(folder));
    let has_processes = |folder: &&PathBuf| !processes(std::slice::from_ref(*folder)).is_empty();
    match candidates.iter().find(has_processes) {
        Some(folder) => Ok(folder.clone()),
        None if candidates.is_empty() => Err(CgroupError::NoCgroup { named: named.to_owned(), folder: as_it_is }),
        None => Err(CgroupError::EmptyCgroup { named: named.to_owned() }),
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
    /// The hierarchies that are mounted under a root.
    #[must_use]
    pub fn of(root: &Root) -> Hierarchies {
        let mounts = MOUNTS.iter().map(|mount| root.path().join(mount));
        let mounts = mounts.filter(|mount| is_cgroup(mount));
        Hierarchies {
            first: root.path().join(MOUNTS[0]),
            mounts: mounts.map(|mount| (mount, OnceCell::new())).collect(),
        }
    }

    /// The cgroups of a systemd unit: `postgresql` is `postgresql.service`. A unit without processes stands for its running instances
    /// (`postgresql@15-main.service`), as on Debian, and so does a template (`postgresql@`, `postgresql@.service`, `postgresql@*`). The number of a container,
    /// or at least its first twelve digits, stands for the container's scope.
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
        let template = stem.strip_suffix('*').unwrap_or(stem);
        let template = template.strip_suffix('@').unwrap_or(stem);
        let is_instance = |found: &str| {
            found
                .strip_prefix(template)
                .is_some_and(|rest| rest.starts_with('@') && rest.ends_with(&format!(".{suffix}")))
        };
        let (mut exists, mut alike) = (false, BTreeSet::new());
        for (mount, below) in &self.mounts {
            let units = below.get_or_init(|| units_below(mount));
            let has_processes = |folder: &PathBuf| !processes(std::slice::from_ref(folder)).is_empty();
            let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<(String, PathBuf)> {
                units.iter().filter(|(name, folder)| wanted(name) && has_processes(folder)).cloned().collect()
            };
            let mut found = of(&|found| found == unit);
            if found.is_empty() {
                found = of(&is_instance);
            }
            if found.is_empty() {
                found = of(&|found| is_scope_of_container(found, name));
            }
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

/// Whether a unit is the scope in which a runtime runs the container whose number begins so: `docker-NUMBER.scope`, `libpod-NUMBER.scope` (podman),
/// `crio-NUMBER.scope`, `cri-containerd-NUMBER.scope`. Podman and CRI-O have another one for the process that watches it.
fn is_scope_of_container(unit: &str, number: &str) -> bool {
    let is_number = (SHORT_ID..=LONG_ID).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = unit.strip_suffix(".scope").and_then(|stem| stem.rsplit_once('-'));
    let is_its =
        |(runtime, id): (&str, &str)| id.len() == LONG_ID && id.starts_with(number) && !runtime.ends_with("-conmon");
    is_number && parts.is_some_and(is_its)
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

    #[test]
    fn the_number_of_a_container_stands_for_its_scope() {
        let tree = debian();
        let number = |digit: &str| format!("0123456789ab{}", digit.repeat(52));
        let [docker, podman, kubernetes] = ["a", "b", "c"].map(number);
        tree.put(&format!("system.slice/docker-{docker}.scope"), "91");
        let users = "user.slice/user-7.slice/user@7.service/user.slice";
        tree.put(&format!("{users}/libpod-{podman}.scope/container"), "92");
        tree.put(&format!("{users}/libpod-conmon-{podman}.scope"), "93");
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice";
        tree.put(&format!("{pod}/cri-containerd-{kubernetes}.scope"), "94");
        assert_eq!([&docker, &podman, &kubernetes].map(|number| tree.pids(number)), [[91], [92], [94]]);
        assert_eq!(tree.pids(&docker[..13]), [91]);
        assert_eq!(tree.pids("0123456789ab"), [91, 92, 94], "all that begin so");
        for none in ["0123456789a", "0123456789abd", "docker-0123456789ab", "conmon"] {
            assert!(tree.why(none).contains("no such unit runs here"), "{none}");
        }
    }

    #[test]
    fn a_template_stands_for_its_instances() {
        let tree = debian();
        tree.put("user.slice/user-8.slice/user@8.service/init.scope", "90");
        for template in ["postgresql@", "postgresql@.service", "postgresql@*", "postgresql@*.service"] {
            assert_eq!(tree.pids(template), [40, 41, 50], "{template}");
        }
        assert_eq!(tree.pids("user@"), [70, 90]);
        for none in ["nginx@", "nginx@.service", "nginx*", "postgresql@15*", "postgresql@.slice"] {
            assert!(tree.why(none).contains("no such unit runs here"), "{none}");
        }
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
    fn the_cgroup_of_a_process_and_what_is_in_it_are_found() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let put = |path: &str, text: &str| {
            let file = tree.0.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let of = |pid: u32| of_process(&tree.root(), Pid(pid));
        put("proc/7/cgroup", "0::/jobs/a\n");
        put("proc/8/cgroup", "0::/../out\n");
        put("proc/9/cgroup", "4:memory:/docker/a\n1:name=systemd:/x\n");
        assert_eq!(of(7), None, "no hierarchy");
        put("sys/fs/cgroup/unified/cgroup.controllers", "");
        assert_eq!(of(7), Some(tree.0.path().join("sys/fs/cgroup/unified/jobs/a")));
        put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
        let folder = of(7).unwrap();
        assert_eq!(folder, tree.0.path().join("sys/fs/cgroup/jobs/a"));
        assert_eq!((of(8), of(9), of(10)), (None, None, None));
        put("sys/fs/cgroup/jobs/a/cgroup.procs", "9\n0\n7\n9\n");
        put("sys/fs/cgroup/jobs/cgroup.procs", "");
        assert_eq!((members(&folder), members(Path::new("/nowhere"))), (vec![Pid(0), Pid(7), Pid(9)], Vec::new()));
        let jobs = folder.parent().unwrap();
        assert!(!has_children(&folder) && has_children(jobs) && !has_children(Path::new("/nowhere")));
        assert_eq!(with_outer(&folder).collect::<Vec<_>>(), [folder.as_path(), jobs]);
        assert_eq!(cpuset(&folder), None);
        for (name, text) in [("cpus", ""), ("mems", "0-1"), ("cpus.effective", "0-3"), ("mems.effective", "0-1")] {
            assert_eq!(cpuset(&folder), None);
            put(&format!("sys/fs/cgroup/jobs/a/cpuset.{name}"), &format!("{text}\n"));
        }
        for (kind, is_partition) in [("member", false), ("root", true), ("isolated", true), ("root invalid (x)", true)]
        {
            put("sys/fs/cgroup/jobs/a/cpuset.cpus.partition", &format!("{kind}\n"));
            let found = cpuset(&folder).unwrap();
            assert_eq!((found.cpus.as_str(), found.effective_cpus.as_str()), ("", "0-3"));
            assert_eq!((found.mems.as_str(), found.effective_mems.as_str()), ("0-1", "0-1"));
            assert_eq!(found.is_partition, is_partition, "{kind}");
        }
    }

    #[test]
    fn the_cgroups_around_this_process_are_found() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let of = |controller: &str| of_own(&tree.root(), controller);
        assert_eq!(of("cpu"), (Vec::new(), Vec::new()));
        fs::create_dir_all(tree.0.path().join("proc/self")).unwrap();
        let put = |text: &str| fs::write(tree.0.path().join("proc/self/cgroup"), text).unwrap();
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        put("0::/a/b\n");
        assert_eq!(of("cpu").0, paths(&["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"]));
        assert_eq!(of("cpu").1, paths(&[]));
        put("5:cpu,cpuacct:/\n4:memory:/a\n0::/\n");
        assert_eq!(of("cpu"), (paths(&["sys/fs/cgroup"]), paths(&["sys/fs/cgroup/cpu"])));
        assert_eq!(of("memory").1, paths(&["sys/fs/cgroup/memory/a", "sys/fs/cgroup/memory"]));
        assert_eq!(of("cpuset").1, paths(&[]));
    }

    #[test]
    fn the_tightest_limit_of_memory_counts() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let put = |path: &str, text: &str| {
            let file = tree.0.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(memory_limit(&tree.root()), None);
        put("proc/self/cgroup", "4:memory:/a\n0::/a/b\n");
        put("sys/fs/cgroup/a/b/memory.max", "max\n");
        put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_limit(&tree.root()), None);
        put("sys/fs/cgroup/a/memory.max", "2000000\n");
        assert_eq!(memory_limit(&tree.root()), Some(2_000_000));
        put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
        assert_eq!(memory_limit(&tree.root()), Some(1_000_000));
        // Above this one the kernel makes processes wait, and gives them more all the same.
        put("sys/fs/cgroup/a/memory.high", "500000\n");
        put("sys/fs/cgroup/a/memory.current", "300000\n");
        put("sys/fs/cgroup/a/memory.stat", "inactive_file 100000\n");
        assert_eq!((memory_limit(&tree.root()), memory_left(&tree.root())), (Some(1_000_000), Some(300_000)));
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

    /// Slurm on a machine with cgroups of version 1: its jobs are in no tree that was looked at, though `/proc/PID/cgroup` names them so.
    #[test]
    fn a_cgroup_of_one_controller_is_found_by_its_path() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let mounts = tree.0.path().join("sys/fs/cgroup");
        let put = |folder: &str, pids: &str| {
            fs::create_dir_all(mounts.join(folder)).unwrap();
            fs::write(mounts.join(folder).join("cgroup.procs"), pids).unwrap();
        };
        put("systemd", "1\n");
        put("cpuset/slurm/job_1", "");
        put("memory/slurm/job_1", "");
        put("memory/slurm/job_1/step_0", "80\n");
        let of = |named: &str| of_path(&tree.root(), Path::new(named));
        assert_eq!(of("/slurm/job_1").unwrap(), mounts.join("memory/slurm/job_1"));
        assert_eq!(of("/sys/fs/cgroup/memory/slurm/job_1").unwrap(), mounts.join("memory/slurm/job_1"));
        assert!(matches!(of("/slurm/job_2"), Err(CgroupError::NoCgroup { .. })));
        put("memory/slurm/job_1/step_0", "");
        assert!(matches!(of("/slurm/job_1"), Err(CgroupError::EmptyCgroup { .. })));
    }
}
