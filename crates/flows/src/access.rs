//! Accesses in memory: one column per field, rows in order of program time, and the two orders of them (by thread, by object).
//!
//! A row costs 45 bytes and each order 4 more. Rows that share a time keep the order in which they really happened.

use foldhash::{HashMap, HashMapExt};
use numapilot_machine::{CpuId, NodeId};
use numapilot_trace::ids::{ObjectId, StackId, ThreadIndex, TimeNs, VirtAddr};
use numapilot_trace::record::Level;
use numapilot_trace::tables::{AccessColumns, Table};
use serde::Serialize;

use crate::model::LocationId;

/// Of a cache line.
const LINE_BYTES: u64 = 64;
const NO_NODE: u16 = u16::MAX;
const NO_CPU: u32 = u32::MAX;
const NO_OBJECT: u32 = u32::MAX;
const NO_LATENCY: u32 = u32::MAX;

const FLAG_WRITE: u8 = 1;
const FLAG_ATOMIC: u8 = 2;
const FLAG_RANGE: u8 = 4;
const LEVEL_SHIFT: u8 = 4;

/// One access, with everything the join found out about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AccessRef {
    /// Its row: rows are in order of time.
    pub row: u32,
    /// Program time.
    pub time: TimeNs,
    /// Thread that made it.
    pub thread: ThreadIndex,
    /// Object that was live at that address then; `None` where none is known.
    pub object: Option<ObjectId>,
    /// Address accessed.
    pub address: VirtAddr,
    /// Resolved code address of the access.
    pub location: LocationId,
    /// Call stack; 0 where unknown.
    pub stack: StackId,
    /// CPU.
    pub cpu: Option<CpuId>,
    /// Node of that CPU.
    pub node: Option<NodeId>,
    /// Home node of the page at that moment.
    pub home: Option<NodeId>,
    /// Store or read-modify-write.
    pub is_write: bool,
    /// Atomic operation.
    pub is_atomic: bool,
    /// Part of a ranged operation.
    pub is_range: bool,
    /// Level that answered.
    #[serde(skip)]
    pub level: Level,
    /// Latency in cycles, where the engine knows it.
    pub latency_cycles: Option<u32>,
    /// How many memory accesses it stands for.
    pub weight: u32,
    /// How many accesses all samples of its cache line (in its address space) stand for, where only some lines were simulated:
    /// they were chosen together. Its own weight where every line was.
    pub cluster: f64,
}

impl AccessRef {
    /// Whether it crossed nodes; `None` where node or home is unknown.
    #[inline]
    #[must_use]
    pub fn is_remote(&self) -> Option<bool> {
        Some(self.node? != self.home?)
    }

    /// Whether it left the core's own caches, as far as is known: recordings of the hardware hold hits, too, which are no memory accesses.
    #[inline]
    #[must_use]
    pub fn is_memory_access(&self) -> bool {
        !matches!(self.level, Level::L1 | Level::L2 | Level::L3 | Level::LineFill)
    }

    /// An access with nothing known but its address: a start for builders and tests.
    #[must_use]
    pub fn at(address: u64) -> AccessRef {
        AccessRef {
            row: 0,
            time: TimeNs(0),
            thread: ThreadIndex(0),
            object: None,
            address: VirtAddr(address),
            location: LocationId(0),
            stack: StackId(0),
            cpu: None,
            node: None,
            home: None,
            is_write: false,
            is_atomic: false,
            is_range: false,
            level: Level::Unknown,
            latency_cycles: None,
            weight: 1,
            cluster: 1.0,
        }
    }
}

/// The columns.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    time: Vec<u64>,
    address: Vec<u64>,
    thread: Vec<u32>,
    object: Vec<u32>,
    location: Vec<u32>,
    stack: Vec<u32>,
    weight: Vec<u32>,
    /// Empty where every cache line was simulated.
    cluster: Vec<f32>,
    latency: Vec<u32>,
    cpu: Vec<u32>,
    node: Vec<u16>,
    home: Vec<u16>,
    flags: Vec<u8>,
}

impl Accesses {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Makes room for `rows` more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.time.reserve(rows);
        self.address.reserve(rows);
        self.thread.reserve(rows);
        self.object.reserve(rows);
        self.location.reserve(rows);
        self.stack.reserve(rows);
        self.weight.reserve(rows);
        self.latency.reserve(rows);
        self.cpu.reserve(rows);
        self.node.reserve(rows);
        self.home.reserve(rows);
        self.flags.reserve(rows);
    }

    /// Appends a row; its `row` field is ignored.
    pub fn push(&mut self, access: &AccessRef) {
        self.time.push(access.time.0);
        self.address.push(access.address.0);
        self.thread.push(access.thread.0);
        self.object.push(access.object.map_or(NO_OBJECT, |o| o.0));
        self.location.push(access.location.0);
        self.stack.push(access.stack.0);
        self.weight.push(access.weight);
        self.latency.push(access.latency_cycles.unwrap_or(NO_LATENCY));
        self.cpu.push(access.cpu.map_or(NO_CPU, |c| c.0));
        self.node.push(access.node.map_or(NO_NODE, |n| n.0));
        self.home.push(access.home.map_or(NO_NODE, |n| n.0));
        let mut flags = (access.level as u8) << LEVEL_SHIFT;
        flags |= if access.is_write { FLAG_WRITE } else { 0 };
        flags |= if access.is_atomic { FLAG_ATOMIC } else { 0 };
        flags |= if access.is_range { FLAG_RANGE } else { 0 };
        self.flags.push(flags);
    }

    /// Appends rows of the table.
    pub(crate) fn append(&mut self, mut columns: AccessColumns) {
        self.reserve(columns.len());
        let flags = |row: usize| {
            let bit = |set: bool, flag: u8| if set { flag } else { 0 };
            bit(columns.is_write[row], FLAG_WRITE)
                | bit(columns.is_atomic[row], FLAG_ATOMIC)
                | bit(columns.is_range[row], FLAG_RANGE)
                | (level_from_number(columns.level[row]) as u8) << LEVEL_SHIFT
        };
        self.flags.extend((0..columns.len()).map(flags));
        self.object.extend(columns.object.iter().map(|object| object.unwrap_or(NO_OBJECT)));
        self.latency.extend(columns.latency_cycles.iter().map(|latency| latency.unwrap_or(NO_LATENCY)));
        self.cpu.extend(columns.cpu.iter().map(|cpu| cpu.unwrap_or(NO_CPU)));
        self.node.extend(columns.node.iter().map(|node| node.unwrap_or(NO_NODE)));
        self.home.extend(columns.home.iter().map(|home| home.unwrap_or(NO_NODE)));
        self.time.append(&mut columns.time_ns);
        self.address.append(&mut columns.address);
        self.thread.append(&mut columns.thread);
        self.location.append(&mut columns.location);
        self.stack.append(&mut columns.stack);
        self.weight.append(&mut columns.weight);
    }

    /// Whether every access names an object and a thread that are there; says which does not.
    pub(crate) fn check(&self, objects: usize, threads: usize) -> Result<(), String> {
        let bad_object = self.object.iter().position(|&object| object != NO_OBJECT && object as usize >= objects);
        if let Some(row) = bad_object {
            return Err(format!("access {row} names object {}, and there are {objects}", self.object[row]));
        }
        match self.thread.iter().position(|&thread| thread as usize >= threads) {
            Some(row) => Err(format!("access {row} names thread {}, and there are {threads}", self.thread[row])),
            None => Ok(()),
        }
    }

    /// The row, put together.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[must_use]
    pub fn get(&self, row: usize) -> AccessRef {
        let flags = self.flags[row];
        AccessRef {
            row: row as u32,
            time: TimeNs(self.time[row]),
            thread: ThreadIndex(self.thread[row]),
            object: some_unless(self.object[row], NO_OBJECT).map(ObjectId),
            address: VirtAddr(self.address[row]),
            location: LocationId(self.location[row]),
            stack: StackId(self.stack[row]),
            cpu: some_unless(self.cpu[row], NO_CPU).map(CpuId),
            node: some_unless(self.node[row], NO_NODE).map(NodeId),
            home: some_unless(self.home[row], NO_NODE).map(NodeId),
            is_write: flags & FLAG_WRITE != 0,
            is_atomic: flags & FLAG_ATOMIC != 0,
            is_range: flags & FLAG_RANGE != 0,
            level: level_from_number(flags >> LEVEL_SHIFT),
            latency_cycles: some_unless(self.latency[row], NO_LATENCY),
            weight: self.weight[row],
            cluster: self.cluster.get(row).map_or_else(|| f64::from(self.weight[row]), |&weight| f64::from(weight)),
        }
    }

    /// Rows in order of time.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = AccessRef> + '_ {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Puts the rows in order of time, keeping the present order among equals.
    pub fn sort_by_time(&mut self) {
        if self.time.is_sorted() {
            return;
        }
        let mut rows: Vec<u32> = (0..self.len() as u32).collect();
        rows.sort_by_key(|&row| self.time[row as usize]);
        permute(&mut self.time, &rows);
        permute(&mut self.address, &rows);
        permute(&mut self.thread, &rows);
        permute(&mut self.object, &rows);
        permute(&mut self.location, &rows);
        permute(&mut self.stack, &rows);
        permute(&mut self.weight, &rows);
        permute(&mut self.latency, &rows);
        permute(&mut self.cpu, &rows);
        permute(&mut self.node, &rows);
        permute(&mut self.home, &rows);
        permute(&mut self.flags, &rows);
    }

    /// Finds the weight of each row's cluster: all samples of one cache line in one address space. `space` tells a thread's.
    /// To be called when the rows have their final order.
    pub(crate) fn cluster_by_line(&mut self, space: impl Fn(ThreadIndex) -> u32) {
        let key = |row: usize| (space(ThreadIndex(self.thread[row])), self.address[row] / LINE_BYTES);
        let mut weights: HashMap<(u32, u64), f32> = HashMap::new();
        for row in 0..self.len() {
            *weights.entry(key(row)).or_default() += self.weight[row] as f32;
        }
        self.cluster = (0..self.len()).map(|row| weights[&key(row)]).collect();
    }

    /// Time stamps of all rows, in nanoseconds of program time.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.time
    }

    pub(crate) fn thread_order(&self) -> Order {
        Order::new(&self.thread)
    }

    pub(crate) fn object_order(&self) -> Order {
        Order::new(&self.object)
    }
}

#[inline]
fn some_unless<T: PartialEq + Copy>(value: T, none: T) -> Option<T> {
    (value != none).then_some(value)
}

fn permute<T: Copy>(column: &mut Vec<T>, rows: &[u32]) {
    *column = rows.iter().map(|&row| column[row as usize]).collect();
}

/// The level with this number; unknown numbers are [`Level::Unknown`].
#[inline]
#[must_use]
pub fn level_from_number(number: u8) -> Level {
    match number {
        1 => Level::L1,
        2 => Level::L2,
        3 => Level::L3,
        4 => Level::Memory,
        5 => Level::PeerCache,
        6 => Level::LineFill,
        _ => Level::Unknown,
    }
}

/// Rows grouped by a key column, in order of time within each group (compressed sparse rows). Keys of `u32::MAX` are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl Order {
    fn new(keys: &[u32]) -> Order {
        let groups = keys.iter().filter(|&&key| key != u32::MAX).max().map_or(0, |&key| key as usize + 1);
        let mut starts = vec![0u32; groups + 1];
        for &key in keys.iter().filter(|&&key| key != u32::MAX) {
            starts[key as usize + 1] += 1;
        }
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut rows = vec![0u32; starts[groups] as usize];
        for (row, &key) in keys.iter().enumerate().filter(|&(_, &key)| key != u32::MAX) {
            rows[next[key as usize] as usize] = row as u32;
            next[key as usize] += 1;
        }
        Order { starts, rows }
    }

    pub(crate) fn group(&self, key: u32) -> &[u32] {
        let key = key as usize;
        match (self.starts.get(key), self.starts.get(key + 1)) {
            (Some(&from), Some(&to)) => &self.rows[from as usize..to as usize],
            _ => &[],
        }
    }
}
