//! Disjoint address ranges with a value each: mappings, stacks, large blocks.

use std::collections::BTreeMap;

/// A range of addresses with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<V> {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Value of the range.
    pub value: V,
}

/// Disjoint ranges; a newer one cuts what it overlaps, as `mmap` with `MAP_FIXED` does.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<V> {
    by_start: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Ranges { by_start: BTreeMap::new() }
    }
}

impl<V: Copy> Ranges<V> {
    /// The range that covers `address`.
    #[inline]
    pub fn get(&self, address: u64) -> Option<Piece<V>> {
        let (&start, &(end, value)) = self.by_start.range(..=address).next_back()?;
        (address < end).then_some(Piece { start, end, value })
    }

    /// Whether a range overlaps `[start, end)`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.by_start.range(..end).next_back().is_some_and(|(_, &(last, _))| last > start)
    }

    /// Sets `[start, end)` to `value`, and appends to `cut` the pieces that it replaced. An empty range changes nothing.
    pub fn insert(&mut self, start: u64, end: u64, value: V, cut: &mut Vec<Piece<V>>) {
        if start < end {
            self.remove(start, end, cut);
            self.by_start.insert(start, (end, value));
        }
    }

    /// Clears `[start, end)`, and appends to `cut` the pieces that were inside it. The parts outside stay.
    pub fn remove(&mut self, start: u64, end: u64, cut: &mut Vec<Piece<V>>) {
        if let Some(piece) = self.get(start).filter(|piece| piece.start < start) {
            self.by_start.insert(piece.start, (start, piece.value));
            cut.push(Piece { start, end: piece.end.min(end), value: piece.value });
            if piece.end > end {
                self.by_start.insert(end, (piece.end, piece.value));
                return;
            }
        }
        while let Some((&first, &(last, value))) = self.by_start.range(start..end.max(start)).next() {
            self.by_start.remove(&first);
            cut.push(Piece { start: first, end: last.min(end), value });
            if last > end {
                self.by_start.insert(end, (last, value));
            }
        }
    }

    /// Removes and returns the range that begins exactly at `start`.
    pub fn take(&mut self, start: u64) -> Option<Piece<V>> {
        self.by_start.remove(&start).map(|(end, value)| Piece { start, end, value })
    }

    /// The ranges that begin in `[start, end)`.
    pub fn between(&self, start: u64, end: u64) -> impl Iterator<Item = Piece<V>> + '_ {
        self.by_start.range(start..end.max(start)).map(|(&start, &(end, value))| Piece { start, end, value })
    }

    /// All ranges, ascending.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = Piece<V>> + '_ {
        self.by_start.iter().map(|(&start, &(end, value))| Piece { start, end, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_in_the_middle_leaves_both_ends() {
        let mut ranges = Ranges::default();
        let mut cut = Vec::new();
        ranges.insert(10, 50, 'a', &mut cut);
        ranges.remove(20, 30, &mut cut);
        assert_eq!(cut, [Piece { start: 20, end: 30, value: 'a' }]);
        let left: Vec<_> = ranges.iter().map(|piece| (piece.start, piece.end)).collect();
        assert_eq!(left, [(10, 20), (30, 50)]);
        assert!(ranges.get(25).is_none());
        assert_eq!(ranges.get(30).map(|piece| piece.value), Some('a'));
    }

    #[test]
    fn a_newer_range_replaces_what_it_covers() {
        let mut ranges = Ranges::default();
        let mut cut = Vec::new();
        ranges.insert(0, 10, 1, &mut cut);
        ranges.insert(10, 20, 2, &mut cut);
        ranges.insert(5, 15, 3, &mut cut);
        assert_eq!(
            cut.iter().map(|piece| (piece.start, piece.end, piece.value)).collect::<Vec<_>>(),
            [(5, 10, 1), (10, 15, 2)]
        );
        assert_eq!(
            [4, 5, 14, 15].map(|at| ranges.get(at).map(|piece| piece.value)),
            [Some(1), Some(3), Some(3), Some(2)]
        );
    }
}
