//! The text and JSON reports of every kind of synthetic trace: the empty one, huge thread counts, hostile names.

use crate::common::{report_json, run, scratch};
use numapilot_fixtures::{Kind, Size, write};

/// Names of traces, machines and programs come from elsewhere: those of predictions and errors are only text, too.
#[test]
fn predictions_and_errors_show_hostile_names_as_text() {
    let folder = scratch();
    let trace = folder.path().join("evil\u{1b}[31m.numatrace");
    write(Kind::OneAccess, &Kind::OneAccess.size(), &trace).expect("the trace is written");
    let path = trace.to_str().expect("UTF-8");
    let commands: [&[&str]; 3] = [
        &["simulate", path, "--policy", "first-touch", "--quiet"],
        &["whatif", path, "--set", "*=interleave", "--quiet"],
        &["report", path, "--object", "no such \u{1b}[2J"],
    ];
    for command in commands {
        let ran = run(command);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{command:?}: {ran:?}");
        assert!((ran.stdout + &ran.stderr).contains("\\u{1b}"), "{command:?} names neither");
    }
    // A note, which is neither the answer nor an error.
    let plan = folder.path().join("evil\u{1b}[2J.toml");
    std::fs::write(&plan, "version = 1\n\n[[object]]\nfunction = \"no such function\"\npolicy = \"interleave\"\n")
        .expect("the plan is written");
    let stderr = run(&["whatif", path, "--plan", plan.to_str().expect("UTF-8"), "--quiet"]).stderr;
    assert!(stderr.contains("\\u{1b}[2J.toml: the rule for ") && !stderr.contains('\u{1b}'), "{stderr}");
}

#[test]
fn every_kind_of_trace_can_be_reported() {
    let folder = scratch();
    for kind in Kind::ALL {
        let own = kind.size();
        let size = Size { accesses: own.accesses.min(20_000), objects: own.objects.min(6000), ..own };
        let trace = folder.path().join(format!("{}.numatrace", kind.word()));
        write(kind, &size, &trace).expect("the trace is written");
        let path = trace.to_str().expect("UTF-8");
        let everything = ["--functions", "--stacks", "--threads", "--matrix", "--instances"];
        let ran = run(&[&["report", path][..], &everything].concat()).succeeded();
        let name = kind.word();
        assert!(ran.stdout.contains("synthetic data"), "{name}: {}", ran.stdout);
        assert!(kind != Kind::HostileNames || ran.stdout.lines().take(24).any(|line| line.starts_with("OBJECT")));
        let is_unsafe = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
        assert!(!ran.stdout.contains(is_unsafe), "{name}: control characters reach the terminal");
        let json = report_json(&trace, &["-n", "3"]);
        assert_eq!(json["headline"]["totals"]["samples"], size.accesses, "{name}");
        assert_eq!(json["limits"].as_array().is_some_and(|limits| limits.len() > 8), kind == Kind::Losses, "{name}");
    }
}
