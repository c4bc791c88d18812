//! The search for the range that holds a key, in a slice.

/// Index of the one of `ranges` that holds `key`. They are in ascending order and do not overlap (where they do, only the last of those that begin at or before
/// `key` counts); `extent` gives a range's start and its end, which is not part of it. A search takes time that grows with the logarithm of their number.
#[must_use]
pub fn find<R, K: Ord>(ranges: &[R], extent: impl Fn(&R) -> (K, K), key: K) -> Option<usize> {
    let after = ranges.partition_point(|range| extent(range).0 <= key);
    let at = after.checked_sub(1)?;
    (key < extent(&ranges[at]).1).then_some(at)
}

#[cfg(test)]
mod tests {
    //! Against a walk over all ranges.

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_range_that_holds_a_key_is_found(steps in prop::collection::vec((0..4_u64, 0..4_u64), 0..20)) {
            let (mut ranges, mut end) = (Vec::new(), 0);
            for (gap, length) in steps {
                let start = end + gap;
                end = start + length;
                ranges.push((start, end));
            }
            for key in 0..=end + 1 {
                let holds = |at: &usize| (ranges[*at].0..ranges[*at].1).contains(&key);
                let held: Vec<usize> = (0..ranges.len()).filter(holds).collect();
                let found = find(&ranges, |range| *range, key);
                prop_assert_eq!(found.into_iter().collect::<Vec<_>>(), held, "key {} in {:?}", key, ranges);
            }
        }
    }

    #[test]
    fn nothing_is_found_outside_of_all_ranges() {
        let none: [(u64, u64); 0] = [];
        assert_eq!(find(&none, |range| *range, 0), None);
        let ranges = [(10, 20), (20, 21), (u64::MAX - 1, u64::MAX)];
        let found = [0, 9, 10, 19, 20, 21, u64::MAX - 1, u64::MAX].map(|key| find(&ranges, |range| *range, key));
        assert_eq!(found, [None, None, Some(0), Some(0), Some(1), None, Some(2), None]);
    }
}
