//! Text that several crates write and read: numbers with units ([`units`] writes them, [`quantity`] reads them), dates ([`date`]), tables within a width
//! ([`table`], with names that stay apart by [`elide`], and lines by [`style`]), fields of CSV ([`csv`]), strings of TOML ([`toml`]), words of a shell
//! ([`shell`]) and text in HTML and XML ([`markup`]); what of it a terminal would obey ([`terminal`]); and the files that hold it ([`destination`]).

pub mod csv;
pub mod date;
pub mod destination;
pub mod elide;
pub mod markup;
pub mod quantity;
pub mod shell;
pub mod style;
pub mod table;
pub mod terminal;
pub mod toml;
pub mod units;
