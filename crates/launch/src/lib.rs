//! Starts programs: from the first word of a command to the processes that are left when the program has ended.
//!
//! [`resolve_target`] finds the binary that the kernel will run, [`preload_obstacle`] says what keeps a library of ours out of it, [`spawn`] starts it with
//! our libraries and signals, and [`Program::reap`] sees its end and that of all that it started. Memory that its processes share with this one is
//! [`Held`] where they can open it.
//!
//! This crate touches the system: it needs Linux, and reads /proc.

mod binary;
mod children;
mod error;
mod holder;
mod loader;
mod preload;
mod processor_time;
mod program;
mod resolve;
pub mod signals;

pub use binary::Binary;
pub use binary::BinaryKind;
pub use error::LaunchError;
pub use holder::Held;
pub use preload::must_not_preload;
pub use preload::preload_obstacle;
pub use processor_time::ProcessorTimes;
pub use program::Exit;
pub use program::Launch;
pub use program::Program;
pub use program::Standing;
pub use program::exec_here;
pub use program::passive_waits;
pub use program::spawn;
pub use resolve::Target;
pub use resolve::find_program;
pub use resolve::resolve_target;
