//! Events of the running kernel: opening them ([`open`]), and reading the rings that it writes their records to ([`ring`]).

pub mod event;
pub mod open;
pub mod period;
pub mod pmu;
mod refusal;
pub mod ring;
pub mod time;
