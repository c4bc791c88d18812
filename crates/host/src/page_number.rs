//! Numbers of pages.

use std::ops::{Add, AddAssign, Sub};

/// The number of a page of 4 KiB: a virtual address over 4,096. The pages of traces, of the simulator, of placement policies and of the balancer are these
/// units on every system.
///
/// The kernel's own pages may be larger: of 16 or 64 KiB (arm64), and then each is several of these units. So this is no index into `/proc/PID/pagemap`, and
/// no number of base pages (`numapilot_kernel::actuator::page_bytes`). Nor is it an address: [`PageNumber::address`] is. Numbers of pages within a region or a
/// file, and amounts of pages, are plain integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// Binary logarithm of [`PageNumber::BYTES`].
    pub const SHIFT: u32 = 12;
    /// Bytes of such a page.
    pub const BYTES: u64 = 1 << PageNumber::SHIFT;
    /// Such pages in a large one, of 2 MiB: the transparent huge page of kernels whose base pages have 4 KiB (`HPAGE_PMD_NR` on x86-64 and arm64). Those of
    /// other kernels differ; a running system's is `numapilot_kernel::actuator::huge_bytes`.
    pub const PER_LARGE: u64 = 512;

    /// The page that holds an address.
    #[must_use]
    pub const fn of(address: u64) -> PageNumber {
        PageNumber(address >> PageNumber::SHIFT)
    }

    /// The first page that begins at an address or after it: of the end of a range of addresses, the end of its pages.
    #[must_use]
    pub const fn at_or_after(address: u64) -> PageNumber {
        PageNumber(address.div_ceil(PageNumber::BYTES))
    }

    /// Address of its first byte.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 << PageNumber::SHIFT
    }

    /// The number of the large page, mapped as one or not, that it is part of: a virtual address over 2 MiB.
    #[must_use]
    pub const fn large(self) -> u64 {
        self.0 / PageNumber::PER_LARGE
    }

    /// The first page of the large one with this number.
    #[must_use]
    pub const fn first_of_large(large: u64) -> PageNumber {
        PageNumber(large * PageNumber::PER_LARGE)
    }

    /// The first page of the large one that it is part of.
    #[must_use]
    pub const fn large_start(self) -> PageNumber {
        PageNumber(self.0 - self.in_large())
    }

    /// Its place in the large page that it is part of: 0 to 511.
    #[must_use]
    pub const fn in_large(self) -> u64 {
        self.0 % PageNumber::PER_LARGE
    }

    /// This many pages, from this one on.
    #[must_use]
    pub fn run(self, pages: u64) -> impl DoubleEndedIterator<Item = PageNumber> + Clone {
        (self.0..self.0 + pages).map(PageNumber)
    }
}

/// The page this many pages later.
impl Add<u64> for PageNumber {
    type Output = PageNumber;

    fn add(self, pages: u64) -> PageNumber {
        PageNumber(self.0 + pages)
    }
}

impl AddAssign<u64> for PageNumber {
    fn add_assign(&mut self, pages: u64) {
        self.0 += pages;
    }
}

/// The number of pages from an earlier one to this.
impl Sub for PageNumber {
    type Output = u64;

    fn sub(self, earlier: PageNumber) -> u64 {
        self.0 - earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_4_kib_and_a_large_one_2_mib() {
        let page = PageNumber::of(0x7f00_0040_3fff);
        assert_eq!((page.0, page.address()), (0x7_f000_0403, 0x7f00_0040_3000));
        assert_eq!((page.large(), page.in_large()), (0x7f00_0040_3000 / (2 << 20), 3));
        assert_eq!(
            (page.large_start().address(), PageNumber::first_of_large(page.large())),
            (0x7f00_0040_0000, page.large_start())
        );
        assert_eq!(PageNumber::BYTES * PageNumber::PER_LARGE, 2 << 20);
    }

    #[test]
    fn the_pages_of_a_range_end_after_its_last_byte() {
        let pages = |start: u64, end: u64| PageNumber::at_or_after(end) - PageNumber::of(start);
        assert_eq!([pages(0x1000, 0x2000), pages(0x1fff, 0x2001), pages(0x1000, 0x1000)], [1, 2, 0]);
        let mut page = PageNumber(7);
        assert_eq!(page.run(3).collect::<Vec<_>>(), [PageNumber(7), PageNumber(8), page + 2]);
        page += 2;
        assert_eq!((page, page - PageNumber(7)), (PageNumber(9), 2));
    }
}
