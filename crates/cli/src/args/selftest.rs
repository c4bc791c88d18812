//! `numapilot selftest`.

use clap::Args;
use clap::ValueEnum;
use numapilot_selftest::engines::truth::Order;

use super::LookArgs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelftestPart {
    /// Pages are where memory policies put them
    Placement,
    /// Recordings name the right object, home node and accessor
    Engines,
    /// Idle latencies rise with the firmware's distances
    LatencyOrder,
    /// The traffic model predicts how programs slow one another down
    Contention,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot selftest
  numapilot selftest --quick
  numapilot selftest --only placement,engines
  numapilot selftest --json > selftest.json             to attach to a bug report

It changes nothing on the machine. `contention` keeps all CPUs busy for up to a minute; other load at that time disturbs it.
The exit status is 0 if at least one check was judged and none failed, 1 if one failed, 4 if none could be judged (docs/selftest.md).")]
pub struct SelftestArgs {
    /// Run only these parts
    #[arg(long, value_enum, value_name = "PART,...", value_delimiter = ',')]
    pub only: Vec<SelftestPart>,
    /// Fewer programs and rounds, and a shorter measurement
    #[arg(long)]
    pub quick: bool,
    /// Print JSON: every figure and verdict, and the model that was measured
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Be the program that the engines record, and print what it did (OWNER_CPU:READER_CPU:BYTES:PASSES)
    #[arg(long, hide = true, conflicts_with_all = ["only", "quick", "json"])]
    pub worker: Option<Order>,
    #[command(flatten)]
    pub look: LookArgs,
}
