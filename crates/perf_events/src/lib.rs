//! The running kernel's performance events (`perf_event_open`): which this process may open and why not ([`facts`], [`probe`], [`rights`]), opening
//! them ([`event`], [`open`], [`pmu`]), whether they still run ([`pulse`]), reading their rings ([`ring`], [`wake`]), and samples as they come
//! ([`live_sampler`]).
//!
//! Records are decoded by `numapilot-perf`; what the records of a whole recording mean is for who records (`numapilot-sampled`). Needs Linux; events are
//! opened with what the kernel has, down to 4.19.

pub mod aux;
pub mod counter;
mod cpus;
pub mod doubles;
pub mod emulated;
mod error;
pub mod event;
mod event_limit;
pub mod facts;
pub mod homes;
pub mod live_sampler;
mod locked_memory;
pub mod open;
pub mod page_sizes;
pub mod places;
pub mod pmu;
pub mod probe;
pub mod pulse;
pub mod rights;
pub mod ring;
pub mod syscall;
pub mod wake;

pub use error::EventsError;
pub use probe::probe;
