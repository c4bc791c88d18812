//! `numapilot demo`: compiles a small program, records it on a simulated machine and shows the report, step by step, as a user would.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::args::DemoArgs;
use crate::output;

const SOURCE: &str = include_str!("demo.c");
const MACHINE: &str = "opteron-8385";

/// Takes all steps in the folder, each by a command that is shown first.
pub fn run(arguments: &DemoArgs) -> Result<ExitCode> {
    if numapilot_wrapper::installed().is_empty() {
        bail!(
            "the demonstration compiles a small program, and there is no compiler here: install gcc, by `numapilot doctor --install` on Debian or \
             Ubuntu, then run this again"
        );
    }
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("numapilot-demo"));
    let (source, program) = (folder.join("demo.c"), folder.join("demo"));
    let (trace, page) = (folder.join("demo.numatrace"), folder.join("demo.html"));
    if fs::read(&source).is_ok_and(|text| text != SOURCE.as_bytes()) {
        bail!("{} exists and is not part of the demonstration: name another folder", source.display());
    }
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    output::write_file(&source, SOURCE)?;
    output::print(&format!("The program: {} (threads on all nodes read what one of them writes)\n", source.display()))?;
    step(&["cc", "-O2", "-g", "-pthread", "-o"], &[&program, &source])?;
    step(&["record", "--machine", MACHINE, "--force", "-o"], &[&trace, Path::new("--"), &program])?;
    step(&["report"], &[&trace, Path::new("--html"), &page])?;
    let shown = trace.display();
    output::print(&format!(
        "\nThe object on top is the one to place differently. More:\n  \
         numapilot report {shown} --object points      its threads, time, pages, code\n  \
         numapilot whatif {shown} --set points=interleave   what spreading it over the nodes would gain\n\
         Everything, to explore in a browser: {}\n",
        page.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a command of this program, and runs it; an error if it fails.
fn step(words: &[&str], files: &[&Path]) -> Result<()> {
    let executable = std::env::current_exe().context("numapilot's own executable")?;
    let all: Vec<OsString> =
        words.iter().map(OsString::from).chain(files.iter().map(|path| path.as_os_str().to_owned())).collect();
    let shown: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
    let shown = format!("numapilot {}", shown.join(" "));
    output::print(&format!("\n$ {shown}\n"))?;
    let status = Command::new(executable).args(&all).status().with_context(|| format!("`{shown}` cannot be run"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its messages are above");
    }
    Ok(())
}
