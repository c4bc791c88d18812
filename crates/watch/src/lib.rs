//! What a machine does now: where processes' memory lies and how far from their threads (`maps`), what its controllers, links and processors do per
//! interval (`stat`), the same live on a screen (`top`) and for Prometheus (`export`). `docs/watch.md` says what each figure is and where it is from.
//!
//! Everything is read under a root prefix, so that captured trees of any machine are tests; what is made of it is a function of what was read. Processes
//! end at any moment: that is an answer, not an error. A figure that cannot be had here says why, and is never a zero.

mod error;
pub mod evidence;
pub mod export;
pub mod figures;
#[cfg(test)]
mod fixture;
pub mod heat;
pub mod live;
pub mod maps;
mod places;
pub mod replay;
pub mod signals;
pub mod stat;
pub mod top;

pub use error::WatchError;
pub use numapilot_host::TaskStat;
pub use places::Places;
