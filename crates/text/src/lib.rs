//! Text that several crates write and read: numbers with units ([`units`] writes them, [`quantity`] reads them), fields of CSV ([`csv`]);
//! and the files that hold it ([`destination`]).

pub mod csv;
pub mod destination;
pub mod quantity;
pub mod units;
