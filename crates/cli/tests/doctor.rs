//! `numapilot doctor` on the machine under the test, whatever that is: its exit status, its two forms, and that they agree.

use crate::common::*;
use serde_json::Value;

#[test]
fn the_exit_status_says_whether_accesses_can_be_recorded() {
    let json = run(&["doctor", "--json"]);
    let parsed: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let engines = parsed["engines"].as_array().expect("engines");
    let names: Vec<&str> = engines.iter().filter_map(|engine| engine["engine"].as_str()).collect();
    assert_eq!(names, ["pmu", "fault", "instrument", "emulate", "import", "track"]);
    let can = engines.iter().any(|engine| engine["works"] == true && engine["records_accesses"] == true);
    assert_eq!(json.code, i32::from(!can), "{}", json.stdout);
    for engine in engines {
        let obstacles = engine["obstacles"].as_array().expect("obstacles");
        assert_eq!(engine["works"] == true, obstacles.is_empty(), "{engine}");
        for obstacle in obstacles {
            assert_ne!(obstacle["reason"], "", "{engine}");
            assert_ne!(obstacle["remedy"], "", "{engine}");
        }
    }
    assert_eq!(parsed["facts"]["kernel"], std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    let text = run(&["doctor", "--width", "100"]);
    assert_eq!(text.code, json.code);
    for line in text.stdout.lines() {
        assert!(line.chars().count() <= 100 || !line.trim().contains(' '), "{line:?}");
    }
    for name in names {
        assert!(text.stdout.lines().any(|line| line.starts_with(name)), "{name} is not in:\n{}", text.stdout);
    }
}
