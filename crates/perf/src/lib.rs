//! What the kernel tells of memory accesses: records of `perf_event_open` (ring buffers and `perf.data` share them), the vendors' own forms in
//! them (AMD IBS registers, Intel PEBS through `data_src`, Arm SPE packets), and what a machine offers of these.
//!
//! Pure: bytes and text in, values out; no event is opened or counted here. Layouts follow the kernel's
//! `include/uapi/linux/perf_event.h` (to 6.18) in both byte orders. Bytes are foreign: any input gives records or a [`DecodeError`] with its offset, never
//! a panic, and nothing is copied or reserved on the word of a count. Unknown record types, unknown fields and zeroes stay what they
//! are: unknown.

pub mod abi;
mod access;
mod attr;
mod bytes;
pub mod data_src;
mod error;
pub mod file;
pub mod ibs;
mod parts;
pub mod pmu;
mod sample;
mod session;
mod side_band;
pub mod spe;
#[cfg(feature = "testing")]
pub mod testing;

pub use access::MemoryAccess;
pub use attr::EventAttr;
pub use bytes::{Bytes, Endian, Words};
pub use error::{DecodeError, Fault};
pub use parts::{BranchEntry, BranchStack, ReadValue, ReadValues, Registers, UserStack, Weight};
pub use sample::Sample;
pub use session::{Header, Record, Session};
pub use side_band::{FileIdentity, Mapping, SampleId, SideBand, TaskChange};
