//! Positions of nodes in a machine's list. Tables by node are indexed by them, because the kernel's numbers may be sparse.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A node's position in [`crate::Machine::nodes`]: from 0, without gaps, below [`crate::MAX_NODES`]. It comes from [`crate::Machine::node_index`].
///
/// It is never the kernel's number ([`crate::NodeId`]), which system calls, `/proc` and users want: position 1 of a machine with the nodes 0 and 8 is node 8.
/// So it cannot be printed: name a node by `machine.nodes()[index].id`. Vectors and slices that hold one entry per node take it as their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIndex(pub usize);

impl NodeIndex {
    /// The positions of all nodes of a machine with `count` of them, ascending.
    #[must_use]
    pub fn all(count: usize) -> impl DoubleEndedIterator<Item = NodeIndex> + ExactSizeIterator + Clone {
        (0..count).map(NodeIndex)
    }
}

impl<T> Index<NodeIndex> for [T] {
    type Output = T;

    fn index(&self, node: NodeIndex) -> &T {
        &self[node.0]
    }
}

impl<T> IndexMut<NodeIndex> for [T] {
    fn index_mut(&mut self, node: NodeIndex) -> &mut T {
        &mut self[node.0]
    }
}

impl<T> Index<NodeIndex> for Vec<T> {
    type Output = T;

    fn index(&self, node: NodeIndex) -> &T {
        &self[node.0]
    }
}

impl<T> IndexMut<NodeIndex> for Vec<T> {
    fn index_mut(&mut self, node: NodeIndex) -> &mut T {
        &mut self[node.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_by_node_are_indexed_by_position() {
        let mut served = vec![vec![0; 3]; 3];
        for (node, row) in NodeIndex::all(3).zip(&mut served) {
            row[node] = node.0 + 1;
        }
        assert_eq!(served, [[1, 0, 0], [0, 2, 0], [0, 0, 3]]);
        assert_eq!(served[NodeIndex(2)][NodeIndex(2)], 3);
        assert_eq!(NodeIndex::all(2).rev().collect::<Vec<_>>(), [NodeIndex(1), NodeIndex(0)]);
    }
}
