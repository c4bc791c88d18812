//! Addresses of 48 bits, which programs have on Arm: each page has a home of its own there.

use std::path::Path;
use std::process::Command;

use crate::support::compile;
use numapilot_trace::wire::layout;

/// Make sure that the home is the first toucher's for all threads, that no other page has it, and that a page outside the table has none.
#[test]
fn pages_in_the_upper_half_have_homes() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let program = compile("high_pages.c", "high-pages", &["-O1", "-std=gnu11", "-Wno-unused-function", &include]);
    let output = Command::new(&program).output().expect("it runs");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), format!("1 1 0 {} -1", layout::NONE16));
}
