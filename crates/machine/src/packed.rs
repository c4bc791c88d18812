//! Nodes, or none, in one byte or two.

use std::marker::PhantomData;

use crate::ids::NodeId;
use crate::node_index::NodeIndex;

/// An integer that holds a node. Its largest value stands for none.
pub trait Word: Copy + Eq {
    /// The largest value.
    const NONE: Self;

    /// A node's position or number.
    fn of(number: usize) -> Self;

    /// The same again.
    fn number(self) -> usize;
}

impl Word for u8 {
    const NONE: u8 = u8::MAX;

    #[inline]
    fn of(number: usize) -> u8 {
        number as u8
    }

    #[inline]
    fn number(self) -> usize {
        usize::from(self)
    }
}

impl Word for u16 {
    const NONE: u16 = u16::MAX;

    #[inline]
    fn of(number: usize) -> u16 {
        number as u16
    }

    #[inline]
    fn number(self) -> usize {
        usize::from(self)
    }
}

/// A node, or none, as large as a `W`: an `Option<NodeIndex>` takes sixteen bytes, and there are tables with millions of nodes. `N` says what names
/// the node: its position ([`NodeIndex`]), which is below [`crate::MAX_NODES`] and fits into a byte (`W` is `u8` or `u16`), or the kernel's number
/// ([`NodeId`], in `u16`).
///
/// Here alone it is made from either, and becomes one again. In order, none comes after all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packed<N, W> {
    word: W,
    named_by: PhantomData<N>,
}

impl<N, W: Word> Packed<N, W> {
    /// No node, or one that is not known.
    pub const NONE: Packed<N, W> = Packed { word: W::NONE, named_by: PhantomData };

    #[inline]
    fn of(number: usize) -> Packed<N, W> {
        Packed { word: W::of(number), named_by: PhantomData }
    }

    #[inline]
    fn number(self) -> Option<usize> {
        (self.word != W::NONE).then(|| self.word.number())
    }
}

impl<W: Word> Packed<NodeIndex, W> {
    /// The node; `None`: there is none, or it is not known.
    #[inline]
    #[must_use]
    pub fn index(self) -> Option<NodeIndex> {
        self.number().map(NodeIndex)
    }
}

impl Packed<NodeId, u16> {
    /// The node; `None`: there is none, or it is not known.
    #[inline]
    #[must_use]
    pub fn id(self) -> Option<NodeId> {
        self.number().map(|number| NodeId(number as u16))
    }
}

impl<N, W: Word> Default for Packed<N, W> {
    fn default() -> Packed<N, W> {
        Packed::NONE
    }
}

impl<W: Word> From<NodeIndex> for Packed<NodeIndex, W> {
    #[inline]
    fn from(node: NodeIndex) -> Packed<NodeIndex, W> {
        Packed::of(node.0)
    }
}

impl<W: Word> From<Option<NodeIndex>> for Packed<NodeIndex, W> {
    #[inline]
    fn from(node: Option<NodeIndex>) -> Packed<NodeIndex, W> {
        node.map_or(Packed::NONE, Packed::from)
    }
}

impl From<NodeId> for Packed<NodeId, u16> {
    #[inline]
    fn from(node: NodeId) -> Packed<NodeId, u16> {
        Packed::of(usize::from(node.0))
    }
}

impl From<Option<NodeId>> for Packed<NodeId, u16> {
    #[inline]
    fn from(node: Option<NodeId>) -> Packed<NodeId, u16> {
        node.map_or(Packed::NONE, Packed::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_NODES;

    fn positions_come_back<W: Word + Ord + std::fmt::Debug>() {
        let none = Packed::<NodeIndex, W>::NONE;
        for node in NodeIndex::all(MAX_NODES) {
            let packed = Packed::<NodeIndex, W>::from(node);
            assert_eq!(packed, Packed::<NodeIndex, W>::from(Some(node)));
            assert_eq!(packed.index(), Some(node));
            assert!(packed < none);
        }
        assert_eq!(none.index(), None);
        assert_eq!(none, Packed::<NodeIndex, W>::from(None::<NodeIndex>));
        assert_eq!(none, Packed::<NodeIndex, W>::default());
        assert_eq!(size_of::<Packed<NodeIndex, W>>(), size_of::<W>());
    }

    #[test]
    fn a_packed_node_is_the_same_node_and_none_comes_last() {
        positions_come_back::<u8>();
        positions_come_back::<u16>();
        let none = Packed::<NodeId, u16>::NONE;
        for node in [0, 64, 4096, u16::MAX - 1].map(NodeId) {
            let packed = Packed::<NodeId, u16>::from(node);
            assert_eq!(packed, Packed::<NodeId, u16>::from(Some(node)));
            assert_eq!(packed.id(), Some(node));
            assert!(packed < none);
        }
        assert_eq!(none.id(), None);
        assert_eq!(none, Packed::<NodeId, u16>::from(None::<NodeId>));
        assert_eq!(size_of::<Packed<NodeId, u16>>(), 2);
    }
}
