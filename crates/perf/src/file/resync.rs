//! Finds where records continue after damage: at the next place where several plausible records follow one another.
//!
//! Only a record's header says where the next record begins. A header with an undefined type, or with a size that its type cannot have, is damaged; or no
//! record begins there, because the size of the record before it is damaged.

use crate::abi::{kind, kind_name};
use crate::bytes::Bytes;
use crate::session::{Header, Session};

/// Number of plausible records that must follow one another before a place is accepted as the start of a record.
const CHAIN: usize = 3;
/// Largest size of that many records in bytes.
pub(super) const CHAIN_BYTES: usize = (CHAIN + 1) << 16;
/// Record types that the kernel or perf may yet define.
const KIND_END: u32 = 128;

/// What of a recording was damaged and could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Places at which records could not be followed, or not be expanded.
    pub places: u64,
    /// Bytes skipped there (of compressed records: bytes as they stand in the file).
    pub bytes: u64,
    /// Whole records among them whose end was known; how many others the bytes held is not.
    pub records: u64,
    /// Where the first place is, in bytes from the start of the file.
    pub first_at: Option<u64>,
}

impl Damage {
    /// Counts one damaged place: its offset, the bytes skipped, and the whole records among them.
    pub(super) fn add(&mut self, at: u64, bytes: u64, records: u64) {
        self.places += 1;
        self.first_at.get_or_insert(at);
        self.more(bytes, records);
    }

    /// Counts more at the place counted last.
    pub(super) fn more(&mut self, bytes: u64, records: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.records += records;
    }
}

/// Whether a header can be what it says, by its type and size.
#[inline]
pub(super) fn is_sound(header: Header) -> bool {
    let size = usize::from(header.size);
    match header.kind {
        kind::FINISHED_ROUND => size == Header::BYTES,
        // The kernel pads its records; the perf tool does not pad all of its own.
        ..kind::HEADER_ATTR => size > Header::BYTES && size.is_multiple_of(8) && kind_name(header.kind).is_some(),
        _ => size >= Header::BYTES && kind_name(header.kind).is_some(),
    }
}

/// Whether a record may be of a type that is newer than this program.
pub(super) fn may_be_newer(header: Header) -> bool {
    (1..KIND_END).contains(&header.kind) && kind_name(header.kind).is_none()
}

/// Whether records begin at the start of `bytes`. `is_all`: these are the last ones.
pub(super) fn begins(session: &Session, bytes: &[u8], is_all: bool) -> bool {
    let mut at = 0;
    for number in 0..CHAIN {
        let rest = &bytes[at..];
        if rest.is_empty() {
            return is_all && number > 0;
        }
        let Ok(header) = Header::decode(&mut Bytes::new(rest, 0, session.endian())) else {
            // A header that the file's end cuts.
            return is_all && number > 0 && rest.len() < Header::BYTES;
        };
        if !is_sound(header) {
            return false;
        }
        let size = usize::from(header.size);
        let Some(body) = rest.get(Header::BYTES..size) else { return is_all && number > 1 };
        match header.kind {
            // What follows is a trace, not a record.
            kind::AUXTRACE | kind::HEADER_TRACING_DATA if number > 0 => return true,
            ..kind::HEADER_ATTR if session.decode(header, body, 0).is_err() => return false,
            _ => at += size,
        }
    }
    true
}

/// The first place at or behind `from` where records begin.
pub(super) fn find(session: &Session, bytes: &[u8], from: usize, until: usize, is_all: bool) -> Option<usize> {
    (from..until.min(bytes.len())).find(|&at| begins(session, &bytes[at..], is_all))
}
