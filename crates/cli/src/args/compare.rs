//! `numapilot compare`.

use std::path::PathBuf;

use clap::Args;

use super::LookArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot compare before.numatrace after.numatrace
  numapilot compare b1.numatrace a1.numatrace --before b2.numatrace b3.numatrace --after a2.numatrace a3.numatrace
  numapilot compare before.numatrace after.numatrace --html change.html --svg change.svg
  numapilot whatif before.numatrace --set block=interleave --json > predicted.json
  numapilot compare before.numatrace after.numatrace --prediction predicted.json
  numapilot compare before.numatrace after.numatrace --max-slowdown 2% --max-more-remote 5%     in CI: exit status 3 if worse

Objects are matched by name, function, source line and size (docs/compare.md). Run times of recordings on a simulated machine come from \
the traffic model, those of other recordings from the clock. One recording of each side does not show how much runs vary: \
for programs that wait or whose threads race for their work, and on real machines, the verdict is then \"in doubt\".")]
pub struct CompareArgs {
    /// A recording from before the change
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// A recording from after the change
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Further recordings from before the change
    #[arg(long = "before", value_name = "TRACE", num_args = 1..)]
    pub more_before: Vec<PathBuf>,
    /// Further recordings from after the change
    #[arg(long = "after", value_name = "TRACE", num_args = 1..)]
    pub more_after: Vec<PathBuf>,
    /// Predicted gain to compare with: a file written by `numapilot whatif --json`, or a gain such as 23%
    #[arg(long, value_name = "FILE|GAIN")]
    pub prediction: Option<String>,
    /// Exit with status 3 if the run time certainly rose by more than this: the whole interval of the rise lies above it. With one recording of each side, the
    /// rise must also exceed what equal runs may differ by
    #[arg(long, value_name = "PERCENT", value_parser = super::percentage)]
    pub max_slowdown: Option<f64>,
    /// Exit with status 3 if the share of remote accesses certainly rose by more percentage points than this (judged like the run time)
    #[arg(long, value_name = "POINTS", value_parser = super::part)]
    pub max_more_remote: Option<f64>,
    /// Do not predict run times of simulated recordings (faster)
    #[arg(long)]
    pub no_model: bool,
    /// Objects to show
    #[arg(long, short = 'n', value_name = "ROWS", default_value_t = 10)]
    pub top: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a picture to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
}
