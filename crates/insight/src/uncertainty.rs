//! The interval of a predicted gain: it combines the sampling error with the spread of the gain over the ensemble of possible machines and programs.
//!
//! Each member's gain has a sampling error in proportion to that of the machine as described, because the samples say the same of all members. Where the
//! sampling alone leaves open whether there is a gain, parts of opposite sign cancel, so each member has the same absolute error. `docs/patterns.md`,
//! "Interval".

use numapilot_machine::NodeId;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::price::members::Open;

/// Quantiles of the interval that every price has, and of the narrower one beside it.
const ENDS: (f64, f64) = (0.025, 0.975);
const LIKELY: (f64, f64) = (0.05, 0.95);
/// Number of values per member that represent the sampling error.
const SCATTER: usize = 20;

/// The sources of the interval of a predicted gain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Uncertainty {
    /// Median of the ensemble's gains. The value itself is that of the machine and the program as described.
    pub median: f64,
    /// Ends of the 90 % interval.
    pub likely: (f64, f64),
    /// Half of the 95 % interval that the sampling alone gives.
    pub of_samples: f64,
    /// Where the traffic model did not converge, before or after the change: the gain is off by at least about this, to either side, which its interval
    /// includes. 0: it converged.
    pub unsettled: f64,
    /// Number of members of the ensemble that the interval is of.
    pub members: usize,
    /// The sources of the interval's width, largest share first.
    pub sources: Vec<Source>,
    /// What latencies that the processor measured did to the interval; `None`: nobody asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// What latencies that the processor measured of the program's loads leave of an ensemble.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    /// Number of members that were compared with what was measured; 0: there was nothing to compare with.
    pub members: usize,
    /// Number of those that meet all bounds.
    pub left: usize,
    /// What the latencies of each pair of nodes say, in the machine's order.
    pub bounds: Vec<LatencyBound>,
    /// Why the interval is that without calibration, in whole sentences. `None`: it is of members that meet all bounds.
    pub not_used: Option<String>,
}

/// How long loads between two nodes take at least, by what the processor measured of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyBound {
    /// Node of the CPUs.
    pub from: NodeId,
    /// Home node of the pages.
    pub home: NodeId,
    /// Number of samples.
    pub samples: u64,
    /// Their mean latency is at least this, ns.
    pub at_least_ns: f64,
    /// Members in which these loads take less, on average.
    pub contradicted: usize,
}

/// One unknown, and its share of the interval's width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// Its key in a model file, `program.NAME`, or `samples`.
    pub place: String,
    /// The unknown in words.
    pub words: String,
    /// The assumed, least and greatest value, in its own unit; `None` for the samples.
    pub range: Option<(f64, f64, f64)>,
    /// Share of the gain's variance (squared rank correlation with it, of first order).
    pub share: f64,
    /// The recording or measurement that would narrow its range.
    pub narrowed_by: String,
}

/// A gain with its interval, and what it is made of. `value`: of the machine and program as described; `gains`: of each member; `sampled`: half of the
/// sampling's 95 % interval; `unsettled`: what the model left open where it did not converge.
pub(crate) fn interval(
    value: f64,
    gains: &[f64],
    (sampled, unsettled): (f64, f64),
    open: &[Open],
) -> (Estimate, Uncertainty) {
    let mut sorted = scattered(value, gains, sampled);
    sorted.sort_by(f64::total_cmp);
    // A last step that was no number bounds nothing; as it is, every comparison would pass it over.
    let unsettled = if unsettled.is_nan() { f64::INFINITY } else { unsettled };
    // The value is one of what may be, with the scatter of its own.
    let gain = Estimate {
        value,
        low: possible(between(&sorted, ENDS.0).min(value - sampled) - unsettled),
        high: between(&sorted, ENDS.1).max(value + sampled) + unsettled,
    };
    let uncertainty = Uncertainty {
        median: quantile(&sorted, 0.5),
        likely: (possible(between(&sorted, LIKELY.0) - unsettled), between(&sorted, LIKELY.1) + unsettled),
        of_samples: sampled,
        unsettled,
        members: gains.len(),
        sources: sources(gains, sampled, open),
        calibration: None,
    };
    (gain, uncertainty)
}

/// A lower end of what a gain may be: no run takes longer than for ever.
fn possible(low: f64) -> f64 {
    low.max(-1.0)
}

/// Gains of the members, each with the sampling error added.
fn scattered(value: f64, gains: &[f64], sampled: f64) -> Vec<f64> {
    let mut members: Vec<f64> = gains.iter().copied().filter(|gain| gain.is_finite()).collect();
    if members.is_empty() {
        members.push(value);
    }
    let is_sure = sampled < value.abs();
    let scatter: Vec<f64> =
        (0..SCATTER).map(|at| sampled * student_4((at as f64 + 0.5) / SCATTER as f64) / student_4(ENDS.1)).collect();
    let of_member = |gain: f64| {
        let scale = if is_sure { (gain / value).abs() } else { 1.0 };
        scatter.iter().map(move |add| gain + scale * add)
    };
    members.into_iter().flat_map(of_member).collect()
}

/// Quantile of Student's t for 4 degrees of freedom, which the jackknife over five parts has: it has a closed form (Shaw, Journal of Computational
/// Finance 9(4), 2006).
pub(crate) fn student_4(share: f64) -> f64 {
    let root = (4.0 * share * (1.0 - share)).sqrt();
    let square = 4.0 * ((root.acos() / 3.0).cos() / root - 1.0);
    square.max(0.0).sqrt().copysign(share - 0.5)
}

/// Quantile of sorted values, interpolated linearly between the two nearest: type 7 of Hyndman and Fan (The American Statistician 50(4), 1996).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    at(sorted, share * (sorted.len() - 1) as f64)
}

/// The same where each value stands for what lies half a step to either side of it (Hazen; type 5 there), as each member of a stratified ensemble does: a
/// quantile that lies between two members, or between two of the [`SCATTER`] values, is in the middle of them. The other one takes the inner of the two: of
/// 40 members, the interval of 95 % would hold 92.6 %, and that of 90 % 86 % where all is sampling.
fn between(sorted: &[f64], share: f64) -> f64 {
    at(sorted, (share * sorted.len() as f64 - 0.5).clamp(0.0, (sorted.len() - 1) as f64))
}

/// The value at a position between two.
fn at(sorted: &[f64], at: f64) -> f64 {
    let (low, part) = (at as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + part * (sorted[high] - sorted[low])
}

fn sources(gains: &[f64], sampled: f64, open: &[Open]) -> Vec<Source> {
    let mean = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
    let modelled = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / gains.len().max(1) as f64;
    let of_samples = (sampled / student_4(ENDS.1)).powi(2);
    let all = modelled + of_samples;
    if all <= 0.0 || !all.is_finite() {
        return Vec::new();
    }
    let ranked = ranks(gains);
    let squares: Vec<f64> = open.iter().map(|open| correlation(&ranks(&open.values), &ranked).powi(2)).collect();
    let explained: f64 = squares.iter().sum();
    let of_open = |(open, square): (&Open, &f64)| Source {
        place: open.place.clone(),
        words: open.words.to_owned(),
        range: Some((open.value, open.low, open.high)),
        share: modelled / all * square / explained.max(f64::MIN_POSITIVE),
        narrowed_by: open.narrowed_by.to_owned(),
    };
    let mut sources: Vec<Source> = open.iter().zip(&squares).map(of_open).collect();
    sources.push(Source {
        place: "samples".to_owned(),
        words: "the sampling of accesses".to_owned(),
        range: None,
        share: of_samples / all,
        narrowed_by: "a longer recording, or more samples (`record --rate`)".to_owned(),
    });
    sources.sort_by(|a, b| b.share.total_cmp(&a.share));
    sources
}

/// Ranks of the values, from 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = rank as f64;
    }
    ranks
}

/// Correlation of two lists of ranks (Spearman).
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product: f64 = a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum();
    let square: f64 = a.iter().map(|a| (a - mean).powi(2)).sum();
    if square > 0.0 { product / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(place: &str, values: Vec<f64>) -> Open {
        Open { place: place.to_owned(), words: "", value: 0.5, low: 0.0, high: 1.0, narrowed_by: "", values }
    }

    #[test]
    fn an_interval_holds_what_the_members_say_and_what_was_sampled() {
        let gains: Vec<f64> = (0..=200).map(|member| f64::from(member) / 200.0).collect();
        let (gain, told) = interval(0.5, &gains, (0.0, 0.0), &[]);
        assert!((gain.low - 0.025).abs() < 1e-12 && (gain.high - 0.975).abs() < 1e-12, "{gain:?}");
        assert!((told.median - 0.5).abs() < 1e-12 && (told.likely.0 - 0.05).abs() < 1e-12, "{told:?}");
        let (wider, more) = interval(0.5, &gains, (0.475, 0.0), &[]);
        assert!(wider.low < gain.low && wider.high > gain.high + 0.3, "{wider:?}");
        // In proportion: what surely gains by every member and by the samples, surely gains.
        assert!(wider.low > 0.0 && more.likely.0 > wider.low && more.likely.1 < wider.high, "{more:?}");
        // At the end of what members say.
        let (gain, _) = interval(-0.1, &gains, (0.0, 0.0), &[]);
        assert!((gain.low, gain.value) == (-0.1, -0.1) && gain.high > 0.97, "{gain:?}");
        // What the model left open is on top of it.
        let (open, more) = interval(0.5, &gains, (0.0, 0.2), &[]);
        assert!(
            (open.low + 0.175).abs() < 1e-12 && (open.high - 1.175).abs() < 1e-12 && more.unsettled == 0.2,
            "{open:?}"
        );
        // No gain by the samples: they scatter by as much for each.
        let (doubtful, _) = interval(0.1, &gains, (0.2, 0.0), &[]);
        assert!(doubtful.low <= -0.1 && doubtful.high > 1.0, "{doubtful:?}");
    }

    #[test]
    fn the_narrower_interval_is_of_90_percent_where_all_is_sampling() {
        let (_, told) = interval(0.5, &[0.5; 40], (0.1, 0.0), &[]);
        let half = 0.1 * student_4(LIKELY.1) / student_4(ENDS.1);
        assert!(told.likely.0 <= 0.5 - half && told.likely.0 > 0.4, "{told:?}, {half}");
        assert!(told.likely.1 >= 0.5 + half && told.likely.1 < 0.6, "{told:?}, {half}");
    }

    /// Of 40 members, each stands for a fortieth of what may be. The ends were those between which 92.6 % of it lies.
    #[test]
    fn few_members_hold_what_is_stated() {
        let gains: Vec<f64> = (0..40).map(|member| (f64::from(member) + 0.5) / 40.0).collect();
        let (gain, told) = interval(0.5, &gains, (0.0, 0.0), &[]);
        assert!((gain.low - 0.025).abs() < 1e-9 && (gain.high - 0.975).abs() < 1e-9, "{gain:?}");
        assert!((told.likely.0 - 0.05).abs() < 1e-9 && (told.likely.1 - 0.95).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn nothing_loses_more_than_all() {
        // Few samples, and a computation that did not converge.
        let (gain, told) = interval(0.5, &[0.4, 0.5, 0.6], (2.0, 0.3), &[]);
        assert!((gain.low, told.likely.0) == (-1.0, -1.0) && gain.high > 2.5, "{gain:?} {told:?}");
    }

    #[test]
    fn a_computation_whose_last_step_was_no_number_leaves_every_gain_open() {
        let (gain, told) = interval(0.5, &[0.4, 0.5, 0.6], (0.01, f64::NAN), &[]);
        assert_eq!((gain.low, gain.high, told.unsettled), (-1.0, f64::INFINITY, f64::INFINITY), "{told:?}");
        assert_eq!(told.likely, (-1.0, f64::INFINITY));
    }

    #[test]
    fn quantiles_are_of_types_7_and_5() {
        // As R's quantile(c(1, 2, 4, 8, 16), share, type = 7), and 5.
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        let shares = [0.0, 0.375, 0.5, 0.75, 0.875, 1.0];
        assert_eq!(shares.map(|share| quantile(&values, share)), [1.0, 3.0, 4.0, 8.0, 12.0, 16.0]);
        assert_eq!(shares.map(|share| between(&values, share)), [1.0, 2.75, 4.0, 10.0, 15.0, 16.0]);
        assert_eq!((quantile(&[3.0], 0.975), between(&[3.0], 0.95)), (3.0, 3.0));
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (share, t) in [(0.5, 0.0), (0.75, 0.7407), (0.95, 2.1318), (0.975, 2.7764), (0.025, -2.7764)] {
            assert!((student_4(share) - t).abs() < 1e-4, "{share}: {}", student_4(share));
        }
    }

    #[test]
    fn the_width_comes_from_what_moves_the_gain() {
        let count = 100;
        let moves: Vec<f64> = (0..count).map(f64::from).collect();
        // In another order, which has nothing to do with the first.
        let idle: Vec<f64> = (0..count).map(|member| f64::from(member * 37 % count)).collect();
        let gains: Vec<f64> = moves.iter().map(|value| -value / 50.0).collect();
        let (_, told) = interval(-1.0, &gains, (0.01, 0.0), &[open("idle", idle), open("moves", moves)]);
        assert_eq!(told.sources[0].place, "moves");
        assert!(told.sources[0].share > 0.9, "{told:?}");
        let all: f64 = told.sources.iter().map(|source| source.share).sum();
        assert!((all - 1.0).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn nothing_known_to_vary_leaves_a_point() {
        let (gain, told) = interval(0.2, &[], (0.0, 0.0), &[]);
        assert!(gain.is_exact() && told.sources.is_empty() && told.median == 0.2);
    }
}
