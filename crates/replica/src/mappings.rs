//! Node-local copies of read-only mappings in unmodified programs: starting them with the preload library, and reporting what happened to their mappings.
//!
//! The library (`c/remap.c`) does the work inside each process; here is the folder that the processes of one run share, on a memory file system, and the
//! reading of the log that they leave in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::env;
use std::ffi::CString;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::fs::DirBuilder;
use std::io;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::reason::Reason;

/// The preload library that maps node-local copies of files.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-remap.so"));

const LIBRARY_NAME: &str = "libnumapilot-remap.so";
const FOLDER_PREFIX: &str = "numapilot-copies-";

/// Why programs cannot be given copies.
#[derive(Debug, thiserror::Error)]
pub enum MappingsError {
    /// Copies are files that must lie in memory and, for code, be executable.
    #[error(
        "there is no memory file system that this user may write to and execute from: tried {tried}; mount one and name it in XDG_RUNTIME_DIR"
    )]
    NoFolder {
        /// The folders that were tried, with the reasons.
        tried: String,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}", path = path.display())]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The file or folder of the call.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Which mappings get copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A shell pattern for whole paths. With it: all private read-only mappings of files that match. Without: code and constants of programs and
    /// their libraries, and sealed memfds.
    pub pattern: Option<String>,
    /// A shell pattern for files that are shared and may be written, but only through mappings of the programs started here: a first write collapses.
    pub shared: Option<String>,
    /// The node, for all processes. Without: the one that each is pinned to; those that are not pinned keep what they have.
    pub node: Option<NodeId>,
    /// Mappings smaller than this many bytes are left unchanged; `None`: 64 KiB.
    pub bytes_min: Option<u64>,
    /// Nothing is copied but what is ordered while the programs run ([`crate::orders`]).
    pub by_order: bool,
}

/// A run whose processes share node-local copies. Dropping it deletes the folder; copies in use live on in their processes.
#[derive(Debug)]
pub struct Mappings {
    folder: PathBuf,
    rules: Rules,
}

/// What a process did with one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Process number.
    pub pid: Pid,
    /// The node whose copy it was to have; none for a collapse.
    pub node: Option<NodeId>,
    /// What the process did with the mapping.
    pub action: Action,
    /// Size of the mapping.
    pub bytes: u64,
    /// Address of the mapping.
    pub address: VirtAddr,
    /// Why it was left or collapsed.
    pub reason: Option<Reason>,
    /// File of the mapping.
    pub path: PathBuf,
}

/// What a process can do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The mapping shows the node's copy.
    Replaced,
    /// The mapping was left unchanged.
    Left,
    /// All processes went back to the original.
    Collapsed,
    /// This process went back to its own file, because the orders no longer name the mapping.
    GivenBack,
}

/// What the processes of a run did with their mappings; displays as text for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// In the order in which it happened.
    pub events: Vec<Event>,
    /// Lines of the log that could not be read.
    pub lines_lost: u64,
}

impl Mappings {
    /// Makes the folder for the copies and puts the library there. Folders of runs that were killed are removed.
    ///
    /// # Errors
    ///
    /// [`MappingsError::NoFolder`] where no memory file system can be used, [`MappingsError::Io`].
    pub fn prepare(rules: Rules) -> Result<Mappings, MappingsError> {
        let mut tried = Vec::new();
        let candidates =
            [Some(OsString::from("/dev/shm")), env::var_os("XDG_RUNTIME_DIR"), Some(OsString::from("/run"))];
        for base in candidates.into_iter().flatten().map(PathBuf::from) {
            match check_file_system(&base).and_then(|()| make_folder(&base)) {
                Ok(folder) => {
                    remove_left_over(&base);
                    let made = Mappings { folder, rules };
                    made.write_library()?;
                    if made.rules.by_order {
                        made.write_bell()?;
                    }
                    return Ok(made);
                }
                Err(reason) => tried.push(format!("{} ({reason})", base.display())),
            }
        }
        Err(MappingsError::NoFolder { tried: tried.join(", ") })
    }

    /// The folder of copies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The library that a program has to preload.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.join(LIBRARY_NAME)
    }

    /// The library's settings as environment variables; an empty value means unset, and overrides a variable of this process.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let text = |value: Option<String>| OsString::from(value.unwrap_or_default());
        vec![
            ("NUMAPILOT_REPLICATE_FOLDER".into(), self.folder.clone().into()),
            ("NUMAPILOT_REPLICATE_PATTERN".into(), text(self.rules.pattern.clone())),
            ("NUMAPILOT_REPLICATE_SHARED".into(), text(self.rules.shared.clone())),
            ("NUMAPILOT_REPLICATE_NODE".into(), text(self.rules.node.map(|node| node.to_string()))),
            ("NUMAPILOT_REPLICATE_MIN_BYTES".into(), text(self.rules.bytes_min.map(|bytes| bytes.to_string()))),
            ("NUMAPILOT_REPLICATE_BY_ORDER".into(), text(self.rules.by_order.then(|| "1".to_owned()))),
        ]
    }

    /// Lets `command` and all that it starts use the copies. Libraries that it preloads already stay first.
    pub fn apply(&self, command: &mut Command) {
        Preload::of(self).apply(command);
    }

    /// What the processes did with their mappings so far.
    ///
    /// # Errors
    ///
    /// [`MappingsError::Io`]; no log at all is an empty summary: no process was pinned to a node, or none was started.
    pub fn summary(&self) -> Result<Summary, MappingsError> {
        let path = self.folder.join("log");
        match fs::read(&path) {
            Ok(bytes) => Ok(Summary::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Summary::default()),
            Err(source) => Err(MappingsError::Io { what: "reading", path, source }),
        }
    }

    fn write_library(&self) -> Result<(), MappingsError> {
        let path = self.library();
        let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o500).open(&path);
        let written = written.and_then(|mut file| file.write_all(LIBRARY));
        written.map_err(|source| MappingsError::Io { what: "writing", path, source })
    }
}

/// Preload library and environment of a program whose mappings may be replaced.
#[derive(Clone, Debug)]
pub struct Preload {
    library: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Preload {
    /// Variables of the run that `mappings` prepared.
    #[must_use]
    pub fn of(mappings: &Mappings) -> Preload {
        Preload { library: mappings.library(), environment: mappings.environment() }
    }

    /// Lets `command` and all that it starts use the copies. Libraries that it preloads already stay first.
    pub fn apply(&self, command: &mut Command) {
        let set =
            command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").map(|(_, value)| value.map(OsString::from));
        let mut preload = set.unwrap_or_else(|| env::var_os("LD_PRELOAD")).unwrap_or_default();
        if !preload.is_empty() {
            preload.push(":");
        }
        preload.push(&self.library);
        command.env("LD_PRELOAD", preload).envs(self.environment.iter().cloned());
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // Best effort: the next run removes what is left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Why files there cannot be copies in memory, some of them code.
fn check_file_system(base: &Path) -> Result<(), String> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let name = CString::new(base.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: plain numbers, for which zero is a value.
    let mut kind: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut flags: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero byte, and both results are of the types that are asked for.
    if unsafe { libc::statfs(name.as_ptr(), &raw mut kind) != 0 || libc::statvfs(name.as_ptr(), &raw mut flags) != 0 } {
        return Err(io::Error::last_os_error().to_string());
    }
    #[allow(clippy::unnecessary_cast)] // its type differs between C libraries
    if kind.f_type as u64 != TMPFS_MAGIC {
        return Err("no memory file system".to_owned());
    }
    if flags.f_flag & libc::ST_NOEXEC != 0 {
        return Err("mounted noexec".to_owned());
    }
    Ok(())
}

fn make_folder(base: &Path) -> Result<PathBuf, String> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let start = start_time(Pid::own()).unwrap_or_default();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let folder = base.join(format!("{FOLDER_PREFIX}{}-{start}-{serial}", process::id()));
    DirBuilder::new().mode(0o700).create(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

/// When the process began, in clock ticks since boot: distinguishes a process from a later one with the same number. `None`: there is no such process.
fn start_time(pid: Pid) -> Option<u64> {
    TaskStat::read(&Root::default(), pid, &mut Vec::new()).map(|stat| stat.start_ticks)
}

/// Folders of this user's runs that no longer run.
fn remove_left_over(base: &Path) {
    // SAFETY: geteuid has no conditions and cannot fail.
    let own_uid = unsafe { libc::geteuid() };
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(numbers) = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)) else { continue };
        let mut numbers = numbers.split('-').map(str::parse::<u64>);
        let (Some(Ok(pid)), Some(Ok(start))) = (numbers.next(), numbers.next()) else { continue };
        let is_alive = u32::try_from(pid).ok().map(Pid).and_then(start_time).is_some_and(|now| now == start);
        let is_own = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own_uid);
        if is_own && !is_alive {
            // Best effort, as before.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Summary {
    pub(crate) fn parse(log: &[u8]) -> Summary {
        let mut summary = Summary::default();
        for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match parse_line(line) {
                Some(event) => summary.events.push(event),
                None => summary.lines_lost += 1,
            }
        }
        summary
    }
}

/// pid, node, action, bytes, address, reason, path: as `np_remap_log` in `c/remap.c` writes them.
fn parse_line(line: &[u8]) -> Option<Event> {
    let mut fields = line.splitn(7, |byte| *byte == b'\t');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let pid = text()?.parse().ok()?;
    let node = text()?.parse::<i64>().ok()?;
    let action = match text()? {
        "replaced" => Action::Replaced,
        "left" => Action::Left,
        "collapsed" => Action::Collapsed,
        "given-back" => Action::GivenBack,
        _ => return None,
    };
    let bytes = text()?.parse().ok()?;
    let address = VirtAddr(u64::from_str_radix(text()?, 16).ok()?);
    let reason = match text()? {
        "-" => None,
        word => Some(Reason::from_word(word)?),
    };
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(fields.next()?));
    Some(Event { pid, node: u16::try_from(node).ok().map(NodeId), action, bytes, address, reason, path })
}

/// Mappings of one file that fared alike.
#[derive(Default)]
struct Group {
    mappings: u64,
    bytes: u64,
    pids: BTreeSet<Pid>,
}

impl fmt::Display for Summary {
    /// One line per file and outcome, the largest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        for event in &self.events {
            let group = groups.entry((event.action, &event.path, event.reason)).or_default();
            group.mappings += 1;
            group.bytes += event.bytes;
            group.pids.insert(event.pid);
        }
        if groups.is_empty() {
            writeln!(f, "mappings: none was replaced: no process was pinned to a node of a machine with several")?;
        }
        let mut rows: Vec<_> = groups.into_iter().collect();
        rows.sort_by_key(|((action, _, _), group)| (*action, Reverse(group.bytes)));
        for ((action, path, reason), group) in rows {
            let done = match action {
                Action::Replaced => "replaced",
                Action::Left => "left",
                Action::Collapsed => "collapsed",
                Action::GivenBack => "given back",
            };
            let mebibytes = group.bytes as f64 / f64::from(1 << 20);
            let processes = if group.pids.len() == 1 { "process" } else { "processes" };
            write!(
                f,
                "mappings: {done} {} of {}, {mebibytes:.1} MiB in {} {processes}",
                group.mappings,
                path.display(),
                group.pids.len()
            )?;
            match reason {
                Some(reason) => writeln!(f, ": {reason}")?,
                None => writeln!(f)?,
            }
        }
        if self.lines_lost > 0 {
            writeln!(f, "mappings: lines of the log that could not be read: {}", self.lines_lost)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_are_read_and_counted_where_they_cannot_be() {
        let log = b"12\t1\treplaced\t4096\t7f00\t-\t/lib/a b.so\n12\t-1\tcollapsed\t8192\t8f00\twritten\t/x\nnonsense\n13\t1\tleft\t1\tzz\t-\t/y\n";
        let summary = Summary::parse(log);
        assert_eq!(summary.lines_lost, 2);
        assert_eq!(summary.events[0].path, Path::new("/lib/a b.so"));
        assert_eq!((summary.events[0].node, summary.events[0].address), (Some(NodeId(1)), VirtAddr(0x7f00)));
        assert_eq!((summary.events[1].node, summary.events[1].reason), (None, Some(Reason::Written)));
        assert_eq!(
            summary.to_string(),
            "mappings: replaced 1 of /lib/a b.so, 0.0 MiB in 1 process\n\
             mappings: collapsed 1 of /x, 0.0 MiB in 1 process: written\n\
             mappings: lines of the log that could not be read: 2\n"
        );
    }

    #[test]
    fn folders_of_runs_that_were_killed_are_removed_and_others_stay() {
        let base = tempfile::tempdir().expect("folder");
        let own_start = start_time(Pid::own()).expect("own start time");
        let dead = base.path().join(format!("{FOLDER_PREFIX}{}-{}-0", process::id(), own_start + 1));
        let live = base.path().join(format!("{FOLDER_PREFIX}{}-{own_start}-0", process::id()));
        let other = base.path().join("numapilot-copies-of-mine");
        for folder in [&dead, &live, &other] {
            fs::create_dir(folder).expect("folder");
        }
        remove_left_over(base.path());
        assert_eq!((dead.exists(), live.exists(), other.exists()), (false, true, true));
    }
}
