//! From records of the perf ABI to records of a trace, wherever they come from: a recording of perf (engine `import`) or the rings of the running
//! kernel.
//!
//! Records are put in order of time ([`order`]); the side band becomes processes, threads, mappings and binaries ([`tasks`]), samples with a data address
//! become accesses ([`samples`]), judged by what is known of the machine ([`numapilot_perf_events::places`]).

mod binaries;
mod counts;
mod extents;
mod files;
mod first_touches;
mod order;
mod output;
mod ranges;
mod running;
mod samples;
mod shared;
mod tasks;
#[cfg(test)]
mod tests;

pub use counts::Counts;
pub(crate) use counts::EventCounts;
pub(crate) use order::Entry;
pub(crate) use order::Queue;
pub(crate) use output::Output;
pub(crate) use output::SharedWriter;
pub(crate) use samples::Samples;
pub(crate) use tasks::Announcement;
pub(crate) use tasks::TaskSource;
pub(crate) use tasks::Tasks;
