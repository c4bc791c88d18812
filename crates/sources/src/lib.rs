//! Engines: they turn a running program into one stream of records.
//!
//! [`record`] starts a program with the tracker library preloaded, shares an arena of rings with it, and drains them to the chunk files
//! of a trace (`docs/trace-format.md`) until everything has ended. Which engine records, and why not a better one, is
//! decided in `engine`. The shared memory's layout is `crates/runtime/c/wire.h`.
//!
//! This crate touches the system: it needs Linux with memfd (3.17), and reads /proc.

mod address_space;
mod arena;
mod clock;
mod daemons;
mod drain;
mod engine;
mod error;
mod faulted;
mod generated;
mod java;
pub mod live;
mod machine_files;
mod namespaces;
mod native;
mod options;
mod order;
mod record;
mod recording;
mod recording_host;
mod session;
mod simulated;
mod unrecorded;
mod walk;

pub use daemons::Survivor;
pub use engine::EngineChoice;
pub use engine::Refusal;
pub use engine::Selection;
pub use error::SourceError;
pub use live::Running;
pub use live::record_running;
pub use native::run_natively;
pub use options::Binding;
pub use options::Follow;
pub use options::Limits;
pub use options::Placement;
pub use options::Progress;
pub use options::ProgressState;
pub use options::RecordOptions;
pub use options::Sampling;
pub use record::record;
pub use recording::Losses;
pub use recording::Recording;
pub use recording::StopReason;
