//! The page that `report --html` writes, in a real browser: `web/test` drives it; here its pages are made, of a recording and of
//! synthetic traces, hostile ones among them. Also: the committed script and style are those that `web/` builds.
//!
//! Needs Node.js, Chromium and the packages of `web/`: `tools/setup test` installs them.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_fixtures::Kind;
use numapilot_fixtures::Size;
use serde_json::json;

/// Seconds of program time that the comparison under a filter looks at.
const PART: (f64, f64) = (0.05, 0.09);

/// A command of Node.js in `web/`, or the reason why there is none.
fn node(arguments: &[&str]) -> Command {
    let web = root().join("web");
    assert!(
        web.join("node_modules/esbuild").exists() && web.join("node_modules/playwright-core").exists(),
        "the packages of web/ are missing: run tools/setup test"
    );
    let mut command = Command::new("node");
    command.args(arguments).current_dir(web);
    command
}

/// Path of the browser, Chromium or Chrome.
fn chromium() -> PathBuf {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return path.into();
    }
    let folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let candidates =
        ["chromium", "chromium-browser"].into_iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.expect("Chromium is missing: run tools/setup test, or set CHROMIUM to its path")
}

/// Writes `NAME.html` and the same figures as JSON beside it.
#[track_caller]
fn page(folder: &Path, name: &str, trace: &Path) {
    let mut command = numapilot(&["report", "--json", "-n", "50", "--html"]);
    let ran = finish(command.arg(folder.join(format!("{name}.html"))).arg(trace)).succeeded();
    fs::write(folder.join(format!("{name}.json")), ran.stdout).expect("figures are written");
}

#[test]
fn the_committed_script_is_what_its_source_builds() {
    let ran = finish(&mut node(&["build.mjs", "--check"]));
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_page_works_in_a_browser() {
    let folder = scratch();
    let pages = folder.path().join("pages");
    fs::create_dir(&pages).expect("a folder");
    let trace = folder.path().join("streamcluster.numatrace");
    let arguments = ["--chunk", "65536", "--chunks", "1", "--kmin", "4", "--candidates", "24"];
    let options = ["--machine", "opteron-8385", "--rate", "40000"];
    record(&trace, &options, &workload("streamcluster"), &arguments).succeeded();
    page(&pages, "streamcluster", &trace);
    let (from, to) = (PART.0.to_string(), PART.1.to_string());
    let part = report_json(&trace, &["--from", &from, "--to", &to, "--node", "1", "-n", "50"]);
    fs::write(pages.join("streamcluster.part.json"), part.to_string()).expect("figures are written");
    let range = json!({"start": (PART.0 * 1e9) as u64, "end": (PART.1 * 1e9) as u64});
    fs::write(pages.join("streamcluster.range.json"), range.to_string()).expect("figures are written");
    // Every object of 64 nodes has its prices on a network of thousands of paths: some will do for what the page draws of them.
    let objects = |kind: Kind| if kind == Kind::Nodes64 { 16 } else { kind.size().objects };
    let small = |kind: Kind| Size { accesses: kind.size().accesses.min(30_000), objects: objects(kind), ..kind.size() };
    let synthetic = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Big).map(|kind| (kind, small(kind)));
    // Enough to be summed up into cells.
    let big = Size { accesses: 260_000, objects: 20_000, ..Kind::Big.size() };
    for (kind, size) in synthetic.chain([(Kind::Big, big)]) {
        let trace = folder.path().join(format!("{}.numatrace", kind.word()));
        numapilot_fixtures::write(kind, &size, &trace).expect("a synthetic trace");
        page(&pages, kind.word(), &trace);
    }
    let trace = folder.path().join("latency-cells.numatrace");
    let many = Size { accesses: 260_000, ..Kind::Latency.size() };
    numapilot_fixtures::write(Kind::Latency, &many, &trace).expect("a synthetic trace");
    page(&pages, "latency-cells", &trace);
    let trace = folder.path().join("track.numatrace");
    record(&trace, &["--engine", "track"], &workload("streamcluster"), &arguments).succeeded();
    page(&pages, "track", &trace);
    let mut driver = node(&["--test", "--test-reporter=spec", "test/page.test.mjs", "test/unknown.test.mjs"]);
    let ran = finish(driver.env("NUMAPILOT_PAGES", &pages).env("CHROMIUM", chromium()));
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}
