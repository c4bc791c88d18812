//! What was done with some blocks: counts and sums.

use std::collections::BTreeSet;

use numapilot_flows::Object;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::record::AllocKind;
use serde::Serialize;

/// What was done with some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HeapUse {
    /// Blocks that were allocated.
    pub allocations: u64,
    /// Of these, blocks that `realloc` returned.
    pub reallocations: u64,
    /// Sum of the blocks' sizes in bytes, whatever was freed.
    pub allocated_bytes: u64,
    /// Allocations per second of the time that is looked at; `None` where that time is 0.
    pub allocations_per_second: Option<f64>,
    /// Bytes allocated per second of that time.
    pub bytes_per_second: Option<f64>,
    /// Blocks that were freed before the recording ended.
    pub frees: u64,
    /// Of these, blocks that another thread freed than had allocated them; `None` where the trace does not say which thread freed any (before format 1.3).
    pub remote_frees: Option<u64>,
    /// Median time from allocation to free in ns of program time, of the freed blocks: one of them, the longer of the two in the middle of an even number;
    /// `None` where none was freed.
    pub median_lifetime_ns: Option<u64>,
    /// Blocks that were still live at the end.
    pub left_blocks: u64,
    /// Sum of their sizes in bytes.
    pub left_bytes: u64,
    /// Threads that allocated some.
    pub allocating_threads: u64,
    /// Threads that freed some; `None` as for `remote_frees`.
    pub freeing_threads: Option<u64>,
}

/// What blocks add up to. Lifetimes are kept one by one for their median: 8 bytes for each freed block.
#[derive(Default)]
pub(super) struct Sums {
    allocations: u64,
    reallocations: u64,
    bytes: u64,
    remote_frees: u64,
    left_blocks: u64,
    left_bytes: u64,
    lifetimes: Vec<u64>,
    allocating: Threads,
    freeing: Threads,
}

/// Whether another thread freed the block than had allocated it, as far as both are known.
pub(super) fn is_remote_free(object: &Object) -> bool {
    object.thread.zip(object.death_thread).is_some_and(|(by, freed)| by != freed)
}

/// A set of threads; the one that came last is not looked up again, because threads allocate in runs.
#[derive(Default)]
struct Threads {
    all: BTreeSet<ThreadIndex>,
    last: Option<ThreadIndex>,
}

impl Threads {
    fn insert(&mut self, thread: Option<ThreadIndex>) {
        if thread != self.last {
            self.all.extend(thread);
            self.last = thread;
        }
    }
}

impl Sums {
    pub(super) fn add(&mut self, object: &Object) {
        self.allocations += 1;
        self.reallocations += u64::from(object.alloc_kind == Some(AllocKind::Realloc));
        self.bytes = self.bytes.saturating_add(object.bytes);
        self.allocating.insert(object.thread);
        let Some(death) = object.death else {
            self.left_blocks += 1;
            self.left_bytes = self.left_bytes.saturating_add(object.bytes);
            return;
        };
        // Program times of different threads are not in the order of events: a block can seem to end before it began.
        self.lifetimes.push(death.0.saturating_sub(object.birth.0));
        self.freeing.insert(object.death_thread);
        self.remote_frees += u64::from(is_remote_free(object));
    }

    /// `seconds`: the time that is looked at. `knows_frees`: whether the trace says which thread freed a block.
    pub(super) fn finish(mut self, seconds: f64, knows_frees: bool) -> HeapUse {
        let frees = self.lifetimes.len() as u64;
        let middle = self.lifetimes.len() / 2;
        let median = (frees > 0).then(|| *self.lifetimes.select_nth_unstable(middle).1);
        let rate = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
        let known = |count: u64| (knows_frees || frees == 0).then_some(count);
        HeapUse {
            allocations: self.allocations,
            reallocations: self.reallocations,
            allocated_bytes: self.bytes,
            allocations_per_second: rate(self.allocations),
            bytes_per_second: rate(self.bytes),
            frees,
            remote_frees: known(self.remote_frees),
            median_lifetime_ns: median,
            left_blocks: self.left_blocks,
            left_bytes: self.left_bytes,
            allocating_threads: self.allocating.all.len() as u64,
            freeing_threads: known(self.freeing.all.len() as u64),
        }
    }
}
