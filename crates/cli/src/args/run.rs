//! The command line of `run` and `plan`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot run --plan app.toml -- ./app --threads 16       objects and threads where the plan says, no source changed
  numapilot run --plan app.toml --json done.json -- ./app   what was placed, rule by rule
  numapilot run --interleave=all -- ./app                   numactl's options, with numactl's meaning
  numapilot run --cpunodebind=0 --membind=0,1 -- ./app
  numapilot run -C +0-3 --localalloc -- ./app               the first four CPUs that this process may use
  numapilot run --replicate-mappings -- ./start-workers     code and constants copied to the node of each process that is pinned to one
  numapilot run --replicate-mappings='*.index' -- ./app     private read-only mappings of these files (docs/replication.md)
  numapilot run --show                                      policy and CPUs of this process

Nodes and CPUs: `all`, numbers, ranges (0-3,5), without these (!0-1), counted within the process's cpuset (+0-1).
docs/plan-format.md describes plans. The exit status is the program's (128 + n for signal n).")]
pub struct RunArgs {
    /// A plan file: what goes where, object by object
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Where the plan names nodes that this machine has not got, take node N modulo their number
    #[arg(long, requires = "plan")]
    pub fold: bool,
    /// Write what the plan did to this file (`-`: standard output)
    #[arg(long, value_name = "FILE", requires = "plan")]
    pub json: Option<PathBuf>,
    /// Give processes that are pinned to one node copies on it of their read-only mappings: of files whose path matches, or of code and constants
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub replicate_mappings: Option<String>,
    /// Say nothing about the plan and the copies
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Show policy and CPUs of this process
    #[arg(long, short)]
    pub show: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM ARGS", required_unless_present = "show")]
    pub command: Vec<OsString>,
}

/// What holds for the whole process, as numactl writes it.
#[derive(Debug, Args)]
#[command(next_help_heading = "For the whole process, as numactl has them")]
pub struct PolicyArgs {
    /// Memory page by page over these nodes
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub interleave: Option<String>,
    /// The same in proportion to the kernel's weights (Linux 6.9)
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub weighted_interleave: Option<String>,
    /// Memory from these nodes only
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub membind: Option<String>,
    /// Memory from this node while it has room
    #[arg(long, short, value_name = "NODE", group = "memory")]
    pub preferred: Option<String>,
    /// Memory from these nodes while they have room (Linux 5.15)
    #[arg(long, short = 'P', value_name = "NODES", group = "memory")]
    pub preferred_many: Option<String>,
    /// Memory on the node of whoever touches it
    #[arg(long, short, group = "memory")]
    pub localalloc: bool,
    /// With --membind: let the kernel's NUMA balancing move pages among the nodes (Linux 5.12)
    #[arg(long, short, requires = "membind")]
    pub balancing: bool,
    /// Run on the CPUs of these nodes
    #[arg(long, short = 'N', value_name = "NODES")]
    pub cpunodebind: Option<String>,
    /// Run on these CPUs
    #[arg(long, short = 'C', value_name = "CPUS")]
    pub physcpubind: Option<String>,
    /// CPUs outside this process's cpuset may be named, too
    #[arg(long, short)]
    pub all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot plan app.toml                           its rules, in words
  numapilot plan app.toml --machine opteron-8385    and whether it fits that machine
  numapilot plan app.toml -- ./app                  and which code of the program each rule means

The exit status is 1 where something is wrong with the plan. docs/plan-format.md describes plans.")]
pub struct PlanArgs {
    /// The plan file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Machine: model name, model file, or `live` for this machine
    #[arg(long, short, value_name = "NAME|FILE|live")]
    pub machine: Option<String>,
    /// Where the plan names nodes that the machine has not got, take node N modulo their number
    #[arg(long)]
    pub fold: bool,
    /// The program that it is for: are its functions, files and symbols there?
    #[arg(last = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}
