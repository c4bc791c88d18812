//! The order in which a chase visits an array: always one ring through every line, made without tables, so that gigabytes are laid out at the speed of
//! writing them.
//!
//! A random ring is a keyed bijection `line = order(position)` with its inverse: the line at position p points to the line at position p + 1. Bijections
//! on ranges that are no power of two walk: what falls outside is mapped again (cycle walking; Black and Rogaway, CT-RSA 2002).

use numapilot_random::Random;

/// A bijection on `0..count`, invertible, from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [u64; ROUNDS],
    inverses: [u64; ROUNDS],
    adds: [u64; ROUNDS],
}

const ROUNDS: usize = 3;

impl Shuffle {
    /// The bijection of `0..count` (at least 1) that belongs to this seed.
    pub fn new(count: u64, seed: u64) -> Shuffle {
        let bits = (64 - (count.max(2) - 1).leading_zeros()).max(2);
        let mask = u64::MAX >> (64 - bits);
        let mut random = Random::new(seed);
        let keys: [u64; ROUNDS] = std::array::from_fn(|_| (random.bits() | 1) & mask);
        let adds: [u64; ROUNDS] = std::array::from_fn(|_| random.bits() & mask);
        Shuffle { count, mask, shift: bits.div_ceil(2), keys, inverses: keys.map(inverse), adds }
    }

    /// The value at position `index` of the bijection.
    pub fn forth(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            for round in 0..ROUNDS {
                value = value.wrapping_mul(self.keys[round]).wrapping_add(self.adds[round]) & self.mask;
                value ^= value >> self.shift;
            }
            if value < self.count {
                return value;
            }
        }
    }

    /// The inverse: `back(forth(x)) == x`.
    pub fn back(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            for round in (0..ROUNDS).rev() {
                // The shift is at least half of the bits, so one step undoes it.
                value ^= value >> self.shift;
                value = value.wrapping_sub(self.adds[round]).wrapping_mul(self.inverses[round]) & self.mask;
            }
            if value < self.count {
                return value;
            }
        }
    }
}

/// The inverse of an odd number modulo 2^64 (Newton's iteration: each step doubles the bits that are right).
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// A ring through an array of equal slots.
#[derive(Clone, Copy, Debug)]
pub enum Ring {
    /// From the last slot to the first, one after the other, as lmbench's `lat_mem_rd` goes.
    Strided {
        /// Number of slots.
        count: u64,
    },
    /// Every slot once, at random.
    Random(Shuffle),
    /// Pages at random, and within a page every slot at random before the next page: only the first step in each page needs an address translation.
    Paged {
        /// Slots in a page.
        per_page: u64,
        /// Order in which pages are visited.
        pages: Shuffle,
        /// Order within each page.
        slots: Shuffle,
    },
}

impl Ring {
    /// A ring that visits all of `count` slots at random.
    pub fn random(count: u64, seed: u64) -> Ring {
        Ring::Random(Shuffle::new(count.max(1), seed))
    }

    /// A ring that finishes each page first; slots beyond the last whole page are left out.
    pub fn paged(count: u64, per_page: u64, seed: u64) -> Ring {
        let per_page = per_page.clamp(1, count.max(1));
        let pages = Shuffle::new((count / per_page).max(1), seed);
        Ring::Paged { per_page, pages, slots: Shuffle::new(per_page, seed ^ 0x5bd1_e995) }
    }

    /// Number of slots that the ring visits.
    pub fn len(&self) -> u64 {
        match self {
            Ring::Strided { count } => *count,
            Ring::Random(shuffle) => shuffle.count,
            Ring::Paged { per_page, pages, .. } => per_page * pages.count,
        }
    }

    /// The slot at a position along the ring (below [`Ring::len`]): the one at the next position follows it.
    pub fn at(&self, position: u64) -> u64 {
        match self {
            Ring::Strided { count } => count - 1 - position,
            Ring::Random(shuffle) => shuffle.forth(position),
            Ring::Paged { per_page, pages, slots } => {
                pages.forth(position / per_page) * per_page + slots.forth(position % per_page)
            }
        }
    }

    /// The slot that follows `slot` (below [`Ring::len`]).
    pub fn next(&self, slot: u64) -> u64 {
        match self {
            Ring::Strided { count } => slot.checked_sub(1).unwrap_or(count - 1),
            Ring::Random(shuffle) => shuffle.forth((shuffle.back(slot) + 1) % shuffle.count),
            Ring::Paged { per_page, pages, slots } => {
                let within = slots.back(slot % per_page) + 1;
                if within < *per_page {
                    return slot - slot % per_page + slots.forth(within);
                }
                let page = pages.forth((pages.back(slot / per_page) + 1) % pages.count);
                page * per_page + slots.forth(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Bijections, whole rings, and that the random ones look random.

    use proptest::prelude::*;

    use super::*;

    /// Steps until the ring comes back to slot 0; fails if it visits another slot twice.
    fn round(ring: &Ring) -> u64 {
        let mut seen = vec![false; ring.len() as usize];
        let mut slot = 0;
        for step in 0.. {
            if std::mem::replace(&mut seen[slot as usize], true) {
                assert_eq!(slot, 0, "the ring has a tail");
                return step;
            }
            slot = ring.next(slot);
        }
        unreachable!("a ring closes")
    }

    proptest! {
        #[test]
        fn back_undoes_forth(count in 1_u64..1 << 40, seed in any::<u64>(), at in any::<u64>()) {
            let shuffle = Shuffle::new(count, seed);
            let index = at % count;
            let there = shuffle.forth(index);
            prop_assert!(there < count);
            prop_assert_eq!(shuffle.back(there), index);
        }

        #[test]
        fn every_ring_is_one_cycle_through_all_slots(count in 1_u64..3000, per_page in 1_u64..80, seed in any::<u64>()) {
            prop_assert_eq!(round(&Ring::random(count, seed)), count);
            prop_assert_eq!(round(&Ring::Strided { count }), count);
            let paged = Ring::paged(count, per_page, seed);
            let per_page = per_page.min(count);
            prop_assert_eq!(paged.len(), count - count % per_page);
            prop_assert_eq!(round(&paged), paged.len());
        }

        #[test]
        fn positions_follow_one_another(count in 1_u64..1 << 30, per_page in 1_u64..80, seed in any::<u64>(), at in any::<u64>()) {
            for ring in [Ring::random(count, seed), Ring::Strided { count }, Ring::paged(count, per_page, seed)] {
                let position = at % ring.len();
                prop_assert!(ring.at(position) < ring.len());
                prop_assert_eq!(ring.next(ring.at(position)), ring.at((position + 1) % ring.len()));
            }
        }
    }

    #[test]
    fn random_rings_have_no_stride_that_a_prefetcher_could_follow() {
        for count in [1 << 16, 100_000_u64] {
            let ring = Ring::random(count, 1);
            let (mut strides, mut slot) = (std::collections::HashMap::new(), 0);
            let mut near = 0;
            for _ in 0..count {
                let next = ring.next(slot);
                *strides.entry(next.wrapping_sub(slot)).or_insert(0_u32) += 1;
                near += u32::from(next.abs_diff(slot) <= 64);
                slot = next;
            }
            let commonest = strides.values().copied().max().unwrap_or(0);
            assert!(commonest < 40, "a stride occurs {commonest} times among {count}");
            // 128 of `count` targets are within 64 slots.
            assert!(f64::from(near) < 128.0 * 1.5, "{near} steps to a neighbour");
        }
    }

    #[test]
    fn a_paged_ring_finishes_each_page() {
        let ring = Ring::paged(640, 64, 7);
        let (mut slot, mut changes) = (0, 0);
        for _ in 0..640 {
            let next = ring.next(slot);
            changes += u32::from(next / 64 != slot / 64);
            slot = next;
        }
        assert_eq!(changes, 10);
    }

    #[test]
    fn a_strided_ring_goes_as_lat_mem_rd() {
        let ring = Ring::Strided { count: 4 };
        assert_eq!([3, 2, 1, 0].map(|slot| ring.next(slot)), [2, 1, 0, 3]);
    }
}
