//! `numapilot record`: records a program or running processes, and writes the tables of the trace.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use numapilot_flows::Instrumentation;
use numapilot_host::Root;
use numapilot_insight::blindness_of;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::parse_cpu_list;
use numapilot_measure::clock_hz;
use numapilot_plan::Fit;
use numapilot_plan::Plan;
use numapilot_report::unrecorded;
use numapilot_sources::Binding;
use numapilot_sources::Follow;
use numapilot_sources::Limits;
use numapilot_sources::Progress;
use numapilot_sources::ProgressState;
use numapilot_sources::RecordOptions;
use numapilot_sources::Recording;
use numapilot_sources::Refusal;
use numapilot_sources::Running;
use numapilot_sources::Sampling;
use numapilot_sources::Selection;
use numapilot_sources::StopReason;
use numapilot_sources::Survivor;
use numapilot_sources::run_natively;
use numapilot_text::units;
use numapilot_trace::engine::Engine;
use numapilot_trace::name::output_folder;
use numapilot_trace::native::Native;
use numapilot_trace::output::Existing;

use super::background;
use super::background::Sign;
use super::group::group;
use super::group::require_memory;
use super::run::summary;
use crate::args;
use crate::args::RecordArgs;
use crate::output::tell;

/// Records the program, then writes the tables. Returns the program's exit status.
pub fn run(arguments: &RecordArgs) -> Result<ExitCode> {
    if let Some(trace) = &arguments.stop {
        return background::stop(trace, arguments.quiet);
    }
    if arguments.detach {
        let folder = arguments.output.as_deref().map_or_else(|| default_output(arguments), output_folder);
        return background::start(&folder, arguments.quiet);
    }
    let output = arguments.output.as_deref().map_or_else(|| default_output(arguments), output_folder);
    let sign = Sign::new(&output, arguments.tells_start)?;
    background::refuse_if_unfinished(&output)?;
    let machine = Machine::load(&arguments.machine)?;
    let who = running(arguments)?;
    if who.is_some() && arguments.java.is_some() {
        bail!(
            "--java needs a program that numapilot starts, because a Java virtual machine loads the agent at its start: \
             numapilot record --java -- java ..."
        );
    }
    let line = Line::new(arguments.quiet);
    let mut shown = line.of_recording(renamed(arguments.output.as_deref(), &output), sign, &machine);
    let mut options = RecordOptions::new(arguments.command.clone(), output, &machine);
    apply(arguments, &mut options)?;
    if let Some(program) = &arguments.native {
        options.native = Some(natively(program, arguments, &options, &line)?);
    }
    let fitted = arguments.plan.as_ref().map(|file| Plan::load(file)?.fit(&machine, Fit::Exact)).transpose()?;
    options.plan = fitted.as_ref();
    options.progress = Some(&mut shown);
    let is_running = who.is_some();
    let recording = match who {
        Some(who) => numapilot_sources::record_running(who, options)?,
        None => numapilot_sources::record(options)?,
    };
    shown.announce();
    line.bar.finish_and_clear();
    if !arguments.quiet {
        if is_running {
            refused(&recording.refusals);
        }
        describe(&recording);
        if arguments.native.is_some() && !recording.engine.is_simulated() {
            tell!("numapilot: --native had no effect, because engine {} simulates no clock", recording.engine);
        }
        if let (Some(fitted), Some(outcome)) = (&fitted, &recording.plan) {
            summary(fitted, outcome, |_| false).iter().for_each(|line| tell!("numapilot: {line}"));
        }
    }
    let summary = line.while_busy("joining accesses with objects", || numapilot_flows::finalise(&recording.dir))?;
    let raw = recording.dir.join("raw");
    if !arguments.keep_raw {
        std::fs::remove_dir_all(&raw).with_context(|| format!("{}: cannot be removed", raw.display()))?;
    }
    if !arguments.quiet {
        unseen(summary.instrumentation.as_ref());
        tell!(
            "numapilot: {}{}, {} in {}; next: numapilot report {}",
            seen(recording.engine, summary.accesses),
            units::counted(summary.objects, "object", "objects"),
            units::counted(summary.threads, "thread", "threads"),
            recording.dir.display(),
            recording.dir.display()
        );
    }
    Ok(ExitCode::from(u8::try_from(recording.exit.shell_code()).unwrap_or(1)))
}

/// What an engine saw of memory's use, as the beginning of a list; nothing for one that does not look at it, of which 0 would say that there was none.
fn seen(engine: Engine, accesses: u64) -> String {
    match engine {
        Engine::Track => String::new(),
        Engine::Fault => units::counted(accesses, "page fault", "page faults") + ", ",
        Engine::Instrument | Engine::Emulate | Engine::Pmu | Engine::Import => {
            units::counted(accesses, "access", "accesses") + ", "
        }
    }
}

/// Share of the CPUs' time from which on others that use it are worth a word.
const BUSY: f64 = 0.1;

/// Times the program without call-outs.
fn natively(program: &OsStr, arguments: &RecordArgs, options: &RecordOptions<'_>, line: &Line) -> Result<Native> {
    let rest = arguments.command.get(1..).unwrap_or_default();
    let on_run = |run: usize| line.bar.set_message(format!("running {} without call-outs ({run})", program.display()));
    let native = run_natively(program, rest, &options.environment, clock_hz, on_run).context("--native")?;
    line.bar.finish_and_clear();
    if !arguments.quiet {
        let least = native.runs.iter().min_by_key(|run| run.user_ns).copied().unwrap_or_default();
        tell!(
            "numapilot: {} without call-outs: {} of processor time at {:.1} GHz (the least of {} runs); it calibrates the program's own work in predictions",
            native.program,
            units::time_ns(least.user_ns),
            least.clock_mhz / 1000.0,
            native.runs.len()
        );
        let others = least.others_share.filter(|share| *share >= BUSY);
        if let Some(share) = others {
            tell!(
                "numapilot: others used {} of the CPUs' time meanwhile, which may have made it slower: predictions are less certain than on an idle machine",
                units::whole_percent(share)
            );
        }
    }
    Ok(native)
}

/// Prints notes on code that ran without instrumentation, so that its accesses are missing.
fn unseen(instrumentation: Option<&Instrumentation>) {
    let Some(found) = instrumentation else { return };
    if let Some(blindness) = blindness_of(found) {
        tell!("numapilot: {}", blindness.says());
        return;
    }
    for module in found.own_modules().filter(|module| module.code_bytes > 0 && module.instrumented_bytes == 0) {
        tell!(
            "numapilot: {} is not instrumented: the accesses of its {} of code are not recorded",
            module.path,
            units::bytes(module.code_bytes)
        );
    }
}

/// The running processes to record; `None` if a program is to be started.
fn running(arguments: &RecordArgs) -> Result<Option<Running>> {
    if arguments.system {
        return Ok(Some(Running::System));
    }
    require_memory(&Root::default(), &arguments.pid)?;
    Ok(group(&Root::default(), &arguments.pid, &arguments.group, arguments.quiet)?.map(Running::Group))
}

/// The trace's folder where it is not named as the user named it, because `.numatrace` is appended.
fn renamed(name: Option<&Path>, folder: &Path) -> Option<PathBuf> {
    name.filter(|name| *name != folder).map(|_| folder.to_owned())
}

fn default_output(arguments: &RecordArgs) -> PathBuf {
    let program = arguments.command.first().map(Path::new).and_then(Path::file_name).map(OsStr::to_owned);
    let running = arguments.pid.first().map(|pid| OsString::from(format!("pid-{pid}")));
    let cgroup = arguments.group.cgroup.first().and_then(|path| path.file_name()).map(OsStr::to_owned);
    let unit = arguments.group.unit.first().map(OsString::from);
    let mut name = program.or(running).or(unit).or(cgroup).unwrap_or_else(|| "system".into());
    name.push(".numatrace");
    PathBuf::from(name)
}

/// Parses the list of `--cpus`; `None` if there is none.
pub fn cpu_list(list: Option<&str>) -> Result<Option<Vec<CpuId>>> {
    let Some(list) = list else { return Ok(None) };
    let numbers = parse_cpu_list(list).with_context(|| format!("--cpus {list}"))?;
    Ok(Some(numbers.into_iter().map(CpuId).collect()))
}

/// Converts the value of `--bind`.
pub fn binding(bind: args::Bind) -> Binding {
    match bind {
        args::Bind::Spread => Binding::Spread,
        args::Bind::Pack => Binding::Pack,
        args::Bind::None => Binding::None,
    }
}

fn apply(arguments: &RecordArgs, options: &mut RecordOptions<'_>) -> Result<()> {
    options.existing = if arguments.force { Existing::Replace } else { Existing::Rotate };
    options.engine = arguments.engine.parse()?;
    options.cpus = cpu_list(arguments.cpus.as_deref())?;
    options.bind = binding(arguments.bind);
    options.placement = match arguments.placement {
        args::Placement::FirstTouch => numapilot_sources::Placement::FirstTouch,
        args::Placement::Interleave => numapilot_sources::Placement::Interleave,
    };
    options.sampling = match (arguments.period, arguments.rate) {
        (Some(period), _) => Sampling::Period(period),
        (None, Some(rate)) => Sampling::RateHz(rate),
        (None, None) => Sampling::default(),
    };
    options.l3_misses_only = arguments.l3_misses_only;
    options.window = arguments.window;
    options.line_sampling = arguments.lines;
    options.seed = arguments.seed;
    options.max_stack_depth = arguments.max_stack;
    options.wrappers.clone_from(&arguments.wrapper);
    options.java_interval_bytes = arguments.java;
    options.slots = arguments.max_threads;
    options.ring_bytes = arguments.ring_size.checked_mul(1024).context("--ring-size: too large")?;
    for variable in &arguments.env {
        let Some((name, value)) = variable.split_once('=') else {
            bail!("--env {variable}: write NAME=VALUE");
        };
        options.environment.push((name.into(), value.into()));
    }
    options.limits = Limits {
        bytes: arguments.max_size.map(|mib| mib.saturating_mul(1 << 20)),
        duration: arguments.duration.or(arguments.for_time),
    };
    options.follow = if arguments.main_only { Follow::MainProcess } else { Follow::Descendants };
    Ok(())
}

/// A progress line on standard error; silent if that is not a terminal.
struct Line {
    bar: ProgressBar,
    is_quiet: bool,
    /// A folder to be told of once something is recorded there: where the recording fails before, there is no such trace.
    announced: Option<PathBuf>,
    /// Who else is to know then.
    sign: Option<Sign>,
    /// That the machine has one node, for a recording that simulates it.
    alone: Option<String>,
}

impl Line {
    fn new(is_quiet: bool) -> Line {
        let is_hidden = crate::output::hides_progress(is_quiet);
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Line { bar, is_quiet, announced: None, sign: None, alone: None }
    }

    /// The same line for a recording on `machine`, of which others are to know.
    fn of_recording(&self, announced: Option<PathBuf>, sign: Sign, machine: &Machine) -> Line {
        let alone = alone(machine.name(), machine.nodes().len());
        Line { bar: self.bar.clone(), is_quiet: self.is_quiet, announced, sign: Some(sign), alone }
    }

    /// Says once where the trace goes.
    fn announce(&mut self) {
        if let Some(folder) = self.announced.take().filter(|_| !self.is_quiet) {
            self.bar.suspend(|| tell!("numapilot: the trace goes to {}", folder.display()));
        }
    }

    fn while_busy<T>(&self, message: &str, work: impl FnOnce() -> T) -> T {
        self.bar.reset();
        self.bar.set_message(message.to_owned());
        crate::output::animate(&self.bar);
        let result = work();
        self.bar.finish_and_clear();
        result
    }
}

/// That all memory of a machine is local, if so: a recording that takes many times as long as the program should not be made for that.
fn alone(machine: &str, node_count: usize) -> Option<String> {
    (node_count == 1).then(|| {
        format!(
            "machine {machine} has one node, so nothing will be remote: `--machine NAME` simulates one with several (`numapilot topo --list`)"
        )
    })
}

impl Progress for Line {
    fn chosen(&mut self, selection: &Selection, unsimulated: Option<&str>) {
        if self.is_quiet {
            return;
        }
        refused(&selection.refusals);
        if let Some(alone) = self.alone.as_ref().filter(|_| selection.engine.is_simulated()) {
            tell!("numapilot: {alone}");
        }
        if let Some(machine) = unsimulated {
            tell!(
                "numapilot: engine {} does not simulate {machine}: the program runs on this host as it is, and no caches, latencies or home nodes of \
                 {machine} are recorded",
                selection.engine
            );
        }
    }

    fn survived(&mut self, left: &[Survivor]) {
        if self.is_quiet {
            return;
        }
        self.bar.suspend(|| {
            for survivor in left {
                let how = if survivor.is_daemon { "as a daemon" } else { "in the background" };
                tell!(
                    "numapilot: the program has ended, and {} continues {how}; it is recorded until it ends: Ctrl-C (or `--for`) stops the recording, \
                     not the process",
                    survivor.words()
                );
            }
        });
    }

    fn update(&mut self, state: &ProgressState) {
        self.announce();
        if let Some(sign) = &mut self.sign {
            sign.records();
        }
        let lost = if state.lost > 0 { format!(", {} lost", units::count(state.lost as f64)) } else { String::new() };
        self.bar.set_message(format!(
            "recording: {} of program time, {}, {}, {}{lost}",
            units::time_ns(u64::try_from(state.program_time.as_nanos()).unwrap_or(u64::MAX)),
            units::counted(u64::from(state.live_threads), "thread", "threads"),
            units::counted(state.records, "record", "records"),
            units::counted(state.samples, "sample", "samples")
        ));
        self.bar.tick();
    }
}

/// Prints why engines with more evidence were not chosen.
fn refused(refusals: &[Refusal]) {
    for refusal in refusals {
        tell!("numapilot: engine {} was not chosen: {}; {}", refusal.engine, refusal.reason, refusal.remedy);
    }
}

/// Prints the notes, losses and totals of a recording.
fn describe(recording: &Recording) {
    for note in &recording.notes {
        tell!("numapilot: {note}");
    }
    if let Some(program) = &recording.unrecorded_program {
        tell!("numapilot: {}", unrecorded(program));
    }
    if let Some(StopReason::WriteFailed(error)) = &recording.stopped {
        tell!(
            "numapilot: recording stopped because the trace could not be written: {error}; what was written before is kept"
        );
    }
    let lost = recording.losses.records();
    if lost > 0 {
        let lost = units::counted(lost, "record was", "records were");
        tell!("numapilot: {lost} lost; the report names the causes");
    }
    tell!(
        "numapilot: engine {}: {} of program time in {} of real time, {}",
        recording.engine,
        units::time_ns(u64::try_from(recording.program_time.as_nanos()).unwrap_or(u64::MAX)),
        units::time_ns(u64::try_from(recording.wall_time.as_nanos()).unwrap_or(u64::MAX)),
        units::counted(recording.records, "record", "records")
    );
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::IntoRawFd;

    use super::*;

    /// "The trace goes to x.numatrace", said before the checks, stood above "there is no process 999999".
    #[test]
    fn a_trace_is_announced_once_it_is_recorded_and_only_under_another_name_than_the_users() {
        let names = ["run", "run.numatrace"].map(|name| (Path::new(name), output_folder(Path::new(name))));
        let [renamed_one, same] = names.map(|(name, folder)| renamed(Some(name), &folder));
        assert_eq!(
            (renamed_one.clone(), same, renamed(None, Path::new("a.numatrace"))),
            (Some("run.numatrace".into()), None, None)
        );
        let place = tempfile::tempdir().unwrap();
        let (mut told, tells) = std::io::pipe().unwrap();
        let sign = Sign::new(place.path(), Some(tells.into_raw_fd())).unwrap();
        let machine = Machine::load("opteron-8385").unwrap();
        let mut line = Line::new(true).of_recording(renamed_one, sign, &machine);
        line.update(&ProgressState::default());
        assert_eq!(line.announced, None);
        let mut words = Vec::new();
        told.read_to_end(&mut words).unwrap();
        assert_eq!(words.len(), 1, "the command that started it knows, too");
    }

    /// "0 accesses, 12 objects" of a recording of allocations read as if the program had accessed no memory.
    #[test]
    fn an_engine_that_sees_no_accesses_counts_none() {
        assert_eq!(seen(Engine::Track, 0), "");
        assert_eq!([Engine::Pmu, Engine::Fault].map(|engine| seen(engine, 1)), ["1 access, ", "1 page fault, "]);
    }

    /// On a laptop the report said it, after a recording that took many times as long as the program.
    #[test]
    fn a_simulated_machine_of_one_node_is_told_before_the_recording() {
        assert!(alone("live", 1).is_some_and(|told| told.starts_with("machine live has one node")));
        assert_eq!(alone("opteron-8385", 4), None);
    }
}
