//! Per-node copies of read-mostly data.
//!
//! Threads of a process share one page table, so copies cannot be transparent to them: the program has to ask for the copy of the node that
//! it runs on. [`Replicated`] is the interface for Rust, `c/numapilot_replica.h` for C; both are the same library (`c/replica.c`), written in C so that
//! programs in any language can carry it. `docs/replication.md` has what is promised, why it holds, and how it is tested.
//!
//! Processes can be given copies without asking: [`mappings`] starts programs with a preload library that replaces their read-only mappings.
//!
//! Needs Linux; membarrier (Linux 4.14) makes readers cheap, without it each read section needs a memory fence.

mod ffi;
pub mod mappings;
pub mod orders;
pub mod reason;
mod replicated;

pub use replicated::CopyOnNode;
pub use replicated::Error;
pub use replicated::Info;
pub use replicated::Options;
pub use replicated::Replicated;
pub use replicated::Section;
