//! The Rust side of `crates/runtime/c/wire.h`: the arena's layout, and the records that threads write into their rings.
//!
//! Owns: sizes and offsets ([`layout`]), records to bytes ([`Encoder`]) and bytes to records ([`Decoder`]). Assumes little-endian
//! machines (as the header does) and nothing about the bytes it is given: any input gives records or a [`WireError`], never a
//! panic, and never more memory than a small multiple of the input's length.

mod decode;
mod encode;
pub mod layout;
mod scan;

pub use decode::{Decoder, decode};
pub use encode::Encoder;
pub use scan::{RecordHead, record_head, scan};
pub(crate) use scan::{peek_time, whole_records};

use crate::ids::{Order, Pid, ThreadIndex, TimeNs};

/// The thread of a record whose ring has no thread start record yet.
pub const UNKNOWN_THREAD: ThreadIndex = ThreadIndex(u32::MAX);

/// Converts clock stamps to time: cycles since `origin_cycles` at `khz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Frequency of the clock stamps in kHz; 0 is taken as 1,000,000 (a cycle is a nanosecond).
    pub khz: u32,
    /// Clock stamp at time 0: 0 for virtual time, the TSC at the start of the recording for real time.
    pub origin_cycles: u64,
}

impl Clock {
    /// A clock whose cycles are nanoseconds.
    pub const NANOSECONDS: Clock = Clock { khz: 1_000_000, origin_cycles: 0 };

    /// Time of a clock stamp in nanoseconds, rounded down; stamps before the origin are at 0.
    #[inline]
    #[must_use]
    pub fn time(self, cycles: u64) -> TimeNs {
        let khz = u64::from(if self.khz == 0 { 1_000_000 } else { self.khz });
        let cycles = cycles.saturating_sub(self.origin_cycles);
        let milliseconds = cycles / khz;
        let rest = cycles % khz;
        TimeNs(milliseconds.saturating_mul(1_000_000).saturating_add(rest * 1_000_000 / khz))
    }

    /// The earliest clock stamp whose [`Clock::time`] is at least `time`.
    #[must_use]
    pub fn cycles(self, time: TimeNs) -> u64 {
        let khz = u128::from(if self.khz == 0 { 1_000_000 } else { self.khz });
        let cycles = (u128::from(time.0) * khz).div_ceil(1_000_000);
        u64::try_from(cycles).unwrap_or(u64::MAX).saturating_add(self.origin_cycles)
    }
}

/// Decoder state of a ring: what its earlier bytes determine about the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Conversion of clock stamps to time.
    pub clock: Clock,
    /// Base of the next order delta.
    pub order: Order,
    /// Base of the next clock delta, in cycles.
    pub clock_cycles: u64,
    /// Whether the two bases are known. After lost bytes they are unknown until the next time record.
    pub bases_known: bool,
    /// Thread of the ring, once it is known.
    pub thread: Option<ThreadIndex>,
    /// Process of that thread, by the number that its start record has.
    pub pid: Option<Pid>,
    /// Bytes of the ring consumed so far (offset of the next byte in the ring's stream).
    pub offset: u64,
    /// Records skipped because the bases of their stamps are unknown.
    pub skipped: u64,
}

impl RingState {
    /// The state before a ring's first byte.
    #[must_use]
    pub fn new(clock: Clock) -> RingState {
        RingState {
            clock,
            order: Order(0),
            clock_cycles: 0,
            bases_known: false,
            thread: None,
            pid: None,
            offset: 0,
            skipped: 0,
        }
    }
}

/// A record that cannot be decoded. The rest of its piece is skipped, because the start of the next record is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad record at byte {offset} of the ring: {fault}")]
pub struct WireError {
    /// Where the record begins, in bytes from the start of the ring's stream.
    pub offset: u64,
    /// What is wrong with it.
    pub fault: WireFault,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// The record's counts need more bytes than the piece has.
    #[error("the record needs {needed} bytes, but only {left} are left")]
    Cut {
        /// Bytes needed.
        needed: u64,
        /// Bytes left in the piece.
        left: u64,
    },
    /// The type is not an `np_record`.
    #[error("unknown record type {0}")]
    UnknownType(u8),
    /// The length in its first word contradicts its type and counts.
    #[error("a record of type {kind} cannot be {words} words long")]
    Length {
        /// Record type.
        kind: u8,
        /// Length it claims, in 8-byte words.
        words: u64,
    },
    /// A field holds a value outside its range.
    #[error("field `{field}` of a record of type {kind} has the invalid value {value}")]
    Field {
        /// Record type.
        kind: u8,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
