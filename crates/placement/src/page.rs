//! The pages that policies see and order.

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
    pub fn small_pages(self) -> u64 {
        match self {
            PageSize::Small => 1,
            PageSize::Large => 512,
        }
    }
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Process, by its number in the observation.
    pub process: u32,
    /// Virtual address over 4,096; of a large page, that of its first small one.
    pub page: u64,
    /// As it is mapped now.
    pub size: PageSize,
}
