//! One price: what `report` says that a fix would gain, `whatif` says of the same change, to the last digit, and `compare --prediction` takes it as it is.

mod common;

use std::path::PathBuf;

use common::*;
use numapilot_fixtures::{Kind, Size, write};
use serde_json::Value;

/// Traces in which something is found, or everything is tried at least: committed recordings, and generated ones.
fn traces(folder: &std::path::Path) -> Vec<PathBuf> {
    let committed = ["facerec", "mg", "psearchy", "streamcluster", "webserver"];
    let mut all: Vec<PathBuf> =
        committed.iter().map(|name| root().join(format!("testdata/traces/{name}.numatrace"))).collect();
    for seed in 1..=5 {
        for (nodes, threads, objects) in [(2, 4, 5), (4, 16, 40), (8, 32, 12)] {
            let to = folder.join(format!("made-{nodes}-{seed}.numatrace"));
            let size = Size { accesses: 20_000, objects, threads, nodes, seed };
            write(Kind::Big, &size, &to).expect("a synthetic trace");
            all.push(to);
        }
    }
    all
}

fn json(arguments: &[&str]) -> Value {
    let ran = run(arguments).succeeded();
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn findings_and_what_if_say_the_same_of_the_same_change() {
    let folder = scratch();
    let traces = traces(folder.path());
    assert_eq!(traces.len(), 20);
    let mut compared = 0;
    for trace in &traces {
        let trace = trace.display().to_string();
        let found = json(&["report", &trace, "--findings", "--json"])["findings"].take();
        let of_findings = found["findings"].as_array().expect("a list").iter().flat_map(|one| one["fixes"].as_array());
        let fixes: Vec<&Value> = of_findings.chain(found["tried_by_many"].as_array()).flatten().collect();
        assert!(!fixes.is_empty(), "{trace}: {found}");
        for fix in fixes {
            let set: Vec<&str> = fix["set"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
            let mut asked = vec!["whatif", &trace, "--json"];
            set.iter().for_each(|set| asked.extend(["--set", set]));
            let answer = json(&asked);
            let gain = |value: &Value, name: &str| value[name].as_f64().expect("a number");
            let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
            for (of_answer, of_fix) in [("gain", "value"), ("gain_low", "low"), ("gain_high", "high")] {
                let (a, b) = (gain(&answer, of_answer), gain(&fix["gain"], of_fix));
                assert!(same(a, b), "{trace}, {set:?}, {of_answer}: {a} against {b}");
            }
            assert_eq!(answer["uncertainty"]["sources"], fix["uncertainty"]["sources"], "{trace}, {set:?}");
            compared += 1;
        }
    }
    eprintln!("{compared} fixes in {} traces", traces.len());
    assert!(compared >= 40, "{compared} fixes");
}
