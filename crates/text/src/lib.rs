//! Text that several crates write and read: numbers with units ([`units`] writes them, [`quantity`] reads them), fields of CSV ([`csv`]);
//! what of it a terminal would obey ([`terminal`]); and the files that hold it ([`destination`]).

pub mod csv;
pub mod destination;
pub mod quantity;
pub mod terminal;
pub mod units;
