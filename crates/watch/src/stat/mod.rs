//! `numapilot stat`: intervals as text, JSON and CSV, and statistics over several runs of a command.

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

/// An interval, and the memory of the watched processes.
#[derive(Clone, Debug, Default)]
pub struct Stat {
    /// Figures of the interval.
    pub interval: Interval,
    /// Memory of the watched processes at the interval's end.
    pub memory: Vec<MemoryMap>,
}

#[cfg(test)]
pub(crate) mod tests;
