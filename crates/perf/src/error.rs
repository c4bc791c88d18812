//! What can be wrong with bytes that claim to be perf records.

use thiserror::Error;

/// A record, or a part of one, that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("at byte {offset}: {fault}")]
pub struct DecodeError {
    /// Where, in bytes from the start of the file or stream.
    pub offset: u64,
    /// What.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A count or a length asks for more than there is.
    #[error("{what} needs {needed} bytes and only {left} are left in the record")]
    Cut {
        /// Of which field.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        left: u64,
    },
    /// A field holds what it cannot.
    #[error("{what} cannot be {value}")]
    Value {
        /// Which field.
        what: &'static str,
        /// Its value.
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
