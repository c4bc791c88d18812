//! One file per command: arguments in, calls to the crates that do the work, output out.

mod advise;
mod background;
mod balance;
mod check;
mod compare;
pub mod compile;
mod ctl;
mod demo;
mod doctor;
mod exit;
mod explain;
mod export;
mod exports;
mod group;
mod import;
mod maps;
mod measure;
mod model;
mod move_pages;
mod not_started;
mod numactl;
mod objects;
mod plan;
mod plan_overrides;
mod plan_sites;
mod plan_threads;
mod planned;
mod query;
mod record;
mod report;
mod run;
mod schedule;
mod selftest;
mod shell;
mod simulate;
mod stat;
mod summary;
mod top;
mod topo;
mod weights;
mod whatif;

use std::process::ExitCode;

use anyhow::Result;
use numapilot_apply::ApplyError;
use numapilot_launch::LaunchError;
use numapilot_perf_events::EventsError;
use numapilot_sources::SourceError;
use numapilot_wrapper::Language;

use crate::args::Command;

/// Whether the command goes on, or has something to put back, when nobody reads what it prints.
pub fn outlives_readers(command: &Command) -> bool {
    match command {
        Command::Record(_) | Command::Run(_) | Command::Balance(_) => true,
        Command::Stat(arguments) => !arguments.command.is_empty(),
        Command::Export(arguments) => !arguments.once,
        _ => false,
    }
}

/// Runs a command and returns its exit code.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Topo(arguments) => topo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Measure(arguments) => measure::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Import(arguments) => import::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Query(arguments) => query::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Whatif(arguments) => whatif::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Export(arguments) => export::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Maps(arguments) => maps::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Explain(arguments) => explain::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Ctl(arguments) => ctl::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Move(arguments) => move_pages::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Balance(arguments) => balance::run(&arguments),
        Command::Cc(arguments) => Ok(compile::run(&Language::C.into(), &arguments.arguments)),
        Command::Cxx(arguments) => Ok(compile::run(&Language::Cxx.into(), &arguments.arguments)),
        Command::Fc(arguments) => Ok(compile::run(&Language::Fortran.into(), &arguments.arguments)),
        Command::Completions(arguments) => shell::completions(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Man(arguments) => shell::man(&arguments).map(|()| ExitCode::SUCCESS),
    }
}

/// The exit code of an error that has one, else 1.
pub fn exit_code_of(error: &anyhow::Error) -> u8 {
    let of_sources = error.downcast_ref::<SourceError>().map(SourceError::exit_code);
    let of_apply = || error.downcast_ref::<ApplyError>().map(ApplyError::exit_code);
    let of_launch = || error.downcast_ref::<LaunchError>().map(LaunchError::exit_code);
    let of_events = || error.downcast_ref::<EventsError>().map(EventsError::exit_code);
    let code = of_sources.or_else(of_apply).or_else(of_launch).or_else(of_events).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
