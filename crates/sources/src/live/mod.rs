//! Recording the running kernel's events (opened by `numapilot-perf-events`): reading the rings that it writes their records to (`drain`), on the tracker's
//! scale of stamps ([`time`]) and with the tracker's numbers of threads (`news`). What the records mean is in `numapilot-sampled`.

mod attach;
mod drain;
mod news;
mod session;
mod synthesize;
pub mod time;
mod words;

pub use attach::Running;
pub use attach::record_running;
pub(crate) use drain::LiveOutcome;
pub(crate) use news::News;
pub(crate) use session::Live;

#[cfg(test)]
mod tests;
