//! Records processes that are already running: trees of processes, cgroups, or the whole machine.
//! Nothing is loaded into them and nothing is restarted. Their lifecycles
//! come from /proc at the start and from the kernel's side band after that: mappings, threads and processes, but no heap blocks.

use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use numapilot_host::Group;
use numapilot_host::Lineages;
use numapilot_host::Member;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::hidden_processes;
use numapilot_host::now_ticks;
use numapilot_host::read_patiently;
use numapilot_host::title;
use numapilot_kernel::task::why_absent;
use numapilot_launch::Exit;
use numapilot_launch::LaunchError;
use numapilot_launch::signals::Guard;
use numapilot_sampled::SharedWriter;
use numapilot_text::units;
use numapilot_trace::chunk::ChunkWriter;
use numapilot_trace::chunk::SessionEnd;
use numapilot_trace::chunk::SessionStart;
use numapilot_trace::chunk::WriterOptions;
use numapilot_trace::output;
use numapilot_trace::wire::Clock;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::drain::LiveOutcome;
use super::session::Live;
use crate::clock::HostInstant;
use crate::engine::Engine;
use crate::engine::EngineChoice;
use crate::engine::Refusal;
use crate::error::SourceError;
use crate::generated;
use crate::namespaces::Foreign;
use crate::options::Progress;
use crate::options::ProgressState;
use crate::options::RecordOptions;
use crate::recording::Losses;
use crate::recording::Recording;
use crate::recording::StopReason;
use crate::recording_host::Host;
use numapilot_perf_events::open::Scope;

/// Time between two checks of the processes.
const TICK: Duration = Duration::from_millis(100);
const CALIBRATION: Duration = Duration::from_millis(10);
/// Between two looks for processes that have joined.
const JOIN_EVERY: Duration = Duration::from_millis(500);
/// Longest time between them, however long a look takes.
const JOIN_LATEST: Duration = Duration::from_secs(5);
/// Of the time, looking takes no more than one part in so many: for a tree of processes the lines of all of the machine's are read.
const LOOK_PARTS: u32 = 20;
/// A cgroup that has been empty for this long has ended: a unit that restarts is empty for a moment.
const EMPTY_MAX: Duration = Duration::from_secs(2);
/// Bytes of a command line that are read: what the kernel takes as one argument, at most.
const COMMAND_MAX: u64 = 128 << 10;
/// Processes that a note names.
const NAMED_MAX: usize = 8;

/// What to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Running {
    /// The processes of a group, and what they start.
    Group(Group),
    /// Everything on this machine.
    System,
}

/// Records running processes until they have ended, a limit is reached, or a signal arrives (Ctrl-C); they run on unharmed. Options about a
/// started program or a simulated machine are ignored.
///
/// # Errors
/// The kernel refuses the events, or there is no such process; or the trace cannot be written.
pub fn record_running(who: Running, mut options: RecordOptions<'_>) -> Result<Recording, SourceError> {
    check(&options)?;
    let mut listener = options.progress.take();
    let start = HostInstant::now();
    let start_time = SystemTime::now();
    let mut members = members_of(&who)?;
    let scope = members.as_ref().map_or(Scope::System, |members| Scope::Processes(members.pids()));
    let guard = Guard::install()?;
    let (live, engine, refusals) = open(&scope, &options)?;
    let opened_ticks = now_ticks();
    let order_khz = start.calibrate(CALIBRATION);
    let room = output::prepare(&options.output, options.existing)?;
    let session = SessionStart {
        simulated: live.is_emulated,
        ..session(members.as_ref(), engine, &options, start, start_time, order_khz)
    };
    let writer = ChunkWriter::create(&options.output, &session, WriterOptions::default())?;
    let writer = SharedWriter::new(writer);
    let clock = Clock { khz: order_khz, origin_cycles: start.order };
    let Some((mut reader, _)) = live.reader(&writer, clock, None, options.machine) else {
        return Err(LaunchError::Busy.into());
    };
    // What is mapped and who is forked while /proc is read must not be missed; accesses begin once it is read, as the rings are not emptied before.
    reader.enable_side_band();
    let known = reader.synthesize(members.as_ref(), start.order)?;
    reader.enable();
    let mut late = Vec::new();
    if let Some(members) = &mut members {
        // Those that were started while events were opened, before their parents had any; and whom no member started.
        let mut joined = members.refresh(&Root::default());
        joined.retain(|member| !member.is_child || member.start_ticks <= opened_ticks);
        late = joined.iter().map(|member| member.pid).collect();
        live.totals.join(late.iter().copied());
    }
    let began = Instant::now();
    let named = members.as_ref().map(named);
    let mut watch = Watch::new(&live, &guard, members.map(|members| Followed::new(members, &late)), began);
    let (outcome, stopped) = std::thread::scope(|scope| {
        let handle = live.start(scope, reader).map_err(|source| SourceError::System {
            what: "cannot start the reading thread",
            source,
            remedy: "raise `ulimit -u`",
        })?;
        // From here on there is a recording, whatever becomes of it.
        room.keep();
        let stopped = watch.until_end(&options, &mut listener, known);
        let outcome = live.finish(handle).map_err(|()| SourceError::System {
            what: "the reading thread failed",
            source: std::io::Error::other("it panicked"),
            remedy: "the records written before that are complete; please report this",
        })?;
        Ok::<_, SourceError>((outcome, stopped))
    })?;
    // The trace and what is told of it mean the same span.
    let end = HostInstant::now();
    let mut recording = result(&options, engine, end.since(&start), stopped, known);
    let hidden = watch.followed.is_none().then(|| hidden_processes(&Root::default())).flatten();
    recording.notes.splice(1..1, named.into_iter().flatten().chain(hidden).chain(watch.ended_early.take()));
    if watch.joined > 0 {
        let note = format!(
            "{} joined without having been started by a recorded process, and recorded from then on",
            units::counted(watch.joined, "process", "processes")
        );
        recording.notes.push(note);
    }
    recording.refusals = refusals;
    live.conclude(&outcome, &mut recording);
    finish(writer, &outcome, &mut recording, (&start, &end));
    Ok(recording)
}

/// Opens the events that were asked for; where none were named, samples of accesses where the processor gives them, else page faults.
fn open(scope: &Scope, options: &RecordOptions<'_>) -> Result<(Live, Engine, Vec<Refusal>), SourceError> {
    let faults = || Live::faults(scope, options.ring_bytes, options.max_stack_depth);
    match options.engine {
        EngineChoice::Only(Engine::Pmu) => Ok((Live::accesses(scope, options)?, Engine::Pmu, Vec::new())),
        EngineChoice::Only(_) => Ok((faults()?, Engine::Fault, Vec::new())),
        EngineChoice::Auto => match Live::accesses(scope, options) {
            Ok(live) => Ok((live, Engine::Pmu, Vec::new())),
            Err(error) => {
                let remedy = "`numapilot doctor` says what would let it".to_owned();
                Ok((faults()?, Engine::Fault, vec![Refusal { engine: Engine::Pmu, reason: error.to_string(), remedy }]))
            }
        },
    }
}

fn check(options: &RecordOptions<'_>) -> Result<(), SourceError> {
    if !matches!(options.engine, EngineChoice::Auto | EngineChoice::Only(Engine::Fault | Engine::Pmu)) {
        return Err(SourceError::Option {
            option: "--engine",
            reason: "only engines `pmu` and `fault` can record processes that are already running".to_owned(),
            remedy: "leave it out, or use `--engine pmu` or `--engine fault`".to_owned(),
        });
    }
    options.check_bounds()
}

/// The processes to record, as they are now; `None`: all of this machine.
fn members_of(who: &Running) -> Result<Option<Members>, SourceError> {
    let Running::Group(group) = who else { return Ok(None) };
    let mut members = Members::new(group.clone());
    members.refresh(&Root::default());
    if let Group::Processes(pids) | Group::Trees(pids) = group
        && let Some(pid) = pids.iter().find(|pid| !members.contains(**pid))
    {
        let reason = why_absent(*pid);
        let remedy = "look it up with `pgrep` or `ps`".to_owned();
        return Err(SourceError::Option { option: "--pid", reason, remedy });
    }
    match members.is_empty() {
        false => Ok(Some(members)),
        true => Err(SourceError::Option {
            option: "--cgroup",
            reason: "it has no processes".to_owned(),
            remedy: "`systemd-cgls` shows the cgroups that have some".to_owned(),
        }),
    }
}

/// Which processes are recorded, where they are more than one.
fn named(members: &Members) -> Option<String> {
    let pids = members.pids();
    let mut buffer = Vec::new();
    let words = |pid: &Pid| format!("{pid} ({})", title(&Root::default(), *pid, &mut buffer));
    let names: Vec<String> = pids.iter().take(NAMED_MAX).map(words).collect();
    let more = if pids.len() > NAMED_MAX { format!(" and {} more", pids.len() - NAMED_MAX) } else { String::new() };
    (pids.len() > 1).then(|| format!("recorded processes: {}{more}", names.join(", ")))
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

fn session(
    members: Option<&Members>,
    engine: Engine,
    options: &RecordOptions<'_>,
    start: HostInstant,
    start_time: SystemTime,
    order_khz: u32,
) -> SessionStart {
    let pids = members.map(Members::pids);
    let command = match (members.map(Members::group), &pids) {
        (Some(Group::Processes(named) | Group::Trees(named)), _) => {
            named.iter().map(|&pid| command_of(&Root::default(), pid)).collect::<Vec<_>>().join(" + ")
        }
        (Some(Group::Cgroups(folders)), _) => {
            let name = |folder: &std::path::PathBuf| folder.file_name().map(|name| name.to_string_lossy().into_owned());
            folders.iter().filter_map(name).collect::<Vec<_>>().join(" + ")
        }
        (Some(Group::Units(units)), _) => units.join(" + "),
        (None, _) => "everything on this machine".to_owned(),
    };
    // 0: the events say it, each sample its own.
    let period = u32::from(engine == Engine::Fault);
    SessionStart {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        engine: engine.into(),
        command: vec![command],
        start_unix_ns: start_time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        start_monotonic_ns: start.monotonic_ns,
        start_order: start.order,
        order_khz,
        clock_khz: order_khz,
        clock_origin_cycles: start.order,
        simulated: false,
        machine: serde_json::to_value(options.machine).unwrap_or(Value::Null),
        config: object(json!({
            "sample_period": period, "ring_bytes": options.ring_bytes, "max_stack_depth": options.max_stack_depth,
            "attached": pids.map_or_else(|| json!("system"), |pids| json!(pids)),
        })),
        host: object(serde_json::to_value(Host::read()).unwrap_or(Value::Null)),
        ..SessionStart::default()
    }
}

/// The command line of a process, or its number where that cannot be read, or not in time.
fn command_of(root: &Root, pid: Pid) -> String {
    let mut line = Vec::new();
    if read_patiently(&root.path().join(format!("proc/{pid}/cmdline")), COMMAND_MAX, &mut line).is_err() {
        line.clear();
    }
    let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    let text = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ");
    if text.is_empty() { format!("process {pid}") } else { text }
}

/// What is known of processes before their first event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Number of processes.
    pub processes: u64,
    /// Number of their threads.
    pub threads: u64,
    /// Number of pages that were in memory.
    pub pages: u64,
    /// Processes that could not be inspected.
    pub closed: u64,
}

/// The processes of a group, and from whom each of them has its events.
struct Followed {
    members: Members,
    lineages: Lineages,
}

/// What has changed in a group since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    /// Processes that joined without having inherited events.
    unrelated: Vec<Pid>,
    /// Processes for which events were opened that nobody has any more.
    ended: Vec<Pid>,
}

impl Followed {
    /// The members as they are. `late`: those of them for which events are opened apart, whoever started them.
    fn new(members: Members, late: &[Pid]) -> Followed {
        let own = |member: &Member| Member { is_child: member.is_child && !late.contains(&member.pid), ..*member };
        let all: Vec<Member> = members.all().map(own).collect();
        let mut lineages = Lineages::default();
        lineages.update(&all, &all);
        Followed { members, lineages }
    }

    fn look(&mut self, root: &Root) -> Change {
        let joined = self.members.refresh(root);
        let all: Vec<Member> = self.members.all().copied().collect();
        Change {
            ended: self.lineages.update(&all, &joined),
            unrelated: joined.iter().filter(|member| !member.is_child).map(|member| member.pid).collect(),
        }
    }
}

struct Watch<'a> {
    live: &'a Live,
    guard: &'a Guard,
    /// The processes; `None`: all of this machine.
    followed: Option<Followed>,
    began: Instant,
    /// When members were last looked for.
    looked_at: Instant,
    /// Time from then to the next look.
    pause: Duration,
    /// Since when there have been none.
    empty_since: Option<Instant>,
    /// Processes that joined and that no member had started.
    joined: u64,
    /// That they ended before the time for which they were to be recorded.
    ended_early: Option<String>,
}

/// Time from one look for members, which took so long, to the next: no longer than a while, as what joins meanwhile, or that all have ended, is not seen.
fn pause_after(cost: Duration) -> Duration {
    JOIN_EVERY.max(cost.saturating_mul(LOOK_PARTS).min(JOIN_LATEST))
}

impl<'a> Watch<'a> {
    fn new(live: &'a Live, guard: &'a Guard, followed: Option<Followed>, began: Instant) -> Watch<'a> {
        let (looked_at, pause) = (began, JOIN_EVERY);
        Watch { live, guard, followed, began, looked_at, pause, empty_since: None, joined: 0, ended_early: None }
    }

    /// Waits until it is time to stop, and says why, if it was not the processes' end.
    fn until_end(
        &mut self,
        options: &RecordOptions<'_>,
        listener: &mut Option<&mut dyn Progress>,
        known: Known,
    ) -> Option<StopReason> {
        let stopped = loop {
            if let Some(listener) = listener {
                listener.update(&self.progress(known));
            }
            if !self.guard.arrived().is_empty() {
                break Some(StopReason::Interrupted);
            }
            if options.limits.duration.is_some_and(|limit| self.began.elapsed() >= limit) {
                break Some(StopReason::TimeLimit);
            }
            if options.limits.bytes.is_some_and(|limit| self.live.totals.disk_bytes.load(Ordering::Relaxed) >= limit) {
                break Some(StopReason::BytesLimit);
            }
            if self.has_ended() {
                let takes_unrelated =
                    self.followed.as_ref().is_some_and(|followed| followed.members.group().takes_unrelated());
                self.ended_early =
                    options.limits.duration.map(|limit| early_end(self.began.elapsed(), limit, takes_unrelated));
                break None;
            }
            let left = options.limits.duration.map_or(TICK, |limit| limit.saturating_sub(self.began.elapsed()));
            self.guard.wait(TICK.min(left));
        };
        self.live.stop();
        stopped
    }

    /// Looks for members every now and then. Returns whether all of them have ended.
    fn has_ended(&mut self) -> bool {
        let Some(followed) = &mut self.followed else { return false };
        if self.looked_at.elapsed() < self.pause && self.empty_since.is_none() {
            return false;
        }
        self.looked_at = Instant::now();
        let change = followed.look(&Root::default());
        self.pause = pause_after(self.looked_at.elapsed());
        self.joined += change.unrelated.len() as u64;
        self.live.totals.leave(change.ended);
        self.live.totals.join(change.unrelated);
        let members = &followed.members;
        if !members.is_empty() {
            self.empty_since = None;
            return false;
        }
        let is_over = |since: Instant| !members.group().takes_unrelated() || since.elapsed() >= EMPTY_MAX;
        is_over(*self.empty_since.get_or_insert_with(Instant::now))
    }

    fn progress(&self, known: Known) -> ProgressState {
        let (records, samples, lost) = self.live.totals.read();
        ProgressState {
            records,
            samples,
            lost,
            live_threads: u32::try_from(known.threads).unwrap_or(u32::MAX),
            program_time: self.began.elapsed(),
            wall_time: self.began.elapsed(),
            ..ProgressState::default()
        }
    }
}

/// That all processes ended after so long, before the time was over for which they were to be recorded.
fn early_end(after: Duration, limit: Duration, takes_unrelated: bool) -> String {
    let [after, limit] = [after, limit].map(|time| units::time_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    let empty = format!("; a unit or cgroup counts as ended when it has had no process for {} s", EMPTY_MAX.as_secs());
    format!(
        "the recording ended after {after} and not after {limit}, because all of its processes had ended{}",
        if takes_unrelated { empty.as_str() } else { "" }
    )
}

/// What there was at the start. Kernel threads are members of their tree, but have nothing to inspect: "attached to 0 processes" beside their names
/// contradicts itself.
///
/// Threads become rows of the trace with their first sample, and a process's first thread with it: reports of idle servers count fewer threads.
fn found(known: Known, engine: Engine) -> String {
    if known.processes == 0 {
        return "no process with memory of its own was running at the start: kernel threads have none, nor have processes that are ending".to_owned();
    }
    let rest = match known.threads > known.processes {
        true if engine == Engine::Fault => "; threads without page faults are not counted, except first ones",
        true => "; threads without samples are not counted, except first ones",
        false => "",
    };
    format!(
        "attached to {} with {} already running: their mappings are known, but no heap blocks; the first toucher of {} in memory before is unknown{rest}",
        units::counted(known.processes, "process", "processes"),
        units::counted(known.threads, "thread", "threads"),
        units::counted(known.pages, "page", "pages")
    )
}

fn result(
    options: &RecordOptions<'_>,
    engine: Engine,
    wall_time: Duration,
    stopped: Option<StopReason>,
    known: Known,
) -> Recording {
    let mut notes = vec![found(known, engine)];
    if known.closed > 0 {
        notes.push(format!(
            "{} not be inspected, so some memory has no names; run with CAP_SYS_PTRACE to inspect all",
            units::counted(known.closed, "process could", "processes could")
        ));
    }
    // Stopping at a limit or signal is not a loss here.
    let stopped = stopped.filter(|reason| *reason == StopReason::BytesLimit);
    Recording {
        dir: options.output.clone(),
        exit: Exit::Code(0),
        engine,
        refusals: Vec::new(),
        losses: Losses::default(),
        bytes: 0,
        disk_bytes: 0,
        records: 0,
        samples: 0,
        threads: known.threads,
        program_time: wall_time,
        wall_time,
        stopped,
        notes,
        plan: None,
        events: None,
        processor_times: serde_json::Value::Null,
        unrecorded_program: None,
    }
}

fn finish(
    writer: SharedWriter,
    outcome: &LiveOutcome,
    recording: &mut Recording,
    (start, end): (&HostInstant, &HostInstant),
) {
    let generated =
        // The kernel tells all numbers as they are here.
        if outcome.failure.is_none() {
            generated::add(&writer, recording.wall_time, Some(*start), &Foreign::new())
        } else {
            Ok(Vec::new())
        };
    let mut failure = outcome.failure.clone();
    match generated {
        Ok(told) => recording.notes.extend(told),
        Err(error) => failure = Some(error.to_string()),
    }
    let session = SessionEnd {
        end_monotonic_ns: end.monotonic_ns,
        end_order: end.order,
        lost_full: recording.losses.ring_full,
        stopped_early: recording.stopped.as_ref().map(|_| "limit on bytes".to_owned()),
        more: object(json!({
            "order_khz": end.khz_since(start), "records": recording.records, "samples": recording.samples,
            "wall_ns": u64::try_from(recording.wall_time.as_nanos()).unwrap_or(u64::MAX),
            "notes": recording.notes, "events": recording.events,
        })),
        ..SessionEnd::default()
    };
    let failure = failure.or_else(|| writer.into_inner()?.finish(&session, false).err().map(|e| e.to_string()));
    if let Some(failure) = failure {
        recording.stopped = Some(StopReason::WriteFailed(failure));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A process as /proc shows it.
    fn put(root: &Path, pid: u32, parent: u32, start_ticks: u64) {
        let (folder, others) = (root.join(format!("proc/{pid}")), " 0".repeat(17));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (x) S {parent}{others} {start_ticks}{others}\n")).unwrap();
    }

    fn change(unrelated: &[u32], ended: &[u32]) -> Change {
        Change {
            unrelated: unrelated.iter().copied().map(Pid).collect(),
            ended: ended.iter().copied().map(Pid).collect(),
        }
    }

    /// A unit that was restarted with a pause ended a recording for an hour after a minute, without a word.
    #[test]
    fn a_recording_that_is_shorter_than_it_was_to_be_says_why() {
        let [minute, hour] = [60, 3600].map(Duration::from_secs);
        let (tree, unit) = (early_end(minute, hour, false), early_end(minute, hour, true));
        assert!(tree.contains("after 1 min 00 s and not after 60 min 00 s") && tree.ends_with("had ended"), "{tree}");
        assert!(unit.ends_with("when it has had no process for 2 s"), "{unit}");
    }

    /// `record --pid 2`: the kernel's threads.
    #[test]
    fn processes_without_memory_are_not_said_to_be_attached_to() {
        let none = found(Known::default(), Engine::Fault);
        assert!(
            none.starts_with("no process with memory of its own was running") && !none.contains("attached"),
            "{none}"
        );
        let known = Known { processes: 1, threads: 5, pages: 7, closed: 0 };
        let one = found(known, Engine::Fault);
        assert!(one.starts_with("attached to 1 process with 5 threads already running"), "{one}");
        assert!(one.ends_with("; threads without page faults are not counted, except first ones"), "{one}");
        assert!(!found(Known { threads: 1, ..known }, Engine::Pmu).contains("not counted"));
    }

    /// A service that starts a process for each request: the events of those that have ended stayed open to the end of the recording.
    #[test]
    fn events_are_closed_once_nobody_has_them_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let (root, group) = (Root::new(folder.path()), folder.path().join("service"));
        fs::create_dir(&group).unwrap();
        let end = |pid: u32| fs::remove_dir_all(folder.path().join(format!("proc/{pid}"))).unwrap();
        let are = |pids: &str| fs::write(group.join("cgroup.procs"), pids).unwrap();
        let mut members = Members::new(Group::Cgroups(vec![group.clone()]));
        put(folder.path(), 10, 1, 100);
        are("10\n");
        members.refresh(&root);
        put(folder.path(), 11, 10, 110);
        are("10\n11\n");
        members.refresh(&root);
        // The first was started before its parent had events, so that some were opened for it.
        let mut followed = Followed::new(members, &[Pid(11)]);
        put(folder.path(), 20, 1, 200);
        put(folder.path(), 12, 10, 210);
        are("10\n11\n12\n20\n");
        assert_eq!(followed.look(&root), change(&[20], &[]));
        put(folder.path(), 21, 20, 220);
        are("10\n11\n12\n20\n21\n");
        assert_eq!(followed.look(&root), change(&[], &[]));
        end(20);
        end(12);
        are("10\n11\n21\n");
        assert_eq!(followed.look(&root), change(&[], &[]), "its child has its events");
        end(21);
        end(11);
        are("10\n");
        assert_eq!(followed.look(&root), change(&[], &[11, 20]));
    }

    /// A thread that has its address space locked, and waits for a file server, kept `record --pid` waiting as long.
    #[test]
    fn a_process_that_does_not_answer_has_its_number_for_a_command_line() {
        let folder = tempfile::tempdir().unwrap();
        for pid in [7, 8] {
            fs::create_dir_all(folder.path().join(format!("proc/{pid}"))).unwrap();
        }
        // Nobody writes to it: whoever opens it waits.
        assert!(
            std::process::Command::new("mkfifo").arg(folder.path().join("proc/7/cmdline")).status().unwrap().success()
        );
        fs::write(folder.path().join("proc/8/cmdline"), "server\0--port\x0080\0").unwrap();
        let root = Root::new(folder.path());
        assert_eq!([7, 8, 9].map(|pid| command_of(&root, Pid(pid))), ["process 7", "server --port 80", "process 9"]);
    }

    #[test]
    fn a_machine_of_many_processes_is_looked_through_less_often() {
        let [few, many] = [5, 80].map(|cost_ms| pause_after(Duration::from_millis(cost_ms)));
        assert_eq!((few, many), (JOIN_EVERY, Duration::from_millis(1600)));
    }
}
