//! What is known of pages: who was seen on each ([`table`]), where each lies ([`homes`]), and which stretches are used most ([`hot`]). Pure: no clock, no system.

pub mod homes;
pub mod hot;
pub mod table;
