//! `numapilot completions` and `numapilot man`.

use std::fs;

use anyhow::Context;
use anyhow::Result;
use clap::CommandFactory;

use crate::args::Arguments;
use crate::args::CompletionArgs;
use crate::args::ManArgs;
use crate::output;

/// Prints the completion script.
pub fn completions(arguments: &CompletionArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "numapilot", &mut script);
    output::print(&String::from_utf8(script).context("completion script")?)
}

/// Writes `numapilot.1` and one page per command.
pub fn man(arguments: &ManArgs) -> Result<()> {
    fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("{}: cannot be created", arguments.folder.display()))?;
    clap_mangen::generate_to(Arguments::command(), &arguments.folder)
        .with_context(|| format!("{}: manual pages cannot be written", arguments.folder.display()))
}
