//! Records of several threads with the same stamp: a counter may tick more slowly than threads hand a block on (10 to 42 ns on many Arm machines, a
//! microsecond in QEMU's user mode).

use std::collections::HashMap;
use std::collections::HashSet;

use numapilot_trace::record::Event;
use numapilot_trace::record::Record;

/// Steps of the search for one stamp, after which what remains keeps the order in which it came.
const STEPS_MAX: usize = 50_000;

/// A block: its process, where that is known, and its address.
type Block = (Option<u32>, u64);

/// Puts records that are sorted by their stamps into an order in which blocks are made where none lives and freed while they live, if one among equal
/// stamps is so; each thread's own keep their order. Records of different stamps are never exchanged.
pub fn settled<'a>(sorted: &[&'a Record]) -> Vec<&'a Record> {
    let mut process_of = HashMap::new();
    for record in sorted {
        if let Event::ThreadStart { index, process, .. } = &record.event {
            process_of.insert(index.0, process.0);
        }
    }
    let block_of = |record: &Record| -> Option<Block> {
        let (Event::Alloc { address, .. } | Event::Free { address }) = &record.event else { return None };
        Some((process_of.get(&record.thread.0).copied(), address.0))
    };
    let mut search = Search { live: HashSet::new(), order: Vec::with_capacity(sorted.len()), steps: 0 };
    for tied in sorted.chunk_by(|left, right| left.stamp.order == right.stamp.order) {
        let mut lanes: Vec<Vec<(&Record, Option<Block>)>> = Vec::new();
        for record in tied {
            let item = (*record, block_of(record));
            match lanes.iter_mut().find(|lane| lane[0].0.thread == record.thread) {
                Some(lane) => lane.push(item),
                None => lanes.push(vec![item]),
            }
        }
        let before = search.order.len();
        search.steps = 0;
        if !search.goes_on(&lanes, &mut vec![0; lanes.len()]) {
            // What is wrong is left for the test to find.
            search.order.truncate(before);
            tied.iter().for_each(|record| search.take(record, block_of(record)));
        }
    }
    search.order
}

struct Search<'a> {
    live: HashSet<Block>,
    order: Vec<&'a Record>,
    steps: usize,
}

impl<'a> Search<'a> {
    /// Takes all that is left of the lanes, of which `at` says how far each was taken, in an order that is possible. `false`, and all as before: there is none.
    fn goes_on(&mut self, lanes: &[Vec<(&'a Record, Option<Block>)>], at: &mut Vec<usize>) -> bool {
        self.steps += 1;
        if lanes.iter().zip(&*at).all(|(lane, taken)| *taken == lane.len()) {
            return true;
        }
        for index in 0..lanes.len() {
            let Some(&(record, block)) = lanes[index].get(at[index]) else { continue };
            if self.steps > STEPS_MAX || !self.is_possible(record, block) {
                continue;
            }
            self.take(record, block);
            at[index] += 1;
            if self.goes_on(lanes, at) {
                return true;
            }
            at[index] -= 1;
            self.order.pop();
            match (&record.event, block) {
                (Event::Alloc { .. }, Some(block)) => self.live.remove(&block),
                (_, Some(block)) => self.live.insert(block),
                _ => false,
            };
            if block.is_none() {
                // Nothing depends on when this one comes: what fails after it fails without it, too.
                return false;
            }
        }
        false
    }

    fn is_possible(&self, record: &Record, block: Option<Block>) -> bool {
        block.is_none_or(|block| self.live.contains(&block) == matches!(record.event, Event::Free { .. }))
    }

    fn take(&mut self, record: &'a Record, block: Option<Block>) {
        self.order.push(record);
        match (&record.event, block) {
            (Event::Alloc { .. }, Some(block)) => self.live.insert(block),
            (_, Some(block)) => self.live.remove(&block),
            _ => false,
        };
    }
}
