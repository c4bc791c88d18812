//! The kernel's part of a recording from its beginning to its end: open the events, read them beside the tracker's rings, and report the outcome.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::Scope as ThreadScope;
use std::thread::ScopedJoinHandle;

use numapilot_kernel::sysctl;
use numapilot_machine::Machine;
use numapilot_sampled::Numbering;
use numapilot_sampled::Output;
use numapilot_sampled::Samples;
use numapilot_sampled::SharedWriter;
use numapilot_sampled::TaskSource;
use numapilot_sampled::Tasks;
use numapilot_trace::wire::Clock;

use super::drain::LiveOutcome;
use super::drain::LiveTotals;
use super::drain::Reader;
use super::drain::Reading;
use super::news::News;
use super::time::ClockPair;
use super::words;
use crate::arena::Arena;
use crate::engine::Engine;
use crate::error::SourceError;
use crate::namespaces;
use crate::options::RecordOptions;
use crate::options::Sampling;
use crate::recording::Recording;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::aux::source_tables;
use numapilot_perf_events::emulated;
use numapilot_perf_events::event::EventKind;
use numapilot_perf_events::event::EventRequest;
use numapilot_perf_events::facts::EventFacts;
use numapilot_perf_events::open::EventSet;
use numapilot_perf_events::open::RingSize;
use numapilot_perf_events::open::Scope;
use numapilot_perf_events::places::Places;
use numapilot_perf_events::pmu;
use numapilot_perf_events::pmu::Pace;
use numapilot_perf_events::pmu::PmuOptions;
use numapilot_perf_events::pmu::allowed_rate;
use numapilot_perf_events::rights::refused_note;
use numapilot_perf_events::wake::Wake;

/// Open events and what their reader shares with the rest of the recorder.
pub struct Live {
    /// Counters of the progress.
    pub totals: LiveTotals,
    /// The opened events; the reader takes them.
    events: Mutex<Option<EventSet>>,
    requests: Vec<EventRequest>,
    notes: Vec<String>,
    /// Whether the samples come from an emulated PMU.
    pub is_emulated: bool,
    wake: Wake,
    first: ClockPair,
    done: AtomicBool,
    stopped: AtomicBool,
}

impl Live {
    /// Opens what an engine needs for a program that this thread is about to start; `None` for engines that need no events.
    ///
    /// # Errors
    /// The kernel refuses, with the reason and the remedy.
    pub fn for_program(engine: Engine, options: &RecordOptions<'_>) -> Result<Option<Live>, SourceError> {
        match engine {
            Engine::Fault => Live::faults(&Scope::Children, options.ring_bytes, options.max_stack_depth).map(Some),
            Engine::Pmu => Live::accesses(&Scope::Children, options).map(Some),
            Engine::Instrument | Engine::Emulate | Engine::Track | Engine::Import => Ok(None),
        }
    }

    /// Opens the events by which this machine's processor samples memory accesses.
    ///
    /// # Errors
    /// No way of sampling works here, with the reasons and the remedies; or the kernel refuses after all.
    pub fn accesses(scope: &Scope, options: &RecordOptions<'_>) -> Result<Live, SourceError> {
        if let Some(folder) = emulated::folder() {
            return Live::emulated(scope, options, &folder);
        }
        let facts = numapilot_perf_events::probe();
        let is_system = *scope == Scope::System;
        let pmus = numapilot_perf::pmu::read(Path::new("/")).map_err(EventsError::from)?;
        let (pace, slower) = match options.sampling {
            Sampling::Period(period) => (Pace::Fixed(period), None),
            // The rate is the whole recording's; each CPU gets its share, as if all were busy.
            Sampling::RateHz(rate) => {
                let share = (rate / facts.cpus.max(1)).max(1);
                let allowed = allowed_rate(share);
                (Pace::PerSecond(allowed), words::slower(share, allowed))
            }
        };
        let max_stack = u16::try_from(options.max_stack_depth).unwrap_or(u16::MAX);
        let wanted =
            PmuOptions { pace, least_latency: 0, l3_misses_only: options.l3_misses_only, max_stack, is_system };
        let plan = pmu::plan(&pmus, &facts.samplers, &wanted).map_err(EventsError::from)?;
        if plan.requests.is_empty() {
            return Err(no_sampling(&facts));
        }
        let size = RingSize { bytes: options.ring_bytes as usize };
        let set = EventSet::open(&plan.requests, scope, size)?;
        // SPE has periods only.
        let slower = slower.filter(|_| plan.requests.iter().any(|request| request.attr.is_freq()));
        let wants_rate = matches!(options.sampling, Sampling::RateHz(_));
        let with_aux = plan.requests.iter().find(|request| wants_rate && request.aux_bytes > 0);
        let no_rate = with_aux.and_then(|request| request.attr.period()).map(words::no_rate);
        Live::new(set, plan.requests, plan.notes.into_iter().chain(slower).chain(no_rate).collect())
    }

    /// Reads the samples of an emulated PMU, beside the side band of the kernel itself.
    fn emulated(scope: &Scope, options: &RecordOptions<'_>, folder: &Path) -> Result<Live, SourceError> {
        let mut set = EventSet::open(&[], scope, RingSize { bytes: options.ring_bytes as usize })?;
        let request = emulated::add(&mut set, folder)?;
        Ok(Live { is_emulated: true, ..Live::new(set, vec![request], vec![emulated::note()])? })
    }

    /// Opens the page faults of a scope: those of the kernel on behalf of the programs as well, where this user may see them.
    ///
    /// # Errors
    /// The kernel refuses, with the reason and the remedy.
    pub fn faults(scope: &Scope, ring_bytes: u32, max_stack: u32) -> Result<Live, SourceError> {
        let size = RingSize { bytes: ring_bytes as usize };
        let max_stack = u16::try_from(max_stack).unwrap_or(u16::MAX);
        let faults =
            EventSet::open_faults(|user_only| EventRequest::recorded_page_faults(user_only, max_stack), scope, size)?;
        let note = "page faults that the kernel takes on the program's behalf (such as in read(2) into fresh memory) are not recorded; to record \
                    them, set kernel.perf_event_paranoid to 1 or less, or run with CAP_PERFMON";
        let notes = faults.user_only.then(|| note.to_owned()).into_iter().collect();
        Live::new(faults.set, vec![faults.request], notes)
    }

    /// Takes over opened events: `requests` as they were given to [`EventSet::open`].
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new(mut set: EventSet, requests: Vec<EventRequest>, notes: Vec<String>) -> Result<Live, SourceError> {
        let wake = super::drain::wake_for(&set)?;
        let refused = refused_note(&set.refused);
        let notes = notes.into_iter().chain(set.notes.drain(..)).chain(refused).collect();
        Ok(Live {
            totals: LiveTotals::default(),
            events: Mutex::new(Some(set)),
            requests,
            notes,
            is_emulated: false,
            wake,
            first: ClockPair::now(),
            done: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        })
    }

    /// The reader of a program into which the tracker is loaded (with its arena and the library's path), or not; and where the tracker's news are to
    /// go. `None`: it was asked for before.
    pub fn reader<'a>(
        &'a self,
        writer: &SharedWriter,
        clock: Clock,
        tracker: Option<(&Arc<Arena>, &Path)>,
        machine: &Machine,
    ) -> Option<(Reader<'a>, Option<Arc<News>>)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let news = tracker.map(|_| Arc::new(News::default()));
        let mut places = Places::of_requests(machine, &self.requests);
        let has_aux = self.requests.iter().any(|request| request.aux_bytes > 0);
        let spe = has_aux.then(|| source_tables(Path::new("/"), events.rings.iter().map(|ring| ring.cpu)));
        // All faults are recorded, and no others: a fault whose home node is unknown may be any fault on its page.
        places.leaves_first_touches = self.requests.iter().any(|request| request.kind == EventKind::Fault);
        let asks_homes = places.only_node().is_none();
        let asks_sizes = places.leaves_first_touches;
        let path = tracker.map(|(_, path)| path.to_string_lossy().into_owned());
        let root = Some(PathBuf::from("/"));
        let known = TaskSource { root, tracker: path, knows_all_mappings: true, ..TaskSource::default() };
        let output = Output::new(writer.clone(), clock, tracker.map(|(arena, _)| arena.clone() as Arc<dyn Numbering>));
        let mut reader = Reader::new(Reading {
            events,
            wake: &self.wake,
            totals: &self.totals,
            news: news.clone(),
            samples: Samples::new(output, Tasks::new(known), places),
            first: self.first,
            order_khz: clock.khz,
            asks_homes,
            asks_sizes,
            spe,
        });
        if has_aux && namespaces::is_inner() {
            reader.samples().distrust_packets();
        }
        Some((reader, news))
    }

    /// Starts the thread that reads the rings.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope ThreadScope<'scope, '_>,
        reader: Reader<'scope>,
    ) -> io::Result<ScopedJoinHandle<'scope, LiveOutcome>> {
        let builder = std::thread::Builder::new().name("events".to_owned());
        builder.spawn_scoped(scope, move || reader.run(&self.done, &self.stopped))
    }

    /// Makes the reader turn the events off, so that nothing more is recorded.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.ring();
    }

    /// Takes what is left, and the outcome. An error: the reader panicked.
    pub fn finish(&self, reader: ScopedJoinHandle<'_, LiveOutcome>) -> Result<LiveOutcome, ()> {
        self.done.store(true, Ordering::Release);
        self.wake.ring();
        reader.join().map_err(drop)
    }

    /// Adds to the recording's result what the kernel's part came to.
    pub fn conclude(&self, outcome: &LiveOutcome, recording: &mut Recording) {
        let (records, samples, lost) = self.totals.read();
        recording.losses.ring_full = recording.losses.ring_full.saturating_add(lost);
        recording.losses.discarded_bytes = recording.losses.discarded_bytes.saturating_add(outcome.corrupt_bytes);
        recording.notes.extend(self.notes.iter().cloned());
        recording.notes.extend(refused_note(&outcome.refused));
        let not_joined = outcome.not_joined.as_ref();
        recording
            .notes
            .extend(not_joined.map(|why| format!("events of a process that joined could not be opened: {why}")));
        recording.notes.extend(words::notes(outcome, sysctl::numa_balancing()));
        recording.records = recording.records.max(records);
        recording.samples = recording.samples.max(samples);
        recording.events = Some(words::counts(outcome));
    }
}

/// Why engine `pmu` cannot work here: the first reason, and what is to be done.
fn no_sampling(facts: &EventFacts) -> SourceError {
    let finding = numapilot_doctor::pmu::finding(facts);
    let obstacle = finding.obstacles.first();
    let (reason, remedy) = obstacle.map_or_else(
        || {
            (
                "this machine has no working way to sample memory accesses".to_owned(),
                "`numapilot doctor` lists the engines that do".to_owned(),
            )
        },
        |obstacle| (obstacle.reason.clone(), obstacle.remedy.clone()),
    );
    SourceError::EngineUnavailable { engine: Engine::Pmu, reason, remedy }
}
