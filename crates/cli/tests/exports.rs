//! The files for other programs, by way of the command: standard output, filters, and errors that leave nothing behind.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::{Ran, run, scratch};
use numapilot_fixtures::{Kind, Size, write};

fn make(folder: &Path) -> PathBuf {
    let trace = folder.join("made.numatrace");
    let size = Size { accesses: 3000, objects: 200, threads: 8, ..Kind::Big.size() };
    write(Kind::Big, &size, &trace).expect("the trace is written");
    trace
}

fn report(trace: &Path, options: &[&str]) -> Ran {
    run(&[&["report", trace.to_str().expect("UTF-8")][..], options].concat())
}

#[test]
fn every_view_and_table_goes_to_standard_output_alone() {
    let folder = scratch();
    let trace = make(folder.path());
    for view in ["traffic", "matrix", "objects", "timeline", "pages", "flame", "imbalance"] {
        let ran = report(&trace, &["--svg", "-", "--view", view]).succeeded();
        assert!(ran.stdout.starts_with("<svg") && ran.stdout.ends_with("</svg>\n"), "{view}");
    }
    for table in ["sites", "matrix", "series", "accesses"] {
        let all = report(&trace, &["--csv", "-", "--table", table]).succeeded().stdout;
        let part = report(&trace, &["--csv", "-", "--table", table, "--node", "1", "--remote"]).succeeded().stdout;
        assert!(all.lines().count() > 1 && all.lines().next() == part.lines().next() && all != part, "{table}");
    }
    let profile = report(&trace, &["--firefox", "-", "--thread", "3"]).succeeded().stdout;
    let profile: serde_json::Value = serde_json::from_str(&profile).expect("JSON");
    assert_eq!(profile["threads"].as_array().map(Vec::len), Some(1));
}

#[test]
fn files_appear_whole_beside_the_report_and_say_what_they_show() {
    let folder = scratch();
    let trace = make(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (svg, pprof, firefox, csv) = (file("a.svg"), file("a.pb.gz"), file("a.json.gz"), file("a.csv"));
    let outputs = [
        "--svg",
        &svg,
        "--view",
        "timeline",
        "--pprof",
        &pprof,
        "--firefox",
        &firefox,
        "--csv",
        &csv,
        "--table",
        "accesses",
    ];
    let ran = report(&trace, &[&outputs[..], &["--object", "150", "--from", "0.001"]].concat()).succeeded();
    assert!(
        ran.stdout.contains(&format!("Picture: {svg}")) && ran.stdout.contains(&format!("Table: {csv}")),
        "{}",
        ran.stdout
    );
    assert!(fs::read_to_string(&svg).expect("a picture").contains("only object 150, from 0.001 s on"));
    for gzipped in [&pprof, &firefox] {
        let mut profile = Vec::new();
        let file = fs::File::open(gzipped).expect("a profile");
        flate2::read::GzDecoder::new(file).read_to_end(&mut profile).expect("gzip");
        let profile = String::from_utf8_lossy(&profile);
        assert!(profile.contains("only object 150, from 0.001 s on"), "{gzipped} does not say what it shows");
    }
    let lines = fs::read_to_string(&csv).expect("a table");
    assert!(lines.lines().skip(1).all(|line| line.split(',').nth(6) == Some("150")), "{lines}");
    let names = fs::read_dir(folder.path()).expect("the folder").map(|entry| entry.expect("an entry").file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().ends_with(".tmp")));
}

/// `-` for one file takes nothing away from the others, and two of them are refused before anything is written.
#[test]
fn files_beside_standard_output_are_written() {
    let folder = scratch();
    let trace = make(folder.path());
    let shown = trace.to_str().expect("UTF-8");
    let [plan, svg] = ["fix.toml", "traffic.svg"].map(|name| folder.path().join(name).display().to_string());
    let page = report(&trace, &["--html", "-", "--plan", &plan, "--svg", &svg]).succeeded().stdout;
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "something is printed beside the page");
    assert!(Path::new(&plan).is_file() && Path::new(&svg).is_file());
    let commands: [&[&str]; 4] = [
        &["report", shown, "--plan", "-", "--html", "-"],
        &["report", shown, "--plan", "-", "--svg", "-"],
        &["compare", shown, shown, "--quiet", "--html", "-", "--svg", "-"],
        &["simulate", shown, "--quiet", "--policy", "first-touch", "--html", "-", "--placement", "-"],
    ];
    for command in commands {
        let ran = run(command);
        assert!(ran.code == 1 && ran.stderr.contains("only one file"), "{command:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{command:?}");
    }
    let ran = run(&["check", "--trace", shown, "--max-remote", "0%", "--sarif", "-", "--json"]);
    let log: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one JSON document");
    assert_eq!((ran.code, &log["version"]), (3, &serde_json::Value::from("2.1.0")));
}

/// The comparison is shown although the run times cannot be judged: its notes are what the message refers to.
#[test]
fn a_limit_that_cannot_be_judged_does_not_hide_the_comparison() {
    let folder = scratch();
    let trace = make(folder.path());
    let shown = trace.to_str().expect("UTF-8");
    let options = ["compare", shown, shown, "--quiet", "--no-model", "--max-slowdown", "5%"];
    let ran = run(&options);
    assert!(ran.code == 1 && ran.stderr.contains("--max-slowdown"), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stdout.lines().count() > 3, "{}", ran.stdout);
    let found: serde_json::Value =
        serde_json::from_str(&run(&[&options[..], &["--json"]].concat()).stdout).expect("JSON");
    assert!(found["exceeded"].is_null(), "{found}");
}

#[test]
fn impossible_simulations_are_refused_in_a_line() {
    let folder = scratch();
    let trace = make(folder.path());
    for (option, value, words, code) in [
        ("--policy", ",", "name a policy", 1),
        ("--for", "0", "above 0", 2),
        ("--for", "nan", "`nan` is not a number", 2),
    ] {
        let ran = run(&["simulate", trace.to_str().expect("UTF-8"), "--quiet", option, value]);
        let is_told = ran.code == code && ran.stderr.contains(words) && (code == 2 || ran.stderr.lines().count() == 1);
        assert!(is_told, "{option} {value}: {}\n{}", ran.code, ran.stderr);
    }
}

#[test]
fn errors_say_what_to_do_and_leave_nothing_behind() {
    let folder = scratch();
    let trace = make(folder.path());
    let target = folder.path().join("pages.csv");
    let target = target.to_str().expect("UTF-8");
    let refused = |options: &[&str], words: &str| {
        let ran = report(&trace, options);
        assert!(ran.code != 0 && ran.stderr.contains(words), "{options:?}: {}", ran.stderr);
        assert!(!Path::new(target).exists(), "{options:?}");
    };
    refused(&["--csv", target], "--table");
    refused(&["--csv", target, "--table", "nonsense"], "accesses");
    refused(&["--csv", target, "--table", "pages"], "--object");
    refused(&["--view", "matrix"], "--svg");
    refused(&["--svg", "-", "--pprof", "-"], "only one");
    refused(&["--pprof", "/no/such/folder/a.pb.gz"], "/no/such/folder/a.pb.gz");
    refused(&["--csv", target, "--table", "sites", "--object", "no such"], "no object has that name");
    let left = fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 1, "only the trace is there");
}
