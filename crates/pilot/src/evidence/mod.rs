//! What is known of pages: who was seen on each ([`table`]), and where each lies ([`homes`]). Pure: no clock, no system.

pub mod homes;
pub mod table;
