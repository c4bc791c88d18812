//! `numapilot doctor`: shows which engines work on this machine, and installs packages that bring what is missing.

use std::io::BufRead;
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use numapilot_doctor::Distribution;
use numapilot_doctor::Facts;
use numapilot_doctor::Provided;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::output;
use crate::output::tell;

/// Probes this machine and prints the diagnosis; success if some engine can record accesses here.
pub fn run(arguments: &DoctorArgs) -> Result<ExitCode> {
    let distribution = Distribution::of_this_system();
    let mut facts = numapilot_doctor::probe();
    if arguments.install {
        let provided = numapilot_doctor::provided(&facts, &distribution);
        if provided.is_empty() {
            tell!("numapilot: no package that numapilot knows of is missing here");
        } else {
            install(&provided, &distribution, arguments.yes)?;
            facts = numapilot_doctor::probe();
        }
    }
    show(&facts, &distribution, arguments)
}

fn show(facts: &Facts, distribution: &Distribution, arguments: &DoctorArgs) -> Result<ExitCode> {
    let diagnosis = numapilot_doctor::diagnose(facts);
    let provided = numapilot_doctor::provided(facts, distribution);
    if arguments.json {
        output::print_json(&json!({ "facts": facts, "engines": diagnosis.engines, "packages": provided }))?;
    } else {
        output::print(&numapilot_doctor::text(&diagnosis, output::look(&arguments.look).width))?;
        if !provided.is_empty() {
            let command = as_root(&numapilot_doctor::install_command(&provided)).join(" ");
            output::print(&numapilot_doctor::packages_text(&provided, distribution))?;
            output::print(&format!("To install them: numapilot doctor --install, which runs\n  {command}\n"))?;
        }
        output::print("To check the engines against known programs on this machine: numapilot selftest\n")?;
    }
    Ok(if diagnosis.can_record_accesses() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what it would install and by which command, asks, and runs that.
fn install(provided: &[Provided], distribution: &Distribution, is_agreed: bool) -> Result<()> {
    let command = as_root(&numapilot_doctor::install_command(provided));
    tell!("{}numapilot: {}", numapilot_doctor::packages_text(provided, distribution), command.join(" "));
    if !is_agreed && !is_answered_yes()? {
        bail!("nothing was installed");
    }
    if succeeds(&command)? {
        return Ok(());
    }
    // The system's lists of packages may be too old; on a new system there are none.
    let update = as_root(&["apt-get", "update"]);
    tell!("numapilot: that failed; once more after {}", update.join(" "));
    if !succeeds(&update)? || !succeeds(&command)? {
        bail!("`{}` failed; its messages are above", command.join(" "));
    }
    Ok(())
}

/// A command that root has to run.
fn as_root(command: &[&'static str]) -> Vec<&'static str> {
    // SAFETY: geteuid has no conditions and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let before: &[&'static str] = if is_root { &[] } else { &["sudo"] };
    [before, command].concat()
}

fn is_answered_yes() -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("there is no terminal to ask on: say --yes to install without asking");
    }
    tell!("Install? [y/N]");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).context("standard input")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Whether a command ends with status 0. Its output is the user's to see; standard output stays that of the diagnosis.
fn succeeds(command: &[&'static str]) -> Result<bool> {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    match child.status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let words: Vec<&str> = command.iter().copied().filter(|word| *word != "sudo").collect();
            bail!("there is no {}: as root, run `{}`", command[0], words.join(" "))
        }
        Err(error) => Err(error).with_context(|| format!("`{}` cannot be run", command.join(" "))),
    }
}
