//! The pages that policies see and order.

use numapilot_host::PageNumber;

/// Size of a page as it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// A page of 4 KiB.
    Small,
    /// A page of 2 MiB.
    Large,
}

impl PageSize {
    /// Number of small pages that it is.
    #[must_use]
    pub const fn small_pages(self) -> u64 {
        match self {
            PageSize::Small => 1,
            PageSize::Large => PageNumber::PER_LARGE,
        }
    }

    /// Bytes that it has.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.small_pages() * PageNumber::BYTES
    }
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Process, by its number in the observation.
    pub process: u32,
    /// Its number; of a large page, that of its first small one.
    pub page: PageNumber,
    /// As it is mapped now.
    pub size: PageSize,
}
