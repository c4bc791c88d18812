//! Running a program under a plan, or in place of this process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use numapilot_machine::Machine;
use numapilot_plan::Fitted;

use super::compile::compile;
use super::image::PlanImage;
use super::outcome::Outcome;
use crate::engine::{preload_refusal, resolve_target};
use crate::error::SourceError;
use crate::launch::{self, Exit, Launch, Standing};
use crate::library;
use crate::signals::Guard;

const TICK: Duration = Duration::from_millis(200);

/// All that [`run`] needs to know.
pub struct ApplyOptions<'a> {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The plan, fitted to `machine`.
    pub fitted: &'a Fitted,
    /// The machine that this is.
    pub machine: &'a Machine,
}

/// A program that ran under a plan.
#[derive(Debug)]
pub struct Applied {
    /// How it ended.
    pub exit: Exit,
    /// What the plan did.
    pub outcome: Outcome,
    /// What the user should know beside it.
    pub notes: Vec<String>,
}

/// Runs the program to its end with the planner in it. Signals that reach this process alone are passed on; standard streams are the program's.
/// Processes that outlive the program keep their placement; programs that they start later have none.
///
/// # Errors
/// Everything that keeps the program from starting.
pub fn run(options: &ApplyOptions<'_>) -> Result<Applied, SourceError> {
    let target = resolve_target(&options.command)?;
    let library = library::unpacked()?;
    let image = compile(options.fitted, options.machine, &target, &options.command)?;
    let mut notes = image.notes.clone();
    if let Some((reason, remedy)) = preload_refusal(&target) {
        notes.push(format!("the plan cannot be applied to {}: {reason}; {remedy}", target.binary.path.display()));
    }
    let guard = Guard::install()?;
    let launch = Launch {
        target: &target,
        command: &options.command,
        preload: &[&library.planner],
        arena: None,
        environment: &environment(&image),
        passive_waits: false,
        emulator: None,
    };
    let mut program = launch::spawn(&launch, &guard)?;
    while program.reap() == Standing::Running {
        for arrived in guard.arrived().iter().filter(|arrived| arrived.forward) {
            program.signal(arrived.signal);
        }
        guard.wait(TICK);
    }
    let outcome = Outcome::read(&image, options.fitted);
    let exit = program.exit().unwrap_or(Exit::Code(1));
    Ok(Applied { exit, outcome, notes })
}

/// Compiles a plan for a program without running it: what is wrong with the plan there, rule by rule. Empty: nothing.
///
/// # Errors
/// The program is not there.
pub fn check(fitted: &Fitted, machine: &Machine, command: &[OsString]) -> Result<Vec<String>, SourceError> {
    let target = resolve_target(command)?;
    Ok(compile(fitted, machine, &target, command)?.notes)
}

/// By what the planner finds its plan.
pub(crate) fn environment(image: &PlanImage) -> Vec<(OsString, OsString)> {
    vec![("NUMAPILOT_PLAN".into(), image.path().into())]
}

/// Becomes the program: returns only if that fails.
#[must_use]
pub fn exec_here(command: &[OsString]) -> SourceError {
    let target = match resolve_target(command) {
        Ok(target) => target,
        Err(error) => return error,
    };
    let source = Command::new(&target.exec_path).arg0(&command[0]).args(&command[1..]).exec();
    SourceError::NotExecutable {
        path: target.exec_path,
        reason: format!("the system cannot run it ({source})"),
        remedy: "run it without numapilot to see whether it works at all".to_owned(),
    }
}
