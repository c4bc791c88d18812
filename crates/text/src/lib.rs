//! Text that several crates write and read: numbers with units ([`units`] writes them, [`quantity`] reads them) and fields of CSV ([`csv`]).

pub mod csv;
pub mod quantity;
pub mod units;
