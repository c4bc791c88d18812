//! What can be wrong with bytes that claim to be perf records.

use thiserror::Error;

/// A record, or a part of one, that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("at byte {offset}: {fault}")]
pub struct DecodeError {
    /// Where, in bytes from the start of the file or stream.
    pub offset: u64,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A count or a length asks for more than there is.
    #[error("{what} needs {needed} bytes and only {left} are left in the record")]
    Cut {
        /// Field that does not fit.
        what: &'static str,
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes that are left in the record.
        left: u64,
    },
    /// A field holds what it cannot.
    #[error("{what} cannot be {value}")]
    Value {
        /// Field with the impossible value.
        what: &'static str,
        /// The field's value.
        value: u64,
    },
    /// A record of an event that was never described.
    #[error("no event has the id {0}, so the record's layout is unknown")]
    UnknownId(u64),
    /// Several events with layouts so different that a record's own is not to be found.
    #[error("the events' layouts differ and none carries an identifier, so records cannot be told apart")]
    Ambiguous,
    /// A record came before any event was described.
    #[error("a sample comes before any event is described")]
    NoEvent,
}
