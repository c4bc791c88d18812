//! Which node a page goes to where several get shares of an object.

use numapilot_machine::NodeIndex;

/// The fraction of the golden ratio: multiples of it fall evenly between 0 and 1, so pages dealt by their number keep any proportion.
pub(super) const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// The node at which the running sum of shares passes `at` (0 to 1).
pub(super) fn share_at(shares: &[f64], at: f64) -> NodeIndex {
    let mut left = at * shares.iter().sum::<f64>();
    for (node, share) in NodeIndex::all(shares.len()).zip(shares) {
        if left < *share {
            return node;
        }
        left -= share;
    }
    NodeIndex(shares.iter().rposition(|share| *share > 0.0).unwrap_or(0))
}
