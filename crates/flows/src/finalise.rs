//! Makes tables from records: decode, join, symbolise, write.
//!
//! The steps run on several threads: one reads the records (of the raw form it decodes and merges them), one joins them, and one sorts batches of accesses
//! by time and encodes them. Memory: some million accesses, the live objects and one row per object.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use foldhash::{HashMap, HashMapExt};
use numapilot_host::{VirtAddr, workers};
use numapilot_symbols::{GeneratedCode, GeneratedFunction, GeneratedLine};
use numapilot_trace::chunk::{self, Damage, Problem, RawTrace, SessionEnd, SessionStart};
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::{Pid, ProcessIndex, TimeNs};
use numapilot_trace::meta::{
    ClockInfo, ExitInfo, Format, Losses as MetaLosses, META_FILE, Meta, Sampling, base_page_bytes,
};
use numapilot_trace::record::Record;
use numapilot_trace::stream::RecordSource;
use numapilot_trace::tables::{AccessColumns, AccessRow, Durability, FolderLock, Table, TraceWriter};

use crate::encoder::{Encoder, Output, locked};
use crate::error::{FlowError, StreamError};
use crate::instrumentation::{self, Instrumentation};
use crate::join::{Conventions, Generated, Joined, JoinedAccess, Joiner};
use crate::model::{Location, Process};
use crate::own_allocators;
use crate::rows;
use crate::symbolise::{ElfLayouts, resolve};
use crate::ties;
use crate::trace::{HOMES_OF_OTHERS, Losses};
use crate::unknown_python;
use crate::unresolved;

/// Accesses that are sent to the writer at a time.
const BATCH_ROWS: usize = 1 << 16;
/// Most batches of records that are queued for the join.
const WAITING_BATCHES: usize = 2;
/// How long a function may run before its record in a dump: HotSpot tells its agents of what it has compiled by a thread of its own, while the code runs.
const LATE_MS: u64 = 100;
/// Records of the raw form in a batch: enough that handing over costs nothing, few enough to stay in the caches.
const MERGED_RECORDS: usize = 1 << 11;

const HOMES_OF_OTHERS_NOTE: &str = "processes share memory, and a thread's counters by home node do not know pages that another process touched first: \
                                    totals by node are estimated from samples, whose homes are right; program time contains the latencies of the homes as \
                                    counted";

const NO_PYTHON_NOTE: &str = "call stacks of page faults and samples have no functions of Python, as those of allocations do, because the kernel sees native \
                              code only: record with --engine emulate, or run Python 3.12 or later, built with frame pointers, with -X perf";

/// Counts of a finalised recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Sampled accesses: rows of `accesses`.
    pub samples: u64,
    /// Memory accesses that they represent: the sum of their weights.
    pub accesses: u64,
    /// Number of object instances.
    pub objects: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of process images.
    pub processes: u64,
    /// Distinct code addresses that were looked up.
    pub locations: u64,
    /// Whether the recorder was killed before the end.
    pub interrupted: bool,
    /// Counts of what was lost or is unknown.
    pub losses: Losses,
    /// Which parts of the programs were instrumented; `None` for engines that need no instrumentation.
    pub instrumentation: Option<Instrumentation>,
}

/// Callback for a progress display: the current step, and the number of records done.
pub type Progress<'a> = &'a mut dyn FnMut(&'static str, u64);

/// Makes the tables and `meta.json` of the recording in `dir` (`NAME.numatrace`) from its `raw/`. Existing tables are replaced.
///
/// # Errors
/// If there is no readable raw form, or the tables cannot be written (a full disk). There is no `meta.json` then.
pub fn finalise(dir: &Path) -> Result<Summary, FlowError> {
    finalise_with(dir, &mut |_, _| {})
}

/// Does what [`finalise`] does, and calls `progress` repeatedly.
///
/// # Errors
/// If there is no readable raw form, or the tables cannot be written.
pub fn finalise_with(dir: &Path, progress: Progress<'_>) -> Result<Summary, FlowError> {
    finalise_under(FolderLock::take(dir), dir, progress)
}

/// Makes the tables if there are none, as [`finalise`] does; false if another process made them meanwhile.
pub(crate) fn finalise_if_missing(dir: &Path) -> Result<bool, FlowError> {
    let lock = FolderLock::take(dir);
    if dir.join(META_FILE).exists() {
        return Ok(false);
    }
    finalise_under(lock, dir, &mut |_, _| {}).map(|_| true)
}

fn finalise_under(lock: FolderLock, dir: &Path, progress: Progress<'_>) -> Result<Summary, FlowError> {
    let raw = RawTrace::open(dir)?;
    let mut problems = raw.problems().to_vec();
    // The run cannot be repeated, so the trace must survive a power failure.
    let opened = Opened { start: raw.start(), generated: generated(raw.generated(), raw.start().order_khz) };
    let made = make((lock, Durability::Synced), dir, opened, &mut *progress, |feed| {
        problems.extend(feed_merged(&raw, feed, dir)?);
        Ok::<_, FlowError>(())
    })?;
    let missing_chunks = raw.missing_chunks();
    let session = SessionFacts { start: raw.start(), end: raw.end(), problems, missing_chunks };
    made.finish(&session, progress)
}

/// Feeds the records of all rings, in order, which a thread of its own decodes and merges; the damage that it found.
fn feed_merged(raw: &RawTrace, feed: &mut Feed<'_>, dir: &Path) -> Result<Vec<Problem>, FlowError> {
    let by_thread = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<Record>>(WAITING_BATCHES);
        let (give_back, empties) = channel::<Vec<Record>>();
        let merger = workers::start(scope, move || merge_all(raw, &sender, &empties))?;
        for mut batch in receiver {
            if !batch.drain(..).all(|record| feed.push(record)) {
                break;
            }
            // The other thread fills it again, or has ended.
            let _ = give_back.send(batch);
        }
        Some(merger.join().unwrap_or_else(|_| Err(FlowError::Worker(dir.to_path_buf()))))
    });
    by_thread.unwrap_or_else(|| merge_here(raw, feed))
}

/// Does what [`feed_merged`] does where the system refuses a thread.
fn merge_here(raw: &RawTrace, feed: &mut Feed<'_>) -> Result<Vec<Problem>, FlowError> {
    let mut merge = raw.merge();
    for record in &mut merge {
        if !feed.push(record?) {
            break;
        }
    }
    Ok(merge.problems().to_vec())
}

/// Decodes and merges all records, and sends them in batches. Returns the damage found.
fn merge_all(
    raw: &RawTrace,
    sender: &SyncSender<Vec<Record>>,
    empties: &Receiver<Vec<Record>>,
) -> Result<Vec<Problem>, FlowError> {
    let mut merge = raw.merge();
    let mut batch = Vec::with_capacity(MERGED_RECORDS);
    for record in &mut merge {
        batch.push(record?);
        if batch.len() == MERGED_RECORDS {
            let next = empties.try_recv().unwrap_or_else(|_| Vec::with_capacity(MERGED_RECORDS));
            // If the join's thread takes no more, the writer has failed, and its own error is returned.
            if sender.send(std::mem::replace(&mut batch, next)).is_err() {
                break;
            }
        }
    }
    let _ = sender.send(batch);
    Ok(merge.problems().to_vec())
}

/// Makes the tables and `meta.json` of a recording that is read piece by piece, in `dir`, which is created if necessary. No raw form is written.
///
/// # Errors
/// The source cannot be read, or the tables cannot be written (a full disk). There is no `meta.json` then.
pub fn finalise_stream<S: RecordSource>(dir: &Path, source: &mut S) -> Result<Summary, StreamError<S::Error>> {
    let start = source.start().map_err(StreamError::Source)?;
    let opened = Opened { start: &start, generated: generated(&source.generated(), start.order_khz) };
    let made = make((FolderLock::take(dir), Durability::Written), dir, opened, &mut |_, _| {}, |feed| {
        let by_thread = std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel::<Vec<Record>>(WAITING_BATCHES);
            let (give_back, empties) = channel::<Vec<Record>>();
            let from = &mut *source;
            let reader = workers::start(scope, move || read_all(from, sender, &empties))?;
            for mut batch in receiver {
                if !batch.iter().all(|record| feed.record(record)) {
                    break;
                }
                batch.clear();
                // The reader fills it again, or has ended.
                let _ = give_back.send(batch);
            }
            Some(reader.join().unwrap_or_else(|_| Err(StreamError::Flow(FlowError::Worker(dir.to_path_buf())))))
        });
        by_thread.unwrap_or_else(|| read_here(source, feed))
    })?;
    let end = source.end();
    let session = SessionFacts { start: &start, end: Some(&end), problems: Vec::new(), missing_chunks: 0 };
    Ok(made.finish(&session, &mut |_, _| {})?)
}

fn read_all<S: RecordSource>(
    source: &mut S,
    sender: SyncSender<Vec<Record>>,
    empties: &Receiver<Vec<Record>>,
) -> Result<(), StreamError<S::Error>> {
    loop {
        let mut batch = empties.try_recv().unwrap_or_default();
        let has_more = source.read(&mut batch).map_err(StreamError::Source)?;
        // If the join's thread has ended, it failed, and returns its own error.
        if sender.send(batch).is_err() || !has_more {
            return Ok(());
        }
    }
}

/// Reads all records and feeds them to the join, where the system refuses a thread.
fn read_here<S: RecordSource>(source: &mut S, feed: &mut Feed<'_>) -> Result<(), StreamError<S::Error>> {
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let has_more = source.read(&mut batch).map_err(StreamError::Source)?;
        if !batch.iter().all(|record| feed.record(record)) || !has_more {
            return Ok(());
        }
    }
}

/// What is known of a recording before its first record.
struct Opened<'a> {
    start: &'a SessionStart,
    generated: Generated,
}

/// What the recorder found of generated code, by process, in a recording whose order stamps have this rate.
fn generated(found: &[chunk::GeneratedCode], order_khz: u32) -> Generated {
    let mut functions: HashMap<Pid, Vec<GeneratedFunction>> = HashMap::new();
    for code in found {
        let files: Vec<Arc<str>> = code.files.iter().map(|file| file.as_str().into()).collect();
        let line = |&(address, file, line): &(u64, u32, u32)| {
            Some(GeneratedLine { address: VirtAddr(address), file: files.get(file as usize)?.clone(), line })
        };
        let of_process = functions.entry(code.pid).or_default();
        of_process.extend(code.functions.iter().map(|function| GeneratedFunction {
            address: VirtAddr(function.address),
            bytes: function.bytes,
            name: function.name.clone(),
            file: None,
            lines: function.lines.iter().filter_map(line).collect(),
            since: function.since,
        }));
    }
    let slack = u64::from(order_khz) * LATE_MS;
    functions.into_iter().map(|(pid, functions)| (pid, GeneratedCode::new(functions).with_slack(slack))).collect()
}

/// Metadata of a recording: what it has besides its records.
struct SessionFacts<'a> {
    start: &'a SessionStart,
    /// `None`: the recorder was killed.
    end: Option<&'a SessionEnd>,
    problems: Vec<Problem>,
    missing_chunks: u64,
}

impl SessionFacts<'_> {
    /// Whether every thread that the system knew no more at the end of the recording has an end: the tracker records all threads, and its recorder ends those
    /// that were killed.
    fn tells_ends_of_threads(&self) -> bool {
        let is_tracked = |engine: Engine| engine.is_simulated() || engine == Engine::Track;
        self.start.engine.known().is_some_and(is_tracked) && self.end.is_some()
    }
}

/// The written table of accesses, and the joined data for the other tables.
struct Made {
    writer: TraceWriter,
    joined: Joined,
    samples: u64,
    weight: u64,
}

/// Joins the records that `work` feeds, and writes their accesses.
fn make<E: From<FlowError>>(
    (lock, durability): (FolderLock, Durability),
    dir: &Path,
    opened: Opened<'_>,
    progress: Progress<'_>,
    work: impl FnOnce(&mut Feed<'_>) -> Result<(), E>,
) -> Result<Made, E> {
    let writer = TraceWriter::create(lock, durability).map_err(FlowError::from)?;
    let table = writer.open::<AccessColumns>().map_err(FlowError::from)?;
    let encoder = Mutex::new(Encoder::new(table));
    let (joined, ended) = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<AccessColumns>(4);
        let (give_back, empties) = channel::<AccessColumns>();
        let encoder = &encoder;
        let thread = workers::start(scope, move || locked(encoder).take_all(&receiver, &give_back));
        let output = match thread {
            Some(_) => Output::Thread(sender, empties),
            None => Output::Here(encoder),
        };
        let mut feed = Feed::new(opened, output, progress);
        let joined = work(&mut feed).map(|()| feed.finish());
        (joined, thread.map_or(Ok(()), ScopedJoinHandle::join))
    });
    ended.map_err(|_| FlowError::Worker(dir.to_path_buf()))?;
    let (table, samples, weight) = encoder.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
    let joined = joined?;
    let mut made = Made { writer, joined, samples, weight };
    made.writer.close(table).map_err(FlowError::from)?;
    Ok(made)
}

impl Made {
    /// Writes the other tables and `meta.json`.
    fn finish(self, session: &SessionFacts<'_>, progress: Progress<'_>) -> Result<Summary, FlowError> {
        let Made { mut writer, mut joined, samples, weight } = self;
        if session.tells_ends_of_threads() {
            end_killed_processes(&mut joined);
        }
        progress("symbols", 0);
        let names = resolve(&joined, &wrappers(session.start));
        joined.losses.unresolved_locations = names.unresolved.values().sum();
        count_problems(&mut joined.losses, session);
        progress("tables", 0);
        rows::write_tables(&mut writer, &joined, &names, &session.problems)?;
        let mut meta = meta(session, &joined, samples, weight);
        meta.more.insert("unresolved".to_owned(), unresolved::rows(&names));
        if !names.changed_sources.is_empty() {
            meta.more.insert("changed_sources".to_owned(), serde_json::json!(names.changed_sources));
        }
        let allocators = own_allocators::found(&joined, meta.engine.known());
        if !allocators.is_empty() {
            meta.more.insert(own_allocators::KEY.to_owned(), serde_json::json!(allocators));
        }
        if let Some(program) = own_allocators::nameless(&joined, &names, weight) {
            meta.more.insert(own_allocators::NAMELESS_KEY.to_owned(), serde_json::json!(program));
        }
        if joined.homes_of_others > 0 {
            meta.more.insert(HOMES_OF_OTHERS.to_owned(), joined.homes_of_others.into());
            add_note(&mut meta.more, HOMES_OF_OTHERS_NOTE);
        }
        if lacks_python(meta.engine.known(), &names.locations) {
            add_note(&mut meta.more, NO_PYTHON_NOTE);
        }
        if let Some(note) = unknown_python::note(&joined) {
            add_note(&mut meta.more, &note);
        }
        if meta.engine == Engine::Instrument {
            let found = Instrumentation::of(&joined, &meta.more);
            meta.more.insert(instrumentation::KEY.to_owned(), serde_json::json!(found));
        }
        let interrupted = meta.interrupted;
        let instrumentation = Instrumentation::read(&meta.more);
        writer.finish(meta)?;
        Ok(Summary {
            samples,
            accesses: weight,
            objects: joined.objects.len() as u64,
            threads: joined.threads.len() as u64,
            processes: joined.processes.len() as u64,
            locations: names.locations.len() as u64,
            interrupted,
            losses: joined.losses,
            instrumentation,
        })
    }
}

/// Feeds records to the join, and sends its accesses to the writer.
struct Feed<'a> {
    joiner: Joiner<ElfLayouts>,
    batch: AccessColumns,
    output: Output<'a>,
    progress: Progress<'a>,
    records: u64,
    /// Records with the same order stamp, which are held until a later stamp comes.
    tied: Vec<Record>,
}

impl<'a> Feed<'a> {
    fn new(opened: Opened<'_>, output: Output<'a>, progress: Progress<'a>) -> Feed<'a> {
        let Opened { start, generated } = opened;
        let conventions = match start.engine.known() {
            Some(engine @ (Engine::Instrument | Engine::Emulate)) => Conventions {
                ip_is_return_address: true,
                infers_first_touch: true,
                touches_are_certain: engine == Engine::Instrument,
                ..Conventions::SAMPLED
            },
            // Hardware samples give the address of the instruction itself. The first sample of a page is rarely its first access.
            Some(Engine::Import | Engine::Pmu) => Conventions::SAMPLED,
            Some(Engine::Fault) => {
                let page_bytes = base_page_bytes(&start.host);
                Conventions { accesses_are_faults: true, page_bytes, ..Conventions::SAMPLED }
            }
            Some(Engine::Track) | None => Conventions { infers_first_touch: true, ..Conventions::SAMPLED },
        };
        let joiner = Joiner::new(ElfLayouts::default(), conventions, start.start_order, generated);
        let mut batch = AccessColumns::default();
        batch.reserve(BATCH_ROWS);
        Feed { joiner, batch, output, progress, records: 0, tied: Vec::new() }
    }

    /// Adds a record, which is held until no other with its stamp can come. Returns false as [`Feed::record`] does.
    fn push(&mut self, record: Record) -> bool {
        let is_tied = self.tied.first().is_none_or(|first| first.stamp.order == record.stamp.order);
        let more = (is_tied && self.tied.len() < ties::TIED_MAX) || self.settle();
        self.tied.push(record);
        more
    }

    /// Feeds the held records to the join.
    fn settle(&mut self) -> bool {
        let mut tied = std::mem::take(&mut self.tied);
        if tied.len() > 1 {
            ties::settle(&mut tied, &self.joiner);
        }
        let more = tied.iter().all(|record| self.record(record));
        tied.clear();
        self.tied = tied;
        more
    }

    /// Feeds a record to the join. Returns false if the writer has failed, which reports its error in the end.
    #[inline]
    fn record(&mut self, record: &Record) -> bool {
        self.records += 1;
        let batch = &mut self.batch;
        self.joiner.push(record, &mut |access: &JoinedAccess| push_row(batch, access));
        batch.len() < BATCH_ROWS || self.hand_on()
    }

    fn hand_on(&mut self) -> bool {
        (self.progress)("join", self.records);
        match &self.output {
            Output::Thread(sender, empties) => {
                let mut next = empties.try_recv().unwrap_or_default();
                next.reserve(BATCH_ROWS);
                sender.send(std::mem::replace(&mut self.batch, next)).is_ok()
            }
            Output::Here(encoder) => locked(encoder).take(&mut self.batch),
        }
    }

    fn finish(mut self) -> Joined {
        self.settle();
        match self.output {
            // Nothing more comes: the thread writes what it holds.
            Output::Thread(sender, _) => {
                let _ = sender.send(self.batch);
            }
            Output::Here(encoder) => {
                locked(encoder).take(&mut self.batch);
            }
        }
        self.joiner.finish()
    }
}

#[inline]
fn push_row(batch: &mut AccessColumns, joined: &JoinedAccess) {
    let access = &joined.access;
    batch.push(AccessRow {
        time_ns: access.time.0,
        order: joined.order,
        thread: access.thread.0,
        address: access.address.0,
        object: access.object.map(|object| object.0),
        cpu: access.cpu.map(|cpu| cpu.0),
        node: access.node.map(|node| node.0),
        home: access.home.map(|home| home.0),
        is_write: access.is_write,
        is_atomic: access.is_atomic,
        is_range: access.is_range,
        level: access.level as u8,
        latency_cycles: access.latency_cycles,
        ip: joined.ip,
        location: access.location.0,
        stack: access.stack.0,
        weight: access.weight,
    });
}

fn count_problems(losses: &mut Losses, session: &SessionFacts<'_>) {
    for problem in &session.problems {
        match problem.damage {
            Damage::TornTail => losses.torn_chunks += 1,
            Damage::NoBases(records) => losses.no_stamps = losses.no_stamps.saturating_add(records),
            Damage::Header | Damage::Version(_) | Damage::Checksum | Damage::Record(_) => losses.damaged_chunks += 1,
        }
    }
    // A damaged header may have the greatest of all sequence numbers.
    losses.damaged_chunks = losses.damaged_chunks.saturating_add(session.missing_chunks);
    if let Some(end) = session.end {
        // The arena's counters hold what threads also reported, if they could.
        losses.ring_full = losses.ring_full.max(end.lost_full);
        losses.no_slot = losses.no_slot.max(end.lost_no_slot);
        losses.stopped = losses.stopped.max(end.lost_stopped);
        losses.failed_unwinds = losses.failed_unwinds.max(end.failed_unwinds);
        losses.after_end =
            losses.after_end.max(end.more.get("lost_after_end").and_then(serde_json::Value::as_u64).unwrap_or(0));
    }
}

/// Functions that the user named as allocating for others, as regular expressions.
fn wrappers(start: &SessionStart) -> Vec<String> {
    let listed = start.more.get("wrappers").and_then(serde_json::Value::as_array);
    listed.into_iter().flatten().filter_map(serde_json::Value::as_str).map(str::to_owned).collect()
}

fn meta(session: &SessionFacts<'_>, joined: &Joined, samples: u64, weight: u64) -> Meta {
    let start = session.start;
    let number = |name: &str| start.config.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let sampling = (samples > 0 || start.engine != Engine::Track).then(|| Sampling {
        period: number("sample_period"),
        rate_hz: u32::try_from(number("sample_rate_hz")).unwrap_or(u32::MAX),
        seed: number("seed"),
        samples,
        weight,
    });
    let machine_name = start.machine.get("name").and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
    Meta {
        format: Format::default(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        engine: start.engine.clone(),
        simulated: start.simulated,
        machine_name,
        machine: start.machine.clone(),
        command: start.command.clone(),
        directory: start.directory.clone(),
        start_unix_ns: start.start_unix_ns,
        duration_ns: duration_ns(session, joined),
        host_duration_ns: session.end.map_or(0, |end| end.end_monotonic_ns.saturating_sub(start.start_monotonic_ns)),
        clock: ClockInfo {
            source: match (start.simulated, start.engine.known()) {
                (true, _) => "virtual",
                (false, Some(Engine::Import)) => "recorded",
                _ if start.config.get("order").is_some_and(|order| order == "sequence") => "monotonic",
                (false, _) => "tsc",
            }
            .to_owned(),
            // A recording of another tool has stamps in nanoseconds, and does not have the frequency of the cycles of its latencies.
            khz: if start.engine == Engine::Import { 0 } else { start.clock_khz },
            order_khz: start.order_khz,
            start_order: start.start_order,
        },
        sampling,
        losses: meta_losses(&joined.losses, session),
        exits: exits(session, joined),
        interrupted: session.end.is_none(),
        host: start.host.clone(),
        config: start.config.clone(),
        native: start.more.get("native").and_then(|native| serde_json::from_value(native.clone()).ok()).flatten(),
        tables: std::collections::BTreeMap::new(),
        more: more(session),
    }
}

/// Program time up to the last record, or to the recording's end where that is known to be later.
fn duration_ns(session: &SessionFacts<'_>, joined: &Joined) -> u64 {
    session.end.and_then(|end| session.start.end_time(end)).unwrap_or_default().max(joined.end).0
}

/// Whether stacks of samples are without the Python functions that stacks of allocations show: those that Python itself names for perf begin with `py::`.
fn lacks_python(engine: Option<Engine>, locations: &[Location]) -> bool {
    let is_named_for_perf = |location: &Location| {
        location.is_generated() && location.frames.iter().any(|frame| frame.function.starts_with("py::"))
    };
    matches!(engine, Some(Engine::Fault | Engine::Pmu))
        && locations.iter().any(|location| &*location.module == Location::PYTHON)
        && !locations.iter().any(is_named_for_perf)
}

/// Adds to the notes, which reports show.
fn add_note(more: &mut serde_json::Map<String, serde_json::Value>, note: &str) {
    let notes = more.entry("notes").or_insert_with(|| serde_json::Value::Array(Vec::new()));
    if let Some(notes) = notes.as_array_mut() {
        notes.push(note.into());
    }
}

/// Facts that the recorder wrote at the end.
fn more(session: &SessionFacts<'_>) -> serde_json::Map<String, serde_json::Value> {
    let mut more = session.end.map(|end| end.more.clone()).unwrap_or_default();
    if let Some(why) = session.end.and_then(|end| end.stopped_early.clone()) {
        more.insert("stopped_early".to_owned(), why.into());
    }
    more
}

fn meta_losses(losses: &Losses, session: &SessionFacts<'_>) -> MetaLosses {
    let (problems, missing_chunks) = (&session.problems, session.missing_chunks);
    let torn = problems.iter().filter(|problem| problem.damage == Damage::TornTail).map(|problem| problem.bytes).sum();
    let more = [
        ("after_end", losses.after_end),
        ("reentrant", losses.reentrant),
        ("stack_table", losses.stack_table),
        ("truncated_stacks", losses.truncated_stacks),
        ("torn_chunks", losses.torn_chunks),
        ("unresolved_locations", losses.unresolved_locations),
        ("accesses_without_home", losses.accesses_without_home),
        ("unmatched_frees", losses.unmatched_frees),
        ("inconsistent_records", losses.inconsistent_records),
    ];
    MetaLosses {
        ring_full: losses.ring_full,
        no_slot: losses.no_slot,
        stopped: losses.stopped,
        failed_unwinds: losses.failed_unwinds,
        damaged_chunks: losses.damaged_chunks.saturating_sub(missing_chunks),
        missing_chunks,
        torn_bytes: torn,
        no_stamps: losses.no_stamps,
        unattributed_accesses: losses.accesses_without_object,
        more: more.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect(),
    }
}

/// Ends processes that were killed, and could not record it: with the last of their threads. Where the main thread is not among those that are known, others
/// may be missing, too.
fn end_killed_processes(joined: &mut Joined) {
    // By process: the last end of its threads, `None` if one has none; and whether its main thread is known.
    let mut found = vec![(Some(TimeNs(0)), false); joined.processes.len()];
    for thread in &joined.threads {
        let index = thread.process.0 as usize;
        let (Some(process), Some((last, has_main))) = (joined.processes.get(index), found.get_mut(index)) else {
            continue;
        };
        *last = last.zip(thread.end).map(|(last, end)| last.max(end));
        *has_main |= thread.tid.0 == process.pid.0;
    }
    for (process, (last, has_main)) in joined.processes.iter_mut().zip(found) {
        process.end = process.end.or(last.filter(|_| has_main));
    }
}

/// The last image of the first process, each of which replaced the one before by exec.
fn last_image(processes: &[Process]) -> ProcessIndex {
    let mut last: Option<&Process> = processes.first();
    for process in processes {
        if last.is_some_and(|last| process.by_exec && process.parent == Some(last.index) && process.pid == last.pid) {
            last = Some(process);
        }
    }
    last.map_or(ProcessIndex(0), |last| last.index)
}

fn exits(session: &SessionFacts<'_>, joined: &Joined) -> Vec<ExitInfo> {
    let wait_status = session.end.and_then(|end| end.wait_status);
    let last_image = last_image(&joined.processes);
    let rows = joined.processes.iter().zip(&joined.process_extras).map(|(process, extra)| {
        // The recorder has the exit status of the first process only: of the last program that it ran.
        let status = wait_status.filter(|_| process.index == last_image);
        let signal = status.map(|status| status & 0x7f).filter(|&signal| signal != 0);
        let code = status.filter(|_| signal.is_none()).map(|status| (status >> 8) & 0xff).or(extra.exit_code);
        ExitInfo { process: process.index.0, pid: process.pid, code: code.filter(|_| signal.is_none()), signal }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use numapilot_trace::ids::Tid;

    use super::*;
    use crate::join::ProcessExtra;
    use crate::model::{Frame, Thread};

    #[test]
    fn a_process_that_was_killed_ends_with_the_last_of_its_threads() {
        let process = |index: u32, end: Option<u64>| Process {
            index: ProcessIndex(index),
            pid: Pid(70 + index),
            end: end.map(TimeNs),
            ..Process::default()
        };
        let thread = |process: u32, tid: u32, end: Option<u64>| Thread {
            process: ProcessIndex(process),
            tid: Tid(tid),
            end: end.map(TimeNs),
            ..Thread::default()
        };
        let ended = vec![
            // It ended by itself.
            thread(0, 70, Some(9)),
            thread(1, 71, Some(5)),
            thread(1, 80, Some(7)),
            // One thread outlives the recording.
            thread(2, 72, Some(5)),
            thread(2, 81, None),
            // The main thread found no slot.
            thread(3, 82, Some(5)),
            thread(99, 83, Some(5)),
        ];
        let mut joined = Joined {
            processes: vec![
                process(0, Some(8)),
                process(1, None),
                process(2, None),
                process(3, None),
                process(4, None),
            ],
            threads: ended,
            ..Joined::default()
        };
        end_killed_processes(&mut joined);
        let ends: Vec<_> = joined.processes.iter().map(|process| process.end.map(|end| end.0)).collect();
        assert_eq!(ends, [Some(8), Some(7), None, None, None]);
        let start = |engine: Engine| SessionStart { engine: engine.into(), ..SessionStart::default() };
        let end = SessionEnd::default();
        let tells = |start: &SessionStart, end: Option<&SessionEnd>| {
            SessionFacts { start, end, problems: Vec::new(), missing_chunks: 0 }.tells_ends_of_threads()
        };
        assert!(tells(&start(Engine::Track), Some(&end)));
        assert!(!tells(&start(Engine::Track), None), "the recorder was killed");
        assert!(!tells(&start(Engine::Fault), Some(&end)), "threads without samples are unknown");
    }

    #[test]
    fn losses_that_no_recording_has_do_not_wrap_round() {
        let (start, mut losses) = (SessionStart::default(), Losses::default());
        let problem =
            Problem { path: std::path::PathBuf::new(), offset: 0, bytes: 0, damage: Damage::NoBases(u64::MAX) };
        let problems = vec![problem.clone(), problem.clone(), Problem { damage: Damage::Header, ..problem }];
        count_problems(&mut losses, &SessionFacts { start: &start, end: None, problems, missing_chunks: u64::MAX });
        assert_eq!((losses.no_stamps, losses.damaged_chunks), (u64::MAX, u64::MAX));
    }

    /// A shell that forks a helper, and becomes the program by exec; the helper becomes another program.
    #[test]
    fn the_exit_status_is_of_the_last_image_of_the_first_process() {
        let process = |index: u32, pid: u32, parent: Option<u32>, by_exec: bool| Process {
            index: ProcessIndex(index),
            pid: Pid(pid),
            parent: parent.map(ProcessIndex),
            by_exec,
            ..Process::default()
        };
        let processes = vec![
            process(0, 70, None, false),
            process(1, 71, Some(0), false),
            process(2, 71, Some(1), true),
            process(3, 70, Some(0), true),
        ];
        let mut process_extras = vec![ProcessExtra::default(); 4];
        process_extras[2].exit_code = Some(5);
        let joined = Joined { processes, process_extras, ..Joined::default() };
        let start = SessionStart::default();
        let found = |wait_status: Option<i32>| {
            let end = SessionEnd { wait_status, ..SessionEnd::default() };
            let session = SessionFacts { start: &start, end: Some(&end), problems: Vec::new(), missing_chunks: 0 };
            exits(&session, &joined).iter().map(|exit| (exit.code, exit.signal)).collect::<Vec<_>>()
        };
        let helper = (Some(5), None);
        assert_eq!(found(Some(3 << 8)), [(None, None), (None, None), helper, (Some(3), None)]);
        assert_eq!(found(Some(9)), [(None, None), (None, None), helper, (None, Some(9))]);
        assert_eq!(found(None), [(None, None), (None, None), helper, (None, None)]);
    }

    #[test]
    fn stacks_of_samples_lack_python_unless_it_names_its_functions_for_perf() {
        let location = |module: &str, function: &str| Location {
            module: module.into(),
            frames: vec![Frame { function: function.into(), ..Frame::default() }],
            ..Location::default()
        };
        let python = [location("/usr/bin/python3", "main"), location("[python]", "fill")];
        assert!(lacks_python(Some(Engine::Fault), &python) && lacks_python(Some(Engine::Pmu), &python));
        assert!(!lacks_python(Some(Engine::Emulate), &python) && !lacks_python(Some(Engine::Track), &python));
        assert!(!lacks_python(Some(Engine::Fault), &python[..1]));
        let named = [&python[..], &[location("[jit]", "py::fill:/srv/a.py")]].concat();
        assert!(!lacks_python(Some(Engine::Fault), &named));
    }
}
