//! Measures a machine: latency of every (CPU node, memory node) pair, cache levels, bandwidth, latency under load, and hand-off between CPUs; and makes a
//! machine model of what it found. `docs/measure.md` says how, and what each number means.
//!
//! One direction: [`Permit`] (what this process may use) and [`Options`] go into a pure [`Plan`]; [`run`] carries it out and returns [`Results`], plain
//! data; [`calibrate`] fits the traffic model to them. [`run_together`] runs memory-bound programs side by side, so that the model can be checked against how
//! they slow one another down. Memory is bound to its node, and `move_pages` verifies its placement, before anything is timed. Disturbances of a
//! measurement (stolen time, preemption, a changing clock) are reported beside the result and never averaged into it.

mod bandwidth;
mod caches;
mod calibrate;
mod calibration;
mod disturbance;
mod error;
mod handoff;
mod kernels;
mod latency;
mod levels;
mod loaded;
mod model_file;
mod options;
mod order;
mod permit;
mod pin;
mod plan;
mod ports;
mod proof;
mod queues;
mod region;
mod results;
mod run;
mod states;
mod stats;
mod threads;
mod together;
mod trials;

pub use calibrate::calibrate;
pub use calibration::Calibration;
pub use calibration::Latencies;
pub use calibration::Limit;
pub use calibration::PairFit;
pub use calibration::QueueingDelay;
pub use disturbance::Disturbance;
pub use disturbance::clock_hz;
pub use error::MeasureError;
pub use kernels::Isa;
pub use kernels::Kernel;
pub use levels::Level;
pub use model_file::model_text;
pub use options::Options;
pub use options::Order;
pub use options::Pages;
pub use options::Part;
pub use permit::Permit;
pub use plan::Plan;
pub use plan::Step;
pub use plan::Task;
pub use proof::Proof;
pub use results::BandwidthCell;
pub use results::Curve;
pub use results::CurvePoint;
pub use results::Figure;
pub use results::Handoff;
pub use results::Host;
pub use results::LatencyCell;
pub use results::Overlap;
pub use results::PairState;
pub use results::Relation;
pub use results::Results;
pub use results::StairPoint;
pub use results::Staircase;
pub use results::Target;
pub use results::Walk;
pub use run::Progress;
pub use run::run;
pub use states::STATE_WIDTH;
pub use states::State;
pub use stats::Better;
pub use stats::Spread;
pub use stats::median;
pub use together::Activity;
pub use together::PROBE;
pub use together::Pace;
pub use together::Program;
pub use together::Seat;
pub use together::Slice;
pub use together::rate;
pub use together::run_together;
