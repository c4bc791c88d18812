//! Arm's Statistical Profiling Extension: packets in an AUX buffer, collected to records, each one sampled operation (Arm Architecture
//! Reference Manual, chapter D18, "Statistical Profiling Extension sample record specification").

mod packet;
mod record;

pub use packet::{AddressKind, CounterKind, Packet, Packets};
pub use record::{Records, SourceTable, SpeRecord, interval};
