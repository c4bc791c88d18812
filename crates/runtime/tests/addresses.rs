//! Pages on Arm. Addresses have 48 bits there: each page has a home of its own. The kernel's pages may have 64 KiB: all of one has the same first toucher.

use std::path::Path;
use std::process::Command;

use crate::support::compile;
use numapilot_trace::wire::layout;

/// Make sure that the home is the first toucher's for all threads, that no other page has it, and that a page outside the table has none. But for those that
/// a larger page of the kernel has: they had no home, because the kernel has no event of their fault. After a fork they are copied together.
#[test]
fn pages_in_the_upper_half_have_homes() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let program = compile("high_pages.c", "high-pages", &["-O1", "-std=gnu11", "-Wno-unused-function", &include]);
    let output = Command::new(&program).output().expect("it runs");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("1 1 0 {} -1\n-1 -1 1 1 -1 -1\n0 0 0\n", layout::NONE16));
}
