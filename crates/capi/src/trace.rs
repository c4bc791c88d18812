//! Traces: opening, closing, and facts about a whole trace.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use numapilot_flows::{Evidence, FlowError, ObjectKind, Trace};
use numapilot_trace::name::find;

use crate::ffi::*;
use crate::handles::{BadHandle, Held, Table};
use crate::text::{Finished, TextAt, Texts};

/// Most traces that may be open at once.
const TRACES: usize = 1024;
static OPEN: Table<OpenTrace, TRACES> = Table::new(0x74);

/// An open trace. The handle is a number: it may be copied, and must be closed once. `{0}` is no trace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceHandle {
    /// Opaque: only the library interprets it.
    pub handle: u64,
}

/// Facts about a whole trace. Its texts are valid until the trace is closed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TraceInfo {
    /// Set to sizeof(struct numapilot_info).
    pub type_size: usize,
    /// Number of sampled accesses.
    pub accesses: u64,
    /// Number of object instances.
    pub objects: u64,
    /// Number of sites: the objects of a site come from one place in the source.
    pub sites: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of processes.
    pub processes: u64,
    /// Number of call stacks; stack 0 is "unknown".
    pub stacks: u64,
    /// Number of resolved code addresses; address 0 is "unknown".
    pub locations: u64,
    /// Program time of the recording, in nanoseconds.
    pub duration_ns: u64,
    /// One cache line in this many was simulated; 1: all.
    pub line_sampling: u64,
    /// Number of records that were lost, each damaged or torn chunk counting as one: totals are lower bounds if this is not 0.
    pub lost: u64,
    /// 1: the machine, page homes and program time are simulated, not measured.
    pub is_simulated: u32,
    /// 1: its accesses are page faults, whose rates do not measure memory traffic.
    pub holds_faults: u32,
    /// Engine that recorded it, such as "instrument".
    pub engine: *const c_char,
    /// Command line that was recorded.
    pub command: *const c_char,
    /// Name of the machine.
    pub machine: *const c_char,
    /// 1: the recorder was killed, so what came later is missing, and totals are lower bounds.
    pub is_interrupted: u32,
    /// What its samples are evidence of. 0: memory accesses; 1: page faults; 2: neither. If it is not 0, no figure about accesses is known.
    pub evidence: u32,
}

/// Texts of a site.
#[derive(Clone, Copy, Default)]
pub(crate) struct SiteTexts {
    pub name: TextAt,
    pub function: TextAt,
    pub file: TextAt,
    pub module: TextAt,
}

/// Module of a location; function and file of each of its frames.
type LocationTexts = (TextAt, Box<[(TextAt, TextAt)]>);

pub(crate) struct OpenTrace {
    pub trace: Trace,
    pub texts: Finished,
    pub sites: Vec<SiteTexts>,
    /// Name and start function.
    pub threads: Vec<(TextAt, TextAt)>,
    /// Executable and command line.
    pub processes: Vec<(TextAt, TextAt)>,
    /// Module of each location; function and file of each of its frames.
    pub locations: Vec<LocationTexts>,
    pub kinds: [TextAt; ObjectKind::ALL.len()],
    whole: [TextAt; 3],
}

/// Opens a trace: the folder NAME.numatrace that `numapilot record` wrote; the extension may be omitted. If its recorder was killed, this
/// first writes the tables into the folder.
///
/// Returns 0, or NUMAPILOT_IO, NUMAPILOT_BAD_TRACE, NUMAPILOT_BUSY (it is still being recorded), NUMAPILOT_BAD_ARGUMENT or NUMAPILOT_TOO_MANY;
/// `*trace` is `{0}` then.
///
/// # Safety
/// `path` is null or a text that ends with a zero byte; `trace` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_trace_open(path: *const c_char, trace: *mut TraceHandle) -> c_int {
    guarded(|| {
        // SAFETY: by this function's contract.
        unsafe { put(trace, TraceHandle::default(), "trace")? };
        if path.is_null() {
            return Err(failure(NUMAPILOT_BAD_ARGUMENT, "path is null"));
        }
        // SAFETY: not null, so a text.
        let path = unsafe { CStr::from_ptr(path) };
        let path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes()));
        let opened = OpenTrace::new(Trace::open(path).map_err(|error| cannot_open(path, &error))?);
        let Ok(handle) = OPEN.open(opened) else {
            return Err(failure(NUMAPILOT_TOO_MANY, format!("{TRACES} traces are open; close some")));
        };
        // SAFETY: as above.
        unsafe { put(trace, TraceHandle { handle }, "trace") }
    })
}

/// Closes a trace. Its texts become invalid; open flows and streams keep the data that they need, and still work.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_trace_close(trace: TraceHandle) -> c_int {
    guarded(|| OPEN.close(trace.handle).map_err(|error| bad_handle("trace", error)))
}

/// Gets facts about the whole trace.
///
/// # Safety
/// `info` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_trace_info(trace: TraceHandle, info: *mut TraceInfo) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        // SAFETY: by this function's contract.
        unsafe { fill(info, open.info(), "info") }
    })
}

versioned!(TraceInfo, grown by is_interrupted);

/// The trace of a handle, which is not freed while the result exists.
pub(crate) fn opened(trace: TraceHandle) -> Result<Held<OpenTrace>, Failure> {
    OPEN.get(trace.handle).map_err(|error| bad_handle("trace", error))
}

pub(crate) fn bad_handle(what: &str, error: BadHandle) -> Failure {
    let why = match error {
        BadHandle::Unknown => "is invalid: this library never returned it",
        BadHandle::Closed => "is already closed",
    };
    failure(NUMAPILOT_BAD_HANDLE, format!("the {what} handle {why}"))
}

fn cannot_open(path: &Path, error: &FlowError) -> Failure {
    let code = match error {
        FlowError::StillRecording { .. } | FlowError::MayBeRecording { .. } => NUMAPILOT_BUSY,
        FlowError::Worker(_) => NUMAPILOT_INTERNAL,
        _ if !find(path).exists() || error.is_io() => NUMAPILOT_IO,
        _ => NUMAPILOT_BAD_TRACE,
    };
    failure(code, error.to_string())
}

impl OpenTrace {
    fn new(trace: Trace) -> OpenTrace {
        let mut texts = Texts::default();
        let mut pair = |a: &str, b: &str| (texts.add(a), texts.add(b));
        let threads = trace.threads().iter().map(|thread| pair(&thread.name, &thread.start_function)).collect();
        let processes =
            trace.processes().iter().map(|process| pair(&process.exe, &process.arguments.join(" "))).collect();
        let sites = trace.sites().iter().map(|site| SiteTexts {
            name: texts.add(&site.name),
            function: texts.add(&site.function),
            file: texts.add(&site.file),
            module: texts.add(&site.module),
        });
        let sites = sites.collect();
        let mut locations = Vec::with_capacity(trace.locations().len());
        for location in trace.locations() {
            let module = texts.add(&location.module);
            let frames = location.frames.iter().map(|frame| (texts.add(&frame.function), texts.add(&frame.file)));
            locations.push((module, frames.collect()));
        }
        let kinds = ObjectKind::ALL.map(|kind| texts.add(kind.word()));
        let meta = trace.meta();
        let whole = [meta.engine.name().to_owned(), meta.command.join(" "), meta.machine_name.clone()]
            .map(|text| texts.add(&text));
        OpenTrace { texts: texts.finish(), sites, threads, processes, locations, kinds, whole, trace }
    }

    fn info(&self) -> TraceInfo {
        let trace = &self.trace;
        let losses = trace.losses();
        let [engine, command, machine] = self.whole.map(|at| self.texts.pointer(at));
        TraceInfo {
            type_size: 0,
            accesses: trace.accesses().len() as u64,
            objects: trace.objects().len() as u64,
            sites: trace.sites().len() as u64,
            threads: trace.threads().len() as u64,
            processes: trace.processes().len() as u64,
            stacks: trace.stack_count() as u64,
            locations: trace.locations().len() as u64,
            duration_ns: trace.meta().duration_ns,
            line_sampling: trace.line_sampling(),
            lost: losses.records().saturating_add(losses.damaged_chunks).saturating_add(losses.torn_chunks),
            is_simulated: u32::from(trace.meta().simulated),
            holds_faults: u32::from(trace.holds_faults()),
            engine,
            command,
            machine,
            is_interrupted: u32::from(trace.meta().interrupted || trace.was_rebuilt()),
            evidence: match trace.evidence() {
                Evidence::Accesses => 0,
                Evidence::PageFaults => 1,
                Evidence::Other => 2,
            },
        }
    }
}
