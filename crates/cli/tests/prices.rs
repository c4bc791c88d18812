//! One price: what `report` says that a fix would gain, `whatif` says of the same change, to the last digit, and `compare --prediction` takes it as it is.

use std::path::PathBuf;

use crate::common::*;
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
            // None of these programs sleeps.
            assert!(answer["work_gain"].is_null() && fix["work_gain"].is_null(), "{trace}, {set:?}");
            compared += 1;
        }
    }
    eprintln!("{compared} fixes in {} traces", traces.len());
    assert!(compared >= 40, "{compared} fixes");
}

/// A copy of a recording with a native run that took no time: the program's own work is then a tenth of what was charged, and it waits for memory nearly
/// always.
fn with_native_run(name: &str, folder: &std::path::Path) -> PathBuf {
    let to = folder.join(format!("{name}.numatrace"));
    std::fs::create_dir(&to).expect("a folder");
    for entry in std::fs::read_dir(root().join(format!("testdata/traces/{name}.numatrace"))).expect("the trace") {
        let from = entry.expect("an entry").path();
        std::fs::copy(&from, to.join(from.file_name().expect("a name"))).expect("a copy");
    }
    let meta = to.join("meta.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&meta).expect("read")).expect("JSON");
    let run = serde_json::json!({ "user_ns": 1, "system_ns": 0, "wall_ns": 1, "clock_mhz": 2000.0 });
    json["native"] = serde_json::json!({ "program": name, "cpu_model": "", "runs": [run] });
    std::fs::write(&meta, json.to_string()).expect("written");
    to
}

/// Make sure that the simulator's gain of a placement that does not change is the price's, also where native runs say how much work the program does itself:
/// both simulate the same program. They estimate by themselves who uses which page, and cut time into other pieces: that may make 3 points.
#[test]
fn simulate_and_what_if_say_the_same_of_interleaving() {
    let folder = scratch();
    for name in ["facerec", "psearchy"] {
        for trace in [root().join(format!("testdata/traces/{name}.numatrace")), with_native_run(name, folder.path())] {
            let trace = trace.display().to_string();
            let priced = json(&["whatif", &trace, "--set", "*=interleave", "--json"])["gain"].as_f64().expect("a gain");
            let ran = json(&["simulate", &trace, "--policy", "first-touch,interleave", "--quiet", "--json"]);
            let simulated = ran["gains"][1].as_f64().expect("a gain");
            eprintln!("{trace}: {:+.1} % by whatif, {:+.1} % by simulate", 100.0 * priced, 100.0 * simulated);
            assert!((priced - simulated).abs() < 0.03, "{trace}: {priced} by whatif, {simulated} by simulate");
        }
    }
}

#[test]
fn a_plan_has_the_price_of_what_its_rules_do() {
    let folder = scratch();
    let file = folder.path().join("fix.toml").display().to_string();
    let mut compared = 0;
    for name in ["facerec", "mg", "psearchy", "streamcluster", "webserver"] {
        let trace = root().join(format!("testdata/traces/{name}.numatrace")).display().to_string();
        let found = json(&["report", &trace, "--findings", "--json", "--plan", &file])["findings"].take();
        // Of each of the first three findings the first fix that gains for certain and that a plan can do.
        let planned = found["findings"].as_array().expect("a list").iter().take(3).filter_map(|finding| {
            let fixes = finding["fixes"].as_array().expect("a list");
            let gains = |fix: &&Value| fix["gain"]["low"].as_f64() > Some(0.0);
            fixes.iter().filter(gains).find(|fix| fix["works_by_plan"] == true)
        });
        let mut set: Vec<&str> =
            planned.flat_map(|fix| fix["set"].as_array().expect("a list")).filter_map(Value::as_str).collect();
        set.sort_unstable();
        set.dedup();
        if set.is_empty() {
            continue;
        }
        let mut asked = vec!["whatif", &trace, "--json"];
        set.iter().for_each(|set| asked.extend(["--set", set]));
        let (of_rules, of_sets) = (json(&["whatif", &trace, "--json", "--plan", &file]), json(&asked));
        for what in ["gain", "gain_low", "gain_high"] {
            let (a, b) = (of_rules[what].as_f64().expect("a number"), of_sets[what].as_f64().expect("a number"));
            assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs()), "{name}, {set:?}, {what}: {a} against {b}");
        }
        let text = std::fs::read_to_string(&file).expect("the plan");
        let rules = text.matches("[[").count();
        assert_eq!(rules > 1, text.contains("All rules together: "), "{text}");
        compared += 1;
    }
    assert!(compared >= 3, "{compared} plans");
}

#[test]
fn a_plan_that_takes_nothing_or_has_no_price_is_refused_with_what_to_do() {
    let folder = scratch();
    let trace = root().join("testdata/traces/streamcluster.numatrace").display().to_string();
    let cases = [
        ("file = \"nowhere.c\"\npolicy = \"interleave\"", "no rule matches anything in this recording"),
        ("function = \"*\"\npolicy = \"split\"", "line 2: object made: the gain of `split` cannot be predicted"),
        ("function = \"*\"\npolicy = \"node\"\nnode = 9", "names node 9"),
    ];
    for (number, (rule, needed)) in cases.iter().enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        std::fs::write(&file, format!("version = 1\n[[object]]\nname = \"made\"\n{rule}\n")).expect("a plan");
        let ran = run(&["whatif", &trace, "--plan", &file.display().to_string()]);
        assert!(ran.code == 1 && ran.stderr.contains(needed) && ran.stdout.is_empty(), "{rule}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("{number}.toml")), "{}", ran.stderr);
    }
}
