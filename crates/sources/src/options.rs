//! Options of a recording, with the defaults and the bounds of each.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use numapilot_launch::LaunchError;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_trace::native::Native;
use numapilot_trace::output::Existing;

use crate::daemons::Survivor;
use crate::engine::EngineChoice;
use crate::engine::Selection;
use crate::error::SourceError;

/// Most accesses that a sample stands for: its weight in the trace has 32 bits.
const PERIOD_MAX: u64 = u32::MAX as u64;

/// Where pages of the simulated machine go at their first touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// To the node of the thread that touches them, as Linux does.
    #[default]
    FirstTouch,
    /// Round robin over the nodes with memory, page by page, as `numactl --interleave=all` does.
    Interleave,
}

impl Placement {
    /// As on the command line and in traces.
    pub fn name(self) -> &'static str {
        match self {
            Placement::FirstTouch => "first-touch",
            Placement::Interleave => "interleave",
        }
    }
}

/// How threads are laid out on the simulated machine's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Thread k on node k modulo nodes.
    #[default]
    Spread,
    /// A node is filled before the next one is begun.
    Pack,
    /// The idlest CPU at a thread's start, and again when it wakes up to find its CPU taken.
    None,
}

impl Binding {
    /// As on the command line and in traces.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Spread => "spread",
            Binding::Pack => "pack",
            Binding::None => "none",
        }
    }
}

/// How often a memory access is kept as a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// One in this many memory accesses, on average.
    Period(u64),
    /// About this many per second of program time, whole program.
    RateHz(u32),
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling::RateHz(10_000)
    }
}

/// Which processes a recording waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// Everything that the program started, daemons too: these for `RecordOptions::daemon_grace`.
    #[default]
    Descendants,
    /// The program itself: recording stops when it ends.
    MainProcess,
}

/// Bounds on a recording. Where one is reached recording stops, and the program runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of raw trace on disk.
    pub bytes: Option<u64>,
    /// Time since the program started.
    pub duration: Option<Duration>,
}

/// Where a recording stands: given to [`Progress::update`] about ten times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressState {
    /// Records drained so far.
    pub records: u64,
    /// Bytes drained from the rings so far.
    pub bytes: u64,
    /// Of the records, sampled accesses.
    pub samples: u64,
    /// Records lost so far, for any reason.
    pub lost: u64,
    /// Number of threads that are alive.
    pub live_threads: u32,
    /// Program time of the thread that is furthest ahead.
    pub program_time: Duration,
    /// Real time since the start.
    pub wall_time: Duration,
}

/// Receives the progress of a recording.
pub trait Progress {
    /// Called about ten times a second from the recording thread; must not block for long.
    fn update(&mut self, state: &ProgressState);

    /// Called once before the program starts, with what it is recorded as. `unsimulated`: the machine that was named and that this engine does not
    /// simulate.
    fn chosen(&mut self, selection: &Selection, unsimulated: Option<&str>) {
        let _ = (selection, unsimulated);
    }

    /// Called when the program has ended and these processes of its run on: they are recorded until they end, or the recording is stopped.
    fn survived(&mut self, left: &[Survivor]) {
        let _ = left;
    }
}

/// All that [`crate::record`] needs to know.
pub struct RecordOptions<'a> {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace's folder, by custom `NAME.numatrace`.
    pub output: PathBuf,
    /// What becomes of an older trace there.
    pub existing: Existing,
    /// The engine to record with.
    pub engine: EngineChoice,
    /// The machine that is simulated (`instrument`, `emulate`), or on which the program runs (`track`).
    pub machine: &'a Machine,
    /// CPUs of the machine that threads may use; all that are online where `None`.
    pub cpus: Option<Vec<CpuId>>,
    /// How threads are laid out on them.
    pub bind: Binding,
    /// Placement of pages on the simulated machine at their first touch.
    pub placement: Placement,
    /// A plan that decides otherwise for some objects and threads, fitted to the machine.
    pub plan: Option<&'a numapilot_plan::Fitted>,
    /// How often an access is kept.
    pub sampling: Sampling,
    /// Of hardware that can choose, only accesses that missed the L3 (`pmu`).
    pub l3_misses_only: bool,
    /// How far a thread's clock may run ahead of the slowest running thread's, in program time.
    pub window: Duration,
    /// Cycles of work charged per instrumented access (the instructions around it), 1/256 cycle. `emulate` counts instructions instead.
    pub cycles_per_access_q8: u32,
    /// Seed of sampling intervals and random replacement.
    pub seed: u64,
    /// Frames kept per call stack, 1 to 128.
    pub max_stack_depth: u32,
    /// One cache line in this many is simulated, chosen by a hash of its address; a power of two, 1 (all) to 64.
    pub line_sampling: u32,
    /// Ring of each thread, a power of two from 64 KiB to 64 MiB.
    pub ring_bytes: u32,
    /// Threads that can be recorded at one time, 1 to 4,096.
    pub slots: u32,
    /// Variables to set in the program's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// When recording stops early.
    pub limits: Limits,
    /// Which processes it waits for.
    pub follow: Follow,
    /// How long daemons that the program left behind are still recorded after its end; `None`: until they end.
    pub daemon_grace: Option<Duration>,
    /// What the program takes without call-outs, where that was measured: kept in the trace.
    pub native: Option<Native>,
    /// Functions that allocate for others, as regular expressions of whole names: kept in the trace for the naming of heap objects.
    pub wrappers: Vec<String>,
    /// Whether the objects of Java virtual machines are recorded, and the mean distance of sampled allocations in bytes (0: all of them).
    pub java_interval_bytes: Option<u32>,
    /// Receives the progress.
    pub progress: Option<&'a mut dyn Progress>,
}

impl<'a> RecordOptions<'a> {
    /// Defaults for recording `command` on `machine` into `output`.
    pub fn new(command: Vec<OsString>, output: PathBuf, machine: &'a Machine) -> RecordOptions<'a> {
        RecordOptions {
            command,
            output,
            existing: Existing::default(),
            engine: EngineChoice::default(),
            machine,
            cpus: None,
            bind: Binding::default(),
            placement: Placement::default(),
            plan: None,
            sampling: Sampling::default(),
            l3_misses_only: false,
            window: Duration::from_micros(100),
            cycles_per_access_q8: 512,
            seed: 1,
            max_stack_depth: 64,
            line_sampling: 8,
            ring_bytes: 1 << 20,
            slots: 1024,
            environment: Vec::new(),
            limits: Limits::default(),
            follow: Follow::default(),
            daemon_grace: None,
            native: None,
            wrappers: Vec::new(),
            java_interval_bytes: None,
            progress: None,
        }
    }

    /// Checks every bound that does not depend on the machine.
    ///
    /// # Errors
    /// The first option out of its range, with the range.
    pub fn check(&self) -> Result<(), SourceError> {
        if self.command.is_empty() {
            return Err(LaunchError::NoCommand.into());
        }
        self.check_bounds()
    }

    /// [`RecordOptions::check`] without the command, which recordings of running programs have not.
    pub(crate) fn check_bounds(&self) -> Result<(), SourceError> {
        let bad = |option, reason: String, remedy: &str| {
            Err(SourceError::Option { option, reason, remedy: remedy.to_owned() })
        };
        if self.output.file_name().is_none() {
            return bad(
                "--output",
                format!("{} has no file name", self.output.display()),
                "give a name such as run.numatrace",
            );
        }
        if !(1..=128).contains(&self.max_stack_depth) {
            return bad("--max-stack", format!("{} frames", self.max_stack_depth), "use 1 to 128");
        }
        if !self.line_sampling.is_power_of_two() || self.line_sampling > 64 {
            return bad(
                "--lines",
                format!("1 in {}", self.line_sampling),
                "use 1 (all of them), 2, 4, 8, 16, 32 or 64",
            );
        }
        if !self.ring_bytes.is_power_of_two() || !(1 << 16..=1 << 26).contains(&self.ring_bytes) {
            return bad(
                "--ring-size",
                format!("{} bytes", self.ring_bytes),
                "use a power of two from 64 KiB to 64 MiB",
            );
        }
        if !(1..=4096).contains(&self.slots) {
            return bad("--max-threads", format!("{}", self.slots), "use 1 to 4096");
        }
        match self.sampling {
            Sampling::Period(0) => return bad("--period", "0 accesses".to_owned(), "use 1 (every access) or more"),
            Sampling::Period(period) if period > PERIOD_MAX => {
                return bad("--period", format!("{period} accesses"), "use at most 4294967295");
            }
            Sampling::RateHz(0) => return bad("--rate", "0 samples per second".to_owned(), "use 1 or more"),
            _ => {}
        }
        if self.window < Duration::from_micros(1) || self.window > Duration::from_secs(1) {
            return bad("--window", format!("{:?}", self.window), "use 1 us to 1 s");
        }
        if !(1..=256 * 1024).contains(&self.cycles_per_access_q8) {
            let reason = format!("{} cycles", f64::from(self.cycles_per_access_q8) / 256.0);
            return bad("--cycles-per-access", reason, "use 1/256 to 1024");
        }
        for (name, value) in &self.environment {
            let bytes = name.as_encoded_bytes();
            if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) || value.as_encoded_bytes().contains(&0)
            {
                return bad(
                    "--env",
                    format!("{} is not a valid variable name, or its value holds a NUL byte", name.display()),
                    "write NAME=VALUE",
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_those_that_a_sample_can_stand_for() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let sound = |period: u64| {
            let mut options = RecordOptions::new(vec!["true".into()], "run.numatrace".into(), &machine);
            options.sampling = Sampling::Period(period);
            options.check().is_ok()
        };
        assert_eq!([0, 1, PERIOD_MAX, PERIOD_MAX + 1, u64::MAX].map(sound), [false, true, true, false, false]);
    }
}
