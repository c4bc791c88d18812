//! `simulate` and `whatif` as people use them, on a committed recording of a multigrid solver (`testdata/traces/README.md`).

use crate::common::*;
use serde_json::Value;

fn trace() -> String {
    root().join("testdata/traces/mg.numatrace").display().to_string()
}

fn json(arguments: &[&str]) -> Value {
    let ran = run(arguments).succeeded();
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn policies_are_compared_on_the_recorded_machine_and_everything_says_simulated() {
    let folder = scratch();
    let page = folder.path().join("p.html").display().to_string();
    let bars = folder.path().join("b.svg").display().to_string();
    let (trace, policies) = (trace(), "first-touch,interleave,pilot:replicate=off,optimum");
    let ran = run(&["simulate", &trace, "--policy", policies, "--html", &page, "--svg", &bars]).succeeded();
    for needed in ["simulated", "first-touch", "interleave", "pilot:replicate=off", "optimum", "RUN TIME"] {
        assert!(ran.stdout.contains(needed), "{needed} is missing in\n{}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ran.stdout);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(
        page.contains("Nothing on this page was measured")
            && page.matches("<svg").count() >= 5
            && !page.contains("http://")
            || page.contains("www.w3.org")
    );
    assert!(std::fs::read_to_string(bars).expect("the picture").contains("simulated"));

    let found = json(&["simulate", &trace, "--policy", policies, "--json"]);
    let runs = found["runs"].as_array().expect("runs");
    assert_eq!(
        (runs.len(), found["base"].as_str(), found["simulated"].as_bool()),
        (4, Some("first-touch"), Some(true))
    );
    let local = |run: &Value| run["total"]["metrics"]["local_access_ratio"].as_f64().expect("a share");
    assert!(
        (local(&runs[1]) - 0.25).abs() < 0.02,
        "interleaving over four nodes leaves a quarter local: {}",
        local(&runs[1])
    );
    assert!(runs.iter().all(|run| run["simulated"] == true && run["finished"] == true));
}

#[test]
fn what_if_predicts_with_an_interval_and_names_what_it_set() {
    let found = json(&["whatif", &trace(), "--set", "*=interleave", "--json"]);
    let share = |when: &str| found[when]["total"]["metrics"]["local_access_ratio"].as_f64().expect("a share");
    assert!(
        found["predicted"] == true && share("now") > 0.3 && (share("then") - 0.25).abs() < 0.02,
        "{} {}",
        share("now"),
        share("then")
    );
    let number = |name: &str| found[name].as_f64().expect("a number");
    let (gain, low, high) = (number("gain"), number("gain_low"), number("gain_high"));
    let time = |when: &str| found[when]["run_time_ns"].as_f64().expect("a time");
    assert!((gain - (time("now") / time("then") - 1.0)).abs() < 1e-9, "{gain}");
    assert!(low < gain && gain < high && low > -0.5, "{gain} ({low} to {high})");
    let sources = found["uncertainty"]["sources"].as_array().expect("a list");
    let shares: f64 = sources.iter().filter_map(|source| source["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{sources:?}");
    for place in ["samples", "program.own_work", "program.scattered_outstanding"] {
        assert!(sources.iter().any(|source| source["place"] == place), "{place}: {sources:?}");
    }
    let copies = json(&["whatif", &trace(), "--set", "*=replicate", "--json"]);
    let local = |when: &str| copies[when]["total"]["metrics"]["local_access_ratio"].as_f64().expect("a share");
    // What copies gain is theirs less what it takes to make them, which counts in so short a run.
    assert!(copies["more_bytes"].as_u64().expect("bytes") > 0 && local("then") > local("now") + 0.3, "{copies}");
    let elsewhere = json(&["whatif", &trace(), "--set", "*=interleave", "--machine", "memprof-b", "--json"]);
    assert!(
        elsewhere["predicted"] == true && elsewhere["notes"][0].as_str().is_some_and(|note| note.contains("Simulated"))
    );
}

/// Whoever takes work when it is free does less of it where it is slowed down: the interval holds that, the value stays, the source is named. All memory on one
/// node slows the threads of one node less than others.
#[test]
fn work_that_is_taken_is_in_the_interval() {
    let trace = trace();
    let kept = json(&["whatif", &trace, "--set", "*=bind:0", "--json"]);
    let taken = json(&["whatif", &trace, "--set", "*=bind:0", "--dynamic-work", "--json"]);
    let (value, same) = (number(&kept, "/gain"), number(&taken, "/gain"));
    assert!((value - same).abs() < 1e-9, "{value} and {same}");
    let (kept_median, median) = (number(&kept, "/uncertainty/median"), number(&taken, "/uncertainty/median"));
    assert!(median > kept_median, "{median}, {kept_median} with the work as recorded");
    let is_named = |of: &Value| {
        let sources = of["uncertainty"]["sources"].as_array().expect("a list");
        sources.iter().any(|source| source["place"] == "program.work_taken")
    };
    assert!(is_named(&taken) && !is_named(&kept), "{taken}");
    let ran = run(&["whatif", &trace, "--set", "*=interleave", "--machine", "memprof-b", "--dynamic-work"]);
    assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{}: {}", ran.code, ran.stderr);
}

/// The simulator has the other division of work as a run of its own, and what interleaving gains by it is within the interval that `whatif` gives the same
/// change, as far as the two agree at all (docs/patterns.md, "Compared with the simulator": 1.2 percentage points here).
#[test]
fn simulated_work_that_is_taken_agrees_with_the_price() {
    const AGREED: f64 = 0.012;
    let trace = trace();
    let policies = ["simulate", &trace, "--policy", "first-touch,interleave", "--quiet"];
    let found = json(&[&policies[..], &["--dynamic-work", "--json"]].concat());
    let plain = json(&[&policies[..], &["--json"]].concat());
    let taken = |run: usize| found["dynamic_run_times_ns"][run].as_f64().expect("a time");
    let recorded = |of: &Value, run: usize| of["runs"][run]["run_time_ns"].as_f64().expect("a time");
    assert!(plain.get("dynamic_run_times_ns").is_none());
    for run in [0, 1] {
        assert_eq!(recorded(&found, run), recorded(&plain, run), "the value is that of the division as recorded");
        // Nobody waits for the one that is slowed most. Paces are those of an epoch's beginning.
        assert!(taken(run) < 1.01 * recorded(&found, run), "{} and {} ns", taken(run), recorded(&found, run));
    }
    let priced = json(&["whatif", &trace, "--set", "*=interleave", "--dynamic-work", "--json"]);
    let (low, high) = (number(&priced, "/gain_low") - AGREED, number(&priced, "/gain_high") + AGREED);
    for gain in [taken(0) / taken(1) - 1.0, recorded(&found, 0) / recorded(&found, 1) - 1.0] {
        assert!(low <= gain && gain <= high, "{gain}, priced {low} to {high}");
    }
    let text = run(&[&policies[..], &["--dynamic-work"]].concat()).succeeded().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("interleave: ") && text.contains("goes to whichever thread is free"), "{text}");
}

#[test]
fn wrong_overrides_are_answered_with_what_is_right() {
    let trace = trace();
    let cases: [(&[&str], &str); 7] = [
        (&["simulate", &trace, "--policy", "carefour"], "there is no policy \"carefour\""),
        (&["simulate", &trace, "--policy", "pilot:speed=9"], "has no option \"speed\""),
        (&["simulate", "nowhere.numatrace"], "nowhere.numatrace: there is no such"),
        (&["simulate", "--policy", "pilot", "/dev/null"], "neither a trace"),
        (&["whatif", &trace, "--set", "grid"], "write OBJECT=WHERE"),
        (&["whatif", &trace, "--set", "*=bind:77"], "no node 77"),
        (&["whatif", &trace, "--set", "nosuchthing=interleave"], "no object has that name"),
    ];
    for (arguments, needed) in cases {
        let ran = run(arguments);
        assert!(
            ran.code != 0 && ran.stderr.contains(needed) && ran.stdout.is_empty(),
            "{arguments:?}: {}\n{}",
            ran.code,
            ran.stderr
        );
    }
}

#[test]
fn descriptions_need_a_machine_and_errors_name_file_and_line() {
    let described = root().join("workloads/synthetic/bursts.toml").display().to_string();
    let ran = run(&["simulate", &described, "--policy", "first-touch"]);
    assert!(ran.code == 1 && ran.stderr.contains("--machine"), "{}", ran.stderr);
    let folder = scratch();
    let broken = folder.path().join("broken.toml");
    std::fs::write(&broken, "format = 1\nname = \"x\"\nnonsense = 2\n").expect("written");
    let ran = run(&["simulate", broken.display().to_string().as_str(), "--machine", "opteron-8385"]);
    assert!(ran.code == 1 && ran.stderr.contains("broken.toml:3"), "{}", ran.stderr);
}
