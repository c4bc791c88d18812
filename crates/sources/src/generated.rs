//! Code that the recorded processes generated: finds what their runtimes wrote for `perf` (`/tmp/perf-PID.map`, `jit-PID.dump`), reads it and puts it into
//! the trace, because these files go, or belong to another process, before the trace is read.
//!
//! Ids are used again and `/tmp` is everybody's: a file counts if it was written since its process (or the recording) began, and belongs to the
//! process's user, to this one or to root. `perf` demands the latter, too (tools/perf/util/symbol.c).

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use numapilot_host::{Pid, Root, TaskStat, innermost_number, time_since};
use numapilot_kernel::maps;
use numapilot_sampled::SharedWriter;
use numapilot_symbols::{GeneratedFile, read_jitdump, read_perf_map};
use numapilot_trace::chunk::{ChunkError, ChunkWriter, GeneratedCode, GeneratedFunction};

use crate::clock::{ClockLine, HostInstant};
use crate::namespaces::Foreign;

/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// All files of a recording together: they are held in memory.
const ALL_BYTES_MAX: u64 = 1 << 30;
/// Times of files are those of the kernel's last tick, and those of processes are rounded.
const CLOCK_SLACK: Duration = Duration::from_secs(2);
/// Where runtimes put dumps that go through `perf inject`, below the home folder.
const DUMPS: &str = ".debug/jit";
/// Problems that are told one by one.
const TOLD_MAX: usize = 3;

/// What was found of generated code.
#[derive(Debug, Default)]
struct Found {
    codes: Vec<GeneratedCode>,
    problems: Vec<String>,
    /// Length of the files that were read.
    bytes: u64,
    /// When the recording began, on the clock of its order stamps; `None` where these are no time.
    start: Option<HostInstant>,
}

/// A process of the recording, as far as it is still there.
struct Process {
    /// Its id in the records.
    pid: Pid,
    /// Its id in the namespace in which the recorder runs.
    here: Pid,
    /// Its id where it lives, by which its runtime names its files.
    own_pid: Pid,
    /// When it began; `None`: it has ended.
    began: Option<SystemTime>,
    uid: Option<u32>,
    /// Files that were looked at, by device and number: several paths lead to one.
    seen: BTreeSet<(u64, u64)>,
}

/// Adds to a trace what its processes generated, in a recording that began so long ago, at `start` by its order stamps (`None`: these are no time). Returns
/// what is to be told.
///
/// # Errors
/// The system refuses to write.
pub(crate) fn add(
    writer: &SharedWriter,
    wall_time: Duration,
    start: Option<HostInstant>,
    foreign: &Foreign,
) -> Result<Vec<String>, ChunkError> {
    let began = SystemTime::now().checked_sub(wall_time).unwrap_or(SystemTime::UNIX_EPOCH);
    let pids = writer.lock().pids().clone();
    let found = collect(&pids, foreign, (began, start));
    found.write(&mut writer.lock())
}

/// Looks for what these processes wrote. The recording's start is given by both clocks, as in `add`.
fn collect(pids: &BTreeSet<Pid>, foreign: &Foreign, (began, start): (SystemTime, Option<HostInstant>)) -> Found {
    let mut found = Found { start, ..Found::default() };
    for &pid in pids {
        let here = foreign.get(&pid).copied().unwrap_or(Some(pid));
        let process = here.map(|here| Process { pid, ..Process::look(here) });
        // Of a number of another namespace, a file in our folders says nothing; and another process may have ours by now.
        let Some(mut process) = process.filter(|process| here == Some(pid) || process.own_pid == pid) else {
            found.refuse(pid);
            continue;
        };
        // A dump has lines, a map has none.
        let (dumps, maps) = (process.dumps(), process.maps());
        let _ = dumps.iter().any(|path| found.take(&mut process, path, began, read_dump))
            || maps.iter().any(|path| found.take(&mut process, path, began, |bytes| Ok(read_perf_map(bytes))));
    }
    found
}

impl Found {
    /// Writes it to the trace. Returns what is to be told.
    ///
    /// # Errors
    /// The system refuses to write.
    fn write(mut self, writer: &mut ChunkWriter) -> Result<Vec<String>, ChunkError> {
        for code in &self.codes {
            match writer.generated(code) {
                Err(ChunkError::TooLarge { .. }) => {
                    self.problems.push(format!("{} names too many source files, and was left out", code.source));
                }
                result => result?,
            }
        }
        let more = self.problems.len().saturating_sub(TOLD_MAX);
        self.problems.truncate(TOLD_MAX);
        if more > 0 {
            self.problems.push(format!("{more} more files of generated code had problems"));
        }
        Ok(self.problems)
    }

    /// Takes a file, if it is there and this process's. Returns whether it has functions.
    fn take(
        &mut self,
        process: &mut Process,
        path: &Path,
        began: SystemTime,
        read: impl Fn(&[u8]) -> Result<GeneratedFile, &'static str>,
    ) -> bool {
        // A file that belongs elsewhere, or goes in this moment, is not there.
        let Ok(Some(file)) = open(path) else { return false };
        if !process.seen.insert((file.1.dev(), file.1.ino())) {
            return false;
        }
        let content = process.accept(&file, began).and_then(|()| self.contents(&file.0)).and_then(|bytes| read(&bytes));
        match content {
            Ok(mut content) => {
                self.stamp(path, &mut content);
                if content.damaged > 0 {
                    let damaged = content.damaged;
                    self.problems.push(format!("{}: {damaged} of its entries could not be read", path.display()));
                }
                let is_empty = content.functions.is_empty();
                if !is_empty {
                    self.codes.push(code(process.pid, path, content));
                }
                !is_empty
            }
            Err(why) => {
                self.problems.push(format!(
                    "{} was not used, so code that process {} generated has no names: {why}",
                    path.display(),
                    process.pid
                ));
                false
            }
        }
    }
}

impl Found {
    /// Makes order stamps of a dump's times. Where they are of a clock that is not known, the functions have none.
    fn stamp(&mut self, path: &Path, content: &mut GeneratedFile) {
        let latest = content.functions.iter().filter_map(|function| function.since).max();
        let (Some(latest), counts_ticks) = (latest, content.counts_ticks) else { return };
        let line = self.start.map(|from| ClockLine { from, to: HostInstant::now() });
        let is_known = line.is_some_and(|line| line.order_of(latest, counts_ticks).is_some());
        if line.is_some() && !is_known {
            self.problems.push(format!(
                "{}: its times are not those of CLOCK_MONOTONIC, so of functions that were at one address one after the other all are named",
                path.display()
            ));
        }
        let line = line.filter(|_| is_known);
        for function in &mut content.functions {
            function.since = line.zip(function.since).and_then(|(line, time)| line.order_of(time, counts_ticks));
        }
    }

    /// Tells of files that may be those of a process of another namespace of which nothing else is known.
    fn refuse(&mut self, pid: Pid) {
        for name in [format!("perf-{pid}.map"), format!("jit-{pid}.dump")] {
            let path = Path::new("/tmp").join(name);
            if fs::symlink_metadata(&path).is_ok() {
                self.problems.push(format!(
                    "{} was not used: process {pid} has that number in a namespace of its own (a container) and was not found here, so whose file this is \
                     cannot be known",
                    path.display()
                ));
            }
        }
    }

    fn contents(&mut self, file: &File) -> Result<Vec<u8>, &'static str> {
        let left = ALL_BYTES_MAX.saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        let read =
            file.take(left.min(FILE_BYTES_MAX) + 1).read_to_end(&mut bytes).map_err(|_| "it cannot be read")? as u64;
        if read > left {
            return Err("with those of other processes it is larger than 1 GiB");
        }
        self.bytes += read;
        Ok(bytes)
    }
}

impl Process {
    fn look(pid: Pid) -> Process {
        let mut text = Vec::new();
        let stat = TaskStat::read(&Root::default(), pid, &mut text).filter(|stat| !stat.is_zombie());
        let began = stat.and_then(|stat| start_of(stat.start_ticks));
        let alive = began.is_some();
        let own_number = alive.then(|| innermost_number(Path::new(&format!("/proc/{pid}")))).flatten();
        let own_pid = own_number.map_or(pid, Pid);
        let uid = alive.then(|| fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid())).flatten();
        Process { pid, here: pid, own_pid, began, uid, seen: BTreeSet::new() }
    }

    fn maps(&self) -> Vec<PathBuf> {
        self.places().into_iter().map(|folder| folder.join(format!("perf-{}.map", self.own_pid))).collect()
    }

    fn dumps(&self) -> Vec<PathBuf> {
        let name = format!("jit-{}.dump", self.own_pid);
        let mut paths = self.mapped(&name);
        paths.extend(self.places().into_iter().map(|folder| folder.join(&name)));
        let home = std::env::var_os("HOME").filter(|_| self.shares_ids());
        let folders = home.and_then(|home| fs::read_dir(Path::new(&home).join(DUMPS)).ok());
        let folders = folders.into_iter().flatten().flatten();
        paths.extend(folders.map(|folder| folder.path().join(&name)));
        paths
    }

    /// Whether this process's own id says here what it says there.
    fn shares_ids(&self) -> bool {
        self.own_pid == self.here
    }

    /// Folders into which runtimes write, as the process sees them; as this one sees them, where it has ended.
    fn places(&self) -> Vec<PathBuf> {
        let seen = PathBuf::from(format!("/proc/{}", self.here));
        let is_open = self.began.is_some() && fs::read_link(seen.join("root")).is_ok();
        match (is_open, self.shares_ids()) {
            (true, _) => vec![seen.join("root/tmp"), seen.join("cwd")],
            (false, true) => std::iter::once(PathBuf::from("/tmp")).chain(std::env::current_dir()).collect(),
            (false, false) => Vec::new(),
        }
    }

    /// Where the process has mapped a file of this name: that is how a runtime tells `perf` of its dump.
    fn mapped(&self, name: &str) -> Vec<PathBuf> {
        let maps = match self.began {
            Some(_) => {
                let mut text = Vec::new();
                maps::read(self.here, "maps", &mut text).map_or_else(|_| Vec::new(), |()| text)
            }
            None => Vec::new(),
        };
        let text = String::from_utf8_lossy(&maps);
        let paths = text.lines().filter_map(|line| Some(&line[line.find('/')?..]));
        let of_name = paths.filter(|path| Path::new(path).file_name().is_some_and(|last| last == name));
        let seen = |path: &str| PathBuf::from(format!("/proc/{}/root{path}", self.here));
        let found: BTreeSet<PathBuf> = of_name.map(seen).collect();
        found.into_iter().collect()
    }

    /// Whether a file is this process's.
    fn accept(&self, (_, facts): &(File, Metadata), began: SystemTime) -> Result<(), &'static str> {
        if !facts.is_file() {
            return Err("it is no regular file");
        }
        // SAFETY: geteuid has no conditions.
        let own = unsafe { libc::geteuid() };
        if ![Some(0), Some(own), self.uid].contains(&Some(facts.uid())) {
            return Err("it belongs to another user");
        }
        let written = facts.modified().map_err(|_| "its time is not known")?;
        let since = self.began.map_or(began, |started| started.min(began));
        if written + CLOCK_SLACK < since {
            return Err("it is older than that process");
        }
        if facts.len() > FILE_BYTES_MAX { Err("it is larger than 512 MiB") } else { Ok(()) }
    }
}

/// Opens a file without waiting, whatever it is; `None` if there is none.
fn open(path: &Path) -> std::io::Result<Option<(File, Metadata)>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        result => {
            let file = result?;
            let facts = file.metadata()?;
            Ok(Some((file, facts)))
        }
    }
}

fn read_dump(bytes: &[u8]) -> Result<GeneratedFile, &'static str> {
    read_jitdump(bytes).ok_or("it is no dump of version 1")
}

fn code(pid: Pid, path: &Path, content: GeneratedFile) -> GeneratedCode {
    let mut files: Vec<String> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let mut number = |file: &str| {
        *numbers.entry(file.to_owned()).or_insert_with(|| {
            files.push(file.to_owned());
            (files.len() - 1) as u32
        })
    };
    let mut functions = Vec::with_capacity(content.functions.len());
    for function in content.functions {
        let lines = function.lines.iter().map(|line| (line.address.0, number(&line.file), line.line)).collect();
        let (address, bytes, name) = (function.address.0, function.bytes, function.name);
        functions.push(GeneratedFunction { address, bytes, name, lines, since: function.since });
    }
    GeneratedCode { pid, source: path.to_string_lossy().into_owned(), files, functions }
}

/// The time of a moment that is given in clock ticks since the boot.
fn start_of(ticks: u64) -> Option<SystemTime> {
    SystemTime::now().checked_sub(time_since(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: Pid, uid: Option<u32>) -> Process {
        Process { pid, here: pid, own_pid: pid, began: None, uid, seen: BTreeSet::new() }
    }

    fn take(path: &Path, began: SystemTime) -> Found {
        let mut found = Found::default();
        let has_functions = found.take(&mut process(Pid(7), None), path, began, |bytes| Ok(read_perf_map(bytes)));
        assert_eq!(has_functions, !found.codes.is_empty());
        found
    }

    #[test]
    fn a_map_is_read_with_what_it_could_not_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-7.map");
        fs::write(&path, "1000 10 f\nnonsense\n").expect("written");
        let found = take(&path, SystemTime::now());
        let name = "f".to_owned();
        let function = GeneratedFunction { address: 0x1000, bytes: 16, name, lines: Vec::new(), since: None };
        let source = path.to_string_lossy().into_owned();
        assert_eq!(found.codes, [GeneratedCode { pid: Pid(7), source, files: Vec::new(), functions: vec![function] }]);
        assert_eq!(found.problems, [format!("{}: 1 of its entries could not be read", path.display())]);
    }

    /// A dump as agents of `perf` write it, of functions of 16 bytes at one address, each from such a time on.
    fn dump(times: &[u64]) -> GeneratedFile {
        let function = |&since: &u64| numapilot_symbols::GeneratedFunction {
            address: numapilot_host::VirtAddr(0x1000),
            bytes: 16,
            since: Some(since),
            ..numapilot_symbols::GeneratedFunction::default()
        };
        GeneratedFile { functions: times.iter().map(function).collect(), ..GeneratedFile::default() }
    }

    #[test]
    fn times_of_a_dump_become_order_stamps_where_their_clock_is_known() {
        let start = HostInstant::now();
        std::thread::sleep(Duration::from_millis(2));
        let stamped = |start: Option<HostInstant>, times: &[u64]| {
            let (mut found, mut content) = (Found { start, ..Found::default() }, dump(times));
            found.stamp(Path::new("jit-7.dump"), &mut content);
            (content.functions.iter().map(|function| function.since).collect::<Vec<_>>(), found.problems)
        };
        let known = [start.monotonic_ns, start.monotonic_ns + 1_000_000];
        let (orders, problems) = stamped(Some(start), &known);
        assert!(orders[0] == Some(start.order) && orders[1] > orders[0], "{orders:?}");
        assert!(problems.is_empty(), "{problems:?}");
        // Stamps of a sequence are no time.
        assert_eq!(stamped(None, &known), (vec![None; 2], Vec::new()));
        // Nanoseconds since 1970.
        let (orders, problems) = stamped(Some(start), &[known[0], 1_800_000_000_000_000_000]);
        assert_eq!(orders, [None::<u64>; 2]);
        assert!(problems[0].starts_with("jit-7.dump: its times are not those of CLOCK_MONOTONIC"), "{problems:?}");
    }

    #[test]
    fn files_of_others_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-7.map");
        assert!(take(&path, SystemTime::now()).problems.is_empty(), "none is no problem");
        fs::write(&path, "1000 10 f\n").expect("written");
        let later = SystemTime::now() + Duration::from_secs(60);
        let found = take(&path, later);
        assert!(found.codes.is_empty() && found.problems[0].ends_with("it is older than that process"), "{found:?}");
        // Links lead to files of others, and pipes to nowhere.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(take(&link, SystemTime::now()).codes.is_empty());
        let found = take(folder.path(), SystemTime::now());
        assert!(found.codes.is_empty() && found.problems[0].ends_with("it is no regular file"), "{found:?}");
    }

    #[test]
    fn a_living_process_is_known_by_its_own_id_and_start() {
        let own = Process::look(Pid::own());
        let began = own.began.expect("it lives");
        assert!(began <= SystemTime::now() + CLOCK_SLACK);
        assert!(own.places().iter().any(|place| place.ends_with("root/tmp")));
        assert_eq!(Process::look(Pid(u32::MAX)).began, None);
    }

    #[test]
    fn a_number_of_another_namespace_is_nobodys_here() {
        // No kernel gives a process such a number.
        let pid = Pid(5_000_000 + std::process::id());
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        fs::write(&path, "1000 10 f\n").expect("written");
        let pids = BTreeSet::from([pid]);
        let collected = |foreign: Foreign| collect(&pids, &foreign, (SystemTime::now(), None));
        let (ours, hidden) = (collected(Foreign::new()), collected(Foreign::from([(pid, None)])));
        // What has the number that it had is this test, which has another number of its own.
        let gone = collected(Foreign::from([(pid, Some(Pid::own()))]));
        fs::remove_file(&path).expect("removed");
        assert_eq!((ours.codes.len(), &ours.problems), (1, &Vec::new()));
        for found in [hidden, gone] {
            assert!(found.codes.is_empty() && found.problems[0].contains("cannot be known"), "{found:?}");
        }
    }
}
