//! What is known of pages: who was seen on each ([`table`]), where each lies ([`homes`]), which stretches are used most ([`hot`]), and when that is enough to
//! decide anew ([`gate`]). Pure: no clock, no system.

pub mod gate;
pub mod homes;
pub mod hot;
pub mod table;
