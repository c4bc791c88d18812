//! Contention: how much memory-bound programs slow one another down, predicted by the traffic model against measured.
//!
//! The model is the one that `numapilot measure` makes of this machine. Of each program it is told what the program did alone; from that alone follows what
//! each does beside the others ([`predict`]). Programs run alone and together in turn, round after round ([`run`]), so that what changes on the machine
//! meanwhile changes both.

pub mod judge;
pub mod predict;
pub mod run;
pub mod scenes;

use numapilot_machine::NodeId;
use serde::Serialize;

/// One program in a row, with its slow-down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// What it does.
    pub program: String,
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Node of these CPUs.
    pub cpu_node: NodeId,
    /// Node of its memory.
    pub memory_node: NodeId,
    /// Memory accesses per second alone (median of the rounds).
    pub alone_per_s: f64,
    /// The same beside the others.
    pub together_per_s: f64,
    /// Slow-down measured: alone over together, median of the rounds.
    pub measured: f64,
    /// Its spread over the rounds: 1.4826 times the median absolute deviation, as a share of it.
    pub spread: f64,
    /// Slow-down predicted.
    pub predicted: f64,
}

impl Member {
    /// Relative error of the prediction.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }

    /// Relative error of predicting that nothing slows down.
    #[must_use]
    pub fn baseline_error(&self) -> f64 {
        (1.0 / self.measured - 1.0).abs()
    }

    /// How far the measured slow-down is from none.
    #[must_use]
    pub fn effect(&self) -> f64 {
        (self.measured - 1.0).abs()
    }
}

/// Programs that ran side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Where they ran, in words.
    pub scene: String,
    /// The programs.
    pub members: Vec<Member>,
    /// Share of the runs in which one of them lost its CPU to somebody else in nearly every slice.
    pub disturbed_share: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contention {
    /// Model file of this machine, as `numapilot measure --model` writes it: the predictions' only other source.
    pub model: String,
    /// Rounds of each row.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// Medians over all members of all rows; `None` without any.
    pub medians: Option<Medians>,
    /// What was left out, and what limits the figures, in whole sentences.
    pub notes: Vec<String>,
}

/// Medians over all members of all rows, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medians {
    /// Error of the prediction.
    pub error: f64,
    /// Error of "no slow-down".
    pub baseline_error: f64,
    /// How far slow-downs are from none.
    pub effect: f64,
    /// Spread of the rounds.
    pub spread: f64,
}
