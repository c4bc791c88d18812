//! What touches the running system: the processes looked after ([`targets`]), evidence from the kernel ([`fault_sampler`]) and the processor
//! ([`samples`]), loaded latencies ([`probes`]), carrying orders out ([`migration_executor`], threads by [`binding`]), settings that are changed and put back
//! ([`settings`]), and whoever keeps what was ([`undo_log`]).

pub mod binding;
pub mod clock;
mod family;
pub mod fault_sampler;
pub mod migration_executor;
pub mod probes;
pub mod samples;
pub mod settings;
pub mod targets;
pub mod undo_log;
