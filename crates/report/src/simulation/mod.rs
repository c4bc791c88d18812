//! Reports of simulated runs: policies side by side, the metrics over time, the traffic before and after. Everything is marked as simulated.

mod bars;
mod page;
mod series;
mod text;
mod traffic;
mod whatif;

use numapilot_simulator::Report;
use numapilot_traffic::Imbalance;

pub use bars::svg as bars_svg;
pub use page::html;
pub use series::svg as series_svg;
pub use text::render;
pub use traffic::svg as traffic_svg;
pub use whatif::{Prediction, prediction};

/// What gains of simulated runs are of, behind the baseline over which they are.
pub const OF_ONE_RUN: &str = "each of one simulated run, so that it has no interval";

/// Runs of one program on one machine under several policies, with one of them as the baseline.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// The runs, in the order in which they were asked for; at least one.
    pub runs: &'a [Report],
    /// Index of the baseline, over which gains are computed.
    pub base: usize,
}

impl<'a> Comparison<'a> {
    /// Takes `first-touch` as the baseline where it is among the runs, else the first run.
    #[must_use]
    pub fn new(runs: &'a [Report]) -> Comparison<'a> {
        let base = runs.iter().position(|run| run.policy == "first-touch").unwrap_or(0);
        Comparison { runs, base }
    }

    /// How much faster a run is than the baseline, as a share of its own time: 1 is twice as fast. `None` unless both runs finished.
    #[must_use]
    pub fn gain(&self, run: usize) -> Option<f64> {
        let (run, base) = (&self.runs[run], &self.runs[self.base]);
        (run.finished && base.finished && run.run_time_ns > 0.0).then(|| base.run_time_ns / run.run_time_ns - 1.0)
    }
}

/// The imbalance by the population definition.
pub(crate) fn population(imbalance: Option<Imbalance>) -> Option<f64> {
    imbalance.map(|imbalance| imbalance.population)
}

/// Colours of runs, distinct for people with any kind of colour vision (Okabe and Ito, 2008).
pub(crate) const COLOURS: [&str; 8] =
    ["#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#8a8a00"];

/// The colour of a run by its place in the list.
pub(crate) fn colour(run: usize) -> &'static str {
    COLOURS[run % COLOURS.len()]
}
