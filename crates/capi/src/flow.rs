//! Flows: accesses in order of program time, returned in batches: all of them, those of a thread (Thread Event Flow), of an object (Object Event
//! Flow), or those that pass a filter.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use numapilot_flows::{AccessRef, Cursor};

use crate::ffi::*;
use crate::filter::{FilterRow, filter_of};
use crate::handles::{Held, Table};
use crate::rows::{NUMAPILOT_NO_NODE, NUMAPILOT_NONE};
use crate::trace::{OpenTrace, TraceHandle, bad_handle, opened};

/// Most flows that may be open at once.
const FLOWS: usize = 1 << 16;
static OPEN: Table<Flow, FLOWS> = Table::new(0x66);

/// An open flow. The handle is a number: it may be copied, and must be closed once. `{0}` is no flow. One thread at a time may advance a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHandle {
    /// Opaque: only the library interprets it.
    pub handle: u64,
}

/// One sampled access, 64 bytes. Later versions may only use the reserved bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AccessRow {
    /// Program time in nanoseconds.
    pub time_ns: u64,
    /// Virtual address accessed.
    pub address: u64,
    /// Memory accesses that all samples of its cache line represent: lines are sampled as a whole.
    pub cluster: f64,
    /// Its row in the trace; rows are in order of time.
    pub row: u32,
    /// Thread that made the access.
    pub thread: u32,
    /// Object that was live at that address then, or NUMAPILOT_NONE.
    pub object: u32,
    /// Number of the code address; 0: unknown.
    pub location: u32,
    /// Number of the call stack; 0: unknown.
    pub stack: u32,
    /// Number of memory accesses that the sample represents.
    pub weight: u32,
    /// Latency in cycles as the hardware measured it, or NUMAPILOT_NONE.
    pub latency_cycles: u32,
    /// CPU that executed it, or NUMAPILOT_NONE.
    pub cpu: u32,
    /// Node of that CPU, or NUMAPILOT_NO_NODE.
    pub node: u16,
    /// Home node of the page at that moment, or NUMAPILOT_NO_NODE.
    pub home: u16,
    /// Bits of enum numapilot_access_flag.
    pub flags: u8,
    /// Level that served it: 0 unknown, 1 L1, 2 L2, 3 L3, 4 memory, 5 another core's cache, 6 line-fill buffer.
    pub level: u8,
    /// 0.
    pub reserved: [u8; 2],
}

/// Properties of an access, as bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum AccessFlag {
    /// It is a store or a read-modify-write.
    Write = 1,
    /// It is an atomic operation.
    Atomic = 2,
    /// It is part of a ranged operation, such as memcpy.
    Range = 4,
    /// It is remote: node and home differ. If neither this bit nor `Local` is set, node or home is unknown.
    Remote = 8,
    /// It is local: node and home are the same.
    Local = 16,
}

/// A flow and its position. Only the thread that set `is_busy` may access `next`.
pub(crate) struct Flow {
    trace: Held<OpenTrace>,
    is_busy: AtomicBool,
    next: UnsafeCell<Cursor>,
}

// SAFETY: `next` is only touched by the thread that has set `is_busy`; everything else is read only.
unsafe impl Sync for Flow {}

/// Opens the flow of all accesses that pass the filter (null: all), in order of program time. With the condition `object` alone it is that
/// object's Object Event Flow, with `thread` alone that thread's Thread Event Flow.
///
/// # Safety
/// `filter` is null or points to a struct whose `type_size` is set; `flow` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_flow_open(
    trace: TraceHandle,
    filter: *const FilterRow,
    flow: *mut FlowHandle,
) -> c_int {
    guarded(|| {
        // SAFETY: by this function's contract.
        unsafe { put(flow, FlowHandle::default(), "flow")? };
        let trace = opened(trace)?;
        // SAFETY: as above.
        let cursor = Cursor::new(unsafe { filter_of(&trace.trace, filter)? });
        let opened = Flow { trace, is_busy: AtomicBool::new(false), next: UnsafeCell::new(cursor) };
        let Ok(handle) = OPEN.open(opened) else {
            return Err(failure(NUMAPILOT_TOO_MANY, format!("{FLOWS} flows are open; close some")));
        };
        // SAFETY: as above.
        unsafe { put(flow, FlowHandle { handle }, "flow") }
    })
}

/// Writes the next accesses of the flow, up to `capacity`, to `rows`, and their number to `*count`; 0 at the end of the flow. `row_size` is
/// sizeof(struct numapilot_access). Most programs use `numapilot_foreach` instead.
///
/// # Safety
/// `rows` is null or good for `capacity` rows; `count` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_flow_next(
    flow: FlowHandle,
    rows: *mut AccessRow,
    capacity: usize,
    row_size: usize,
    count: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: by this function's contract.
        unsafe { put(count, 0, "count")? };
        if row_size != size_of::<AccessRow>() || rows.is_null() || !rows.is_aligned() {
            let why = format!(
                "rows must be aligned and not null, and row_size sizeof(struct numapilot_access), {}",
                size_of::<AccessRow>()
            );
            return Err(failure(NUMAPILOT_BAD_ARGUMENT, why));
        }
        let found = open_flow(flow)?;
        let exclusive = Exclusive::of(&found)?;
        // SAFETY: `exclusive` ensures that no other thread accesses it.
        let next = unsafe { &mut *found.next.get() };
        let mut written = 0;
        if capacity > 0 {
            next.walk(&found.trace.trace, |access| {
                // SAFETY: `written` stays below `capacity`, for which `rows` is good.
                unsafe { rows.add(written).write(AccessRow::from(&access)) };
                written += 1;
                written < capacity
            });
        }
        drop(exclusive);
        // SAFETY: as above.
        unsafe { put(count, written, "count") }
    })
}

/// Goes back to the beginning of the flow.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_flow_rewind(flow: FlowHandle) -> c_int {
    guarded(|| {
        let found = open_flow(flow)?;
        let _exclusive = Exclusive::of(&found)?;
        // SAFETY: `_exclusive` ensures that no other thread accesses it.
        unsafe { (*found.next.get()).rewind() };
        Ok(())
    })
}

/// Closes a flow. Its handle is invalid afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_flow_close(flow: FlowHandle) -> c_int {
    guarded(|| OPEN.close(flow.handle).map_err(|error| bad_handle("flow", error)))
}

fn open_flow(flow: FlowHandle) -> Result<Held<Flow>, Failure> {
    OPEN.get(flow.handle).map_err(|error| bad_handle("flow", error))
}

/// Exclusive use of a flow's position, until it is dropped.
struct Exclusive<'a>(&'a AtomicBool);

impl Exclusive<'_> {
    fn of(flow: &Flow) -> Result<Exclusive<'_>, Failure> {
        match flow.is_busy.swap(true, Ordering::Acquire) {
            true => Err(failure(NUMAPILOT_BUSY, "another thread is using this flow; open one for each thread")),
            false => Ok(Exclusive(&flow.is_busy)),
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl From<&AccessRef> for AccessRow {
    #[inline]
    fn from(access: &AccessRef) -> AccessRow {
        let flag = |set: bool, flag: AccessFlag| if set { flag as u8 } else { 0 };
        let remote = access.is_remote();
        AccessRow {
            time_ns: access.time.0,
            address: access.address.0,
            cluster: access.cluster,
            row: access.row,
            thread: access.thread.0,
            object: access.object.map_or(NUMAPILOT_NONE, |object| object.0),
            location: access.location.0,
            stack: access.stack.0,
            weight: access.weight,
            latency_cycles: access.latency_cycles.unwrap_or(NUMAPILOT_NONE),
            cpu: access.cpu.map_or(NUMAPILOT_NONE, |cpu| cpu.0),
            node: access.node.map_or(NUMAPILOT_NO_NODE, |node| node.0),
            home: access.home.map_or(NUMAPILOT_NO_NODE, |home| home.0),
            flags: flag(access.is_write, AccessFlag::Write)
                | flag(access.is_atomic, AccessFlag::Atomic)
                | flag(access.is_range, AccessFlag::Range)
                | flag(remote == Some(true), AccessFlag::Remote)
                | flag(remote == Some(false), AccessFlag::Local),
            level: access.level as u8,
            reserved: [0; 2],
        }
    }
}
