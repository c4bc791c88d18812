//! Merges the records of all rings into one sequence, by order stamp.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::ChunkError;
use super::reader::{Problem, RawTrace, RingReader};
use crate::record::Record;

/// Iterates over all records of a recording in order of their order stamps (of equal stamps, the lower slot first; a ring's own sequence is
/// kept). Memory: one decoded chunk, some hundred kilobytes, per thread that is alive at the current point.
///
/// A ring whose stamps step back (the runtime stamps an unmap before the call and a mapping after it) is put in order within
/// each chunk.
#[derive(Debug)]
pub struct Merge<'a> {
    rings: Vec<Source<'a>>,
    /// (lower bound of the ring's next stamp, ring), without the current ring.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    current: usize,
    /// The current ring gives records up to this stamp; then the ring with the next lowest stamp becomes current.
    limit: (u64, usize),
    problems: Vec<Problem>,
    spare: Vec<VecDeque<Record>>,
}

#[derive(Debug)]
struct Source<'a> {
    reader: RingReader<'a>,
    ready: VecDeque<Record>,
}

impl RawTrace {
    /// All records in order of their order stamps. See [`Merge`].
    #[must_use]
    pub fn merge(&self) -> Merge<'_> {
        Merge::new(self.ring_readers().collect())
    }
}

impl<'a> Merge<'a> {
    pub(super) fn new(readers: Vec<RingReader<'a>>) -> Merge<'a> {
        let rings: Vec<Source<'a>> =
            readers.into_iter().map(|reader| Source { reader, ready: VecDeque::new() }).collect();
        let heap = rings
            .iter()
            .enumerate()
            .filter_map(|(index, source)| Some(Reverse((source.reader.next_order()?, index))))
            .collect();
        Merge { rings, heap, current: usize::MAX, limit: (0, 0), problems: Vec::new(), spare: Vec::new() }
    }

    /// Damage found so far.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Makes the ring with the lowest next stamp the current one; false when all are at their end.
    fn next_ring(&mut self) -> Result<bool, ChunkError> {
        self.put_back();
        while let Some(Reverse((_, index))) = self.heap.pop() {
            let source = &mut self.rings[index];
            if source.ready.is_empty() {
                if source.ready.capacity() == 0 {
                    source.ready = self.spare.pop().unwrap_or_default();
                }
                let more = source.reader.next_chunk(&mut source.ready)?;
                if !source.ready.iter().is_sorted_by_key(|record| record.stamp.order) {
                    source.ready.make_contiguous().sort_by_key(|record| record.stamp.order);
                }
                match source.next_order() {
                    Some(order) if more => self.heap.push(Reverse((order, index))),
                    _ => {
                        self.problems.append(&mut source.reader.take_problems());
                        self.spare.push(std::mem::take(&mut source.ready));
                    }
                }
                continue;
            }
            self.current = index;
            self.limit = self.heap.peek().map_or((u64::MAX, usize::MAX), |Reverse(limit)| *limit);
            return Ok(true);
        }
        Ok(false)
    }

    fn put_back(&mut self) {
        if let Some(source) = self.rings.get_mut(self.current) {
            if let Some(order) = source.next_order() {
                self.heap.push(Reverse((order, self.current)));
            } else {
                self.problems.append(&mut source.reader.take_problems());
                self.spare.push(std::mem::take(&mut source.ready));
            }
            self.current = usize::MAX;
        }
    }
}

impl Source<'_> {
    fn next_order(&self) -> Option<u64> {
        match self.ready.front() {
            Some(record) => Some(record.stamp.order.0),
            None => self.reader.next_order(),
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Record, ChunkError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(source) = self.rings.get_mut(self.current)
                && let Some(front) = source.ready.front()
                && (front.stamp.order.0, self.current) <= self.limit
            {
                return source.ready.pop_front().map(Ok);
            }
            match self.next_ring() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
