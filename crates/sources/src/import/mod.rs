//! Engine `import`: a recording that `perf record` made (`perf mem record`, `perf record -d`) becomes a raw trace.
//!
//! One pass: records are put in order of time round by round, as perf itself does, and become records of the trace ([`crate::sampled`]). What the
//! recording does not hold stays unknown, and is told in [`Imported::notes`].

mod facts;
mod words;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use numapilot_perf::abi::kind;
use numapilot_perf::file::{FileError, Part, Walker};
use numapilot_perf::{Record, SideBand};
use numapilot_trace::chunk::{ChunkWriter, SessionEnd, WriterOptions};
use numapilot_trace::wire::Clock;

use crate::error::SourceError;
use crate::output::{Existing, prepare};
use crate::sampled::{Entry, Output, Queue, Samples, SharedWriter, Tasks, Upbringing};
use facts::Facts;

pub use crate::sampled::Counts;

/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 20;

/// What to import, and where to.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The recording; `-` for standard input.
    pub input: PathBuf,
    /// The trace.
    pub output: PathBuf,
    /// What becomes of an older trace of that name.
    pub existing: Existing,
}

/// A recording that was imported to a raw trace.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The trace.
    pub dir: PathBuf,
    /// What became of the samples.
    pub counts: Counts,
    /// What the recording lacks and what was made of it, in sentences.
    pub notes: Vec<String>,
}

/// Imports a recording. The trace has its raw form then; `numapilot_flows::finalise` makes the tables.
///
/// # Errors
/// If the file cannot be read or is no sound `perf.data`, or the trace cannot be written. No trace is left behind then.
pub fn import(options: &ImportOptions) -> Result<Imported, SourceError> {
    let is_stream = options.input.as_os_str() == "-";
    if is_stream {
        let stdin = BufReader::with_capacity(READ_BYTES, std::io::stdin().lock());
        return Import::run(Walker::open_stream(stdin, Path::new("standard input"))?, options);
    }
    let path = &options.input;
    let fail = |source| SourceError::Output {
        path: path.clone(),
        source,
        remedy: "give the file that `perf record` wrote (perf.data, unless it was called otherwise)",
    };
    let file = File::open(path).map_err(fail)?;
    let kind = file.metadata().map_err(fail)?;
    if kind.is_dir() {
        return Import::run(folder(path)?, options);
    }
    let reader = BufReader::with_capacity(READ_BYTES, file);
    if kind.is_file() {
        Import::run(Walker::open(reader, path)?, options)
    } else {
        Import::run(Walker::open_stream(reader, path)?, options)
    }
}

/// A folder that `perf record --threads` wrote: `data` says everything, `data.0`, `data.1`, ... have the records of one thread each.
fn folder(path: &Path) -> Result<Walker<BufReader<File>>, SourceError> {
    let open = |path: &Path| -> std::io::Result<(BufReader<File>, u64)> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((BufReader::with_capacity(READ_BYTES, file), length))
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
    samples: Option<(Samples, SharedWriter)>,
    first_bad: Option<String>,
    output: PathBuf,
    input: PathBuf,
    undecodable: u64,
    last_time: u64,
    /// CPUs of event ids, where the recording lists them.
    id_cpus: HashMap<u64, u32>,
}

impl<R: Read> Import<R> {
    fn run(walker: Walker<R>, options: &ImportOptions) -> Result<Imported, SourceError> {
        prepare(&options.output, options.existing)?;
        let import = Import {
            walker,
            queue: Queue::default(),
            samples: None,
            first_bad: None,
            output: options.output.clone(),
            input: options.input.clone(),
            undecodable: 0,
            last_time: 0,
            id_cpus: HashMap::new(),
        };
        let result = import.go();
        if result.is_err() {
            crate::output::discard(&options.output);
        }
        result
    }

    fn go(mut self) -> Result<Imported, SourceError> {
        while let Some(item) = self.walker.next()? {
            match item.header.kind {
                kind::FINISHED_ROUND => {
                    if !self.queue.has_aux() && !self.walker.has_parts() {
                        self.flush(false)?;
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
        self.flush(true)?;
        self.finish()
    }

    /// Hands everything on that no later record can come before.
    fn flush(&mut self, is_end: bool) -> Result<(), SourceError> {
        let entries = self.queue.ready(is_end);
        if self.samples.is_none() && (is_end || !entries.is_empty()) {
            // The trace's own time begins with the first record that has one.
            let origin = entries.iter().map(|entry| entry.time).find(|&time| time > 0).unwrap_or(0);
            let facts = Facts::of(&self.walker, &self.id_cpus);
            self.samples = Some(begin(&self.output, &self.input, facts, origin)?);
        }
        for entry in &entries {
            self.handle(entry)?;
        }
        self.queue.forget(entries);
        Ok(())
    }

    fn handle(&mut self, entry: &Entry) -> Result<(), SourceError> {
        let Some((samples, _)) = &mut self.samples else { return Ok(()) };
        self.last_time = self.last_time.max(entry.time);
        let Some(header) = entry.header else {
            if let Some(access) = self.queue.access(entry) {
                samples.access(&access, entry.time)?;
            }
            return Ok(());
        };
        let session = self.walker.session();
        match session.decode(header, self.queue.body(entry), entry.offset) {
            Ok(Record::Sample(event, sample)) => samples.sample(event, &session.events()[event], &sample, entry.time),
            Ok(Record::SideBand(record, id)) => samples.side_band(&record, &id, entry.time),
            Err(error) => {
                self.undecodable += 1;
                self.first_bad.get_or_insert_with(|| format!("{}: {error}", self.walker.path().display()));
                Ok(())
            }
        }
    }

    /// Records about AUX traces, as they stand in the file: `queue` takes the accesses in them.
    fn aux(&mut self) -> Result<(), SourceError> {
        let Some(item) = self.walker.current() else { return Ok(()) };
        match self.walker.session().decode(item.header, item.body, item.offset) {
            Ok(Record::SideBand(SideBand::Auxtrace { tid, cpu, .. }, _)) => self.queue.spe(item.aux, tid, cpu),
            Ok(Record::SideBand(SideBand::AuxtraceInfo { kind, words }, _)) => self.queue.aux_info(kind, &words),
            Ok(Record::SideBand(SideBand::TimeConv { shift, multiplier, zero }, _)) => {
                self.queue.time_conversion(shift, multiplier, zero);
            }
            Ok(Record::SideBand(SideBand::IdIndex { entries }, _)) => {
                let words: Vec<u64> = entries.iter().collect();
                let known = words.chunks_exact(4).filter_map(|entry| Some((entry[0], u32::try_from(entry[2]).ok()?)));
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

    fn finish(self) -> Result<Imported, SourceError> {
        let Some((mut samples, writer)) = self.samples else {
            return Ok(Imported { dir: self.output, counts: Counts::default(), notes: Vec::new() });
        };
        let mut counts = samples.counts();
        counts.undecodable = self.undecodable;
        counts.aux_bytes_unread = self.queue.aux_bytes_unread();
        // A stream tells its facts anywhere; files did at the start.
        let facts = Facts::of(&self.walker, &self.id_cpus);
        let notes = words::notes(&facts, &counts, &self.walker, self.first_bad.as_deref());
        let end = SessionEnd {
            end_order: self.last_time,
            more: serde_json::Map::from_iter([
                ("notes".to_owned(), serde_json::json!(notes)),
                ("import".to_owned(), words::counts(&counts)),
            ]),
            ..SessionEnd::default()
        };
        samples.out().flush()?;
        drop(samples);
        if let Some(writer) = writer.into_inner() {
            writer.finish(&end, true)?;
        }
        Ok(Imported { dir: self.output, counts, notes })
    }
}

/// Begins the trace.
fn begin(dir: &Path, input: &Path, facts: Facts, origin: u64) -> Result<(Samples, SharedWriter), SourceError> {
    let start = facts.session(input, origin);
    let writer = SharedWriter::new(ChunkWriter::create(dir, &start, WriterOptions::default())?);
    let clock = Clock { khz: 1_000_000, origin_cycles: origin };
    let build_ids = facts.features.build_ids.iter().map(|(id, path)| (path.clone(), id.clone())).collect();
    let tasks = Tasks::new(Upbringing { build_ids, ..Upbringing::default() });
    Ok((Samples::new(Output::new(writer.clone(), clock, None), tasks, facts.places), writer))
}
