//! What a NUMA machine *is*: nodes, CPUs, memory, caches, directed links, routes, latency and bandwidth. One type, [`Machine`],
//! serves the live system (read from sysfs under a root prefix) and model files (`docs/machine-model.md`).
//!
//! The crate only reads files. It assumes of the kernel what `Documentation/ABI/stable/sysfs-devices-node` and
//! `Documentation/admin-guide/mm/numaperf.rst` describe, and that any of it may be missing.

mod builtin;
mod check;
mod cpulist;
mod error;
mod hardware;
mod ids;
mod load;
mod machine;
mod model;
mod node_index;
mod node_set;
mod packed;
mod parts;
mod route;
mod sysfs;
mod threads;
mod tiers;
mod unknown;
mod unknowns;

pub use builtin::builtin_names;
pub use builtin::builtin_text;
pub use cpulist::CpuListError;
pub use cpulist::format_cpu_list;
pub use cpulist::parse_cpu_list;
pub use error::MachineError;
pub use error::Problem;
pub use hardware::Bounded;
pub use hardware::Cache;
pub use hardware::CacheKind;
pub use hardware::Coherence;
pub use hardware::CoreFigures;
pub use hardware::Cpu;
pub use hardware::Endpoint;
pub use hardware::Figure;
pub use hardware::FigureValue;
pub use hardware::Link;
pub use hardware::MachineSource;
pub use hardware::Node;
pub use hardware::NodeKind;
pub use hardware::Router;
pub use hardware::Routing;
pub use hardware::TrafficFigures;
pub use ids::CoreId;
pub use ids::CpuId;
pub use ids::LinkId;
pub use ids::NodeId;
pub use ids::RouterId;
pub use ids::SocketId;
pub use machine::Machine;
pub use node_index::NodeIndex;
pub use node_set::NodeSet;
pub use packed::Packed;
pub use sysfs::KernelFile;
pub use threads::Bind;
pub use tiers::MemoryTier;
pub use unknown::Subject;
pub use unknown::Unknown;

/// Most nodes that a machine may have: what the runtime's tables hold.
pub const MAX_NODES: usize = 64;
/// Most CPUs that a machine may have: what distributions' kernels are built for (`NR_CPUS`).
pub const MAX_CPUS: usize = 8192;
/// Most CPUs of a model file: what the runtime's tables hold, for which models are made.
pub const MAX_MODEL_CPUS: usize = 1024;
