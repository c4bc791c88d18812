//! The solution of the model: latencies, throughputs, and the utilisation of every station.

use numapilot_machine::{LinkId, NodeId};
use serde::Serialize;

/// Relative change at which the fixed point is reached.
pub const TOLERANCE: f64 = 1e-10;

/// One station: a memory controller, a directed link, or a node's port.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StationLoad {
    /// The controller's node, if it is one.
    pub controller: Option<NodeId>,
    /// The link, if it is one.
    pub link: Option<LinkId>,
    /// The node whose CPUs read through it, if it is a node's read port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_port: Option<NodeId>,
    /// The node whose CPUs write through it, if it is a node's write port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_port: Option<NodeId>,
    /// Bytes per second that pass, of any kind.
    pub bytes_per_s: f64,
    /// Share of the time in which it is busy, 0 to 1.
    pub utilisation: f64,
    /// Customers there, waiting or served, on average.
    pub queue: f64,
}

/// The network's steady state under a [`crate::Load`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Solution {
    /// Memory accesses per second of each class, all its threads together, in the load's order.
    pub throughput_per_s: Vec<f64>,
    /// Mean nanoseconds of an access of each class.
    pub latency_ns: Vec<f64>,
    /// Loaded latency in nanoseconds of a read from node (row) to memory (column), as the threads of that node see it on average; for pairs that
    /// nobody uses, the latency of a first access. `NaN` where there is no path: from a node without CPUs, to one without memory.
    pub path_ns: Vec<Vec<f64>>,
    /// Marginal cost in nanoseconds of one more read from node (row) to memory (column): its own loaded latency plus the delay that it
    /// causes to all others. A placement should equalise it. Rarely the delay is negative: a class that a saturated station slows may relieve other stations.
    /// Empty where nobody asked for it ([`crate::Solver::without_marginal`]).
    pub marginal_ns: Vec<Vec<f64>>,
    /// Every controller (in node order, nodes with memory only), then every link in the machine's order, then the ports of nodes that have any: of each the
    /// read port, then the write port.
    pub stations: Vec<StationLoad>,
    /// Share of the background traffic that the stations have room for: 1 unless it alone would fill one.
    pub background_carried: f64,
    /// Iterations until the fixed point was reached.
    pub iterations: u32,
    /// Largest relative change in the last iteration; see [`Solution::converged`].
    pub residual: f64,
    /// Largest relative change in the last iteration for `marginal_ns`, which has an iteration of its own.
    pub adjoint_residual: f64,
}

impl Solution {
    /// Whether the fixed point was reached. Where it was not, the figures are near it at best, and whoever shows them says so.
    pub fn converged(&self) -> bool {
        self.residual < TOLERANCE
    }

    /// 0 where the fixed point was reached, else how far from it the last iteration was: infinitely where that is no number.
    pub(crate) fn unsettled(&self) -> f64 {
        if self.converged() {
            0.0
        } else if self.residual.is_nan() {
            f64::INFINITY
        } else {
            self.residual
        }
    }
}

/// The larger of two residuals; infinite where one is no number. [`f64::max`] drops what is no number, so that a solution which diverged would count as one
/// that converged.
#[must_use]
pub fn worse_residual(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_the_worst_of_residuals() {
        let worst = |residuals: &[f64]| residuals.iter().copied().fold(0.0, worse_residual);
        assert_eq!(worst(&[]), 0.0);
        assert_eq!(worst(&[1e-12, 0.03, 1e-11]), 0.03);
        for no_number in [[f64::NAN, 0.03], [0.03, f64::NAN], [f64::NAN, f64::INFINITY]] {
            assert_eq!(worst(&no_number), f64::INFINITY);
        }
    }
}
