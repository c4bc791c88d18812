//! `weighted-interleave`: new pages round robin with weights that follow the bandwidth of each node's memory
//! (`MPOL_WEIGHTED_INTERLEAVE`, Linux 6.9; weights as Linux 6.16 derives them from bandwidths in `mm/mempolicy.c`).

use numapilot_machine::NodeIndex;

use super::{NOTHING, chosen_nodes};
use crate::action::{Action, Allocation};
use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use crate::observation::Observation;
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};

/// Sum that the kernel aims the weights at before it divides by their common factor: large enough to tell bandwidths apart, small enough
/// that a short allocation still spreads (`weightiness` in `mm/mempolicy.c`).
const WEIGHTINESS: f64 = 32.0;

/// Policy `weighted-interleave`: new pages are allocated round robin over nodes, with weights.
pub(crate) struct WeightedInterleave {
    weights: Vec<(NodeIndex, u8)>,
    bandwidth_unknown: bool,
}

impl WeightedInterleave {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        OptionInfo::new("nodes", "all", "nodes to spread over, by number, such as 0-1/3; all: every node with memory"),
        OptionInfo::new(
            "weights",
            "bandwidth",
            "weight of each of these nodes, 1 to 255, in their order, such as 3/1; bandwidth: in proportion to it",
        ),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, facts: &NodeFacts) -> Result<Self, PlacementError> {
        let nodes = chosen_nodes(options, facts)?;
        let text = options.text("weights");
        if text != "bandwidth" {
            let weights: Option<Vec<u8>> = text.split('/').map(|w| w.trim().parse().ok().filter(|&w| w > 0)).collect();
            return match weights {
                Some(weights) if weights.len() == nodes.len() => {
                    Ok(Self { weights: nodes.into_iter().zip(weights).collect(), bandwidth_unknown: false })
                }
                _ => Err(options.bad(
                    "weights",
                    format!("{text:?} is not one whole number from 1 to 255 for each of {} nodes", nodes.len()),
                    "write them with slashes between, such as `weights=3/1`".to_owned(),
                )),
            };
        }
        let bandwidth_unknown = nodes.iter().any(|&n| facts.bandwidth[n].is_none());
        if bandwidth_unknown {
            return Ok(Self { weights: nodes.into_iter().map(|n| (n, 1)).collect(), bandwidth_unknown });
        }
        // The kernel has one table of weights, of all nodes with memory, whatever nodes a policy names.
        let all: Vec<f64> = facts.with_memory.iter().map(|&n| facts.bandwidth[n].unwrap_or(0.0)).collect();
        let all = facts.with_memory.iter().copied().zip(weights_from(&all));
        Ok(Self { weights: all.filter(|(n, _)| nodes.contains(n)).collect(), bandwidth_unknown })
    }
}

/// The kernel's weights for these bandwidths: proportional, at least 1, without a common factor.
fn weights_from(bandwidths: &[f64]) -> Vec<u8> {
    let total: f64 = bandwidths.iter().sum();
    let weights: Vec<u8> =
        bandwidths.iter().map(|b| (WEIGHTINESS * b / total).floor().clamp(1.0, 255.0) as u8).collect();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    weights.into_iter().map(|w| w / divisor).collect()
}

fn greatest_common_divisor(a: u8, b: u8) -> u8 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Policy for WeightedInterleave {
    fn name(&self) -> &str {
        "weighted-interleave"
    }

    fn initial_allocation(&self) -> Allocation {
        Allocation::WeightedInterleave(self.weights.clone())
    }

    fn requirements(&self) -> PolicyRequirements {
        NOTHING
    }

    fn decide(&mut self, _: &Observation) -> Vec<Action> {
        Vec::new()
    }

    fn explain(&self) -> String {
        let weights: Vec<String> = self.weights.iter().map(|(_, weight)| weight.to_string()).collect();
        let why = if self.bandwidth_unknown {
            "; all equal, because the machine's memory bandwidths are unknown"
        } else {
            ""
        };
        format!("weights {}{why}", weights.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_some_nodes_are_those_that_they_have_among_all() {
        let options = |text: &str| Options::parse("weighted-interleave", WeightedInterleave::OPTIONS.to_vec(), text);
        let mut facts = NodeFacts::new(&crate::fixtures::machine()).expect("has memory");
        facts.bandwidth = [300e9, 100e9, 50e9, 50e9].map(Some).to_vec();
        let explained = |text: &str, facts: &NodeFacts| {
            WeightedInterleave::new(&options(text).expect("valid"), facts).expect("valid").explain()
        };
        assert_eq!(explained("", &facts), "weights 19/6/3/3");
        assert_eq!(explained("nodes=0-1", &facts), "weights 19/6", "not 3/1, as if there were no others");
        facts.bandwidth[3] = None;
        assert_eq!(explained("nodes=0-1", &facts), "weights 21/7", "... but those of unknown bandwidth");
    }

    #[test]
    fn weights_are_those_of_the_kernel() {
        assert_eq!(weights_from(&[12.8e9; 4]), [1, 1, 1, 1]);
        // 32 x 300 / 360 = 26.7 and 32 x 60 / 360 = 5.3: no common factor.
        assert_eq!(weights_from(&[300e9, 60e9]), [26, 5]);
        assert_eq!(weights_from(&[300e9, 100e9]), [3, 1]);
        assert_eq!(weights_from(&[1e12, 1.0]), [31, 1]);
    }
}
