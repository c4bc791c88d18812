//! `numapilot stat`: intervals as text, JSON and CSV, and several runs of a command put together.

mod csv;
mod json;
mod repeats;
mod text;

pub use csv::csv;
pub use csv::csv_heading;
pub use json::json;
pub use repeats::Repeats;
pub use text::brief;
pub use text::brief_heading;
pub use text::text;

use crate::figures::Interval;
use crate::maps::MemoryMap;

/// What is shown together: an interval, and the memory of the processes that are watched.
#[derive(Clone, Debug, Default)]
pub struct Stat {
    /// The figures.
    pub interval: Interval,
    /// Memory at the interval's end.
    pub memory: Vec<MemoryMap>,
}

#[cfg(test)]
pub(crate) mod tests;
