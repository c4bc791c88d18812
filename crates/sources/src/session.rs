//! The trace's files as the recorder writes them: the session's description at its start and end, and the chunks between.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use numapilot_launch::Exit;
use numapilot_launch::Target;
use numapilot_sampled::SharedWriter;
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::chunk::ChunkWriter;
use numapilot_trace::chunk::RingId;
use numapilot_trace::chunk::SessionEnd;
use numapilot_trace::chunk::SessionStart;
use numapilot_trace::chunk::WriterOptions;
use numapilot_trace::output::OutputError;
use numapilot_trace::unrecorded;
use numapilot_trace::wire::layout as wire;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::clock::HostInstant;
use crate::drain::PieceCounts;
use crate::drain::Sink;
use crate::engine::Selection;
use crate::error::SourceError;
use crate::generated;
use crate::live::News;
use crate::namespaces::Foreign;
use crate::options::RecordOptions;
use crate::options::Sampling;
use crate::order::OrderSource;
use crate::recording::Recording;
use crate::recording_host::Host;
use crate::walk::walk;

/// What is known when a recording begins.
pub struct Opening<'a, 'm> {
    /// Options of the recording.
    pub options: &'a RecordOptions<'m>,
    /// The program to record.
    pub target: &'a Target,
    /// The chosen engine.
    pub selection: &'a Selection,
    /// Configuration of the arena.
    pub config: &'a wire::Config,
    /// When the arena was created.
    pub start: HostInstant,
    /// The same moment as calendar time.
    pub start_time: SystemTime,
    /// Rate of order stamps; 0 for a sequence.
    pub order_khz: u32,
    /// Where order stamps come from.
    pub order: OrderSource,
    /// Whether the samples come from an emulated PMU.
    pub is_emulated: bool,
}

/// What is known when it has ended.
pub struct Closing<'a> {
    /// Result of the recording.
    pub recording: &'a Recording,
    /// When the arena was created.
    pub start: HostInstant,
    /// The end of the recording.
    pub end: HostInstant,
    /// Where order stamps come from.
    pub order: OrderSource,
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

fn lossy(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

impl Opening<'_, '_> {
    fn session(&self) -> SessionStart {
        let simulated = self.selection.engine.is_simulated();
        let refusals: Vec<Value> = self
            .selection
            .refusals
            .iter()
            .map(|r| json!({ "engine": r.engine, "reason": r.reason, "remedy": r.remedy }))
            .collect();
        SessionStart {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: self.selection.engine.into(),
            command: lossy(&self.options.command),
            directory: std::env::current_dir().map(|d| d.to_string_lossy().into_owned()).unwrap_or_default(),
            start_unix_ns: self
                .start_time
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
            start_monotonic_ns: self.start.monotonic_ns,
            start_order: self.start.order,
            order_khz: self.order_khz,
            clock_khz: self.config.clock_khz,
            clock_origin_cycles: match (simulated, self.order) {
                (true, _) => 0,
                (false, OrderSource::Sequence) => self.start.monotonic_ns,
                (false, _) => self.start.order,
            },
            simulated: simulated || self.is_emulated,
            machine: serde_json::to_value(self.options.machine).unwrap_or(Value::Null),
            config: object(self.config()),
            host: object(serde_json::to_value(Host::read()).unwrap_or(Value::Null)),
            more: object(json!({
                "program": self.target.binary.path.to_string_lossy(),
                "script": self.target.script.as_ref().map(|s| s.to_string_lossy()),
                "refusals": refusals,
                "native": self.options.native,
                "wrappers": self.options.wrappers,
            })),
        }
    }

    fn config(&self) -> Value {
        let (options, config) = (self.options, self.config);
        let nodes = config.node_count as usize;
        let latency: Vec<&[u16]> = config.memory_latency_cycles[..nodes].iter().map(|row| &row[..nodes]).collect();
        let (period, rate_hz) = match options.sampling {
            Sampling::Period(period) => (Some(period), None),
            Sampling::RateHz(rate) => (None, Some(rate)),
        };
        json!({
            "order": self.order.name(),
            "bind": options.bind.name(),
            "placement": options.placement.name(),
            "cpus": &config.cpu_order[..config.cpu_count as usize],
            "sample_period": period,
            "sample_rate_hz": rate_hz,
            "seed": config.seed,
            "window_cycles": config.window_cycles,
            "cycles_per_access": f64::from(config.cycles_per_access_q8) / 256.0,
            "max_stack_depth": config.max_stack_depth,
            "line_sampling": config.line_sampling,
            "ring_bytes": options.ring_bytes,
            "slots": options.slots,
            "l1_lines": config.l1_lines,
            "private_sets": config.l2_sets,
            "private_ways": config.l2_ways,
            "l3_sets": config.l3_sets,
            "l3_ways": config.l3_ways,
            "l3_count": config.l3_count,
            "l2_cycles": config.l2_cycles,
            "l3_cycles": config.l3_cycles,
            "core_window_accesses": config.core_window,
            "core_outstanding_misses": config.core_misses,
            "memory_latency_cycles": latency,
        })
    }
}

/// The trace's chunk files, open for writing.
pub struct TraceFiles {
    writer: SharedWriter,
    news: Option<Arc<News>>,
}

impl TraceFiles {
    /// Creates them in the empty folder `dir` and writes the session's start.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(dir: &Path, opening: &Opening<'_, '_>) -> Result<TraceFiles, SourceError> {
        let writer = ChunkWriter::create(dir, &opening.session(), WriterOptions::default()).map_err(|e| OutputError::Refused {
            path: dir.to_owned(),
            source: std::io::Error::other(e.to_string()),
            remedy: "check the folder's permissions and space, or give another place with `--output NAME.numatrace`",
        })?;
        Ok(TraceFiles { writer: SharedWriter::new(writer), news: None })
    }

    /// The files, for others to write to as well.
    pub fn writer(&self) -> SharedWriter {
        self.writer.clone()
    }

    /// Passes the tracker's announcements of threads to a receiver.
    pub fn tell(&mut self, news: Arc<News>) {
        self.news = Some(news);
    }

    /// Adds what the processes generated of code while they ran, in a recording that began so long ago, at `start` by its order stamps (`None`: these are no
    /// time). Returns what is to be told.
    ///
    /// # Errors
    /// The system refuses.
    pub fn add_generated(
        &self,
        wall_time: Duration,
        start: Option<HostInstant>,
        foreign: &Foreign,
    ) -> Result<Vec<String>, ChunkError> {
        generated::add(&self.writer, wall_time, start, foreign)
    }

    /// Writes the session's end. After a failed write the file ends in a torn chunk, and no end is written: readers then know.
    ///
    /// # Errors
    /// The system refuses.
    pub fn finish(self, closing: &Closing<'_>) -> Result<(), ChunkError> {
        let recording = closing.recording;
        let end = SessionEnd {
            end_monotonic_ns: closing.end.monotonic_ns,
            end_order: closing.end.order,
            wait_status: Some(match recording.exit {
                Exit::Code(code) => (code & 0xff) << 8,
                Exit::Signal(signal) => signal & 0x7f,
            }),
            lost_no_slot: recording.losses.no_slot,
            lost_full: recording.losses.ring_full,
            lost_stopped: recording.losses.stopped,
            failed_unwinds: recording.losses.failed_unwinds,
            stopped_early: recording.stopped.as_ref().map(ToString::to_string),
            more: object(json!({
                "order_khz": closing.end.khz_since(&closing.start).filter(|_| closing.order != OrderSource::Sequence),
                "records": recording.records,
                "samples": recording.samples,
                "bytes": recording.bytes,
                "threads": recording.threads,
                "discarded_bytes": recording.losses.discarded_bytes,
                "lost_after_end": recording.losses.after_end,
                "quarantined_slots": recording.losses.quarantined_slots,
                "wall_ns": u64::try_from(recording.wall_time.as_nanos()).unwrap_or(u64::MAX),
                "program_ns": u64::try_from(recording.program_time.as_nanos()).unwrap_or(u64::MAX),
                "notes": recording.notes,
                "events": recording.events,
                "processor_time": recording.processor_times,
                (unrecorded::KEY): recording.unrecorded_program,
            })),
        };
        match self.writer.into_inner() {
            Some(writer) => writer.finish(&end, false),
            // Somebody still writes: the missing end says so.
            None => Ok(()),
        }
    }
}

impl Sink for TraceFiles {
    type Error = ChunkError;

    /// A piece has waited in its ring long enough, so it becomes a chunk (or several) at once.
    fn append(&mut self, ring: RingId, piece: &[u8]) -> Result<PieceCounts, ChunkError> {
        let walked = walk(piece);
        let good = &piece[..walked.good_bytes];
        if let Some(news) = &self.news {
            news.piece(ring, good);
        }
        let mut writer = self.writer.lock();
        let before = writer.bytes_written();
        if !good.is_empty() {
            writer.append(ring, good)?;
            writer.flush_ring(ring)?;
        }
        Ok(PieceCounts {
            records: walked.records,
            samples: walked.samples,
            bad_bytes: (piece.len() - walked.good_bytes) as u64,
            disk_bytes: writer.bytes_written() - before,
            thread: walked.thread,
            is_ended: walked.is_ended,
        })
    }

    fn close(&mut self, ring: RingId) -> Result<(), ChunkError> {
        if let Some(news) = &self.news {
            news.closed(ring);
        }
        self.writer.lock().close_ring(ring)
    }
}
