//! What the recorder itself adds to a ring whose thread could not end it: exact totals and the thread's end.
//!
//! A thread that ends writes both. One that is still alive when its process exits, is killed or replaces its image does not
//! (the workers of every OpenMP program, for a start), but its slot outlives it and holds its last counts. They are
//! shared memory, so untrusted: numbers that no program reaches give nothing at all.

use numapilot_trace::wire::layout as wire;

use crate::arena::Slot;

/// Counts and clocks from here on are scribbles: at 4 GHz, 208 days.
const ABSURD: u64 = 1 << 56;
/// A last order stamp that is further ahead of this CPU's counter is one too (about a second).
const ORDER_SKEW: u64 = 1 << 32;

/// How a slot's words become counts and clocks: from the configuration that the recorder wrote, not from the arena's copy of it.
#[derive(Clone, Copy, Debug)]
pub struct Accounting {
    instrument: bool,
    cycles_per_access_q8: u32,
    scale: u64,
    nodes: u32,
}

/// Whether a thread's end is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCertainty {
    /// The system knows it no more.
    Gone,
    /// The thread outlives the recording.
    Alive,
}

impl Accounting {
    /// The accounting that `config` describes.
    pub fn new(config: &wire::Config) -> Accounting {
        Accounting {
            instrument: config.mode == wire::MODE_INSTRUMENT,
            cycles_per_access_q8: config.cycles_per_access_q8,
            scale: u64::from(config.line_sampling.max(1)),
            nodes: config.node_count.min(wire::MAX_NODES as u32),
        }
    }

    /// The thread's program time in cycles; `None` where clocks are real.
    pub(super) fn clock_cycles(&self, slot: &Slot<'_>) -> Option<u64> {
        self.instrument.then(|| slot.clock_cycles(self.cycles_per_access_q8))
    }

    /// Puts into `piece` what follows on the last record of `thread`. False where the slot's words cannot be true.
    pub(super) fn conclude(&self, slot: &Slot<'_>, thread: u32, certainty: EndCertainty, piece: &mut Vec<u8>) -> bool {
        piece.clear();
        let now = slot.arena().order_now();
        let last = slot.last_order();
        let order = if last.saturating_sub(now) < ORDER_SKEW { now.max(last) } else { now };
        let clock = self.clock_cycles(slot).unwrap_or_else(|| slot.arena().real_clock(order));
        if self.instrument && clock >= ABSURD {
            return false;
        }
        let first = |kind: u32, words: u64| u64::from(kind) | words << 8 | u64::from(thread) << 16;
        let mut words = vec![u64::from(wire::REC_TIME) | 4 << 8, 0, order, clock];
        if self.instrument {
            let counts = self.counts(slot);
            if counts.iter().any(|count| *count >= ABSURD) {
                return false;
            }
            words.extend([first(wire::REC_COUNTERS, counts.len() as u64 + 2), 0]);
            words.extend(counts);
        }
        if certainty == EndCertainty::Gone {
            words.extend([first(wire::REC_THREAD_END, 2), 0]);
        }
        piece.extend(words.into_iter().flat_map(u64::to_le_bytes));
        true
    }

    /// Words 2 and on of NP_REC_COUNTERS, scaled as the runtime scales them.
    fn counts(&self, slot: &Slot<'_>) -> Vec<u64> {
        let scaled = |count: u64| count.saturating_mul(self.scale);
        let mut counts = vec![
            slot.accesses(),
            scaled(slot.l2_lookups()),
            scaled(slot.l3_lookups()),
            scaled(slot.memory_accesses()),
            scaled(slot.cache_transfers()),
            scaled(slot.memory_writes()),
            slot.wait_cycles(),
            u64::from(self.nodes),
        ];
        counts.extend((0..self.nodes as usize).map(|node| scaled(slot.by_home(node))));
        counts.extend([slot.memory_cycles(), scaled(slot.memory_streamed()), scaled(slot.memory_dependent())]);
        counts
    }
}
