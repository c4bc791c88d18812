//! Contention: how much memory-bound programs slow one another down, predicted by the traffic model against measured.
//!
//! The model is the one that `numapilot measure` makes of this machine. Its only other input is each program's rate alone, from which it predicts the rate
//! beside the others ([`predict`]). Programs run alone and together in turn, round after round ([`run`]), so that changes on the machine
//! affect both. Before and after each round it is seen whether the machine is still the one that was measured ([`steady`], [`rounds`]).

pub mod judge;
pub mod predict;
pub mod rounds;
pub mod run;
pub mod scenes;
pub mod steady;

use numapilot_machine::NodeId;
use serde::Serialize;

/// One program in a row, with its slow-down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Name of the program's activity.
    pub program: String,
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Node of these CPUs.
    pub cpu_node: NodeId,
    /// Node of its memory.
    pub memory_node: NodeId,
    /// Memory accesses per second alone (median of the rounds).
    pub alone_per_s: f64,
    /// Memory accesses per second while all threads run (median of the rounds).
    pub together_per_s: f64,
    /// Slow-down measured: alone over together, median of the rounds.
    pub measured: f64,
    /// Its spread over the rounds: 1.4826 times the median absolute deviation, as a share of it.
    pub spread: f64,
    /// Slow-down that the traffic model predicts.
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

    /// The measured slow-down minus 1, as an absolute value.
    #[must_use]
    pub fn effect(&self) -> f64 {
        (self.measured - 1.0).abs()
    }
}

/// Programs that ran side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the scene: nodes of CPUs and memory, in words.
    pub scene: String,
    /// The programs of the row.
    pub members: Vec<Member>,
    /// Share of the runs in which another program took a CPU of one of them in nearly every slice.
    pub disturbed_share: f64,
    /// Rounds that count: before and after them the machine was the one that was measured.
    pub rounds: usize,
    /// Rounds that were left out, because the machine was another one.
    pub rounds_left_out: usize,
    /// Whether at least half of the usual number of rounds count. Else the row is shown, and its prediction is not judged.
    pub is_judged: bool,
}

/// Results of the part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contention {
    /// Model file of this machine, as `numapilot measure --model` writes it: the predictions' only other source.
    pub model: String,
    /// Rounds of each row that have to count.
    pub rounds: usize,
    /// Rounds of all rows that were left out, because the machine was another one than the model is of.
    pub rounds_left_out: usize,
    /// How many times the machine was measured again, because it had changed when the programs began.
    pub measured_again: usize,
    /// One row per set of programs.
    pub rows: Vec<Row>,
    /// What all of a node's CPUs read, when the model was measured and while programs ran; `None` where no row tells.
    pub reading: Option<Reading>,
    /// Medians over all members of all rows; `None` without any.
    pub medians: Option<Medians>,
    /// What was left out, and what limits the figures, in whole sentences.
    pub notes: Vec<String>,
}

impl Contention {
    /// That the machine was measured again so many times, in a note where it was.
    pub(crate) fn tell_measured_again(&mut self, times: usize) {
        self.measured_again = times;
        if times > 0 {
            let words = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            self.notes.push(format!(
                "The machine was measured again {words}, because the first programs found another one than had been measured."
            ));
        }
    }
}

/// The same CPUs' reading of the same memory may differ by this factor, up or down: the measurement keeps the best of its repetitions, programs the middle one,
/// and half of a quiet machine's effect must still show.
const FACTOR_MAX: f64 = 1.25;

/// What the same CPUs read from the same memory, by both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Bytes per second in the measurement of which the model is.
    pub measured_bytes_per_s: f64,
    /// Bytes per second while the programs ran.
    pub found_bytes_per_s: f64,
}

impl Reading {
    /// Whether both are of one state of the machine.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.factor() <= FACTOR_MAX
    }

    /// The larger over the smaller; infinite where one is nothing.
    pub(crate) fn factor(&self) -> f64 {
        let ratio = self.measured_bytes_per_s / self.found_bytes_per_s;
        if ratio.is_finite() && ratio > 0.0 { ratio.max(1.0 / ratio) } else { f64::INFINITY }
    }
}

/// Medians over all members of all rows, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medians {
    /// Error of the prediction.
    pub error: f64,
    /// Error of "no slow-down".
    pub baseline_error: f64,
    /// Effect: slow-down minus 1, as an absolute value.
    pub effect: f64,
    /// Spread of the rounds.
    pub spread: f64,
}
