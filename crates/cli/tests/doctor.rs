//! `numapilot doctor` on the machine under the test, whatever that is: its exit status, its two forms, that they agree, and what it installs where nothing is.

use std::path::Path;
use std::process::Stdio;

use crate::common::*;
use numapilot_scratch::write_program;
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

/// An `apt-get` that writes down its words, and fails to install before it has updated its lists; and a `sudo` that runs what follows.
const APT_GET: &str = "#!/bin/sh
echo \"$*\" >>\"$0.log\"
case $1 in
install) [ -e \"$0.updated\" ] ;;
update) : >\"$0.updated\" ;;
esac
";
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// `doctor` where nothing is on PATH but the programs of a folder.
fn doctor_in(folder: &Path, options: &[&str]) -> Ran {
    let mut command = numapilot(&["doctor"]);
    for name in ["CC", "CXX", "FC", "NUMAPILOT_QEMU"] {
        command.env_remove(name);
    }
    finish(command.args(options).env("PATH", folder).stdin(Stdio::null()))
}

#[test]
fn packages_are_installed_only_where_that_is_agreed_to() {
    let folder = scratch();
    let folder = folder.path();
    write_program(&folder.join("apt-get"), APT_GET);
    write_program(&folder.join("sudo"), SUDO);
    let log = || std::fs::read_to_string(folder.join("apt-get.log")).unwrap_or_default();

    let json: Value = serde_json::from_str(&doctor_in(folder, &["--json"]).stdout).expect("JSON");
    let packages = json["packages"].as_array().expect("packages");
    if packages.is_empty() {
        // No names of packages are known there, so it must be none of Debian's kin.
        let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        assert!(!system.contains("debian"), "{system}");
        return;
    }
    let names: Vec<&str> = packages
        .iter()
        .flat_map(|what| what["packages"].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(names.starts_with(&["gcc", "g++"]), "{names:?}");
    let install = format!("install --yes --no-install-recommends {}", names.join(" "));

    let shown = doctor_in(folder, &[]);
    assert!(shown.stdout.contains(&format!("apt-get {install}\n")), "{}", shown.stdout);
    let unasked = doctor_in(folder, &["--install"]);
    assert!(unasked.code != 0 && unasked.stderr.contains("--yes"), "{unasked:?}");
    assert_eq!(log(), "", "nobody has agreed");

    let agreed = doctor_in(folder, &["--install", "--yes"]);
    assert_eq!(log(), format!("{install}\nupdate\n{install}\n"), "{}", agreed.stderr);
    assert!(agreed.stderr.contains(&format!("apt-get {install}\n")), "{}", agreed.stderr);
    assert!(agreed.stdout.contains("instrument no"), "it looks once more:\n{}", agreed.stdout);
}

#[test]
fn where_packages_cannot_be_installed_the_command_is_named() {
    let folder = scratch();
    let json: Value = serde_json::from_str(&doctor_in(folder.path(), &["--json"]).stdout).expect("JSON");
    if json["packages"].as_array().expect("packages").is_empty() {
        return;
    }
    let failed = doctor_in(folder.path(), &["--install", "--yes"]);
    assert!(failed.code != 0, "{failed:?}");
    assert!(
        failed.stderr.contains("as root, run `apt-get install --yes --no-install-recommends gcc g++"),
        "{}",
        failed.stderr
    );
}
