//! What the lab tells its user, and whether the user wants it.

use std::io;
use std::io::Write;

/// Prints a message to the user even where a test's output is captured, such as what is downloaded.
pub(crate) fn say(text: &str) {
    // A failure to write a message cannot be reported.
    let _ = writeln!(io::stderr().lock(), "numapilot-lab: {text}");
}

pub(crate) fn skipped() -> bool {
    std::env::var_os("NUMAPILOT_LAB").is_some_and(|v| v == "skip")
}
