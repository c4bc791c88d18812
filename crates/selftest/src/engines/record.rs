//! Records the program by numapilot's own executable, as users do, and reads the result. Everything it writes is in a temporary folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use numapilot_doctor::Diagnosis;
use numapilot_flows::Trace;
use numapilot_machine::Machine;
use numapilot_measure::Permit;
use numapilot_trace::engine::Engine;
use tempfile::Builder;

use super::judge::{Evidence, Recorded, judge, name};
use super::truth::{Order, SOURCE, Truth};
use super::{ENGINES, EngineTrial, SIMULATED, ThreadPlacement};
use crate::outcome::Check;

/// Bytes of the block: no power of two, far beyond a simulated last-level cache, and no other block of this process has the size.
const BYTES: usize = (24 << 20) + 8192;
/// Number of passes over the block.
const PASSES: u32 = 4;
/// A processor's last-level cache holds more, and its sampling needs time.
const PMU_BYTES: usize = (192 << 20) + 8192;
const PMU_PASSES: u32 = 40;
/// A recording that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(20);
/// Rows of the report: every object of a small program.
const ROWS: &str = "100000";

/// How a child process ended.
enum Ended {
    /// It succeeded: its standard output.
    Well(String),
    /// It failed or did not end: why, as a clause.
    Badly(String),
}

/// Why there is no program to record.
struct Unbuilt {
    reason: String,
    /// It is numapilot's fault, and not the machine's.
    is_ours: bool,
}

/// Whether the compiler that `numapilot cc` runs takes these arguments without it.
fn compiles_alone(arguments: &[&OsStr]) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "exec ${NUMAPILOT_CC:-cc} \"$@\"", "cc"]).args(arguments);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Tries every engine; `progress` is called before each. `executable` is numapilot's own.
///
/// # Errors
/// No folder for the recordings could be made.
pub fn run(
    executable: &Path,
    machine: &Machine,
    diagnosis: &Diagnosis,
    progress: &mut dyn FnMut(String),
) -> io::Result<Vec<Check>> {
    let folder = Builder::new().prefix("numapilot-selftest-").tempdir()?;
    let recorder = Recorder { executable, machine, folder: folder.path() };
    let mut checks = Vec::new();
    for engine in &ENGINES {
        progress(name(engine));
        let finding = diagnosis.engine(engine.engine);
        let obstacle = finding.filter(|finding| !finding.works).and_then(|finding| finding.obstacles.first());
        checks.push(match obstacle {
            Some(obstacle) => Check::not_judged(name(engine), format!("{}; {}", obstacle.reason, obstacle.remedy)),
            None => recorder.check(engine),
        });
    }
    Ok(checks)
}

struct Recorder<'a> {
    executable: &'a Path,
    machine: &'a Machine,
    folder: &'a Path,
}

impl Recorder<'_> {
    fn check(&self, engine: &EngineTrial) -> Check {
        let placement = if engine.engine.is_simulated() {
            Machine::load(SIMULATED).ok().and_then(|machine| ThreadPlacement::of(&machine, None))
        } else {
            ThreadPlacement::of(self.machine, Some(&Permit::of_this_process()))
        };
        let Some(placement) = placement else {
            return Check::not_judged(name(engine), "no node has both CPUs and memory that this process may use");
        };
        let (bytes, passes) = if engine.engine == Engine::Pmu { (PMU_BYTES, PMU_PASSES) } else { (BYTES, PASSES) };
        let order = Order { owner: placement.owner.0, reader: placement.reader.0, bytes, passes };
        let program = match self.program(engine, &order) {
            Ok(program) => program,
            Err(Unbuilt { reason, is_ours }) if is_ours => return Check::judged(name(engine), false, reason),
            Err(Unbuilt { reason, .. }) => return Check::not_judged(name(engine), reason),
        };
        match self.recorded(engine, &placement, program) {
            Ok(check) => check,
            Err(reason) => Check::judged(name(engine), false, reason),
        }
    }

    /// The program and its arguments.
    fn program(&self, engine: &EngineTrial, order: &Order) -> Result<Vec<OsString>, Unbuilt> {
        let order = OsString::from(order.to_string());
        if !engine.is_compiled {
            let words = ["selftest", "--worker"].map(OsString::from);
            return Ok([self.executable.into()].into_iter().chain(words).chain([order]).collect());
        }
        let (source, program) = (self.folder.join("truth.c"), self.folder.join("truth"));
        fs::write(&source, SOURCE)
            .map_err(|error| Unbuilt { reason: format!("{}: {error}", source.display()), is_ours: false })?;
        let options = ["-O1", "-g", "-pthread", "-o"].map(OsStr::new);
        let arguments: Vec<&OsStr> = options.into_iter().chain([program.as_os_str(), source.as_os_str()]).collect();
        let words = match self.numapilot([OsStr::new("cc")].into_iter().chain(arguments.iter().copied())) {
            Ok(Ended::Well(_)) => return Ok(vec![program.into(), order]),
            Ok(Ended::Badly(words)) => words,
            Err(error) => error.to_string(),
        };
        Err(if compiles_alone(&arguments) {
            Unbuilt {
                reason: format!("`numapilot cc` fails where the compiler alone does not: {words}"),
                is_ours: true,
            }
        } else {
            Unbuilt { reason: format!("the test program could not be compiled: {words}"), is_ours: false }
        })
    }

    /// Records, reports, judges. The error is why the engine, which should work here, did not: a clause.
    fn recorded(
        &self,
        engine: &EngineTrial,
        placement: &ThreadPlacement,
        program: Vec<OsString>,
    ) -> Result<Check, String> {
        let trace = self.folder.join(format!("{}.numatrace", engine.engine));
        let machine = if engine.engine.is_simulated() { SIMULATED } else { "live" };
        let options =
            ["record", "--quiet", "--engine", engine.engine.name(), "--machine", machine, "--output"].map(OsStr::new);
        let arguments = options.into_iter().chain([trace.as_os_str(), OsStr::new("--")]);
        let printed = self.well("record", arguments.chain(program.iter().map(OsString::as_os_str)))?;
        let truth: Truth = printed
            .lines()
            .find_map(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| "the test program printed no result".to_owned())?;
        let options = ["report", "--json", "--instances", "--threads", "--top", ROWS].map(OsStr::new);
        let printed = self.well("report", options.into_iter().chain([trace.as_os_str()]))?;
        let report =
            serde_json::from_str(&printed).map_err(|error| format!("the report is not valid JSON: {error}"))?;
        let recorded = object_at(&trace, &truth)?;
        Ok(judge(engine, &Evidence { truth: &truth, placement, recorded, report: &report }))
    }

    fn well<'b>(&self, what: &str, arguments: impl IntoIterator<Item = &'b OsStr>) -> Result<String, String> {
        match self.numapilot(arguments) {
            Ok(Ended::Well(printed)) => Ok(printed),
            Ok(Ended::Badly(words)) => {
                Err(format!("the engine should work here, but `numapilot {what}` failed: {words}"))
            }
            Err(error) => Err(format!("`numapilot {what}` could not be run: {error}")),
        }
    }

    /// Runs it to its end, or ends it where it hangs. What it prints goes by files: a pipe that fills would hold it up.
    fn numapilot<'b>(&self, arguments: impl IntoIterator<Item = &'b OsStr>) -> io::Result<Ended> {
        let (out, err) = (self.folder.join("out"), self.folder.join("err"));
        let mut child = Command::new(self.executable)
            .args(arguments)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out)?)
            .stderr(fs::File::create(&err)?)
            .spawn()?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Ok(Ended::Badly(format!("it did not end within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(LOOK);
        };
        if status.success() {
            return Ok(Ended::Well(String::from_utf8_lossy(&fs::read(&out)?).into_owned()));
        }
        let words = String::from_utf8_lossy(&fs::read(&err)?).into_owned();
        let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed no message");
        Ok(Ended::Badly(last.trim_start_matches("numapilot: ").to_owned()))
    }
}

/// The object that the trace has where the block was.
fn object_at(trace: &Path, truth: &Truth) -> Result<Option<Recorded>, String> {
    let trace = Trace::open(trace).map_err(|error| error.to_string())?;
    let objects = trace.objects().iter();
    // The address may have had other objects before and after; the block is the longest-lived of its size, or else the greatest.
    let there = objects.filter(|object| object.address.0 == truth.address);
    let found = there.max_by_key(|object| (object.bytes == truth.bytes, object.bytes));
    Ok(found.map(|object| Recorded {
        object: u64::from(object.id.0),
        bytes: object.bytes,
        thread: object.thread.and_then(|thread| trace.thread(thread)).map(|thread| u64::from(thread.tid.0)),
    }))
}
