//! The windows of time into which a recording is cut for prices: equally long, from its start to its end.

/// Number of windows, about as many as there are readings of counters.
const COUNT: u64 = 48;

/// Windows of one recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Windows {
    /// Length of each, ns.
    pub ns: f64,
    pub count: usize,
}

impl Windows {
    /// The windows of a recording that ends at `end_ns` of program time.
    pub fn of(end_ns: u64) -> Windows {
        let end = end_ns.max(1);
        let ns = end.div_ceil(COUNT).max(1) as f64;
        Windows { ns, count: (end as f64 / ns).ceil() as usize }
    }

    /// The window in which a moment lies; the last one for what is later.
    pub fn at(self, ns: f64) -> usize {
        ((ns / self.ns) as usize).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_a_recording_however_short() {
        for end_ns in [0, 1, 47, 48, 49, 1_000_003] {
            let windows = Windows::of(end_ns);
            assert!(windows.count >= 1 && windows.ns * windows.count as f64 >= end_ns as f64, "{end_ns}: {windows:?}");
            assert_eq!((windows.at(0.0), windows.at(2.0 * end_ns as f64 + 1e3)), (0, windows.count - 1), "{end_ns}");
        }
    }
}
