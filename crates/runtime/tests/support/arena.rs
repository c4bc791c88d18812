//! An arena as the recorder would make it, without a recorder: rings large enough to hold a whole run, decoded afterwards.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use numapilot_trace::record::Record;
use numapilot_trace::wire;
use numapilot_trace::wire::layout;
use numapilot_trace::wire::layout::ArenaHeader;
use numapilot_trace::wire::layout::ArenaLosses;
use numapilot_trace::wire::layout::Slot;

const RING_OFFSET: u32 = 8192;
const FILTER_OFFSET: u32 = 4096;
const SLOTS_OFFSET: u64 = 1 << 21;

/// A memfd with the arena in it.
pub struct Arena {
    file: File,
    base: *mut u8,
    slot_count: u32,
    ring_bytes: u32,
}

impl Arena {
    /// An arena for lifecycles only (`NP_MODE_TRACK`).
    pub fn new(slot_count: u32, ring_bytes: u32) -> Arena {
        // SAFETY: a NUL-terminated name; the new descriptor is owned by the File alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"test-arena".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            File::from_raw_fd(fd)
        };
        let slot_bytes = RING_OFFSET + ring_bytes;
        let bytes = SLOTS_OFFSET + u64::from(slot_count) * u64::from(slot_bytes);
        file.set_len(bytes).expect("memfd grows");
        // SAFETY: a fresh shared mapping of our own file.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                usize::try_from(bytes).expect("64-bit"),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let arena = Arena { file, base: base.cast(), slot_count, ring_bytes };
        // SAFETY: the mapping is larger than a header and not shared yet; all fields are plain integers, zero so far.
        unsafe {
            let header = &mut *arena.header();
            header.version = layout::ARENA_VERSION;
            header.header_bytes = u32::try_from(size_of::<ArenaHeader>()).expect("small");
            header.arena_bytes = bytes;
            header.slots_offset = SLOTS_OFFSET;
            header.slot_count = slot_count;
            header.slot_bytes = slot_bytes;
            header.filter_offset = FILTER_OFFSET;
            header.filter_bytes = RING_OFFSET - FILTER_OFFSET;
            header.ring_offset = RING_OFFSET;
            header.ring_bytes = ring_bytes;
            header.recorder_pid = std::process::id();
            header.config.mode = layout::MODE_TRACK;
            header.config.max_stack_depth = 128;
            header.config.clock_khz = 1_000_000;
            header.config.node_count = 1;
            header.ids.0.next_stack_id = 1;
            header.ids.0.next_module_id = 1;
            header.ids.0.next_code_id = 1;
            header.state.0.state = layout::STATE_RUN;
            header.magic = layout::ARENA_MAGIC;
        }
        arena
    }

    /// An arena with a small simulated machine: four nodes of four CPUs.
    pub fn simulating(slot_count: u32, ring_bytes: u32, mode: u32) -> Arena {
        let arena = Arena::new(slot_count, ring_bytes);
        arena.edit(|header| {
            header.sync_offset = 64 << 10;
            header.dir_offset = header.sync_offset + (16 << 16);
            header.l3_offset = header.dir_offset + (8 << 14);
            let config = &mut header.config;
            config.mode = mode;
            (config.node_count, config.cpu_count, config.clock_khz, config.seed) = (4, 16, 2_500_000, 1);
            (config.sample_rate_hz, config.window_cycles, config.cycles_per_access_q8) = (100_000, 250_000, 256);
            (config.l1_lines, config.l2_sets, config.l2_ways, config.line_sampling) = (64, 64, 8, 1);
            (config.l3_sets, config.l3_ways, config.l3_count) = (64, 8, 4);
            (config.l2_cycles, config.l3_cycles, config.dir_entries_log2) = (14, 40, 14);
            (config.max_stack_depth, config.sample_period) = (16, 7);
            for from in 0..4 {
                config.node_has_memory[from] = 1;
                for to in 0..4 {
                    config.memory_latency_cycles[from][to] = if from == to { 200 } else { 300 };
                    config.node_order[from][to] = ((from + to) % 4) as u8;
                }
            }
            for cpu in 0..16_u16 {
                let at = usize::from(cpu);
                (config.cpu_order[at], config.cpu_node[at], config.cpu_l3[at]) = (cpu, cpu % 4, cpu % 4);
            }
        });
        arena
    }

    /// Changes the header before a program sees it.
    pub fn edit(&self, change: impl FnOnce(&mut ArenaHeader)) {
        // SAFETY: no program runs on this arena yet.
        change(unsafe { &mut *self.header() });
    }

    fn header(&self) -> *mut ArenaHeader {
        self.base.cast()
    }

    /// Value of `NUMAPILOT_ARENA` for the program.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Records that the arena lost, by kind.
    pub fn losses(&self) -> ArenaLosses {
        // SAFETY: inside the mapping; aligned; values may be stale, never torn in ways that matter to a test after its program.
        unsafe { (&raw const (*self.header()).losses.0).read_volatile() }
    }

    /// Value of `np_arena.limited_processes`.
    pub fn limited_processes(&self) -> u32 {
        // SAFETY: as in `losses`.
        unsafe { (&raw const (*self.header()).unrecorded.0.limited_processes).read_volatile() }
    }

    /// Value of `np_arena.unrecorded_programs` for this reason.
    pub fn unrecorded_programs(&self, reason: usize) -> u32 {
        // SAFETY: as in `losses`.
        unsafe { (&raw const (*self.header()).unrecorded.0.unrecorded_programs[reason]).read_volatile() }
    }

    /// Value of `np_arena.state`.
    pub fn state(&self) -> u32 {
        // SAFETY: as in `losses`.
        unsafe { (&raw const (*self.header()).state.0.state).read_volatile() }
    }

    fn slot_at(&self, index: u32) -> u64 {
        SLOTS_OFFSET + u64::from(index) * u64::from(RING_OFFSET + self.ring_bytes)
    }

    /// A copy of the slot's head.
    pub fn slot(&self, index: u32) -> Slot {
        // SAFETY: inside the mapping, aligned, plain integers.
        unsafe { self.base.add(usize::try_from(self.slot_at(index)).expect("64-bit")).cast::<Slot>().read_volatile() }
    }

    /// Number of slots that were ever in use.
    pub fn slots_used(&self) -> u32 {
        // SAFETY: as in `losses`.
        let high = unsafe { (&raw const (*self.header()).epoch.0.slots_high).read_volatile() };
        u32::try_from(high).expect("small").min(self.slot_count)
    }

    fn ring_bytes_between(&self, index: u32, from: u64, to: u64) -> Vec<u8> {
        let size = u64::from(self.ring_bytes);
        let ring = self.slot_at(index) + u64::from(RING_OFFSET);
        let mut bytes = Vec::new();
        let mut at = from;
        while at < to {
            let begin = at % size;
            let piece = (size - begin).min(to - at);
            let start = bytes.len();
            bytes.resize(start + usize::try_from(piece).expect("64-bit"), 0);
            self.file.read_exact_at(&mut bytes[start..], ring + begin).expect("arena reads");
            at += piece;
        }
        bytes
    }

    /// Everything in every ring that was not drained, decoded.
    pub fn decode(&self) -> Vec<Vec<Record>> {
        (0..self.slots_used())
            .map(|index| {
                let slot = self.slot(index);
                let bytes = self.ring_bytes_between(index, slot.consumer.tail, slot.producer.head);
                decode(&bytes, &mut wire::RingState::new(wire::Clock::NANOSECONDS))
            })
            .collect()
    }

    /// Drains every ring once as a recorder does, frees the slots of ended threads, and returns the bytes taken.
    pub fn drain_once(&self, mut take: impl FnMut(u32, u64, &[u8])) -> u64 {
        let mut total = 0;
        for index in 0..self.slots_used() {
            // SAFETY: inside the mapping; these words are shared with the program and only touched as atomics here.
            let (head, tail, state, generation) = unsafe {
                let slot = self.base.add(usize::try_from(self.slot_at(index)).expect("64-bit")).cast::<Slot>();
                (
                    &*(&raw const (*slot).producer.0.head).cast::<AtomicU64>(),
                    &*(&raw const (*slot).consumer.0.tail).cast::<AtomicU64>(),
                    &*(&raw const (*slot).identity.0.state).cast::<AtomicU32>(),
                    &*(&raw const (*slot).identity.0.generation).cast::<AtomicU64>(),
                )
            };
            let state_seen = state.load(Ordering::Acquire);
            if state_seen != layout::SLOT_LIVE && state_seen != layout::SLOT_CLOSED {
                continue;
            }
            let (from, to) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
            let bytes = self.ring_bytes_between(index, from, to);
            take(index, generation.load(Ordering::Relaxed), &bytes);
            total += bytes.len() as u64;
            tail.store(to, Ordering::Release);
            if state_seen == layout::SLOT_CLOSED {
                head.store(0, Ordering::Relaxed);
                tail.store(0, Ordering::Relaxed);
                state.store(layout::SLOT_FREE, Ordering::Release);
            }
        }
        total
    }
}

/// Decodes whole records; the test fails on anything else.
pub fn decode(bytes: &[u8], state: &mut wire::RingState) -> Vec<Record> {
    wire::decode(bytes, state).map(|record| record.expect("a sound ring")).collect()
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = SLOTS_OFFSET + u64::from(self.slot_count) * u64::from(RING_OFFSET + self.ring_bytes);
        // SAFETY: our own mapping, not used after this.
        unsafe { libc::munmap(self.base.cast(), usize::try_from(bytes).expect("64-bit")) };
    }
}

// SAFETY: the mapping is not tied to a thread; all shared words are read as atomics or after the program ended.
unsafe impl Sync for Arena {}
// SAFETY: as above.
unsafe impl Send for Arena {}
