//! Engine `import`: a recording that `perf record` made (`perf mem record`, `perf record -d`) becomes records of a trace.
//!
//! One pass: records are put in order of time round by round, as perf itself does, and become records of the trace (`numapilot-sampled`), which go straight
//! to the join: the recording stays where it is, so nothing is kept twice. What it does not hold stays unknown, and [`Imported::notes`]
//! says so.

mod command;
mod error;
mod events;
mod facts;
mod machine;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use numapilot_host::Tid;
use numapilot_machine::{CpuId, Machine};
use numapilot_perf::abi::kind;
use numapilot_perf::file::{FileError, Part, Walker};
use numapilot_perf::spe::interval;
use numapilot_perf::{Record, Sample, SideBand};
use numapilot_sampled::{Entry, Output, Queue, Samples, TaskSource, Tasks};
use numapilot_trace::chunk::{ChunkError, SessionEnd, SessionStart};
use numapilot_trace::output::{Existing, Pending};
use numapilot_trace::record;
use numapilot_trace::stream::RecordSource;
use numapilot_trace::wire::Clock;

use facts::Facts;

pub use error::ImportError;
pub use numapilot_sampled::Counts;

/// The trace is a CPU's, not a thread's.
const NO_TASK: Tid = Tid(u32::MAX);
/// Records handed on at once: enough that handing over costs nothing, few enough to stay in the caches.
const BATCH_RECORDS: usize = 1 << 13;

/// What to import, and where to.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The recording; `-` for standard input.
    pub input: PathBuf,
    /// Folder of the trace.
    pub output: PathBuf,
    /// What becomes of an older trace of that name.
    pub existing: Existing,
    /// A model of the machine that recorded: it takes the place of the recording's own description, which has neither latencies nor bandwidths. `None`: that
    /// description.
    pub machine: Option<Machine>,
    /// The fastest clock that the recording machine's cores can have, kHz, which no recording says. `None`: not known.
    pub core_khz_max: Option<u64>,
}

/// Result of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Counts of samples by outcome.
    pub counts: Counts,
    /// Notes for the user: what the recording lacks, and how its samples were interpreted.
    pub notes: Vec<String>,
}

/// An import under way: the records for `numapilot_flows::finalise_stream`, which writes to [`Importer::folder`]. Dropped before [`Importer::finish`], it
/// removes the trace, and an older one stays.
pub struct Importer {
    reading: Box<dyn Reading>,
    output: Pending,
    machine: Option<Machine>,
    core_khz_max: Option<u64>,
}

/// Any form of recording being read.
trait Reading: RecordSource<Error = ImportError> {
    fn imported(&self) -> Imported;
}

impl Importer {
    /// Opens a recording, and makes room for its trace.
    ///
    /// # Errors
    /// If the file cannot be read or is no sound `perf.data`, the machine that is named is another one, or the trace cannot be made.
    pub fn open(options: &ImportOptions) -> Result<Importer, ImportError> {
        let mut reading = reading(&options.input)?;
        if let Some(named) = &options.machine {
            check_machine(&reading.start()?, named)?;
        }
        let output = Pending::create(&options.output, options.existing)?;
        Ok(Importer { reading, output, machine: options.machine.clone(), core_khz_max: options.core_khz_max })
    }

    /// Where the trace is written until it is complete.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.output.folder()
    }

    /// Puts the trace, which is complete, in its place.
    ///
    /// # Errors
    /// The file system refuses, or something that is no trace has come there meanwhile.
    pub fn finish(self) -> Result<Imported, ImportError> {
        self.output.complete()?;
        Ok(self.reading.imported())
    }
}

impl RecordSource for Importer {
    type Error = ImportError;

    fn start(&mut self) -> Result<SessionStart, ImportError> {
        let mut start = self.reading.start()?;
        if let Some(named) = &self.machine {
            start.machine = serde_json::to_value(named).unwrap_or_default();
        }
        if let Some(khz) = self.core_khz_max {
            start.host.insert("core_khz_max".to_owned(), khz.into());
        }
        Ok(start)
    }

    fn read(&mut self, out: &mut Vec<record::Record>) -> Result<bool, ImportError> {
        self.reading.read(out)
    }

    fn end(&mut self) -> SessionEnd {
        self.reading.end()
    }
}

/// Refuses a model that cannot be of the recorded machine. A recording that does not describe its machine may be of any.
fn check_machine(start: &SessionStart, named: &Machine) -> Result<(), ImportError> {
    let recorded = serde_json::from_value::<Option<Machine>>(start.machine.clone()).ok().flatten();
    match recorded.and_then(|recorded| machine::difference(&recorded, named)) {
        Some(what) => Err(ImportError::OtherMachine { machine: named.name().to_owned(), what }),
        None => Ok(()),
    }
}

/// Opens a recording of any form.
fn reading(path: &Path) -> Result<Box<dyn Reading>, ImportError> {
    if path.as_os_str() == "-" {
        let walker = Walker::open_stream(std::io::stdin(), Path::new("standard input"))?;
        return Ok(Box::new(Import::new(walker, path)));
    }
    let fail = |source| ImportError::Input {
        path: path.to_owned(),
        source,
        remedy: "give the file that `perf record` wrote (perf.data, unless it was called otherwise)",
    };
    let file = File::open(path).map_err(fail)?;
    let kind = file.metadata().map_err(fail)?;
    if kind.is_dir() {
        return Ok(Box::new(Import::new(folder(path)?, path)));
    }
    let walker = if kind.is_file() { Walker::open(file, path)? } else { Walker::open_stream(file, path)? };
    Ok(Box::new(Import::new(walker, path)))
}

/// A folder that `perf record --threads` wrote: `data` says everything, `data.0`, `data.1`, ... have the records of one thread each.
fn folder(path: &Path) -> Result<Walker<File>, ImportError> {
    let open = |path: &Path| -> std::io::Result<(File, u64)> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| FileError::Io { path, offset: 0, source }
    };
    let main = path.join("data");
    if !main.is_file() {
        return Err(FileError::Folder(path.to_owned()).into());
    }
    let walker = Walker::open(open(&main).map_err(fail(&main))?.0, &main)?;
    let mut parts = Vec::new();
    for number in 0.. {
        let part = path.join(format!("data.{number}"));
        if !part.is_file() {
            break;
        }
        let (reader, length) = open(&part).map_err(fail(&part))?;
        parts.push(Part { reader, path: part, length });
    }
    Ok(walker.with_parts(parts))
}

struct Import<R> {
    walker: Walker<R>,
    queue: Queue,
    /// Records in order of time, those before `handled` handed on.
    ready: Vec<Entry>,
    handled: usize,
    is_read: bool,
    begun: Option<(Samples, SessionStart)>,
    first_bad: Option<String>,
    input: PathBuf,
    undecodable: u64,
    last_time: u64,
    /// CPUs of event ids, where the recording lists them.
    id_cpus: HashMap<u64, CpuId>,
    /// Number of the recording's build ids that [`Samples`] know.
    build_ids: usize,
    imported: Imported,
}

impl<R: Read + Send> Reading for Import<R> {
    fn imported(&self) -> Imported {
        self.imported.clone()
    }
}

impl<R: Read + Send> RecordSource for Import<R> {
    type Error = ImportError;

    fn start(&mut self) -> Result<SessionStart, ImportError> {
        loop {
            if let Some((_, start)) = &self.begun {
                return Ok(start.clone());
            }
            self.read_on()?;
        }
    }

    fn read(&mut self, out: &mut Vec<record::Record>) -> Result<bool, ImportError> {
        loop {
            while self.handled < self.ready.len() {
                let entry = self.ready[self.handled];
                self.handled += 1;
                self.handle(&entry)?;
                if self.hand_on(BATCH_RECORDS, out) {
                    return Ok(true);
                }
            }
            self.handled = 0;
            self.queue.forget(&mut self.ready);
            if self.is_read {
                self.hand_on(1, out);
                return Ok(false);
            }
            self.read_on()?;
        }
    }

    fn end(&mut self) -> SessionEnd {
        let begun = self.begun.as_ref();
        let counts = begun.map_or_else(Counts::default, |(samples, _)| samples.counts());
        let by_event = begun.map_or_else(Vec::new, |(samples, _)| samples.by_event().to_vec());
        let damage = self.walker.damage();
        let counts = Counts {
            undecodable: self.undecodable,
            aux_bytes_unread: self.queue.aux_bytes_unread(),
            damaged_places: damage.places,
            damaged_bytes: damage.bytes,
            damaged_records: damage.records,
            ..counts
        };
        // A stream may hold its feature sections anywhere; a file had them at the start.
        let facts = Facts::of(&self.walker, &self.id_cpus);
        let sampled = facts.sampled(&by_event);
        let mut notes = words::notes(&facts, (&counts, &sampled), &self.walker, self.first_bad.as_deref());
        notes.extend(words::untimed(self.queue.aux_untimed()));
        let more = [
            ("notes", serde_json::json!(notes)),
            ("import", words::counts(&counts)),
            ("sampled_events", serde_json::json!(sampled)),
            ("evidence", words::evidence(&counts, &sampled).into()),
        ];
        self.imported = Imported { counts, notes };
        SessionEnd {
            end_order: self.last_time,
            more: more.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..SessionEnd::default()
        }
    }
}

impl<R: Read> Import<R> {
    fn new(walker: Walker<R>, input: &Path) -> Import<R> {
        Import {
            walker,
            queue: Queue::default(),
            ready: Vec::new(),
            handled: 0,
            is_read: false,
            begun: None,
            first_bad: None,
            input: input.to_owned(),
            undecodable: 0,
            last_time: 0,
            id_cpus: HashMap::new(),
            build_ids: 0,
            imported: Imported::default(),
        }
    }

    /// Reads up to the next mark behind which records can be handed on, or to the end.
    fn read_on(&mut self) -> Result<(), ImportError> {
        while let Some(item) = self.walker.next()? {
            match item.header.kind {
                kind::FINISHED_ROUND => {
                    if !self.queue.has_aux() && !self.walker.has_parts() && !self.lists_tasks_at_end() {
                        return self.put_in_order(false);
                    }
                }
                kind::AUXTRACE_INFO | kind::AUXTRACE | kind::TIME_CONV | kind::ID_INDEX => self.aux()?,
                _ => {
                    let (header, offset) = (item.header, item.offset);
                    self.queue.bytes(item.body);
                    let body = self.queue.last_bytes();
                    let time = self.walker.session().peek_time(header, body);
                    self.queue.record(header, offset, time);
                }
            }
        }
        self.is_read = true;
        self.put_in_order(true)
    }

    /// Whether the processes that ran before, and their mappings, are listed behind all other records. They have time 0 all the same, and are put before
    /// them.
    fn lists_tasks_at_end(&self) -> bool {
        command::lists_tasks_at_end(&self.walker.features().command)
    }

    /// Makes everything ready that no later record can come before.
    fn put_in_order(&mut self, is_end: bool) -> Result<(), ImportError> {
        self.queue.ready(is_end, &mut self.ready);
        if self.begun.is_none() && (is_end || !self.ready.is_empty()) {
            // The trace's own time begins with the first record that has one.
            let origin = self.ready.iter().map(|entry| entry.time).find(|&time| time > 0).unwrap_or(0);
            let mut facts = Facts::of(&self.walker, &self.id_cpus);
            let least = self.queue.spe_least_interval();
            facts.places.spe_period = facts.places.spe_period.map(|period| interval(period.max(least)));
            let start = facts.session(&self.input, origin);
            self.build_ids = facts.features.build_ids.len();
            self.begun = Some((samples(facts, origin), start));
        }
        let build_ids = &self.walker.features().build_ids;
        let late = build_ids.get(self.build_ids..).unwrap_or_default();
        if let Some((samples, _)) = &mut self.begun
            && !late.is_empty()
        {
            samples.know_build_ids(late, self.last_time)?;
            self.build_ids = build_ids.len();
        }
        Ok(())
    }

    /// Hands records on if there are as many as `least`.
    fn hand_on(&mut self, least: usize, out: &mut Vec<record::Record>) -> bool {
        let Some((samples, _)) = &mut self.begun else { return false };
        let is_enough = samples.out().waiting() >= least;
        if is_enough {
            samples.out().take(out);
        }
        is_enough
    }

    fn handle(&mut self, entry: &Entry) -> Result<(), ChunkError> {
        let Some((samples, _)) = &mut self.begun else { return Ok(()) };
        self.last_time = self.last_time.max(entry.time);
        let Some(header) = entry.header else {
            if let Some(access) = self.queue.access(entry) {
                samples.access(&access, entry.time)?;
            }
            return Ok(());
        };
        let session = self.walker.session();
        let (body, mut sample) = (self.queue.body(entry), Sample::default());
        let error = if header.kind == kind::SAMPLE {
            match session.decode_sample(header, body, entry.offset, &mut sample) {
                Ok(event) => return samples.sample(event, &session.events()[event], &sample, entry.time),
                Err(error) => error,
            }
        } else {
            match session.decode_side_band(header, body, entry.offset) {
                Ok((record, id)) => return samples.side_band(&record, &id, entry.time),
                Err(error) => error,
            }
        };
        self.undecodable += 1;
        self.first_bad.get_or_insert_with(|| format!("{}: {error}", self.walker.path().display()));
        Ok(())
    }

    /// Records about AUX traces, as they stand in the file: `queue` takes the accesses in them.
    fn aux(&mut self) -> Result<(), ImportError> {
        let Some(item) = self.walker.current() else { return Ok(()) };
        match self.walker.session().decode(item.header, item.body, item.offset) {
            Ok(Record::SideBand(SideBand::Auxtrace { tid, cpu, .. }, _)) => {
                self.queue.spe(item.aux, (tid != NO_TASK).then_some(tid), None, cpu);
            }
            Ok(Record::SideBand(SideBand::AuxtraceInfo { kind, words }, _)) => {
                self.queue.aux_info(kind, &words, facts::midr(self.walker.features()));
            }
            Ok(Record::SideBand(SideBand::TimeConv { shift, multiplier, zero }, _)) => {
                self.queue.time_conversion(shift, multiplier, zero);
            }
            Ok(Record::SideBand(SideBand::IdIndex { entries }, _)) => {
                let words: Vec<u64> = entries.iter().collect();
                let known =
                    words.chunks_exact(4).filter_map(|entry| Some((entry[0], CpuId(u32::try_from(entry[2]).ok()?))));
                self.id_cpus.extend(known);
            }
            Ok(_) => {}
            Err(error) => {
                self.undecodable += 1;
                self.first_bad.get_or_insert_with(|| format!("{}: {error}", self.walker.path().display()));
            }
        }
        Ok(())
    }
}

/// What turns samples into records of a trace that begins at `origin`.
fn samples(facts: Facts, origin: u64) -> Samples {
    let clock = Clock { khz: 1_000_000, origin_cycles: origin };
    let build_ids = facts.features.build_ids.iter().map(|(id, path)| (path.clone(), id.clone())).collect();
    let tasks = Tasks::new(TaskSource { build_ids, writes_forks: true, ..TaskSource::default() });
    Samples::new(Output::kept(clock), tasks, facts.places)
}
