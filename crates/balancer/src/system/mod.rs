//! What the running system shows: the managed processes ([`targets`]), evidence from the kernel ([`fault_sampler`]) and the processor ([`samples`]), loaded
//! latencies ([`probes`]), the nodes' memory ([`node_memory`]), memory pressure ([`pressure`]), how fast processes are ([`speed_meter`]), how long threads ran
//! between decisions ([`ran`]), nodes and CPUs that came after the start ([`new_nodes`], [`online_cpus`]), the CPUs that threads are bound to ([`bound`]); and
//! the record for undoing changes ([`undo_log`]).

pub mod bound;
pub mod clock;
mod family;
pub mod fault_sampler;
mod heritage;
pub mod new_nodes;
pub mod node_memory;
pub mod numa_look;
pub mod online_cpus;
pub mod pressure;
pub mod probes;
pub mod ran;
pub mod samples;
mod slots;
pub mod speed_meter;
pub mod targets;
pub mod undo_log;
mod watched;
