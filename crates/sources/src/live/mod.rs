//! Events of the running kernel: opening them ([`open`]), reading the rings that it writes their records to ([`ring`], `drain`), on the tracker's scale of
//! stamps ([`time`]) and with the tracker's numbers of threads (`news`). What the records mean is in [`crate::sampled`].

mod attach;
mod aux;
mod drain;
mod emulated;
pub mod event;
mod homes;
pub mod live_sampler;
mod news;
pub mod open;
pub mod pmu;
pub mod ring;
mod session;
mod synthesize;
pub mod time;
mod wake;
mod words;

pub use attach::Running;
pub use attach::record_running;
pub(crate) use drain::LiveOutcome;
pub(crate) use news::News;
pub(crate) use session::Live;

#[cfg(test)]
mod tests;
