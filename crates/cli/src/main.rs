//! `numapilot`: see, explain and fix memory placement on NUMA machines. This crate parses arguments, calls the crates that do the work, and turns their
//! errors into messages and exit codes.
//!
//! Exit codes: 0 success; 1 failure; 2 wrong usage. `record`, `run`, `stat` and `balance` return the program's own status (128 + n for signal n); the first
//! three, and `check`, 126/127 where it could not be run, as shells do. `cc`, `c++` and `fc` return the compiler's. `compare` and `check` return 3 where a
//! limit is exceeded, `move` where pages that could have moved stayed; `selftest` returns 4 where nothing could be judged.

mod args;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;
use numapilot_kernel::inherited;
use numapilot_text::style::clean;

/// Called before the Rust runtime starts, which changes what it remembers.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = inherited::remember;

fn main() -> ExitCode {
    restore_sigpipe();
    if let Some(code) = commands::compile::intercept() {
        return code;
    }
    let arguments = args::Arguments::parse();
    if commands::outlives_readers(&arguments.command) {
        inherited::outlive_readers();
    }
    match commands::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            output::tell!("numapilot: {}", words(&error));
            ExitCode::from(commands::exit_code_of(&error))
        }
    }
}

/// An error with its causes, each once, because some errors already include their cause's message. Names in it may come from recorded programs.
fn words(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// `numapilot report TRACE | head` must end quietly, as other tools do. (The Rust runtime ignores SIGPIPE and turns it into a failed write.) Commands that
/// have more to do than to print change it again.
fn restore_sigpipe() {
    // SAFETY: called before any thread exists; setting a signal's default disposition has no other precondition.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
