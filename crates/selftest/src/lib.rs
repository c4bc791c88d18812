//! Checks what numapilot claims about hardware, on the machine that it runs on: that the traffic model predicts how programs slow one another down, that
//! memory policies put pages where they say, that engines name the right object, home and accessor, and that latencies order as the firmware's distances.
//! `docs/selftest.md` says how, and what each verdict means.
//!
//! Every part has a pure half (what is checked, prediction, verdict) and a half that touches the system (running programs, mapping memory, recording).
//! Whatever cannot be checked on a machine is *not judged*, with the reason: that is no failure, and no success either.

pub mod contention;
pub mod engines;
pub mod latency_order;
mod outcome;
pub mod placement;
mod run;
pub mod text;

pub use outcome::Check;
pub use outcome::NOTHING_JUDGED;
pub use outcome::Part;
pub use outcome::PartResult;
pub use outcome::SelfTest;
pub use outcome::Verdict;
pub use run::Options;
pub use run::Progress;
pub use run::run;
