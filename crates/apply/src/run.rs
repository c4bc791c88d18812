//! Running a program under a plan, or with other libraries of ours.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numapilot_launch::signals::Guard;
use numapilot_launch::{Exit, Launch, Standing, must_not_preload, preload_obstacle, resolve_target, spawn};
use numapilot_machine::Machine;
use numapilot_plan::Fitted;

use super::compile::{Purpose, compile};
use super::outcome::Outcome;
use super::policy::placement_problem;
use crate::error::ApplyError;

const TICK: Duration = Duration::from_millis(200);

/// All that [`run`] needs to know.
pub struct ApplyOptions<'a> {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The plan, fitted to the machine that this is.
    pub plan: Option<(&'a Fitted, &'a Machine)>,
    /// Libraries that the program shall load behind the planner.
    pub libraries: &'a [PathBuf],
    /// Environment variables for those libraries.
    pub environment: &'a [(OsString, OsString)],
}

/// A program that ran under a plan, or with other libraries of ours.
#[derive(Debug)]
pub struct Applied {
    /// How the program ended.
    pub exit: Exit,
    /// What the plan did, where there was one.
    pub outcome: Option<Outcome>,
    /// What the user should know beside it.
    pub notes: Vec<String>,
}

/// Runs the program to its end with the planner in it. Signals that reach this process alone are passed on; standard streams are the program's.
/// Processes that outlive the program keep their placement; programs that they start later have none.
///
/// # Errors
/// Everything that keeps the program from starting.
pub fn run(options: &ApplyOptions<'_>) -> Result<Applied, ApplyError> {
    let target = resolve_target(&options.command)?;
    let library = numapilot_runtime::unpacked()?;
    let plan = match options.plan {
        Some((fitted, machine)) => Some((fitted, compile(fitted, machine, &target, &options.command, Purpose::Run)?)),
        None => None,
    };
    let mut notes = plan.as_ref().map_or(Vec::new(), |(_, image)| image.notes.clone());
    if let Some(obstacle) = preload_obstacle(&target.binary) {
        notes.push(not_loaded(&target.binary.path, &obstacle, plan.is_some()));
    }
    if let Some((fitted, _)) = &plan
        && !fitted.plan.objects.is_empty()
    {
        notes.extend(placement_problem(&fitted.plan));
    }
    let planner = plan.is_some().then_some(library.planner.as_path());
    let may_preload = !must_not_preload(&target.binary);
    let libraries = planner.into_iter().chain(options.libraries.iter().map(PathBuf::as_path));
    let preload: Vec<&Path> = libraries.filter(|_| may_preload).collect();
    let told = plan.as_ref().map_or(Vec::new(), |(_, image)| image.environment());
    let guard = Guard::install()?;
    let launch = Launch {
        target: &target,
        command: &options.command,
        preload: &preload,
        arena: None,
        environment: &[told.as_slice(), options.environment].concat(),
        passive_waits: false,
        small_pages: false,
        emulator: None,
    };
    let mut program = spawn(&launch, &guard)?;
    while program.reap() == Standing::Running {
        for arrived in guard.arrived().iter().filter(|arrived| arrived.forward) {
            program.signal(arrived.signal);
        }
        guard.wait(TICK);
    }
    let outcome = plan.map(|(fitted, image)| Outcome::read(&image, fitted));
    let exit = program.exit().unwrap_or(Exit::Code(1));
    Ok(Applied { exit, outcome, notes })
}

/// That no library of ours comes into the program at `path`: the reason and what helps. Policies of a whole process need none.
fn not_loaded(path: &Path, (reason, remedy): &(String, String), has_plan: bool) -> String {
    let path = path.display();
    if has_plan {
        format!(
            "the plan cannot be applied to {path}: {reason}; {remedy}, or place the whole process (`numapilot run --interleave=all`, `--membind`, \
             `--cpunodebind`)"
        )
    } else {
        format!("no library can be loaded into {path}: {reason}; {remedy}")
    }
}

/// Compiles a plan for a program without running it: what is wrong with the plan there, rule by rule. Empty: nothing.
///
/// # Errors
/// The program is not there.
pub fn check(fitted: &Fitted, machine: &Machine, command: &[OsString]) -> Result<Vec<String>, ApplyError> {
    let target = resolve_target(command)?;
    Ok(compile(fitted, machine, &target, command, Purpose::Run)?.notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A static program that cannot be built anew was left without a remedy, though numactl's policies apply to it.
    #[test]
    fn a_program_that_takes_no_plan_can_be_placed_as_a_whole() {
        let obstacle = ("it is statically linked".to_owned(), "link it dynamically".to_owned());
        let told = |has_plan: bool| not_loaded(Path::new("/bin/a"), &obstacle, has_plan);
        assert!(told(true).starts_with("the plan cannot be applied to /bin/a: it is statically linked; link it"));
        assert!(told(true).contains("--interleave=all") && !told(false).contains("--interleave"), "{}", told(true));
    }
}
