//! What moving a page takes, learned from the outcomes of moves.

use crate::observation::PageSize;

/// Nanoseconds to move a small page among 512 in one call, before any was measured (measured with `move_pages` on 2017 hardware).
const SMALL_NS: f64 = 3_900.0;
/// Nanoseconds to move a large page, before any was measured (same source).
const LARGE_NS: f64 = 658_000.0;
/// Weight of a new measurement.
const WEIGHT: f64 = 0.02;

/// Prices in nanoseconds of processor time and stalls.
#[derive(Clone, Debug)]
pub(crate) struct MovePrice {
    small_ns: f64,
    large_ns: f64,
}

impl Default for MovePrice {
    fn default() -> MovePrice {
        MovePrice { small_ns: SMALL_NS, large_ns: LARGE_NS }
    }
}

impl MovePrice {
    /// Takes in what a move took, in nanoseconds.
    pub fn learn(&mut self, size: PageSize, ns: f64) {
        let price = if size == PageSize::Large { &mut self.large_ns } else { &mut self.small_ns };
        if ns.is_finite() && ns >= 0.0 {
            *price += WEIGHT * (ns - *price);
        }
    }

    /// Price of moving one page, in nanoseconds.
    pub fn of(&self, size: PageSize) -> f64 {
        if size == PageSize::Large { self.large_ns } else { self.small_ns }
    }
}
