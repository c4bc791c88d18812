//! One recording from start to end: choose the engine, make the arena, start the program, drain until everything has ended.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use numapilot_apply::Outcome;
use numapilot_apply::PlanImage;
use numapilot_apply::Purpose;
use numapilot_apply::compile;
use numapilot_emulator::Emulator;
use numapilot_host::Pid;
use numapilot_launch::Exit;
use numapilot_launch::Launch;
use numapilot_launch::Program;
use numapilot_launch::Standing;
use numapilot_launch::Target;
use numapilot_launch::resolve_target;
use numapilot_launch::signals::Guard;
use numapilot_launch::spawn;
use numapilot_machine::MachineSource;
use numapilot_runtime::Unpacked;
use numapilot_text::units;
use numapilot_trace::output;
use numapilot_trace::output::Room;
use numapilot_trace::wire;

use crate::address_space;
use crate::arena::Arena;
use crate::arena::Layout;
use crate::clock::HostInstant;
use crate::daemons::Survivors;
use crate::drain::Accounting;
use crate::drain::Drainer;
use crate::drain::Totals;
use crate::engine::Engine;
use crate::engine::Selection;
use crate::engine::select;
use crate::error::SourceError;
use crate::faulted::FaultAnswers;
use crate::faulted::Untold;
use crate::java;
use crate::live::Live;
use crate::live::LiveOutcome;
use crate::machine_files;
use crate::namespaces::Foreign;
use crate::options::Follow;
use crate::options::Progress;
use crate::options::ProgressState;
use crate::options::RecordOptions;
use crate::order;
use crate::order::OrderSource;
use crate::recording::Losses;
use crate::recording::Recording;
use crate::recording::StopReason;
use crate::recording::early_timeouts;
use crate::recording::explain;
use crate::session::Closing;
use crate::session::Opening;
use crate::session::TraceFiles;
use crate::simulated::Simulated;
use crate::simulated::simulate;
use crate::unrecorded;

/// Between two looks at the program where no signal calls for one sooner.
const TICK: Duration = Duration::from_millis(100);
/// At every so many looks at processes that are recorded, all of the program's are looked at.
const LOOKS_AT_ALL: u32 = 5;
/// Rate of clock stamps that count nanoseconds.
const NANOSECONDS_KHZ: u32 = 1_000_000;
/// Length of the first calibration of the host's counter.
const CALIBRATION: Duration = Duration::from_millis(10);

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
    let diagnose = || numapilot_doctor::diagnose(&numapilot_doctor::probe());
    let selection = select(options.engine, &target, &options.command, options.machine, diagnose)?;
    if let Some(listener) = &mut listener {
        let is_left_out =
            !selection.engine.is_simulated() && !matches!(options.machine.source(), MachineSource::Live { .. });
        listener.chosen(&selection, is_left_out.then(|| options.machine.name()));
    }
    let order = order_for(selection.engine)?;
    let now = HostInstant::now();
    let library = numapilot_runtime::unpacked()?;
    let emulator = emulator_for(selection.engine, &target)?;
    let prepared = Prepared::new(&options, &target, &selection, Stamps::new(order, now), emulator)?;
    let (arena, start) = (&prepared.arena, prepared.stamps.start);
    let guard = Guard::install()?;
    let live = Live::for_program(selection.engine, &options)?;
    let (answers, refused) = fault_answers(selection.engine, arena);
    let mut room = Some(output::prepare(&options.output, options.existing)?);
    let opening = prepared.opening(live.as_ref());
    let files = TraceFiles::create(&options.output, &opening)?;
    let tracker = selection.has_tracker.then_some(library.tracker.as_path());
    let program = prepared.spawn(tracker, &library, &guard)?;
    let totals = Totals::default();
    let mut watch = Watch {
        listener,
        program,
        arena,
        guard: &guard,
        totals: &totals,
        live: live.as_ref(),
        clock: Clock { engine: selection.engine, khz: prepared.simulated.config.clock_khz },
        began: Instant::now(),
        daemons_since: None,
        survivors: Survivors::default(),
        stopped: None,
        looks: 0,
    };
    let accounting = Accounting::new(&prepared.simulated.config);
    let clock = wire::Clock { khz: prepared.stamps.host_khz, origin_cycles: start.order };
    let answering = answers.map(|answers| Answering::start(answers, arena));
    let drained = drain_until_end(&mut watch, &options, (files, &mut room), (arena, tracker), accounting, clock);
    let unanswered = answering.and_then(Answering::finish);
    Ok(prepared.conclude(&mut watch, drained?, refused.into_iter().chain(unanswered)))
}

/// When a recording's stamps begin, and how fast they count.
struct Stamps {
    order: order::Choice,
    start: HostInstant,
    /// Rate of the host's counter.
    host_khz: u32,
}

impl Stamps {
    /// `now`: the moment at which they begin.
    fn new(order: order::Choice, now: HostInstant) -> Stamps {
        let host_khz = now.calibrate(CALIBRATION);
        // A sequence counts from 0.
        let start = if order.source == OrderSource::Sequence { HostInstant { order: 0, ..now } } else { now };
        Stamps { order, start, host_khz }
    }

    fn is_sequence(&self) -> bool {
        self.order.source == OrderSource::Sequence
    }

    /// Rate of order stamps; a sequence has none.
    fn order_khz(&self) -> u32 {
        if self.is_sequence() { 0 } else { self.host_khz }
    }

    /// Rate of the clocks of a program that runs in real time; beside a sequence they are in nanoseconds.
    fn real_khz(&self, engine: Engine) -> u32 {
        if self.is_sequence() && !engine.is_simulated() { NANOSECONDS_KHZ } else { self.host_khz }
    }
}

/// What is made before the program starts, and outlives it.
struct Prepared<'a, 'm> {
    options: &'a RecordOptions<'m>,
    target: &'a Target,
    selection: &'a Selection,
    stamps: Stamps,
    emulator: Option<Emulator>,
    simulated: Simulated,
    arena: Arc<Arena>,
    /// The plan as the planner reads it.
    image: Option<PlanImage>,
}

impl<'a, 'm> Prepared<'a, 'm> {
    /// Makes the arena, with the simulated machine in it, and the plan's image.
    fn new(
        options: &'a RecordOptions<'m>,
        target: &'a Target,
        selection: &'a Selection,
        stamps: Stamps,
        emulator: Option<Emulator>,
    ) -> Result<Self, SourceError> {
        let mut simulated = simulate(options, selection.engine, stamps.real_khz(selection.engine))?;
        if selection.engine.is_simulated() {
            let note = machine_files::show(options.machine, selection.engine, &mut simulated.config);
            simulated.notes.extend(note);
        }
        let sized = |slots| Layout::new(&simulated.config, slots, options.ring_bytes);
        let (layout, note) = address_space::fit(options.slots, sized, address_space::limit());
        simulated.notes.extend(note);
        let arena = Arc::new(Arena::create(&simulated.config, layout, stamps.start, stamps.order.source)?);
        if emulator.is_some() {
            arena.tell_of_emulator();
        }
        let purpose = if emulator.is_some() { Purpose::MeasureEmulated } else { Purpose::Measure };
        let compiled = |fitted| compile(fitted, options.machine, target, &options.command, purpose);
        let image = options.plan.map(compiled).transpose()?;
        Ok(Prepared { options, target, selection, stamps, emulator, simulated, arena, image })
    }

    /// What the trace says of its beginning.
    fn opening(&self, live: Option<&Live>) -> Opening<'_, 'm> {
        Opening {
            options: self.options,
            target: self.target,
            selection: self.selection,
            config: &self.simulated.config,
            start: self.stamps.start,
            start_time: SystemTime::now(),
            order_khz: self.stamps.order_khz(),
            order: self.stamps.order.source,
            is_emulated: live.is_some_and(|live| live.is_emulated),
        }
    }

    /// Starts the program with the tracker, where there is one, the planner, where there is a plan, and the agent, where Java's objects are wanted.
    fn spawn(&self, tracker: Option<&Path>, library: &Unpacked, guard: &Guard) -> Result<Program, SourceError> {
        let mut preload: Vec<&Path> = tracker.into_iter().collect();
        let mut environment = self.options.environment.clone();
        if let Some(image) = self.image.as_ref().filter(|_| tracker.is_some()) {
            // Behind the tracker: it records what the program asks for, and where its own NUMA calls are simulated, the planner's are too.
            preload.push(&library.planner);
            environment.extend(image.environment());
        }
        if let Some(interval_bytes) = self.options.java_interval_bytes.filter(|_| tracker.is_some()) {
            let variable = java::environment(&library.java_agent, interval_bytes, &environment);
            environment.push(variable);
        }
        let is_simulated = self.selection.engine.is_simulated();
        let launch = Launch {
            target: self.target,
            command: &self.options.command,
            preload: &preload,
            arena: Some(&self.arena.path()),
            environment: &environment,
            passive_waits: is_simulated,
            emulator: self.emulator.as_ref(),
            small_pages: is_simulated,
        };
        Ok(spawn(&launch, guard)?)
    }

    /// The result of a recording that has ended, with the session's end written. `notes`: what is to be told besides.
    fn conclude(
        &self,
        watch: &mut Watch<'_, '_>,
        drained: Drained,
        notes: impl IntoIterator<Item = String>,
    ) -> Recording {
        let Stamps { order, start, .. } = &self.stamps;
        let wall_time = watch.began.elapsed();
        watch.tell();
        let mut recording = watch.result(self.options, self.selection.clone(), self.target, wall_time);
        recording.notes.splice(0..0, order.why.iter().chain(&self.simulated.notes).cloned());
        recording.notes.extend(notes);
        if self.options.java_interval_bytes.is_some() {
            recording.notes.extend(java::notes(self.selection.has_tracker, self.arena.java()));
        }
        if let (Some(image), Some(fitted)) = (&self.image, self.options.plan) {
            recording.notes.splice(0..0, image.notes.iter().cloned());
            recording.plan = Some(Outcome::read(image, fitted));
        }
        recording.notes.extend(self.emulator.as_ref().map(|emulator| format!("emulated by {}", emulator.qemu.version)));
        if let (Some(live), Some(outcome)) = (watch.live, &drained.live) {
            live.conclude(outcome, &mut recording);
        }
        // After a failed write the last file ends in a torn chunk: nothing may follow it, and the missing end says so.
        let failure = drained.failure.or_else(|| drained.live.and_then(|outcome| outcome.failure));
        let clock = (!self.stamps.is_sequence()).then_some(*start);
        let result = match failure {
            Some(failure) => Err(failure),
            None => match drained.files.add_generated(wall_time, clock, &watch.foreign()) {
                Err(error) => Err(error.to_string()),
                Ok(told) => {
                    recording.notes.extend(told);
                    let mut end = HostInstant::now();
                    end.order = if self.stamps.is_sequence() { self.arena.order_now() } else { end.order };
                    let closing = Closing { recording: &recording, end, start: *start, order: order.source };
                    drained.files.finish(&closing).map_err(|error| error.to_string())
                }
            },
        };
        if let Err(error) = result {
            recording.stopped = Some(StopReason::WriteFailed(error));
        }
        explain(&mut recording, watch.survivors.words());
        recording
    }
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
    (mut files, room): (TraceFiles, &mut Option<Room>),
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
        let end = || {
            done.store(true, Ordering::Release);
            arena.wake();
        };
        let reader = match (live, reader) {
            (Some(live), Some(reader)) => match live.start(scope, reader) {
                Ok(handle) => Some(handle),
                Err(source) => {
                    let error = give_up(watch, options, source);
                    // The scope waits for the drainer, which waits for this.
                    end();
                    return Err(error);
                }
            },
            _ => None,
        };
        // From here on there is a recording, whatever becomes of it.
        room.take().into_iter().for_each(Room::keep);
        watch.until_end(options);
        let panicked = || SourceError::System {
            what: "a draining thread failed",
            source: std::io::Error::other("it panicked"),
            remedy: "the records written before that are complete; please report this",
        };
        end();
        let drained = drainer.join().map_err(|_| panicked());
        // After the tracker's last word, so that every thread has been announced; and in any case, as the scope waits for it.
        let outcome =
            reader.zip(live).map(|(reader, live)| live.finish(reader)).transpose().map_err(|()| panicked())?;
        let (files, failure) = drained?;
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
                "page faults came faster than they could be read: {lost} were lost, and {late} look-ups of a page's first toucher timed out. The first \
                 toucher of such pages may be unknown"
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
    /// How often the processor times of processes were looked at.
    looks: u32,
}

impl Watch<'_, '_> {
    /// Processes of other namespaces of process numbers that were recorded.
    fn foreign(&self) -> Foreign {
        self.totals.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

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
        let live = slots.filter(|slot| slot.state() == wire::layout::SLOT_LIVE && slot.is_of_our_namespace());
        let live = live.map(|slot| Pid(slot.pid()));
        let pids: BTreeSet<Pid> = live.filter(|pid| pid.raw().is_some_and(|number| number > 0)).collect();
        pids.into_iter().for_each(|pid| self.program.times.look(pid));
        // Programs without the tracker have no slots. Children are listed by thread, and a server has hundreds of these.
        let is_due = self.looks.is_multiple_of(LOOKS_AT_ALL);
        self.looks += 1;
        if is_due && self.clock.engine == Engine::Track && unrecorded::is_any(self.arena) {
            self.program.look_at_all();
        }
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
        if !self.clock.engine.is_simulated() {
            return self.began.elapsed();
        }
        let cycles = u128::from(self.totals.clock_cycles.load(Ordering::Relaxed));
        let ns = cycles * 1_000_000 / u128::from(self.clock.khz.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
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
                "{} killed or ended with the process; the records written until then are kept",
                units::counted(dead, "thread was", "threads were")
            ));
        }
        notes.extend(unrecorded::notes(self.arena, selection.engine));
        notes.extend(early_timeouts(self.arena.early_timeouts()));
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
            unrecorded_program: unrecorded::busiest(self.arena, selection.engine, &self.program),
        }
    }
}
