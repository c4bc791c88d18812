//! The verdict on the predictions: pure, from the rows.

use numapilot_text::units::percent;

use super::{Medians, Reading, Row};
use crate::outcome::Check;

/// Greatest median error that passes.
pub const ERROR_MAX: f64 = 0.10;
/// With more of the runs disturbed than this, it was the machine's other load that was measured.
const DISTURBED_MAX: f64 = 0.5;
/// Name of the check.
pub const NAME: &str = "predicted slow-down of programs that run together";

/// Medians over all members of rows that are judged; `None` where there are none.
#[must_use]
pub fn medians(rows: &[Row]) -> Option<Medians> {
    let judged = || rows.iter().filter(|row| row.is_judged);
    let of = |value: fn(&super::Member) -> f64| median(judged().flat_map(|row| &row.members).map(value).collect());
    Some(Medians {
        error: of(super::Member::error)?,
        baseline_error: of(super::Member::baseline_error)?,
        effect: of(super::Member::effect)?,
        spread: of(|member| member.spread)?,
    })
}

/// The middle of these values; `None` of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| numapilot_measure::median(&values))
}

/// Passes where the median error is at most [`ERROR_MAX`]. Not judged where the rounds differ by more than the programs slow one another down: then
/// neither a good prediction nor a bad one would show. Nor where fewer than two thirds of the rows had enough rounds on the machine that the model is of, or
/// where `reading` says that it is another one.
#[must_use]
pub fn judge(rows: &[Row], reading: Option<Reading>) -> Check {
    let judged = rows.iter().filter(|row| row.is_judged).count();
    if 3 * judged < 2 * rows.len() {
        let words = format!(
            "the machine changed while the programs ran: in {} of {} rows, too few rounds found it as it was when its model was measured; another guest of the \
             host, or the host, may do so; run it again",
            rows.len() - judged,
            rows.len()
        );
        return Check::not_judged(NAME, words);
    }
    let Some(medians) = medians(rows) else {
        return Check::not_judged(NAME, "no programs could be run side by side here");
    };
    let disturbed = rows.iter().map(|row| row.disturbed_share).sum::<f64>() / rows.len() as f64;
    let check = if disturbed > DISTURBED_MAX {
        let words = format!(
            "the machine was too busy: in {} of the runs other programs took a program's CPU all the time; run it again when the machine is quieter",
            percent(disturbed)
        );
        Check::not_judged(NAME, words)
    } else if medians.spread > medians.effect {
        let words = if medians.spread > ERROR_MAX {
            format!(
                "the machine was too busy: repeated runs differ by {}, more than the programs slow one another down ({}); run it again when the \
                 machine is quieter",
                percent(medians.spread),
                percent(medians.effect)
            )
        } else {
            format!(
                "the programs slow one another down by {} only, less than repeated runs differ ({}): these CPUs do not load this memory enough to try \
                 the prediction",
                percent(medians.effect),
                percent(medians.spread)
            )
        };
        Check::not_judged(NAME, words)
    } else if let Some(reading) = reading.filter(|reading| !reading.is_steady()) {
        let words = format!(
            "the machine changed between the measurement of its model and the programs: the CPUs of a node read {:.1} GB/s together, then {:.1} GB/s; \
             another guest of the host, or the host, may do so; run it again",
            reading.measured_bytes_per_s / 1e9,
            reading.found_bytes_per_s / 1e9
        );
        Check::not_judged(NAME, words)
    } else {
        let holds = medians.error <= ERROR_MAX;
        let words = format!(
            "the median error of the predicted slow-downs is {} (at most {} passes); \"no slow-down\" would err by {}",
            percent(medians.error),
            percent(ERROR_MAX),
            percent(medians.baseline_error)
        );
        Check::judged(NAME, holds, words)
    };
    if check.verdict == crate::outcome::Verdict::NotJudged {
        return check;
    }
    check.with(format!("median error at most {}", percent(ERROR_MAX)), percent(medians.error))
}

#[cfg(test)]
mod tests {
    //! Verdicts on made-up rows.

    use numapilot_machine::NodeId;

    use super::super::Member;
    use super::*;
    use crate::outcome::Verdict;

    fn row(members: &[(f64, f64, f64)], disturbed_share: f64) -> Row {
        let member = |(measured, predicted, spread): &(f64, f64, f64)| Member {
            program: "read".to_owned(),
            threads: 1,
            cpu_node: NodeId(0),
            memory_node: NodeId(0),
            alone_per_s: 1e8,
            together_per_s: 1e8 / measured,
            measured: *measured,
            spread: *spread,
            predicted: *predicted,
        };
        Row {
            scene: "node 0".to_owned(),
            members: members.iter().map(member).collect(),
            disturbed_share,
            rounds: 9,
            rounds_left_out: 0,
            is_judged: true,
        }
    }

    #[test]
    fn rows_of_another_machine_do_not_count_and_too_many_of_them_are_no_verdict() {
        let good = row(&[(1.5, 1.45, 0.02), (1.3, 1.35, 0.02)], 0.0);
        let changed = Row { is_judged: false, rounds: 2, rounds_left_out: 25, ..row(&[(2.5, 1.0, 0.02); 9], 0.0) };
        let rows = [good.clone(), good.clone(), changed.clone()];
        assert_eq!(judge(&rows, None).verdict, Verdict::Pass, "two of three rows count");
        assert_eq!(medians(&rows), medians(&rows[..2]));
        let check = judge(&[good, changed.clone(), changed.clone()], None);
        assert_eq!(check.verdict, Verdict::NotJudged);
        assert!(check.reason.contains("in 2 of 3 rows"), "{}", check.reason);
        assert_eq!(judge(&[changed], None).verdict, Verdict::NotJudged);
    }

    #[test]
    fn the_median_error_decides() {
        let good = row(&[(1.5, 1.45, 0.02), (1.3, 1.35, 0.02)], 0.0);
        let one_bad = row(&[(1.4, 2.0, 0.02)], 0.0);
        let check = judge(&[good.clone(), one_bad.clone()], None);
        assert_eq!(check.verdict, Verdict::Pass, "one bad prediction among three: {}", check.reason);
        assert!(check.reason.contains("median error") && check.reason.contains("no slow-down"), "{}", check.reason);
        assert_eq!(check.found.as_deref(), Some("3.8 %"));
        assert_eq!(judge(&[one_bad], None).verdict, Verdict::Fail);
        let medians = medians(&[good]).expect("members");
        assert!((medians.baseline_error - 0.282).abs() < 1e-3 && (medians.effect - 0.4).abs() < 1e-9, "{medians:?}");
    }

    #[test]
    fn a_busy_machine_and_one_without_contention_are_not_judged_and_say_which() {
        for (rows, words) in [
            (vec![row(&[(1.1, 1.5, 0.3)], 0.0)], "repeated runs differ by 30.0 %"),
            (vec![row(&[(1.5, 1.5, 0.0)], 0.9)], "90.0 % of the runs"),
            (vec![row(&[(1.01, 1.0, 0.02)], 0.0)], "do not load this memory enough"),
            (vec![], "no programs"),
            (vec![row(&[], 0.0)], "no programs"),
        ] {
            let check = judge(&rows, None);
            assert_eq!(check.verdict, Verdict::NotJudged);
            assert!(check.reason.to_lowercase().contains(words), "{}", check.reason);
        }
    }

    #[test]
    fn predictions_from_a_model_of_another_state_are_not_judged() {
        let bad = [row(&[(1.6, 1.0, 0.02)], 0.0)];
        let reading = |found_bytes_per_s| Some(Reading { measured_bytes_per_s: 64e9, found_bytes_per_s });
        let check = judge(&bad, reading(33e9));
        assert_eq!(check.verdict, Verdict::NotJudged);
        assert!(check.reason.contains("64.0 GB/s") && check.reason.contains("33.0 GB/s"), "{}", check.reason);
        assert_eq!(judge(&bad, reading(60e9)).verdict, Verdict::Fail);
    }

    #[test]
    fn a_quiet_machine_is_judged_by_a_small_effect_too() {
        assert_eq!(judge(&[row(&[(1.05, 1.04, 0.01)], 0.1)], None).verdict, Verdict::Pass);
    }
}
