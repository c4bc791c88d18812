//! Accesses in bulk, through the Arrow C stream interface (<https://arrow.apache.org/docs/format/CStreamInterface.html>): pyarrow, Polars, DuckDB, nanoarrow
//! and others take them without a copy of their own.
//!
//! Batches are made when they are asked for. A stream holds its trace: closing the trace leaves it working. One thread at a time, as the interface says.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use numapilot_flows::{AccessRef, Filter};

use crate::border::*;
use crate::filter::{FilterRow, filter_of};
use crate::handles::Held;
use crate::text::c_string;
use crate::trace::{OpenTrace, TraceHandle, opened};

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 16;
/// `ARROW_FLAG_NULLABLE`.
const NULLABLE: i64 = 2;

/// `struct ArrowSchema` of the C data interface.
#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of the C data interface.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream` of the C stream interface.
#[repr(C)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// How the values of a column are read, which says its Arrow type too.
#[derive(Clone, Copy)]
enum Column {
    U64(fn(&AccessRef) -> u64),
    U32(fn(&AccessRef) -> Option<u32>),
    U16(fn(&AccessRef) -> Option<u16>),
    U8(fn(&AccessRef) -> u8),
    Bool(fn(&AccessRef) -> Option<bool>),
}

/// Names and meanings are those of the table `accesses` (docs/trace-format.md), and `is_remote`.
const COLUMNS: [(&CStr, bool, Column); 16] = [
    (c"time_ns", false, Column::U64(|access| access.time.0)),
    (c"thread", false, Column::U32(|access| Some(access.thread.0))),
    (c"address", false, Column::U64(|access| access.address.0)),
    (c"object", true, Column::U32(|access| access.object.map(|object| object.0))),
    (c"cpu", true, Column::U32(|access| access.cpu.map(|cpu| cpu.0))),
    (c"node", true, Column::U16(|access| access.node.map(|node| node.0))),
    (c"home", true, Column::U16(|access| access.home.map(|home| home.0))),
    (c"is_remote", true, Column::Bool(AccessRef::is_remote)),
    (c"is_write", false, Column::Bool(|access| Some(access.is_write))),
    (c"is_atomic", false, Column::Bool(|access| Some(access.is_atomic))),
    (c"is_range", false, Column::Bool(|access| Some(access.is_range))),
    (c"level", false, Column::U8(|access| access.level as u8)),
    (c"latency_cycles", true, Column::U32(|access| access.latency_cycles)),
    (c"location", false, Column::U32(|access| Some(access.location.0))),
    (c"stack", false, Column::U32(|access| Some(access.stack.0))),
    (c"weight", false, Column::U32(|access| Some(access.weight))),
];

struct Stream {
    trace: Held<OpenTrace>,
    filter: Filter,
    next_row: u32,
    error: CString,
}

/// Exports the accesses that pass the filter (null: all) as an Arrow stream. The caller releases it, as the interface says.
///
/// # Safety
/// `filter` is null or points to a struct whose `type_size` is set; `stream` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_export_accesses(
    trace: TraceHandle,
    filter: *const FilterRow,
    stream: *mut ArrowArrayStream,
) -> c_int {
    guarded(|| {
        let trace = opened(trace)?;
        // SAFETY: by this function's contract.
        let filter = unsafe { filter_of(&trace.trace, filter)? };
        let state = Stream { trace, filter, next_row: 0, error: CString::default() };
        let made = ArrowArrayStream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release_stream),
            private_data: Box::into_raw(Box::new(state)).cast(),
        };
        if stream.is_null() {
            // SAFETY: made just above.
            drop(unsafe { Box::from_raw(made.private_data.cast::<Stream>()) });
            return Err(failure(NUMAPILOT_BAD_ARGUMENT, "stream is null"));
        }
        // SAFETY: not null, so good for a write.
        unsafe { ptr::write_unaligned(stream, made) };
        Ok(())
    })
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the interface calls this once, with a stream that we made.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
        (*stream).private_data = ptr::null_mut();
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: a stream that we made and that is not released.
    unsafe { (*(*stream).private_data.cast::<Stream>()).error.as_ptr() }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: as above; `out` is good for a write by the interface.
    unsafe {
        answer(&mut *(*stream).private_data.cast::<Stream>(), || {
            let children = COLUMNS.iter().map(|&(name, is_nullable, column)| {
                Box::into_raw(Box::new(schema(
                    column.format(),
                    name,
                    if is_nullable { NULLABLE } else { 0 },
                    Vec::new(),
                )))
            });
            ptr::write_unaligned(out, schema(c"+s", c"", 0, children.collect()));
        })
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as above.
    unsafe {
        let state = &mut *(*stream).private_data.cast::<Stream>();
        let state_again = ptr::from_mut(state);
        answer(state, || ptr::write_unaligned(out, (*state_again).batch()))
    }
}

/// Runs what a callback does; a panic becomes an error number and a message.
fn answer(stream: &mut Stream, work: impl FnOnce()) -> c_int {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(()) => 0,
        Err(_) => {
            stream.error = c_string("mistake in libnumapilot, please report it");
            libc::EIO
        }
    }
}

impl Stream {
    /// The next batch; a released array at the end.
    fn batch(&mut self) -> ArrowArray {
        let trace = &self.trace.trace;
        let mut rows: Vec<AccessRef> = Vec::new();
        while rows.len() < BATCH_ROWS {
            let Some(access) = trace.access(self.next_row) else { break };
            self.next_row += 1;
            if self.filter.admits(trace, &access) {
                rows.push(access);
            }
        }
        if rows.is_empty() {
            return array(0, 0, Vec::new(), Vec::new(), None);
        }
        let children = COLUMNS.iter().map(|(_, _, column)| Box::into_raw(Box::new(column.array(&rows))));
        array(rows.len(), 0, vec![None], children.collect(), Some(release_array))
    }
}

impl Column {
    fn format(self) -> &'static CStr {
        match self {
            Column::U64(_) => c"L",
            Column::U32(_) => c"I",
            Column::U16(_) => c"S",
            Column::U8(_) => c"C",
            Column::Bool(_) => c"b",
        }
    }

    fn array(self, rows: &[AccessRef]) -> ArrowArray {
        match self {
            Column::U64(of) => numbers(rows, |access| Some(of(access)), u64::to_ne_bytes),
            Column::U32(of) => numbers(rows, of, u32::to_ne_bytes),
            Column::U16(of) => numbers(rows, of, u16::to_ne_bytes),
            Column::U8(of) => numbers(rows, |access| Some(of(access)), u8::to_ne_bytes),
            Column::Bool(of) => {
                let (valid, nulls) = bits(rows.iter().map(|access| of(access).is_some()));
                let (values, _) = bits(rows.iter().map(|access| of(access).unwrap_or(false)));
                let valid = (nulls > 0).then_some(valid);
                array(rows.len(), nulls, vec![valid, Some(values)], Vec::new(), Some(release_array))
            }
        }
    }
}

fn numbers<T: Default, const BYTES: usize>(
    rows: &[AccessRef],
    of: impl Fn(&AccessRef) -> Option<T>,
    bytes: impl Fn(T) -> [u8; BYTES],
) -> ArrowArray {
    let (valid, nulls) = bits(rows.iter().map(|access| of(access).is_some()));
    let mut values = Vec::with_capacity(rows.len() * BYTES);
    for access in rows {
        values.extend_from_slice(&bytes(of(access).unwrap_or_default()));
    }
    array(rows.len(), nulls, vec![(nulls > 0).then_some(valid), Some(values)], Vec::new(), Some(release_array))
}

/// Bits, the least significant first, and how many are not set.
fn bits(values: impl ExactSizeIterator<Item = bool>) -> (Vec<u8>, usize) {
    let mut bytes = vec![0u8; values.len().div_ceil(8)];
    let mut unset = 0;
    for (at, value) in values.enumerate() {
        bytes[at / 8] |= u8::from(value) << (at % 8);
        unset += usize::from(!value);
    }
    (bytes, unset)
}

/// What an array or a schema owns; freed by its `release`.
struct Owned<T> {
    /// Rounded up to whole 64-byte blocks' worth of words, so that they are aligned for every type here.
    _buffers: Vec<Option<Vec<u64>>>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut T>,
}

fn array(
    length: usize,
    nulls: usize,
    buffers: Vec<Option<Vec<u8>>>,
    children: Vec<*mut ArrowArray>,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
) -> ArrowArray {
    let buffers: Vec<Option<Vec<u64>>> = buffers.into_iter().map(|buffer| buffer.map(|bytes| words(&bytes))).collect();
    let pointers =
        buffers.iter().map(|buffer| buffer.as_ref().map_or(ptr::null(), |words| words.as_ptr().cast())).collect();
    let mut owned = Box::new(Owned { _buffers: buffers, pointers, children });
    ArrowArray {
        length: length as i64,
        null_count: nulls as i64,
        offset: 0,
        n_buffers: owned.pointers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release,
        // A released array owns nothing: nobody will call for it.
        private_data: if release.is_some() { Box::into_raw(owned).cast() } else { ptr::null_mut() },
    }
}

/// Bytes at an address that every type bears.
fn words(bytes: &[u8]) -> Vec<u64> {
    let chunks = bytes.chunks(8).map(|chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    // Never empty: a buffer's pointer must not dangle.
    chunks.chain([0]).collect()
}

fn schema(format: &'static CStr, name: &'static CStr, flags: i64, children: Vec<*mut ArrowSchema>) -> ArrowSchema {
    let mut owned = Box::new(Owned { _buffers: Vec::new(), pointers: Vec::new(), children });
    ArrowSchema {
        format: format.as_ptr(),
        name: name.as_ptr(),
        metadata: ptr::null(),
        flags,
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the interface calls this once, with an array that we made; children that were moved out have no `release` any more.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<Owned<ArrowArray>>());
        for &child in &owned.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*array).release = None;
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as for arrays.
    unsafe {
        let owned = Box::from_raw((*schema).private_data.cast::<Owned<ArrowSchema>>());
        for &child in &owned.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*schema).release = None;
    }
}
