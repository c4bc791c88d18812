//! Decodes the kernel's samples of memory accesses: records of `perf_event_open` (ring buffers and `perf.data` share them) and the vendors' formats in
//! them (AMD IBS registers, Intel PEBS through `data_src`, Arm SPE packets). Also lists the events that a machine offers for this.
//!
//! Pure: bytes and text in, values out; no event is opened or counted here. Layouts follow the kernel's
//! `include/uapi/linux/perf_event.h` (to 6.18) in both byte orders. Bytes are untrusted: any input gives records or a [`DecodeError`] with its offset, never
//! a panic, and no memory is reserved because of a count in the input. Unknown record types, unknown fields and zeroes are reported
//! as unknown.

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
