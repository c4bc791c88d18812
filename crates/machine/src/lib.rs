//! What a NUMA machine *is*: nodes, CPUs, memory, caches, links, routes, latency and bandwidth. One type serves the live
//! system (read from sysfs under a root prefix) and model files.

mod ids;

pub use ids::CpuId;
pub use ids::NodeId;
