//! The kernel's files, read under a root prefix (`/` on the running system, a tree of files in tests): one reader ([`Root`]) and one parser for each format
//! that several crates need ([`TaskStat`], [`TaskStatus`], [`ProcessPages`], [`Mounts`], [`cpuinfo`], [`meminfo`]); which processes belong together: trees,
//! cgroups and systemd's units ([`Members`], [`cgroups`]); from whom they inherit their events ([`Lineages`]); and whether this user is shown all of them
//! ([`hidden_processes`]); and how long tasks wait for what ([`pressure`]). Files that the kernel may never answer for are given up ([`read_patiently`]).
//! Work on as many threads as the system gives ([`workers`]).
//! And the types of numbers that are the kernel's: of processes ([`Pid`]), of threads ([`Tid`]), of addresses ([`VirtAddr`]) and, in units of our own, of pages
//! ([`PageNumber`]).
//!
//! Owns no policy, and knows nothing of nodes or machines. Parsers take bytes, allocate nothing, and refuse what the kernel never writes. Formats:
//! `Documentation/filesystems/proc.rst`.

pub mod cgroups;
pub mod cpuinfo;
mod hidden;
mod ids;
mod lineages;
mod members;
pub mod meminfo;
mod mounts;
mod namespaces;
mod page_number;
mod patient;
pub mod pressure;
mod process_pages;
mod root;
mod task_stat;
mod task_status;
#[cfg(feature = "testing")]
pub mod testing;
mod title;
mod virt_addr;
pub mod workers;

pub use hidden::hidden_by;
pub use hidden::hidden_processes;
pub use ids::Pid;
pub use ids::Tid;
pub use lineages::Lineages;
pub use members::Group;
pub use members::Member;
pub use members::Members;
pub use members::ProcessLine;
pub use members::ProcessTable;
pub use members::now_ticks;
pub use members::ticks_per_s;
pub use members::time_since;
pub use mounts::Mounts;
pub use namespaces::in_user_namespace;
pub use namespaces::innermost_number;
pub use page_number::PageNumber;
pub use patient::helpers_cpu;
pub use patient::is_locked;
pub use patient::locked_error;
#[cfg(feature = "testing")]
pub use patient::locked_for_test;
pub use patient::read_patiently;
pub use process_pages::ProcessPages;
pub use process_pages::has_memory;
pub use root::FileError;
pub use root::Root;
pub use root::is_gone;
pub use root::number;
pub use task_stat::TaskStat;
pub use task_status::TaskStatus;
pub use title::title;
pub use title::title_of_named;
pub use virt_addr::VirtAddr;
