//! The running machine as the screen's source. Its own cost is bounded: sleeping processes are read rarely ([`Processes`]), threads and mappings only of the
//! process shown in detail.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Group;
use numapilot_host::Members;
use numapilot_host::title_of_named;
use numapilot_kernel::cpu_time::ticks_per_s;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_text::units;

use super::Source;
use super::memory::Memory;
use crate::figures::MetricValue;
use crate::figures::ProcessFigures;
use crate::figures::ThreadFigures;
use crate::live::Live;
use crate::live::Processes;
use crate::replay::Frame;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::Tid;

/// Maximum time between two readings of samples.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Titles that are read at one refresh, at most: more than a screen has rows.
const TITLES_MAX: usize = 256;
/// Titles of processes that did nothing that are read at one refresh after the first.
const IDLE_TITLES_MAX: usize = 64;
/// Process name of a recorder.
const RECORDER: &str = "numapilot";

/// A process's id, and when it started in clock ticks since boot: the id may go to another one.
type Identity = (Pid, Option<u64>);

/// The running machine as a source of frames.
pub struct LiveSource {
    live: Live,
    processes: Processes,
    began: Instant,
    memory: Memory,
    /// The processes that are listed; `None`: all.
    members: Option<Members>,
    /// By process id and start time: a process's name, and the title that it had when it last did something.
    titles: HashMap<Identity, (Arc<str>, Arc<str>)>,
    looked_at: Instant,
    /// Clock ticks by thread id of the process shown in detail.
    ticks: BTreeMap<Tid, u64>,
    /// That process, and when its threads were read.
    ticks_at: Option<(Pid, Instant)>,
    buffer: Vec<u8>,
}

impl LiveSource {
    /// Makes the source of an opened machine. `socket`: control socket of the balancer that may manage processes.
    #[must_use]
    pub fn new(live: Live, socket: PathBuf) -> LiveSource {
        let now = Instant::now();
        LiveSource {
            live,
            processes: Processes::default(),
            began: now,
            memory: Memory::new(socket),
            members: None,
            titles: HashMap::new(),
            looked_at: now,
            ticks: BTreeMap::new(),
            ticks_at: None,
            buffer: Vec::new(),
        }
    }

    /// Lists the processes of a group only, with their total.
    #[must_use]
    pub fn with_group(mut self, group: Option<Group>) -> LiveSource {
        self.members = group.map(Members::new);
        self
    }

    /// The processes of the group, if there is one, and their total.
    fn select(&mut self, frame: &mut Frame) {
        let Some(members) = &mut self.members else { return };
        members.refresh_from(&mut self.processes);
        let processes = &mut frame.interval.processes;
        processes.retain(|process| members.contains(process.pid));
        frame.total = Some(total(processes));
    }

    /// Puts titles in the place of names. A title is read when its process is new or did something: others have not changed theirs. Of many new processes
    /// those that the screen shows first have theirs first, and the others at later refreshes: some thousand files at once would hold up the first picture, and
    /// at each of the next ones would be most of what a refresh costs.
    fn put_titles(&mut self, processes: &mut [ProcessFigures]) {
        let is_first = self.titles.is_empty();
        let known_processes = &self.processes;
        let key = |pid: Pid| -> Identity { (pid, known_processes.start_ticks(pid)) };
        let mut kept = HashMap::with_capacity(processes.len());
        let mut unread = Vec::new();
        for (at, process) in processes.iter().enumerate() {
            let known = self.titles.remove(&key(process.pid)).filter(|(name, _)| *name == process.name);
            if known.is_none() || process.cpus > 0.0 {
                unread.push(at);
            }
            if let Some(entry) = known {
                kept.insert(key(process.pid), entry);
            }
        }
        let busy = unread.iter().filter(|&&at| processes[at].cpus > 0.0).count();
        let most = if is_first { TITLES_MAX } else { TITLES_MAX.min(busy + IDLE_TITLES_MAX) };
        if unread.len() > most {
            unread.select_nth_unstable_by(most, |&a, &b| {
                let (a, b) = (&processes[a], &processes[b]);
                b.cpus.total_cmp(&a.cpus).then(b.resident_bytes.cmp(&a.resident_bytes))
            });
            unread.truncate(most);
        }
        for process in unread.into_iter().map(|at| &processes[at]) {
            let title: Arc<str> = title_of_named(self.live.root(), process.pid, &process.name, &mut self.buffer).into();
            let title = if title.is_empty() { process.name.clone() } else { title };
            kept.insert(key(process.pid), (process.name.clone(), title));
        }
        for process in processes {
            if let Some((_, title)) = kept.get(&key(process.pid)) {
                process.name = title.clone();
            }
        }
        self.titles = kept;
    }

    fn threads(&mut self, pid: Pid) -> Vec<ThreadFigures> {
        let root = self.live.root().clone();
        let now = Instant::now();
        let elapsed = self.ticks_at.filter(|(of, _)| *of == pid).map(|(_, at)| now.duration_since(at).as_secs_f64());
        let mut seen = BTreeMap::new();
        let mut out = Vec::new();
        for tid in task::threads_under(root.path(), pid).unwrap_or_default() {
            let Ok(text) = root.read(&format!("proc/{pid}/task/{tid}/stat"), &mut self.buffer) else { continue };
            let Some(stat) = TaskStat::parse(text) else { continue };
            seen.insert(tid, stat.cpu_ticks());
            // One that was not there before has begun since, and used all of its time since.
            let used = stat.cpu_ticks().saturating_sub(self.ticks.get(&tid).copied().unwrap_or(0));
            let elapsed = elapsed.filter(|elapsed| *elapsed > 0.0);
            let cpu = CpuId(stat.cpu);
            out.push(ThreadFigures {
                tid,
                name: String::from_utf8_lossy(stat.name).into_owned(),
                node: self.live.machine().node_of_cpu(cpu),
                cpu: Some(cpu),
                cpus: elapsed.map_or(0.0, |elapsed| used as f64 / ticks_per_s() / elapsed),
            });
        }
        (self.ticks, self.ticks_at) = (seen, Some((pid, now)));
        out
    }
}

impl Source for LiveSource {
    fn machine(&self) -> &Machine {
        self.live.machine()
    }

    fn label(&self) -> String {
        let machine = self.live.machine();
        let host = Root::default().text("proc/sys/kernel/hostname").unwrap_or_default();
        let of = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        format!("{host}: {}, {}", of(machine.nodes().len(), "node"), of(machine.online_cpu_count(), "CPU"))
    }

    fn notes(&self) -> Vec<String> {
        self.live.hidden().map(str::to_owned).into_iter().collect()
    }

    fn next(&mut self, detail: Option<Pid>) -> Option<Frame> {
        let mut frame = Frame { interval: self.live.interval(), ..Frame::default() };
        let root = self.live.root().clone();
        if let Err(error) = self.processes.refresh(&root, self.began.elapsed().as_secs_f64()) {
            frame.interval.notes.push(format!("Processes cannot be listed: {error}."));
        }
        frame.interval.processes = self.processes.figures(self.live.machine());
        self.select(&mut frame);
        self.put_titles(&mut frame.interval.processes);
        if let Some(sampler) = self.live.sampler() {
            let (source, shares) = (sampler.source(), sampler.take_processes());
            for process in &mut frame.interval.processes {
                if let Some(share) = shares.get(&process.pid) {
                    process.local_share = MetricValue::estimate(*share, source);
                }
            }
        }
        match detail {
            Some(pid) => {
                frame.threads.insert(pid, self.threads(pid));
                let processes = &self.processes;
                let views = self.memory.views(&mut self.live, pid, || processes.named(RECORDER));
                frame.views.insert(pid, views);
            }
            None => self.memory.leave(&mut self.live),
        }
        self.looked_at = Instant::now();
        Some(frame)
    }

    fn idle(&mut self) {
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.looked_at = Instant::now();
            self.live.look();
            self.memory.look();
        }
    }
}

/// All processes of a group together.
fn total(processes: &[ProcessFigures]) -> ProcessFigures {
    ProcessFigures {
        name: units::counted(processes.len() as u64, "process", "processes").into(),
        threads: processes.iter().map(|process| process.threads).sum(),
        cpus: processes.iter().map(|process| process.cpus).sum(),
        resident_bytes: processes.iter().map(|process| process.resident_bytes).sum(),
        faults_per_s: processes.iter().map(|process| process.faults_per_s).sum(),
        ..ProcessFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A total of "1 processes".
    #[test]
    fn a_total_counts_its_processes_in_words() {
        let one = ProcessFigures { threads: 3, resident_bytes: 4096, ..ProcessFigures::default() };
        let totals = [total(std::slice::from_ref(&one)), total(&[one.clone(), one])];
        let told = totals.map(|total| (total.name.to_string(), total.threads, total.resident_bytes));
        assert_eq!(told, [("1 process".to_owned(), 3, 4096), ("2 processes".to_owned(), 6, 8192)]);
    }
}
