//! Where an interleaved page goes: the random draws, as published and as coded.

use numapilot_machine::NodeIndex;
use numapilot_random::Random;

use super::settings::Draw;
use crate::metrics::Traffic;

/// The draws of one period.
#[derive(Clone, Debug)]
pub(crate) struct Targets<'a> {
    kind: Draw,
    /// The nodes with memory.
    nodes: &'a [NodeIndex],
    /// Load share of each of them, 0 to 1.
    shares: Vec<f64>,
    /// Load share of each of them in whole percent: the published code calculates with these.
    percents: Vec<u64>,
}

impl<'a> Targets<'a> {
    /// Makes the weights for the load of one period.
    pub fn new(kind: Draw, nodes: &'a [NodeIndex], traffic: &Traffic) -> Self {
        let total: f64 = nodes.iter().map(|&n| traffic.served[n]).sum();
        let shares: Vec<f64> =
            nodes.iter().map(|&n| if total > 0.0 { traffic.served[n] / total } else { 0.0 }).collect();
        let percents = shares.iter().map(|s| (100.0 * s) as u64).collect();
        Self { kind, nodes, shares, percents }
    }

    /// The node to which a page on `home` goes; `None`: it stays.
    pub fn draw(&self, home: NodeIndex, random: &mut Random) -> Option<NodeIndex> {
        let position = match self.kind {
            Draw::Falling => {
                let weights: Vec<f64> = self.shares.iter().map(|share| 1.0 - share).collect();
                weighted(random, &weights)?
            }
            Draw::Linear => self.draw_linear(home, random)?,
        };
        Some(self.nodes[position]).filter(|&node| node != home)
    }

    /// The code's arithmetic: 0 to 100 against the own percentage, then a point on the chain of 100 minus percentage; a point on the border of two
    /// nodes belongs to the earlier one. A position in `nodes`; `None`: the page stays.
    fn draw_linear(&self, home: NodeIndex, random: &mut Random) -> Option<usize> {
        let own = self.nodes.iter().position(|&n| n == home).map_or(100, |position| self.percents[position]);
        if random.remainder(101) > own {
            return None;
        }
        let length: u64 = self.percents.iter().map(|p| 100 - p.min(&100)).sum();
        let point = random.remainder(length);
        let mut border = 0;
        self.percents.iter().position(|percent| {
            border += 100 - percent.min(&100);
            border >= point
        })
    }
}

/// An index, drawn with probability proportional to its weight; `None` if no weight is positive.
fn weighted(random: &mut Random, weights: &[f64]) -> Option<usize> {
    let total: f64 = weights.iter().filter(|w| **w > 0.0).sum();
    let mut left = random.unit() * total;
    let mut last = None;
    for (index, &weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        last = Some(index);
        if left < weight {
            break;
        }
        left -= weight;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 40_000;

    /// Chi-square of counts against expected probabilities.
    fn chi_square(counts: &[usize], expected: &[f64]) -> f64 {
        let draws: usize = counts.iter().sum();
        counts.iter().zip(expected).map(|(&c, &p)| (c as f64 - p * draws as f64).powi(2) / (p * draws as f64)).sum()
    }

    fn counts(kind: Draw, served: &[f64], home: usize, seed: u64) -> Vec<usize> {
        let traffic = Traffic { served: served.to_vec(), reads: 0.0, local: 0.0, elapsed_ns: 1 };
        let nodes: Vec<NodeIndex> = NodeIndex::all(served.len()).collect();
        let targets = Targets::new(kind, &nodes, &traffic);
        let mut random = Random::new(seed);
        let mut counts = vec![0; served.len()];
        for _ in 0..DRAWS {
            counts[targets.draw(NodeIndex(home), &mut random).unwrap_or(NodeIndex(home))] += 1;
        }
        counts
    }

    #[test]
    fn falling_draw_has_weights_of_one_minus_share() {
        for seed in 0..3 {
            let counts = counts(Draw::Falling, &[40.0, 30.0, 20.0, 10.0], 0, seed);
            // 16.27 is the 99.9 % point for three degrees of freedom.
            let chi = chi_square(&counts, &[0.2, 0.7 / 3.0, 0.8 / 3.0, 0.3]);
            assert!(chi < 16.27, "seed {seed}: chi-square {chi}, {counts:?}");
        }
    }

    #[test]
    fn linear_draw_is_the_codes() {
        for seed in 0..3 {
            let counts = counts(Draw::Linear, &[40.0, 30.0, 20.0, 10.0], 0, seed);
            // Leaves with 41 of 101; lands on 60/70/80/90 of 300, the first one point wider and the last one narrower.
            let leave = 41.0 / 101.0;
            let expected =
                [1.0 - leave * (1.0 - 61.0 / 300.0), leave * 70.0 / 300.0, leave * 80.0 / 300.0, leave * 89.0 / 300.0];
            let chi = chi_square(&counts, &expected);
            assert!(chi < 16.27, "seed {seed}: chi-square {chi}, {counts:?}");
        }
    }

    #[test]
    fn all_on_one_node_leaves_it_at_once() {
        let falling = counts(Draw::Falling, &[100.0, 0.0, 0.0, 0.0], 0, 1);
        assert_eq!(falling[0], 0, "weight 0 for the only loaded node");
        let linear = counts(Draw::Linear, &[100.0, 0.0, 0.0, 0.0], 0, 1);
        // The code's border: one point of 300 still falls to the first node.
        assert!(linear[0] < DRAWS / 150, "{linear:?}");
    }
}
