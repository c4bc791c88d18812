//! The present state of a machine: where processes' memory lies and how far from their threads (`maps`), the activity of its controllers, links and processors
//! per interval (`stat`), the same live on a screen (`top`) and for Prometheus (`export`). `docs/watch.md` describes each figure and its source.
//!
//! All files are read under a root prefix, so that tests can use trees of files of any machine; the results are functions of what was read. Processes may end
//! at any moment, which is not an error. A figure that is not available holds the reason, and is never a zero.

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
pub use places::Places;
