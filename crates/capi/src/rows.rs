//! Objects, sites, threads and processes, by number.

use std::ffi::{c_char, c_int};

use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex};

use crate::ffi::*;
use crate::trace::{OpenTrace, SiteTexts, TraceHandle, opened};

/// The time of an event that did not occur: the object or thread lived until the end of the recording.
pub const NUMAPILOT_NEVER: u64 = u64::MAX;
/// An object, thread, process or CPU that is not known.
pub const NUMAPILOT_NONE: u32 = u32::MAX;
/// A node that is not known.
pub const NUMAPILOT_NO_NODE: u16 = u16::MAX;

/// An object instance, with what it shares with others of its site.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectRow {
    /// Set to sizeof(struct numapilot_object).
    pub type_size: usize,
    /// Its number, from 0.
    pub object: u32,
    /// Number of its site.
    pub site: u32,
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Program time of its birth in nanoseconds; 0: it existed when the recording began.
    pub birth_ns: u64,
    /// Program time of its death, or NUMAPILOT_NEVER.
    pub death_ns: u64,
    /// Thread that allocated it, or NUMAPILOT_NONE.
    pub thread: u32,
    /// CPU of that thread then, or NUMAPILOT_NONE.
    pub cpu: u32,
    /// Process in which it was born.
    pub process: u32,
    /// Call stack of the allocation; 0: unknown.
    pub stack: u32,
    /// Node of that CPU, or NUMAPILOT_NO_NODE.
    pub node: u16,
    /// One of enum numapilot_kind.
    pub kind: u16,
    /// Line in `file`, or 0.
    pub line: u32,
    /// Name of its variable, symbol, file or section.
    pub name: *const c_char,
    /// Function that allocates it, or empty.
    pub function: *const c_char,
    /// Source file that allocates or declares it, or empty.
    pub file: *const c_char,
    /// Binary of that code or symbol, or empty.
    pub module: *const c_char,
    /// Its kind as a word, such as "heap".
    pub kind_name: *const c_char,
    /// Number of sampled accesses to it.
    pub accesses: u64,
}

/// A site: what the objects from one place in the source share.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SiteRow {
    /// Set to sizeof(struct numapilot_site).
    pub type_size: usize,
    /// Its number, from 0.
    pub site: u32,
    /// One of enum numapilot_kind.
    pub kind: u16,
    /// 0.
    pub reserved: u16,
    /// As in numapilot_object.
    pub name: *const c_char,
    /// As in numapilot_object.
    pub function: *const c_char,
    /// As in numapilot_object.
    pub file: *const c_char,
    /// As in numapilot_object.
    pub module: *const c_char,
    /// As in numapilot_object.
    pub kind_name: *const c_char,
    /// As in numapilot_object.
    pub line: u32,
    /// 0.
    pub reserved_too: u32,
}

/// A thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadRow {
    /// Set to sizeof(struct numapilot_thread).
    pub type_size: usize,
    /// Its number, in order of creation.
    pub thread: u32,
    /// Number of its process.
    pub process: u32,
    /// The kernel's id of it.
    pub tid: u32,
    /// Thread that created it, or NUMAPILOT_NONE.
    pub parent: u32,
    /// CPU that it started on, or NUMAPILOT_NONE.
    pub cpu: u32,
    /// Its stack as an object, or NUMAPILOT_NONE.
    pub stack_object: u32,
    /// Node of that CPU, or NUMAPILOT_NO_NODE.
    pub node: u16,
    /// 1: the engine counted the totals below; 0: it does not count, and they are 0.
    pub has_totals: u16,
    /// 0.
    pub reserved: u32,
    /// Program time of its start in nanoseconds.
    pub start_ns: u64,
    /// Program time of its end, or NUMAPILOT_NEVER.
    pub end_ns: u64,
    /// Its name, or empty.
    pub name: *const c_char,
    /// Its start function, or empty.
    pub start_function: *const c_char,
    /// Number of all its memory accesses, whether sampled or not.
    pub memory_accesses: u64,
    /// How many of these are writes.
    pub memory_writes: u64,
    /// Number of its sampled accesses.
    pub accesses: u64,
}

/// A process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessRow {
    /// Set to sizeof(struct numapilot_process).
    pub type_size: usize,
    /// Its number, from 0.
    pub process: u32,
    /// The kernel's id of it.
    pub pid: u32,
    /// Process that forked it or that it replaced, or NUMAPILOT_NONE.
    pub parent: u32,
    /// 1: it replaced its parent by exec.
    pub by_exec: u32,
    /// Program time of its start in nanoseconds.
    pub start_ns: u64,
    /// Program time of its end, or NUMAPILOT_NEVER.
    pub end_ns: u64,
    /// Path of its executable.
    pub executable: *const c_char,
    /// Its command line.
    pub command: *const c_char,
}

versioned!(ObjectRow, SiteRow, ThreadRow, ProcessRow);

/// Gets object number `object`, which is less than `objects` of numapilot_info.
///
/// # Safety
/// `row` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_object_at(trace: TraceHandle, object: u32, row: *mut ObjectRow) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        let found = open.object(object).ok_or_else(|| none("object", object))?;
        // SAFETY: by this function's contract.
        unsafe { fill(row, found, "object") }
    })
}

/// Gets site number `site`, which is less than `sites` of numapilot_info.
///
/// # Safety
/// `row` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_site_at(trace: TraceHandle, site: u32, row: *mut SiteRow) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        let found = open.site(site).ok_or_else(|| none("site", site))?;
        // SAFETY: by this function's contract.
        unsafe { fill(row, found, "site") }
    })
}

/// Gets thread number `thread`, which is less than `threads` of numapilot_info.
///
/// # Safety
/// `row` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_thread_at(trace: TraceHandle, thread: u32, row: *mut ThreadRow) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        let found = open.thread(thread).ok_or_else(|| none("thread", thread))?;
        // SAFETY: by this function's contract.
        unsafe { fill(row, found, "thread") }
    })
}

/// Gets process number `process`, which is less than `processes` of numapilot_info.
///
/// # Safety
/// `row` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_process_at(trace: TraceHandle, process: u32, row: *mut ProcessRow) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        let found = open.process(process).ok_or_else(|| none("process", process))?;
        // SAFETY: by this function's contract.
        unsafe { fill(row, found, "process") }
    })
}

fn none(what: &str, number: u32) -> Failure {
    failure(NUMAPILOT_NOT_FOUND, format!("the trace has no {what} {number}"))
}

impl OpenTrace {
    fn object(&self, number: u32) -> Option<ObjectRow> {
        let object = self.trace.object(ObjectId(number))?;
        let site = self.trace.site(object.site)?;
        let texts = self.sites.get(object.site.0 as usize).copied().unwrap_or_default();
        let [name, function, file, module] = self.site_texts(texts);
        Some(ObjectRow {
            type_size: 0,
            object: number,
            site: object.site.0,
            address: object.address.0,
            bytes: object.bytes,
            birth_ns: object.birth.0,
            death_ns: object.death.map_or(NUMAPILOT_NEVER, |time| time.0),
            thread: object.thread.map_or(NUMAPILOT_NONE, |thread| thread.0),
            cpu: object.cpu.map_or(NUMAPILOT_NONE, |cpu| cpu.0),
            process: object.process.0,
            stack: object.stack.0,
            node: object.node.map_or(NUMAPILOT_NO_NODE, |node| node.0),
            kind: site.kind as u16,
            line: site.line,
            name,
            function,
            file,
            module,
            kind_name: self.texts.pointer(self.kinds[site.kind as usize]),
            accesses: self.trace.oef(ObjectId(number)).len() as u64,
        })
    }

    fn site(&self, number: u32) -> Option<SiteRow> {
        let site = self.trace.sites().get(number as usize)?;
        let [name, function, file, module] = self.site_texts(*self.sites.get(number as usize)?);
        Some(SiteRow {
            type_size: 0,
            site: number,
            kind: site.kind as u16,
            reserved: 0,
            name,
            function,
            file,
            module,
            kind_name: self.texts.pointer(self.kinds[site.kind as usize]),
            line: site.line,
            reserved_too: 0,
        })
    }

    fn site_texts(&self, texts: SiteTexts) -> [*const c_char; 4] {
        [texts.name, texts.function, texts.file, texts.module].map(|at| self.texts.pointer(at))
    }

    fn thread(&self, number: u32) -> Option<ThreadRow> {
        let thread = self.trace.thread(ThreadIndex(number))?;
        let (name, start_function) = *self.threads.get(number as usize)?;
        let counters = thread.counters.as_ref();
        Some(ThreadRow {
            type_size: 0,
            thread: number,
            process: thread.process.0,
            tid: thread.tid.0,
            parent: thread.parent.map_or(NUMAPILOT_NONE, |parent| parent.0),
            cpu: thread.cpu.map_or(NUMAPILOT_NONE, |cpu| cpu.0),
            stack_object: thread.stack_object.map_or(NUMAPILOT_NONE, |object| object.0),
            node: thread.node.map_or(NUMAPILOT_NO_NODE, |node| node.0),
            has_totals: u16::from(counters.is_some()),
            reserved: 0,
            start_ns: thread.start.0,
            end_ns: thread.end.map_or(NUMAPILOT_NEVER, |time| time.0),
            name: self.texts.pointer(name),
            start_function: self.texts.pointer(start_function),
            memory_accesses: counters.map_or(0, |counters| counters.memory_accesses),
            memory_writes: counters.map_or(0, |counters| counters.memory_writes),
            accesses: self.trace.tef(ThreadIndex(number)).len() as u64,
        })
    }

    fn process(&self, number: u32) -> Option<ProcessRow> {
        let process = self.trace.process(ProcessIndex(number))?;
        let (executable, command) = *self.processes.get(number as usize)?;
        Some(ProcessRow {
            type_size: 0,
            process: number,
            pid: process.pid.0,
            parent: process.parent.map_or(NUMAPILOT_NONE, |parent| parent.0),
            by_exec: u32::from(process.by_exec),
            start_ns: process.start.0,
            end_ns: process.end.map_or(NUMAPILOT_NEVER, |time| time.0),
            executable: self.texts.pointer(executable),
            command: self.texts.pointer(command),
        })
    }
}
