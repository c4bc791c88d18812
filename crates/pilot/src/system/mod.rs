//! What touches the running system: the processes looked after ([`targets`]), evidence from the kernel ([`eyes`]) and the processor
//! ([`samples`]), loaded latencies ([`probes`]), carrying orders out ([`hands`], threads by [`binding`]), settings that are changed and put back
//! ([`settings`]), and whoever keeps what was ([`keeper`]).

pub mod binding;
pub mod clock;
pub mod eyes;
mod family;
pub mod hands;
pub mod keeper;
pub mod probes;
pub mod samples;
pub mod settings;
pub mod targets;
