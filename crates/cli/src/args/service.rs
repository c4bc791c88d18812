//! Arguments of `explain` and `ctl`, which read and control the balancer as a service.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Subcommand;
use numapilot_host::Pid;
use numapilot_host::VirtAddr;

use super::LookArgs;
use super::process;
use super::time;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot explain                                     the runs in the journal, and the last decisions
  numapilot explain --decision 12                       one decision: its evidence, orders and results
  numapilot explain --page 0x7f12a4c01000               every decision about that page
  numapilot explain --pid 4711 --since 10m --json       decisions about one process, in the last ten minutes

Each run numbers its decisions from 1; without --run, a number means a decision of the last run.
The journal's lines are described in docs/service.md.")]
pub struct ExplainArgs {
    /// Journal to read [default: the journal of this user's `balance`; root: /var/log/numapilot/journal.jsonl]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Show the decision with this number
    #[arg(long, value_name = "ID")]
    pub decision: Option<u64>,
    /// Show the run whose name begins with this
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Show decisions about this process
    #[arg(long, value_name = "PID", value_parser = process())]
    pub pid: Option<Pid>,
    /// Show decisions about the page at this address
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub page: Option<VirtAddr>,
    /// Show only decisions made within this time before now: 30 (seconds), 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<Duration>,
    /// Show at most this many decisions, the latest ones
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
  numapilot ctl add 4711                                manage one more process
  numapilot ctl status --json | jq .counters

Root and the daemon's own user may do everything. Other users can see, add and remove only their own processes (docs/service.md).")]
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
        /// Show it again at this interval, until Ctrl-C
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = time)]
        watch: Option<Duration>,
        /// Print JSON, one line per status
        #[arg(long)]
        json: bool,
        /// Fail if the loop has published no figures for this time and two of its intervals: for probes of its health
        #[arg(long, value_name = "TIME", value_parser = time)]
        max_age: Option<Duration>,
        #[command(flatten)]
        look: LookArgs,
    },
    /// Take no action until `resume`; what was done stays
    Pause,
    /// Continue after `pause`
    Resume,
    /// Read the configuration again; a file with an error changes nothing
    Reload,
    /// Restore the settings that were changed, and end
    Stop,
    /// Manage one more process
    Add {
        /// Process to add
        #[arg(value_name = "PID", value_parser = process())]
        pid: Pid,
    },
    /// Stop managing a process; its pages stay where they are
    Remove {
        /// Process to remove
        #[arg(value_name = "PID", value_parser = process())]
        pid: Pid,
    },
}

/// Parses a hexadecimal address, with or without 0x.
fn address(text: &str) -> Result<VirtAddr, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map(VirtAddr).map_err(|_| format!("`{text}` is not a hexadecimal address"))
}
