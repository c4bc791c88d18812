//! `numapilot stat`: shows the seven NUMA metrics of a command, of processes or of the machine.

use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use numapilot_host::Lineages;
use numapilot_host::Member;
use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::inherited;
use numapilot_kernel::task::Process;
use numapilot_machine::Machine;
use numapilot_text::destination::PendingFile;
use numapilot_text::style::Look;
use numapilot_text::units;
use numapilot_trace::engine::Engine;
use numapilot_watch::WatchError;
use numapilot_watch::figures::Interval;
use numapilot_watch::figures::ProcessFigures;
use numapilot_watch::live::Live;
use numapilot_watch::live::LiveOptions;
use numapilot_watch::live::TreeReading;
use numapilot_watch::live::counters::Scope;
use numapilot_watch::live::samples::Sampling;
use numapilot_watch::maps::LastSeen;
use numapilot_watch::replay;
use numapilot_watch::replay::ReplayOptions;
use numapilot_watch::signals;
use numapilot_watch::stat;
use numapilot_watch::stat::Repeats;
use numapilot_watch::stat::Stat;

use super::group::all_found;
use super::group::group;
use super::group::require_memory;
use super::not_started::not_started;
use super::schedule;
use crate::args::GroupArgs;
use crate::args::StatArgs;
use crate::output;

/// Default observation time of the whole machine.
const SYSTEM_TIME: Duration = Duration::from_secs(1);
/// Longest pause between two checks, so that a signal between them is handled soon.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Time between two looks for processes that have joined.
const JOIN_EVERY: Duration = Duration::from_millis(500);
/// A cgroup that has been empty for this long has ended: a unit that restarts is empty for a moment.
const EMPTY_MAX: Duration = Duration::from_secs(2);
/// A command that was told to end, and takes longer, may ignore it.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Shows the metrics per interval and in total; returns the command's exit status.
pub fn run(arguments: &StatArgs) -> Result<ExitCode> {
    let mut out = Output::new(arguments)?;
    let code = watch(arguments, &mut out)?;
    out.finish()?;
    Ok(code)
}

fn watch(arguments: &StatArgs, out: &mut Output) -> Result<ExitCode> {
    if let Some(trace) = &arguments.replay {
        return run_replay(arguments, trace, out).map(|()| ExitCode::SUCCESS);
    }
    signals::catch().context("signals")?;
    if !arguments.command.is_empty() {
        return run_command(arguments, out);
    }
    let members = named(&Root::default(), &arguments.pid, &arguments.group)?;
    let default = members.is_none().then_some(SYSTEM_TIME).filter(|_| arguments.interval.is_none());
    let scope = members.as_ref().map_or(Scope::System, |members| Scope::Processes(members.pids()));
    let mut watched = Watched::open(arguments, scope)?;
    watched.attend(members);
    let whole = watched.follow(arguments, out, &[], arguments.run_for.or(default))?;
    out.summary(&whole, arguments.interval.is_some())?;
    Ok(ExitCode::SUCCESS)
}

/// The processes that were named, with those below them; `None`: none was.
fn named(root: &Root, pids: &[Pid], by_group: &GroupArgs) -> Result<Option<Members>> {
    let group = group(root, pids, by_group, false)?;
    require_memory(root, pids)?;
    let Some(group) = group else { return Ok(None) };
    let mut members = Members::new(group);
    members.refresh(root);
    all_found(pids, &members)?;
    Ok(Some(members))
}

fn run_command(arguments: &StatArgs, out: &mut Output) -> Result<ExitCode> {
    let mut repeats = Repeats::default();
    let mut code = 0;
    for _ in 0..arguments.repeat {
        let mut watched = Watched::open(arguments, Scope::Children)?;
        let mut child = start(arguments)?;
        watched.pids = vec![Pid::of_child(&child)];
        let process = Process::open(Pid::of_child(&child))?;
        let whole = watched.follow(arguments, out, &[process], arguments.run_for)?;
        code = status_of(&mut child)?;
        repeats.add(&whole);
        if arguments.repeat == 1 {
            out.summary(&whole, arguments.interval.is_some())?;
        }
        if signals::caught().is_some() {
            break;
        }
    }
    if arguments.repeat > 1 {
        out.repeats(&repeats)?;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn start(arguments: &StatArgs) -> Result<Child> {
    let program = &arguments.command[0];
    let spawned = inherited::restored(Command::new(program).args(&arguments.command[1..])).spawn();
    spawned.map_err(|error| not_started(&arguments.command, error))
}

/// The command's exit status as shells return it. A command that still runs after `--for` is terminated.
fn status_of(child: &mut Child) -> Result<i32> {
    let ended = child.try_wait().context("the command")?;
    let status = match ended {
        Some(status) => status,
        None => {
            if let Ok(pid) = libc::pid_t::try_from(child.id()) {
                // SAFETY: a signal to our own child, which has not been waited for.
                unsafe { libc::kill(pid, libc::SIGTERM) };
            }
            explain_wait(Pid::of_child(child));
            child.wait().context("the command")?
        }
    };
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Waits for the end of a command that was told to end, and says so where that takes long: it may ignore the signal.
fn explain_wait(pid: Pid) {
    let Ok(process) = Process::open(pid) else { return };
    process.wait(ENDS_WITHIN);
    if process.is_running() {
        output::tell!(
            "numapilot: the command (process {pid}) was told to end (SIGTERM), and has not ended: it is waited for"
        );
    }
}

/// The live machine, and the processes whose memory is shown.
struct Watched {
    live: Live,
    seen: LastSeen,
    /// Processes whose memory is shown.
    pids: Vec<Pid>,
    /// The processes that were named, with those below them.
    members: Option<Members>,
    /// Whose events the members have.
    lineages: Lineages,
    /// When it was last asked whether members have ended, and since when there have been none.
    looked_at: Instant,
    empty_since: Option<Instant>,
    /// The members at the start, and at the last interval's end.
    first: TreeReading,
    last: TreeReading,
}

impl Watched {
    fn open(arguments: &StatArgs, scope: Scope) -> Result<Watched> {
        let machine = Machine::live()?;
        let sampling = if arguments.no_samples { Sampling::Off } else { Sampling::AccessesOrFaults };
        let options = LiveOptions { scope: Some(scope), sampling, ..options() };
        let live = Live::open(Root::default(), machine, &options);
        let first = TreeReading::read(live.root(), &[]);
        Ok(Watched {
            live,
            seen: LastSeen::default(),
            pids: Vec::new(),
            members: None,
            lineages: Lineages::default(),
            looked_at: Instant::now(),
            empty_since: None,
            last: first.clone(),
            first,
        })
    }

    /// Follows these processes.
    fn attend(&mut self, members: Option<Members>) {
        self.pids = members.as_ref().map_or_else(Vec::new, Members::pids);
        self.first = TreeReading::read(self.live.root(), &self.pids);
        self.last = self.first.clone();
        let first: Vec<Member> = members.iter().flat_map(|members| members.all()).copied().collect();
        self.lineages.update(&first, &first);
        self.members = members;
    }

    /// Looks for members every now and then. Returns whether all of them have ended.
    fn have_ended(&mut self) -> bool {
        let is_due = self.looked_at.elapsed() >= JOIN_EVERY || self.empty_since.is_some();
        if is_due {
            // Looks between do not count: after one at the end of each interval, this one would never be due.
            self.looked_at = Instant::now();
        }
        is_due && self.find_members()
    }

    /// Looks for members now. Returns whether all of them have ended.
    fn find_members(&mut self) -> bool {
        let Some(members) = &mut self.members else { return false };
        let joined = members.refresh(self.live.root());
        self.pids.extend(joined.iter().map(|member| member.pid));
        // The events of a tree are those of its root, which stay as long as it is watched.
        if members.group().takes_unrelated() {
            let all: Vec<Member> = members.all().copied().collect();
            self.live.leave(&self.lineages.update(&all, &joined));
        }
        let unrelated: Vec<Pid> = joined.iter().filter(|member| !member.is_child).map(|member| member.pid).collect();
        if !unrelated.is_empty() {
            self.live.join(&unrelated);
            self.first.join(self.live.root(), &unrelated);
            self.last.join(self.live.root(), &unrelated);
        }
        if !members.is_empty() {
            // Those that have ended have no memory any more; at the end, the last of them are shown as they were.
            self.pids = members.pids();
            self.empty_since = None;
            return false;
        }
        let takes_unrelated = members.group().takes_unrelated();
        !takes_unrelated || self.empty_since.get_or_insert_with(Instant::now).elapsed() >= EMPTY_MAX
    }

    /// A row for each member since a reading.
    fn rows(&self, before: &TreeReading, now: &TreeReading) -> Vec<ProcessFigures> {
        let Some(members) = &self.members else { return Vec::new() };
        let mut rows = now.since(before, self.live.root(), self.live.machine());
        // The id of a member that has ended may be another process's.
        rows.retain(|row| members.contains(row.pid));
        rows
    }

    /// Observes until the processes have ended, the time is over or a signal arrives. Returns the metrics of the whole time.
    fn follow(
        &mut self,
        arguments: &StatArgs,
        out: &mut Output,
        processes: &[Process],
        limit: Option<Duration>,
    ) -> Result<Stat> {
        let began = Instant::now();
        let whole = self.live.whole();
        let mut next = arguments.interval;
        let ended_early = loop {
            let (elapsed, have_ended) = (began.elapsed(), self.have_ended());
            let is_child_over = !processes.is_empty() && !processes.iter().any(Process::is_running);
            let is_late = limit.is_some_and(|limit| elapsed >= limit);
            if is_child_over || have_ended || is_late || signals::caught().is_some() {
                let limit = limit.filter(|_| have_ended && !is_late);
                break limit.map(|limit| ended_before(elapsed, limit));
            }
            if let (Some(at), Some(interval)) = (next, arguments.interval)
                && elapsed >= at
            {
                if interval >= JOIN_EVERY {
                    self.find_members();
                }
                let now = TreeReading::read(self.live.root(), &self.pids);
                let processes = self.rows(&self.last, &now);
                self.last = now;
                let figures = Interval { processes, ..self.live.interval() };
                out.interval(&self.with_memory(figures))?;
                next = Some(schedule::next(at, interval, began.elapsed()));
            }
            self.seen.look_if_due(self.live.root(), self.live.machine(), &self.pids);
            let until = [next, limit].into_iter().flatten().map(|at| at.saturating_sub(began.elapsed())).min();
            self.live.look();
            let pause = until.unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
            match processes.iter().find(|process| process.is_running()) {
                Some(process) => process.wait(pause),
                None => signals::sleep(pause),
            }
        };
        // Of memory that those share which began since the last look, the others have a part only: it would be in no row, and missing in the total.
        self.find_members();
        let now = TreeReading::read(self.live.root(), &self.pids);
        let processes = self.rows(&self.first, &now);
        let mut interval = whole.interval(&mut self.live);
        interval.notes.extend(ended_early);
        Ok(self.with_memory(Interval { processes, ..interval }))
    }

    /// An interval with the memory of the processes; of those that have ended, the last reading. What cannot be read is told.
    fn with_memory(&mut self, mut interval: Interval) -> Stat {
        let memory = self.seen.now(self.live.root(), self.live.machine(), &self.pids);
        interval.notes.extend(self.seen.unread());
        Stat { interval, memory }
    }
}

/// That processes which were to be observed for a time ended before it was over.
fn ended_before(after: Duration, limit: Duration) -> String {
    let [after, limit] = [after, limit].map(|time| units::time_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    format!("All of the processes had ended after {after}, before the {limit} of --for were over.")
}

/// Options of a live reading, with the reasons of `numapilot doctor` for metrics that have no source here.
pub fn options() -> LiveOptions {
    let diagnosis = numapilot_doctor::diagnose(&numapilot_doctor::probe());
    let pmu = diagnosis.engine(Engine::Pmu);
    let obstacle = pmu.and_then(|finding| finding.obstacles.first());
    let no_latency = match obstacle {
        Some(obstacle) => {
            format!(
                "no counter measures latencies here, and they cannot be sampled: {} ({})",
                obstacle.reason, obstacle.remedy
            )
        }
        None => "no counter measures latencies here; `numapilot record --engine pmu` samples them".to_owned(),
    };
    LiveOptions {
        scope: None,
        sampling: Sampling::Off,
        no_pmu: obstacle.map(|obstacle| obstacle.reason.clone()),
        no_latency,
    }
}

fn run_replay(arguments: &StatArgs, trace: &std::path::Path, out: &mut Output) -> Result<()> {
    let machine = arguments.machine.as_deref().map(Machine::load).transpose().context("--machine")?;
    let length = arguments.run_for.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let options =
        |interval_ns: u64| ReplayOptions { policy: arguments.policy.clone(), interval_ns, length_ns: length, seed: 1 };
    if let Some(interval) = arguments.interval {
        let replayed =
            replay::replay(trace, machine.clone(), &options(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)))?;
        for frame in replayed.frames {
            out.interval(&Stat { interval: frame.interval, memory: Vec::new() })?;
        }
    }
    // The whole is one long interval.
    let replayed = replay::replay(trace, machine, &options(u64::MAX / 2))?;
    let whole = replayed
        .frames
        .into_iter()
        .next()
        .ok_or(WatchError::Option { option: "--replay", why: "the replay has no length".to_owned() })?;
    let interval = Interval { notes: replayed.notes, ..whole.interval };
    out.summary(&Stat { interval, memory: Vec::new() }, arguments.interval.is_some())
}

enum To {
    Stream(Box<dyn Write>),
    File(PendingFile),
}

/// Where results go, and in which form.
struct Output {
    to: To,
    form: Form,
    full: bool,
    look: Look,
    is_first: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Csv,
}

impl Output {
    fn new(arguments: &StatArgs) -> Result<Output> {
        // A command's own output stays its own.
        let to = match &arguments.output {
            Some(path) => {
                let file = PendingFile::create(path).with_context(|| format!("{}: cannot be written", path.display()));
                To::File(file?)
            }
            None if arguments.command.is_empty() => To::Stream(Box::new(std::io::stdout())),
            None => To::Stream(Box::new(std::io::stderr())),
        };
        let form = match (arguments.json, arguments.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        let mut look = output::look(&arguments.look);
        look.colour &= arguments.output.is_none();
        Ok(Output { to, form, full: arguments.full, look, is_first: true })
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let to: &mut dyn Write = match &mut self.to {
            To::Stream(stream) => stream,
            To::File(file) => file,
        };
        match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
            // Nobody reads it any more: the command goes on, and its status is still to be told.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.context("output"),
        }
    }

    /// Completes the output: an output file gets its final name.
    fn finish(self) -> Result<()> {
        match self.to {
            To::File(file) => file.finish().context("output"),
            To::Stream(_) => Ok(()),
        }
    }

    fn interval(&mut self, stat: &Stat) -> Result<()> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let text = match self.form {
            Form::Json => serde_json::to_string(&stat::json(stat)).context("JSON")? + "\n",
            Form::Csv if is_first => stat::csv_heading().to_owned() + &stat::csv(stat),
            Form::Csv => stat::csv(stat),
            Form::Text if self.full => stat::text(stat, self.look) + "\n",
            Form::Text if is_first => stat::brief_heading(&stat.interval, self.look) + &stat::brief(&stat.interval),
            Form::Text => stat::brief(&stat.interval),
        };
        self.write(&text)
    }

    /// Writes the summary of the whole time; after intervals in text only, not in JSON or CSV.
    fn summary(&mut self, stat: &Stat, after_intervals: bool) -> Result<()> {
        match (self.form, after_intervals) {
            (Form::Text, true) => self.write(&("\n".to_owned() + &stat::text(stat, self.look))),
            (Form::Text, false) => self.write(&stat::text(stat, self.look)),
            (_, true) => Ok(()),
            (Form::Json, false) => {
                self.write(&(serde_json::to_string_pretty(&stat::json(stat)).context("JSON")? + "\n"))
            }
            (Form::Csv, false) => self.interval(stat),
        }
    }

    fn repeats(&mut self, repeats: &Repeats) -> Result<()> {
        match self.form {
            Form::Json => self.write(&(serde_json::to_string_pretty(&repeats.json()).context("JSON")? + "\n")),
            Form::Csv => self.write(&repeats.csv()),
            Form::Text => self.write(&repeats.text(self.look)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::process::Stdio;

    use clap::Parser;
    use numapilot_host::Group;

    use super::*;
    use crate::args::Arguments;

    /// `stat --pid 2` ended with status 0 and a report that had next to nothing in it.
    #[test]
    fn a_thread_of_the_kernel_is_refused() {
        let own = Pid::own();
        let folder = tempfile::tempdir().unwrap();
        let of_process = folder.path().join(format!("proc/{own}"));
        std::fs::create_dir_all(&of_process).unwrap();
        let zeros = " 0".repeat(48);
        std::fs::write(of_process.join("stat"), format!("{own} (task) S 1{zeros}\n")).unwrap();
        let told = |pages: &str| {
            std::fs::write(of_process.join("statm"), format!("{pages}\n")).unwrap();
            named(&Root::new(folder.path()), &[own], &GroupArgs::default()).map(|members| members.unwrap().pids())
        };
        let refused = told("0 0 0 0 0 0 0").unwrap_err().to_string();
        assert!(refused.contains("is a thread of the kernel and has no memory of its own"), "{refused}");
        assert_eq!(told("50 4 1 3 0 9 0").unwrap(), [own]);
        assert!(named(&Root::new(folder.path()), &[], &GroupArgs::default()).unwrap().is_none());
    }

    /// A server that forked in the last half second: its workers had no row, and of the memory that they share with it the total had the server's part alone.
    #[test]
    fn a_process_that_began_just_before_the_end_has_its_row_and_its_memory() {
        let arguments = Arguments::try_parse_from(["numapilot", "stat", "--no-samples", "--pid", "1"]).unwrap();
        let crate::args::Command::Stat(arguments) = arguments.command else { panic!("stat") };
        let mut server = Command::new("sh");
        server.args(["-c", "read go; sleep 60 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let pid = Pid::of_child(&server);
        let mut members = Members::new(Group::Trees(vec![pid]));
        members.refresh(&Root::default());
        let mut watched = Watched::open(&arguments, Scope::Processes(vec![pid])).unwrap();
        watched.attend(Some(members));
        watched.looked_at = Instant::now();
        server.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let worker = Pid(line.trim().parse().unwrap());
        let mut out = Output::new(&arguments).unwrap();
        let told = watched.follow(&arguments, &mut out, &[], Some(Duration::ZERO)).unwrap();
        Process::open(worker).unwrap().signal(libc::SIGKILL).unwrap();
        server.wait().unwrap();
        let mut rows: Vec<Pid> = told.interval.processes.iter().map(|process| process.pid).collect();
        rows.sort_unstable();
        assert_eq!(rows, [pid.min(worker), pid.max(worker)]);
        assert!(told.memory.iter().any(|map| map.pid == worker), "{:?}", told.memory.len());
        // With intervals of half a second the end was noticed some intervals later, or not at all.
        watched.looked_at = Instant::now() - JOIN_EVERY;
        watched.find_members();
        assert!(watched.have_ended());
        // Nothing was said, as if they had been observed for all of the time.
        let told = watched.follow(&arguments, &mut out, &[], Some(Duration::from_secs(3600))).unwrap();
        let is_told = |note: &String| note.contains("had ended after") && note.contains("--for");
        assert!(told.interval.notes.iter().any(is_told), "{:?}", told.interval.notes);
    }
}
