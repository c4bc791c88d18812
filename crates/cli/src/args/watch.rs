//! Arguments of `maps`, `stat`, `top` and `export`, which show the present state of the machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::ValueEnum;
use numapilot_host::Pid;
use numapilot_watch::maps::Key;

use super::GroupArgs;
use super::LookArgs;
use super::process;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot maps 4711                                  its objects by node, the largest first, and those of its child processes
  numapilot maps 4711 --no-children                    of this process alone
  numapilot maps --unit postgresql                     of all processes of a systemd unit
  numapilot maps 4711 --sort far                       most memory far from its threads first
  numapilot maps 4711 --watch 2                        again every 2 seconds
  numapilot maps 4711 --all --pages --csv > maps.csv   every mapping, in pages

Pages by node are those of /proc/PID/numa_maps. \"Far\" is memory on nodes where less than 5 % of the process's processor time is spent, while other memory is \
nearer to its threads; with --watch, only the time between two readings counts. Several processes are first compared in a table. docs/watch.md says more.")]
pub struct MapsArgs {
    /// Processes, with their child processes
    #[arg(value_name = "PID", required_unless_present_any = ["unit", "cgroup"], value_parser = process())]
    pub pids: Vec<Pid>,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t = MapsSort::Size)]
    pub sort: MapsSort,
    /// Objects to show of each process; 0: all [default: 30; of several processes 5]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show every mapping separately
    #[arg(long)]
    pub all: bool,
    /// Show pages by node instead of bytes
    #[arg(long)]
    pub pages: bool,
    /// Repeat at this interval, until the processes end (2, 500ms)
    #[arg(long, short, value_name = "TIME", value_parser = interval)]
    pub watch: Option<Duration>,
    /// End after this many readings
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// Print JSON; with --watch, a line for each reading of a process
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

/// Parses an interval of at least 10 ms.
fn interval(text: &str) -> Result<Duration, String> {
    let time = super::time(text)?;
    match time >= Duration::from_millis(10) {
        true => Ok(time),
        false => Err("at least 10ms".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot stat -- ./app args                        a command, from its start to its end
  numapilot stat -I 1 -- ./app args                   also a line every second
  numapilot stat -r 5 -- ./app args                   five times, with the spread
  numapilot stat --pid 4711 --for 10                  a running process and its child processes, for 10 seconds, with their memory
  numapilot stat --unit postgresql -I 1               all processes of a systemd unit
  numapilot stat --system --csv -I 500ms > stat.csv   the whole machine, until interrupted
  numapilot stat --replay app.numatrace --machine epyc-2s-nps4 -I 100ms    a recorded trace on a simulated machine

The seven metrics are local access ratio, memory latency, controller imbalance, interconnect usage, interconnect imbalance, L3 misses \
per 1,000 instructions and instructions per cycle. Each comes from the best source that this machine has, and is labelled with it; a \
metric without a source is shown with the reason.
docs/watch.md defines each figure. Exit status: the command's own; else 0.")]
pub struct StatArgs {
    /// Watch these processes, with their child processes
    #[arg(long, short, value_name = "PID", value_delimiter = ',', conflicts_with_all = ["system", "command", "replay"], value_parser = process())]
    pub pid: Vec<Pid>,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Watch the whole machine
    #[arg(long, short = 'a', conflicts_with_all = ["command", "replay", "unit", "cgroup"])]
    pub system: bool,
    /// Print a line for each interval of this length (1, 100ms)
    #[arg(long, short = 'I', value_name = "TIME", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Print every interval in full instead of in one line
    #[arg(long, requires = "interval")]
    pub full: bool,
    /// End after this time [default: 1 s for the whole machine; else until the processes end]
    #[arg(long = "for", value_name = "TIME", value_parser = interval)]
    pub run_for: Option<Duration>,
    /// Take no samples: count only
    #[arg(long, conflicts_with = "replay")]
    pub no_samples: bool,
    /// Run the command this many times, and show means and spreads
    #[arg(long, short, value_name = "N", default_value_t = 1, requires = "command", conflicts_with = "interval",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Show a recorded trace, replayed on a simulated machine
    #[arg(long, value_name = "TRACE")]
    pub replay: Option<PathBuf>,
    /// The simulated machine: model name or file [default: the one it was recorded on]
    #[arg(long, short, value_name = "NAME|FILE", requires = "replay")]
    pub machine: Option<String>,
    /// Placement of the replayed program's pages: first-touch or interleave
    #[arg(long, value_name = "POLICY", default_value = "first-touch", requires = "replay")]
    pub policy: String,
    /// Print JSON, a line for each interval
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV: a line for each figure
    #[arg(long)]
    pub csv: bool,
    /// Write to this file, not to standard error (commands) or standard output; the file appears when it is complete
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub look: LookArgs,
    /// The command
    #[arg(last = true, value_name = "PROGRAM ARGS", conflicts_with_all = ["replay", "unit", "cgroup"])]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot top
  numapilot top --interval 500ms
  numapilot top --pid 4711                                       a process and its child processes, with their total
  numapilot top --unit postgresql                                the processes of a systemd unit
  numapilot top --replay app.numatrace --machine memprof-c       a recorded trace on a simulated machine
  numapilot top --replay app.numatrace --snapshot screen.svg     a picture of the screen, without a terminal

Press ? for the keys. Without a PMU it shows the kernel's counters. `--color never` or NO_COLOR turns colours off. docs/watch.md defines each figure.")]
pub struct TopArgs {
    /// List these processes, with their child processes, and their total
    #[arg(long, short, value_name = "PID", value_delimiter = ',', conflicts_with = "replay", value_parser = process())]
    pub pid: Vec<Pid>,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Time between two updates (1, 500ms); in a replay, also the simulated time of each
    #[arg(long, short, value_name = "TIME", value_parser = interval, default_value = "1")]
    pub interval: Duration,
    /// End after this many updates
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Show a recorded trace, replayed on a simulated machine
    #[arg(long, value_name = "TRACE")]
    pub replay: Option<PathBuf>,
    /// The simulated machine: model name or file [default: the one it was recorded on]
    #[arg(long, short, value_name = "NAME|FILE", requires = "replay")]
    pub machine: Option<String>,
    /// Placement of the replayed program's pages: first-touch or interleave
    #[arg(long, value_name = "POLICY", default_value = "first-touch", requires = "replay")]
    pub policy: String,
    /// Repeat the replayed program's main part until the whole lasts this long in simulated time
    #[arg(long = "for", value_name = "TIME", value_parser = interval, requires = "replay")]
    pub run_for: Option<Duration>,
    /// Write the screen after --count updates (default 3) to this file as SVG, and end
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Press these keys before the snapshot (`2`: the machine; `\r`: Enter)
    #[arg(long, value_name = "KEYS", default_value = "", requires = "snapshot")]
    pub keys: String,
    /// Columns and rows of the snapshot
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "100x30", value_parser = size, requires = "snapshot")]
    pub size: (u16, u16),
    /// Control socket of a running `balance`, whose evidence about processes is shown
    #[arg(long, value_name = "PATH", conflicts_with = "replay")]
    pub socket: Option<PathBuf>,
    /// When to use colour
    #[arg(long, value_enum, default_value_t = super::Colour::Auto)]
    pub color: super::Colour,
}

/// Parses a size such as `100x30`: columns and rows.
fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match parsed {
        Some((columns @ 20..=500, rows @ 5..=200)) => Ok((columns, rows)),
        _ => Err("write COLUMNSxROWS, 20x5 to 500x200".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot export                                          http://127.0.0.1:9106/metrics
  numapilot export --listen unix:/run/numapilot/watch       a unix socket
  numapilot export --pid 4711,4712 --once                   once, to standard output (for a text-file collector)

The metrics are those of `numapilot stat --system`, over the time between two scrapes. It listens on the loopback only, unless --allow-remote is given.")]
pub struct PrometheusArgs {
    /// Address to serve: a port of the loopback, ADDRESS:PORT, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "9106", conflicts_with = "once")]
    pub listen: String,
    /// Let other machines read the metrics
    #[arg(long, conflicts_with = "once")]
    pub allow_remote: bool,
    /// Also serve the memory by node of these processes
    #[arg(long, short, value_name = "PID", value_delimiter = ',', value_parser = process())]
    pub pid: Vec<Pid>,
    /// Also serve this many processes: those that use the most processor time
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub processes: usize,
    /// Print the metrics of one interval of one second, and end
    #[arg(long)]
    pub once: bool,
}
