//! Ranges that do not overlap: a map from them to values ([`RangeMap`]), and the search for one in a sorted slice ([`find`]). What lies at an address is asked
//! with them in every crate that knows of mappings, blocks or homes of pages (`docs/design/0009-one-range-map.md`).
//!
//! A range holds what is at or after its start and before its end. A key is whatever has an order: an address, the number of a page, or a process and one of
//! these. No arithmetic is done on keys, so none overflows: who adds a size to an address saturates, or has checked before.
//!
//! A range that ends where it begins, or before, holds nothing: storing a value there changes nothing, and removing it removes nothing. Records of mappings of
//! 0 bytes and damaged traces have such ranges, and nothing here panics on any input.

mod map;
mod sorted;

pub use map::Piece;
pub use map::RangeMap;
pub use sorted::find;
