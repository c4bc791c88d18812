//! What is there now: `numapilot maps`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::ValueEnum;
use numapilot_watch::maps::Key;

use super::LookArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot maps 4711                                  what lies where, the largest first
  numapilot maps 4711 --sort far                       what lies farthest from the process's threads
  numapilot maps 4711 --watch 2                        again every 2 seconds
  numapilot maps 4711 --all --pages --csv > maps.csv   every mapping, to the page

Pages by node are those of /proc/PID/numa_maps. \"Far\" is memory on nodes where less than 5 % of the process's processor time is spent, while other memory is
nearer to its threads; with --watch, the time between two looks counts. docs/watch.md says more.")]
pub struct MapsArgs {
    /// Processes
    #[arg(value_name = "PID", required = true)]
    pub pids: Vec<u32>,
    /// What comes first
    #[arg(long, value_enum, default_value_t = MapsSort::Size)]
    pub sort: MapsSort,
    /// Show so many objects; 0: all
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub top: usize,
    /// Every mapping for itself
    #[arg(long)]
    pub all: bool,
    /// Pages by node in place of bytes
    #[arg(long)]
    pub pages: bool,
    /// Look again every so often, until the processes end (2, 500ms)
    #[arg(long, short, value_name = "TIME", value_parser = interval)]
    pub watch: Option<Duration>,
    /// End after so many looks
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// Print JSON, a line for each look at a process with --watch
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV: a line for each object and node
    #[arg(long)]
    pub csv: bool,
    /// Read /proc and /sys below this folder: a captured tree
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MapsSort {
    /// Bytes in memory
    Size,
    /// Bytes far from the process's threads
    Far,
    /// Bytes mapped
    Mapped,
    /// Name
    Name,
    /// Address
    Address,
}

impl From<MapsSort> for Key {
    fn from(sort: MapsSort) -> Key {
        match sort {
            MapsSort::Size => Key::Size,
            MapsSort::Far => Key::Far,
            MapsSort::Mapped => Key::Mapped,
            MapsSort::Name => Key::Name,
            MapsSort::Address => Key::Address,
        }
    }
}

/// A time between two looks.
fn interval(text: &str) -> Result<Duration, String> {
    let time = super::time(text)?;
    match time >= Duration::from_millis(10) {
        true => Ok(time),
        false => Err("at least 10ms".to_owned()),
    }
}
