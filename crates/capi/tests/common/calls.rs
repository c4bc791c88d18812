//! Drives the C API with any calls in any order: bytes choose how a small trace is damaged first, then which functions are called with which handles
//! (open, closed, of the wrong kind, made up), numbers, struct sizes and null pointers. Nothing may crash, hang, or answer with a code that is not
//! documented or means a mistake inside. Shared by the libFuzzer target `capi` in `fuzz/` and by `sequences.rs`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock};

use numapilot_capi::*;
use numapilot_fixtures::{Kind, Size, write};

/// The library takes structs of up to so many bytes.
const STRUCT_BYTES: usize = 4096;
const BATCH: usize = 64;
/// Calls in one run.
const CALLS: usize = 200;

/// The bytes that decide; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, end: usize) -> usize {
        (usize::from(self.byte()) | usize::from(self.byte()) << 8) % end.max(1)
    }

    /// Mostly small, sometimes at the edges.
    fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=199 => u64::from(byte % 32),
            200..=219 => u64::from(u32::MAX) - u64::from(self.byte() % 2),
            220..=229 => u64::MAX - u64::from(self.byte() % 2),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    fn is_rare(&mut self) -> bool {
        self.byte() % 16 == 15
    }
}

/// A sound trace as files in memory, and a folder to lay them out in.
struct Stage {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

fn stage() -> &'static Mutex<Stage> {
    static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();
    STAGE.get_or_init(|| {
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_path_buf() } else { std::env::temp_dir() };
        let folder = base.join(format!("numapilot-calls-{}.numatrace", std::process::id()));
        let size = Size { accesses: 300, objects: 24, threads: 5, nodes: 4, seed: 1 };
        write(Kind::Losses, &size, &folder).expect("the trace is written");
        let entries =
            std::fs::read_dir(&folder).expect("the folder is read").flatten().filter(|entry| entry.path().is_file());
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("the file is read"))
        };
        Mutex::new(Stage { files: entries.map(file).collect(), folder })
    })
}

/// Removes the files; for tests, which leave nothing behind.
#[allow(dead_code)]
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(&stage().lock().unwrap_or_else(std::sync::PoisonError::into_inner).folder);
}

impl Stage {
    /// Lays the trace out, damaged as the bytes say: not at all, or one file of it, with or without a checksum that fits again.
    fn lay_out(&self, input: &mut Input<'_>) {
        let kind = input.byte() % 4;
        let names: Vec<&String> = self.files.keys().collect();
        let name = names[input.below(names.len())].clone();
        let mut files = self.files.clone();
        if kind > 0 {
            let bytes = files.get_mut(&name).expect("a file of the trace");
            for _ in 0..1 + input.byte() % 4 {
                damage(bytes, input);
            }
            if kind > 1 && name.ends_with(".parquet") {
                let bytes = bytes.clone();
                let meta = files.get_mut("meta.json").expect("it has one");
                *meta = with_checksum(meta, name.trim_end_matches(".parquet"), &bytes);
            }
        }
        for (name, bytes) in &files {
            std::fs::write(self.folder.join(name), bytes).expect("the file is written");
        }
    }
}

fn damage(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    if bytes.is_empty() {
        return;
    }
    let at = (input.below(1 << 16) | input.below(16) << 16) % bytes.len();
    match input.byte() % 4 {
        0 => bytes[at] ^= 1 << (input.byte() % 8),
        1 => bytes[at] = input.byte(),
        2 => bytes.truncate(at),
        _ => bytes.insert(at, input.byte()),
    }
}

fn with_checksum(meta: &[u8], table: &str, bytes: &[u8]) -> Vec<u8> {
    let mut meta: serde_json::Value = serde_json::from_slice(meta).expect("ours");
    meta["tables"][table]["bytes"] = bytes.len().into();
    meta["tables"][table]["crc32"] = crc32fast::hash(bytes).into();
    serde_json::to_vec(&meta).expect("JSON")
}

/// A struct of unknown size, as the library sees it: its size, then anything.
#[repr(C, align(16))]
struct Anything([u8; STRUCT_BYTES]);

impl Anything {
    fn new(size: usize, input: &mut Input<'_>) -> Anything {
        let told = match input.byte() {
            0..=199 => size,
            200..=219 => input.below(STRUCT_BYTES + 64),
            220..=239 => size + 8,
            _ => input.number() as usize,
        };
        let fill = if input.is_rare() { input.byte() } else { 0 };
        let mut bytes = [fill; STRUCT_BYTES];
        bytes[..8].copy_from_slice(&told.to_ne_bytes());
        Anything(bytes)
    }

    fn pointer<T>(&mut self, input: &mut Input<'_>) -> *mut T {
        if input.is_rare() { null_mut() } else { self.0.as_mut_ptr().cast() }
    }
}

/// What was handed out so far, and whether it may still be open.
#[derive(Default)]
struct Handles {
    traces: Vec<u64>,
    flows: Vec<u64>,
}

impl Handles {
    fn any(own: &[u64], other: &[u64], input: &mut Input<'_>) -> u64 {
        match input.byte() {
            0..=219 if !own.is_empty() => own[input.below(own.len())],
            220..=229 if !other.is_empty() => other[input.below(other.len())],
            230..=239 if !own.is_empty() => own[input.below(own.len())] ^ 1 << (input.byte() % 64),
            _ => input.number(),
        }
    }

    fn trace(&self, input: &mut Input<'_>) -> TraceHandle {
        TraceHandle { handle: Handles::any(&self.traces, &self.flows, input) }
    }

    fn flow(&self, input: &mut Input<'_>) -> FlowHandle {
        FlowHandle { handle: Handles::any(&self.flows, &self.traces, input) }
    }
}

/// Every code is a documented one, none means a mistake inside, and every failure leaves words.
fn check(code: c_int) -> bool {
    // SAFETY: both functions return texts that end with a zero byte.
    let (message, name) = unsafe { (CStr::from_ptr(numapilot_message()), CStr::from_ptr(numapilot_code_name(code))) };
    assert!((NUMAPILOT_OK..NUMAPILOT_INTERNAL).contains(&code), "{name:?}: {message:?}");
    assert!(code == NUMAPILOT_OK || !message.is_empty(), "{name:?} without words");
    code == NUMAPILOT_OK
}

/// Runs the calls that `bytes` tell of.
pub fn calls(bytes: &[u8]) {
    let stage = stage().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut input = Input(bytes);
    stage.lay_out(&mut input);
    let path = CString::new(stage.folder.to_str().expect("UTF-8")).expect("no zero byte");
    let mut handles = Handles::default();
    open(&path, &mut handles, &mut input);
    for _ in 0..CALLS {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 32 {
            0 => open(&path, &mut handles, &mut input),
            1..=4 => close(&handles, &mut input),
            5..=10 => rows(&handles, &mut input),
            11..=14 => code(&handles, &mut input),
            15..=18 => open_flow(&mut handles, &mut input),
            19..=26 => next(&handles, &mut input),
            _ => figures(&handles, &mut input),
        }
    }
    for &handle in &handles.flows {
        numapilot_flow_close(FlowHandle { handle });
    }
    for &handle in &handles.traces {
        numapilot_trace_close(TraceHandle { handle });
    }
}

fn open(path: &CStr, handles: &mut Handles, input: &mut Input<'_>) {
    let mut trace = TraceHandle { handle: 7 };
    let elsewhere = c"/no/such/trace";
    let path: *const c_char = match input.byte() {
        0..=239 => path.as_ptr(),
        240..=247 => elsewhere.as_ptr(),
        _ => null(),
    };
    // SAFETY: a text or null; room for a handle or null.
    let is_open =
        check(unsafe { numapilot_trace_open(path, if input.is_rare() { null_mut() } else { &raw mut trace }) });
    match is_open {
        true => handles.traces.push(trace.handle),
        false => assert!([0, 7].contains(&trace.handle), "a handle beside an error"),
    }
}

fn close(handles: &Handles, input: &mut Input<'_>) {
    match input.byte() % 3 {
        0 => check(numapilot_trace_close(handles.trace(input))),
        1 => check(numapilot_flow_close(handles.flow(input))),
        _ => check(numapilot_flow_rewind(handles.flow(input))),
    };
}

fn rows(handles: &Handles, input: &mut Input<'_>) {
    let (trace, number, which) = (handles.trace(input), input.number() as u32, input.byte() % 5);
    let sizes = [
        size_of::<TraceInfo>(),
        size_of::<ObjectRow>(),
        size_of::<SiteRow>(),
        size_of::<ThreadRow>(),
        size_of::<ProcessRow>(),
    ];
    let mut row = Anything::new(sizes[usize::from(which)], input);
    // SAFETY: null, or the largest struct that the library takes, with its size in front.
    let is_there = check(unsafe {
        match which {
            0 => numapilot_trace_info(trace, row.pointer(input)),
            1 => numapilot_object_at(trace, number, row.pointer(input)),
            2 => numapilot_site_at(trace, number, row.pointer(input)),
            3 => numapilot_thread_at(trace, number, row.pointer(input)),
            _ => numapilot_process_at(trace, number, row.pointer(input)),
        }
    });
    let told = usize::from_ne_bytes(row.0[..8].try_into().expect("eight bytes"));
    if is_there && which == 1 && told >= size_of::<ObjectRow>() {
        // SAFETY: the library has filled it, texts and all, and the trace is open.
        let texts = unsafe {
            let row = &*row.0.as_ptr().cast::<ObjectRow>();
            [row.name, row.function, row.file, row.module, row.kind_name]
                .map(|text| CStr::from_ptr(text).to_bytes().len())
        };
        assert!(texts[4] > 0, "kinds have names");
    }
}

fn code(handles: &Handles, input: &mut Input<'_>) {
    let (trace, number) = (handles.trace(input), input.number() as u32);
    if input.byte().is_multiple_of(2) {
        let (mut row, depth) = (Anything::new(size_of::<FrameRow>(), input), input.number() as usize);
        // SAFETY: as in `rows`.
        check(unsafe { numapilot_frame_at(trace, number, depth, row.pointer(input)) });
        return;
    }
    let mut locations = [0u32; BATCH];
    let (room, mut count) = (input.below(BATCH + 1), 0usize);
    let locations = if input.is_rare() { null_mut() } else { locations.as_mut_ptr() };
    // SAFETY: null, or room for so many numbers; null, or room for a count.
    check(unsafe {
        numapilot_stack_at(trace, number, locations, room, if input.is_rare() { null_mut() } else { &raw mut count })
    });
}

/// A filter, or none.
fn filter(input: &mut Input<'_>) -> Option<Anything> {
    if input.byte().is_multiple_of(4) {
        return None;
    }
    let mut row = Anything::new(size_of::<FilterRow>(), input);
    let fields =
        [(8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 4), (48, 2), (50, 2), (52, 1), (53, 1)];
    for (at, bytes) in fields {
        if input.byte().is_multiple_of(4) {
            let value =
                if at == 24 { u64::from(input.byte()) | u64::from(input.byte() & 1) << 8 } else { input.number() };
            row.0[at..at + bytes].copy_from_slice(&value.to_ne_bytes()[..bytes]);
        }
    }
    Some(row)
}

fn pointer(filter: &Option<Anything>) -> *const FilterRow {
    filter.as_ref().map_or(null(), |row| row.0.as_ptr().cast())
}

fn open_flow(handles: &mut Handles, input: &mut Input<'_>) {
    let (trace, filter, mut flow) = (handles.trace(input), filter(input), FlowHandle { handle: 7 });
    // SAFETY: null, or a struct with its size in front; null, or room for a handle.
    let is_open = check(unsafe {
        numapilot_flow_open(trace, pointer(&filter), if input.is_rare() { null_mut() } else { &raw mut flow })
    });
    if is_open {
        handles.flows.push(flow.handle);
    }
}

fn next(handles: &Handles, input: &mut Input<'_>) {
    let flow = handles.flow(input);
    let mut rows = [AccessRow::default(); BATCH];
    let (room, mut count) = (input.below(BATCH + 1), usize::MAX);
    let size = if input.is_rare() { input.number() as usize } else { size_of::<AccessRow>() };
    let target = if input.is_rare() { null_mut() } else { rows.as_mut_ptr() };
    // SAFETY: null, or room for so many rows; null, or room for a count.
    let is_read = check(unsafe {
        numapilot_flow_next(flow, target, room, size, if input.is_rare() { null_mut() } else { &raw mut count })
    });
    if is_read {
        assert!(count <= room, "{count} rows where there was room for {room}");
        assert!(rows[..count].is_sorted_by_key(|row| (row.time_ns, row.row)), "flows are in order of time");
    }
}

/// The Arrow C stream interface as its documents have it, not as the library's sources do.
#[repr(C)]
struct ForeignStream {
    get_schema: Option<unsafe extern "C" fn(*mut ForeignStream, *mut ForeignArray) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ForeignStream, *mut ForeignArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ForeignStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ForeignStream)>,
    private_data: *mut c_void,
}

/// Room for an ArrowSchema (9 words, release is the eighth) or an ArrowArray (10 words, release is the ninth).
type ForeignArray = [usize; 10];

fn figures(handles: &Handles, input: &mut Input<'_>) {
    let (trace, filter) = (handles.trace(input), filter(input));
    if input.byte().is_multiple_of(2) {
        let mut row = Anything::new(size_of::<StatisticsRow>(), input);
        // SAFETY: as in `rows` and `open_flow`.
        check(unsafe { numapilot_statistics_of(trace, pointer(&filter), row.pointer(input)) });
        return;
    }
    let mut stream = ForeignStream {
        get_schema: None,
        get_next: None,
        get_last_error: None,
        release: None,
        private_data: null_mut(),
    };
    let target = if input.is_rare() { null_mut() } else { &raw mut stream };
    // SAFETY: null, or room for a stream, whose layout the interface fixes.
    let is_made = check(unsafe { numapilot_export_accesses(trace, pointer(&filter), target.cast()) });
    if !is_made || target.is_null() {
        return;
    }
    let (schema_first, batches) = (input.byte().is_multiple_of(2), input.byte() % 3);
    // SAFETY: the interface's rules: callbacks of a stream that is not released; what they hand out is released once.
    unsafe {
        let mut place: ForeignArray = [0; 10];
        if schema_first {
            assert_eq!(stream.get_schema.expect("a callback")(target, &raw mut place), 0);
            release(&mut place, 7);
        }
        for _ in 0..batches {
            place = [0; 10];
            assert_eq!(stream.get_next.expect("a callback")(target, &raw mut place), 0);
            release(&mut place, 8);
        }
        stream.release.expect("a callback")(target);
    }
    assert!(stream.release.is_none(), "a released stream says so");
}

/// Calls the release callback in this word, if there is one.
///
/// # Safety
/// `place` holds a struct of the interface that was handed out and not released yet.
unsafe fn release(place: &mut ForeignArray, word: usize) {
    if place[word] != 0 {
        // SAFETY: the word is a function pointer by the interface; the struct was handed out just now.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut ForeignArray)>(place[word])(place) };
    }
}
