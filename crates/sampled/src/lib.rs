//! From records of the perf ABI to records of a trace, wherever they come from: a recording of perf (engine `import`) or the rings of the running
//! kernel.
//!
//! Records are put in order of time ([`Queue`]); the side band becomes processes, threads, mappings and binaries ([`Tasks`]), samples with a data address
//! become accesses ([`Samples`]), judged by what is known of the machine ([`numapilot_perf_events::places`]). They go to chunk files, or to the caller
//! ([`Output`]). Of the system it reads binaries, and /proc where the processes run here.

mod binaries;
mod counts;
mod extents;
mod files;
mod first_touches;
mod order;
mod output;
mod running;
mod samples;
mod shared;
mod tasks;
#[cfg(test)]
mod tests;

pub use counts::Counts;
pub use counts::EventCounts;
pub use order::AuxAccess;
pub use order::Entry;
pub use order::Queue;
pub use output::Numbering;
pub use output::Output;
pub use output::SharedWriter;
pub use samples::Samples;
pub use tasks::Announcement;
pub use tasks::TaskSource;
pub use tasks::Tasks;
