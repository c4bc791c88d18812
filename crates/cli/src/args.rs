//! The command line: every command and option, with its help.

mod balance;
mod check;
mod common;
mod compare;
mod group;
mod measure;
mod query;
mod run;
mod selftest;
mod service;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_report::export::Table;
use numapilot_report::pictures::View;

pub use balance::AdviseArgs;
pub use balance::BalanceArgs;
pub use balance::MoveArgs;
pub use check::CheckArgs;
pub use common::{Bind, Colour, LookArgs};
pub use compare::CompareArgs;
pub use group::GroupArgs;
pub use measure::MeasureArgs;
pub use measure::MeasureIsa;
pub use measure::MeasureOrder;
pub use measure::MeasurePages;
pub use measure::MeasurePart;
pub use measure::MeasurePicture;
pub use query::QueryArgs;
pub use run::PlanArgs;
pub use run::PolicyArgs;
pub use run::RunArgs;
pub use selftest::SelftestArgs;
pub use selftest::SelftestPart;
pub use service::CtlArgs;
pub use service::CtlCommand;
pub use service::ExplainArgs;
pub use watch::MapsArgs;
pub use watch::PrometheusArgs;
pub use watch::StatArgs;
pub use watch::TopArgs;

use common::{part, percentage, process, time, time_above_0, time_in_ms_above_0, time_in_us};

/// See, explain and fix memory placement on NUMA machines.
#[derive(Debug, Parser)]
#[command(name = "numapilot", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  numapilot topo                                        this machine
  numapilot topo --machine opteron-8385 --svg m.svg     a machine model, as a picture
  numapilot c++ -O2 -pthread app.cpp -o app             compile so that each access is recorded
  numapilot record --machine opteron-8385 -- ./app      run it on the simulated machine
  numapilot report app.numatrace                        which objects are remote, from which threads
  numapilot report app.numatrace --object block         one object, over time
  numapilot whatif app.numatrace --set block=interleave what a fix would gain
  numapilot simulate app.numatrace                      placement policies on it, side by side
  numapilot run --plan app.toml -- ./app                place its objects and threads by a plan
  numapilot balance --pid 4711                          place its pages while it runs";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Draw a machine: nodes, CPUs, caches, memory, distances and links
    Topo(TopoArgs),
    /// Measure this machine: latency, caches, bandwidth, latency under load, hand-off; and make a model of it
    Measure(Box<MeasureArgs>),
    /// Show which engines work on this machine, and for each that does not, the reason and the remedy
    Doctor(DoctorArgs),
    /// Compile a small program, record it on a simulated machine, and show the report
    Demo(DemoArgs),
    /// Check what numapilot claims about hardware, on this machine
    Selftest(Box<SelftestArgs>),
    /// Record a program: its memory accesses, objects, threads and page homes
    Record(Box<RecordArgs>),
    /// Convert a recording of `perf mem record` or `perf record -d` to a trace
    Import(ImportArgs),
    /// Show a recording: which objects are accessed remotely, by which threads, and when
    Report(Box<ReportArgs>),
    /// Query a trace, or a fleet of traces, in SQL
    #[command(disable_help_flag = true)]
    Query(QueryArgs),
    /// Run a recorded or described program on a simulated machine, under one placement policy or several
    Simulate(Box<SimulateArgs>),
    /// Predict the run time of a recorded program under another placement of some objects
    Whatif(Box<WhatifArgs>),
    /// Compare recordings of a program before and after a change, object by object
    Compare(Box<CompareArgs>),
    /// Fail if a program's memory placement exceeds limits that you set: a gate for CI, on any machine
    Check(Box<CheckArgs>),
    /// Run a program under a plan, or with numactl's options
    Run(Box<RunArgs>),
    /// Check a plan file
    Plan(PlanArgs),
    /// Show the seven NUMA metrics of a command, a process or the machine, and what the kernel counts
    Stat(Box<StatArgs>),
    /// Show the machine, its processes and their memory, live on the terminal
    Top(Box<TopArgs>),
    /// Serve the machine's NUMA metrics to Prometheus
    Export(PrometheusArgs),
    /// Show a process's memory by object and node, and which of it is far from its threads
    Maps(Box<MapsArgs>),
    /// Explain the balancer's decisions: their evidence, orders and results
    Explain(Box<ExplainArgs>),
    /// Show the status of a running `balance`, or control it
    Ctl(CtlArgs),
    /// Move a process's pages from some nodes to others
    Move(MoveArgs),
    /// Recommend nodes for a program with a given demand, as `numad -w` does
    Advise(AdviseArgs),
    /// Place the memory and threads of running programs, and undo what does not help
    Balance(Box<BalanceArgs>),
    /// Compile C so that `record` sees each memory access; all arguments go to the compiler
    #[command(disable_help_flag = true)]
    Cc(CompileArgs),
    /// Compile C++ so that `record` sees each memory access
    #[command(name = "c++", disable_help_flag = true)]
    Cxx(CompileArgs),
    /// Compile Fortran so that `record` sees each memory access
    #[command(disable_help_flag = true)]
    Fc(CompileArgs),
    /// Print a completion script for a shell
    Completions(CompletionArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot topo
  numapilot topo --machine memprof-c
  numapilot topo --machine ./my-machine.toml --json
  numapilot topo --list")]
pub struct TopoArgs {
    /// Model name, model file, or `live` for this machine
    #[arg(long, short, value_name = "NAME|FILE|live", default_value = "live")]
    pub machine: String,
    /// Print JSON
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Write a picture to this file (`-`: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub svg: Option<PathBuf>,
    /// List the built-in models
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot doctor
  numapilot doctor --json                               with every fact that was checked
  numapilot doctor && numapilot record -- ./app
  numapilot doctor --install                            compilers and an emulator, if missing

It opens the events that the engines would open, and closes them again. Only --install changes
something: it installs packages. No setting of the kernel is changed.
The exit status is 0 if some engine can record memory accesses here, else 1 (docs/engines.md).")]
pub struct DoctorArgs {
    /// Print JSON: the facts and the findings
    #[arg(long)]
    pub json: bool,
    /// Install packages that bring what is missing (Debian, Ubuntu); asks first
    #[arg(long, conflicts_with = "json")]
    pub install: bool,
    /// Install without asking
    #[arg(long, requires = "install")]
    pub yes: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot demo
  numapilot demo /tmp/demo

It writes a program in C, compiles it with `numapilot cc`, records it on a model of a four-node
machine and shows the report; it prints each command that it runs. It needs a compiler.")]
pub struct DemoArgs {
    /// Folder for the program, its recording and its report (numapilot-demo)
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Options that say what to record, and how: without effect where a recording is only ended.
const RECORDING: [&str; 34] = [
    "output",
    "force",
    "engine",
    "machine",
    "cpus",
    "bind",
    "placement",
    "plan",
    "native",
    "wrapper",
    "java",
    "period",
    "rate",
    "l3_misses_only",
    "lines",
    "window",
    "seed",
    "max_stack",
    "max_threads",
    "ring_size",
    "env",
    "duration",
    "max_size",
    "main_only",
    "keep_raw",
    "detach",
    "tells_start",
    "pid",
    "system",
    "for_time",
    "no_children",
    "unit",
    "cgroup",
    "command",
];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot record --machine opteron-8385 -- ./app --threads 16
  numapilot record --machine memprof-c --bind pack --cpus 0-11 -o packed.numatrace -- ./app
  numapilot record --placement interleave -- ./app          what if all memory were interleaved
  numapilot record --engine emulate --machine opteron-8385 -- sort big.txt    every access of an unmodified program
  numapilot record --plan app.toml --machine memprof-c -- ./app  what if a plan placed it
  numapilot record -m memprof-a --native ./plain -- ./app   times the program without call-outs first: narrower predictions
  numapilot record --engine track -- python3 script.py      objects and threads of any program
  numapilot record --engine fault -- ./app                  on this machine: first toucher and home node of each page
  numapilot record --engine fault --java -- java -jar app.jar    the same with Java objects by class and line
  numapilot record -- redis-server --daemonize yes          a daemon: until it ends, or Ctrl-C (the daemon continues)
  numapilot record --pid 4711 --for 10s                     a running program, with all its child processes
  numapilot record --unit postgresql --for 10s              all processes of a systemd unit
  numapilot record --system --for 10s                       all processes of this machine (needs rights)
  numapilot record --unit postgresql --detach -o pg         in the background, without a terminal
  numapilot record --stop pg                                end that recording

With engines `instrument` and `emulate` the program sees the simulated machine: CPU count, sched_getcpu(), affinity and NUMA calls \
describe that machine, and recorded times are the time that the program takes on it (docs/virtual-time.md).
Engine `fault`: docs/fault.md. The exit status is the program's (0 for programs that were running already).")]
pub struct RecordArgs {
    /// Where the trace goes; `.numatrace` is added to a name without it [default: PROGRAM.numatrace]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace an older trace of that name (otherwise it is kept as DIR.old)
    #[arg(long)]
    pub force: bool,
    /// auto, pmu, fault, instrument, emulate or track (docs/engines.md; `numapilot doctor` says which work here)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub engine: String,
    /// Machine to simulate: model name, model file, or `live` for this machine
    #[arg(long, short, value_name = "NAME|FILE|live", default_value = "live")]
    pub machine: String,
    /// CPUs of that machine that threads may use, such as 0-7,16
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// How threads are laid out on the CPUs
    #[arg(long, value_enum, default_value_t = Bind::Spread)]
    pub bind: Bind,
    /// Where pages go at their first touch
    #[arg(long, value_enum, default_value_t = Placement::FirstTouch)]
    pub placement: Placement,
    /// Place some objects and threads by this plan file: tries a fix without changing the program
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The same program, built without call-outs. It is run first, up to three times, with the same arguments and no input; its processor time narrows the
    /// intervals of predictions
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["pid", "system", "unit", "cgroup"])]
    pub native: Option<OsString>,
    /// Allocation wrappers, by a regular expression of their whole names (repeatable): heap objects are named after the callers of these functions. Wrappers
    /// with common names (`xmalloc`, `palloc`, `g_malloc`, ...) are known, and in C and C++ those whose source shows that they are wrappers
    #[arg(long, value_name = "REGEX", value_parser = wrapper)]
    pub wrapper: Vec<String>,
    /// Record a sample of Java objects by class and line: on average one for each INTERVAL bytes that Java allocates, and so nearly every large array. OpenJDK
    /// 11 or later with Serial, Parallel or G1; prints a line "Picked up JAVA_TOOL_OPTIONS" (docs/guides/languages.md)
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "64K", value_parser = java_interval)]
    pub java: Option<u32>,
    /// Keep one memory access in N as a sample, on average (randomised)
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pub period: Option<u64>,
    /// Samples per second of program time, whole program [default: 10000]
    #[arg(long, value_name = "HZ")]
    pub rate: Option<u32>,
    /// Sample only accesses that missed the L3, if the processor can select them (AMD Zen 4 and later)
    #[arg(long)]
    pub l3_misses_only: bool,
    /// Simulate one cache line in N, chosen by a hash of its address (1: every line, exact and slower)
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub lines: u32,
    /// How far a thread's clock may run ahead of the other threads' clocks, in program time (without a unit: us; docs/virtual-time.md)
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = time_in_us)]
    pub window: Duration,
    /// Seed of the sampling intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Frames kept per call stack
    #[arg(long, value_name = "FRAMES", default_value_t = 64)]
    pub max_stack: u32,
    /// Threads alive at one time that can be recorded
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_threads: u32,
    /// Size of each thread's ring buffer, in KiB (a power of two)
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pub ring_size: u32,
    /// Set a variable in the program's environment
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Stop recording after this many seconds; the program continues
    #[arg(long, value_name = "SECONDS", value_parser = time)]
    pub duration: Option<Duration>,
    /// Stop recording when the raw trace has this many MiB; the program continues
    #[arg(long, value_name = "MIB")]
    pub max_size: Option<u64>,
    /// Stop when the program itself ends, even if processes that it started (daemons, background jobs) still run
    #[arg(long)]
    pub main_only: bool,
    /// Keep the raw chunks beside the tables
    #[arg(long)]
    pub keep_raw: bool,
    /// Record in the background, without a terminal, until `--stop`, `--for` or the end; messages and the program's output go to TRACE.log
    #[arg(long)]
    pub detach: bool,
    /// Be the recorder that `--detach` starts: one byte to this descriptor says that it records
    #[arg(long, value_name = "DESCRIPTOR", hide = true)]
    pub tells_start: Option<i32>,
    /// End the recording that is being written to this trace, as Ctrl-C would, and wait until the trace is complete. A program that the recorder started is
    /// interrupted; processes that were running before continue
    #[arg(long, value_name = "TRACE", conflicts_with_all = RECORDING)]
    pub stop: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Record running processes, with their child processes, until they end or Ctrl-C: by samples of their accesses where the processor takes them, else by
    /// their page faults
    #[arg(long, value_name = "PID,...", value_delimiter = ',', conflicts_with_all = ["system", "command"], value_parser = process())]
    pub pid: Vec<Pid>,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Record everything on this machine, in the same way, until Ctrl-C
    #[arg(long, conflicts_with_all = ["command", "unit", "cgroup"])]
    pub system: bool,
    /// Stop recording after this time, such as 10s, 2m or 500ms
    #[arg(long = "for", value_name = "TIME", conflicts_with = "duration", value_parser = time)]
    pub for_time: Option<Duration>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["pid", "system", "unit", "cgroup", "stop"],
        conflicts_with_all = ["unit", "cgroup"], value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  perf mem record --phys-data -- --sample-cpu -g -- ./app     on the machine in question, as root
  numapilot import perf.data                                  on that machine or another
  numapilot import perf.data --machine measured.toml          with predictions (docs/import.md)
  numapilot report perf.numatrace

  perf record -e page-faults -c 1 -d -g --sample-cpu -- ./app first touchers of pages, on any machine
  perf record -o - -d -e page-faults ./app | numapilot import - -o app.numatrace

What the recording lacks stays unknown, and the output names it (docs/import.md).")]
pub struct ImportArgs {
    /// The recording (`-`: standard input)
    #[arg(value_name = "PERF.DATA")]
    pub input: PathBuf,
    /// Where the trace goes; `.numatrace` is added to a name without it [default: PERF.numatrace, here]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace an older trace of that name (otherwise it is kept as DIR.old)
    #[arg(long)]
    pub force: bool,
    /// Model of the machine that recorded, as `numapilot measure --model` writes it there: perf records no bandwidths, without which nothing is predicted
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// The fastest clock that its cores can have, boost included (`lscpu` there: CPU max MHz): `whatif --calibrate` needs it
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u32).range(10..=20_000))]
    pub core_mhz_max: Option<u32>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// On the node of the thread that touches the page, as Linux does
    FirstTouch,
    /// Round robin over the nodes, as `numactl --interleave=all`
    Interleave,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot report app.numatrace
  numapilot report app.numatrace --object block         by name, or by number: --object S3, --object 1734
  numapilot report app.numatrace --thread 5 --json
  numapilot report app.numatrace --findings             all findings, and the predicted gain of every fix
  numapilot report app.numatrace --plan app.toml        the first findings' fixes as a plan (docs/plan-format.md)
  numapilot report app.numatrace --functions --stacks
  numapilot report app.numatrace --heap                 the heap by allocation site (the default for recordings with --engine track)
  numapilot report app.numatrace --from 1.5s --to 2s    half a second of program time
  numapilot report app.numatrace --svg traffic.svg      traffic between the nodes
  numapilot report app.numatrace --svg pages.svg --view pages --object block
  numapilot report app.numatrace --pprof app.pb.gz      then: pprof -http=: app.pb.gz
  numapilot report app.numatrace --csv - --table sites  one table, for spreadsheets and scripts
  numapilot report app.numatrace --html report.html     everything, as a page to explore in a browser

docs/metrics.md defines every figure. `±` is half the width of the 95 % interval; counted figures have none.")]
pub struct ReportArgs {
    /// The trace, as written by `numapilot record`
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Every finding with its evidence and the predicted gain of every fix, losses included
    #[arg(long)]
    pub findings: bool,
    /// Write a plan of the first findings' fixes to this file (`-`: standard output): edit it, then `numapilot run --plan`
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// One object or site: a number from the table (S3 or 1734) or a name
    #[arg(long, value_name = "ID|NAME")]
    pub object: Option<String>,
    /// One thread: its number or name
    #[arg(long, value_name = "N|NAME")]
    pub thread: Option<String>,
    /// The functions that access memory
    #[arg(long)]
    pub functions: bool,
    /// The call stacks that access memory
    #[arg(long)]
    pub stacks: bool,
    /// All threads
    #[arg(long)]
    pub threads: bool,
    /// The heap, as heap profilers show it: bytes live at the peak, allocated and never freed by allocation site, lifetimes, frees by other threads
    #[arg(long)]
    pub heap: bool,
    /// The node-to-node matrix and the links
    #[arg(long)]
    pub matrix: bool,
    /// Objects one by one, not grouped by allocation site
    #[arg(long)]
    pub instances: bool,
    /// Rows per table
    #[arg(long, short = 'n', value_name = "ROWS", default_value_t = 10)]
    pub top: usize,
    /// Only accesses from this moment of program time on, such as 1.5s or 800ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Duration>,
    /// Only accesses before this moment of program time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Duration>,
    /// Only accesses by threads on this node
    #[arg(long, value_name = "NODE", value_parser = common::node())]
    pub node: Option<NodeId>,
    /// Only remote accesses
    #[arg(long)]
    pub remote: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub export: ExportArgs,
    /// Write a page to explore in a browser to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub look: LookArgs,
}

/// Files that a report writes besides its text. `-` is standard output; then nothing else is printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Files for other programs (`-`: standard output)")]
pub struct ExportArgs {
    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Picture to write [default: traffic; heap with --heap or if only allocations were recorded]
    #[arg(long, value_name = "VIEW", requires = "svg", value_parser = words(View::ALL.map(View::word), View::from_word))]
    pub view: Option<View>,
    /// Write a profile for pprof: of memory accesses, or of the heap with --heap or if only allocations were recorded
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write a profile for the Firefox Profiler (gzipped if the name ends in .gz)
    #[arg(long, value_name = "FILE")]
    pub firefox: Option<PathBuf>,
    /// Write a table as CSV
    #[arg(long, value_name = "FILE", requires = "table")]
    pub csv: Option<PathBuf>,
    /// Table to write
    #[arg(long, value_name = "TABLE", requires = "csv", value_parser = words(Table::ALL.map(Table::word), Table::from_word))]
    pub table: Option<Table>,
}

impl ExportArgs {
    /// Whether there is anything to write.
    pub fn is_any(&self) -> bool {
        self.svg.is_some() || self.pprof.is_some() || self.firefox.is_some() || self.csv.is_some()
    }
}

/// A regular expression of function names, as it was written.
fn wrapper(text: &str) -> Result<String, String> {
    numapilot_symbols::wrapper(text).map(|_| text.to_owned()).map_err(|error| format!("no regular expression: {error}"))
}

/// The mean distance of sampled allocations, which a Java virtual machine takes as a signed number of 32 bits.
fn java_interval(text: &str) -> Result<u32, String> {
    let bytes = numapilot_text::quantity::bytes(text)?;
    let fitting = u32::try_from(bytes).ok().filter(|bytes| *bytes <= 1 << 30);
    fitting.ok_or_else(|| "the interval must be 0 (every object) to 1G".to_owned())
}

/// A parser that maps a fixed set of words to values, and lists the words in the help.
fn words<T: Clone + Send + Sync + 'static, const N: usize>(
    words: [&'static str; N],
    parse: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(move |word| parse(&word).ok_or("unknown word"))
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot simulate app.numatrace --policy first-touch,interleave,carrefour,pilot
  numapilot simulate app.numatrace --for 30s --policy first-touch,pilot      its main part, repeated for 30 s
  numapilot simulate app.numatrace --machine memprof-c --policy interleave   on another machine
  numapilot simulate workloads/synthetic/bursts.toml --machine opteron-8385 --policy first-touch,carrefour:gate=10
  numapilot simulate app.numatrace --policy first-touch,pilot --html policies.html --svg bars.svg
  numapilot simulate app.numatrace --policy pilot --placement homes.csv      where each page is at the end
  numapilot simulate --list                                                  policies and their options

Nothing that it prints is measured. docs/simulator.md says what is modelled, docs/policies.md what each policy does.")]
pub struct SimulateArgs {
    /// A trace (folder NAME.numatrace), or a description of a program (NAME.toml)
    #[arg(value_name = "TRACE|WORKLOAD", required_unless_present = "list")]
    pub input: Option<PathBuf>,
    /// Policies, separated by commas, each with its options: NAME or NAME:KEY=VALUE,KEY=VALUE
    #[arg(long, short, value_name = "P[,P...]", default_value = "first-touch,interleave,carrefour,pilot")]
    pub policy: String,
    /// Machine: model name or file [default: the one it was recorded on]
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Repeat the program's main part (what follows initialisation) this many times
    #[arg(long, value_name = "N", conflicts_with = "run_for")]
    pub repeat: Option<u32>,
    /// Repeat the main part until the whole would last this long at its recorded pace, such as 30s or 2m
    #[arg(long = "for", value_name = "TIME", value_parser = time_above_0)]
    pub run_for: Option<Duration>,
    /// End each run after this simulated time
    #[arg(long, value_name = "TIME", value_parser = time_above_0)]
    pub until: Option<Duration>,
    /// CPUs on which the threads start
    #[arg(long, value_enum, default_value_t = SimulateBind::Recorded)]
    pub bind: SimulateBind,
    /// Also simulate each policy with threads that take work whenever they are free (a queue, a counter, a dynamic loop), so that a slower thread does less of
    /// it. Without this option, each thread does what it did in the recording
    #[arg(long)]
    pub dynamic_work: bool,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Interval between two points of the time series (without a unit: ms) [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time_in_ms_above_0)]
    pub series: Option<Duration>,
    /// List the policies and their options
    #[arg(long)]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page with table, plots and traffic to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a picture to this file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write where every page is at the end of each run to this file, as CSV (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub placement: Option<PathBuf>,
    /// Picture to write
    #[arg(long, value_enum, default_value_t = SimulateView::Bars)]
    pub view: SimulateView,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot whatif app.numatrace --set 'block=interleave'
  numapilot whatif app.numatrace --set 'basis=replicate' --set 'S7=bind:2'
  numapilot whatif app.numatrace --set '*=interleave'                    all memory
  numapilot whatif app.numatrace --machine memprof-c --set 'block=users' --json
  numapilot whatif app.numatrace --set 'processes=pin'                   each process on one node
  numapilot whatif app.numatrace --plan fix.toml                         all rules of a plan together

Everything is predicted by the traffic model (docs/traffic-model.md) from the recorded accesses, \
as the gains in `report` are; with --machine it is simulated there (docs/simulator.md).")]
pub struct WhatifArgs {
    /// The trace, as written by `numapilot record`
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// OBJECT: name or number as in `report` (S3 or 1734), or `*` for all memory. WHERE: interleave, weights:0*3+1*1, bind:N, replicate, users or local (each
    /// page on the node that uses it most), first-touch (on its first toucher's node, whatever memory policy the program set), arenas (on the allocating
    /// thread's node), hand-over (pages follow the node that takes the object over), near or tier:fast (nodes with CPUs), spread (a hot page over several
    /// pages) or align (separate cache lines for each node). Or processes=pin, threads=pin
    #[arg(long = "set", value_name = "OBJECT=WHERE", required_unless_present = "plan")]
    pub set: Vec<String>,
    /// Price all rules of a plan together, as `report --plan` writes it, on the machine of the recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "machine"])]
    pub plan: Option<PathBuf>,
    /// Simulate the program on this machine: model name or file [default: the machine of the recording]
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// The program's threads take work whenever they are free (a queue, a counter, a dynamic loop), so that a slower thread does less of it: the interval then
    /// also covers the gains under this assumption. Without this option, each thread does what it did in the recording
    #[arg(long, conflicts_with = "machine")]
    pub dynamic_work: bool,
    /// Narrow the interval by measured latencies: leave out the possible machines on which loads take less time than the processor measured in the recording.
    /// Only AMD's IBS measures accurately enough; for other recordings the output says why nothing is left out
    #[arg(long, conflicts_with = "machine")]
    pub calibrate: bool,
    /// Seed of the simulation's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulateBind {
    /// As recorded, where the machine has those CPUs; else alternating between the nodes
    Recorded,
    /// Alternate between the nodes
    Spread,
    /// Fill one node after the other
    Pack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulateView {
    /// Gains by policy
    Bars,
    /// The seven metrics over time, a line per policy
    Series,
    /// Traffic under the last policy before it moved anything
    Before,
    /// Traffic under the last policy at the end
    After,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  make CC=\"numapilot cc\" CXX=\"numapilot c++\" FC=\"numapilot fc\"
  CC=\"numapilot cc\" CXX=\"numapilot c++\" cmake -B build  CMake; configure likewise
  numapilot cc --install-links ~/np                     links ~/np/numapilot-gcc ..., one word each
  numapilot cc --install-path ~/np/path                 links gcc, g++ ..., to put first on PATH
  make CC=\"numapilot cc --after-optimisation\"           calls put into the optimised assembly (x86-64)

It runs your compiler (NUMAPILOT_CC, NUMAPILOT_CXX or NUMAPILOT_FC, else the one on PATH) \
with options that add a call at each memory access. docs/instrument.md.")]
pub struct CompileArgs {
    /// The compiler's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder to write to
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn ending_a_recording_takes_no_option_of_recordings() {
        let command = Arguments::command();
        let record = command.find_subcommand("record").expect("record");
        let with_stop = ["stop", "quiet", "help"];
        for option in record.get_arguments().filter(|option| !with_stop.contains(&option.get_id().as_str())) {
            assert!(RECORDING.contains(&option.get_id().as_str()), "{}", option.get_id());
        }
        let refused = Arguments::try_parse_from(["numapilot", "record", "--stop", "pg", "--engine", "fault"]);
        assert!(refused.is_err_and(|error| error.to_string().contains("--engine")));
        assert!(Arguments::try_parse_from(["numapilot", "record", "--stop", "pg", "--quiet"]).is_ok());
    }

    #[test]
    fn durations_in_seconds_take_units_too() {
        let duration =
            |text: &str| match Arguments::try_parse_from(["numapilot", "record", "--duration", text, "--", "x"]) {
                Ok(Arguments { command: Command::Record(record) }) => record.duration,
                _ => None,
            };
        let expected = [Some(Duration::from_millis(1500)), Some(Duration::from_secs(120)), None, None];
        assert_eq!(["1.5", "2m", "nan", "a while"].map(duration), expected);
    }

    #[test]
    fn times_of_recordings_and_simulations_take_units_too() {
        let parse = |words: &str| Arguments::try_parse_from(words.split(' ')).map(|arguments| arguments.command);
        let ms = |ms: u64| Some(Duration::from_millis(ms));
        for words in ["--from 1.5 --to 120", "--from 1500ms --to 2m"] {
            let Ok(Command::Report(report)) = parse(&format!("numapilot report x {words}")) else { panic!("{words}") };
            assert_eq!((report.from, report.to), (ms(1500), ms(120_000)), "{words}");
        }
        for words in ["--for 30 --until 0.5 --series 50", "--for 0.5m --until 500ms --series 0.05s"] {
            let Ok(Command::Simulate(asked)) = parse(&format!("numapilot simulate x {words}")) else {
                panic!("{words}")
            };
            assert_eq!((asked.run_for, asked.until, asked.series), (ms(30_000), ms(500), ms(50)), "{words}");
        }
        for (words, us) in [("", 100), ("--window 250", 250), ("--window=1ms", 1000)] {
            let words = format!("numapilot record {words} -- y").replace("  ", " ");
            let Ok(Command::Record(record)) = parse(&words) else { panic!("{words}") };
            assert_eq!(record.window, Duration::from_micros(us), "{words}");
        }
        for words in ["simulate x --for 0", "simulate x --until 0s", "simulate x --series 0", "report x --from later"] {
            assert!(parse(&format!("numapilot {words}")).is_err(), "{words}");
        }
    }

    #[test]
    fn parts_of_a_whole_are_at_most_all_of_it() {
        let check = |option: &str, limit: &str| {
            let words = ["numapilot", "check", option, limit, "--trace", "app.numatrace"];
            Arguments::try_parse_from(words).map(|_| ()).map_err(|error| error.to_string())
        };
        for (option, part, more) in [("--max-remote", "30 %", "130%"), ("--max-remote-of", "x=30%", "x=130%")] {
            assert_eq!(check(option, part), Ok(()));
            assert!(check(option, more).is_err_and(|error| error.contains("between 0 and 100")), "{option}");
        }
        assert_eq!(check("--max-imbalance", "130%"), Ok(()));
        assert!(check("--max-imbalance", "a lot").is_err_and(|error| error.contains("not a percentage")));
    }

    #[test]
    fn the_program_keeps_its_own_options() {
        let arguments = Arguments::parse_from(["numapilot", "record", "-o", "x", "--", "./app", "--force", "-m"]);
        let Command::Record(record) = arguments.command else { panic!("record") };
        assert!(!record.force);
        assert_eq!(record.command, ["./app", "--force", "-m"]);
    }
}
