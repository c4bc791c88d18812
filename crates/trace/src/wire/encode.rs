//! Encodes [`Record`]s as bytes of a ring. In production the C runtime writes the rings; this encoder is for tests, generators, and records that
//! the recorder itself adds.

use super::Clock;
use super::layout::*;
use crate::ids::Order;
use crate::record::{Access, AllocKind, Code, Counters, Event, PoolEvent, Record};

const VALUE_MASK: u64 = (1 << 48) - 1;

/// Encodes one ring's records. Values that the format cannot hold (addresses from 2^48, CPUs from 65,535) are truncated to their field's width.
#[derive(Clone, Debug)]
pub struct Encoder {
    clock: Clock,
    bases: Option<(Order, u64)>,
    words: Vec<u64>,
}

fn pack(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn or_none<T>(value: Option<T>, get: impl Fn(T) -> u32) -> u32 {
    value.map_or(NONE32, get)
}

impl Encoder {
    /// An encoder at the start of a ring.
    #[must_use]
    pub fn new(clock: Clock) -> Encoder {
        Encoder { clock, bases: None, words: Vec::new() }
    }

    /// Appends `record` to `out`, after a time record where its stamps need one. `record.thread` is not written: a ring's thread follows
    /// from its [`Event::ThreadStart`].
    pub fn encode(&mut self, record: &Record, out: &mut Vec<u8>) {
        let order = record.stamp.order;
        let clock = self.clock.cycles(record.stamp.time);
        let deltas = self.bases.and_then(|(base_order, base_clock)| {
            let order_delta = u32::try_from(order.0.checked_sub(base_order.0)?).ok()?;
            let clock_delta = u32::try_from(clock.checked_sub(base_clock)?).ok()?;
            Some(pack(order_delta, clock_delta))
        });
        let deltas = deltas.unwrap_or_else(|| {
            for word in [u64::from(REC_TIME) | 4 << 8, 0, order.0, clock] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            0
        });
        self.bases = Some((order, clock));
        self.words.clear();
        let (kind, value) = self.event(&record.event);
        let words = self.words.len() as u64 + 2;
        let length = if words > 255 { 0 } else { words };
        out.extend_from_slice(&(u64::from(kind) | length << 8 | (value & VALUE_MASK) << 16).to_le_bytes());
        out.extend_from_slice(&deltas.to_le_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Appends padding of `bytes`, a multiple of 8, as at the end of a ring.
    pub fn pad(bytes: usize, out: &mut Vec<u8>) {
        if bytes >= 8 {
            out.extend_from_slice(&(u64::from(REC_PAD) | 1 << 8 | (bytes as u64) << 16).to_le_bytes());
            out.resize(out.len() + bytes - 8, 0);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_le_bytes(word));
        }
    }

    fn event(&mut self, event: &Event) -> (u32, u64) {
        match event {
            Event::Access(access) => self.access(access),
            Event::Alloc { address, bytes, kind, stack } => (self.alloc(*bytes, *kind, stack.0), address.0),
            Event::Free { address } => (REC_FREE, address.0),
            Event::Map { address, bytes, flags, file_offset, path, stack } => {
                self.words.extend([pack(stack.0, *flags), *bytes, *file_offset, path.len() as u64]);
                self.bytes(path.as_bytes());
                (REC_MAP, address.0)
            }
            Event::Unmap { address, bytes } => {
                self.words.push(*bytes);
                (REC_UNMAP, address.0)
            }
            Event::Stack { id, frames, truncated, failed } => {
                let flags = u32::from(*truncated) | u32::from(*failed) << 1;
                self.words.push(pack(frames.len() as u32, flags));
                self.words.extend(frames.iter().map(|frame| frame.0));
                (REC_STACK, u64::from(id.0))
            }
            Event::ThreadStart { .. } | Event::ThreadEnd { .. } | Event::ThreadName { .. } => self.thread(event),
            Event::ProcessStart { .. } | Event::ProcessEnd { .. } => self.process(event),
            Event::Module { .. } => self.module(event),
            Event::ModuleEnd { id } => (REC_MODULE_END, u64::from(id.0)),
            Event::Place { address, pages, node, cause, toucher } => {
                self.words.push(pack(*pages, u32::from(node.0) | u32::from(*cause) << 16));
                self.words.extend(toucher.map(|toucher| u64::from(toucher.0)));
                (REC_PLACE, address.0)
            }
            Event::Cpu { cpu, node } => {
                self.words.push(u64::from(node.0));
                (REC_CPU, u64::from(cpu.0))
            }
            Event::Sync { kind, object, began } => {
                self.words.extend([u64::from(*kind), self.clock.cycles(*began)]);
                (REC_SYNC, *object)
            }
            Event::Counters(counters) => self.counters(counters),
            Event::Lost { count, cause } => {
                self.words.push(u64::from(*cause));
                (REC_LOST, *count)
            }
            Event::Mark { text } => {
                self.bytes(text.as_bytes());
                (REC_MARK, text.len() as u64)
            }
            Event::Code(code) => self.code(code),
            Event::Pool { pool, what } => self.pool(*pool, what),
            Event::PoolAlloc { address, bytes, pool, stack, thread, sample } => {
                self.words.extend([pack(stack.0, *pool), *bytes]);
                if thread.is_some() || sample.is_some() {
                    self.words.push(u64::from(or_none(*thread, |thread| thread.0)));
                }
                self.words.extend(sample.map(|sample| {
                    pack(sample.interval_bytes, if sample.is_moved { POOL_MOVED } else { POOL_SAMPLED })
                }));
                (REC_POOL_ALLOC, address.0)
            }
            Event::File { .. } => self.file(event),
            Event::PoolFree { address, pool } => {
                self.words.push(u64::from(*pool));
                (REC_POOL_FREE, address.0)
            }
        }
    }

    fn module(&mut self, event: &Event) -> (u32, u64) {
        let Event::Module { id, address, bytes, bias, path, build_id } = event else { return (0, 0) };
        let counts = pack(path.len() as u32, build_id.len() as u32);
        self.words.extend([address.0, *bytes, *bias, counts]);
        self.bytes(path.as_bytes());
        self.bytes(build_id);
        (REC_MODULE, u64::from(id.0))
    }

    fn file(&mut self, event: &Event) -> (u32, u64) {
        let Event::File { address, file, offset, bytes, node } = event else { return (0, 0) };
        let node = node.map_or(u64::from(NONE16), |node| u64::from(node.0));
        self.words.extend([file.device, file.inode, file.born, *offset, *bytes, node]);
        (REC_FILE, address.0)
    }

    fn access(&mut self, access: &Access) -> (u32, u64) {
        let mut bits = (access.level as u32) << ACCESS_LEVEL_SHIFT;
        for (set, bit) in
            [(access.is_write, ACCESS_WRITE), (access.is_atomic, ACCESS_ATOMIC), (access.is_range, ACCESS_RANGE)]
        {
            bits |= if set { bit } else { 0 };
        }
        bits |= u32::from(access.page.size_log2 & 0x3f) << ACCESS_PAGE_SHIFT;
        bits |= match access.page.was_present {
            None => 0,
            Some(false) => ACCESS_ABSENT,
            Some(true) => ACCESS_PRESENT,
        };
        let home = access.home.map_or(NONE16, |node| node.0);
        let cpu = access.cpu.map_or(NONE16, |cpu| cpu.0 as u16);
        self.words.extend([
            u64::from(bits) | (access.ip.0 & VALUE_MASK) << 16,
            pack(access.stack.0, access.weight),
            pack(u32::from(home) | u32::from(cpu) << 16, access.latency_cycles.unwrap_or(0)),
        ]);
        (REC_ACCESS, access.address.0)
    }

    fn alloc(&mut self, bytes: u64, kind: AllocKind, stack: u32) -> u32 {
        match u32::try_from(bytes) {
            Ok(bytes) if kind == AllocKind::Malloc => {
                self.words.push(pack(stack, bytes));
                REC_ALLOC
            }
            Ok(bytes) => {
                self.words.extend([pack(stack, bytes), kind as u64]);
                REC_ALLOC_KIND
            }
            Err(_) => {
                self.words.extend([pack(stack, kind as u32), bytes]);
                REC_ALLOC_BIG
            }
        }
    }

    fn code(&mut self, code: &Code) -> (u32, u64) {
        self.words.push(pack(code.name.len() as u32, code.file.len() as u32));
        self.words.push(pack(code.table.len() as u32, code.first_line));
        self.words.push(u64::from(code.minor));
        self.bytes(code.name.as_bytes());
        self.bytes(code.file.as_bytes());
        self.bytes(&code.table);
        (REC_CODE, code.id)
    }

    fn pool(&mut self, pool: u32, what: &PoolEvent) -> (u32, u64) {
        let (name, number) = match what {
            PoolEvent::Created(name) => (name.as_str(), POOL_CREATED),
            PoolEvent::Reset => ("", POOL_RESET),
            PoolEvent::Destroyed => ("", POOL_DESTROYED),
        };
        self.words.push(pack(name.len() as u32, number));
        self.bytes(name.as_bytes());
        (REC_POOL, u64::from(pool))
    }

    fn thread(&mut self, event: &Event) -> (u32, u64) {
        match event {
            Event::ThreadStart {
                index,
                pid,
                tid,
                parent,
                process,
                cpu,
                node,
                stack_low,
                stack_high,
                start_routine,
                created_at,
            } => {
                self.words.extend([
                    pack(pid.0, tid.0),
                    pack(or_none(*parent, |thread| thread.0), process.0),
                    pack(or_none(*cpu, |cpu| cpu.0), or_none(*node, |node| u32::from(node.0))),
                    stack_low.0,
                    stack_high.0,
                    start_routine.0,
                    u64::from(created_at.0),
                ]);
                (REC_THREAD_START, u64::from(index.0))
            }
            Event::ThreadEnd { index } => (REC_THREAD_END, u64::from(index.0)),
            Event::ThreadName { name } => {
                self.bytes(name.as_bytes());
                (REC_THREAD_NAME, name.len() as u64)
            }
            _ => unreachable!("only thread events come here"),
        }
    }

    fn process(&mut self, event: &Event) -> (u32, u64) {
        match event {
            Event::ProcessStart { index, pid, parent_pid, parent, by_exec, exe, arguments } => {
                let mut line = arguments.join("\0");
                if !arguments.is_empty() {
                    line.push('\0');
                }
                self.words.extend([
                    pack(pid.0, parent_pid.0),
                    pack(exe.len() as u32, line.len() as u32),
                    pack(or_none(*parent, |process| process.0), u32::from(*by_exec)),
                ]);
                self.bytes(exe.as_bytes());
                self.bytes(line.as_bytes());
                (REC_PROCESS_START, u64::from(index.0))
            }
            Event::ProcessEnd { index, by_exec, code } => {
                self.words.push(pack(u32::from(*by_exec), *code as u32));
                (REC_PROCESS_END, u64::from(index.0))
            }
            _ => unreachable!("only process events come here"),
        }
    }

    fn counters(&mut self, counters: &Counters) -> (u32, u64) {
        self.words.extend([
            counters.accesses,
            counters.l2_lookups,
            counters.l3_lookups,
            counters.memory_accesses,
            counters.cache_transfers,
            counters.memory_writes,
            counters.wait_cycles,
            counters.by_home.len() as u64,
        ]);
        self.words.extend(&counters.by_home);
        // Both or neither are present; the record's length shows which.
        if let (Some(cycles), Some(streamed)) = (counters.memory_cycles, counters.memory_streamed) {
            self.words.extend([cycles, streamed]);
            self.words.extend(counters.memory_dependent);
        }
        (REC_COUNTERS, 0)
    }
}
