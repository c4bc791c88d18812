//! Arguments of the commands around the pilot as a service.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Subcommand;

use super::LookArgs;
use super::time;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot explain                                     the runs in the journal, and the last decisions
  numapilot explain --decision 12                       one decision: what was seen, ordered, and came of it
  numapilot explain --page 0x7f12a4c01000               every decision about that page
  numapilot explain --pid 4711 --since 10m --json       of one process, in the last ten minutes

A decision's number begins anew with each run; without --run that of the last run is meant.
The journal's lines are described in docs/service.md.")]
pub struct ExplainArgs {
    /// The journal [default: that of this user's `balance`; root: /var/log/numapilot/journal.jsonl]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// One decision
    #[arg(long, value_name = "ID")]
    pub decision: Option<u64>,
    /// One run, by the beginning of its name
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Decisions about this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Decisions about the page of this address
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub page: Option<u64>,
    /// Decisions of the last so many seconds, or 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<Duration>,
    /// Decisions at most, the last ones
    #[arg(long, short = 'n', value_name = "ROWS", default_value_t = 20)]
    pub top: usize,
    /// Print JSON, with every range of pages
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot ctl status                                  what the daemon does, to which processes
  numapilot ctl status --watch                          the same, every second
  numapilot ctl pause                                   do nothing until `resume`
  numapilot ctl add 4711                                look after one more process
  numapilot ctl status --json | jq .counters

Root and the daemon's own user may do everything. Anybody else sees and names only their own processes (docs/service.md).")]
pub struct CtlArgs {
    /// The daemon's socket [default: /run/numapilot/control if it is there, else this user's own]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Show what the daemon does
    Status {
        /// Show it again every so often, until Ctrl-C
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = time)]
        watch: Option<Duration>,
        /// Print JSON, one line per status
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        look: LookArgs,
    },
    /// Do nothing until resumed; what was done stays
    Pause,
    /// Go on
    Resume,
    /// Read the configuration again: all of it, or nothing if it is wrong
    Reload,
    /// Put back what was changed system-wide, and end
    Stop,
    /// Look after a process too
    Add {
        /// Which
        #[arg(value_name = "PID")]
        pid: u32,
    },
    /// Look after a process no longer; its pages stay where they are
    Remove {
        /// Which
        #[arg(value_name = "PID")]
        pid: u32,
    },
}

/// An address, hexadecimal with or without 0x.
fn address(text: &str) -> Result<u64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no hexadecimal address"))
}
