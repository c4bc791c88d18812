//! Accesses in memory: rows in order of program time, and two indexes of them (by thread, by object).
//!
//! A row takes 56 bytes, and 4 more in each index. Rows are stored whole, not by column: a flow reads rows that are far apart, and a row then costs one
//! cache miss instead of thirteen. Rows with the same time keep the order in which they really happened.

use std::hint::black_box;

use foldhash::{HashMap, HashMapExt};
use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId, Packed};
use numapilot_trace::ids::{ObjectId, StackId, ThreadIndex, TimeNs};
use numapilot_trace::record::Level;
use numapilot_trace::tables::{AccessColumns, Table};
use serde::Serialize;

use crate::model::LocationId;

/// Size of a cache line.
const LINE_BYTES: u64 = 64;
const NO_CPU: u32 = u32::MAX;
const NO_OBJECT: u32 = u32::MAX;
const NO_LATENCY: u32 = u32::MAX;

const FLAG_WRITE: u8 = 1;
const FLAG_ATOMIC: u8 = 2;
const FLAG_RANGE: u8 = 4;
const LEVEL_SHIFT: u8 = 4;

/// One sampled access, with the object, location and home that the join determined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AccessRef {
    /// Number of its row; rows are in order of time.
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
    /// CPU that executed it.
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
    /// Level that served it.
    #[serde(skip)]
    pub level: Level,
    /// Latency in cycles, if the engine measures it.
    pub latency_cycles: Option<u32>,
    /// Number of memory accesses that it represents.
    pub weight: u32,
    /// Number of accesses that all samples of its cache line (in its address space) represent, if only some lines were simulated, because
    /// these samples were chosen together. Its own weight if every line was simulated.
    pub cluster: f64,
}

impl AccessRef {
    /// Whether it is remote; `None` if node or home is unknown.
    #[inline]
    #[must_use]
    pub fn is_remote(&self) -> Option<bool> {
        Some(self.node? != self.home?)
    }

    /// Whether it missed the core's own caches, as far as is known. Hardware recordings also hold cache hits, which are not memory accesses.
    #[inline]
    #[must_use]
    pub fn is_memory_access(&self) -> bool {
        !matches!(self.level, Level::L1 | Level::L2 | Level::L3 | Level::LineFill)
    }

    /// An access of which only the address is known, for builders and tests.
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

/// One access, in packed form.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    time: u64,
    address: u64,
    thread: u32,
    object: u32,
    location: u32,
    stack: u32,
    weight: u32,
    /// As [`AccessRef::cluster`]; 0 means its own weight.
    cluster: f32,
    latency: u32,
    cpu: u32,
    node: Packed<NodeId, u16>,
    home: Packed<NodeId, u16>,
    flags: u8,
}

/// The accesses of a trace, as packed rows.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    rows: Vec<Row>,
}

impl Accesses {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Reserves memory for `rows` more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
    }

    /// Appends a row; its field `row` is ignored, and a cluster that is lighter than the row itself is none.
    pub fn push(&mut self, access: &AccessRef) {
        self.rows.push(Row {
            time: access.time.0,
            address: access.address.0,
            thread: access.thread.0,
            object: access.object.map_or(NO_OBJECT, |o| o.0),
            location: access.location.0,
            stack: access.stack.0,
            weight: access.weight,
            cluster: if access.cluster > f64::from(access.weight) { access.cluster as f32 } else { 0.0 },
            latency: access.latency_cycles.unwrap_or(NO_LATENCY),
            cpu: access.cpu.map_or(NO_CPU, |c| c.0),
            node: access.node.into(),
            home: access.home.into(),
            flags: flags(access.is_write, access.is_atomic, access.is_range, access.level),
        });
    }

    /// Appends the rows of the table `accesses`.
    pub(crate) fn append(&mut self, columns: &AccessColumns) {
        let row = |row: usize| Row {
            time: columns.time_ns[row],
            address: columns.address[row],
            thread: columns.thread[row],
            object: columns.object[row].unwrap_or(NO_OBJECT),
            location: columns.location[row],
            stack: columns.stack[row],
            weight: columns.weight[row],
            cluster: 0.0,
            latency: columns.latency_cycles[row].unwrap_or(NO_LATENCY),
            cpu: columns.cpu[row].unwrap_or(NO_CPU),
            node: columns.node[row].map(NodeId).into(),
            home: columns.home[row].map(NodeId).into(),
            flags: flags(
                columns.is_write[row],
                columns.is_atomic[row],
                columns.is_range[row],
                level_from_number(columns.level[row]),
            ),
        };
        self.rows.extend((0..columns.len()).map(row));
    }

    /// Checks that every access refers to an existing object and thread; the error names the first that does not.
    pub(crate) fn check(&self, objects: usize, threads: usize) -> Result<(), String> {
        let bad_object = |row: &Row| row.object != NO_OBJECT && row.object as usize >= objects;
        let bad_thread = |row: &Row| row.thread as usize >= threads;
        let Some(at) = self.rows.iter().position(|row| bad_object(row) || bad_thread(row)) else { return Ok(()) };
        let row = &self.rows[at];
        Err(match bad_object(row) {
            true => format!("access {at} names object {}, and there are {objects}", row.object),
            false => format!("access {at} names thread {}, and there are {threads}", row.thread),
        })
    }

    /// The row, unpacked.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[must_use]
    pub fn get(&self, row: usize) -> AccessRef {
        self.rows[row].unpacked(row as u32)
    }

    /// Prefetches these rows into the caches, by independent reads that the memory system overlaps.
    #[inline]
    pub(crate) fn fetch(&self, rows: &[u32]) {
        // A row may span two cache lines.
        let ends = |row: &u32| self.rows.get(*row as usize).map_or(0, |row| row.time ^ u64::from(row.flags));
        black_box(rows.iter().map(ends).fold(0, |all, one| all ^ one));
    }

    /// Iterates over the rows in order of time.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = AccessRef> + '_ {
        self.walk(0..self.rows.len() as u32)
    }

    /// Iterates over the rows with these numbers; skipped rows cost nothing.
    pub(crate) fn walk<R: ExactSizeIterator<Item = u32>>(&self, numbers: R) -> Walk<'_, R> {
        Walk { accesses: self, numbers }
    }

    /// Puts the rows in order of time, keeping the present order among equals.
    pub fn sort_by_time(&mut self) {
        if !self.rows.is_sorted_by_key(|row| row.time) {
            self.rows.sort_by_key(|row| row.time);
        }
    }

    /// Computes the weight of each row's cluster: all samples of one cache line in one address space. `space` gives a thread's
    /// address space. Call it when the rows have their final order.
    pub(crate) fn cluster_by_line(&mut self, space: impl Fn(ThreadIndex) -> u32) {
        let mut clusters: HashMap<(u32, u64), u32> = HashMap::new();
        // A sum of 32 bits would grow no more beyond 2^24 samples of one line.
        let mut weights: Vec<f64> = Vec::new();
        // A row's cluster is remembered: looking it up once more would cost another miss of the caches for each row.
        let mut cluster_of: Vec<u32> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let next = weights.len() as u32;
            let key = (space(ThreadIndex(row.thread)), row.address / LINE_BYTES);
            let cluster = *clusters.entry(key).or_insert(next);
            if cluster == next {
                weights.push(0.0);
            }
            weights[cluster as usize] += f64::from(row.weight);
            cluster_of.push(cluster);
        }
        for (row, cluster) in self.rows.iter_mut().zip(cluster_of) {
            row.cluster = weights[cluster as usize] as f32;
        }
    }

    pub(crate) fn thread_order(&self) -> Order {
        Order::new(self.rows.len(), |row| self.rows[row].thread)
    }

    pub(crate) fn object_order(&self) -> Order {
        Order::new(self.rows.len(), |row| self.rows[row].object)
    }
}

/// Iterator over rows by their numbers. It does not unpack skipped rows, so that a flow in batches resumes cheaply where the last batch ended.
pub(crate) struct Walk<'a, R> {
    accesses: &'a Accesses,
    numbers: R,
}

impl<R: ExactSizeIterator<Item = u32>> Iterator for Walk<'_, R> {
    type Item = AccessRef;

    #[inline]
    fn next(&mut self) -> Option<AccessRef> {
        self.numbers.next().map(|row| self.accesses.get(row as usize))
    }

    #[inline]
    fn nth(&mut self, count: usize) -> Option<AccessRef> {
        self.numbers.nth(count).map(|row| self.accesses.get(row as usize))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl<R: ExactSizeIterator<Item = u32>> ExactSizeIterator for Walk<'_, R> {}

impl Row {
    #[inline]
    fn unpacked(&self, row: u32) -> AccessRef {
        AccessRef {
            row,
            time: TimeNs(self.time),
            thread: ThreadIndex(self.thread),
            object: some_unless(self.object, NO_OBJECT).map(ObjectId),
            address: VirtAddr(self.address),
            location: LocationId(self.location),
            stack: StackId(self.stack),
            cpu: some_unless(self.cpu, NO_CPU).map(CpuId),
            node: self.node.id(),
            home: self.home.id(),
            is_write: self.flags & FLAG_WRITE != 0,
            is_atomic: self.flags & FLAG_ATOMIC != 0,
            is_range: self.flags & FLAG_RANGE != 0,
            level: level_from_number(self.flags >> LEVEL_SHIFT),
            latency_cycles: some_unless(self.latency, NO_LATENCY),
            weight: self.weight,
            cluster: if self.cluster > 0.0 { f64::from(self.cluster) } else { f64::from(self.weight) },
        }
    }
}

fn flags(is_write: bool, is_atomic: bool, is_range: bool, level: Level) -> u8 {
    let bit = |set: bool, flag: u8| if set { flag } else { 0 };
    bit(is_write, FLAG_WRITE) | bit(is_atomic, FLAG_ATOMIC) | bit(is_range, FLAG_RANGE) | (level as u8) << LEVEL_SHIFT
}

#[inline]
fn some_unless<T: PartialEq + Copy>(value: T, none: T) -> Option<T> {
    (value != none).then_some(value)
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
    /// `key` of each of `rows` rows.
    fn new(rows: usize, key: impl Fn(usize) -> u32) -> Order {
        // A row is fourteen times as wide as its key, so the rows are read from memory once, and the keys three times.
        let keys: Vec<u32> = (0..rows).map(key).collect();
        let keyed = || keys.iter().copied().enumerate().filter(|&(_, key)| key != u32::MAX);
        let groups = keyed().map(|(_, key)| key as usize + 1).max().unwrap_or(0);
        let mut starts = vec![0u32; groups + 1];
        for (_, key) in keyed() {
            starts[key as usize + 1] += 1;
        }
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut rows = vec![0u32; starts[groups] as usize];
        for (row, key) in keyed() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rows: u32) -> Accesses {
        let mut accesses = Accesses::default();
        for row in 0..rows {
            let object = (row % 3 > 0).then_some(ObjectId(row % 7));
            // Times that repeat, and sometimes decrease.
            let time = TimeNs(u64::from(row / 2 + 5 * (row % 11)));
            let (thread, weight, node) = (ThreadIndex(row % 4), row + 1, (row % 5 > 0).then_some(NodeId(3)));
            let (is_write, level) = (row % 2 == 0, Level::PeerCache);
            accesses.push(&AccessRef {
                time,
                thread,
                object,
                weight,
                node,
                is_write,
                level,
                ..AccessRef::at(u64::from(row) * 64)
            });
        }
        accesses
    }

    #[test]
    fn rows_come_back_as_they_were_given_and_in_order_of_time() {
        let mut accesses = made(100);
        let given: Vec<AccessRef> = accesses.iter().collect();
        assert_eq!(
            (given[5].weight, given[5].object, given[5].node, given[6].node),
            (6, Some(ObjectId(5)), None, Some(NodeId(3)))
        );
        assert!(
            given[4].is_write && !given[5].is_write && given[5].level == Level::PeerCache && given[5].cpu.is_none()
        );
        accesses.sort_by_time();
        let mut expected = given;
        expected.sort_by_key(|access| access.time);
        for (row, (found, expected)) in accesses.iter().zip(&expected).enumerate() {
            assert_eq!(found, AccessRef { row: row as u32, ..*expected });
        }
    }

    #[test]
    fn a_walk_that_goes_on_in_pieces_sees_every_row_once() {
        let accesses = made(100);
        let order = accesses.thread_order();
        let rows = order.group(2);
        let whole: Vec<u32> = accesses.walk(rows.iter().copied()).map(|access| access.row).collect();
        assert_eq!(whole, rows);
        for piece in [1, 3, 24, 25, 26] {
            let mut pieces = Vec::new();
            while pieces.len() < rows.len() {
                let rest = accesses.walk(rows.iter().copied()).skip(pieces.len());
                assert_eq!(rest.len(), rows.len() - pieces.len());
                pieces.extend(rest.take(piece).map(|access| access.row));
            }
            assert_eq!(pieces, whole);
        }
        assert_eq!(accesses.walk(0..100).nth(99).map(|access| access.row), Some(99));
        assert!(accesses.walk(0..100).nth(100).is_none());
    }

    #[test]
    fn samples_of_one_line_in_one_space_are_one_cluster() {
        let mut accesses = Accesses::default();
        for (thread, address, weight) in [(0, 0, 2), (1, 63, 3), (2, 32, 10), (0, 64, 1)] {
            accesses.push(&AccessRef { thread: ThreadIndex(thread), weight, ..AccessRef::at(address) });
        }
        assert_eq!(accesses.iter().map(|access| access.cluster).collect::<Vec<_>>(), [2.0, 3.0, 10.0, 1.0]);
        accesses.cluster_by_line(|thread| thread.0 / 2);
        assert_eq!(accesses.iter().map(|access| access.cluster).collect::<Vec<_>>(), [5.0, 5.0, 10.0, 1.0]);
    }

    /// The line of a lock: the many samples after the first ones counted for nothing.
    #[test]
    fn a_cluster_has_the_weight_of_all_its_samples() {
        let mut accesses = Accesses::default();
        accesses.push(&AccessRef { weight: 1 << 31, ..AccessRef::at(0) });
        (0..1024).for_each(|_| accesses.push(&AccessRef { weight: 100, ..AccessRef::at(0) }));
        accesses.cluster_by_line(|_| 0);
        assert_eq!(accesses.get(0).cluster, f64::from((1_u32 << 31) + 102_400));
    }
}
