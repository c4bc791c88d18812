//! The filter of accesses, in C's form.

use numapilot_flows::{Filter, ObjectKind, SiteId, Trace};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};

use crate::ffi::*;

/// Conditions on accesses: every one that is set must hold. Start with `NUMAPILOT_FILTER_ALL`, which every access passes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FilterRow {
    /// Set to sizeof(struct numapilot_filter).
    pub type_size: usize,
    /// Earliest program time, in nanoseconds.
    pub from_ns: u64,
    /// Program time in nanoseconds before which accesses pass; 0: no limit.
    pub to_ns: u64,
    /// Bits of enum numapilot_condition: which of the fields below are conditions.
    pub conditions: u32,
    /// Number of the thread that made the access.
    pub thread: u32,
    /// Number of the process of that thread.
    pub process: u32,
    /// Number of the object instance.
    pub object: u32,
    /// Number of the site of the object.
    pub site: u32,
    /// Kind of the object: one of enum numapilot_kind; NUMAPILOT_KIND_UNKNOWN selects the accesses without an object.
    pub kind: u32,
    /// Node of the CPU that made the access.
    pub node: u16,
    /// Home node of the page.
    pub home: u16,
    /// 1: stores only; 0: loads only.
    pub is_write: u8,
    /// 1: remote only; 0: local only. Accesses to a page of unknown home pass neither.
    pub is_remote: u8,
    /// 0.
    pub reserved: [u8; 2],
}

/// Which fields of a filter are conditions.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Condition {
    /// Compare `thread`.
    Thread = 1,
    /// Compare `process`.
    Process = 2,
    /// Compare `object`.
    Object = 4,
    /// Compare `site`.
    Site = 8,
    /// Compare `kind`.
    Kind = 16,
    /// Compare `node`.
    Node = 32,
    /// Compare `home`.
    Home = 64,
    /// Compare `is_write`.
    Write = 128,
    /// Compare `is_remote`.
    Remote = 256,
}

/// Kinds of objects.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Kind {
    /// A data symbol of a binary.
    Static = 0,
    /// A heap block; each allocation is an object.
    Heap = 1,
    /// An anonymous mapping.
    Anonymous = 2,
    /// Memory of an allocator that no block of the program covers.
    Allocator = 3,
    /// A mapped file.
    File = 4,
    /// A section of a binary: code, PLT, GOT, read-only data.
    Section = 5,
    /// A thread's stack.
    Stack = 6,
    /// Shared memory.
    Shared = 7,
    /// No object is known.
    Unknown = 8,
    /// A block of a pool that the program carries itself.
    Pool = 9,
}

versioned!(FilterRow);

impl FilterRow {
    const ALL: FilterRow = FilterRow {
        type_size: size_of::<FilterRow>(),
        from_ns: 0,
        to_ns: 0,
        conditions: 0,
        thread: 0,
        process: 0,
        object: 0,
        site: 0,
        kind: 0,
        node: 0,
        home: 0,
        is_write: 0,
        is_remote: 0,
        reserved: [0; 2],
    };
}

/// Converts C's filter; null passes every access. A number that the trace does not have is an error, because it is a mistake of the caller.
///
/// # Safety
/// `filter` is null or points to a struct whose `type_size` is set.
pub(crate) unsafe fn filter_of(trace: &Trace, filter: *const FilterRow) -> Result<Filter, Failure> {
    if filter.is_null() {
        return Ok(Filter::default());
    }
    // SAFETY: by this function's contract.
    let row = unsafe { take(filter, FilterRow::ALL, "filter")? };
    let known = 2 * Condition::Remote as u32 - 1;
    if row.conditions & !known != 0 || row.reserved != [0; 2] {
        return Err(failure(
            NUMAPILOT_BAD_ARGUMENT,
            "the filter sets conditions that this version of libnumapilot does not know",
        ));
    }
    let is = |condition: Condition| row.conditions & condition as u32 != 0;
    let bounded = |condition: Condition, what: &str, number: u32, count: usize| match is(condition) {
        true if number as usize >= count => {
            Err(failure(NUMAPILOT_NOT_FOUND, format!("filter: the trace has no {what} {number}")))
        }
        true => Ok(Some(number)),
        false => Ok(None),
    };
    let to = if row.to_ns == 0 { u64::MAX } else { row.to_ns };
    if row.from_ns >= to {
        return Err(failure(NUMAPILOT_BAD_ARGUMENT, "filter: from_ns must be less than to_ns"));
    }
    let kind = bounded(Condition::Kind, "kind", row.kind, ObjectKind::ALL.len())?;
    Ok(Filter {
        time: (row.from_ns > 0 || row.to_ns > 0).then_some(TimeNs(row.from_ns)..TimeNs(to)),
        node: is(Condition::Node).then_some(NodeId(row.node)),
        home: is(Condition::Home).then_some(NodeId(row.home)),
        thread: bounded(Condition::Thread, "thread", row.thread, trace.threads().len())?.map(ThreadIndex),
        process: bounded(Condition::Process, "process", row.process, trace.processes().len())?.map(ProcessIndex),
        object: bounded(Condition::Object, "object", row.object, trace.objects().len())?.map(ObjectId),
        site: bounded(Condition::Site, "site", row.site, trace.sites().len())?.map(SiteId),
        kind: kind.map(|kind| ObjectKind::ALL[kind as usize]),
        is_write: is(Condition::Write).then_some(row.is_write != 0),
        is_remote: is(Condition::Remote).then_some(row.is_remote != 0),
    })
}
