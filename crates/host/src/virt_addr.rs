//! Addresses in processes.

use serde::Deserialize;
use serde::Serialize;

use crate::PageNumber;

/// An address in some process's address space; in recordings below 2^48 (`numapilot_trace::wire::layout::ADDRESS_END`). In files and JSON it is a plain number.
///
/// Addresses within a binary or a file are not these: they are plain integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The address of a page's first byte.
    #[must_use]
    pub const fn of_page(page: PageNumber) -> VirtAddr {
        VirtAddr(page.address())
    }

    /// The page of 4 KiB that holds it.
    #[must_use]
    pub const fn page(self) -> PageNumber {
        PageNumber::of(self.0)
    }
}

impl std::fmt::Display for VirtAddr {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_page_and_is_written_as_a_plain_number() {
        let address = VirtAddr(0x7f00_0040_3fff);
        assert_eq!(address.page(), PageNumber(0x7_f000_0403));
        assert_eq!(VirtAddr::of_page(address.page()), VirtAddr(0x7f00_0040_3000));
        assert_eq!(format!("{}|{:>6}|", VirtAddr(7), VirtAddr(8)), "7|     8|");
    }
}
