//! `meta.json`: what is known about a recording as a whole. Written last; its presence means that the tables are complete.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Engine, RecordedBy};
use crate::ids::Pid;
use crate::native::Native;

/// Name of the file in the trace's folder.
pub const META_FILE: &str = "meta.json";
/// The field that says of what an import's samples are evidence.
const EVIDENCE: &str = "evidence";
/// Major version of the format that this build writes. It increases when tables or columns change in meaning or are removed.
pub const FORMAT_MAJOR: u32 = 1;
/// Minor version of the format that this build writes. It increases when tables or columns are added.
pub const FORMAT_MINOR: u32 = 3;
/// Largest `meta.json` that is read, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// An error while reading or writing a `meta.json`.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `read`, `write`.
        action: &'static str,
        /// File.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not JSON, or is not the `meta.json` of a trace.
    #[error("{}: {why}. If the trace has a raw/ folder, delete meta.json and open the trace again to rebuild it", path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// What is wrong, with line and column.
        why: String,
    },
    /// The trace has another major version of the format.
    #[error(
        "{} has trace format {found}, and this numapilot reads {FORMAT_MAJOR}: open it with numapilot {tool} or newer", path.display()
    )]
    Version {
        /// File.
        path: PathBuf,
        /// Its major version.
        found: u64,
        /// Version of the tool that wrote it.
        tool: String,
    },
}

/// The content of `meta.json`. Fields that this build does not know are kept in `more`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the format.
    pub format: Format,
    /// Version of the tool that wrote the tables.
    pub tool_version: String,
    /// The engine that recorded.
    pub engine: RecordedBy,
    /// Whether machine, program time and home nodes are simulated (true) or were measured (false).
    pub simulated: bool,
    /// Name of the machine.
    #[serde(default)]
    pub machine_name: String,
    /// The machine in its JSON form.
    #[serde(default)]
    pub machine: Value,
    /// The recorded program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Working directory of the recording.
    #[serde(default)]
    pub directory: String,
    /// Start: nanoseconds since 1970, UTC.
    #[serde(default)]
    pub start_unix_ns: u64,
    /// Program time from start to end, ns.
    #[serde(default)]
    pub duration_ns: u64,
    /// Host time from start to end, ns.
    #[serde(default)]
    pub host_duration_ns: u64,
    /// Clock of the stamps: source and frequencies.
    #[serde(default)]
    pub clock: ClockInfo,
    /// How accesses were sampled; `None`: no accesses.
    #[serde(default)]
    pub sampling: Option<Sampling>,
    /// What was lost, counted by cause.
    #[serde(default)]
    pub losses: Losses,
    /// How each process ended.
    #[serde(default)]
    pub exits: Vec<ExitInfo>,
    /// The recorder was killed before the end, so later events are missing.
    #[serde(default)]
    pub interrupted: bool,
    /// Facts about the host (kernel, CPU, memory).
    #[serde(default)]
    pub host: Map<String, Value>,
    /// Settings of the recording.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Run times of the program without call-outs, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// Rows, size and checksum of each table's file.
    #[serde(default)]
    pub tables: BTreeMap<String, TableInfo>,
    /// Fields that this build does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How the recorded machine relates to the machine that the trace describes. [`Meta::origin`] determines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Machine, program time and home nodes are simulated.
    #[default]
    Simulated,
    /// The program was recorded on the machine that the trace describes.
    Measured,
    /// The program was recorded on a host that the trace does not describe: `--machine` named a model, and the engine does not simulate it.
    OtherHost,
}

impl Origin {
    /// The words that reports show behind the machine's name.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Origin::Simulated => "simulated",
            Origin::Measured => "real hardware",
            Origin::OtherHost => "a model that was not simulated: the program ran on the recording host as it is",
        }
    }
}

/// A version of the trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Major version: increases when older readers would misread a trace.
    pub major: u32,
    /// Minor version: increases when tables or columns are added.
    #[serde(default)]
    pub minor: u32,
}

impl Default for Format {
    fn default() -> Format {
        Format { major: FORMAT_MAJOR, minor: FORMAT_MINOR }
    }
}

/// The clock of a recording's stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockInfo {
    /// "virtual" (of the simulated machine), "tsc", or "monotonic" (nanoseconds).
    pub source: String,
    /// Frequency of cycles (latencies, waits), kHz.
    pub khz: u32,
    /// Frequency of `order` ticks, kHz; 0: unknown.
    pub order_khz: u32,
    /// Order stamp at the start of the recording; subtracted from every `order` column.
    pub start_order: u64,
}

/// How accesses were sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// Accesses per sample; 0: adapted to `rate_hz`.
    pub period: u64,
    /// Target rate: samples per second of program time.
    pub rate_hz: u32,
    /// Seed of the random intervals.
    pub seed: u64,
    /// Samples in the trace.
    pub samples: u64,
    /// Accesses that the samples represent: the sum of their weights.
    pub weight: u64,
}

/// What was lost, in records unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Records dropped because a ring stayed full.
    pub ring_full: u64,
    /// Records dropped because no slot was free for a thread.
    pub no_slot: u64,
    /// Records not written because recording had stopped.
    pub stopped: u64,
    /// Call stacks that are incomplete because unwinding failed.
    pub failed_unwinds: u64,
    /// Chunks that are damaged.
    pub damaged_chunks: u64,
    /// Chunks that were written and are missing.
    pub missing_chunks: u64,
    /// Bytes of an incomplete last chunk.
    pub torn_bytes: u64,
    /// Records whose stamps are unknown.
    pub no_stamps: u64,
    /// Sampled accesses that no object covers.
    pub unattributed_accesses: u64,
    /// Counts that this build does not know, by name.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitInfo {
    /// Process number.
    pub process: u32,
    /// Kernel's process id.
    pub pid: Pid,
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal that killed it, if one did.
    pub signal: Option<i32>,
}

/// Size and checksum of a table's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    /// Number of rows.
    pub rows: u64,
    /// File size, bytes.
    pub bytes: u64,
    /// CRC-32 (IEEE) of the file.
    pub crc32: u32,
}

/// What a trace's samples are evidence of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Memory accesses, at known rates.
    Accesses,
    /// Page faults: first touches, and later uses at rates that do not measure memory traffic.
    PageFaults,
    /// Nothing about memory: an imported recording of other events (cycles, instructions).
    Other,
}

impl Evidence {
    /// Its name in `meta.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Accesses => "accesses",
            Evidence::PageFaults => "page-faults",
            Evidence::Other => "none",
        }
    }
}

/// Bytes of a base page of the host whose facts these are; 4096 where they do not say.
#[must_use]
pub fn base_page_bytes(host: &Map<String, Value>) -> u64 {
    let told = host.get("page_bytes").and_then(Value::as_u64);
    told.filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes)).unwrap_or(4096)
}

impl Meta {
    /// Bytes of a base page of the recorded memory: 4096 on simulated machines, and where the recording does not say.
    #[must_use]
    pub fn base_page_bytes(&self) -> u64 {
        if self.simulated { 4096 } else { base_page_bytes(&self.host) }
    }

    /// What the samples are evidence of. If it is not [`Evidence::Accesses`], no figure about accesses is known.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let told = self.more.get(EVIDENCE).and_then(Value::as_str);
        match (self.engine.known(), told) {
            (Some(Engine::Fault), _) | (Some(Engine::Import), Some("page-faults")) => Evidence::PageFaults,
            (Some(Engine::Import), Some("none")) => Evidence::Other,
            _ => Evidence::Accesses,
        }
    }

    /// This without what describes the recording at length (its machine, host, command, settings, how its processes ended): a hundred kilobytes or more, which
    /// readers of many traces have no use for. [`Meta::evidence`] stays what it was; [`Meta::origin`] and [`Meta::latency_khz`] do not.
    #[must_use]
    pub fn brief(self) -> Meta {
        let Meta { format, tool_version, engine, simulated, duration_ns, interrupted, tables, mut more, .. } = self;
        let evidence = more.remove(EVIDENCE);
        let more = evidence.map(|told| (EVIDENCE.to_owned(), told)).into_iter().collect();
        Meta { format, tool_version, engine, simulated, duration_ns, interrupted, tables, more, ..Meta::default() }
    }

    /// Whether it is not known for how many accesses most samples stand, because a clock chose them (in a recording of perf, or by IBS of the oldest Opterons):
    /// each counts as one then, and shares are sound, but no rate is.
    #[must_use]
    pub fn rates_are_unknown(&self) -> bool {
        let counts = self.more.get("import").or_else(|| self.more.get("events"));
        let count = |name: &str| counts.and_then(|counts| counts.get(name)).and_then(Value::as_u64).unwrap_or(0);
        count("of_unknown_weight") > count("accesses") / 2
    }

    /// Whether the recorded machine is simulated, is the machine that the trace describes, or is another one.
    #[must_use]
    pub fn origin(&self) -> Origin {
        // "source" as the machine crate writes it: {"live": ..}, {"recording": ..}, {"model": ..}, "builtin". A trace without a machine claims none.
        let is_of_host = |source: &Value| source.get("live").is_some() || source.get("recording").is_some();
        match self.machine.get("source") {
            _ if self.simulated => Origin::Simulated,
            // An import is given the machine on which its samples were taken.
            Some(source) if self.engine != Engine::Import && !is_of_host(source) => Origin::OtherHost,
            _ => Origin::Measured,
        }
    }

    /// Name of the recording host's processor, where that is another one than the described machine's although nothing was simulated: times, homes and
    /// latencies are then of that host. Empty: nobody knows which one it was. `None`: they are of one kind.
    #[must_use]
    pub fn other_processor(&self) -> Option<&str> {
        let host = self.host.get("cpu_model").and_then(Value::as_str).unwrap_or("");
        let model = self.machine.get("cpu_model").and_then(Value::as_str).unwrap_or("");
        (self.origin() == Origin::OtherHost && (host.is_empty() || host != model)).then_some(host)
    }

    /// The frequency in kHz of the cycles in which latencies are given; `None` where it is not known. A model's are of its own clock. A processor's are
    /// core cycles, and `clock.khz` is the rate of its time counter: on x86 these agree but for turbo, on Arm the counter ticks at 25 MHz or 1 GHz, whatever
    /// the core does. Of an import it is that of its times, which are nanoseconds: there the machine's description says how
    /// fast the cores are, or nobody.
    #[must_use]
    pub fn latency_khz(&self) -> Option<u32> {
        if self.engine == Engine::Import && !self.simulated {
            let mhz = self.machine.get("clock_mhz").and_then(Value::as_f64);
            return mhz.filter(|mhz| *mhz > 0.0).map(|mhz| (mhz * 1000.0) as u32);
        }
        let arch = self.host.get("arch").and_then(Value::as_str).unwrap_or("x86_64");
        Some(self.clock.khz).filter(|khz| *khz > 0 && (self.simulated || arch == "x86_64"))
    }

    /// Reads `folder/meta.json`.
    ///
    /// # Errors
    /// If it cannot be read, is not the `meta.json` of a trace, or is of another major version.
    pub fn read(folder: &Path) -> Result<Meta, MetaError> {
        let path = folder.join(META_FILE);
        let io = |action| move |source| MetaError::Io { action, path: folder.join(META_FILE), source };
        let bytes = std::fs::metadata(&path).map_err(io("read"))?.len();
        if bytes > MAX_BYTES {
            return Err(MetaError::Malformed { path, why: format!("{bytes} bytes are too many for a meta.json") });
        }
        let text = std::fs::read(&path).map_err(io("read"))?;
        Meta::parse(&text, &path)
    }

    /// Reads the content of a `meta.json`; `path` is for messages.
    ///
    /// # Errors
    /// If it is not the `meta.json` of a trace, or is of another major version.
    pub fn parse(text: &[u8], path: &Path) -> Result<Meta, MetaError> {
        let malformed = |why: String| MetaError::Malformed { path: path.to_path_buf(), why };
        let value: Value = serde_json::from_slice(text).map_err(|error| malformed(format!("not JSON: {error}")))?;
        // The version first: a newer format may differ in everything else.
        let major = value.pointer("/format/major").and_then(Value::as_u64);
        let major = major.ok_or_else(|| malformed("it has no format.major, so it is not a numapilot trace".into()))?;
        if major != u64::from(FORMAT_MAJOR) {
            let tool = value.get("tool_version").and_then(Value::as_str).unwrap_or("of that version").to_owned();
            return Err(MetaError::Version { path: path.to_path_buf(), found: major, tool });
        }
        serde_json::from_value(value).map_err(|error| malformed(error.to_string()))
    }

    /// Writes `folder/meta.json`: under a temporary name, synced, renamed, and the folder synced.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), MetaError> {
        let path = folder.join(META_FILE);
        let temporary = folder.join(format!("{META_FILE}.{}.tmp", std::process::id()));
        let io = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| MetaError::Io { action, path, source }
        };
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| MetaError::Malformed { path: path.clone(), why: error.to_string() })?;
        text.push(b'\n');
        let mut file = std::fs::File::create(&temporary).map_err(io("create", &temporary))?;
        file.write_all(&text).map_err(io("write", &temporary))?;
        file.sync_all().map_err(io("sync", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(io("rename", &temporary))?;
        let directory = std::fs::File::open(folder).map_err(io("open", folder))?;
        directory.sync_all().map_err(io("sync", folder))
    }
}

#[cfg(test)]
mod tests {
    //! What a recording says of the machine that it was made on.

    use serde_json::json;

    use super::*;

    #[test]
    fn latencies_of_arm_are_not_of_its_counter() {
        let meta = |arch: &str, simulated, khz| {
            let host = json!({ "arch": arch }).as_object().cloned().unwrap_or_default();
            Meta { simulated, host, clock: ClockInfo { khz, ..Default::default() }, ..Meta::default() }.latency_khz()
        };
        assert_eq!(meta("x86_64", false, 2_000_000), Some(2_000_000));
        assert_eq!(meta("aarch64", false, 25_000), None);
        assert_eq!(meta("aarch64", true, 2_000_000), Some(2_000_000));
        assert_eq!(meta("x86_64", false, 0), None);
    }

    /// Make sure that cycles of imported latencies are not taken for the nanoseconds of the recording's times.
    #[test]
    fn latencies_of_imports_are_not_of_their_clock() {
        let khz = |machine: Value| {
            let (engine, clock) = (Engine::Import.into(), ClockInfo { khz: 1_000_000, ..Default::default() });
            Meta { engine, clock, machine, ..Meta::default() }.latency_khz()
        };
        assert_eq!(khz(Value::Null), None);
        assert_eq!(khz(json!({ "clock_mhz": null })), None);
        assert_eq!(khz(json!({ "clock_mhz": 3200.0 })), Some(3_200_000));
        assert_eq!(khz(json!({ "clock_mhz": -1.0 })), None);
    }

    #[test]
    fn a_brief_one_has_tables_and_evidence_and_no_machine() {
        let mut meta = Meta {
            engine: Engine::Import.into(),
            interrupted: true,
            machine: json!({ "nodes": [1, 2] }),
            ..Meta::default()
        };
        meta.more.insert("evidence".to_owned(), json!("page-faults"));
        meta.more.insert("import".to_owned(), json!({ "samples": 7 }));
        meta.host.insert("arch".to_owned(), json!("x86_64"));
        meta.tables.insert("accesses".to_owned(), TableInfo { rows: 3, bytes: 4, crc32: 5 });
        let brief = meta.clone().brief();
        assert_eq!(brief.evidence(), Evidence::PageFaults);
        assert_eq!((brief.interrupted, &brief.tables), (true, &meta.tables));
        assert!(brief.machine.is_null() && brief.host.is_empty() && brief.more.len() == 1, "{brief:?}");
    }

    #[test]
    fn accesses_that_were_sampled_by_cycles_have_no_rate() {
        let mut meta = Meta::default();
        assert!(!meta.rates_are_unknown());
        meta.more.insert("import".to_owned(), json!({"accesses": 100, "of_unknown_weight": 50}));
        assert!(!meta.rates_are_unknown());
        meta.more.insert("import".to_owned(), json!({"accesses": 100, "of_unknown_weight": 51}));
        assert!(meta.rates_are_unknown());
        // A recording by this machine's own events.
        let mut meta = Meta::default();
        meta.more.insert("events".to_owned(), json!({"accesses": 100, "of_unknown_weight": 0}));
        assert!(!meta.rates_are_unknown());
        meta.more.insert("events".to_owned(), json!({"accesses": 100, "of_unknown_weight": 100}));
        assert!(meta.rates_are_unknown());
    }

    /// A model of the host itself, as `numapilot measure` writes it, has the host's processor.
    #[test]
    fn a_host_that_the_trace_does_not_describe_is_told_by_its_processor() {
        let meta = |engine: Engine, source: Value, host: Value| Meta {
            engine: engine.into(),
            machine: json!({ "source": source, "cpu_model": "AMD EPYC 7763" }),
            host: host.as_object().cloned().unwrap_or_default(),
            ..Meta::default()
        };
        let (model, live) = (json!({ "model": { "path": "m.toml" } }), json!({ "live": { "root": "/" } }));
        let host = |name: &str| json!({ "cpu_model": name });
        let other = |engine, source: &Value, host: Value| {
            meta(engine, source.clone(), host).other_processor().map(str::to_owned)
        };
        assert_eq!(other(Engine::Pmu, &model, host("Xeon")).as_deref(), Some("Xeon"));
        assert_eq!(other(Engine::Pmu, &model, json!({})).as_deref(), Some(""));
        assert_eq!(other(Engine::Pmu, &model, host("AMD EPYC 7763")), None);
        assert_eq!(other(Engine::Pmu, &live, host("Xeon")), None);
        assert_eq!(other(Engine::Import, &model, host("Xeon")), None, "it is given the machine that recorded");
    }

    #[test]
    fn a_model_that_no_engine_simulated_is_not_called_real_hardware() {
        let origin = |engine: Engine, simulated, source: Value| {
            Meta { engine: engine.into(), simulated, machine: json!({ "source": source }), ..Meta::default() }.origin()
        };
        let live = json!({ "live": { "root": "/" } });
        assert_eq!(origin(Engine::Instrument, true, json!("builtin")), Origin::Simulated);
        assert_eq!(origin(Engine::Instrument, true, live.clone()), Origin::Simulated);
        assert_eq!(origin(Engine::Track, false, live.clone()), Origin::Measured);
        assert_eq!(origin(Engine::Track, false, json!("builtin")), Origin::OtherHost);
        assert_eq!(origin(Engine::Fault, false, json!({ "model": { "path": "m.toml" } })), Origin::OtherHost);
        assert_eq!(origin(Engine::Import, false, json!({ "model": { "path": "m.toml" } })), Origin::Measured);
        assert_eq!(origin(Engine::Pmu, true, live), Origin::Simulated, "an emulated PMU");
        assert_eq!(Meta::default().origin(), Origin::Measured, "no machine, no model");
    }
}
