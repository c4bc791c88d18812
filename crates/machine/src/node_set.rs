//! Sets of nodes.

use crate::MAX_NODES;

/// Nodes by index, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// The set of the first `count` nodes; at most [`MAX_NODES`].
    #[must_use]
    pub fn all(count: usize) -> NodeSet {
        NodeSet(if count >= MAX_NODES { u64::MAX } else { (1 << count) - 1 })
    }

    /// Indices of the nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let node = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (node < MAX_NODES).then_some(node)
        })
    }

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(self, node: usize) -> bool {
        node < MAX_NODES && self.0 >> node & 1 == 1
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

/// Indices that no machine has, [`MAX_NODES`] and above, are left out.
impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> NodeSet {
        NodeSet(nodes.into_iter().filter(|node| *node < MAX_NODES).fold(0, |set, node| set | 1 << node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_nodes_it_was_made_of() {
        let set: NodeSet = [3, 0, 63, 64, 3].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
        assert!(set.contains(63) && !set.contains(1) && !set.contains(64));
        assert!(NodeSet(0b1001).is_subset(set) && !NodeSet(0b11).is_subset(set) && NodeSet::default().is_subset(set));
        assert_eq!((set.len(), NodeSet::all(64), NodeSet::all(2)), (3, NodeSet(u64::MAX), NodeSet(0b11)));
    }
}
