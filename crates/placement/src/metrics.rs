//! The machine-wide figures that policies gate on, from the counters of an [`Observation`]. `docs/metrics.md` and
//! `docs/policies.md` define them.

use numapilot_machine::NodeIndex;
use numapilot_traffic::Imbalance;

use crate::observation::Observation;

/// Kind of standard deviation in the imbalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Over n - 1, as Carrefour's code has it: one hot node of four is 200 %.
    Sample,
    /// Over n: one hot node of four is 173 %.
    Population,
}

/// Memory accesses of one interval, machine-wide.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Accesses that each node's memory served, by node index.
    pub served: Vec<f64>,
    /// Number of reads among all accesses.
    pub reads: f64,
    /// Accesses to the accessing node's own memory.
    pub local: f64,
    /// Length of the interval in nanoseconds.
    pub elapsed_ns: u64,
}

impl Traffic {
    /// Adds up the counters of an observation. Counters that are missing or negative count nothing.
    pub fn of(seen: &Observation) -> Self {
        let count = seen.nodes.len();
        let mut traffic = Self { served: vec![0.0; count], reads: 0.0, local: 0.0, elapsed_ns: seen.elapsed_ns };
        for (from, node) in seen.nodes.iter().enumerate() {
            for to in 0..count {
                let figure = |list: &[f64]| list.get(to).copied().filter(|v| v.is_finite()).map_or(0.0, |v| v.max(0.0));
                let (reads, writes) = (figure(&node.reads_to), figure(&node.writes_to));
                traffic.served[to] += reads + writes;
                traffic.reads += reads;
                if from == to {
                    traffic.local += reads + writes;
                }
            }
        }
        traffic
    }

    /// Sum of the accesses of all nodes.
    pub fn total(&self) -> f64 {
        self.served.iter().sum()
    }

    /// Accesses per microsecond; 0 for an empty interval.
    pub fn accesses_per_us(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.total() * 1000.0 / self.elapsed_ns as f64 }
    }

    /// Share of accesses that were local, in percent; 0 without accesses, as Carrefour's code has it.
    pub fn local_ratio_percent(&self) -> f64 {
        percent(self.local, self.total(), 0.0)
    }

    /// Share of accesses that were reads, in percent; 100 without accesses.
    pub fn read_ratio_percent(&self) -> f64 {
        percent(self.reads, self.total(), 100.0)
    }

    /// Share of accesses that a node served, 0 to 1; 0 without accesses.
    pub fn share(&self, node: NodeIndex) -> f64 {
        let total = self.total();
        if total > 0.0 { self.served[node] / total } else { 0.0 }
    }

    /// Standard deviation over mean of the accesses that these nodes served, in percent; 0 for fewer than two nodes.
    pub fn imbalance_percent(&self, nodes: &[NodeIndex], deviation: Deviation) -> f64 {
        let served: Vec<f64> = nodes.iter().filter_map(|n| self.served.get(n.0).copied()).collect();
        let imbalance = Imbalance::of(&served).map_or(0.0, |imbalance| match deviation {
            Deviation::Sample => imbalance.sample,
            Deviation::Population => imbalance.population,
        });
        100.0 * imbalance
    }
}

fn percent(part: f64, whole: f64, empty: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { empty }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(served: &[f64]) -> Traffic {
        Traffic { served: served.to_vec(), reads: 0.0, local: 0.0, elapsed_ns: 1 }
    }

    #[test]
    fn imbalance_of_one_hot_node_is_as_published() {
        let all = |n: usize| NodeIndex::all(n).collect::<Vec<_>>();
        let hot = |n: usize| served(&(0..n).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect::<Vec<_>>());
        let rounded = |n: usize, d| hot(n).imbalance_percent(&all(n), d).round();
        assert_eq!((rounded(4, Deviation::Sample), rounded(4, Deviation::Population)), (200.0, 173.0));
        assert_eq!((rounded(8, Deviation::Sample), rounded(8, Deviation::Population)), (283.0, 265.0));
    }

    #[test]
    fn the_gate_of_35_percent_lies_where_published() {
        let at = |hot: f64, deviation| {
            let cold = (1.0 - hot) / 3.0;
            served(&[hot, cold, cold, cold]).imbalance_percent(&[0, 1, 2, 3].map(NodeIndex), deviation)
        };
        assert!(at(0.381, Deviation::Sample) < 35.0 && at(0.3813, Deviation::Sample) > 35.0);
        assert!(at(0.4015, Deviation::Population) < 35.0 && at(0.4016, Deviation::Population) > 35.0);
    }
}
