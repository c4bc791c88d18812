//! From the raw form to tables: decode, join, symbolise, write.
//!
//! Two threads: one decodes, merges and joins, the other puts batches of accesses in order of time and encodes them. Memory: some
//! million accesses, the live objects and one row per object.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use numapilot_trace::chunk::{Damage, Problem, RawTrace};
use numapilot_trace::meta::{ClockInfo, ExitInfo, Format, Losses as MetaLosses, Meta, Sampling};
use numapilot_trace::tables::{AccessColumns, AccessRow, Table, TraceWriter};

use crate::error::FlowError;
use crate::join::{Conventions, Joined, JoinedAccess, Joiner};
use crate::rows;
use crate::symbolise::{ElfLayouts, Names, resolve};
use crate::trace::Losses;

/// Accesses that travel to the writer at once.
const BATCH_ROWS: usize = 1 << 16;
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
    let raw = RawTrace::open(dir)?;
    let mut writer = TraceWriter::create(dir)?;
    let table = writer.open::<AccessColumns>()?;
    let (sender, receiver) = sync_channel::<AccessColumns>(4);
    let (give_back, empties) = channel::<AccessColumns>();
    let (joined, written) = std::thread::scope(|scope| {
        let encoder = scope.spawn(move || write_accesses(table, &receiver, &give_back));
        let joined = join_all(&raw, sender, &empties, progress);
        (joined, encoder.join())
    });
    let (table, samples, weight) = written.map_err(|_| FlowError::Worker(dir.to_path_buf()))??;
    let (mut joined, problems) = joined?;
    writer.close(table)?;
    progress("symbols", 0);
    let names = resolve(&joined);
    joined.losses.unresolved_locations = names.unresolved;
    count_problems(&mut joined.losses, &raw, &problems);
    progress("tables", 0);
    rows::write_tables(&mut writer, &joined, &names, &problems)?;
    let meta = meta(&raw, &joined, &problems, samples, weight);
    let interrupted = meta.interrupted;
    writer.finish(meta)?;
    Ok(summary(&joined, &names, (samples, weight), interrupted))
}

fn summary(joined: &Joined, names: &Names, (samples, accesses): (u64, u64), interrupted: bool) -> Summary {
    Summary {
        samples,
        accesses,
        objects: joined.objects.len() as u64,
        threads: joined.threads.len() as u64,
        processes: joined.processes.len() as u64,
        locations: names.locations.len() as u64,
        interrupted,
        losses: joined.losses.clone(),
    }
}

/// Feeds every record to the join and its accesses to the writer.
fn join_all(
    raw: &RawTrace,
    sender: SyncSender<AccessColumns>,
    empties: &Receiver<AccessColumns>,
    progress: Progress<'_>,
) -> Result<(Joined, Vec<Problem>), FlowError> {
    let conventions = match raw.start().engine.as_str() {
        "instrument" | "emulate" => {
            Conventions { ip_is_return_address: true, infers_first_touch: true, accesses_are_faults: false }
        }
        // Samples of the hardware point at the instruction, and the first one of a page is hardly the first access.
        "import" | "pmu" => Conventions::SAMPLED,
        "fault" => Conventions { accesses_are_faults: true, ..Conventions::SAMPLED },
        _ => Conventions { infers_first_touch: true, ..Conventions::SAMPLED },
    };
    let mut joiner = Joiner::new(ElfLayouts::default(), conventions, raw.start().start_order);
    let mut batch = AccessColumns::default();
    batch.reserve(BATCH_ROWS);
    let mut records = 0u64;
    let mut merge = raw.merge();
    for record in &mut merge {
        let record = record?;
        records += 1;
        joiner.push(&record, &mut |access: &JoinedAccess| push_row(&mut batch, access));
        if batch.len() >= BATCH_ROWS {
            progress("join", records);
            let mut next = empties.try_recv().unwrap_or_default();
            next.reserve(BATCH_ROWS);
            // A writer that is gone has failed; its error is reported when it is joined.
            if sender.send(std::mem::replace(&mut batch, next)).is_err() {
                break;
            }
        }
    }
    let _ = sender.send(batch);
    let problems = raw.problems().iter().chain(merge.problems()).cloned().collect();
    Ok((joiner.finish(), problems))
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
            table.append(sorter.first(GROUP_ROWS))?;
        }
    }
    while sorter.len() > 0 {
        table.append(sorter.first(GROUP_ROWS))?;
    }
    Ok((table, samples, weight))
}

fn count_problems(losses: &mut Losses, raw: &RawTrace, problems: &[Problem]) {
    for problem in problems {
        match problem.damage {
            Damage::TornTail => losses.torn_chunks += 1,
            Damage::NoBases(records) => losses.inconsistent_records += records,
            Damage::Header | Damage::Version(_) | Damage::Checksum | Damage::Record(_) => losses.damaged_chunks += 1,
        }
    }
    losses.damaged_chunks += raw.missing_chunks();
    if let Some(end) = raw.end() {
        // The arena's counters hold what threads also reported, if they could.
        losses.ring_full = losses.ring_full.max(end.lost_full);
        losses.no_slot = losses.no_slot.max(end.lost_no_slot);
        losses.stopped = losses.stopped.max(end.lost_stopped);
        losses.failed_unwinds = losses.failed_unwinds.max(end.failed_unwinds);
    }
}

fn meta(raw: &RawTrace, joined: &Joined, problems: &[Problem], samples: u64, weight: u64) -> Meta {
    let start = raw.start();
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
        duration_ns: joined.end.0,
        host_duration_ns: raw.end().map_or(0, |end| end.end_monotonic_ns.saturating_sub(start.start_monotonic_ns)),
        clock: ClockInfo {
            source: match (start.simulated, start.engine.as_str()) {
                (true, _) => "virtual",
                (false, "import") => "recorded",
                (false, _) => "tsc",
            }
            .to_owned(),
            // A recording of another tool has nanoseconds for stamps, and does not tell how long a cycle of its latencies is.
            khz: if start.engine == "import" { 0 } else { start.clock_khz },
            order_khz: start.order_khz,
            start_order: start.start_order,
        },
        sampling,
        losses: meta_losses(&joined.losses, raw, problems),
        exits: exits(raw, joined),
        interrupted: raw.end().is_none(),
        host: start.host.clone(),
        config: start.config.clone(),
        tables: std::collections::BTreeMap::new(),
        more: more(raw),
    }
}

/// What the recorder said at the end.
fn more(raw: &RawTrace) -> serde_json::Map<String, serde_json::Value> {
    let mut more = raw.end().map(|end| end.more.clone()).unwrap_or_default();
    if let Some(why) = raw.end().and_then(|end| end.stopped_early.clone()) {
        more.insert("stopped_early".to_owned(), why.into());
    }
    more
}

fn meta_losses(losses: &Losses, raw: &RawTrace, problems: &[Problem]) -> MetaLosses {
    let torn = problems.iter().filter(|problem| problem.damage == Damage::TornTail).map(|problem| problem.bytes).sum();
    let no_stamps =
        problems.iter().map(|problem| if let Damage::NoBases(records) = problem.damage { records } else { 0 }).sum();
    let more = [
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
        damaged_chunks: losses.damaged_chunks.saturating_sub(raw.missing_chunks()),
        missing_chunks: raw.missing_chunks(),
        torn_bytes: torn,
        no_stamps,
        unattributed_accesses: losses.accesses_without_object,
        more: more.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect(),
    }
}

fn exits(raw: &RawTrace, joined: &Joined) -> Vec<ExitInfo> {
    let wait_status = raw.end().and_then(|end| end.wait_status);
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
