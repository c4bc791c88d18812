//! Share of accesses from the node that dominates a set of samples. Each sample is judged by the other samples only: among few samples, some node always has
//! most, so a sample must not count as evidence for itself.

use numapilot_machine::NodeIndex;

use crate::estimate::{Tally, Weight};

/// Samples and accesses by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByNode {
    pub samples: Vec<u32>,
    pub weight: Vec<Tally>,
}

impl ByNode {
    pub fn add(&mut self, node: NodeIndex, weight: Weight) {
        if node.0 >= self.samples.len() {
            self.samples.resize(node.0 + 1, 0);
            self.weight.resize(node.0 + 1, Tally::default());
        }
        self.samples[node] += 1;
        self.weight[node].add(weight);
    }

    /// The node with most samples.
    pub fn main(&self) -> Option<NodeIndex> {
        let main = self.samples.iter().enumerate().max_by_key(|&(node, count)| (*count, std::cmp::Reverse(node)))?;
        (*main.1 > 0).then_some(NodeIndex(main.0))
    }

    /// Adds to `agree` the accesses from the node that the *other* samples name, to `judged` all that have others to be judged by.
    pub fn judge(&self, agree: &mut Tally, judged: &mut Tally) {
        if self.samples.iter().sum::<u32>() < 2 {
            return;
        }
        self.weight.iter().for_each(|tally| judged.merge(tally));
        let Some(main) = self.main() else { return };
        let others = NodeIndex::all(self.samples.len()).filter(|&node| node != main);
        let second = others.map(|node| self.samples[node]).max();
        if self.samples[main] > second.unwrap_or(0) + 1 || second.unwrap_or(0) == 0 {
            agree.merge(&self.weight[main]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(counts: &[u32]) -> f64 {
        let mut by_node = ByNode::default();
        for (node, &count) in NodeIndex::all(counts.len()).zip(counts) {
            (0..count).for_each(|_| by_node.add(node, Weight::from(1)));
        }
        let (mut agree, mut judged) = (Tally::default(), Tally::default());
        by_node.judge(&mut agree, &mut judged);
        if judged.weight > 0.0 { agree.weight / judged.weight } else { -1.0 }
    }

    #[test]
    fn a_sample_is_no_witness_for_itself() {
        assert_eq!(share(&[1]), -1.0, "one sample is not judged");
        assert_eq!(share(&[1, 1]), 0.0, "two that differ contradict each other");
        assert_eq!(share(&[2]), 1.0);
        assert_eq!(share(&[9, 1]), 0.9);
    }
}
