//! A map from ranges to values. Newer ranges cut older ones, as a mapping does that is made over others (mmap(2), `MAP_FIXED`).

use std::collections::BTreeMap;

/// A range with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<K, V> {
    /// Its first key.
    pub start: K,
    /// The key after its last.
    pub end: K,
    /// Value of the range.
    pub value: V,
}

/// Ranges that do not overlap, each with a value.
///
/// A look-up takes time that grows with the logarithm of the number of ranges; so does a change, for each range that it cuts or removes. The last key of all
/// (`u64::MAX`) can be in no range, because a range's end is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMap<K, V> {
    /// By start: end and value. No range is empty.
    by_start: BTreeMap<K, (K, V)>,
}

impl<K, V> Default for RangeMap<K, V> {
    fn default() -> Self {
        RangeMap { by_start: BTreeMap::new() }
    }
}

impl<K: Copy + Ord, V: Copy> RangeMap<K, V> {
    /// The range that holds `key`.
    #[must_use]
    #[inline]
    pub fn get(&self, key: K) -> Option<Piece<K, V>> {
        let (&start, &(end, value)) = self.by_start.range::<K, _>(..=key).next_back()?;
        (key < end).then_some(Piece { start, end, value })
    }

    /// The last range that begins before `key`, whether it holds it or not.
    #[must_use]
    pub fn before(&self, key: K) -> Option<Piece<K, V>> {
        let (&start, &(end, value)) = self.by_start.range::<K, _>(..key).next_back()?;
        Some(Piece { start, end, value })
    }

    /// Whether a part of any range lies in `[start, end)`.
    #[must_use]
    pub fn overlaps(&self, start: K, end: K) -> bool {
        start < end && self.by_start.range::<K, _>(..end).next_back().is_some_and(|(_, &(last, _))| last > start)
    }

    /// The ranges of which a part lies in `[start, end)`, whole and ascending.
    pub fn overlapping(&self, start: K, end: K) -> impl Iterator<Item = Piece<K, V>> {
        let from = self.by_start.range::<K, _>(..=start).next_back().map_or(start, |(&first, _)| first);
        let pieces = self.by_start.range::<K, _>(from..end.max(from));
        pieces
            .map(|(&first, &(last, value))| Piece { start: first, end: last, value })
            .filter(move |piece| piece.start.max(start) < piece.end.min(end))
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Piece<K, V>> {
        self.by_start.iter().map(|(&start, &(end, value))| Piece { start, end, value })
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there is no range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Makes `[start, end)` a range of its own with `value`, whatever was there.
    pub fn set(&mut self, start: K, end: K, value: V) {
        self.replace(start, end, value, |_| {});
    }

    /// As [`RangeMap::set`]; `replaced` gets what was there, as [`RangeMap::cut`] gives it.
    pub fn replace(&mut self, start: K, end: K, value: V, replaced: impl FnMut(Piece<K, V>)) {
        if start < end {
            self.cut(start, end, replaced);
            self.by_start.insert(start, (end, value));
        }
    }

    /// Gives `[start, end)` a value, and makes it one range with those that end or begin there and have the same value.
    pub fn join(&mut self, start: K, end: K, value: V)
    where
        V: PartialEq,
    {
        if start >= end || self.is_joined(start, end, value) {
            return;
        }
        self.remove(start, end);
        let (mut first, mut last) = (start, end);
        if let Some((&before, &(its_end, its_value))) = self.by_start.range::<K, _>(..start).next_back()
            && its_end == start
            && its_value == value
        {
            first = before;
        }
        if let Some(&(its_end, its_value)) = self.by_start.get(&end)
            && its_value == value
        {
            self.by_start.remove(&end);
            last = its_end;
        }
        self.by_start.insert(first, (last, value));
    }

    /// Whether `[start, end)` is in one range with this value, which is apart from others with it. Most often it is, so this has to be quick.
    fn is_joined(&self, start: K, end: K, value: V) -> bool
    where
        V: PartialEq,
    {
        let Some(piece) = self.get(start).filter(|piece| piece.value == value && end <= piece.end) else {
            return false;
        };
        let mut until_start = self.by_start.range::<K, _>(..start);
        let starts_apart = piece.start < start
            || until_start.next_back().is_none_or(|(_, &(last, its))| last != start || its != value);
        starts_apart && (end < piece.end || self.by_start.get(&end).is_none_or(|&(_, its)| its != value))
    }

    /// Removes what is in `[start, end)`. The parts of ranges outside of it stay.
    pub fn remove(&mut self, start: K, end: K) {
        self.cut(start, end, |_| {});
    }

    /// As [`RangeMap::remove`]; `removed` gets what was there in ascending order: of each range the part within `[start, end)`.
    pub fn cut(&mut self, start: K, end: K, mut removed: impl FnMut(Piece<K, V>)) {
        if start >= end {
            return;
        }
        // A range that begins before keeps its beginning, and its end where it reaches beyond.
        if let Some((&first, &(last, value))) = self.by_start.range::<K, _>(..start).next_back()
            && last > start
        {
            self.by_start.insert(first, (start, value));
            removed(Piece { start, end: last.min(end), value });
            if last > end {
                self.by_start.insert(end, (last, value));
                return;
            }
        }
        while let Some((&first, &(last, value))) = self.by_start.range::<K, _>(start..end).next() {
            self.by_start.remove(&first);
            removed(Piece { start: first, end: last.min(end), value });
            if last > end {
                self.by_start.insert(end, (last, value));
            }
        }
    }

    /// Removes and returns the range that begins exactly at `start`.
    pub fn take(&mut self, start: K) -> Option<Piece<K, V>> {
        self.by_start.remove(&start).map(|(end, value)| Piece { start, end, value })
    }
}

#[cfg(test)]
mod tests {
    //! Against a table that holds every key by itself.

    use proptest::prelude::*;

    use super::*;

    const KEYS: u64 = 40;

    /// Start, end and value.
    type Part = (u64, u64, u8);

    fn part(piece: Piece<u64, u8>) -> Part {
        (piece.start, piece.end, piece.value)
    }

    /// The value of each key, and the number of the range that it is of.
    struct Table {
        keys: Vec<Option<(u8, u32)>>,
        ranges: u32,
    }

    impl Table {
        fn new() -> Table {
            Table { keys: vec![None; KEYS as usize], ranges: 0 }
        }

        /// The parts of ranges among the keys from `start` to before `end`.
        fn parts(&self, start: u64, end: u64) -> Vec<Part> {
            let mut parts: Vec<Part> = Vec::new();
            let mut before = None;
            for key in start..end {
                let here = self.keys[key as usize];
                if let Some((value, _)) = here {
                    match parts.last_mut() {
                        Some(last) if here == before => last.1 = key + 1,
                        _ => parts.push((key, key + 1, value)),
                    }
                }
                before = here;
            }
            parts
        }

        /// Returns what was there.
        fn fill(&mut self, start: u64, end: u64, value: Option<u8>) -> Vec<Part> {
            let there = self.parts(start, end);
            self.ranges += 1;
            for key in start..end {
                self.keys[key as usize] = value.map(|value| (value, self.ranges));
            }
            there
        }

        /// Fills, and takes what adjoins with the same value into the same range.
        fn fill_and_join(&mut self, start: u64, end: u64, value: u8) {
            if start >= end {
                return;
            }
            self.fill(start, end, Some(value));
            let all = self.parts(0, KEYS);
            let adjoining = all.iter().filter(|part| part.2 == value && (part.1 == start || part.0 == end));
            let (first, last) =
                adjoining.fold((start, end), |(first, last), part| (first.min(part.0), last.max(part.1)));
            self.fill(first, last, Some(value));
        }

        fn take(&mut self, start: u64) -> Vec<Part> {
            let found = self.parts(0, KEYS).into_iter().find(|part| part.0 == start);
            found.map_or_else(Vec::new, |part| self.fill(part.0, part.1, None))
        }
    }

    #[test]
    fn the_range_before_a_key_is_the_last_one_that_begins_there() {
        let mut map = RangeMap::default();
        map.set(3_u64, 5, 'a');
        map.set(8, 9, 'b');
        let before = [3, 4, 5, 8, 9, 40].map(|key| map.before(key).map(|piece| (piece.start, piece.value)));
        let (a, b) = (Some((3, 'a')), Some((8, 'b')));
        assert_eq!(before, [None, a, a, a, b, b]);
    }

    /// Changes both in the same way; returns what each says was there, where it says that.
    fn change(
        map: &mut RangeMap<u64, u8>,
        table: &mut Table,
        (action, start, end, value): (u8, u64, u64, u8),
    ) -> (Vec<Part>, Vec<Part>) {
        let mut gone = Vec::new();
        let expected = match action {
            0 => {
                map.set(start, end, value);
                table.fill(start, end, Some(value));
                Vec::new()
            }
            1 => {
                map.replace(start, end, value, |piece| gone.push(part(piece)));
                table.fill(start, end, Some(value))
            }
            2 => {
                map.join(start, end, value);
                table.fill_and_join(start, end, value);
                Vec::new()
            }
            3 => {
                map.remove(start, end);
                table.fill(start, end, None);
                Vec::new()
            }
            4 => {
                map.cut(start, end, |piece| gone.push(part(piece)));
                table.fill(start, end, None)
            }
            _ => {
                gone.extend(map.take(start).map(part));
                table.take(start)
            }
        };
        (gone, expected)
    }

    proptest! {
        /// Ends before starts and empty ranges are among the steps.
        #[test]
        fn ranges_say_what_a_table_of_keys_says(
            steps in prop::collection::vec((0..6_u8, 0..=KEYS, 0..=KEYS, 0..3_u8), 1..60),
            (from, to) in (0..=KEYS, 0..=KEYS),
        ) {
            let (mut map, mut table) = (RangeMap::default(), Table::new());
            for step in steps {
                let (gone, expected) = change(&mut map, &mut table, step);
                prop_assert_eq!(gone, expected, "what {:?} removed", step);
                let all = table.parts(0, KEYS);
                prop_assert_eq!(map.iter().map(part).collect::<Vec<_>>(), all.clone(), "after {:?}", step);
                prop_assert_eq!((map.len(), map.is_empty()), (all.len(), all.is_empty()));
                for key in 0..KEYS {
                    let holding = all.iter().find(|part| (part.0..part.1).contains(&key)).copied();
                    prop_assert_eq!(map.get(key).map(part), holding, "key {}", key);
                }
                let is_hit = |part: &Part| (from..to).any(|key| (part.0..part.1).contains(&key));
                let hit: Vec<Part> = all.into_iter().filter(is_hit).collect();
                prop_assert_eq!(map.overlaps(from, to), !hit.is_empty());
                prop_assert_eq!(map.overlapping(from, to).map(part).collect::<Vec<_>>(), hit);
            }
        }
    }

    #[test]
    fn a_newer_range_cuts_what_it_covers() {
        let mut map = RangeMap::default();
        map.set(0, 10, 1);
        map.set(10, 20, 2);
        let mut replaced = Vec::new();
        map.replace(5, 15, 3, |piece| replaced.push(part(piece)));
        assert_eq!(replaced, [(5, 10, 1), (10, 15, 2)]);
        assert_eq!(map.iter().map(part).collect::<Vec<_>>(), [(0, 5, 1), (5, 15, 3), (15, 20, 2)]);
    }

    /// Make sure that a record of 0 bytes, or one whose end wrapped around, does not split the range in which it lies.
    #[test]
    fn ranges_without_keys_change_nothing() {
        let mut map = RangeMap::default();
        map.set(10, 50, 1);
        for (start, end) in [(20, 20), (30, 20), (u64::MAX, 0), (10, 10), (50, 50), (0, 0)] {
            let mut gone = Vec::new();
            map.set(start, end, 2);
            map.join(start, end, 1);
            map.cut(start, end, |piece| gone.push(part(piece)));
            assert!(gone.is_empty(), "{start}..{end}: {gone:?}");
            assert!(!map.overlaps(start, end) && map.overlapping(start, end).next().is_none(), "{start}..{end}");
            assert_eq!(map.iter().map(part).collect::<Vec<_>>(), [(10, 50, 1)], "{start}..{end}");
        }
    }

    #[test]
    fn neighbours_are_joined_only_where_that_is_asked_for() {
        let mut map = RangeMap::default();
        map.set(0, 10, 1);
        map.set(10, 20, 1);
        assert_eq!(map.len(), 2);
        map.join(20, 30, 1);
        assert_eq!(map.iter().map(part).collect::<Vec<_>>(), [(0, 10, 1), (10, 30, 1)]);
        map.join(5, 15, 1);
        assert_eq!(map.iter().map(part).collect::<Vec<_>>(), [(0, 30, 1)]);
    }

    /// Pages of several processes in one map.
    #[test]
    fn ranges_of_two_processes_stay_apart() {
        let mut map = RangeMap::default();
        map.join((1, 0), (1, u64::MAX), 'a');
        map.join((2, 0), (2, 5), 'a');
        assert_eq!((map.len(), map.get((2, 5)).is_none()), (2, true));
        map.remove((1, 0), (1, u64::MAX));
        assert_eq!(map.iter().map(|piece| (piece.start, piece.end)).collect::<Vec<_>>(), [((2, 0), (2, 5))]);
    }
}
