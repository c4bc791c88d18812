//! The watermarks of a node's free memory (`__setup_per_zone_wmarks`, `mm/page_alloc.c`), in pages of 4 KiB. A node is one zone here.

/// `watermark_scale_factor`: distance of two watermarks in ten-thousandths of the memory (default of `/proc/sys/vm/watermark_scale_factor`).
const SCALE: u64 = 10;
/// Bounds of `min_free_kbytes` (`calculate_min_free_kbytes`, Linux 5.9 and later).
const MIN_FREE_KIB: [u64; 2] = [128, 262_144];
/// KiB in a page.
const PAGE_KIB: u64 = 4;

/// Free pages of a node at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watermarks {
    /// kswapd wakes below.
    pub low: u64,
    /// Promoted pages may fill a node up to here (`migrate_balanced_pgdat`).
    pub high: u64,
    /// kswapd of memory tiering demotes until so many are free (`WMARK_PROMO`, `pgdat_balanced`).
    pub promo: u64,
}

impl Watermarks {
    /// Those of a node with `pages` of the machine's `all` pages.
    pub fn new(pages: u64, all: u64) -> Self {
        let min_free = (all * PAGE_KIB * 16).isqrt().clamp(MIN_FREE_KIB[0], MIN_FREE_KIB[1]) / PAGE_KIB;
        let min = (u128::from(min_free) * u128::from(pages) / u128::from(all.max(1))) as u64;
        let step = (min / 4).max(pages * SCALE / 10_000);
        Self { low: min + step, high: min + 2 * step, promo: min + 3 * step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 GiB in one node: min_free_kbytes is the root of 16 times as many KiB, 16,384; a thousandth is more than a quarter of that.
    #[test]
    fn watermarks_are_a_thousandth_of_the_memory_apart() {
        let pages = 16 << 18;
        let marks = Watermarks::new(pages, pages);
        assert_eq!(marks, Watermarks { low: 4096 + 4194, high: 4096 + 8388, promo: 4096 + 12_582 });
        // Half of the machine's memory has half of the reserve.
        let half = Watermarks::new(pages / 2, pages);
        assert_eq!(half.low, 2048 + 2097);
    }

    #[test]
    fn little_memory_keeps_a_quarter_of_its_reserve_between_watermarks() {
        // 64 MiB: the root of 16 x 65,536 KiB is 1,024 KiB, 256 pages.
        let marks = Watermarks::new(16_384, 16_384);
        assert_eq!(marks, Watermarks { low: 320, high: 384, promo: 448 });
    }
}
