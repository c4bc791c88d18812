//! Shares with their intervals, and where figures come from, as reports tell them. Plain numbers: [`numapilot_text::units`].

use numapilot_insight::{Estimate, Source, Totals};
use numapilot_text::units::{bare_percent, count, part_percent, percent, whole_percent};

/// Half of an interval, in percentage points, from which a share has no digit behind the point.
const WIDE: f64 = 9.95;

/// How figures were found, in words.
#[must_use]
pub fn found(source: Source) -> &'static str {
    if source == Source::Counted { "counted" } else { "estimated from samples" }
}

/// `81.2 ± 0.7 %`, `58 ± 13 %` where the interval is wide (its half is rounded up), or `81.2 %` where the share was counted.
#[must_use]
pub fn share(estimate: &Estimate) -> String {
    match margin_percent(estimate) {
        _ if estimate.is_exact() => part_percent(estimate.value),
        margin if margin < WIDE => format!("{:.1} ± {margin:.1} %", estimate.value * 100.0),
        margin => format!("{:.0} ± {:.0} %", estimate.value * 100.0, margin.ceil()),
    }
}

/// `35 ± 3 %` of an imbalance or a share, or `35 %` where half of the interval is below half a percentage point.
#[must_use]
pub fn whole(estimate: &Estimate) -> String {
    match estimate.margin() {
        margin if margin < 0.005 => whole_percent(estimate.value),
        margin => format!("{:.0} ± {}", estimate.value * 100.0, whole_percent(margin)),
    }
}

/// The share of remote accesses for a sentence: `81.2 ± 0.7 %`, or `an unknown share` where too few home nodes are known.
#[must_use]
pub fn remote_share(totals: &Totals) -> String {
    if totals.knows_homes() { share(&totals.remote_share) } else { "an unknown share".to_owned() }
}

/// What the share of remote accesses is of: `2.05 M memory accesses`, or `1.23 M memory accesses with known home` where some homes are unknown. `what`: what
/// is counted. Where no share is shown, of all.
#[must_use]
pub fn remote_base(totals: &Totals, what: &str) -> String {
    match totals.knows_all_homes() || !totals.knows_homes() {
        true => format!("{} {what}", count(totals.accesses.value)),
        false => format!("{} {what} with known home", count(totals.known_accesses().round())),
    }
}

/// The remote share as a bare whole percentage; `-` where no home node is known.
#[must_use]
pub fn bare_remote(remote: &Estimate) -> String {
    if remote.is_share_of_nothing() { "-".to_owned() } else { bare_percent(remote.value) }
}

/// An upper bound of a share, `0.3 %`: never rounded to nothing, which it does not exclude.
#[must_use]
pub fn bound_percent(bound: f64) -> String {
    if bound > 0.0 { percent(bound.max(0.001)) } else { percent(bound) }
}

/// Half the interval's width as a percentage, never rounded down to nothing.
#[must_use]
pub fn margin(estimate: &Estimate) -> String {
    bound_percent(estimate.margin())
}

/// Half the interval's width in percentage points, never rounded down to nothing.
#[must_use]
pub fn margin_percent(estimate: &Estimate) -> f64 {
    let margin = estimate.margin() * 100.0;
    if margin > 0.0 { margin.max(0.1) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_excludes_no_more_than_it_does() {
        assert_eq!([0.0003, 0.003, 0.25].map(bound_percent), ["0.1 %", "0.3 %", "25.0 %"]);
    }

    #[test]
    fn a_whole_percentage_shows_an_interval_that_it_can_tell() {
        let of = |low, high| whole(&Estimate { value: 0.35, low, high });
        assert_eq!([of(0.35, 0.35), of(0.346, 0.354), of(0.32, 0.38)], ["35 %", "35 %", "35 ± 3 %"]);
    }

    #[test]
    fn a_remote_share_without_known_homes_is_no_zero() {
        assert_eq!(bare_remote(&Estimate { value: 0.0, low: 0.0, high: 1.0 }), "-");
        assert_eq!(bare_remote(&Estimate { value: 0.0, low: 0.0, high: 0.4 }), ".");
        assert_eq!(bare_remote(&Estimate::exact(1.0)), "100");
    }

    #[test]
    fn a_sampled_share_shows_its_interval_and_a_counted_one_does_not() {
        assert_eq!(share(&Estimate::exact(0.5)), "50.0 %");
        assert_eq!(
            [0.0, 0.0004, 0.9996, 1.0].map(|value| share(&Estimate::exact(value))),
            ["0.0 %", "<0.1 %", ">99.9 %", "100.0 %"]
        );
        assert_eq!(share(&Estimate { value: 0.5, low: 0.49, high: 0.51 }), "50.0 ± 1.0 %");
        assert_eq!(share(&Estimate { value: 0.5, low: 0.4999, high: 0.5001 }), "50.0 ± 0.1 %");
        assert_eq!(share(&Estimate { value: 0.577, low: 0.456, high: 0.698 }), "58 ± 13 %");
        assert_eq!(share(&Estimate { value: 0.577, low: 0.4776, high: 0.6764 }), "57.7 ± 9.9 %");
    }
}
