//! The pictures of measurements, and their titles.

/// A picture of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Latency against array size.
    Staircase,
    /// Idle latency of every pair.
    Latency,
    /// Bandwidth of every pair.
    Bandwidth,
    /// Latency under load.
    Loaded,
    /// Hand-off between CPUs.
    Handoff,
}

impl Picture {
    /// All, in the order of the page.
    pub const ALL: [Picture; 5] =
        [Picture::Latency, Picture::Bandwidth, Picture::Loaded, Picture::Staircase, Picture::Handoff];

    /// The title of the picture.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Picture::Staircase => "Cache steps: latency against array size",
            Picture::Latency => "Idle latency of every pair of nodes",
            Picture::Bandwidth => "Bandwidth of every pair of nodes",
            Picture::Loaded => "Latency under load",
            Picture::Handoff => "Hand-off of a cache line between CPUs",
        }
    }
}
