//! Opens a trace: reads its tables into flows in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::available_parallelism;

use numapilot_host::VirtAddr;
use numapilot_host::workers;
use numapilot_machine::{CpuId, NodeId};
use numapilot_trace::chunk::{Activity, RAW_FOLDER, activity};
use numapilot_trace::ids::{ObjectId, Pid, ProcessIndex, StackId, ThreadIndex, Tid, TimeNs};
use numapilot_trace::meta::{META_FILE, Meta};
use numapilot_trace::name;
use numapilot_trace::record::Counters;
use numapilot_trace::tables::{
    AccessColumns, CounterColumns, FrameColumns, HomeCounterColumns, MarkColumns, ObjectColumns, PlacementColumns,
    ProcessColumns, StackColumns, SyncColumns, Table, TableError, TableReader, ThreadColumns, TraceReader,
};

use crate::access::Accesses;
use crate::error::FlowError;
use crate::finalise::finalise_if_missing;
use crate::model::{
    CountersAt, Frame, Location, LocationId, Object, ObjectKind, Placement, PlacementCause, Process, Site, SiteId,
    Thread, Wait,
};
use crate::rows::{alloc_kind_from_name, sample_from_row};
use crate::sizes::{self, HeapPeak, Life, SiteSize, Span, keep_within_processes};
use crate::trace::{Losses, Tables, Trace};

/// Highest stack id that is accepted. Ids are consecutive, so a higher one means damage.
const STACKS_MAX: u32 = 1 << 26;
/// Most ids without a stack that are accepted: those of stacks that were lost, or that have frames of numapilot only. Each takes 24 bytes, and one row can
/// claim any id.
const STACKS_MISSING_MAX: usize = 1 << 23;
const LOCATIONS_MAX: u32 = 1 << 26;
const NODES_MAX: u16 = 4096;
/// Most totals by home node that are accepted without a row, of nodes below one that has a row, which can claim any node: 512 MB of them, or
/// [`HOMES_MISSING_PER_READING`] for each reading of counters, of which a machine with so many nodes has no more.
const HOMES_MISSING_MAX: usize = 1 << 26;
const HOMES_MISSING_PER_READING: usize = 256;
/// Latest end of a recording, in nanoseconds: after 146 years. A later one means damage, and sums of times could wrap round.
const END_MAX: TimeNs = TimeNs(1 << 62);
/// Most threads that read accesses.
const READERS_MAX: usize = 4;
/// Most memory that the row groups take which these threads hold, in bytes: some 90 MB each as the writer makes them, up to six times as much in other
/// files.
const HELD_BYTES_MAX: u64 = 256 << 20;

impl Trace {
    /// Opens `NAME.numatrace`; the extension may be omitted. If the tables are missing because the recorder was killed, this first makes them from `raw/`,
    /// and [`Trace::was_rebuilt`] is then true.
    ///
    /// # Errors
    /// If `dir` does not exist, is not a trace, is still being recorded, has a newer format, or is damaged.
    pub fn open(dir: &Path) -> Result<Trace, FlowError> {
        let dir = &name::find(dir);
        let mut was_rebuilt = false;
        if !dir.join(META_FILE).exists() {
            if !dir.join(RAW_FOLDER).is_dir() {
                // What cannot be looked at (a folder without rights above it) is not called absent.
                return Err(match dir.try_exists() {
                    Ok(false) => FlowError::NoSuchPath(dir.to_path_buf()),
                    _ => FlowError::NotATrace(dir.to_path_buf()),
                });
            }
            refuse_unfinished(dir)?;
            was_rebuilt = finalise_if_missing(dir)?;
        }
        let reader = TraceReader::open(dir)?;
        let meta = reader.meta().clone();
        let tables = read_tables(dir, &reader, &meta)?;
        let mut trace = Trace::from_tables(tables);
        trace.set_origin(meta, was_rebuilt);
        Ok(trace)
    }
}

/// Fails if the trace is still being recorded: the part recorded so far is arbitrary, so its figures would mislead, and its tables would remain.
fn refuse_unfinished(dir: &Path) -> Result<(), FlowError> {
    let path = dir.to_path_buf();
    match activity(dir) {
        Activity::Ended => Ok(()),
        Activity::Recording(recorder) => Err(FlowError::StillRecording { path, recorder }),
        Activity::Unknown(recorder) => Err(FlowError::MayBeRecording { path, recorder }),
    }
}

fn read_tables(dir: &Path, reader: &TraceReader, meta: &Meta) -> Result<Tables, FlowError> {
    let inconsistent = |why: String| FlowError::Inconsistent { path: dir.to_path_buf(), why };
    let accesses = read_accesses(dir, reader)?;
    let object_columns: ObjectColumns = reader.read()?;
    let lives = lives(&object_columns);
    let processes_of = object_columns.process.clone();
    let (objects, sites) = objects(object_columns).map_err(inconsistent)?;
    let counters = counters(reader.read()?, reader.read()?, HOMES_MISSING_MAX).map_err(inconsistent)?;
    let thread_columns: ThreadColumns = reader.read()?;
    let process_columns: ProcessColumns = reader.read()?;
    let lives = (lives, processes_of);
    let (site_sizes, heap_peak) = sizes(lives, &thread_columns, &process_columns, &sites);
    let threads = threads(thread_columns, &counters).map_err(inconsistent)?;
    let marks: MarkColumns = reader.read()?;
    let tables = Tables {
        accesses,
        objects,
        sites,
        site_sizes,
        heap_peak,
        threads,
        processes: processes(process_columns).map_err(inconsistent)?,
        locations: locations(reader.read()?).map_err(inconsistent)?,
        stacks: stacks(reader.read()?).map_err(inconsistent)?,
        counters,
        placements: placements(reader.read()?),
        waits: waits(reader.read()?),
        marks: marks.rows().map(|mark| (TimeNs(mark.time_ns), mark.text.to_string())).collect(),
        end: end(meta),
        losses: losses(meta),
    };
    tables.accesses.check(tables.objects.len(), tables.threads.len()).map_err(inconsistent)?;
    Ok(tables)
}

fn read_accesses(dir: &Path, reader: &TraceReader) -> Result<Accesses, FlowError> {
    let table = reader.table::<AccessColumns>()?;
    let rows = table.rows();
    if rows >= u64::from(u32::MAX) {
        return Err(FlowError::TooLarge { path: dir.to_path_buf(), rows });
    }
    let readers = readers(available_parallelism().map_or(1, usize::from), table.largest_group_bytes());
    read_groups(dir, table, readers)
}

/// As many threads as may read accesses: each holds a row group.
fn readers(cpus: usize, largest_group_bytes: u64) -> usize {
    let held = HELD_BYTES_MAX / largest_group_bytes.max(1);
    cpus.min(READERS_MAX).min(usize::try_from(held).unwrap_or(READERS_MAX))
}

/// Reads the row groups of accesses by this many threads, and puts them together in the file's order. This thread reads what is the share of threads that
/// the system refuses.
fn read_groups(dir: &Path, mut table: TableReader<AccessColumns>, readers: usize) -> Result<Accesses, FlowError> {
    let mut accesses = Accesses::default();
    let groups = table.groups();
    let readers = readers.min(groups);
    if readers < 2 {
        while let Some(group) = table.next_group()? {
            accesses.append(&group);
        }
        return Ok(accesses);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(readers);
        let mut receivers = Vec::with_capacity(readers);
        for first in 0..readers {
            // Nothing waits in the channel, so that a thread is one row group ahead at most.
            let (sender, receiver) = sync_channel(0);
            let table = table.another();
            let Some(thread) = workers::start(scope, move || send_groups(table, (first, readers, groups), &sender))
            else {
                break;
            };
            threads.push(thread);
            receivers.push(receiver);
        }
        let mut result = Ok(accesses);
        for number in 0..groups {
            let Ok(accesses) = &mut result else { break };
            let group = match receivers.get(number % readers) {
                Some(receiver) => receiver.recv().map(|group| group.map(Some)),
                None => Ok(table.group(number)),
            };
            match group {
                Ok(Ok(group)) => group.iter().for_each(|group| accesses.append(group)),
                Ok(Err(error)) => result = Err(FlowError::from(error)),
                // The thread has ended without a word: it panicked.
                Err(_) => result = Err(FlowError::Worker(dir.to_path_buf())),
            }
        }
        // Threads that have something left end when nobody takes it.
        drop(receivers);
        for thread in threads {
            if thread.join().is_err() {
                result = Err(FlowError::Worker(dir.to_path_buf()));
            }
        }
        result
    })
}

/// Reads every `step`th row group of `groups` from `first` on.
fn send_groups(
    mut table: TableReader<AccessColumns>,
    (first, step, groups): (usize, usize, usize),
    sender: &SyncSender<Result<AccessColumns, TableError>>,
) {
    for number in (first..groups).step_by(step) {
        let Some(group) = table.group(number).transpose() else { return };
        // If nobody takes it, another thread's error is returned.
        if sender.send(group).is_err() {
            return;
        }
    }
}

/// Fails unless ids count from 0, row by row.
fn check_ids(table: &str, ids: &[u32]) -> Result<(), String> {
    match ids.iter().enumerate().find(|&(row, &id)| row as u32 != id) {
        None => Ok(()),
        Some((row, id)) => Err(format!("row {row} of `{table}` has number {id}")),
    }
}

fn objects(columns: ObjectColumns) -> Result<(Vec<Object>, Vec<Site>), String> {
    check_ids("objects", &columns.object)?;
    let mut sites: Vec<Option<Site>> = Vec::new();
    let mut objects = Vec::with_capacity(columns.len());
    // Whole rows would copy seven shared texts for each object, and a site has many objects.
    for row in 0..columns.len() {
        let (object, site) = (columns.object[row], columns.site[row]);
        let index = site as usize;
        if index > columns.len() {
            return Err(format!("object {object} has site {site}, more than there can be"));
        }
        if index >= sites.len() {
            sites.resize(index + 1, None);
        }
        sites[index].get_or_insert_with(|| Site {
            kind: ObjectKind::from_word(&columns.kind[row]).unwrap_or_default(),
            name: columns.name[row].clone(),
            function: columns.site_function[row].clone(),
            file: columns.site_file[row].clone(),
            line: columns.site_line[row],
            module: columns.module[row].clone(),
        });
        let alloc_kind = columns.alloc_kind[row].as_deref();
        objects.push(Object {
            id: ObjectId(object),
            site: SiteId(site),
            process: ProcessIndex(columns.process[row]),
            address: VirtAddr(columns.address[row]),
            bytes: columns.bytes[row],
            birth: TimeNs(columns.birth_ns[row]),
            death: columns.death_ns[row].map(TimeNs),
            thread: columns.thread[row].map(ThreadIndex),
            cpu: columns.cpu[row].map(CpuId),
            node: columns.node[row].map(NodeId),
            stack: StackId(columns.stack[row]),
            alloc_kind: alloc_kind.and_then(alloc_kind_from_name),
            death_thread: columns.death_thread[row].map(ThreadIndex),
            sample: sample_from_row(alloc_kind, columns.sample_interval_bytes[row]),
        });
    }
    Ok((objects, sites.into_iter().map(Option::unwrap_or_default).collect()))
}

/// Birth, death and size of each object, by order stamps.
fn lives(columns: &ObjectColumns) -> Vec<Life> {
    let rows = columns.site.iter().zip(&columns.bytes).zip(columns.birth_order.iter().zip(&columns.death_order));
    let rows = rows.zip(&columns.kind);
    rows.map(|(((&site, &bytes), (&birth, &death)), kind)| {
        let is_block = ObjectKind::from_word(kind) == Some(ObjectKind::Heap);
        Life { site, is_block, bytes, birth, death }
    })
    .collect()
}

/// Memory that the objects of each site take, and the heap's peak. Objects of a process that has ended are live until the last event recorded of it.
fn sizes(
    (mut lives, process_of): (Vec<Life>, Vec<u32>),
    threads: &ThreadColumns,
    processes: &ProcessColumns,
    sites: &[Site],
) -> (Vec<SiteSize>, HeapPeak) {
    let ended = processes.end_ns.iter().map(Option::is_some);
    let mut spans: Vec<Span> = ended.map(|ended| Span { ended, ..Span::default() }).collect();
    let starts = threads.start_order.iter().zip(&threads.end_order);
    for (&process, (&start, &end)) in threads.process.iter().zip(starts) {
        let Some(span) = spans.get_mut(process as usize) else { continue };
        span.first = if span.first == 0 { start } else { span.first.min(start) };
        span.last = span.last.max(end.unwrap_or(start));
    }
    for (life, &process) in lives.iter().zip(&process_of) {
        let Some(span) = spans.get_mut(process as usize) else { continue };
        span.last = span.last.max(life.death.unwrap_or(life.birth));
    }
    keep_within_processes(&mut lives, &process_of, &spans);
    sizes::sizes(&lives, &process_of, sites)
}

fn threads(columns: ThreadColumns, counters: &[CountersAt]) -> Result<Vec<Thread>, String> {
    check_ids("threads", &columns.thread)?;
    let mut last: BTreeMap<ThreadIndex, &Counters> = BTreeMap::new();
    for at in counters {
        last.insert(at.thread, &at.totals);
    }
    let rows = columns.rows().map(|row| Thread {
        index: ThreadIndex(row.thread),
        process: ProcessIndex(row.process),
        tid: Tid(row.tid),
        name: row.name,
        start_function: row.start_function,
        parent: row.parent.map(ThreadIndex),
        cpu: row.cpu.map(CpuId),
        node: row.node.map(NodeId),
        start: TimeNs(row.start_ns),
        end: row.end_ns.map(TimeNs),
        stack_object: row.stack_object.map(ObjectId),
        counters: last.get(&ThreadIndex(row.thread)).map(|&totals| totals.clone()),
    });
    Ok(rows.collect())
}

fn processes(columns: ProcessColumns) -> Result<Vec<Process>, String> {
    check_ids("processes", &columns.process)?;
    let rows = columns.rows().map(|row| Process {
        index: ProcessIndex(row.process),
        pid: Pid(row.pid),
        parent: row.parent.map(ProcessIndex),
        by_exec: row.by_exec,
        exe: row.exe,
        arguments: serde_json::from_str(&row.arguments).unwrap_or_default(),
        start: TimeNs(row.start_ns),
        end: row.end_ns.map(TimeNs),
    });
    Ok(rows.collect())
}

fn locations(columns: FrameColumns) -> Result<Vec<Location>, String> {
    let mut locations = vec![Location { frames: vec![Frame::default()], ..Location::default() }];
    for row in columns.rows() {
        let index = row.location as usize;
        if row.location > LOCATIONS_MAX || index > locations.len() {
            return Err(format!("`frames` has location {} after {}", row.location, locations.len() - 1));
        }
        if index == locations.len() {
            locations.push(Location { module: row.module, offset: row.offset, frames: Vec::with_capacity(1) });
        }
        locations[index].frames.push(Frame {
            function: row.function,
            file: row.file,
            line: row.line,
            column: row.column,
            inlined: row.is_inlined,
        });
    }
    Ok(locations)
}

fn stacks(columns: StackColumns) -> Result<Vec<Vec<LocationId>>, String> {
    let mut stacks: Vec<Vec<LocationId>> = vec![Vec::new()];
    let mut present = 0;
    for (row, (&stack, &location)) in columns.stack.iter().zip(&columns.location).enumerate() {
        let id = stack as usize;
        if stack > STACKS_MAX || id.saturating_sub(present) > STACKS_MISSING_MAX {
            return Err(format!(
                "row {row} of `stacks` has stack {stack}, more than there can be after {present} stacks"
            ));
        }
        present += usize::from(stacks.get(id).is_none_or(Vec::is_empty));
        if stacks.len() <= stack as usize {
            stacks.resize(stack as usize + 1, Vec::new());
        }
        stacks[stack as usize].push(LocationId(location));
    }
    Ok(stacks)
}

fn counters(
    columns: CounterColumns,
    by_home: HomeCounterColumns,
    missing_max: usize,
) -> Result<Vec<CountersAt>, String> {
    let mut rows: Vec<CountersAt> = columns
        .rows()
        .map(|row| CountersAt {
            time: TimeNs(row.time_ns),
            thread: ThreadIndex(row.thread),
            node: row.node.map(NodeId),
            totals: Counters {
                accesses: row.accesses,
                l2_lookups: row.l2_lookups,
                l3_lookups: row.l3_lookups,
                memory_accesses: row.memory_accesses,
                cache_transfers: row.cache_transfers,
                memory_writes: row.memory_writes,
                wait_cycles: row.wait_cycles,
                by_home: Vec::new(),
                memory_cycles: row.memory_cycles,
                memory_streamed: row.memory_streamed,
                memory_dependent: row.memory_dependent,
            },
        })
        .collect();
    // Both tables are in the same order; a row without accesses has no rows in the second.
    let mut next = 0;
    let mut missing_left = missing_max.max(HOMES_MISSING_PER_READING.saturating_mul(rows.len()));
    for (number, home) in by_home.rows().enumerate() {
        let key = (home.time_ns, home.thread, home.node);
        let matches = |row: &CountersAt| (row.time.0, row.thread.0, row.node.map(|node| node.0)) == key;
        while next < rows.len() && !matches(&rows[next]) {
            next += 1;
        }
        let Some(row) = rows.get_mut(next).filter(|_| home.home < NODES_MAX) else {
            return Err(format!("`counters_by_home` has a row at {} ns that `counters` has not", home.time_ns));
        };
        let by_home = &mut row.totals.by_home;
        let missing = usize::from(home.home).saturating_sub(by_home.len());
        missing_left = missing_left.checked_sub(missing).ok_or_else(|| {
            format!("row {number} of `counters_by_home` has node {}, and too many lower nodes have no row", home.home)
        })?;
        by_home.resize(by_home.len().max(usize::from(home.home) + 1), 0);
        by_home[usize::from(home.home)] = home.memory_accesses;
    }
    Ok(rows)
}

fn placements(columns: PlacementColumns) -> Vec<Placement> {
    let rows = columns.rows().map(|row| Placement {
        time: TimeNs(row.time_ns),
        thread: ThreadIndex(row.thread),
        address: VirtAddr(row.address),
        pages: row.pages,
        node: NodeId(row.node),
        cause: PlacementCause::from_word(&row.cause),
        object: row.object.map(ObjectId),
    });
    rows.collect()
}

fn waits(columns: SyncColumns) -> Vec<Wait> {
    let rows = columns.rows().map(|row| Wait {
        thread: ThreadIndex(row.thread),
        kind: row.kind,
        object: row.object,
        began: TimeNs(row.began_ns),
        ended: TimeNs(row.ended_ns),
    });
    rows.collect()
}

fn end(meta: &Meta) -> TimeNs {
    TimeNs(meta.duration_ns).min(END_MAX)
}

/// Number of records that an import could not read.
fn unread(meta: &Meta) -> u64 {
    let import = meta.more.get("import");
    let count =
        |name: &str| import.and_then(|import| import.get(name)).and_then(serde_json::Value::as_u64).unwrap_or(0);
    count("lost_records").saturating_add(count("undecodable_records")).saturating_add(count("damaged_places"))
}

fn losses(meta: &Meta) -> Losses {
    let losses = &meta.losses;
    let more = |name: &str| losses.more.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    Losses {
        ring_full: losses.ring_full,
        no_slot: losses.no_slot,
        stopped: losses.stopped,
        after_end: more("after_end"),
        reentrant: more("reentrant"),
        no_stamps: losses.no_stamps,
        stack_table: more("stack_table"),
        damaged_chunks: losses.damaged_chunks.saturating_add(losses.missing_chunks),
        torn_chunks: more("torn_chunks"),
        failed_unwinds: losses.failed_unwinds,
        truncated_stacks: more("truncated_stacks"),
        unresolved_locations: more("unresolved_locations"),
        accesses_without_object: losses.unattributed_accesses,
        accesses_without_home: more("accesses_without_home"),
        unmatched_frees: more("unmatched_frees"),
        inconsistent_records: more("inconsistent_records"),
        unread: unread(meta),
    }
}

#[cfg(test)]
mod tests {
    //! Accesses that several threads read, and stacks and nodes with numbers that cannot be.

    use numapilot_trace::tables::{AccessRow, CounterRow, HomeCounterRow, StackRow, TableWriter};

    use super::*;

    /// A damaged `meta.json` ended the program, or hid the losses.
    #[test]
    fn counts_and_times_that_no_recording_has_do_not_wrap_round() {
        let mut meta = Meta { duration_ns: u64::MAX, ..Meta::default() };
        meta.losses.damaged_chunks = u64::MAX;
        meta.losses.missing_chunks = 2;
        assert_eq!(losses(&meta).damaged_chunks, u64::MAX);
        assert!(losses(&meta).records_lost());
        assert_eq!(end(&meta), END_MAX);
        assert_eq!(end(&Meta { duration_ns: 7, ..meta }), TimeNs(7));
    }

    /// A table of seven row groups of different lengths: its file.
    fn table(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("accesses.parquet");
        let mut table = TableWriter::<AccessColumns>::create(&path).unwrap();
        let mut time = 0;
        for rows in [3, 1, 4, 1, 5, 9, 2] {
            let mut columns = AccessColumns::default();
            for _ in 0..rows {
                time += 1;
                columns.push(AccessRow { time_ns: time, address: 0x1000 * time, weight: 1, ..AccessRow::default() });
            }
            table.append(&columns).unwrap();
        }
        table.finish(numapilot_trace::tables::Durability::Written).unwrap();
        path
    }

    #[test]
    fn accesses_are_in_the_files_order_however_many_threads_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = table(folder.path());
        for readers in 1..9 {
            let table = TableReader::<AccessColumns>::open(&path).unwrap();
            assert_eq!(table.groups(), 7);
            let accesses = read_groups(folder.path(), table, readers).unwrap();
            let found: Vec<(u64, u64)> = accesses.iter().map(|access| (access.time.0, access.address.0)).collect();
            let expected: Vec<(u64, u64)> = (1..26).map(|time| (time, 0x1000 * time)).collect();
            assert_eq!(found, expected, "{readers} readers");
        }
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = table(folder.path());
        let opened = TableReader::<AccessColumns>::open(&path).unwrap();
        let other = tempfile::tempdir().unwrap();
        let mut columns = AccessColumns::default();
        columns.push(AccessRow { time_ns: 99, ..AccessRow::default() });
        let mut another = TableWriter::<AccessColumns>::create(&other.path().join("accesses.parquet")).unwrap();
        (0..7).for_each(|_| another.append(&columns).unwrap());
        another.finish(numapilot_trace::tables::Durability::Written).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(other.path().join("accesses.parquet"), &path).unwrap();
        let accesses = read_groups(folder.path(), opened, 3).unwrap();
        assert!(accesses.iter().map(|access| access.time.0).eq(1..26));
    }

    #[test]
    fn a_stack_far_beyond_the_others_is_refused_before_memory_is_taken_for_those_between() {
        let table = |ids: &[u32]| {
            let mut columns = StackColumns::default();
            ids.iter().for_each(|&stack| columns.push(StackRow { stack, location: 7, ..StackRow::default() }));
            columns
        };
        let read = stacks(table(&[1, 1, 5])).unwrap();
        assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0, 0, 0, 1]);
        for stack in [STACKS_MAX, u32::MAX, STACKS_MISSING_MAX as u32 + 2] {
            let error = stacks(table(&[1, 1, stack])).unwrap_err();
            assert_eq!(error, format!("row 2 of `stacks` has stack {stack}, more than there can be after 1 stacks"));
        }
    }

    #[test]
    fn totals_of_nodes_far_beyond_the_others_are_refused_before_memory_is_taken_for_those_between() {
        let read = |homes: &[u16], missing_max| {
            let (mut readings, mut by_home) = (CounterColumns::default(), HomeCounterColumns::default());
            for (time_ns, &home) in (0..).zip(homes) {
                readings.push(CounterRow { time_ns, ..CounterRow::default() });
                by_home.push(HomeCounterRow { time_ns, home, memory_accesses: 7, ..HomeCounterRow::default() });
            }
            counters(readings, by_home, missing_max)
        };
        let lengths = |read: Vec<CountersAt>| read.iter().map(|at| at.totals.by_home.len()).collect::<Vec<_>>();
        // A machine whose highest node is 255 may have readings of that node alone.
        assert_eq!(lengths(read(&[255, 255, 255], 0).unwrap()), [256, 256, 256]);
        assert_eq!(lengths(read(&[4095, 4095], 2 * 4095).unwrap()), [4096, 4096]);
        let error = read(&[4095, 4095], 2 * 4095 - 1).unwrap_err();
        assert_eq!(error, "row 1 of `counters_by_home` has node 4095, and too many lower nodes have no row");
    }

    #[test]
    fn a_damaged_row_group_is_an_error_whoever_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = table(folder.path());
        let opened = TableReader::<AccessColumns>::open(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // What comes behind the first bytes is gone.
        file.set_len(8).unwrap();
        for readers in [1, 3] {
            let error = read_groups(folder.path(), opened.another(), readers).unwrap_err();
            assert!(matches!(error, FlowError::Table(_)), "{readers} readers: {error}");
        }
    }

    #[test]
    fn as_many_threads_read_as_their_row_groups_fit() {
        let folder = tempfile::tempdir().unwrap();
        let opened = TableReader::<AccessColumns>::open(&table(folder.path())).unwrap();
        let row = opened.largest_group_bytes() / 9;
        assert!((50..150).contains(&row), "{row} bytes per access");
        assert_eq!(readers(2, 9 * row), 2);
        assert_eq!(readers(64, 9 * row), READERS_MAX);
        let as_written = (numapilot_trace::tables::schema::ROWS_PER_GROUP as u64) * row;
        assert!((2..=READERS_MAX).contains(&readers(64, as_written)));
        assert!(readers(64, 16 * as_written) < 2, "1.5 GB each");
        assert_eq!(readers(64, 0), READERS_MAX);
    }
}
