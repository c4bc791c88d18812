//! The kernel's time stamps of records (CLOCK_MONOTONIC_RAW, as every event here asks for) as order stamps: the counter that the tracker in the
//! program stamps with, read by user code.
//!
//! Both clocks are read together again and again while a recording runs, and a stamp is placed between the two pairs around it on a straight line. So the
//! conversion never descends, and it is wrong by no more than the time that reading a pair took, whatever the relation of the clocks
//! does in between. A pair takes the counter's value *after* the clock was read, and so stamps come out late rather than early, by less than that time.
//! Late is the harmless side: a block's birth is stamped after the allocator gave it out and before the program can touch it; a fault is stamped by the
//! kernel before it looks for a page, which takes longer than reading a clock, and the block's death is stamped after that.

use crate::clock::order_now;

/// Tries at a pair; the quickest counts.
const TRIES: usize = 8;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// CLOCK_MONOTONIC_RAW in nanoseconds.
    pub raw_ns: u64,
    /// The time-stamp counter, read right after it.
    pub order: u64,
    /// Ticks of the counter that reading the pair took.
    pub width: u64,
}

impl ClockPair {
    /// Reads both clocks.
    pub fn now() -> ClockPair {
        let mut best = ClockPair { raw_ns: 0, order: 0, width: u64::MAX };
        for _ in 0..TRIES {
            let before = order_now();
            let raw_ns = raw_ns();
            let order = order_now();
            let width = order.saturating_sub(before);
            if width < best.width {
                best = ClockPair { raw_ns, order, width };
            }
        }
        best
    }
}

/// The clock of every event's records now: CLOCK_MONOTONIC_RAW in nanoseconds.
pub(crate) fn raw_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Pairs of a recording, in order.
#[derive(Clone, Debug)]
pub struct TimeLine {
    pairs: Vec<ClockPair>,
    /// Where the last stamp was found: the next one is mostly there too.
    near: usize,
    max_width: u64,
    /// The counter began anew.
    is_reset: bool,
}

/// Pairs that are kept: stamps older than the oldest of them are placed on its line.
const PAIRS_KEPT: usize = 256;

impl TimeLine {
    /// A line through two pairs, the first from before any stamp.
    pub fn new(first: ClockPair, second: ClockPair) -> TimeLine {
        let mut line = TimeLine { pairs: vec![first], near: 0, max_width: first.width, is_reset: false };
        line.add(second);
        line
    }

    /// The clock of records when the last pair was read, in nanoseconds.
    pub fn last_raw_ns(&self) -> u64 {
        self.pairs[self.pairs.len() - 1].raw_ns
    }

    /// Adds a later pair. One at the same moment as the last, or before it, says nothing and is left out. Once the counter has begun anew (suspend to memory),
    /// so are all: the last line goes on, as one that led from the old count to the new would descend.
    pub fn add(&mut self, pair: ClockPair) {
        let last = self.pairs[self.pairs.len() - 1];
        let is_later = pair.raw_ns > last.raw_ns;
        self.is_reset |= is_later && last.order.saturating_sub(pair.order) > self.max_width.max(pair.width);
        if self.is_reset || !is_later || pair.order <= last.order {
            return;
        }
        self.max_width = self.max_width.max(pair.width);
        self.pairs.push(pair);
        if self.pairs.len() > PAIRS_KEPT {
            self.pairs.drain(..PAIRS_KEPT / 2);
            self.near = 0;
        }
    }

    /// Whether the counter has begun anew, so that stamps before and after are not in order.
    pub fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Ticks by which an order stamp may be late: what reading a pair took, and the rounding up. A counter whose ticks are long (Arm's system counter, from 10
    /// to 1,000 ns) shows no ticks between both readings.
    pub fn error_ticks(&self) -> u64 {
        self.max_width.saturating_add(1)
    }

    /// The order stamp of a moment. Beyond the pairs the nearest line goes on.
    pub fn order_of(&mut self, raw_ns: u64) -> u64 {
        let last_line = self.pairs.len().saturating_sub(2);
        let is_in = |at: usize| {
            (at == 0 || self.pairs[at].raw_ns <= raw_ns) && (at == last_line || raw_ns < self.pairs[at + 1].raw_ns)
        };
        if !is_in(self.near.min(last_line)) {
            let after = self.pairs.partition_point(|pair| pair.raw_ns <= raw_ns);
            self.near = after.saturating_sub(1).min(last_line);
        }
        let at = self.near.min(last_line);
        let (from, to) = (self.pairs[at], self.pairs[(at + 1).min(self.pairs.len() - 1)]);
        place(from, to, raw_ns)
    }
}

fn place(from: ClockPair, to: ClockPair, raw_ns: u64) -> u64 {
    let (ticks, ns) = (i128::from(to.order) - i128::from(from.order), i128::from(to.raw_ns) - i128::from(from.raw_ns));
    if ns <= 0 {
        return from.order;
    }
    // Between two looks everything fits 64 bits, whose division is several times as fast.
    let near = raw_ns.checked_sub(from.raw_ns).zip(to.order.checked_sub(from.order));
    if let Some(product) = near.and_then(|(since, ticks)| since.checked_mul(ticks)) {
        return from.order.saturating_add(product.div_ceil(to.raw_ns - from.raw_ns));
    }
    // Rounded up, to stay on the late side.
    let distance = (i128::from(raw_ns) - i128::from(from.raw_ns)) * ticks;
    let order = i128::from(from.order) + distance.div_euclid(ns) + i128::from(distance.rem_euclid(ns) != 0);
    u64::try_from(order).unwrap_or(0)
}

/// When the next record of a CPU's ring may have been written, on the clock of the recording's events, in nanoseconds.
pub(crate) struct WrittenTimes {
    /// The last record before it was, or the ring was read.
    pub since_ns: u64,
    /// The ring was read.
    pub now_ns: u64,
}

impl WrittenTimes {
    /// The time of the next record, which says `ns`; `is_anothers`: by a clock that another program has chosen, which may be any.
    pub fn next(&mut self, ns: u64, is_anothers: bool) -> u64 {
        if is_anothers {
            return ns.clamp(self.since_ns.min(self.now_ns), self.now_ns);
        }
        self.since_ns = self.since_ns.max(ns);
        ns
    }
}

#[cfg(test)]
mod tests {
    //! The line on this machine, and on clocks that drift.

    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stamps_lie_between_the_counters_readings_around_them() {
        let first = ClockPair::now();
        // Moments with the counter read on both sides, as the tracker stamps around a fault.
        let mut moments = Vec::new();
        let mut line = None;
        for round in 0..20 {
            for _ in 0..500 {
                moments.push((order_now(), raw_ns(), order_now()));
            }
            std::thread::sleep(Duration::from_millis(2));
            let pair = ClockPair::now();
            match &mut line {
                None => line = Some(TimeLine::new(first, pair)),
                Some(line) => line.add(pair),
            }
            assert!(round < 20);
        }
        let mut line = line.unwrap();
        let slack = line.error_ticks();
        let mut last = 0;
        for (before, raw, after) in moments {
            let order = line.order_of(raw);
            assert!(order >= before, "{} ticks early", before - order);
            assert!(order <= after + slack, "{} ticks late, {slack} allowed", order - after);
            assert!(order >= last, "it descends");
            last = order;
        }
    }

    /// After suspend to memory, processors without a counter that survives it count from zero again.
    #[test]
    fn a_counter_that_begins_anew_is_told_and_no_line_descends() {
        let pair = |raw_ns, order| ClockPair { raw_ns, order, width: 10 };
        let mut line = TimeLine::new(pair(1000, 50_000), pair(2000, 52_000));
        line.add(pair(2500, 51_995));
        assert!(!line.is_reset(), "read on another processor");
        line.add(pair(3000, 700));
        assert!(line.is_reset());
        let before = line.order_of(9000);
        assert_eq!(before, 66_000);
        line.add(pair(10_000, 52_500));
        assert!(line.order_of(9001) >= before);
    }

    /// perf's own clock counts from another moment than CLOCK_MONOTONIC_RAW.
    #[test]
    fn a_time_by_another_clock_is_when_the_record_was_written() {
        let mut written = WrittenTimes { since_ns: 1000, now_ns: 2000 };
        assert_eq!(written.next(5, true), 1000);
        assert_eq!(written.next(1200, false), 1200);
        assert_eq!([1100, 1500, 9_000_000].map(|ns| written.next(ns, true)), [1200, 1500, 2000]);
        // Its own times count as they are, also where rings were read a little earlier.
        assert_eq!(written.next(990, false), 990);
    }

    proptest! {
        #[test]
        fn the_line_never_descends_and_meets_its_pairs(
            steps in prop::collection::vec((1_u64..1_000_000, 1_u64..3_000_000), 2..300),
            asked in prop::collection::vec(0_u64..400_000_000, 1..100),
        ) {
            let mut at = (1_000_000, 5_000_000);
            let mut pairs = Vec::new();
            for (ns, ticks) in steps {
                at = (at.0 + ns, at.1 + ticks);
                pairs.push(ClockPair { raw_ns: at.0, order: at.1, width: 10 });
            }
            let mut line = TimeLine::new(pairs[0], pairs[1]);
            pairs[2..].iter().for_each(|pair| line.add(*pair));
            for pair in pairs.iter().rev().take(PAIRS_KEPT / 2 - 1) {
                prop_assert_eq!(line.order_of(pair.raw_ns), pair.order);
            }
            let mut asked = asked;
            asked.sort_unstable();
            let orders: Vec<u64> = asked.iter().map(|&ns| line.order_of(ns)).collect();
            prop_assert!(orders.is_sorted(), "{:?}", orders);
        }
    }
}
