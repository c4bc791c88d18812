//! Evidence about pages: the nodes that use each page ([`table`]), its home node ([`homes`]), the most used ranges ([`hot`]), and when the evidence suffices
//! for a new decision ([`gate`]). Pure: no clock, no system calls.

pub mod gate;
pub mod homes;
pub mod hot;
pub mod table;
