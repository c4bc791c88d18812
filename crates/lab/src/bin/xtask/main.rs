//! `cargo xtask`: developer tools of numapilot beside building and testing.

mod homes;
mod lab;
mod truth;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer tools of numapilot beside building and testing.")]
enum Task {
    Lab(lab::LabArgs),
    Homes(homes::HomesArgs),
}

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Lab(args) => lab::run(&args),
        Task::Homes(args) => homes::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error:#}");
        ExitCode::FAILURE
    })
}
