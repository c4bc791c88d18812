//! The memory that the program's processes share with the recorder: one memfd, laid out as `struct np_arena` says
//! (`crates/runtime/c/wire.h`).
//!
//! A faulty program may overwrite everything in it. So nothing is read here as a reference to plain memory: words
//! are loaded through atomics, bytes are copied, and every value is checked against the recorder's own records.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use numapilot_host::PageNumber;
use numapilot_launch::Held;
use numapilot_sampled::Numbering;
use numapilot_trace::wire::layout as wire;

use crate::clock::HostInstant;
use crate::clock::monotonic_ns;
use crate::clock::order_now;
use crate::error::SourceError;
use crate::namespaces;
use crate::order::OrderSource;

/// Parts of the arena begin at multiples of this, whatever pages the kernel has.
const PAGE: u64 = PageNumber::BYTES;
/// 1 << 16 entries of 16 bytes.
const SYNC_TABLE_BYTES: u64 = 16 << 16;
const NAME: &CStr = c"numapilot-arena";

/// Sizes and places of the arena's parts, kept outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the arena in bytes.
    pub arena_bytes: u64,
    /// Offset of the first slot.
    pub slots_offset: u64,
    /// Number of slots.
    pub slot_count: u32,
    /// Bytes from one slot to the next.
    pub slot_bytes: u32,
    /// Private filter, from the slot's start.
    pub filter_offset: u32,
    /// Size of the filter in bytes.
    pub filter_bytes: u32,
    /// Offset of the ring from the slot's start.
    pub ring_offset: u32,
    /// Its bytes, a power of two.
    pub ring_bytes: u32,
    /// Offset of the L3 tags.
    pub l3_offset: u64,
    /// Offset of the coherence directory.
    pub dir_offset: u64,
    /// Offset of the synchronisation clocks.
    pub sync_offset: u64,
}

impl Layout {
    /// Places the parts for this configuration.
    pub fn new(config: &wire::Config, slot_count: u32, ring_bytes: u32) -> Layout {
        let round = |bytes: u64| bytes.next_multiple_of(PAGE);
        let sync_offset = round(size_of::<wire::ArenaHeader>() as u64);
        let dir_offset = round(sync_offset + SYNC_TABLE_BYTES);
        let l3_offset = round(dir_offset + (8 << config.dir_entries_log2));
        let l3_bytes = u64::from(config.l3_count) * u64::from(config.l3_sets) * u64::from(config.l3_ways) * 4;
        let slots_offset = round(l3_offset + l3_bytes);
        let filter_offset = round(size_of::<wire::Slot>() as u64);
        let filter = u64::from(config.l1_lines) * 8 + u64::from(config.l2_sets) * u64::from(config.l2_ways) * 4;
        let filter_bytes = round(filter);
        let ring_offset = filter_offset + filter_bytes;
        let slot_bytes = ring_offset + u64::from(ring_bytes);
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Layout {
            arena_bytes: slots_offset + u64::from(slot_count) * slot_bytes,
            slots_offset,
            slot_count,
            slot_bytes: narrow(slot_bytes),
            filter_offset: narrow(filter_offset),
            filter_bytes: narrow(filter_bytes),
            ring_offset: narrow(ring_offset),
            ring_bytes,
            l3_offset,
            dir_offset,
            sync_offset,
        }
    }
}

/// The arena, mapped into this process.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    held: Held,
    base: NonNull<u8>,
    layout: Layout,
    order: OrderSource,
    pid_namespace: u32,
}

// SAFETY: the mapping lives as long as the value, and all access to it goes through atomics or raw copies.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// What the agents in Java virtual machines counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaJava {
    /// Virtual machines that loaded the agent.
    pub machines: u32,
    /// Why objects were not followed, or not all: `wire::layout::JAVA_*`, or-ed.
    pub troubles: u32,
    /// Objects that were not followed because too many were already.
    pub dropped: u64,
}

/// Losses that the program's side counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaLosses {
    /// Records of threads that found no slot.
    pub no_slot: u64,
    /// Records that found their ring full for too long.
    pub ring_full: u64,
    /// Records that were dropped because recording had stopped.
    pub stopped: u64,
    /// Call stacks that ended early (the records themselves were kept).
    pub failed_unwinds: u64,
    /// Records of threads whose slot had already gone to another.
    pub after_end: u64,
}

impl Arena {
    /// Makes the memfd, maps it, and fills in header and configuration.
    ///
    /// # Errors
    /// The system refuses that much address space or memory.
    pub fn create(
        config: &wire::Config,
        layout: Layout,
        start: HostInstant,
        order: OrderSource,
    ) -> Result<Arena, SourceError> {
        let fail = |what| SourceError::System {
            what,
            source: io::Error::last_os_error(),
            remedy: "check `ulimit -v`, `ulimit -f` and free memory, or use fewer `--max-threads` and a smaller `--ring-size`",
        };
        // SAFETY: a NUL-terminated name; returns a new descriptor or -1.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(fail("cannot make the shared memory of the recording"));
        }
        // SAFETY: `fd` is open and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = layout.arena_bytes;
        let size = libc::off_t::try_from(length).unwrap_or(libc::off_t::MAX);
        // SAFETY: sets the length of our own file; sparse, so it takes no memory yet.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size) } != 0 {
            return Err(fail("cannot size the shared memory of the recording"));
        }
        // SAFETY: a fresh shared mapping of our own file, of its length.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                usize::try_from(length).unwrap_or(usize::MAX),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(fail("cannot map the shared memory of the recording")),
        };
        let held = Held::new(fd.as_fd()).map_err(|source| SourceError::System {
            what: "cannot start a process that holds the shared memory of the recording, which programs may not open where numapilot has capabilities",
            source,
            remedy: "check `ulimit -u`, or take the capabilities from numapilot's file (`setcap -r`)",
        })?;
        let arena = Arena { fd, held, base, layout, order, pid_namespace: namespaces::own() };
        arena.fill(config, start);
        Ok(arena)
    }

    fn fill(&self, config: &wire::Config, start: HostInstant) {
        let header = self.header();
        let layout = self.layout;
        // SAFETY: the mapping is at least a header long, page-aligned, and nobody else knows of it yet.
        unsafe {
            (*header).version = wire::ARENA_VERSION;
            (*header).header_bytes = u32::try_from(layout.sync_offset).unwrap_or(u32::MAX);
            (*header).arena_bytes = layout.arena_bytes;
            (*header).slots_offset = layout.slots_offset;
            (*header).slot_count = layout.slot_count;
            (*header).slot_bytes = layout.slot_bytes;
            (*header).filter_offset = layout.filter_offset;
            (*header).filter_bytes = layout.filter_bytes;
            (*header).ring_offset = layout.ring_offset;
            (*header).ring_bytes = layout.ring_bytes;
            (*header).l3_offset = layout.l3_offset;
            (*header).dir_offset = layout.dir_offset;
            (*header).sync_offset = layout.sync_offset;
            (*header).start_order = start.order;
            (*header).start_ns = start.monotonic_ns;
            (*header).recorder_pid = std::process::id();
            (*header).pid_namespace = self.pid_namespace;
            (*header).order_source = self.order.wire();
            ptr::copy_nonoverlapping(config, &raw mut (*header).config, 1);
            (*header).ids.0.next_stack_id = 1;
            (*header).ids.0.next_module_id = 1;
            (*header).ids.0.next_code_id = 1;
            (*header).state.0.state = wire::STATE_RUN;
        }
        std::sync::atomic::fence(Ordering::Release);
        // SAFETY: as above; the magic comes last, so that a header with it is whole.
        unsafe { (*header).magic = wire::ARENA_MAGIC };
    }

    /// Tells the tracker that it runs under an emulator with our plugin (crates/runtime/c/emulator.h). Before the program starts.
    pub fn tell_of_emulator(&self) {
        // SAFETY: the header is mapped, and no program has it yet.
        unsafe { (*self.header()).emulated = 1 };
    }

    /// An order stamp of now, as `np_order()` in the program would give it.
    pub fn order_now(&self) -> u64 {
        if self.order != OrderSource::Sequence {
            return order_now();
        }
        // SAFETY: a field of the mapped header, naturally aligned.
        unsafe { atomic64(&raw mut (*self.header()).order.0.order_sequence) }.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Real time in the unit of clock stamps that are not virtual; `order`: a stamp just taken.
    pub fn real_clock(&self, order: u64) -> u64 {
        if self.order == OrderSource::Sequence { monotonic_ns() } else { order }
    }

    /// The path under which other processes of this user can open the arena.
    pub fn path(&self) -> PathBuf {
        self.held.path()
    }

    /// Offsets and sizes of the arena's parts.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn header(&self) -> *mut wire::ArenaHeader {
        self.base.as_ptr().cast()
    }

    /// The slot with this index.
    ///
    /// # Panics
    /// Past the last slot: a fault of the caller, who counts slots by the layout.
    pub fn slot(&self, index: u32) -> Slot<'_> {
        assert!(index < self.layout.slot_count, "slot {index} of {}", self.layout.slot_count);
        let offset = self.layout.slots_offset + u64::from(index) * u64::from(self.layout.slot_bytes);
        // SAFETY: `index` is below the count, so the slot lies inside the mapping.
        let at = unsafe { self.base.as_ptr().add(usize::try_from(offset).unwrap_or(usize::MAX)) };
        Slot { at: at.cast(), arena: self, offset }
    }

    /// How many slots were ever used, by the program's word, at most all of them.
    pub fn slots_used(&self) -> u32 {
        // SAFETY: a field of the mapped header, naturally aligned.
        let high = unsafe { atomic64(&raw mut (*self.header()).epoch.0.slots_high) }.load(Ordering::Acquire);
        u32::try_from(high).unwrap_or(u32::MAX).min(self.layout.slot_count)
    }

    /// What the program's side lost so far.
    pub fn losses(&self) -> ArenaLosses {
        let header = self.header();
        // SAFETY: fields of the mapped header, naturally aligned.
        unsafe {
            ArenaLosses {
                no_slot: atomic64(&raw mut (*header).losses.0.lost_no_slot).load(Ordering::Relaxed),
                ring_full: atomic64(&raw mut (*header).losses.0.lost_full).load(Ordering::Relaxed),
                stopped: atomic64(&raw mut (*header).losses.0.lost_stopped).load(Ordering::Relaxed),
                failed_unwinds: atomic64(&raw mut (*header).losses.0.failed_unwinds).load(Ordering::Relaxed),
                after_end: atomic64(&raw mut (*header).losses.0.lost_after_end).load(Ordering::Relaxed),
            }
        }
    }

    /// Number of programs that the program's processes started without the tracker for this reason (`wire::layout::UNRECORDED_*`), and the path of the first.
    pub fn unrecorded_programs(&self, reason: usize) -> (u32, Option<String>) {
        let header = self.header();
        // SAFETY: fields of the mapped header, naturally aligned.
        let (count, named) = unsafe {
            let unrecorded = &raw mut (*header).unrecorded.0;
            let count = atomic32(&raw mut (*unrecorded).unrecorded_programs[reason]).load(Ordering::Acquire);
            (count, atomic32(&raw mut (*unrecorded).unrecorded_named[reason]).load(Ordering::Acquire))
        };
        // SAFETY: a field of the mapped header; whatever bytes the program has there, they are read once, as they are.
        let name = unsafe { (&raw const (*header).unrecorded.0.unrecorded_name[reason]).read_volatile() };
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        (count, (named == 2).then(|| String::from_utf8_lossy(text).into_owned()))
    }

    /// Number of processes that did not map the arena, because a limit on addresses would have left them too few.
    pub fn limited_processes(&self) -> u32 {
        // SAFETY: a field of the mapped header, naturally aligned.
        unsafe { atomic32(&raw mut (*self.header()).unrecorded.0.limited_processes) }.load(Ordering::Relaxed)
    }

    /// Waits that timed out in host time while other threads were behind that in program time.
    pub fn early_timeouts(&self) -> u64 {
        // SAFETY: a field of the mapped header, naturally aligned.
        unsafe { atomic64(&raw mut (*self.header()).losses.0.early_timeouts) }.load(Ordering::Relaxed)
    }

    /// Java virtual machines that loaded the agent.
    pub fn java(&self) -> ArenaJava {
        let header = self.header();
        // SAFETY: fields of the mapped header, naturally aligned.
        unsafe {
            let counts = &raw mut (*header).unrecorded.0;
            ArenaJava {
                machines: atomic32(&raw mut (*counts).java_machines).load(Ordering::Relaxed),
                troubles: atomic32(&raw mut (*counts).java_troubles).load(Ordering::Relaxed),
                dropped: atomic64(&raw mut (*counts).java_dropped).load(Ordering::Relaxed),
            }
        }
    }

    /// Tells every process of the program to write nothing any more.
    pub fn stop(&self) {
        // SAFETY: a field of the mapped header, naturally aligned.
        unsafe { atomic32(&raw mut (*self.header()).state.0.state) }.store(wire::STATE_STOPPED, Ordering::Release);
    }

    /// Whether the program's processes were told to stop recording.
    pub fn is_stopped(&self) -> bool {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).state.0.state) }.load(Ordering::Acquire) == wire::STATE_STOPPED
    }

    fn drain_futex(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).state.0.drain_futex) }
    }

    /// The value to look at before a scan, and to hand to [`Arena::sleep`] after it.
    pub fn wake_count(&self) -> u32 {
        self.drain_futex().load(Ordering::Acquire)
    }

    /// Sleeps until a producer wakes us, the timeout passes, or someone has since `seen` was read.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        futex_wait(self.drain_futex(), seen, timeout);
    }

    /// Tells the program's threads what can be answered (`np_fault_events`). Before the program starts.
    pub fn offer_fault_events(&self, scope: u32) {
        // SAFETY: a field of the mapped header, naturally aligned; so below.
        unsafe { atomic32(&raw mut (*self.header()).state.0.fault_events) }.store(scope, Ordering::Release);
    }

    fn fault_futex(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).state.0.fault_futex) }
    }

    /// Count of the threads' questions, to look at before answering, and to hand to [`Arena::sleep_until_asked`] after it.
    pub fn questions(&self) -> u32 {
        self.fault_futex().load(Ordering::Acquire)
    }

    /// Sleeps until a thread asks, or has since `seen` was read, or the timeout passes.
    pub fn sleep_until_asked(&self, seen: u32, timeout: Duration) {
        futex_wait(self.fault_futex(), seen, timeout);
    }

    /// Wakes a sleeping drainer from within this process.
    pub fn wake(&self) {
        self.drain_futex().fetch_add(1, Ordering::AcqRel);
        // SAFETY: FUTEX_WAKE on a mapped, aligned word.
        unsafe { libc::syscall(libc::SYS_futex, self.drain_futex().as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }
}

/// The numbers that the tracker assigns, too: the recorder announces threads, processes and binaries of its own.
impl Numbering for Arena {
    fn new_thread(&self) -> u32 {
        // SAFETY: a field of the mapped header, naturally aligned; so in the next three.
        unsafe { atomic32(&raw mut (*self.header()).ids.0.next_thread_index) }.fetch_add(1, Ordering::Relaxed)
    }

    fn new_process(&self) -> u32 {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).ids.0.next_process_index) }.fetch_add(1, Ordering::Relaxed)
    }

    fn new_module(&self) -> u32 {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).ids.0.next_module_id) }.fetch_add(1, Ordering::Relaxed)
    }

    fn new_stack(&self) -> u32 {
        // SAFETY: as above.
        unsafe { atomic32(&raw mut (*self.header()).ids.0.next_stack_id) }.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, to which no reference outlives `self`.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), usize::try_from(self.layout.arena_bytes).unwrap_or(usize::MAX))
        };
    }
}

fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(1),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: FUTEX_WAIT on a mapped, aligned word, with a timespec of our own. Shared between processes: not PRIVATE.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &time, ptr::null::<u32>(), 0) };
}

/// SAFETY: `word` must be aligned and stay mapped for the reference's life.
unsafe fn atomic64<'a>(word: *mut u64) -> &'a AtomicU64 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU64::from_ptr(word) }
}

/// SAFETY: `word` must be aligned and stay mapped for the reference's life.
unsafe fn atomic32<'a>(word: *mut u32) -> &'a AtomicU32 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(word) }
}

/// One thread's slot, seen from the recorder.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    at: *mut wire::Slot,
    arena: &'a Arena,
    offset: u64,
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $line:ident.$atomic:ident -> $type:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(&self) -> $type {
            // SAFETY: a field of a slot inside the mapping, naturally aligned.
            unsafe { $atomic(&raw mut (*self.at).$line.0.$name) }.load(Ordering::Acquire)
        })*
    };
}

impl Slot<'_> {
    /// Answers the thread's question, and wakes it: who faulted the page last (0: nobody that is known; `u32::MAX`: any of several threads), and how many pages
    /// from there on.
    pub fn answer(&self, tid: u32, pages: u32) {
        // SAFETY: fields of a slot inside the mapping, naturally aligned.
        let state = unsafe {
            atomic32(&raw mut (*self.at).counts.0.answer_tid).store(tid, Ordering::Relaxed);
            atomic32(&raw mut (*self.at).counts.0.answer_pages).store(pages, Ordering::Relaxed);
            atomic32(&raw mut (*self.at).counts.0.ask_state)
        };
        state.store(wire::ASK_ANSWERED, Ordering::Release);
        // SAFETY: FUTEX_WAKE on a mapped, aligned word.
        unsafe { libc::syscall(libc::SYS_futex, state.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    words! {
        /// Bytes ever written to the ring, according to the program.
        head: producer.atomic64 -> u64;
        /// State of the slot (`np_slot_state`).
        state: identity.atomic32 -> u32;
        /// Process id of the owner.
        pid: identity.atomic32 -> u32;
        /// Thread id of the owner.
        tid: identity.atomic32 -> u32;
        /// Namespace in which the owner's ids are numbered; 0: not known.
        pid_namespace: identity.atomic32 -> u32;
        /// State of the slot's request (`np_ask_state`).
        ask_state: counts.atomic32 -> u32;
        /// Page whose first toucher the thread requests.
        ask_page: counts.atomic64 -> u64;
        /// Its requests that were not answered in time.
        ask_failures: counts.atomic32 -> u32;
        /// Instrumented accesses so far.
        accesses: hot.atomic64 -> u64;
        /// Cycles that anything but accesses added to the clock.
        stall_cycles: hot.atomic64 -> u64;
        /// Order stamp of the last record.
        last_order: producer.atomic64 -> u64;
        /// Accesses that left the first-stage filter, of the simulated lines alone; so are all counts below.
        l2_lookups: counts.atomic64 -> u64;
        /// Accesses that left the private filter.
        l3_lookups: counts.atomic64 -> u64;
        /// Accesses that left the L3 filter.
        memory_accesses: counts.atomic64 -> u64;
        /// Of these, answered by another thread's cache.
        cache_transfers: counts.atomic64 -> u64;
        /// Memory accesses that are stores.
        memory_writes: counts.atomic64 -> u64;
        /// Clock spent waiting for other threads.
        wait_cycles: counts.atomic64 -> u64;
        /// Clock charged for memory accesses; scaled already.
        memory_cycles: counts.atomic64 -> u64;
        /// Of the memory accesses, those of prefetched streams.
        memory_streamed: counts.atomic64 -> u64;
        /// Of the others, those that another waits for.
        memory_dependent: counts.atomic64 -> u64;
    }

    /// Whether the owner's ids are certain to be numbered as this process numbers them.
    pub fn is_of_our_namespace(&self) -> bool {
        self.arena.pid_namespace == 0 || self.pid_namespace() == self.arena.pid_namespace
    }

    /// The arena that it lies in.
    pub fn arena(&self) -> &Arena {
        self.arena
    }

    /// Memory accesses whose home is `node`.
    ///
    /// # Panics
    /// From `MAX_NODES` on: a fault of the caller.
    pub fn by_home(&self, node: usize) -> u64 {
        assert!(node < wire::MAX_NODES, "node {node}");
        // SAFETY: an element of an array in a slot inside the mapping, naturally aligned.
        unsafe { atomic64(&raw mut (*self.at).counts.0.by_home[node]) }.load(Ordering::Acquire)
    }

    /// Takes a closed slot away from its thread, which adds nothing to it from then on. False: it is at it just now.
    pub fn take_closed(&self) -> bool {
        // SAFETY: a field of a slot inside the mapping, naturally aligned.
        let state = unsafe { atomic32(&raw mut (*self.at).identity.0.state) };
        state.compare_exchange(wire::SLOT_CLOSED, wire::SLOT_CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Publishes how far the ring was drained.
    pub fn set_tail(&self, tail: u64) {
        // SAFETY: a field of a slot inside the mapping, naturally aligned.
        unsafe { atomic64(&raw mut (*self.at).consumer.0.tail) }.store(tail, Ordering::Release);
    }

    /// The thread's clock in cycles.
    pub fn clock_cycles(&self, cycles_per_access_q8: u32) -> u64 {
        let work = (u128::from(self.accesses()) * u128::from(cycles_per_access_q8)) >> 8;
        self.stall_cycles().saturating_add(u64::try_from(work).unwrap_or(u64::MAX))
    }

    /// Copies ring bytes `[from, to)` (counted since the ring's birth) to the end of `out`, over the ring's edge if need be.
    ///
    /// # Panics
    /// When the range is longer than the ring: the caller has checked it.
    pub fn copy(&self, from: u64, to: u64, out: &mut Vec<u8>) {
        let ring_bytes = u64::from(self.arena.layout.ring_bytes);
        assert!(from <= to && to - from <= ring_bytes, "ring range {from}..{to} of {ring_bytes}");
        let start = from & (ring_bytes - 1);
        let first = (to - from).min(ring_bytes - start);
        let second = to - from - first;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        out.reserve(size(first + second));
        // SAFETY: both ranges lie inside the ring, which lies inside the mapping; `out` has room for them, and the bytes become
        // part of it only once they are written. The program may change them meanwhile: we copy whatever is there, unread.
        unsafe {
            let ring = self.at.cast::<u8>().add(self.arena.layout.ring_offset as usize);
            let end = out.as_mut_ptr().add(out.len());
            ptr::copy_nonoverlapping(ring.add(size(start)), end, size(first));
            ptr::copy_nonoverlapping(ring, end.add(size(first)), size(second));
            out.set_len(out.len() + size(first + second));
        }
    }

    /// Gives filter and ring memory back to the system and the slot to the next thread. Only for a slot whose owner is gone.
    pub fn free(&self) {
        let layout = &self.arena.layout;
        let start = self.offset + u64::from(layout.filter_offset);
        let length = u64::from(layout.slot_bytes - layout.filter_offset);
        let signed = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: punches a hole into our own memfd, over the filter and ring of a slot that nobody uses.
        unsafe {
            libc::fallocate(
                self.arena.fd.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                signed(start),
                signed(length),
            );
            atomic64(&raw mut (*self.at).producer.0.tail_seen).store(0, Ordering::Relaxed);
            atomic64(&raw mut (*self.at).producer.0.head).store(0, Ordering::Relaxed);
            atomic64(&raw mut (*self.at).consumer.0.tail).store(0, Ordering::Relaxed);
            atomic32(&raw mut (*self.at).identity.0.state).store(wire::SLOT_FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod producer {
    //! The program's side of the arena, for tests: what ring.c and core.c do.

    use super::*;

    impl Arena {
        pub(crate) fn test_raise_slots_used(&self, count: u32) {
            // SAFETY: a field of the mapped header, naturally aligned.
            unsafe { atomic64(&raw mut (*self.header()).epoch.0.slots_high) }
                .fetch_max(count.into(), Ordering::Release);
        }
    }

    impl Slot<'_> {
        pub(crate) fn test_claim(&self, pid: u32) {
            // SAFETY: fields of a slot inside the mapping, naturally aligned; likewise below.
            unsafe {
                atomic64(&raw mut (*self.at).producer.0.head).store(0, Ordering::Relaxed);
                atomic64(&raw mut (*self.at).consumer.0.tail).store(0, Ordering::Relaxed);
            }
            self.test_set_owner(pid);
            self.test_set_namespace(self.arena.pid_namespace);
            self.test_set_state(wire::SLOT_LIVE);
        }

        pub(crate) fn test_set_owner(&self, pid: u32) {
            // SAFETY: as above.
            unsafe {
                atomic32(&raw mut (*self.at).identity.0.pid).store(pid, Ordering::Relaxed);
                atomic32(&raw mut (*self.at).identity.0.tid).store(pid, Ordering::Relaxed);
            }
        }

        pub(crate) fn test_set_namespace(&self, namespace: u32) {
            // SAFETY: as above.
            unsafe { atomic32(&raw mut (*self.at).identity.0.pid_namespace) }.store(namespace, Ordering::Relaxed);
        }

        pub(crate) fn test_set_thread(&self, tid: u32) {
            // SAFETY: as above.
            unsafe { atomic32(&raw mut (*self.at).identity.0.tid) }.store(tid, Ordering::Relaxed);
        }

        pub(crate) fn test_set_state(&self, state: u32) {
            // SAFETY: as above.
            unsafe { atomic32(&raw mut (*self.at).identity.0.state) }.store(state, Ordering::Release);
        }

        /// Sets accesses, stall cycles, and every count after them: `count`, by home `count` + the node's number.
        pub(crate) fn test_set_counts(&self, accesses: u64, stall_cycles: u64, count: u64) {
            // SAFETY: as above.
            unsafe {
                atomic64(&raw mut (*self.at).hot.0.accesses).store(accesses, Ordering::Relaxed);
                atomic64(&raw mut (*self.at).hot.0.stall_cycles).store(stall_cycles, Ordering::Relaxed);
                atomic64(&raw mut (*self.at).counts.0.l2_lookups).store(count, Ordering::Relaxed);
                atomic64(&raw mut (*self.at).counts.0.l3_lookups).store(count, Ordering::Relaxed);
                atomic64(&raw mut (*self.at).counts.0.memory_accesses).store(count, Ordering::Relaxed);
                for node in 0..wire::MAX_NODES {
                    let home = count + node as u64;
                    atomic64(&raw mut (*self.at).counts.0.by_home[node]).store(home, Ordering::Relaxed);
                }
            }
        }

        /// Asks for the first toucher of a page, as `toucher.c` does.
        pub(crate) fn test_ask(&self, page: u64) {
            // SAFETY: as above.
            unsafe {
                atomic64(&raw mut (*self.at).counts.0.ask_page).store(page, Ordering::Relaxed);
                atomic32(&raw mut (*self.at).counts.0.ask_state).store(wire::ASK_ASKED, Ordering::Release);
            }
        }

        pub(crate) fn test_set_head(&self, head: u64) {
            // SAFETY: as above.
            unsafe { atomic64(&raw mut (*self.at).producer.0.head) }.store(head, Ordering::Release);
        }

        pub(crate) fn test_tail(&self) -> u64 {
            // SAFETY: as above.
            unsafe { atomic64(&raw mut (*self.at).consumer.0.tail) }.load(Ordering::Acquire)
        }

        /// Writes `words` at ring position `head`; they must not cross the ring's edge.
        pub(crate) fn test_write(&self, head: u64, words: &[u64]) {
            let layout = self.arena.layout;
            let at = usize::try_from(head & u64::from(layout.ring_bytes - 1)).unwrap();
            assert!(at + words.len() * 8 <= layout.ring_bytes as usize);
            // SAFETY: checked to lie inside the ring, which lies inside the mapping.
            unsafe {
                let ring = self.at.cast::<u8>().add(layout.ring_offset as usize + at);
                ptr::copy_nonoverlapping(words.as_ptr().cast(), ring, words.len() * 8);
            }
        }
    }
}
