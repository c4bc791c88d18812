//! `numapilot check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgGroup;
use clap::Args;
use numapilot_trace::engine::Engine;

use super::{Bind, LookArgs};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limit").required(true).multiple(true).args(["max_remote", "max_imbalance", "max_remote_of", "max_slowdown"]))]
#[command(after_help = "\
Examples:
  numapilot check --max-remote 30% --max-imbalance 35% -- ./app
  numapilot check --machine opteron-8385 --max-remote-of block=20% --runs 3 -- ./app --threads 16
  numapilot check --max-remote 30% --sarif numa.sarif -- ./app       annotations for code review
  numapilot check --baseline main.numatrace --max-slowdown 5% -- ./app
  numapilot check --engine emulate --max-remote 30% -- ./app         a program that was built without numapilot
  numapilot check --max-remote 30% --trace app.numatrace             judge a recording that exists

The program must be built with `numapilot cc`, `c++` or `fc`, or be emulated; it runs on the simulated machine, whatever the host's hardware is.
Exit status: 0 within the limits, 3 a limit is exceeded, 1 the program failed or could not be judged, 2 wrong usage. A limit counts as \
exceeded if the whole 95 % interval lies above it (with --strict: if the estimate does). With one recording of each side, a slowdown must also \
exceed what equal runs may differ by.")]
pub struct CheckArgs {
    /// Greatest share of remote accesses
    #[arg(long, value_name = "PERCENT", value_parser = super::part)]
    pub max_remote: Option<f64>,
    /// Greatest controller imbalance: the standard deviation of the accesses that each node's memory serves, over their mean (population definition)
    #[arg(long, value_name = "PERCENT", value_parser = super::percentage)]
    pub max_imbalance: Option<f64>,
    /// Greatest share of an object's accesses that may be remote; OBJECT as the report names it
    #[arg(long, value_name = "OBJECT=PERCENT", value_parser = object_limit)]
    pub max_remote_of: Vec<(String, f64)>,
    /// A recording of the program before the change, to compare with
    #[arg(long, value_name = "TRACE", requires = "max_slowdown")]
    pub baseline: Option<PathBuf>,
    /// Greatest rise of the predicted run time over the baseline's
    #[arg(long, value_name = "PERCENT", value_parser = super::percentage, requires = "baseline")]
    pub max_slowdown: Option<f64>,
    /// instrument, for a program built with `numapilot cc`, `c++` or `fc`, or emulate, for others that are dynamically linked to glibc, several times slower
    #[arg(long, value_name = "NAME", default_value = "instrument", value_parser = simulating_engine)]
    pub engine: Engine,
    /// Machine to simulate: model name or file
    #[arg(long, short, value_name = "NAME|FILE", default_value = "xeon-2s")]
    pub machine: String,
    /// CPUs of that machine that threads may use, such as 0-7,16
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// How threads are laid out on the CPUs
    #[arg(long, value_enum, default_value_t = Bind::Spread)]
    pub bind: Bind,
    /// Run the program this many times and judge the mean
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Fail if an estimate exceeds a limit, even if part of its interval is within the limit
    #[arg(long)]
    pub strict: bool,
    /// Keep the recordings in this folder
    #[arg(long, short, value_name = "DIR", conflicts_with = "trace")]
    pub output: Option<PathBuf>,
    /// Judge these recordings of one version of the program instead of running it
    #[arg(long, value_name = "TRACE", num_args = 1.., conflicts_with_all = ["command", "runs", "engine", "machine", "cpus", "bind"])]
    pub trace: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the exceeded limits as SARIF 2.1.0 to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "trace", value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

/// An engine that simulates the machine: only those give the same verdict on any host.
fn simulating_engine(name: &str) -> Result<Engine, String> {
    match Engine::from_name(name) {
        Some(engine @ (Engine::Instrument | Engine::Emulate)) => Ok(engine),
        Some(engine) => Err(format!(
            "engine {} records this machine and not a simulated one; use `instrument` or `emulate`, or judge a recording with --trace",
            engine.name()
        )),
        None => Err("there is no such engine; use `instrument` or `emulate`".to_owned()),
    }
}

fn object_limit(text: &str) -> Result<(String, f64), String> {
    let (name, limit) = text.rsplit_once('=').ok_or("write OBJECT=PERCENT, such as block=20%")?;
    if name.is_empty() {
        return Err("name the object before the equals sign, such as block=20%".to_owned());
    }
    Ok((name.to_owned(), super::part(limit)?))
}
