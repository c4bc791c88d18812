//! Counting events of `perf_event_open`: of a command from its start, of running processes, or of whole CPUs; nothing is sampled. Events of the whole machine
//! are opened for each CPU, so that counts are known by node; those of tasks only where that costs the tasks little (`layout`). If there are more events than
//! hardware counters, the kernel multiplexes them, and counts are scaled.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_machine::format_cpu_list;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::event_type;
use numapilot_perf_events::counter;
use numapilot_perf_events::counter::Count;
use numapilot_perf_events::counter::open_counter;
pub use numapilot_perf_events::open::Scope;
use numapilot_perf_events::open::raise_descriptor_limit;
use numapilot_perf_events::pulse::EnabledTimes;
use numapilot_perf_events::pulse::Pulse;
use numapilot_perf_events::syscall::ANY_CPU;

use crate::figures::EventFigures;
use crate::figures::MetricValue;
use crate::live::layout::Layout;
use crate::live::layout::Size;
use crate::live::layout::has_kinds_of_cores;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::cpuinfo;

/// Numbers of `enum perf_hw_cache_id`, `_op_id` and `_result_id` for memory reads by node: all, or the remote ones.
const NODE_READ: u64 = 6;
const MISS: u64 = 1 << 16;

/// An event that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name of the event, as in perf.
    pub name: &'static str,
    kind: u32,
    config: u64,
}

/// Which part of a task's time an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it, also for those who may not observe the kernel.
    All,
    /// The kernel's alone: the event is raised in the scheduler, and is always 0 for those who may not observe that.
    Kernel,
    /// User code and the kernel's; without the right to observe the kernel, user code alone.
    Both,
}

impl Event {
    fn is_software(&self) -> bool {
        self.kind == event_type::SOFTWARE
    }

    fn part(&self) -> Part {
        match (self.is_software(), self.config) {
            (true, 1) => Part::All,
            (true, 3 | 4) => Part::Kernel,
            _ => Part::Both,
        }
    }
}

const fn event(name: &'static str, kind: u32, config: u64) -> Event {
    Event { name, kind, config }
}

/// The events, in the order in which they are shown. Numbers: `include/uapi/linux/perf_event.h`.
pub const EVENTS: [Event; 10] = [
    event("task-clock", event_type::SOFTWARE, 1),
    event("context-switches", event_type::SOFTWARE, 3),
    event("cpu-migrations", event_type::SOFTWARE, 4),
    event("minor-faults", event_type::SOFTWARE, 5),
    event("major-faults", event_type::SOFTWARE, 6),
    event("cycles", event_type::HARDWARE, 0),
    event("instructions", event_type::HARDWARE, 1),
    event("cache-misses", event_type::HARDWARE, 3),
    event("node-loads", event_type::HW_CACHE, NODE_READ),
    event("node-load-misses", event_type::HW_CACHE, NODE_READ | MISS),
];
const COUNT: usize = EVENTS.len();
/// Share of the time from which an event counts as having run all the time: tasks' times are sums of many short ones.
const ALL_THE_TIME: f64 = 0.99;

/// A count as the kernel gives it (`PERF_FORMAT_TOTAL_TIME_ENABLED | _RUNNING`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    value: u64,
    enabled: u64,
    running: u64,
}

impl Raw {
    fn add(&mut self, other: Raw) {
        self.value = self.value.saturating_add(other.value);
        self.enabled = self.enabled.saturating_add(other.enabled);
        self.running = self.running.saturating_add(other.running);
    }

    fn since(self, before: Raw) -> Raw {
        Raw {
            value: self.value.saturating_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }

    /// The count scaled to the whole time, exact if it counted all the time; `None` if it never did.
    fn scaled(self) -> Option<f64> {
        match (self.enabled, self.running) {
            (enabled, running) if enabled == running => Some(self.value as f64),
            (_, 0) => None,
            (enabled, running) => Some(self.value as f64 * enabled as f64 / running as f64),
        }
    }
}

struct Open {
    fd: OwnedFd,
    /// Index of its sum.
    sum: usize,
    /// The process for which it was opened; `None`: not for a single one.
    process: Option<Pid>,
    /// The CPU on which it counts, or any.
    cpu: CpuId,
}

/// Events of one kind, whose counts are added up. It stays when they are closed.
struct Sum {
    event: usize,
    place: Place,
    /// How many such events stand for one task: each is enabled as long as the task runs, and counts on one CPU of so many.
    shares: usize,
    /// What those had counted that were closed.
    closed: Raw,
}

/// What is known of the node on which an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The node.
    Node(NodeIndex),
    /// The CPU belongs to no node.
    Nowhere,
    /// It counts on several nodes.
    Anywhere,
}

/// Opens an event for a task and a CPU.
type Opener<'a> = &'a mut dyn FnMut(EventAttr, libc::pid_t, CpuId) -> io::Result<OwnedFd>;

/// Why an event is not opened.
enum Refusal {
    /// The system call's error.
    System(io::Error),
    /// It would be 0, because this user may not observe the kernel.
    KernelHidden,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::System(error)
    }
}

/// The opened counters.
#[derive(Default)]
pub struct Counters {
    open: Vec<Open>,
    sums: Vec<Sum>,
    /// Why each event could not be opened.
    refused: [Option<String>; COUNT],
    node_loads_are_all: Option<bool>,
    /// What decides how events of tasks are opened; `None`: those of the whole machine are.
    tasks: Option<Size>,
    /// The CPUs that had events of the whole machine at the last look.
    cpus: BTreeSet<CpuId>,
    /// Those on which events could not be opened when they came online.
    uncounted: BTreeSet<CpuId>,
    /// Shows on which CPUs events of the whole machine have ended.
    pulse: Pulse,
    /// CPUs that were offline between two looks, so that some of what they did was not counted.
    interrupted: BTreeSet<CpuId>,
    /// Events that count user code alone, because this user may not observe the kernel.
    user_only: [bool; COUNT],
    /// The processor's events count nothing that virtual machines of this host do ([`guests_have_the_counters`]).
    host_only: bool,
    /// Processes that this user may not observe.
    denied: BTreeSet<Pid>,
}

/// Counts at one moment, in the order of the sums: those of what was opened later are at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersReading(Vec<Raw>);

/// Sums by event, of all CPUs or of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    counts: [Option<f64>; COUNT],
    running: [f64; COUNT],
}

impl Sums {
    /// Whether the count of one of these events was scaled, because it did not count all the time.
    fn is_scaled(&self, events: &[usize]) -> bool {
        events.iter().any(|event| self.running[*event] < 1.0)
    }
}

impl Counters {
    /// Opens the events that can be opened, and keeps the reasons for the others. `because`: why this machine's processor offers no events, if known.
    #[must_use]
    pub fn open(root: &Root, machine: &Machine, scope: &Scope, because: Option<&str>) -> Counters {
        raise_descriptor_limit();
        Counters::open_with(root, machine, scope, because, &mut open_counter)
    }

    fn open_with(root: &Root, machine: &Machine, scope: &Scope, because: Option<&str>, opener: Opener<'_>) -> Counters {
        let tasks = (*scope != Scope::System).then(|| Size {
            events: EVENTS.iter().filter(|event| !event.is_software()).count(),
            cpus: machine.online_cpu_count(),
            nodes: nodes_with_cpus(machine),
            threads: threads_in(scope),
            has_kinds: has_kinds_of_cores(root, machine),
        });
        let mut counters = Counters {
            node_loads_are_all: node_loads_are_all(root),
            tasks,
            host_only: guests_have_the_counters(root),
            ..Counters::default()
        };
        for (index, event) in EVENTS.iter().enumerate() {
            let (opened, sums) = (counters.open.len(), counters.sums.len());
            if counters.layout_of(index) == Layout::Refused {
                counters.refused[index] = Some(SEVERAL_KINDS.to_owned());
            } else if let Err(refusal) = counters.open_one(index, machine, scope, opener) {
                counters.open.truncate(opened);
                counters.sums.truncate(sums);
                counters.refused[index] = Some(reason(event, &refusal, because));
            }
        }
        counters.cpus = machine.cpus().iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect();
        counters
    }

    /// How an event is opened.
    fn layout_of(&self, index: usize) -> Layout {
        match self.tasks {
            None => Layout::EachCpu,
            // No table shows these by node.
            Some(_) if EVENTS[index].is_software() => Layout::Anywhere,
            Some(size) => size.layout(),
        }
    }

    /// Makes counters without events, for this reason.
    #[must_use]
    pub fn none(why: &str) -> Counters {
        Counters { refused: std::array::from_fn(|_| Some(why.to_owned())), ..Counters::default() }
    }

    /// Counts these processes too, which joined without having inherited the events. One that has ended, or may not be observed, is no error.
    pub fn join(&mut self, machine: &Machine, pids: &[Pid]) {
        let scope = Scope::Processes(pids.to_vec());
        if let Some(size) = &mut self.tasks {
            size.threads += threads_in(&scope);
        }
        for index in 0..COUNT {
            if self.refused[index].is_none() && self.layout_of(index) != Layout::Refused {
                // What is refused for them is listed, or is told of the first processes.
                let _ = self.open_one(index, machine, &scope, &mut open_counter);
            }
        }
    }

    /// Closes the events that were opened for these processes, none of which runs any more, nor anything that inherited their events. What these counted stays
    /// in all sums.
    pub fn close(&mut self, pids: &[Pid]) {
        let threads = self.close_those(|open| open.process.is_some_and(|process| pids.contains(&process)));
        if let Some(size) = &mut self.tasks {
            size.threads = size.threads.saturating_sub(threads);
        }
    }

    /// Closes some events, and keeps what they counted. Returns how many were of the first kind, which is opened once for a task.
    fn close_those(&mut self, is_over: impl Fn(&Open) -> bool) -> usize {
        let Counters { open, sums, .. } = self;
        let mut first = 0;
        open.retain(|open| {
            if !is_over(open) {
                return true;
            }
            let sum = &mut sums[open.sum];
            sum.closed.add(read_one(&open.fd).unwrap_or_default());
            first += usize::from(sum.event == 0);
            false
        });
        first
    }

    /// Follows CPUs that have gone offline or come online: events of the whole machine end with the CPU that they are on, and count nothing when it comes back
    /// (`__perf_event_exit_context` in `kernel/events/core.c`). `online`: those that are online now.
    pub fn follow_cpus(&mut self, machine: &Machine, online: &BTreeSet<CpuId>) {
        let stopped = self.stopped();
        self.follow_with(machine, online, &stopped, &mut open_counter);
    }

    /// CPUs whose events of the whole machine have ended since the last look, as those of a CPU do that went offline and came back meanwhile.
    fn stopped(&mut self) -> BTreeSet<CpuId> {
        let now = Instant::now();
        if self.tasks.is_some() || !self.pulse.is_due(now) {
            return BTreeSet::new();
        }
        let mut enabled = EnabledTimes::new();
        for open in &self.open {
            // The time of the processor's events may stand still while a guest runs.
            let is_software = EVENTS[self.sums[open.sum].event].is_software();
            if is_software && enabled.get(&open.cpu).is_none_or(Option::is_none) {
                enabled.insert(open.cpu, read_one(&open.fd).map(|raw| raw.enabled));
            }
        }
        self.pulse.stopped(now, enabled)
    }

    fn follow_with(
        &mut self,
        machine: &Machine,
        online: &BTreeSet<CpuId>,
        stopped: &BTreeSet<CpuId>,
        opener: Opener<'_>,
    ) {
        if self.tasks.is_some() || self.open.is_empty() || self.cpus == *online && stopped.is_empty() {
            return;
        }
        self.close_those(|open| !online.contains(&open.cpu) || stopped.contains(&open.cpu));
        self.uncounted.retain(|cpu| online.contains(cpu));
        let mut before = std::mem::replace(&mut self.cpus, online.clone());
        self.interrupted.extend(stopped.iter().filter(|cpu| before.contains(*cpu) && online.contains(*cpu)));
        before.retain(|cpu| !stopped.contains(cpu));
        for &cpu in online.difference(&before) {
            let place = place_of(machine, cpu);
            for index in 0..COUNT {
                let is_wanted = self.refused[index].is_none();
                if is_wanted && self.open_on(index, &Scope::System, (-1, cpu), (place, 1), opener).is_err() {
                    self.uncounted.insert(cpu);
                }
            }
        }
    }

    /// Whether events of tasks are opened for each CPU: then they count nothing on CPUs that come online later.
    #[must_use]
    pub fn are_of_tasks_by_cpu(&self) -> bool {
        self.tasks.is_some() && self.open.iter().any(|open| open.cpu != ANY_CPU)
    }

    /// Processes that this user may not observe, by process id.
    pub fn denied(&self) -> impl Iterator<Item = Pid> + '_ {
        self.denied.iter().copied()
    }

    /// What the reader has to know of the counts, in whole sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let is_opened = |event: usize| self.sums.iter().any(|sum| sum.event == event);
        let of_tasks = self.tasks.filter(|size| size.nodes > 1);
        let is_split = |sum: &Sum| EVENTS[sum.event].is_software() || sum.place != Place::Anywhere;
        let unsplit = of_tasks.filter(|_| !self.sums.iter().all(is_split)).map(|size| {
            format!(
                "Events of the processor are not counted by node: for that each thread would have {} events for each of {} CPUs, which would make its \
                 forks and new threads slow; `--system` counts the whole machine by node.",
                size.events, size.cpus
            )
        });
        let user_only: Vec<&str> = (0..COUNT)
            .filter(|event| self.user_only[*event] && is_opened(*event))
            .map(|event| EVENTS[event].name)
            .collect();
        let user_only = (!user_only.is_empty()).then(|| {
            format!(
                "Without the right to observe the kernel (kernel.perf_event_paranoid above 1 and no CAP_PERFMON) these count user code alone: {}.",
                user_only.join(", ")
            )
        });
        let counts = |sum: &Sum| !EVENTS[sum.event].is_software();
        let host_only = (self.host_only && self.sums.iter().any(counts)).then(|| HOST_ONLY.to_owned());
        let interrupted = format_cpu_list(self.interrupted.iter().map(|cpu| cpu.0));
        let interrupted = (!interrupted.is_empty()).then(|| {
            format!(
                "CPUs {interrupted} were offline for a moment: some of what was done there afterwards is not counted."
            )
        });
        unsplit.into_iter().chain(user_only).chain(host_only).chain(self.uncounted()).chain(interrupted).collect()
    }

    /// CPUs that went offline and came back between two looks.
    pub fn interrupted(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.interrupted.iter().copied()
    }

    /// That events could not be opened on CPUs that came online, as a sentence; `None`: they were.
    #[must_use]
    pub fn uncounted(&self) -> Option<String> {
        let cpus = format_cpu_list(self.uncounted.iter().map(|cpu| cpu.0));
        (!cpus.is_empty()).then(|| {
            format!("Events could not be opened on CPUs that came online since the start, and are not counted there: {cpus}.")
        })
    }

    fn open_one(&mut self, index: usize, machine: &Machine, scope: &Scope, opener: Opener<'_>) -> Result<(), Refusal> {
        let pids = match scope {
            Scope::Children => return self.open_task(index, machine, scope, 0, opener),
            Scope::System => return self.open_task(index, machine, scope, -1, opener),
            Scope::Processes(pids) => pids,
        };
        let (opened, mut denied) = (self.open.len(), None);
        for &pid in pids {
            let before = self.open.len();
            let tids = numapilot_kernel::task::threads_of(pid).unwrap_or_default();
            for task in tids.into_iter().filter_map(|tid| libc::pid_t::try_from(tid.0).ok()) {
                match self.open_task(index, machine, scope, task, opener) {
                    Err(Refusal::System(error)) if is_denied(&error) => {
                        denied = Some((pid, error));
                        break;
                    }
                    other => other?,
                }
            }
            self.open[before..].iter_mut().for_each(|open| open.process = Some(pid));
            self.denied.extend(denied.as_ref().map(|(pid, _)| *pid).filter(|denied| *denied == pid));
        }
        // If all are refused, so is the event.
        match denied.filter(|_| self.open.len() == opened) {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn open_task(
        &mut self,
        index: usize,
        machine: &Machine,
        scope: &Scope,
        task: libc::pid_t,
        opener: Opener<'_>,
    ) -> Result<(), Refusal> {
        if self.layout_of(index) == Layout::Anywhere {
            // On a machine with one node there is no doubt.
            let only = machine.nodes().iter().position(|node| !node.cpus.is_empty()).map(NodeIndex);
            let is_only = nodes_with_cpus(machine) == 1;
            let place = only.filter(|_| is_only).map_or(Place::Anywhere, Place::Node);
            return self.open_on(index, scope, (task, ANY_CPU), (place, 1), opener);
        }
        let shares = self.tasks.map_or(1, |size| size.cpus.max(1));
        for cpu in machine.cpus().iter().filter(|cpu| cpu.online) {
            self.open_on(index, scope, (task, cpu.id), (place_of(machine, cpu.id), shares), opener)?;
        }
        Ok(())
    }

    fn open_on(
        &mut self,
        index: usize,
        scope: &Scope,
        (task, cpu): (libc::pid_t, CpuId),
        (place, shares): (Place, usize),
        opener: Opener<'_>,
    ) -> Result<(), Refusal> {
        match open_for(&EVENTS[index], scope, self.host_only, (task, cpu), opener) {
            Ok((fd, user_only)) => {
                self.user_only[index] |= user_only;
                let is_it = |sum: &Sum| sum.event == index && sum.place == place && sum.shares == shares;
                let sum = self.sums.iter().position(is_it).unwrap_or_else(|| {
                    self.sums.push(Sum { event: index, place, shares, closed: Raw::default() });
                    self.sums.len() - 1
                });
                self.open.push(Open { fd, sum, process: None, cpu });
                Ok(())
            }
            // A thread has ended, or a CPU went offline, since it was listed.
            Err(Refusal::System(error)) if is_about_one(&error, scope, cpu) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Reads every counter.
    #[must_use]
    pub fn read(&self) -> CountersReading {
        let mut counts: Vec<Raw> = self.sums.iter().map(|sum| sum.closed).collect();
        for open in &self.open {
            counts[open.sum].add(read_one(&open.fd).unwrap_or_default());
        }
        CountersReading(counts)
    }

    /// Sums between two readings, of a node or of all CPUs.
    #[must_use]
    pub fn sums(&self, before: &CountersReading, now: &CountersReading, node: Option<NodeIndex>) -> Sums {
        let since = |index: usize| {
            let now = now.0.get(index).copied().unwrap_or_default();
            now.since(before.0.get(index).copied().unwrap_or_default())
        };
        let mut sums = Sums { running: [1.0; COUNT], ..Sums::default() };
        let mut all = [Total::default(); COUNT];
        for (index, sum) in self.sums.iter().enumerate() {
            let since = since(index);
            let total = &mut all[sum.event];
            // A task's event for one CPU is enabled but does not run while the task is on another CPU.
            total.enabled += since.enabled as f64 / sum.shares.max(1) as f64;
            total.running += since.running as f64;
            let is_of_it = node.is_none_or(|node| sum.place == Place::Node(node));
            total.value += if is_of_it { since.value as f64 } else { 0.0 };
            total.is_known = (total.is_known || total.parts == 0) && (node.is_none() || sum.place != Place::Anywhere);
            total.parts += 1;
        }
        for (event, total) in all.iter().enumerate().filter(|(_, total)| total.is_known) {
            let took_turns = !EVENTS[event].is_software() && total.running < total.enabled * ALL_THE_TIME;
            sums.running[event] = if took_turns { total.running / total.enabled } else { 1.0 };
            let scale = if took_turns { 1.0 / sums.running[event] } else { 1.0 };
            // One that never had a hardware counter counted nothing, which is not 0.
            sums.counts[event] = Some(total.value * scale).filter(|count| count.is_finite());
        }
        sums
    }

    /// All events with their counts.
    #[must_use]
    pub fn figures(&self, sums: &Sums) -> Vec<EventFigures> {
        let of = |index: usize| {
            let source = if EVENTS[index].is_software() { "kernel" } else { "core PMU" };
            let source = self.of_part(source, &[index]);
            let count = MetricValue::of(sums.counts[index], &source, self.why_not(sums, index));
            let count = count.estimated_if(sums.is_scaled(&[index]));
            EventFigures { name: EVENTS[index].name, count, running: sums.running[index] }
        };
        (0..COUNT).map(of).collect()
    }

    /// Instructions per cycle.
    #[must_use]
    pub fn ipc(&self, sums: &Sums) -> MetricValue {
        self.ratio(sums, "instructions", "cycles", 1.0)
    }

    /// Last-level misses per 1,000 instructions.
    #[must_use]
    pub fn l3_mpki(&self, sums: &Sums) -> MetricValue {
        self.ratio(sums, "cache-misses", "instructions", 1000.0)
    }

    /// Share of memory reads that the node's own memory answered.
    #[must_use]
    pub fn local_share(&self, sums: &Sums) -> MetricValue {
        let of = |name: &str| sums.counts[position(name)];
        let (Some(loads), Some(misses)) = (of("node-loads"), of("node-load-misses")) else {
            let missing = ["node-loads", "node-load-misses"]
                .map(position)
                .into_iter()
                .find(|event| sums.counts[*event].is_none());
            return MetricValue::Missing(missing.map_or("", |event| self.why_not(sums, event)).to_owned());
        };
        let share = match self.node_loads_are_all {
            None => return MetricValue::Missing("what node-loads counts on this processor is not known".into()),
            Some(true) => 1.0 - misses / loads,
            Some(false) => loads / (loads + misses),
        };
        let told = MetricValue::of(
            Some(share).filter(|share| (0.0..=1.0).contains(share)),
            &self.of_part("core PMU (node-loads, node-load-misses)", &[position("node-loads")]),
            "no memory reads in the interval",
        );
        told.estimated_if(sums.is_scaled(&["node-loads", "node-load-misses"].map(position)))
    }

    fn ratio(&self, sums: &Sums, over: &str, under: &str, scale: f64) -> MetricValue {
        let events = [position(over), position(under)];
        let source = self.of_part(&format!("core PMU ({over}, {under})"), &events);
        let missing = events.into_iter().find(|event| sums.counts[*event].is_none());
        let why = missing.map_or("nothing ran in the interval", |event| self.why_not(sums, event));
        let ratio = sums.counts[events[0]].zip(sums.counts[events[1]]).filter(|(_, under)| *under > 0.0);
        let told = MetricValue::of(ratio.map(|(over, under)| over / under * scale), &source, why);
        told.estimated_if(sums.is_scaled(&events))
    }

    /// The source of what these events count, with the part that they leave out.
    fn of_part(&self, source: &str, events: &[usize]) -> String {
        let is_user_only = events.iter().any(|event| self.user_only[*event]);
        let is_host_only = self.host_only && events.iter().any(|event| !EVENTS[*event].is_software());
        let parts = [(is_user_only, ", user code only"), (is_host_only, ", without guests")];
        let parts: String = parts.iter().filter(|(is_so, _)| *is_so).map(|(_, words)| *words).collect();
        format!("{source}{parts}")
    }

    /// Why an event has no count.
    fn why_not(&self, sums: &Sums, event: usize) -> &str {
        let is_opened = || self.sums.iter().any(|sum| sum.event == event);
        match &self.refused[event] {
            Some(why) => why,
            None if sums.running[event] <= 0.0 && is_opened() => NEVER_RAN,
            None if is_opened() => "events of processes are not counted by node on a machine of this size",
            None => "no thread of the processes could be counted: they have ended, or /proc does not show them",
        }
    }
}

fn position(name: &str) -> usize {
    EVENTS.iter().position(|event| event.name == name).unwrap_or(0)
}

/// Sum of an event's counts.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    value: f64,
    enabled: f64,
    running: f64,
    parts: usize,
    /// Whether all of it is known by node, if a node's is wanted.
    is_known: bool,
}

const NEVER_RAN: &str = "other events (the NMI watchdog's, other programs') had the processor's counters all the time";
const HOST_ONLY: &str = "What virtual machines on this host do is not counted: its KVM gives them the processor's counters (`enable_mediated_pmu`).";
const SEVERAL_KINDS: &str = "this machine has cores of several kinds and many CPUs, so a thread would need too many events; `--system` counts them all";

/// Whether KVM gives its guests the processor's counters (since Linux 7.0, where its parameter says so). An event that does not leave guests out is refused
/// then while one runs (EOPNOTSUPP), and while there is such an event no guest starts (EBUSY): `mediated_pmu_account_event` and `perf_create_mediated_pmu` in
/// kernel/events/core.c. Elsewhere, events count guests, too: these run in threads of the process that has their memory, so their accesses are the process's.
fn guests_have_the_counters(root: &Root) -> bool {
    let is_on = |module: &str| root.text(&format!("sys/module/{module}/parameters/enable_mediated_pmu"));
    ["kvm_intel", "kvm_amd"].into_iter().filter_map(is_on).any(|value| matches!(value.as_str(), "Y" | "1"))
}

/// Where an event counts that is on a CPU.
fn place_of(machine: &Machine, cpu: CpuId) -> Place {
    let node = machine.node_of_cpu(cpu).and_then(|node| machine.node_index(node));
    node.map_or(Place::Nowhere, Place::Node)
}

fn nodes_with_cpus(machine: &Machine) -> usize {
    machine.nodes().iter().filter(|node| !node.cpus.is_empty()).count()
}

/// Threads that get events of their own.
fn threads_in(scope: &Scope) -> usize {
    match scope {
        Scope::Processes(pids) => {
            pids.iter().map(|pid| numapilot_kernel::task::threads_of(*pid).map_or(0, |tids| tids.len())).sum()
        }
        Scope::Children | Scope::System => 1,
    }
}

/// Opens `event`; excludes the kernel if counting it is refused, where that leaves something to count. Returns whether it did.
fn open_for(
    event: &Event,
    scope: &Scope,
    host_only: bool,
    (task, cpu): (libc::pid_t, CpuId),
    opener: Opener<'_>,
) -> Result<(OwnedFd, bool), Refusal> {
    let mut flags = u64::from(host_only && !event.is_software()) << attr_flag::EXCLUDE_GUEST;
    if *scope != Scope::System {
        flags |= 1 << attr_flag::INHERIT;
    }
    if *scope == Scope::Children {
        flags |= 1 << attr_flag::DISABLED | 1 << attr_flag::ENABLE_ON_EXEC;
    }
    let mut open = |flags: u64| {
        opener(EventAttr { kind: event.kind, config: event.config, flags, ..EventAttr::default() }, task, cpu)
    };
    let user = 1 << attr_flag::EXCLUDE_KERNEL | 1 << attr_flag::EXCLUDE_HV;
    match open(flags) {
        Err(error) if is_denied(&error) => match (open(flags | user)?, event.part()) {
            (_, Part::Kernel) => Err(Refusal::KernelHidden),
            (fd, part) => Ok((fd, part == Part::Both)),
        },
        other => Ok((other?, false)),
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Reads a counter.
pub fn read_one(fd: &OwnedFd) -> Option<Raw> {
    let Count { value, enabled_ns, running_ns } = counter::read(fd)?;
    Some(Raw { value, enabled: enabled_ns, running: running_ns })
}

/// Whether a counter counted only a part of the time between two readings, so that its count is scaled.
#[must_use]
pub fn is_scaled_since(before: Raw, now: Raw) -> bool {
    let since = now.since(before);
    (since.running as f64) < since.enabled as f64 * ALL_THE_TIME
}

/// The scaled count between two readings of one counter; `None` if it never counted in between.
#[must_use]
pub fn scaled_since(before: Raw, now: Raw) -> Option<f64> {
    now.since(before).scaled()
}

fn is_about_one(error: &io::Error, scope: &Scope, cpu: CpuId) -> bool {
    match error.raw_os_error() {
        Some(libc::ESRCH) => matches!(scope, Scope::Processes(_)),
        // For the first CPU it means that the event does not exist.
        Some(libc::ENODEV) => cpu != CpuId(0) && cpu != ANY_CPU,
        _ => false,
    }
}

fn reason(event: &Event, refusal: &Refusal, because: Option<&str>) -> String {
    let paranoid = numapilot_kernel::sysctl::perf_event_paranoid();
    let error = match refusal {
        Refusal::System(error) => error,
        Refusal::KernelHidden => {
            let level = paranoid.map_or(String::new(), |level| format!(" (kernel.perf_event_paranoid is {level})"));
            return format!(
                "{}: they happen in the kernel, which this user may not observe{level}; run as root or with CAP_PERFMON, or set \
                 kernel.perf_event_paranoid to 1",
                event.name
            );
        }
    };
    match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level)) => {
            format!(
                "{}: the kernel refuses (kernel.perf_event_paranoid is {level}); run as root or with CAP_PERFMON",
                event.name
            )
        }
        (Some(libc::EACCES | libc::EPERM | libc::ENOSYS), _) => {
            format!(
                "{}: this process may not open events (perhaps because of a container's seccomp profile)",
                event.name
            )
        }
        (Some(libc::EMFILE), _) => format!("{}: too many open files; raise `ulimit -n`", event.name),
        (Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL), _) if !event.is_software() => {
            match because {
                Some(because) => because.to_owned(),
                None => format!("the processor (or virtual machine) does not offer {}", event.name),
            }
        }
        _ => format!("{}: {error}", event.name),
    }
}

/// Whether the kernel's `node-loads` counts all reads from memory (AMD before Zen, Intel before Haswell), or only the local ones (Intel since Haswell), so that
/// the misses are added; `None`: not known. `arch/x86/events/intel/core.c` (`*_hw_cache_extra_regs`: `SNB_DRAM_ANY` against `HSW_L3_MISS_LOCAL_DRAM`),
/// `arch/x86/events/amd/core.c` (requests to memory, "l+r" against "r").
fn node_loads_are_all(root: &Root) -> Option<bool> {
    // Nehalem, Westmere, Sandy Bridge, Ivy Bridge; older models have no such event.
    const INTEL_BEFORE_HASWELL: [u64; 11] = [0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f, 0x2a, 0x2d, 0x3a, 0x3e];
    let text = cpuinfo::read(root);
    match cpuinfo::field(&text, &["vendor_id"])? {
        "AuthenticAMD" => Some(true),
        "GenuineIntel" => Some(INTEL_BEFORE_HASWELL.contains(&cpuinfo::field(&text, &["model"])?.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
