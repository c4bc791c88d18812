//! Information from the running Linux kernel about processes and the nodes of their memory: safe wrappers over the NUMA system calls, and parsers of the
//! files under /proc that describe tasks and mappings.
//!
//! Owns: no policy and no state. Parsers take bytes and re-used buffers, and files are read under a root prefix, so that everything but the system calls
//! is tested on text of any machine. Processes end at any moment and their ids are reused: callers must expect
//! [`KernelError::Gone`] as an ordinary result. Formats: `Documentation/filesystems/proc.rst`, `Documentation/admin-guide/mm/`.

pub mod actuator;
pub mod affinity;
pub mod balancing;
pub mod census;
pub mod cgroup;
pub mod cpu_time;
mod error;
pub mod frames;
pub mod inherited;
pub mod maps;
pub mod memory;
pub mod migrate;
pub mod numa_memory;
pub mod online_nodes;
pub mod origins;
pub mod pagemap;
pub mod sysctl;
pub mod task;
pub mod thread_cpus;

pub use error::KernelError;
