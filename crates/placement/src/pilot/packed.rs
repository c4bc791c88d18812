//! Positions of nodes in one byte.

use numapilot_machine::NodeIndex;

/// A node's position in one byte: there are statistics of millions of pages ([`super::memory::PageMemory`]), which would be half as large again if they held
/// two [`NodeIndex`] each. Here alone it is made from one, and becomes one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedNode(u8);

impl PackedNode {
    /// The node's position, as it was packed.
    pub fn index(self) -> NodeIndex {
        NodeIndex(usize::from(self.0))
    }
}

impl From<NodeIndex> for PackedNode {
    fn from(node: NodeIndex) -> PackedNode {
        // Below `numapilot_machine::MAX_NODES`, which is less than a byte holds.
        PackedNode(node.0 as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_node_is_the_same_node() {
        let nodes = || NodeIndex::all(numapilot_machine::MAX_NODES);
        assert!(nodes().eq(nodes().map(|node| PackedNode::from(node).index())));
        assert_eq!(size_of::<PackedNode>(), 1);
    }
}
