//! Objects of a process while `numapilot record` records it: the content of its report if the recording ended now.
//!
//! The recorder's chunks are complete at any moment, so a recording in progress is read like one whose recorder was killed: its tables are made in a temporary
//! folder, and the recording is not changed. The recorder is found by its open files (`/proc/PID/fd`).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use numapilot_flows::FlowError;
use numapilot_flows::Process;
use numapilot_flows::Trace;
use numapilot_flows::finalise;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStatus;
use numapilot_text::units;
use numapilot_trace::chunk::RAW_FOLDER;
use numapilot_trace::engine::Engine;

use crate::figures::AreaFigures;
use crate::figures::MemoryView;

/// Maximum compressed size of a recording in bytes; larger ones take too long to read repeatedly.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum number of objects kept for the screen.
const AREAS_MAX: usize = 200;

/// Temporary folder for tables: one at a time, removed with the next one or on close.
#[derive(Clone, Debug, Default)]
pub struct Scratch(Arc<Mutex<Folder>>);

#[derive(Debug, Default)]
struct Folder {
    path: Option<PathBuf>,
    is_closed: bool,
}

impl Folder {
    fn clear(&mut self) {
        if let Some(folder) = self.path.take() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Scratch {
    fn lock(&self) -> MutexGuard<'_, Folder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty folder, accessible only to this user.
    fn fresh(&self) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut folder = self.lock();
        folder.clear();
        if folder.is_closed {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("numapilot-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        folder.path = Some(path.clone());
        Ok(path)
    }

    /// Removes the folder.
    fn clear(&self) {
        self.lock().clear();
    }

    /// Removes the folder, and creates no more.
    pub fn close(&self) {
        let mut folder = self.lock();
        folder.clear();
        folder.is_closed = true;
    }
}

/// The objects of a process, if one of these recorders records it; else `None`.
pub fn objects(pid: Pid, recorders: &[Pid], scratch: &Scratch) -> Option<MemoryView> {
    let traces: BTreeMap<PathBuf, Pid> =
        recorders.iter().filter_map(|recorder| Some((trace_of(*recorder)?, *recorder))).collect();
    let of_process = |(trace, recorder): (&PathBuf, &Pid)| view(trace, (pid, *recorder), scratch).transpose();
    traces.iter().find_map(of_process).map(|view| {
        scratch.clear();
        view.unwrap_or_else(|why| MemoryView {
            title: "objects of a recording".to_owned(),
            notes: vec![why],
            ..MemoryView::default()
        })
    })
}

/// Path of the trace that a process is writing.
fn trace_of(recorder: Pid) -> Option<PathBuf> {
    let files = fs::read_dir(format!("/proc/{recorder}/fd")).ok()?;
    let trace = files.flatten().find_map(|file| {
        let path = fs::read_link(file.path()).ok()?;
        let folder = path.parent()?;
        let is_raw = path.extension()? == "chunks" && folder.file_name()? == RAW_FOLDER;
        is_raw.then(|| folder.parent().map(Path::to_path_buf))?
    })?;
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    if mounts(&recorder.to_string()) == mounts("self") {
        return Some(trace);
    }
    // The path is one of the recorder's container: here it may lead to something else.
    Some(Path::new(&format!("/proc/{recorder}/root")).join(trace.strip_prefix("/").ok()?))
}

/// The number of a process in the records of its recorder, by both their numbers in namespaces from ours to their own. The tracker knows the process by its
/// own number, the kernel tells the recorder's.
fn number_in_records(process: &[u32], recorder: &[u32], by_kernel: bool) -> Option<Pid> {
    let number = if by_kernel { process.get(recorder.len().checked_sub(1)?) } else { process.last() };
    number.copied().map(Pid)
}

fn numbers(pid: Pid) -> Vec<u32> {
    let mut text = Vec::new();
    let status = TaskStatus::read(&Root::default(), pid, &mut text).unwrap_or_default();
    let numbers: Vec<u32> = status.numbers_by_namespace().collect();
    if numbers.is_empty() { vec![pid.0] } else { numbers }
}

/// Whether a process that runs `running` can be one that runs `recorded`: a process of another container may have its number. Paths are those of either's
/// container, and of files that are replaced meanwhile.
fn may_be(recorded: &str, running: Option<&Path>) -> bool {
    let name = |path: &str| path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default().to_owned();
    let Some(running) = running.map(|path| name(&path.to_string_lossy())) else { return true };
    recorded.is_empty() || name(recorded) == running
}

/// The recording's view of the process; `None`: the process is not in it.
fn view(trace: &Path, (pid, recorder): (Pid, Pid), scratch: &Scratch) -> Result<Option<MemoryView>, String> {
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let raw = trace.join(RAW_FOLDER);
    let cannot = |what: &str, why: &dyn ToString| {
        format!("The recording {name} cannot be read now: {what}: {}.", why.to_string())
    };
    let bytes = bytes_of(&raw).map_err(|error| cannot("its chunks", &error))?;
    if bytes > BYTES_MAX {
        let size = units::bytes(bytes);
        return Err(format!(
            "The recording {name} already has {size}, too much to read repeatedly: stop it, and read its report."
        ));
    }
    let folder = scratch.fresh().map_err(|error| cannot("a folder for its tables", &error))?;
    std::os::unix::fs::symlink(&raw, folder.join(RAW_FOLDER))
        .map_err(|error| cannot("a folder for its tables", &error))?;
    let read = finalise(&folder).and_then(|_| Trace::open(&folder));
    let read: Trace = read.map_err(|error: FlowError| cannot("its tables", &error))?;
    let engine = read.meta().engine.known();
    let by_kernel = matches!(engine, Some(Engine::Fault | Engine::Pmu));
    let Some(number) = number_in_records(&numbers(pid), &numbers(recorder), by_kernel) else { return Ok(None) };
    // The kernel's numbers are nobody else's; and what runs an emulated program is the emulator.
    let is_told = matches!(engine, Some(Engine::Instrument | Engine::Track));
    let running = if is_told { fs::read_link(format!("/proc/{pid}/exe")).ok() } else { None };
    let is_it = |process: &Process| process.pid == number && may_be(&process.exe, running.as_deref());
    Ok(if read.processes().iter().any(is_it) { of_trace(&read, number, &name) } else { None })
}

fn bytes_of(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    all: f64,
    known: f64,
    local: f64,
    live_bytes: u64,
}

impl Sum {
    /// Local access ratio; `None` where no home is known, and of page faults: first touches are local more often than not.
    fn local_share(&self, is_of_faults: bool) -> Option<f64> {
        (self.known > 0.0 && !is_of_faults).then(|| self.local / self.known)
    }
}

/// Objects of a process: the most accessed first, then the largest.
fn of_trace(trace: &Trace, pid: Pid, name: &str) -> Option<MemoryView> {
    let processes: BTreeSet<u32> =
        trace.processes().iter().filter(|process| process.pid == pid).map(|process| process.index.0).collect();
    if processes.is_empty() {
        return None;
    }
    let mut sums: BTreeMap<Option<u32>, Sum> = BTreeMap::new();
    for object in
        trace.objects().iter().filter(|object| processes.contains(&object.process.0) && object.death.is_none())
    {
        sums.entry(Some(object.site.0)).or_default().live_bytes += object.bytes;
    }
    let (mut all, mut samples) = (0.0, 0_u64);
    for access in trace.accesses() {
        let is_of_it = trace.thread(access.thread).is_some_and(|thread| processes.contains(&thread.process.0));
        if !is_of_it || !access.is_memory_access() {
            continue;
        }
        let weight = f64::from(access.weight);
        let site = access.object.and_then(|object| trace.object(object)).map(|object| object.site.0);
        let sum = sums.entry(site).or_default();
        (sum.all, all, samples) = (sum.all + weight, all + weight, samples + 1);
        if let Some(is_remote) = access.is_remote() {
            sum.known += weight;
            sum.local += if is_remote { 0.0 } else { weight };
        }
    }
    let name_of = |site: Option<u32>| match site.and_then(|site| trace.sites().get(site as usize)) {
        Some(site) if site.place().is_empty() => site.name.to_string(),
        Some(site) => format!("{} ({})", site.name, site.place()),
        None => "(no known object)".to_owned(),
    };
    let of = |(site, sum): (&Option<u32>, &Sum)| AreaFigures {
        name: name_of(*site),
        share: (all > 0.0).then(|| sum.all / all),
        local_share: sum.local_share(trace.holds_faults()),
        bytes: sum.live_bytes,
        bytes_by_node: Vec::new(),
    };
    let mut areas: Vec<AreaFigures> = sums.iter().map(of).collect();
    areas.sort_by(|a, b| {
        b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)).then(b.bytes.cmp(&a.bytes)).then(a.name.cmp(&b.name))
    });
    areas.truncate(AREAS_MAX);
    let engine = trace.meta().engine.clone();
    let by = if trace.holds_faults() { "by page faults" } else { "by memory accesses" };
    let lost = trace.losses().ring_full;
    let mut notes = Vec::new();
    if samples == 0 {
        notes.push(format!(
            "Engine {engine} has recorded no memory access of this process so far: the largest objects come first."
        ));
    }
    if lost > 0 {
        notes.push(format!("{} lost.", units::counted(lost, "record was", "records were")));
    }
    Some(MemoryView {
        title: format!("objects, {by}, of the recording {name} ({engine}, {samples} samples so far)"),
        areas,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_number_in_the_records() {
        // The process and its recorder here; a container's process, recorded from here and from inside; one of another container.
        for (process, recorder, by_tracker, by_kernel) in [
            (&[70][..], &[60][..], Some(70), Some(70)),
            (&[70, 7][..], &[60][..], Some(7), Some(70)),
            (&[70, 7][..], &[60, 6][..], Some(7), Some(7)),
            (&[70][..], &[60, 6][..], Some(70), None),
        ] {
            assert_eq!(number_in_records(process, recorder, false), by_tracker.map(Pid), "{process:?} {recorder:?}");
            assert_eq!(number_in_records(process, recorder, true), by_kernel.map(Pid), "{process:?} {recorder:?}");
        }
        assert_eq!(numbers(Pid(u32::MAX)), [u32::MAX], "it has gone");
        assert_eq!(numbers(Pid::own()).first(), Some(&std::process::id()));
        let running = Some(Path::new("/srv/app (deleted)"));
        assert!(may_be("/overlay/srv/app", running) && may_be("", running) && may_be("/srv/app", None));
        assert!(!may_be("/usr/sbin/nginx", running));
    }

    #[test]
    fn first_touches_say_nothing_of_locality() {
        let sum = Sum { all: 10.0, known: 8.0, local: 6.0, live_bytes: 0 };
        assert_eq!((sum.local_share(false), sum.local_share(true)), (Some(0.75), None));
        assert_eq!(Sum::default().local_share(false), None);
    }
}
