//! Makes the rows of the tables from the joined data and the symbols.

use std::ops::Range;
use std::sync::Arc;

use numapilot_trace::chunk::{Damage, Problem};
use numapilot_trace::record::{AllocKind, BlockSample};
use numapilot_trace::tables::{
    AccessColumns, CounterColumns, CounterRow, FrameColumns, FrameRow, HomeCounterColumns, HomeCounterRow, LossRow,
    ObjectColumns, ObjectRow, ProcessColumns, ProcessRow, StackColumns, StackRow, Table, TableError, ThreadColumns,
    ThreadRow, TraceWriter,
};

use numapilot_trace::tables::schema::ROWS_PER_GROUP;

use crate::join::Joined;
use crate::symbolise::Names;

/// Names of allocation calls in the tables, by [`AllocKind`].
const ALLOC_KINDS: [(AllocKind, &str); 9] = [
    (AllocKind::Malloc, "malloc"),
    (AllocKind::Calloc, "calloc"),
    (AllocKind::Realloc, "realloc"),
    (AllocKind::Aligned, "aligned"),
    (AllocKind::New, "new"),
    (AllocKind::NewArray, "new_array"),
    (AllocKind::Numa, "numa"),
    (AllocKind::Brk, "brk"),
    (AllocKind::Shm, "shm"),
];

/// Their names where only samples are recorded: of an allocation, and of a later place of the block.
const SAMPLED: &str = "sampled";
const MOVED: &str = "moved";

pub(crate) fn alloc_kind_from_name(name: &str) -> Option<AllocKind> {
    ALLOC_KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}

/// How a block was sampled, from its row's `alloc_kind` and `sample_interval_bytes`.
pub(crate) fn sample_from_row(kind: Option<&str>, interval_bytes: Option<u32>) -> Option<BlockSample> {
    let is_moved = match kind? {
        SAMPLED => false,
        MOVED => true,
        _ => return None,
    };
    Some(BlockSample { interval_bytes: interval_bytes?, is_moved })
}

/// Sorts accesses by time, a row group at a time. It reuses its buffers, because fresh memory would cost a page fault for every
/// few rows.
#[derive(Default)]
pub(crate) struct TimeSorter {
    held: AccessColumns,
    sorted: AccessColumns,
    rest: AccessColumns,
    keys: Vec<(u64, u32)>,
}

impl TimeSorter {
    /// Number of rows in the buffer.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Moves rows from `batch` to the buffer; `batch` is empty afterwards and keeps its memory.
    pub fn take(&mut self, batch: &mut AccessColumns) {
        if self.held.len() + batch.len() > self.held.time_ns.capacity() {
            // Reserve once if many rows are expected, instead of growing by doubling.
            let many = if self.held.len() > 4 * batch.len() { 2 * ROWS_PER_GROUP } else { 0 };
            self.held.reserve(batch.len().max(many));
        }
        self.held.append(batch);
    }

    /// Passes the first `rows` rows by time (order stamp among equals), as a range of columns, to `use_them`, and removes them from the buffer.
    pub fn first<E>(
        &mut self,
        rows: usize,
        use_them: impl FnOnce(&AccessColumns, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rows = rows.min(self.held.len());
        if self.held.time_ns.is_sorted() {
            let result = use_them(&self.held, 0..rows);
            self.held.drop_front(rows);
            return result;
        }
        self.keys.clear();
        self.keys.extend(self.held.time_ns.iter().copied().zip(0..));
        // The rows from the last time are a sorted run, which the stable sort exploits.
        self.keys.sort();
        let (first, rest) = self.keys.split_at(rows);
        gather(&self.held, first, &mut self.sorted);
        gather(&self.held, rest, &mut self.rest);
        std::mem::swap(&mut self.held, &mut self.rest);
        use_them(&self.sorted, 0..rows)
    }
}

fn gather(columns: &AccessColumns, keys: &[(u64, u32)], out: &mut AccessColumns) {
    fn pick<T: Copy>(column: &[T], keys: &[(u64, u32)], out: &mut Vec<T>) {
        out.clear();
        out.extend(keys.iter().map(|&(_, row)| column[row as usize]));
    }
    pick(&columns.time_ns, keys, &mut out.time_ns);
    pick(&columns.order, keys, &mut out.order);
    pick(&columns.thread, keys, &mut out.thread);
    pick(&columns.address, keys, &mut out.address);
    pick(&columns.object, keys, &mut out.object);
    pick(&columns.cpu, keys, &mut out.cpu);
    pick(&columns.node, keys, &mut out.node);
    pick(&columns.home, keys, &mut out.home);
    pick(&columns.is_write, keys, &mut out.is_write);
    pick(&columns.is_atomic, keys, &mut out.is_atomic);
    pick(&columns.is_range, keys, &mut out.is_range);
    pick(&columns.level, keys, &mut out.level);
    pick(&columns.latency_cycles, keys, &mut out.latency_cycles);
    pick(&columns.ip, keys, &mut out.ip);
    pick(&columns.location, keys, &mut out.location);
    pick(&columns.stack, keys, &mut out.stack);
    pick(&columns.weight, keys, &mut out.weight);
}

/// Writes every table except `accesses`.
pub(crate) fn write_tables(
    writer: &mut TraceWriter,
    joined: &Joined,
    names: &Names,
    problems: &[Problem],
) -> Result<(), TableError> {
    writer.write(&objects(joined, names))?;
    writer.write(&threads(joined, names))?;
    writer.write(&processes(joined))?;
    writer.write(&joined.modules)?;
    writer.write(&stacks(joined))?;
    writer.write(&frames(names))?;
    writer.write(&joined.placements)?;
    let (counters, by_home) = counters(joined);
    writer.write(&counters)?;
    writer.write(&by_home)?;
    writer.write(&joined.syncs)?;
    let mut losses = joined.lost.clone();
    for problem in problems {
        let (cause, count) = match problem.damage {
            Damage::TornTail => ("chunk_torn", problem.bytes),
            Damage::NoBases(records) => ("no_stamps", records),
            _ => ("chunk_damaged", problem.bytes),
        };
        losses.push(LossRow { time_ns: joined.end.0, thread: None, cause: cause.into(), count });
    }
    writer.write(&losses)?;
    writer.write(&joined.marks)
}

fn objects(joined: &Joined, names: &Names) -> ObjectColumns {
    let kinds = crate::model::ObjectKind::ALL.map(|kind| Arc::<str>::from(kind.word()));
    let calls = ALLOC_KINDS.map(|(_, name)| Arc::<str>::from(name));
    let samples = [SAMPLED, MOVED].map(Arc::<str>::from);
    let mut columns = ObjectColumns::default();
    columns.reserve(joined.objects.len());
    for (object, lifetime) in joined.objects.iter().zip(&joined.lifetimes) {
        let site_id = names.site_of_key[object.site.0 as usize];
        let site = &names.sites[site_id.0 as usize];
        columns.push(ObjectRow {
            object: object.id.0,
            kind: kinds[site.kind as usize].clone(),
            name: site.name.clone(),
            site: site_id.0,
            site_function: site.function.clone(),
            site_file: site.file.clone(),
            site_line: site.line,
            module: site.module.clone(),
            address: object.address.0,
            bytes: object.bytes,
            process: object.process.0,
            thread: object.thread.map(|thread| thread.0),
            cpu: object.cpu.map(|cpu| cpu.0),
            node: object.node.map(|node| node.0),
            birth_ns: object.birth.0,
            death_ns: object.death.map(|time| time.0),
            birth_order: lifetime.birth,
            death_order: lifetime.death,
            stack: object.stack.0,
            alloc_kind: match object.sample {
                Some(sample) => Some(samples[usize::from(sample.is_moved)].clone()),
                None => object.alloc_kind.map(|kind| calls[kind as usize].clone()),
            },
            death_thread: object.death_thread.map(|thread| thread.0),
            sample_interval_bytes: object.sample.map(|sample| sample.interval_bytes),
        });
    }
    columns
}

fn threads(joined: &Joined, names: &Names) -> ThreadColumns {
    let mut columns = ThreadColumns::default();
    for (thread, extra) in joined.threads.iter().zip(&joined.thread_extras) {
        let counters = thread.counters.as_ref();
        let start = names.locations.get(extra.start_location.0 as usize).and_then(|location| location.frames.last());
        columns.push(ThreadRow {
            thread: thread.index.0,
            process: thread.process.0,
            pid: extra.pid.0,
            tid: thread.tid.0,
            name: thread.name.clone(),
            start_function: start.map_or_else(empty, |frame| frame.function.clone()),
            start_routine: extra.start_routine,
            parent: thread.parent.map(|parent| parent.0),
            cpu: thread.cpu.map(|cpu| cpu.0),
            node: thread.node.map(|node| node.0),
            start_ns: thread.start.0,
            end_ns: thread.end.map(|end| end.0),
            start_order: extra.start_order,
            end_order: extra.end_order,
            stack_object: thread.stack_object.map(|object| object.0),
            created_at: extra.created_at.0,
            accesses: counters.map(|counters| counters.accesses),
            memory_accesses: counters.map(|counters| counters.memory_accesses),
            memory_writes: counters.map(|counters| counters.memory_writes),
            cache_transfers: counters.map(|counters| counters.cache_transfers),
            wait_cycles: counters.map(|counters| counters.wait_cycles),
        });
    }
    columns
}

fn processes(joined: &Joined) -> ProcessColumns {
    let mut columns = ProcessColumns::default();
    for (process, extra) in joined.processes.iter().zip(&joined.process_extras) {
        columns.push(ProcessRow {
            process: process.index.0,
            pid: process.pid.0,
            parent_pid: extra.parent_pid.0,
            parent: process.parent.map(|parent| parent.0),
            by_exec: process.by_exec,
            exe: process.exe.clone(),
            arguments: serde_json::Value::from(process.arguments.clone()).to_string().into(),
            start_ns: process.start.0,
            end_ns: process.end.map(|end| end.0),
            exit_code: extra.exit_code.map(|code| code as u32),
        });
    }
    columns
}

fn stacks(joined: &Joined) -> StackColumns {
    let mut columns = StackColumns::default();
    for (stack, raw) in joined.stacks.iter().enumerate() {
        for (depth, (ip, location)) in raw.frames.iter().enumerate().take(usize::from(u16::MAX)) {
            columns.push(StackRow {
                stack: stack as u32,
                depth: depth as u16,
                ip: *ip,
                location: location.0,
                is_cut: raw.is_cut,
            });
        }
    }
    columns
}

fn frames(names: &Names) -> FrameColumns {
    let mut columns = FrameColumns::default();
    for (index, location) in names.locations.iter().enumerate().skip(1) {
        for (depth, frame) in location.frames.iter().enumerate().take(usize::from(u16::MAX)) {
            columns.push(FrameRow {
                location: index as u32,
                depth: depth as u16,
                module: location.module.clone(),
                offset: location.offset,
                function: frame.function.clone(),
                file: frame.file.clone(),
                line: frame.line,
                column: frame.column,
                is_inlined: frame.inlined,
            });
        }
    }
    columns
}

fn counters(joined: &Joined) -> (CounterColumns, HomeCounterColumns) {
    let mut counters = CounterColumns::default();
    let mut by_home = HomeCounterColumns::default();
    for at in &joined.counters {
        let node = at.node.map(|node| node.0);
        counters.push(CounterRow {
            time_ns: at.time.0,
            thread: at.thread.0,
            node,
            accesses: at.totals.accesses,
            l2_lookups: at.totals.l2_lookups,
            l3_lookups: at.totals.l3_lookups,
            memory_accesses: at.totals.memory_accesses,
            cache_transfers: at.totals.cache_transfers,
            memory_writes: at.totals.memory_writes,
            wait_cycles: at.totals.wait_cycles,
            memory_cycles: at.totals.memory_cycles,
            memory_streamed: at.totals.memory_streamed,
            memory_dependent: at.totals.memory_dependent,
        });
        for (home, &accesses) in at.totals.by_home.iter().enumerate().filter(|&(_, &accesses)| accesses > 0) {
            by_home.push(HomeCounterRow {
                time_ns: at.time.0,
                thread: at.thread.0,
                node,
                home: home as u16,
                memory_accesses: accesses,
            });
        }
    }
    (counters, by_home)
}

/// The empty string, shared by all rows.
fn empty() -> Arc<str> {
    Arc::from("")
}
