//! What touches the running system: the processes looked after ([`targets`]), evidence from the kernel ([`eyes`]), loaded latencies ([`probes`]), carrying
//! orders out ([`hands`]), settings that are changed and put back ([`settings`]).

pub mod eyes;
pub mod hands;
pub mod probes;
pub mod settings;
pub mod targets;
