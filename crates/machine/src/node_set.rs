//! Sets of nodes.

use crate::MAX_NODES;
use crate::node_index::NodeIndex;

/// Nodes by position in a machine's list, one bit each; not by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// The set of the first `count` nodes; at most [`MAX_NODES`].
    #[must_use]
    pub fn all(count: usize) -> NodeSet {
        NodeSet(if count >= MAX_NODES { u64::MAX } else { (1 << count) - 1 })
    }

    /// The nodes of the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = NodeIndex> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let node = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (node < MAX_NODES).then_some(NodeIndex(node))
        })
    }

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(self, node: NodeIndex) -> bool {
        node.0 < MAX_NODES && self.0 >> node.0 & 1 == 1
    }

    /// Whether all nodes of the set are in another one, too.
    #[must_use]
    pub fn is_subset(self, of: NodeSet) -> bool {
        self.0 & !of.0 == 0
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Positions that no machine has, [`MAX_NODES`] and above, are left out.
impl FromIterator<NodeIndex> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeIndex>>(nodes: I) -> NodeSet {
        NodeSet(nodes.into_iter().filter(|node| node.0 < MAX_NODES).fold(0, |set, node| set | 1 << node.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_nodes_it_was_made_of() {
        let set: NodeSet = [3, 0, 63, 64, 3].into_iter().map(NodeIndex).collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63].map(NodeIndex));
        assert!(set.contains(NodeIndex(63)) && !set.contains(NodeIndex(1)) && !set.contains(NodeIndex(64)));
        assert!(NodeSet(0b1001).is_subset(set) && !NodeSet(0b11).is_subset(set) && NodeSet::default().is_subset(set));
        assert_eq!((set.len(), NodeSet::all(64), NodeSet::all(2)), (3, NodeSet(u64::MAX), NodeSet(0b11)));
    }
}
