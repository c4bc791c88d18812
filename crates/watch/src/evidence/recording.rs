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
use numapilot_flows::Trace;
use numapilot_flows::finalise;
use numapilot_host::Pid;
use numapilot_report::units;
use numapilot_trace::chunk::RAW_FOLDER;

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
    let traces: BTreeSet<PathBuf> = recorders.iter().filter_map(|recorder| trace_of(*recorder)).collect();
    traces.iter().find_map(|trace| view(trace, pid, scratch).transpose()).map(|view| {
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
    files.flatten().find_map(|file| {
        let path = fs::read_link(file.path()).ok()?;
        let folder = path.parent()?;
        let is_raw = path.extension()? == "chunks" && folder.file_name()? == RAW_FOLDER;
        is_raw.then(|| folder.parent().map(Path::to_path_buf))?
    })
}

/// The recording's view of the process; `None`: the process is not in it.
fn view(trace: &Path, pid: Pid, scratch: &Scratch) -> Result<Option<MemoryView>, String> {
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
    Ok(of_trace(&read, pid, &name))
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
    fn first_touches_say_nothing_of_locality() {
        let sum = Sum { all: 10.0, known: 8.0, local: 6.0, live_bytes: 0 };
        assert_eq!((sum.local_share(false), sum.local_share(true)), (Some(0.75), None));
        assert_eq!(Sum::default().local_share(false), None);
    }
}
