//! The generic scripts in C (`scripts/`): what they print on two recordings is what is kept in `scripts/golden`, which Python and SQL are held to as well;
//! also under the address sanitizer and valgrind.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use numapilot_scratch::root;

use crate::common::{must, prefix, scratch};

/// Names of the scripts: those of the table that defines them for every language.
fn names() -> Vec<String> {
    let table = fs::read_to_string(root().join("scripts/questions.toml")).expect("the table of questions");
    let names = table.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(!names.is_empty(), "questions.toml names no script");
    names
}

fn recording(name: &str) -> PathBuf {
    root().join("testdata/traces").join(format!("{name}.numatrace"))
}

/// Builds them with these flags.
fn made(flags: &str) -> PathBuf {
    let out = scratch().join(format!("scripts{flags}").replace(' ', ""));
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-C"]).arg(root().join("scripts")).arg(format!("OUT={}", out.display()));
    must(make.arg(format!("CFLAGS={flags}")).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    out
}

#[test]
fn they_print_what_is_kept() {
    let programs = made("-g -O1");
    let scripts = names();
    for name in ["psearchy", "webserver"] {
        for script in &scripts {
            let kept = root().join(format!("scripts/golden/{name}-{script}.csv"));
            let said = must(Command::new(programs.join(script)).arg(recording(name)));
            assert!(
                said == fs::read_to_string(&kept).expect("kept"),
                "{script} on {name} differs from {}",
                kept.display()
            );
        }
    }
    let one_site = must(Command::new(programs.join("pattern")).arg(recording("webserver")).arg("S12"));
    let all = must(Command::new(programs.join("pattern")).arg(recording("webserver")));
    let of_it: Vec<&str> = all.lines().filter(|line| line.starts_with("site,") || line.starts_with("12,")).collect();
    assert!(one_site.lines().count() > 5 && one_site.lines().eq(of_it));
}

#[test]
fn they_are_clean_under_the_address_sanitizer_and_valgrind() {
    let (plain, sanitized) = (made("-g -O0"), made("-g -O1 -fsanitize=address,undefined"));
    for script in names() {
        // Address space layouts with much entropy are more than older sanitizers bear.
        must(Command::new("setarch").arg("-R").arg(sanitized.join(&script)).arg(recording("webserver")));
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        must(valgrind.arg(plain.join(&script)).arg(recording("webserver")));
    }
}

#[test]
fn mistakes_are_told() {
    let programs = made("-g -O2");
    for (arguments, words) in
        [(&["nowhere.numatrace"][..], "nowhere.numatrace"), (&[], "one trace"), (&["x", "y"], "one trace")]
    {
        let output = Command::new(programs.join("types")).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{arguments:?}: {said}");
    }
    let output = Command::new(programs.join("pattern")).arg(recording("mg")).arg("nonsense").output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("name a site (S3) or an instance (17)"));
}
