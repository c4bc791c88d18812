//! Decodes bytes of a ring to [`Record`]s.

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};

use super::layout::*;
use super::scan::{Frame, frame, high, low, step, word};
use super::{RingState, UNKNOWN_THREAD, WireError, WireFault};
use crate::ids::{ModuleId, Pid, ProcessIndex, StackId, ThreadIndex, Tid};
use crate::record::{
    Access, AllocKind, BlockSample, Code, Counters, Event, FaultedPage, FileIdentity, Level, PoolEvent, Record, Stamp,
};

/// Decodes one piece of one ring's bytes: whole records that follow the pieces decoded with `state` before.
///
/// The iterator ends after the piece's last record or after its first error; `state` can then be used for the ring's next piece.
/// After an error the stamps' bases are unknown until the next time record; records up to there are skipped and counted in
/// [`RingState::skipped`].
pub fn decode<'a>(bytes: &'a [u8], state: &'a mut RingState) -> Decoder<'a> {
    Decoder { bytes, at: 0, state }
}

/// Iterator over the records of one piece of a ring; [`decode`] makes it.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    state: &'a mut RingState,
}

impl Decoder<'_> {
    /// Number of bytes of the piece that are decoded.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.at
    }

    #[cold]
    fn stop(&mut self, fault: WireFault) -> WireError {
        let error = WireError { offset: self.state.offset, fault };
        self.state.offset += (self.bytes.len() - self.at) as u64;
        self.state.bases_known = false;
        self.at = self.bytes.len();
        error
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Record, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.at >= self.bytes.len() {
                return None;
            }
            let rest = &self.bytes[self.at..];
            let found = match frame(rest) {
                Ok(found) => found,
                Err(fault) => return Some(Err(self.stop(fault))),
            };
            let record = &rest[..found.bytes];
            let kind = u32::from(found.kind);
            if kind == REC_PAD || kind == REC_TIME {
                step(self.state, found, record);
                self.at += found.bytes;
                continue;
            }
            let event = match event(found, record, self.state) {
                Ok(event) => event,
                Err(fault) => return Some(Err(self.stop(fault))),
            };
            step(self.state, found, record);
            self.at += found.bytes;
            if !self.state.bases_known {
                self.state.skipped += 1;
                continue;
            }
            let stamp = Stamp { order: self.state.order, time: self.state.clock.time(self.state.clock_cycles) };
            let thread = self.state.thread.unwrap_or(UNKNOWN_THREAD);
            return Some(Ok(Record { stamp, thread, event }));
        }
    }
}

#[inline]
fn event(found: Frame, record: &[u8], state: &RingState) -> Result<Event, WireFault> {
    let address = VirtAddr(found.value);
    Ok(match u32::from(found.kind) {
        REC_ACCESS => Event::Access(access(found, record)?),
        REC_ALLOC => {
            let packed = word(record, 16);
            alloc(address, u64::from(high(packed)), AllocKind::Malloc, low(packed))
        }
        REC_FREE => Event::Free { address },
        REC_ALLOC_KIND => {
            let packed = word(record, 16);
            alloc(address, u64::from(high(packed)), alloc_kind(found, word(record, 24))?, low(packed))
        }
        REC_ALLOC_BIG => {
            let packed = word(record, 16);
            alloc(address, word(record, 24), alloc_kind(found, u64::from(high(packed)))?, low(packed))
        }
        _ => other_event(found, record, state)?,
    })
}

#[inline]
fn alloc(address: VirtAddr, bytes: u64, kind: AllocKind, stack: u32) -> Event {
    Event::Alloc { address, bytes, kind, stack: StackId(stack) }
}

#[inline]
fn bad(found: Frame, field: &'static str, value: u64) -> WireFault {
    WireFault::Field { kind: found.kind, field, value }
}

#[inline]
fn access(found: Frame, record: &[u8]) -> Result<Access, WireFault> {
    let bits_ip = word(record, 16);
    let stack_weight = word(record, 24);
    let places = word(record, 32);
    let level = match low(bits_ip) >> ACCESS_LEVEL_SHIFT & 0xf {
        LEVEL_UNKNOWN => Level::Unknown,
        LEVEL_L1 => Level::L1,
        LEVEL_L2 => Level::L2,
        LEVEL_L3 => Level::L3,
        LEVEL_MEMORY => Level::Memory,
        LEVEL_PEER_CACHE => Level::PeerCache,
        LEVEL_LINE_FILL => Level::LineFill,
        value => return Err(bad(found, "level", u64::from(value))),
    };
    let home = places as u16;
    let cpu = (places >> 16) as u16;
    let latency = high(places);
    Ok(Access {
        address: VirtAddr(found.value),
        cpu: (cpu != NONE16).then_some(CpuId(u32::from(cpu))),
        node: None,
        home: (home != NONE16).then_some(NodeId(home)),
        is_write: low(bits_ip) & ACCESS_WRITE != 0,
        is_atomic: low(bits_ip) & ACCESS_ATOMIC != 0,
        is_range: low(bits_ip) & ACCESS_RANGE != 0,
        level,
        latency_cycles: (latency != 0).then_some(latency),
        ip: VirtAddr(bits_ip >> 16),
        stack: StackId(low(stack_weight)),
        weight: high(stack_weight),
        page: FaultedPage {
            was_present: match (low(bits_ip) & ACCESS_ABSENT != 0, low(bits_ip) & ACCESS_PRESENT != 0) {
                (true, false) => Some(false),
                (false, true) => Some(true),
                _ => None,
            },
            size_log2: (low(bits_ip) >> ACCESS_PAGE_SHIFT & 0x3f) as u8,
        },
    })
}

fn alloc_kind(found: Frame, value: u64) -> Result<AllocKind, WireFault> {
    Ok(match u32::try_from(value) {
        Ok(ALLOC_MALLOC) => AllocKind::Malloc,
        Ok(ALLOC_CALLOC) => AllocKind::Calloc,
        Ok(ALLOC_REALLOC) => AllocKind::Realloc,
        Ok(ALLOC_ALIGNED) => AllocKind::Aligned,
        Ok(ALLOC_NEW) => AllocKind::New,
        Ok(ALLOC_NEW_ARRAY) => AllocKind::NewArray,
        Ok(ALLOC_NUMA) => AllocKind::Numa,
        Ok(ALLOC_BRK) => AllocKind::Brk,
        Ok(ALLOC_SHM) => AllocKind::Shm,
        _ => return Err(bad(found, "allocation kind", value)),
    })
}

fn other_event(found: Frame, record: &[u8], state: &RingState) -> Result<Event, WireFault> {
    let address = VirtAddr(found.value);
    let second = word(record, 16);
    Ok(match u32::from(found.kind) {
        REC_MAP => Event::Map {
            address,
            bytes: word(record, 24),
            flags: high(second),
            file_offset: word(record, 32),
            path: text(record, 48, u64::from(low(word(record, 40)))),
            stack: StackId(low(second)),
        },
        REC_UNMAP => Event::Unmap { address, bytes: second },
        REC_STACK => stack(found, record)?,
        REC_THREAD_START => thread_start(found, record)?,
        REC_THREAD_END => Event::ThreadEnd { index: ThreadIndex(id(found, "thread index")?) },
        REC_THREAD_NAME => Event::ThreadName { name: text(record, 16, found.value) },
        REC_PROCESS_START => process_start(found, record)?,
        REC_PROCESS_END => Event::ProcessEnd {
            index: ProcessIndex(id(found, "process index")?),
            by_exec: low(second) == 1,
            code: high(second) as i32,
        },
        REC_MODULE => module(found, record)?,
        REC_MODULE_END => Event::ModuleEnd { id: ModuleId(id(found, "module id")?) },
        REC_PLACE => Event::Place {
            address,
            pages: low(second),
            node: node(found, u64::from(high(second) & 0xffff))?,
            cause: u8::try_from(second >> 48).map_err(|_| bad(found, "cause", second >> 48))?,
            toucher: (record.len() > 24).then(|| ThreadIndex(low(word(record, 24)))),
        },
        REC_CPU => Event::Cpu { cpu: CpuId(id(found, "cpu")?), node: node(found, second)? },
        REC_SYNC => Event::Sync { kind: low(second), object: found.value, began: state.clock.time(word(record, 24)) },
        REC_COUNTERS => counters(found, record)?,
        REC_LOST => Event::Lost { count: found.value, cause: low(second) },
        REC_MARK => Event::Mark { text: text(record, 16, found.value) },
        REC_CODE => Event::Code(code(found, record)),
        REC_POOL => Event::Pool { pool: id(found, "pool")?, what: pool_event(found, record)? },
        REC_POOL_ALLOC => Event::PoolAlloc {
            address,
            bytes: word(record, 24),
            pool: high(second),
            stack: StackId(low(second)),
            thread: if record.len() > 32 { known(low(word(record, 32))).map(ThreadIndex) } else { None },
            sample: block_sample(found, record)?,
        },
        REC_POOL_FREE => Event::PoolFree { address, pool: low(second) },
        REC_FILE => Event::File {
            address,
            file: FileIdentity { device: second, inode: word(record, 24), born: word(record, 32) },
            offset: word(record, 40),
            bytes: word(record, 48),
            node: known_node(found, word(record, 56))?,
        },
        _ => return Err(WireFault::UnknownType(found.kind)),
    })
}

fn id(found: Frame, field: &'static str) -> Result<u32, WireFault> {
    u32::try_from(found.value).map_err(|_| bad(found, field, found.value))
}

fn node(found: Frame, value: u64) -> Result<NodeId, WireFault> {
    match u16::try_from(value) {
        Ok(node) if usize::from(node) < MAX_NODES => Ok(NodeId(node)),
        _ => Err(bad(found, "node", value)),
    }
}

fn known_node(found: Frame, value: u64) -> Result<Option<NodeId>, WireFault> {
    if value == u64::from(NONE16) { Ok(None) } else { node(found, value).map(Some) }
}

fn known(value: u32) -> Option<u32> {
    (value != NONE32).then_some(value)
}

/// The text in `length` bytes from byte `at`. Paths and names may be any bytes: what is not UTF-8 becomes replacement characters.
fn text(record: &[u8], at: usize, length: u64) -> String {
    String::from_utf8_lossy(slice(record, at, length)).into_owned()
}

fn slice(record: &[u8], at: usize, length: u64) -> &[u8] {
    let end = at.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(record.len());
    record.get(at..end).unwrap_or_default()
}

fn pool_event(found: Frame, record: &[u8]) -> Result<PoolEvent, WireFault> {
    let second = word(record, 16);
    Ok(match high(second) {
        POOL_CREATED => PoolEvent::Created(text(record, 24, u64::from(low(second)))),
        POOL_RESET => PoolEvent::Reset,
        POOL_DESTROYED => PoolEvent::Destroyed,
        value => return Err(bad(found, "event of a pool", u64::from(value))),
    })
}

/// The last word of a pool's block, which only sampled ones have.
fn block_sample(found: Frame, record: &[u8]) -> Result<Option<BlockSample>, WireFault> {
    if record.len() <= 40 {
        return Ok(None);
    }
    let last = word(record, 40);
    let is_moved = match high(last) {
        POOL_SAMPLED => false,
        POOL_MOVED => true,
        value => return Err(bad(found, "sample of a pool", u64::from(value))),
    };
    Ok(Some(BlockSample { interval_bytes: low(last), is_moved }))
}

fn code(found: Frame, record: &[u8]) -> Code {
    let (texts, third) = (word(record, 16), word(record, 24));
    let (name, file, table) = (u64::from(low(texts)), u64::from(high(texts)), u64::from(low(third)));
    let padded = |bytes: u64| bytes.next_multiple_of(8) as usize;
    let (file_at, table_at) = (40 + padded(name), 40 + padded(name) + padded(file));
    Code {
        id: found.value,
        minor: word(record, 32) as u16,
        name: text(record, 40, name),
        file: text(record, file_at, file),
        first_line: high(third),
        table: slice(record, table_at, table).to_vec(),
    }
}

fn stack(found: Frame, record: &[u8]) -> Result<Event, WireFault> {
    let second = word(record, 16);
    let frames = low(second) as usize;
    let words = record.get(24..24 + frames * 8).unwrap_or_default();
    Ok(Event::Stack {
        id: StackId(id(found, "stack id")?),
        frames: words.chunks_exact(8).map(|frame| VirtAddr(word(frame, 0))).collect(),
        truncated: high(second) & 1 != 0,
        failed: high(second) & 2 != 0,
    })
}

fn thread_start(found: Frame, record: &[u8]) -> Result<Event, WireFault> {
    let identity = word(record, 16);
    let family = word(record, 24);
    let place = word(record, 32);
    let node = match known(high(place)) {
        Some(value) => Some(self::node(found, u64::from(value))?),
        None => None,
    };
    let stack = word(record, 64);
    Ok(Event::ThreadStart {
        index: ThreadIndex(id(found, "thread index")?),
        pid: Pid(low(identity)),
        tid: Tid(high(identity)),
        parent: known(low(family)).map(ThreadIndex),
        process: ProcessIndex(high(family)),
        cpu: known(low(place)).map(CpuId),
        node,
        stack_low: VirtAddr(word(record, 40)),
        stack_high: VirtAddr(word(record, 48)),
        start_routine: VirtAddr(word(record, 56)),
        created_at: StackId(u32::try_from(stack).map_err(|_| bad(found, "creating stack id", stack))?),
    })
}

fn process_start(found: Frame, record: &[u8]) -> Result<Event, WireFault> {
    let pids = word(record, 16);
    let counts = word(record, 24);
    let parent = word(record, 32);
    let exe_bytes = u64::from(low(counts));
    let line_at = 40 + (exe_bytes as usize).next_multiple_of(8);
    let line = slice(record, line_at, u64::from(high(counts)));
    let line = line.strip_suffix(&[0]).unwrap_or(line);
    let arguments = if high(counts) == 0 {
        Vec::new()
    } else {
        line.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
    };
    Ok(Event::ProcessStart {
        index: ProcessIndex(id(found, "process index")?),
        pid: Pid(low(pids)),
        parent_pid: Pid(high(pids)),
        parent: known(low(parent)).map(ProcessIndex),
        by_exec: high(parent) & 1 != 0,
        exe: text(record, 40, exe_bytes),
        arguments,
    })
}

fn module(found: Frame, record: &[u8]) -> Result<Event, WireFault> {
    let counts = word(record, 40);
    let path_bytes = u64::from(low(counts));
    let build_id_at = 48 + (path_bytes as usize).next_multiple_of(8);
    Ok(Event::Module {
        id: ModuleId(id(found, "module id")?),
        address: VirtAddr(word(record, 16)),
        bytes: word(record, 24),
        bias: word(record, 32),
        path: text(record, 48, path_bytes),
        build_id: slice(record, build_id_at, u64::from(high(counts))).to_vec(),
    })
}

fn counters(found: Frame, record: &[u8]) -> Result<Event, WireFault> {
    let nodes = word(record, 72);
    if nodes > MAX_NODES as u64 {
        return Err(bad(found, "node count", nodes));
    }
    // Appended in format 1.1.
    let later = Some(80 + nodes as usize * 8).filter(|at| record.len() >= at + 16);
    Ok(Event::Counters(Box::new(Counters {
        accesses: word(record, 16),
        l2_lookups: word(record, 24),
        l3_lookups: word(record, 32),
        memory_accesses: word(record, 40),
        cache_transfers: word(record, 48),
        memory_writes: word(record, 56),
        wait_cycles: word(record, 64),
        by_home: (0..nodes as usize).map(|node| word(record, 80 + node * 8)).collect(),
        memory_cycles: later.map(|at| word(record, at)),
        memory_streamed: later.map(|at| word(record, at + 8)),
        // Appended in format 1.2.
        memory_dependent: later.filter(|at| record.len() >= at + 24).map(|at| word(record, at + 16)),
    })))
}
