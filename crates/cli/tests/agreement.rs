//! Two recordings of one program agree. What is sampled differs between seeds by no more than the stated 95 % intervals allow, all shares of
//! one program judged together at 1 %; what is counted differs by no more than how the threads happened to run. One alarm in a hundred pairs is therefore
//! false, so that an alarm must be confirmed by two more pairs with other seeds, which chance does once in a million times: intervals that are too narrow raise
//! it in all of them.

use std::path::Path;

use crate::common::*;
use serde_json::Value;

/// Chance of a false alarm over all shares of one program.
const ALARM: f64 = 0.01;
/// Rows with fewer samples have intervals that are not normal.
const ENOUGH_SAMPLES: f64 = 100.0;
/// Half of a 95 % interval, in standard errors.
const HALF_INTERVAL: f64 = 1.959_964;
/// Smallest difference that matters to a reader; threads are scheduled differently in each run.
const RUN_TO_RUN: f64 = 0.01;

/// The two-sided quantile of the normal distribution by bisection of Mills' bound, which is slightly too large: the test gets no looser than
/// a thousandth of a standard error.
fn quantile(chance: f64) -> f64 {
    let tail = |z: f64| 2.0 * (-z * z / 2.0).exp() / (z * (2.0 * std::f64::consts::PI).sqrt());
    let (mut low, mut high) = (1.0f64, 10.0f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if tail(middle) > chance { low = middle } else { high = middle }
    }
    high
}

/// Every estimate of a row that is a share, by name.
fn shares(row: &Value) -> Vec<(String, &Value)> {
    let single = ["share", "share_of_remote", "remote", "local", "writes", "by_allocator", "before_others"];
    let mut all: Vec<(String, &Value)> = single.iter().map(|name| ((*name).to_owned(), &row[*name])).collect();
    for list in ["from_node", "on_node"] {
        let values = row[list].as_array().into_iter().flatten().enumerate();
        all.extend(values.map(|(node, value)| (format!("{list}[{node}]"), value)));
    }
    all.into_iter().filter(|(_, value)| value.get("value").is_some()).collect()
}

struct Difference {
    /// Name of the share, and its value in both recordings.
    what: String,
    /// The difference, in standard errors.
    errors: f64,
}

/// Differences of all shares of sites for which both reports have enough samples.
fn differences(first: &Value, second: &Value) -> Vec<Difference> {
    let mut result = Vec::new();
    for row in first["sites"].as_array().expect("sites") {
        let rows = second["sites"].as_array().expect("sites").iter();
        let Some(other) = rows.into_iter().find(|other| other["name"] == row["name"] && other["place"] == row["place"])
        else {
            continue;
        };
        if number(row, "/samples").min(number(other, "/samples")) < ENOUGH_SAMPLES {
            continue;
        }
        for ((what, a), (again, b)) in shares(row).into_iter().zip(shares(other)) {
            assert_eq!(what, again);
            let error = |value: &Value| (number(value, "/high") - number(value, "/low")) / (2.0 * HALF_INTERVAL);
            let (first, second) = (number(a, "/value"), number(b, "/value"));
            let spread = error(a).hypot(error(b));
            let gap = ((first - second).abs() - RUN_TO_RUN).max(0.0);
            let errors = if gap == 0.0 { 0.0 } else { gap / spread };
            result.push(Difference { what: format!("{}: {what}: {first:.4} and {second:.4}", row["name"]), errors });
        }
    }
    result
}

fn recorded(folder: &Path, program: &str, arguments: &[&str], seed: u32) -> Value {
    let trace = folder.join(format!("{program}-{seed}.numatrace"));
    let options = ["--machine", "opteron-8385", "--rate", "40000", "--seed", &seed.to_string()];
    record(&trace, &options, &workload(program), arguments).succeeded();
    figures_json(&trace, &["--top", "100"])
}

/// Runs the program with two seeds and compares; returns how many shares were compared.
///
/// # Errors
/// The shares that differ by more than their intervals allow, or a count that differs.
fn compared(program: &str, arguments: &[&str], seeds: [u32; 2]) -> Result<usize, String> {
    let folder = scratch();
    let [first, second] = seeds.map(|seed| recorded(folder.path(), program, arguments, seed));
    let counted = ["remote_share", "imbalance/population"];
    for name in counted {
        let pointer = format!("/headline/totals/{name}/value");
        let (a, b) = (number(&first, &pointer), number(&second, &pointer));
        if (a - b).abs() >= 0.03 {
            return Err(format!("{program}: {name}: {a} and {b}"));
        }
    }
    let all = differences(&first, &second);
    let limit = quantile(ALARM / all.len() as f64);
    let worst = all.iter().map(|difference| difference.errors).fold(0.0, f64::max);
    eprintln!("{program}: {} shares, the worst differs by {worst:.2} standard errors, allowed {limit:.2}", all.len());
    let wrong = all.iter().filter(|difference| difference.errors > limit);
    let wrong: Vec<String> =
        wrong.map(|difference| format!("{}: {:.2} standard errors", difference.what, difference.errors)).collect();
    match wrong.is_empty() {
        true => Ok(all.len()),
        false => Err(format!("{program}: more than {limit:.2}:\n{}", wrong.join("\n"))),
    }
}

/// Compares two recordings, and two others where they differ, three pairs at most; returns how many shares were compared.
fn agree(program: &str, arguments: &[&str]) -> usize {
    let mut alarms = Vec::new();
    for seeds in [[1, 2], [3, 4], [5, 6]] {
        match compared(program, arguments, seeds) {
            Ok(shares) => return shares,
            Err(alarm) => {
                eprintln!("{alarm}\nwith seeds {seeds:?}");
                alarms.push(alarm);
            }
        }
    }
    panic!("{}", alarms.join("\n"));
}

#[test]
fn two_recordings_of_streamcluster_agree() {
    assert!(agree("streamcluster", &["--chunk", "65536", "--chunks", "1", "--kmin", "4", "--candidates", "24"]) >= 13);
}
