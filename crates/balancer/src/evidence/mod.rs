//! Evidence about pages: the nodes that use each page ([`table`]), its home node ([`homes`]), the most used ranges ([`hot`]), the load on the memory system
//! ([`estimate`]), when the evidence suffices for a new decision ([`gate`]), and the samples that a policy gets of it ([`observe`]). Pure: no clock, no
//! system calls.

pub mod estimate;
pub mod gate;
pub mod homes;
pub mod hot;
pub mod observe;
pub mod table;
