//! Positions of nodes in two bytes.

use numapilot_machine::NodeIndex;

/// A node's position in the machine's list, or none, in two bytes: an `Option<NodeIndex>` takes sixteen, and a recording has cells, pages and samples by the
/// million. Only these hold nodes in this form. Here alone it is made from a [`NodeIndex`], and becomes one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PackedNode(u16);

impl PackedNode {
    /// No node, or one that is not known: in order after all nodes.
    pub const NONE: PackedNode = PackedNode(u16::MAX);

    /// The node; `None`: there is none, or it is not known.
    pub fn index(self) -> Option<NodeIndex> {
        (self != PackedNode::NONE).then_some(NodeIndex(usize::from(self.0)))
    }
}

impl Default for PackedNode {
    fn default() -> PackedNode {
        PackedNode::NONE
    }
}

impl From<NodeIndex> for PackedNode {
    fn from(node: NodeIndex) -> PackedNode {
        // Below `numapilot_machine::MAX_NODES`, which is far less than two bytes hold.
        PackedNode(node.0 as u16)
    }
}

impl From<Option<NodeIndex>> for PackedNode {
    fn from(node: Option<NodeIndex>) -> PackedNode {
        node.map_or(PackedNode::NONE, PackedNode::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_node_is_the_same_node_and_the_unknown_one_comes_last() {
        let known = [0, numapilot_machine::MAX_NODES - 1].map(NodeIndex);
        assert_eq!(known.map(|node| PackedNode::from(node).index()), known.map(Some));
        assert_eq!(known.map(|node| PackedNode::from(Some(node))), known.map(PackedNode::from));
        assert_eq!((PackedNode::from(None::<NodeIndex>).index(), PackedNode::default()), (None, PackedNode::NONE));
        assert!(known.iter().all(|&node| PackedNode::from(node) < PackedNode::NONE));
        assert_eq!(size_of::<PackedNode>(), 2);
    }
}
