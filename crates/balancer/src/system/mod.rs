//! Access to the running system: the managed processes ([`targets`]) and what they start ([`births`]), evidence from the kernel ([`fault_sampler`]) and the
//! processor ([`samples`]), loaded latencies ([`probes`]), execution of orders ([`migration_executor`], for threads [`binding`]), system settings
//! ([`settings`]), the record for undoing changes ([`undo_log`]), and what long work asks meanwhile ([`progress`]).

pub mod binding;
pub mod births;
pub mod bound;
pub mod clock;
mod family;
pub mod fault_sampler;
mod heritage;
pub mod migration_executor;
pub mod numa_look;
pub mod probes;
pub mod progress;
pub mod samples;
pub mod settings;
pub mod targets;
pub mod undo_log;
mod watched;
