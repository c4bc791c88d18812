//! The command lines of `move` and `balance`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;
use clap::Args;
use numapilot_host::Pid;
use numapilot_service::Address;
use numapilot_text::quantity;

use super::GroupArgs;
use super::LookArgs;
use super::process;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot move 4711 --from 0 --to 1            all of its pages on node 0 to node 1
  numapilot move 4711 --from 0,1 --to 2,3        those on 0 to 2, those on 1 to 3
  numapilot move 4711 --from 0 --to 1-3          distributed round robin over three nodes
  numapilot move 4711 --from all --to 1 --rate 200M
  numapilot move 4711 --from 0 --to 1 --dry-run  what would move

It moves pages as migratepages does, and reports the outcome of every page. Pages that several processes map move only with --shared, which needs \
CAP_SYS_NICE. Another user's process needs root, or CAP_SYS_NICE and CAP_SYS_PTRACE. Pages allocated later still follow the process's memory policy.
The exit status is 0 if every page that could move has moved, 3 if some stayed (busy, no room, shared), 1 on failure (docs/balance.md).")]
pub struct MoveArgs {
    /// Process whose pages move
    #[arg(value_name = "PID", value_parser = process())]
    pub pid: Pid,
    /// Nodes whose pages move: numbers, ranges, `all`
    #[arg(long, value_name = "NODES")]
    pub from: String,
    /// Target nodes: numbers, ranges, `all`
    #[arg(long, value_name = "NODES")]
    pub to: String,
    /// Also move pages that other processes map
    #[arg(long)]
    pub shared: bool,
    /// Move at most this many bytes per second (200M, 1G)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub rate: Option<u64>,
    /// Leave this many bytes available on every node
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16M")]
    pub keep: u64,
    /// Show what would move, and move nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true).multiple(true).args(["pids", "unit", "cgroup", "system", "command", "config"]))]
#[command(after_help = "\
Examples:
  numapilot balance --pid 4711                           a process, its threads and child processes
  numapilot balance --pid 4711 --dry-run                 what it would do
  numapilot balance -- ./app --threads 16                a program from its start to its end
  numapilot balance --unit postgresql                    all processes of a systemd unit
  numapilot balance --cgroup /sys/fs/cgroup/batch        all processes of a cgroup and of those within
  numapilot balance --system --policy carrefour          every process of this machine
  numapilot balance --pid 4711 --max-harm 0.5% --rate 100M --for 10m
  numapilot balance --replicate -- ./start-workers       copies of files that workers on several nodes only read
  numapilot balance --system --pack                      whole processes onto nodes, as numad does
  numapilot balance --pid 4711 --json                    an event per line (docs/service.md)
  numapilot balance --config /etc/numapilot.toml         as a service: journal, control socket, metrics

Evidence comes from the processor's samples of accesses (AMD IBS, Intel PEBS) if there are any, else from NUMA hinting faults. For these, the kernel's NUMA \
balancing is turned on for the run and its scan rate changed; both are restored at the end (--keep-settings changes neither). Moving pages of other \
users' processes needs CAP_SYS_NICE, reading their memory maps CAP_SYS_PTRACE, their samples and page faults CAP_PERFMON (or \
kernel.perf_event_paranoid), the settings CAP_SYS_ADMIN or root. Ctrl-C ends it; moved pages stay. docs/balance.md, docs/policies.md.")]
pub struct BalanceArgs {
    /// Processes to manage, with their child processes
    #[arg(long = "pid", short = 'p', value_name = "PID", value_delimiter = ',', conflicts_with_all = ["unit", "cgroup", "command", "config"],
        value_parser = process())]
    pub pids: Vec<Pid>,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Manage every process of this machine
    #[arg(long, conflicts_with_all = ["pids", "unit", "cgroup", "command", "config"])]
    pub system: bool,
    /// Place whole processes by their demand for processors and memory, instead of pages by a policy
    #[arg(long, conflicts_with_all = ["policy", "table_pages", "no_probes", "no_samples", "config"])]
    pub pack: bool,
    /// Placement policy: NAME or NAME:OPTION=VALUE,...
    #[arg(long, value_name = "POLICY", default_value = "pilot")]
    pub policy: String,
    /// Show what would be done, and do nothing
    #[arg(long, short = 'n', visible_alias = "advise-only")]
    pub dry_run: bool,
    /// Greatest share of the programs' time that may be spent on moves without benefit
    #[arg(long, value_name = "PERCENT", value_parser = super::part, default_value = "1%")]
    pub max_harm: f64,
    /// Move at most this many bytes per second (200M, 1G)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub rate: Option<u64>,
    /// Leave this many bytes available on every node
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16M")]
    pub keep: u64,
    /// Move nothing while tasks wait for memory for more than this part of the time (memory pressure of the last 10 s)
    #[arg(long, value_name = "PERCENT", value_parser = super::part, default_value = "10%")]
    pub max_pressure: f64,
    /// Shortest time between two observations
    #[arg(long, value_name = "TIME", value_parser = super::time, default_value = "100ms")]
    pub interval: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = super::time)]
    pub until: Option<Duration>,
    /// Greatest number of pages to keep statistics of, 32 bytes each; the policy `pilot` may use as much again
    #[arg(long, value_name = "PAGES", default_value_t = 4 << 20)]
    pub table_pages: usize,
    /// Also move memory for which a program has set a memory policy itself (mbind, set_mempolicy, numactl)
    #[arg(long)]
    pub bound_memory: bool,
    /// Model of this machine (NAME or FILE, with as many nodes): its latencies, bandwidths and links in place of assumed ones
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Do not change the kernel's settings
    #[arg(long)]
    pub keep_settings: bool,
    /// Measure no latencies between nodes
    #[arg(long)]
    pub no_probes: bool,
    /// Take page faults as evidence even where the processor samples accesses
    #[arg(long)]
    pub no_samples: bool,
    /// Give processes node-local copies of files that they only read, where the policy asks for it (docs/replication.md)
    #[arg(long, requires = "command", conflicts_with = "pack")]
    pub replicate: bool,
    /// Seed of the policy's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Print JSON: an event per line
    #[arg(long)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Also print the policy's own status whenever it changes
    #[arg(long, short, conflicts_with_all = ["quiet", "json"])]
    pub verbose: bool,
    #[command(flatten)]
    pub look: LookArgs,
    /// A program and its arguments, managed from its start
    #[arg(last = true, value_name = "PROGRAM ARGS", conflicts_with_all = ["unit", "cgroup"])]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot advise -w 4                  nodes for a program with four busy threads: prints a list such as 0-1
  numapilot advise -w 4:2048             and 2,048 MB of memory, as `numad -w` takes it
  nodes=$(numapilot advise -w 8); numactl -N $nodes -m $nodes ./app
  srun $(numapilot advise -w 8 --slurm) ./app     in the script of an --exclusive job
  numapilot advise -w 16:65536 --json    with the reason, and what each node has

It observes the use of the processors for the time of --sample, and reads the memory available on each node. Nodes that this process may not use \
(cpuset, affinity) are left out. If no nodes have enough free capacity, it prints those that come closest, and a warning. docs/balance.md.")]
pub struct AdviseArgs {
    /// Demand: processors, and megabytes of memory
    #[arg(short = 'w', long = "want", value_name = "CPUS[:MB]", value_parser = want)]
    pub want: (f64, u64),
    /// How long to observe the use of the processors
    #[arg(long, value_name = "TIME", value_parser = super::time, default_value = "500ms")]
    pub sample: Duration,
    /// Print the nodes as options of Slurm's srun
    #[arg(long)]
    pub slurm: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Processors, and bytes from megabytes (of 1,048,576).
fn want(text: &str) -> Result<(f64, u64), String> {
    let (cpus, megabytes) = text.split_once(':').unwrap_or((text, "0"));
    let is_sound = |number: &f64| (0.0..1e6).contains(number);
    let cpus = cpus.parse().ok().filter(is_sound).filter(|cpus| *cpus > 0.0);
    let megabytes: Option<u64> = megabytes.parse().ok().filter(|megabytes| *megabytes < 1 << 40);
    match (cpus, megabytes) {
        (Some(cpus), Some(megabytes)) => Ok((cpus, megabytes << 20)),
        _ => Err("give the number of processors, and optionally megabytes of memory: 4 or 4:2048".to_owned()),
    }
}

/// Options that turn the balancing loop into a service.
#[derive(Debug, Args)]
#[command(next_help_heading = "As a service (docs/service.md)")]
pub struct ServiceArgs {
    /// Take every setting from this file, by default with journal and control socket; SIGHUP reads it again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["unit", "cgroup", "command",
        "policy", "max_harm", "rate", "keep", "max_pressure", "interval", "table_pages", "bound_memory", "machine",
        "keep_settings", "no_probes", "no_samples", "seed", "journal", "control", "metrics", "state_dir"])]
    pub config: Option<PathBuf>,
    /// Write every decision with its evidence to this file (`numapilot explain`)
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Listen for `numapilot ctl` at this socket
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Serve metrics for Prometheus at this address: PORT (of the loopback), IP:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Address>,
    /// Folder that records settings before they change, so that the next start restores them after a kill [default: root: /run/numapilot/state]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// A number of bytes, not 0.
fn bytes(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        0 => Err("the size must be at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_is_processors_and_megabytes() {
        assert_eq!((want("4"), want("1.5:2048")), (Ok((4.0, 0)), Ok((1.5, 2 << 30))));
        for wrong in ["", "0", "-1", "4:", "4:x", "4:1:2", "nan", "inf:1"] {
            assert!(want(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("200M"), Ok(200 << 20));
        assert_eq!(bytes("1.5K"), Ok(1536));
        assert_eq!(bytes("7"), Ok(7));
        for wrong in ["", "M", "-1", "0", "5X", "nan"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
