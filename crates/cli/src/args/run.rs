//! The command line of `run` and `plan`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot run --plan app.toml -- ./app --threads 16       place objects and threads by a plan, without changing the source
  numapilot run --plan app.toml --json done.json -- ./app   what was placed, rule by rule
  numapilot run --interleave=all -- ./app                   numactl's options, with numactl's meaning
  numapilot run --cpunodebind=0 --membind=0,1 -- ./app
  numapilot run --weighted-interleave=auto -- ./app         by the bandwidth of the nodes' memory
  numapilot run -C +0-3 --localalloc -- ./app               the first four CPUs that this process may use
  numapilot run --replicate-mappings -- ./start-workers     code and constants copied to the node of each process that is pinned to one
  numapilot run --replicate-mappings='*.index' -- ./app     private read-only mappings of these files (docs/replication.md)
  numapilot run --show                                      policy and CPUs of this process

Nodes and CPUs: `all`, numbers, ranges (0-3,5), all but these (!0-1), relative to the process's cpuset (+0-1).
docs/plan-format.md describes plans. The exit status is the program's (128 + n for signal n).")]
pub struct RunArgs {
    /// A plan file: the nodes of objects and threads
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Where the plan names a node N that this machine does not have, use N modulo the number of nodes
    #[arg(long, requires = "plan")]
    pub fold: bool,
    /// Write the plan's outcome to this file (`-`: standard output)
    #[arg(long, value_name = "FILE", requires = "plan")]
    pub json: Option<PathBuf>,
    /// Give each process that is pinned to one node local copies of its read-only mappings: of files whose path matches, or of code and constants
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub replicate_mappings: Option<String>,
    /// Print nothing about the plan and the copies
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

/// Memory policy and CPUs of the whole process, with numactl's options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy of the whole process (numactl's options)")]
pub struct PolicyArgs {
    /// Interleave memory, page by page, over these nodes
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub interleave: Option<String>,
    /// Interleave memory in proportion to the kernel's weights (Linux 6.9). `auto`: over all nodes; a note says where the weights do not follow the bandwidths
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub weighted_interleave: Option<String>,
    /// With --weighted-interleave=auto: set the kernel's weights by the bandwidths, for all programs until the next boot
    #[arg(long, requires = "weighted_interleave")]
    pub set_weights: bool,
    /// With --weighted-interleave=auto: a model of this machine that has the bandwidths, from `numapilot measure`
    #[arg(long, value_name = "NAME|FILE", requires = "weighted_interleave")]
    pub machine: Option<String>,
    /// Allocate memory on these nodes only
    #[arg(long, short, value_name = "NODES", group = "memory")]
    pub membind: Option<String>,
    /// Allocate memory on this node while it has free memory
    #[arg(long, short, value_name = "NODE", group = "memory")]
    pub preferred: Option<String>,
    /// Allocate memory on these nodes while they have free memory (Linux 5.15)
    #[arg(long, short = 'P', value_name = "NODES", group = "memory")]
    pub preferred_many: Option<String>,
    /// Allocate memory on the node of the thread that first touches it
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
    /// Also allow CPUs outside this process's cpuset
    #[arg(long, short)]
    pub all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot plan app.toml                           its rules, in words
  numapilot plan app.toml --machine opteron-8385    and whether it fits that machine
  numapilot plan app.toml -- ./app                  and whether the program has the code that its rules name

The exit status is 1 if the plan has an error, does not fit the machine, or names what the program does not have. docs/plan-format.md describes plans.")]
pub struct PlanArgs {
    /// The plan file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Machine: model name, model file, or `live` for this machine
    #[arg(long, short, value_name = "NAME|FILE|live")]
    pub machine: Option<String>,
    /// Where the plan names a node N that the machine does not have, use N modulo the number of nodes
    #[arg(long)]
    pub fold: bool,
    /// The program to check the plan against: its functions, files and symbols
    #[arg(last = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}
