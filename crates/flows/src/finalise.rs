//! From records to tables: decode, join, symbolise, write.
//!
//! Each step has a thread: one reads the records (or decodes and merges the raw form, which the second then does as well), one joins, one puts batches of
//! accesses in order of time and encodes them. Memory: some million accesses, the live objects and one row per object.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use numapilot_symbols::Unresolved;
use numapilot_trace::chunk::{Damage, Problem, RawTrace, SessionEnd, SessionStart};
use numapilot_trace::meta::{ClockInfo, ExitInfo, Format, Losses as MetaLosses, META_FILE, Meta, Sampling};
use numapilot_trace::record::Record;
use numapilot_trace::stream::RecordSource;
use numapilot_trace::tables::{AccessColumns, AccessRow, Durability, FolderLock, Table, TraceWriter};

use crate::error::{FlowError, StreamError};
use crate::instrumentation::{self, Instrumentation};
use crate::join::{Conventions, Joined, JoinedAccess, Joiner};
use crate::rows;
use crate::symbolise::{ElfLayouts, Names, resolve};
use crate::ties;
use crate::trace::Losses;

/// Accesses that travel to the writer at once.
const BATCH_ROWS: usize = 1 << 16;
/// Batches of records that wait for the join.
const WAITING_BATCHES: usize = 2;
/// Accesses in a row group.
const GROUP_ROWS: usize = numapilot_trace::tables::schema::ROWS_PER_GROUP;

/// What became of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Sampled accesses: rows of `accesses`.
    pub samples: u64,
    /// Memory accesses that they stand for.
    pub accesses: u64,
    /// Object instances.
    pub objects: u64,
    /// Threads.
    pub threads: u64,
    /// Processes.
    pub processes: u64,
    /// Distinct code addresses that were looked up.
    pub locations: u64,
    /// The recorder was killed before the end.
    pub interrupted: bool,
    /// What got lost.
    pub losses: Losses,
    /// What of the programs was instrumented; `None` for engines that need no instrumentation.
    pub instrumentation: Option<Instrumentation>,
}

/// What finalising is at, for a progress display: the step, and records done so far.
pub type Progress<'a> = &'a mut dyn FnMut(&'static str, u64);

/// Makes the tables and `meta.json` of the recording in `dir` (`NAME.numatrace`) from its `raw/`. Existing tables are replaced.
///
/// # Errors
/// If there is no readable raw form, or the tables cannot be written (a full disk). There is no `meta.json` then.
pub fn finalise(dir: &Path) -> Result<Summary, FlowError> {
    finalise_with(dir, &mut |_, _| {})
}

/// [`finalise`], with a call every now and then that tells how far it is.
///
/// # Errors
/// As [`finalise`].
pub fn finalise_with(dir: &Path, progress: Progress<'_>) -> Result<Summary, FlowError> {
    finalise_under(FolderLock::take(dir), dir, progress)
}

/// Makes the tables if there are none, as [`finalise`] does. False: another process made them meanwhile.
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
    // The program does not run twice: what was recorded must outlive a loss of power.
    let made = make((lock, Durability::Synced), dir, raw.start(), &mut *progress, |feed| {
        let mut merge = raw.merge();
        for record in &mut merge {
            if !feed.push(record?) {
                break;
            }
        }
        problems.extend_from_slice(merge.problems());
        Ok::<_, FlowError>(())
    })?;
    let missing_chunks = raw.missing_chunks();
    let told = Told { start: raw.start(), end: raw.end(), problems, missing_chunks };
    made.finish(&told, progress)
}

/// Makes the tables and `meta.json` in `dir`, which is made if it is not there, of a recording that is read piece by piece. There is no raw form then.
///
/// # Errors
/// The source's own, or the tables cannot be written (a full disk). There is no `meta.json` then.
pub fn finalise_stream<S: RecordSource>(dir: &Path, source: &mut S) -> Result<Summary, StreamError<S::Error>> {
    let start = source.start().map_err(StreamError::Source)?;
    let made = make((FolderLock::take(dir), Durability::Written), dir, &start, &mut |_, _| {}, |feed| {
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel::<Vec<Record>>(WAITING_BATCHES);
            let (give_back, empties) = channel::<Vec<Record>>();
            let from = &mut *source;
            let reader = scope.spawn(move || read_all(from, sender, &empties));
            for mut batch in receiver {
                if !batch.iter().all(|record| feed.record(record)) {
                    break;
                }
                batch.clear();
                // The reader fills it again, or has ended.
                let _ = give_back.send(batch);
            }
            reader.join().map_err(|_| StreamError::Flow(FlowError::Worker(dir.to_path_buf())))?
        })
    })?;
    let end = source.end();
    let told = Told { start: &start, end: Some(&end), problems: Vec::new(), missing_chunks: 0 };
    Ok(made.finish(&told, &mut |_, _| {})?)
}

fn read_all<S: RecordSource>(
    source: &mut S,
    sender: SyncSender<Vec<Record>>,
    empties: &Receiver<Vec<Record>>,
) -> Result<(), StreamError<S::Error>> {
    loop {
        let mut batch = empties.try_recv().unwrap_or_default();
        let has_more = source.read(&mut batch).map_err(StreamError::Source)?;
        // A join that is gone has failed, and says so itself.
        if sender.send(batch).is_err() || !has_more {
            return Ok(());
        }
    }
}

/// What a recording tells beside its records.
struct Told<'a> {
    start: &'a SessionStart,
    /// `None`: the recorder was killed.
    end: Option<&'a SessionEnd>,
    problems: Vec<Problem>,
    missing_chunks: u64,
}

/// The table of accesses, written, and what the other tables are made of.
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
    start: &SessionStart,
    progress: Progress<'_>,
    work: impl FnOnce(&mut Feed<'_>) -> Result<(), E>,
) -> Result<Made, E> {
    let writer = TraceWriter::create(lock, durability).map_err(FlowError::from)?;
    let table = writer.open::<AccessColumns>().map_err(FlowError::from)?;
    let (sender, receiver) = sync_channel::<AccessColumns>(4);
    let (give_back, empties) = channel::<AccessColumns>();
    let (joined, written) = std::thread::scope(|scope| {
        let encoder = scope.spawn(move || write_accesses(table, &receiver, &give_back));
        let mut feed = Feed::new(start, sender, empties, progress);
        let joined = work(&mut feed).map(|()| feed.finish());
        (joined, encoder.join())
    });
    let (table, samples, weight) = written.map_err(|_| FlowError::Worker(dir.to_path_buf()))??;
    let joined = joined?;
    let mut made = Made { writer, joined, samples, weight };
    made.writer.close(table).map_err(FlowError::from)?;
    Ok(made)
}

impl Made {
    /// Writes the other tables and `meta.json`.
    fn finish(self, told: &Told<'_>, progress: Progress<'_>) -> Result<Summary, FlowError> {
        let Made { mut writer, mut joined, samples, weight } = self;
        progress("symbols", 0);
        let names = resolve(&joined);
        joined.losses.unresolved_locations = names.unresolved.values().sum();
        count_problems(&mut joined.losses, told);
        progress("tables", 0);
        rows::write_tables(&mut writer, &joined, &names, &told.problems)?;
        let mut meta = meta(told, &joined, samples, weight);
        meta.more.insert("unresolved".to_owned(), unresolved(&names));
        if meta.engine == "instrument" {
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

/// Takes records into the join, and hands its accesses to the writer.
struct Feed<'a> {
    joiner: Joiner<ElfLayouts>,
    batch: AccessColumns,
    sender: SyncSender<AccessColumns>,
    empties: Receiver<AccessColumns>,
    progress: Progress<'a>,
    records: u64,
    /// Records of one stamp.
    tied: Vec<Record>,
}

impl<'a> Feed<'a> {
    fn new(
        start: &SessionStart,
        sender: SyncSender<AccessColumns>,
        empties: Receiver<AccessColumns>,
        progress: Progress<'a>,
    ) -> Feed<'a> {
        let conventions = match start.engine.as_str() {
            "instrument" | "emulate" => {
                Conventions { ip_is_return_address: true, infers_first_touch: true, accesses_are_faults: false }
            }
            // Samples of the hardware point at the instruction, and the first one of a page is hardly the first access.
            "import" | "pmu" => Conventions::SAMPLED,
            "fault" => Conventions { accesses_are_faults: true, ..Conventions::SAMPLED },
            _ => Conventions { infers_first_touch: true, ..Conventions::SAMPLED },
        };
        let joiner = Joiner::new(ElfLayouts::default(), conventions, start.start_order);
        let mut batch = AccessColumns::default();
        batch.reserve(BATCH_ROWS);
        Feed { joiner, batch, sender, empties, progress, records: 0, tied: Vec::new() }
    }

    /// Takes a record, which waits until no other of its stamp can come. False: as [`Feed::record`].
    fn push(&mut self, record: Record) -> bool {
        let is_tied = self.tied.first().is_none_or(|first| first.stamp.order == record.stamp.order);
        let more = (is_tied && self.tied.len() < ties::TIED_MAX) || self.settle();
        self.tied.push(record);
        more
    }

    /// Takes what waits.
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

    /// Takes a record. False: the writer has failed, and nothing more is of use; its error is reported when it is joined.
    #[inline]
    fn record(&mut self, record: &Record) -> bool {
        self.records += 1;
        let batch = &mut self.batch;
        self.joiner.push(record, &mut |access: &JoinedAccess| push_row(batch, access));
        batch.len() < BATCH_ROWS || self.hand_on()
    }

    fn hand_on(&mut self) -> bool {
        (self.progress)("join", self.records);
        let mut next = self.empties.try_recv().unwrap_or_default();
        next.reserve(BATCH_ROWS);
        self.sender.send(std::mem::replace(&mut self.batch, next)).is_ok()
    }

    fn finish(mut self) -> Joined {
        self.settle();
        let _ = self.sender.send(self.batch);
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

type Written = (numapilot_trace::tables::TableWriter<AccessColumns>, u64, u64);

/// Writes accesses in row groups, in order of time. Threads' clocks differ by little at any moment, so it is enough to hold one row
/// group back: what comes later is later (a straggler beyond that is out of order in the file; readers sort).
fn write_accesses(
    mut table: numapilot_trace::tables::TableWriter<AccessColumns>,
    receiver: &Receiver<AccessColumns>,
    empties: &Sender<AccessColumns>,
) -> Result<Written, FlowError> {
    let mut sorter = rows::TimeSorter::default();
    let (mut samples, mut weight) = (0u64, 0u64);
    for mut batch in receiver {
        samples += batch.len() as u64;
        weight += batch.weight.iter().map(|&weight| u64::from(weight)).sum::<u64>();
        sorter.take(&mut batch);
        // The other thread fills it again, or has ended.
        let _ = empties.send(batch);
        if sorter.len() >= 2 * GROUP_ROWS {
            sorter.first(GROUP_ROWS, |columns, rows| table.append_rows(columns, rows))?;
        }
    }
    while sorter.len() > 0 {
        sorter.first(GROUP_ROWS, |columns, rows| table.append_rows(columns, rows))?;
    }
    Ok((table, samples, weight))
}

fn count_problems(losses: &mut Losses, told: &Told<'_>) {
    for problem in &told.problems {
        match problem.damage {
            Damage::TornTail => losses.torn_chunks += 1,
            Damage::NoBases(records) => losses.inconsistent_records += records,
            Damage::Header | Damage::Version(_) | Damage::Checksum | Damage::Record(_) => losses.damaged_chunks += 1,
        }
    }
    losses.damaged_chunks += told.missing_chunks;
    if let Some(end) = told.end {
        // The arena's counters hold what threads also reported, if they could.
        losses.ring_full = losses.ring_full.max(end.lost_full);
        losses.no_slot = losses.no_slot.max(end.lost_no_slot);
        losses.stopped = losses.stopped.max(end.lost_stopped);
        losses.failed_unwinds = losses.failed_unwinds.max(end.failed_unwinds);
        losses.after_end = end.more.get("lost_after_end").and_then(serde_json::Value::as_u64).unwrap_or(0);
    }
}

fn meta(told: &Told<'_>, joined: &Joined, samples: u64, weight: u64) -> Meta {
    let start = told.start;
    let number = |name: &str| start.config.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let sampling = (samples > 0 || start.engine != "track").then(|| Sampling {
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
        duration_ns: duration_ns(told, joined),
        host_duration_ns: told.end.map_or(0, |end| end.end_monotonic_ns.saturating_sub(start.start_monotonic_ns)),
        clock: ClockInfo {
            source: match (start.simulated, start.engine.as_str()) {
                (true, _) => "virtual",
                (false, "import") => "recorded",
                _ if start.config.get("order").is_some_and(|order| order == "sequence") => "monotonic",
                (false, _) => "tsc",
            }
            .to_owned(),
            // A recording of another tool has nanoseconds for stamps, and does not tell how long a cycle of its latencies is.
            khz: if start.engine == "import" { 0 } else { start.clock_khz },
            order_khz: start.order_khz,
            start_order: start.start_order,
        },
        sampling,
        losses: meta_losses(&joined.losses, told),
        exits: exits(told, joined),
        interrupted: told.end.is_none(),
        host: start.host.clone(),
        config: start.config.clone(),
        native: start.more.get("native").and_then(|native| serde_json::from_value(native.clone()).ok()).flatten(),
        tables: std::collections::BTreeMap::new(),
        more: more(told),
    }
}

/// Program time: to the last record. An imported recording went on to its own last one, which need not have become a record here; its stamps are nanoseconds.
fn duration_ns(told: &Told<'_>, joined: &Joined) -> u64 {
    let end = told.end.filter(|_| told.start.engine == "import");
    end.map_or(0, |end| end.end_order.saturating_sub(told.start.start_order)).max(joined.end.0)
}

/// Code addresses without a name: in which binary how many, and why.
fn unresolved(names: &Names) -> serde_json::Value {
    let rows = names.unresolved.iter().map(|((module, why), count)| {
        serde_json::json!({ "module": &**module, "why": why.to_string(), "remedy": remedy(module, *why), "count": count })
    });
    rows.collect()
}

fn remedy(module: &str, why: Unresolved) -> String {
    match why {
        Unresolved::NoFile => "keep the binaries where they were; generated code has no names".to_owned(),
        Unresolved::NotElf | Unresolved::OtherBuild => "keep the recorded binary, or record again".to_owned(),
        Unresolved::NoSymbol => numapilot_symbols::advice(module),
    }
}

/// What the recorder said at the end.
fn more(told: &Told<'_>) -> serde_json::Map<String, serde_json::Value> {
    let mut more = told.end.map(|end| end.more.clone()).unwrap_or_default();
    if let Some(why) = told.end.and_then(|end| end.stopped_early.clone()) {
        more.insert("stopped_early".to_owned(), why.into());
    }
    more
}

fn meta_losses(losses: &Losses, told: &Told<'_>) -> MetaLosses {
    let (problems, missing_chunks) = (&told.problems, told.missing_chunks);
    let torn = problems.iter().filter(|problem| problem.damage == Damage::TornTail).map(|problem| problem.bytes).sum();
    let no_stamps =
        problems.iter().map(|problem| if let Damage::NoBases(records) = problem.damage { records } else { 0 }).sum();
    let more = [
        ("after_end", losses.after_end),
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
        no_stamps,
        unattributed_accesses: losses.accesses_without_object,
        more: more.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect(),
    }
}

fn exits(told: &Told<'_>, joined: &Joined) -> Vec<ExitInfo> {
    let wait_status = told.end.and_then(|end| end.wait_status);
    let rows = joined.processes.iter().zip(&joined.process_extras).map(|(process, extra)| {
        // The recorder waited for the first process only.
        let status = wait_status.filter(|_| process.index.0 == 0);
        let signal = status.map(|status| status & 0x7f).filter(|&signal| signal != 0);
        let code = status.filter(|_| signal.is_none()).map(|status| (status >> 8) & 0xff).or(extra.exit_code);
        ExitInfo { process: process.index.0, pid: process.pid, code: code.filter(|_| signal.is_none()), signal }
    });
    rows.collect()
}

/// Strings that tables share.
pub(crate) fn empty() -> Arc<str> {
    Arc::from("")
}
