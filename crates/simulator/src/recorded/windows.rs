//! Windows of time, whose samples together say which pages a thread accesses.

/// Windows of equal length, cut also where the repeated part begins and ends: what a program does once, before or after that part, must not be done again with
/// it. (Data that is filled once and read from then on would be written in every repetition.)
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Windows {
    /// Ends of the windows, ns, ascending; the last one has none.
    ends: Vec<f64>,
    body: Option<(f64, f64)>,
}

impl Windows {
    /// Windows of `window_ns` that cover a recording of `end_ns`.
    pub(super) fn new(window_ns: f64, end_ns: f64, body: Option<(f64, f64)>) -> Windows {
        let mut ends: Vec<f64> = (1..=(end_ns / window_ns) as u64).map(|window| window as f64 * window_ns).collect();
        ends.extend(body.into_iter().flat_map(|(first, last)| [first, last]).filter(|&cut| cut > 0.0));
        ends.sort_unstable_by(f64::total_cmp);
        ends.dedup();
        Windows { ends, body }
    }

    /// The window of a moment.
    pub(super) fn at(&self, ns: f64) -> usize {
        self.ends.partition_point(|&end| end <= ns)
    }

    /// Where a window ends, ns; infinite for the last one.
    pub(super) fn end_ns(&self, window: usize) -> f64 {
        self.ends.get(window).copied().unwrap_or(f64::INFINITY)
    }

    /// The windows of the same part as `window` (before, in or after the repeated part), nearest first, of two the earlier.
    pub(super) fn near(&self, window: usize) -> impl Iterator<Item = usize> + '_ {
        let part = self.part(window);
        let both = move |away: usize| [window.checked_sub(away), (away > 0).then_some(window + away)];
        let all = (0..=self.ends.len()).flat_map(both).flatten();
        all.filter(move |&other| other <= self.ends.len() && self.part(other) == part)
    }

    fn part(&self, window: usize) -> usize {
        let from_ns = window.checked_sub(1).map_or(0.0, |before| self.end_ns(before));
        self.body.map_or(0, |(first, last)| usize::from(from_ns >= first) + usize::from(from_ns >= last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_the_repeated_part_begins_and_ends() {
        let windows = Windows::new(50.0, 220.0, Some((70.0, 150.0)));
        let moments = [0.0, 49.0, 50.0, 69.0, 70.0, 99.0, 100.0, 149.0, 150.0, 219.0];
        let at: Vec<usize> = moments.iter().map(|&ns| windows.at(ns)).collect();
        assert_eq!(at, [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]);
        assert_eq!(windows.end_ns(1), 70.0);
        assert_eq!(windows.end_ns(5), f64::INFINITY);
    }

    /// Make sure that no window lends its samples to another part of the program.
    #[test]
    fn windows_are_near_within_their_part() {
        let windows = Windows::new(50.0, 220.0, Some((70.0, 150.0)));
        assert_eq!(windows.near(0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(windows.near(3).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(windows.near(4).collect::<Vec<_>>(), [4, 5]);
        let whole = Windows::new(50.0, 120.0, None);
        assert_eq!(whole.near(1).collect::<Vec<_>>(), [1, 0, 2]);
    }
}
