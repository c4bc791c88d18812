//! One recording from start to end: choose the engine, make the arena, start the program, drain until everything has ended.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use numapilot_machine::MachineSource;
use numapilot_trace::wire;

use crate::apply;
use crate::arena::Arena;
use crate::arena::Layout;
use crate::clock::HostInstant;
use crate::daemons::Survivors;
use crate::doctor;
use crate::drain::Accounting;
use crate::drain::Drainer;
use crate::drain::Totals;
use crate::emulated::Emulator;
use crate::engine::Engine;
use crate::engine::Refusal;
use crate::engine::Selection;
use crate::engine::Target;
use crate::engine::resolve_target;
use crate::engine::select;
use crate::error::SourceError;
use crate::faulted::FaultAnswers;
use crate::faulted::Untold;
use crate::launch;
use crate::launch::Exit;
use crate::launch::Launch;
use crate::launch::Program;
use crate::launch::Standing;
use crate::live::Live;
use crate::live::LiveOutcome;
use crate::options::Follow;
use crate::options::Progress;
use crate::options::ProgressState;
use crate::options::RecordOptions;
use crate::order;
use crate::order::OrderSource;
use crate::output;
use crate::session::Closing;
use crate::session::Opening;
use crate::session::TraceFiles;
use crate::signals::Guard;
use crate::simulated::simulate;

/// Between two looks at the program where no signal calls for one sooner.
const TICK: Duration = Duration::from_millis(100);
/// Rate of clock stamps that count nanoseconds.
const NANOSECONDS_KHZ: u32 = 1_000_000;
/// Length of the first calibration of the host's counter.
const CALIBRATION: Duration = Duration::from_millis(10);

/// Records lost, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Of threads that found no slot.
    pub no_slot: u64,
    /// Because a ring stayed full.
    pub ring_full: u64,
    /// Because recording had stopped.
    pub stopped: u64,
    /// Bytes of records that the recorder threw away: damaged rings, or a disk that took no more.
    pub discarded_bytes: u64,
    /// Slots whose contents were damaged by the program.
    pub quarantined_slots: u64,
    /// Call stacks cut short (nothing else is missing).
    pub failed_unwinds: u64,
    /// Of threads that had already ended: what the C library frees after them.
    pub after_end: u64,
}

impl Losses {
    /// Records lost, as far as they were counted one by one.
    pub fn records(&self) -> u64 {
        self.no_slot.saturating_add(self.ring_full).saturating_add(self.stopped).saturating_add(self.after_end)
    }
}

/// Why recording stopped before the program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The trace could not be written any further: the system's answer.
    WriteFailed(String),
    /// The limit on the trace's size was reached.
    BytesLimit,
    /// The limit on the recording's time was reached.
    TimeLimit,
    /// The main process ended, and only it was to be followed, or only daemons were left.
    MainEnded,
    /// The user interrupted the recording of processes that the program had left behind.
    Interrupted,
}

/// A finished recording: raw chunks in `dir`, to be decoded by `flows`.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Folder of the trace.
    pub dir: PathBuf,
    /// How the program ended.
    pub exit: Exit,
    /// The engine that recorded.
    pub engine: Engine,
    /// Better engines that refused, and why.
    pub refusals: Vec<Refusal>,
    /// Counts of lost records.
    pub losses: Losses,
    /// Size of the records in bytes, before compression.
    pub bytes: u64,
    /// Size of the trace on disk in bytes.
    pub disk_bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Number of records that are sampled accesses.
    pub samples: u64,
    /// Number of threads seen.
    pub threads: u64,
    /// Program time at the end: of the thread that went furthest (`instrument`, `emulate`), real time (`track`).
    pub program_time: Duration,
    /// Real time from the program's start to its end.
    pub wall_time: Duration,
    /// Why recording stopped early, if it did.
    pub stopped: Option<StopReason>,
    /// What is worth telling the user, in whole sentences.
    pub notes: Vec<String>,
    /// Counts of the kernel's events, for `meta.json`; `None` for engines that open none.
    pub events: Option<serde_json::Value>,
    /// What the plan did, where there was one.
    pub plan: Option<apply::Outcome>,
    /// Processor time by process, for `meta.json`.
    pub processor_times: serde_json::Value,
}

/// Records a program: blocks until it and all that it started have ended (see [`Follow`]).
///
/// Takes over SIGINT, SIGQUIT, SIGTERM, SIGHUP and SIGCHLD of this process meanwhile, and reaps all its children; so one
/// recording at a time per process.
///
/// # Errors
/// Everything that keeps the program from starting. Once it has started, troubles stop the recording and not the program: they
/// are in [`Recording::stopped`] and [`Recording::notes`].
pub fn record(mut options: RecordOptions<'_>) -> Result<Recording, SourceError> {
    options.check()?;
    let mut listener = options.progress.take();
    let options = options;
    let target = resolve_target(&options.command)?;
    let diagnose = || doctor::diagnose(&doctor::probe());
    let selection = select(options.engine, &target, &options.command, options.machine, diagnose)?;
    if let Some(listener) = &mut listener {
        let is_left_out =
            !selection.engine.is_simulated() && !matches!(options.machine.source(), MachineSource::Live { .. });
        listener.chosen(&selection, is_left_out.then(|| options.machine.name()));
    }
    let order = order_for(selection.engine)?;
    let is_sequence = order.source == OrderSource::Sequence;
    let now = HostInstant::now();
    let library = numapilot_runtime::unpacked()?;
    let emulator = emulator_for(selection.engine, &target)?;
    let host_khz = now.calibrate(CALIBRATION);
    // A sequence counts from 0 and has no rate; real clocks are in nanoseconds then.
    let start = HostInstant { order: if is_sequence { 0 } else { now.order }, ..now };
    let real_khz = if is_sequence && !selection.engine.is_simulated() { NANOSECONDS_KHZ } else { host_khz };
    let simulated = simulate(&options, selection.engine, real_khz)?;
    let layout = Layout::new(&simulated.config, options.slots, options.ring_bytes);
    let arena = Arc::new(Arena::create(&simulated.config, layout, start, order.source)?);
    if emulator.is_some() {
        arena.tell_of_emulator();
    }
    let compile = |fitted| apply::compile(fitted, options.machine, &target, &options.command, apply::Purpose::Measure);
    let image = options.plan.map(compile).transpose()?;
    let guard = Guard::install()?;
    let live = Live::for_program(selection.engine, &options)?;
    let (answers, refused) = fault_answers(selection.engine, &arena);
    output::prepare(&options.output, options.existing)?;
    let opening = Opening {
        options: &options,
        target: &target,
        selection: &selection,
        config: &simulated.config,
        start,
        start_time: SystemTime::now(),
        order_khz: if is_sequence { 0 } else { host_khz },
        order: order.source,
        is_emulated: live.as_ref().is_some_and(|live| live.is_emulated),
    };
    let files = TraceFiles::create(&options.output, &opening).inspect_err(|_| output::discard(&options.output))?;
    let arena_path = arena.path();
    let tracker = selection.has_tracker.then_some(library.tracker.as_path());
    let mut preload: Vec<&Path> = tracker.into_iter().collect();
    let mut environment = options.environment.clone();
    if let Some(image) = image.as_ref().filter(|_| tracker.is_some()) {
        // Behind the tracker: it records what the program asks for, and where its own NUMA calls are simulated, the planner's are too.
        preload.push(&library.planner);
        environment.extend(crate::apply::environment(image));
    }
    let launch = Launch {
        target: &target,
        command: &options.command,
        preload: &preload,
        arena: Some(&arena_path),
        environment: &environment,
        passive_waits: selection.engine.is_simulated(),
        emulator: emulator.as_ref(),
        small_pages: selection.engine.is_simulated(),
    };
    let program = launch::spawn(&launch, &guard).inspect_err(|_| output::discard(&options.output))?;
    let clock = Clock { engine: selection.engine, khz: simulated.config.clock_khz };
    let totals = Totals::default();
    let mut watch = Watch {
        listener,
        program,
        arena: &arena,
        guard: &guard,
        totals: &totals,
        live: live.as_ref(),
        clock,
        began: Instant::now(),
        daemons_since: None,
        survivors: Survivors::default(),
        stopped: None,
    };
    let accounting = Accounting::new(&simulated.config);
    let clock = wire::Clock { khz: host_khz, origin_cycles: start.order };
    let answering = answers.map(|answers| Answering::start(answers, &arena));
    let drained = drain_until_end(&mut watch, &options, files, (&arena, tracker), accounting, clock);
    let unanswered = answering.and_then(Answering::finish);
    let drained = drained?;
    let wall_time = watch.began.elapsed();
    watch.tell();
    let mut recording = watch.result(&options, selection.clone(), &target, wall_time);
    recording.notes.splice(0..0, order.why.into_iter().chain(simulated.notes));
    recording.notes.extend(refused);
    recording.notes.extend(unanswered);
    if let (Some(image), Some(fitted)) = (&image, options.plan) {
        recording.notes.splice(0..0, image.notes.iter().cloned());
        recording.plan = Some(apply::Outcome::read(image, fitted));
    }
    recording.notes.extend(emulator.as_ref().map(|emulator| format!("emulated by {}", emulator.qemu.version)));
    if let (Some(live), Some(outcome)) = (&live, &drained.live) {
        live.conclude(outcome, &mut recording);
    }
    // After a failed write the last file ends in a torn chunk: nothing may follow it, and the missing end says so.
    let failure = drained.failure.or_else(|| drained.live.and_then(|outcome| outcome.failure));
    let result = match failure {
        Some(failure) => Err(failure),
        None => {
            let mut end = HostInstant::now();
            end.order = if is_sequence { arena.order_now() } else { end.order };
            let closing = Closing { recording: &recording, end, start, order: order.source };
            drained.files.finish(&closing).map_err(|error| error.to_string())
        }
    };
    if let Err(error) = result {
        recording.stopped = Some(StopReason::WriteFailed(error));
    }
    explain(&mut recording, watch.survivors.words());
    Ok(recording)
}

/// Where this recording's order stamps come from. The kernel stamps its samples by its own clock, which nothing but the counter compares with the
/// tracker's stamps: where that is not to be had, the recording says what it cannot know.
fn order_for(engine: Engine) -> Result<order::Choice, SourceError> {
    let choice = order::Facts::read(Path::new("/")).choose()?;
    if choice.source != OrderSource::Sequence || !matches!(engine, Engine::Fault | Engine::Pmu) {
        return Ok(choice);
    }
    let why = format!(
        "the time-stamp counters of this machine's CPUs cannot be compared, and engine {} needs them: a sample may be attributed to an object that had the \
         same address shortly before or after; engine `track` orders events exactly here",
        engine.name()
    );
    Ok(order::Choice { source: OrderSource::Counter, why: Some(why) })
}

/// Results of the draining threads.
struct Drained {
    files: TraceFiles,
    failure: Option<String>,
    live: Option<LiveOutcome>,
}

/// Drains the tracker's rings, and those of the kernel where events are open, while it waits for the program.
fn drain_until_end(
    watch: &mut Watch<'_, '_>,
    options: &RecordOptions<'_>,
    mut files: TraceFiles,
    (arena, tracker): (&Arc<Arena>, Option<&Path>),
    accounting: Accounting,
    clock: wire::Clock,
) -> Result<Drained, SourceError> {
    let (done, totals, live) = (AtomicBool::new(false), watch.totals, watch.live);
    let reader =
        live.and_then(|live| live.reader(&files.writer(), clock, tracker.map(|path| (arena, path)), options.machine));
    let reader = reader.map(|(reader, news)| {
        news.into_iter().for_each(|news| files.tell(news));
        reader
    });
    thread::scope(|scope| {
        let drainer = Drainer::new(arena, files, totals, accounting);
        let drainer = thread::Builder::new().name("drain".to_owned()).spawn_scoped(scope, || drainer.run(&done));
        let drainer = match drainer {
            Ok(handle) => handle,
            // Without a drainer nothing is recorded; the program runs on, and is waited for.
            Err(source) => return Err(give_up(watch, options, source)),
        };
        let reader = match (live, reader) {
            (Some(live), Some(reader)) => match live.start(scope, reader) {
                Ok(handle) => Some(handle),
                Err(source) => return Err(give_up(watch, options, source)),
            },
            _ => None,
        };
        watch.until_end(options);
        let panicked = || SourceError::System {
            what: "a draining thread failed",
            source: std::io::Error::other("it panicked"),
            remedy: "the records written before that are complete; please report this",
        };
        done.store(true, Ordering::Release);
        arena.wake();
        let (files, failure) = drainer.join().map_err(|_| panicked())?;
        // After the tracker's last word, so that every thread has been announced.
        let outcome =
            reader.zip(live).map(|(reader, live)| live.finish(reader)).transpose().map_err(|()| panicked())?;
        Ok(Drained { files, failure: failure.map(|failure| failure.to_string()), live: outcome })
    })
}

/// Page-fault events for a program that runs on a simulated machine, or a note why there are none.
fn fault_answers(engine: Engine, arena: &Arena) -> (Option<FaultAnswers>, Option<String>) {
    if !engine.is_simulated() {
        return (None, None);
    }
    match FaultAnswers::open() {
        Ok(answers) => {
            arena.offer_fault_events(answers.scope);
            let note = "page faults that the kernel takes on the program's behalf (such as in read(2) into fresh memory) are not recorded, so the first \
                        toucher of such pages is unknown where the program has several threads; to record them, set \
                        kernel.perf_event_paranoid to 1 or less, or run with CAP_PERFMON";
            let is_partial = answers.scope == wire::layout::FAULTS_USER;
            (Some(answers), is_partial.then(|| note.to_owned()))
        }
        Err(note) => (None, Some(note)),
    }
}

/// The thread that answers the program's threads.
struct Answering {
    done: Arc<AtomicBool>,
    handle: Option<thread::JoinHandle<Untold>>,
}

impl Answering {
    fn start(answers: FaultAnswers, arena: &Arc<Arena>) -> Answering {
        let done = Arc::new(AtomicBool::new(false));
        let (stop, words) = (done.clone(), arena.clone());
        let builder = thread::Builder::new().name("faults".to_owned());
        // Without this thread there are no answers, and the program's threads give up after a while (toucher.c).
        Answering { done, handle: builder.spawn(move || answers.run(&words, &stop)).ok() }
    }

    /// Stops the thread. Returns a note on first touchers that stayed unknown.
    fn finish(self) -> Option<String> {
        self.done.store(true, Ordering::Release);
        let Untold { lost, late } = self.handle?.join().ok()?;
        (lost + late > 0).then(|| {
            format!(
                "{lost} page faults were lost because they came faster than they could be read, and {late} look-ups of a page's first toucher timed out: \
                 the first toucher of such pages may be unknown"
            )
        })
    }
}

/// What runs the program, where it does not run by itself.
fn emulator_for(engine: Engine, target: &Target) -> Result<Option<Emulator>, SourceError> {
    if engine != Engine::Emulate {
        return Ok(None);
    }
    Emulator::find().map(Some).map_err(|why| SourceError::EngineRefused {
        engine: engine.name(),
        path: target.binary.path.clone(),
        reason: why.reason,
        remedy: why.remedy,
    })
}

fn give_up(watch: &mut Watch<'_, '_>, options: &RecordOptions<'_>, source: std::io::Error) -> SourceError {
    watch.arena.stop();
    watch.until_end(options);
    SourceError::System { what: "cannot start the draining thread", source, remedy: "raise `ulimit -u`" }
}

/// Converts clock stamps to time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    engine: Engine,
    khz: u32,
}

/// Waits for the running program, reports progress and enforces the limits.
struct Watch<'a, 'p> {
    listener: Option<&'p mut (dyn Progress + 'p)>,
    program: Program,
    arena: &'a Arena,
    guard: &'a Guard,
    totals: &'a Totals,
    live: Option<&'a Live>,
    clock: Clock,
    began: Instant,
    daemons_since: Option<Instant>,
    survivors: Survivors,
    stopped: Option<StopReason>,
}

impl Watch<'_, '_> {
    /// Waits for the end of the recording: passes signals on, enforces limits, reports the progress.
    fn until_end(&mut self, options: &RecordOptions<'_>) {
        let mut next_update = self.began;
        loop {
            let standing = self.program.reap();
            let left = self.survivors.look(&standing);
            if let Some(listener) = self.listener.as_mut().filter(|_| !left.is_empty()) {
                listener.survived(&left);
            }
            if self.is_over(&standing, options) {
                break;
            }
            self.keep_limits(options);
            if Instant::now() >= next_update {
                next_update = Instant::now() + TICK;
                self.look_at_times();
                self.tell();
            }
            self.guard.wait(TICK);
        }
        if self.stopped.is_some() {
            self.stop();
        }
    }

    /// Notes the processor time of every process that has a live thread.
    fn look_at_times(&mut self) {
        let slots = (0..self.arena.slots_used()).map(|index| self.arena.slot(index));
        let live = slots.filter(|slot| slot.state() == wire::layout::SLOT_LIVE).map(|slot| slot.pid().cast_signed());
        let pids: BTreeSet<i32> = live.filter(|pid| *pid > 0).collect();
        pids.into_iter().for_each(|pid| self.program.times.look(pid));
    }

    /// Nothing more is recorded from now on; the program runs on.
    fn stop(&self) {
        self.arena.stop();
        if let Some(live) = self.live {
            live.stop();
        }
    }

    /// Tells the caller how the recording goes.
    fn tell(&mut self) {
        let state = self.progress();
        if let Some(listener) = &mut self.listener {
            listener.update(&state);
        }
    }

    fn is_over(&mut self, standing: &Standing, options: &RecordOptions<'_>) -> bool {
        let mut interrupted = false;
        for arrived in self.guard.arrived() {
            if *standing == Standing::Running {
                if arrived.forward {
                    self.program.signal(arrived.signal);
                }
            } else {
                interrupted = true;
            }
        }
        match standing {
            Standing::Running => return false,
            Standing::Ended => return true,
            Standing::Outlived(_) => self.daemons_since = None,
            Standing::Daemons(_) => {}
        }
        if interrupted {
            self.stopped.get_or_insert(StopReason::Interrupted);
            return true;
        }
        // What is left is not waited for once nothing more is recorded: nobody sits at a daemon's terminal.
        if self.stopped.is_some() {
            return true;
        }
        let only_daemons = matches!(standing, Standing::Daemons(_));
        let daemons_since = *self.daemons_since.get_or_insert_with(Instant::now);
        let patience_over = only_daemons && options.daemon_grace.is_some_and(|grace| daemons_since.elapsed() >= grace);
        if options.follow == Follow::MainProcess || patience_over {
            self.stopped.get_or_insert(StopReason::MainEnded);
            return true;
        }
        false
    }

    fn keep_limits(&mut self, options: &RecordOptions<'_>) {
        if self.stopped.is_some() {
            return;
        }
        let bytes = self.totals.disk_bytes.load(Ordering::Relaxed);
        self.stopped = if options.limits.bytes.is_some_and(|limit| bytes >= limit) {
            Some(StopReason::BytesLimit)
        } else if options.limits.duration.is_some_and(|limit| self.began.elapsed() >= limit) {
            Some(StopReason::TimeLimit)
        } else {
            None
        };
        if self.stopped.is_some() {
            self.stop();
        }
    }

    fn program_time(&self) -> Duration {
        match self.clock.engine {
            Engine::Track | Engine::Fault | Engine::Pmu => self.began.elapsed(),
            Engine::Instrument | Engine::Emulate => {
                let cycles = u128::from(self.totals.clock_cycles.load(Ordering::Relaxed));
                let ns = cycles * 1_000_000 / u128::from(self.clock.khz.max(1));
                Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }

    fn progress(&self) -> ProgressState {
        let losses = self.arena.losses();
        let (records, samples, lost) = self.live.map_or((0, 0, 0), |live| live.totals.read());
        ProgressState {
            records: self.totals.records.load(Ordering::Relaxed) + records,
            bytes: self.totals.bytes.load(Ordering::Relaxed),
            samples: self.totals.samples.load(Ordering::Relaxed) + samples,
            lost: losses
                .no_slot
                .saturating_add(losses.ring_full)
                .saturating_add(losses.stopped)
                .saturating_add(losses.after_end)
                .saturating_add(lost),
            live_threads: self.totals.live_threads.load(Ordering::Relaxed),
            program_time: self.program_time(),
            wall_time: self.began.elapsed(),
        }
    }

    fn result(
        &self,
        options: &RecordOptions<'_>,
        selection: Selection,
        target: &Target,
        wall_time: Duration,
    ) -> Recording {
        let state = self.progress();
        let arena = self.arena.losses();
        let mut notes = selection.notes;
        let dead = self.totals.dead_owners.load(Ordering::Relaxed);
        if dead > 0 {
            notes.push(format!(
                "{dead} threads were killed or ended with their process; the records that they had written are kept"
            ));
        }
        let threads = self.totals.threads.load(Ordering::Relaxed);
        if threads == 0 && selection.has_tracker {
            notes.push(format!(
                "nothing was recorded: the tracker was not loaded into {}; check whether the program runs in another container or clears its environment \
                 (LD_PRELOAD)",
                target.binary.path.display()
            ));
        }
        Recording {
            dir: options.output.clone(),
            exit: self.program.exit().unwrap_or(Exit::Code(1)),
            engine: selection.engine,
            refusals: selection.refusals,
            losses: Losses {
                no_slot: arena.no_slot,
                ring_full: arena.ring_full,
                stopped: arena.stopped,
                discarded_bytes: self.totals.discarded_bytes.load(Ordering::Relaxed),
                quarantined_slots: self.totals.quarantined.load(Ordering::Relaxed),
                failed_unwinds: arena.failed_unwinds,
                after_end: arena.after_end,
            },
            bytes: state.bytes,
            disk_bytes: self.totals.disk_bytes.load(Ordering::Relaxed),
            records: state.records,
            samples: state.samples,
            threads,
            program_time: if selection.engine.is_simulated() { state.program_time } else { wall_time },
            wall_time,
            stopped: self.stopped.clone(),
            notes,
            events: None,
            plan: None,
            processor_times: self.program.times.to_json(),
        }
    }
}

/// Puts losses and early stops into words, with the remedy.
fn explain(recording: &mut Recording, survivors: Option<String>) {
    let losses = recording.losses;
    let notes = &mut recording.notes;
    if let Some(names) = survivors {
        notes.push(format!("after the program had ended, processes that it left behind were recorded: {names}"));
    }
    match &recording.stopped {
        None => {}
        Some(StopReason::WriteFailed(error)) => notes.push(format!(
            "recording stopped early because the trace could not be written ({error}); the rest of the run was not recorded; free disk space, or record \
             to another disk with `--output`"
        )),
        Some(StopReason::BytesLimit) => notes.push("recording stopped at the limit on its size; the rest of the run was not recorded".to_owned()),
        Some(StopReason::TimeLimit) => notes.push("recording stopped at the limit on its time; the rest of the run was not recorded".to_owned()),
        Some(StopReason::MainEnded) => {
            notes.push("recording stopped while processes that the program left behind were still running".to_owned());
        }
        Some(StopReason::Interrupted) => {
            notes.push("recording was stopped by a signal; processes that the program left behind run on".to_owned());
        }
    }
    if losses.ring_full > 0 {
        notes.push(format!(
            "{} records were lost because rings were full; raise `--ring-size`, or sample less with `--period`",
            losses.ring_full
        ));
    }
    if losses.no_slot > 0 {
        notes.push(format!(
            "{} records were lost because the program had more threads than `--max-threads`; raise it",
            losses.no_slot
        ));
    }
    if losses.after_end > 0 {
        notes.push(format!(
            "{} records of threads that had already ended were lost (what the C library frees after them); the report shows these blocks as never freed",
            losses.after_end
        ));
    }
    if losses.quarantined_slots > 0 {
        notes.push(format!(
            "{} threads' shared memory was overwritten by the program (a stray write?): {} bytes of records were unusable",
            losses.quarantined_slots, losses.discarded_bytes
        ));
    }
}
