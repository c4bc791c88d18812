//! `numapilot selftest` on the machine under the test, whatever that is: the JSON's shape, that every verdict has its reason, and the exit status that follows.
//! Nothing here claims a time: on a busy machine contention may be anything.

use crate::common::*;
use serde_json::Value;

fn parsed(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", ran.stdout, ran.stderr))
}

fn parts(all: &Value) -> Vec<&str> {
    all["parts"].as_array().expect("parts").iter().map(|part| part["part"].as_str().expect("a name")).collect()
}

fn checks<'a>(all: &'a Value, part: &str) -> &'a Vec<Value> {
    let parts = all["parts"].as_array().expect("parts");
    let found = parts.iter().find(|row| row["part"] == part).unwrap_or_else(|| panic!("no part {part}"));
    found["checks"].as_array().expect("checks")
}

/// Every verdict is one of three with a whole sentence, and the exit status follows from them.
#[track_caller]
fn agrees(ran: &Ran) -> Value {
    let all = parsed(ran);
    assert_eq!((&all["format"], &all["version"]), (&"numapilot-selftest".into(), &1.into()));
    let mut verdicts = Vec::new();
    for part in all["parts"].as_array().expect("parts") {
        for check in part["checks"].as_array().expect("checks") {
            let verdict = check["verdict"].as_str().expect("a verdict");
            let reason = check["reason"].as_str().expect("a reason");
            assert!(["pass", "fail", "not_judged"].contains(&verdict), "{check}");
            assert!(reason.ends_with('.') && reason.split(' ').count() > 3, "{check}");
            verdicts.push(verdict);
        }
    }
    let status = match (verdicts.contains(&"fail"), verdicts.contains(&"pass")) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => 4,
    };
    assert_eq!(ran.code, status, "{}", ran.stdout);
    all
}

#[test]
fn pages_are_where_policies_put_them_or_the_reason_is_told() {
    let all = agrees(&run(&["selftest", "--quiet", "--json", "--only", "placement"]));
    assert_eq!(parts(&all), ["placement"]);
    let checks = checks(&all, "placement");
    for kind in ["bind to node", "interleave", "first touch"] {
        assert!(checks.iter().any(|check| check["name"].as_str().is_some_and(|name| name.starts_with(kind))), "{kind}");
    }
    for check in checks {
        assert_ne!(check["verdict"], "fail", "{check}");
        assert_eq!(check["verdict"] == "pass", check["found"].is_string(), "{check}");
    }
}

#[test]
fn engines_that_work_here_name_the_block_its_home_and_its_reader() {
    let doctor: Value = serde_json::from_str(&run(&["doctor", "--json"]).stdout).expect("JSON");
    let all = agrees(&run(&["selftest", "--quiet", "--json", "--only", "engines"]));
    for check in checks(&all, "engines") {
        let name = check["name"].as_str().and_then(|name| name.strip_prefix("engine ")).expect("an engine");
        let engines = doctor["engines"].as_array().expect("engines");
        let finding = engines.iter().find(|finding| finding["engine"] == name).expect("doctor knows it");
        let expected = if finding["works"] == true { "pass" } else { "not_judged" };
        assert_eq!(check["verdict"], expected, "{check}");
    }
}

#[test]
fn contention_is_predicted_for_every_row_or_the_reason_is_told() {
    let all = agrees(&run(&["selftest", "--quiet", "--quick", "--json", "--only", "contention,latency-order"]));
    assert_eq!(parts(&all), ["latency_order", "contention"]);
    let part = &all["parts"][1];
    let Some(contention) = part.get("contention") else {
        assert_eq!(part["verdict"], "not_judged", "{part}");
        return;
    };
    assert!(contention["model"].as_str().is_some_and(|model| model.contains("[[nodes]]")), "the model is there");
    for row in contention["rows"].as_array().expect("rows") {
        let members = row["members"].as_array().expect("members");
        assert!(members.len() >= 2, "{row}");
        for member in members {
            assert!(number(member, "/predicted") >= 0.99 && number(member, "/measured") > 0.0, "{row}");
            assert!(number(member, "/alone_per_s") > 0.0 && number(member, "/together_per_s") > 0.0, "{row}");
        }
    }
}

#[test]
fn text_fits_its_width_and_ends_with_the_sums() {
    let ran = run(&["selftest", "--quiet", "--only", "placement,latency-order", "--width", "90"]);
    assert!([0, 1, 4].contains(&ran.code), "{}", ran.stderr);
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 90 || line.starts_with("machine")), "{}", ran.stdout);
    let last = ran.stdout.lines().last().expect("a line");
    assert!(last.contains("passed") && last.contains("failed") && last.contains("not judged"), "{last}");
}

#[test]
fn help_has_examples_hides_the_worker_and_doctor_points_here() {
    let help = run(&["selftest", "--help"]).succeeded().stdout;
    assert!(help.contains("Examples:\n  numapilot selftest") && !help.contains("worker"), "{help}");
    assert_eq!(run(&["selftest", "--only", "weather"]).code, 2);
    assert_eq!(run(&["selftest", "--worker", "1:2"]).code, 2);
    let doctor = run(&["doctor"]).stdout;
    assert!(doctor.lines().last().is_some_and(|line| line.contains("numapilot selftest")), "{doctor}");
}
