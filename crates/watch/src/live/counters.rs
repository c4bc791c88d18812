//! Counting events of `perf_event_open`: of a command from its start, of running processes, or of whole CPUs. There is one event per CPU, so that counts are
//! known by node; nothing is sampled. If there are more events than hardware counters, the kernel multiplexes them, and counts are scaled.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use numapilot_machine::Machine;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::event_type;
use numapilot_perf::abi::read_format;
use numapilot_perf_events::event::EventRequest;
pub use numapilot_perf_events::open::Scope;
use numapilot_perf_events::open::raise_descriptor_limit;
use numapilot_perf_events::syscall::open_event;

use crate::figures::EventFigures;
use crate::figures::MetricValue;
use numapilot_host::Root;

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
    fn since(self, before: Raw) -> Raw {
        Raw {
            value: self.value.saturating_sub(before.value),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }

    /// The count scaled to the whole time; exact if it counted all the time.
    fn scaled(self) -> f64 {
        match (self.enabled, self.running) {
            (enabled, running) if enabled == running => self.value as f64,
            (_, 0) => 0.0,
            (enabled, running) => self.value as f64 * enabled as f64 / running as f64,
        }
    }
}

struct Open {
    fd: OwnedFd,
    event: usize,
    /// Index of its CPU's node.
    node: Option<usize>,
}

/// The opened counters.
#[derive(Default)]
pub struct Counters {
    open: Vec<Open>,
    /// Why each event could not be opened.
    refused: [Option<String>; COUNT],
    node_loads_are_all: Option<bool>,
    /// Whether the events count tasks, with one event per CPU.
    is_of_tasks: bool,
    cpus: usize,
    /// Processes that this user may not observe.
    denied: BTreeSet<u32>,
}

/// Counts at one moment, in the order of the opened events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersReading(Vec<Raw>);

/// Sums by event, of all CPUs or of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    counts: [Option<f64>; COUNT],
    running: [f64; COUNT],
}

impl Counters {
    /// Opens the events that can be opened, and keeps the reasons for the others. `because`: why this machine's processor offers no events, if known.
    #[must_use]
    pub fn open(root: &Root, machine: &Machine, scope: &Scope, because: Option<&str>) -> Counters {
        raise_descriptor_limit();
        let mut counters = Counters {
            node_loads_are_all: node_loads_are_all(root),
            is_of_tasks: *scope != Scope::System,
            cpus: machine.online_cpu_count(),
            ..Counters::default()
        };
        for (index, event) in EVENTS.iter().enumerate() {
            let opened = counters.open.len();
            if let Err(error) = counters.open_one(index, machine, scope) {
                counters.open.truncate(opened);
                counters.refused[index] = Some(reason(event, &error, because));
            }
        }
        counters
    }

    /// Makes counters without events, for this reason.
    #[must_use]
    pub fn none(why: &str) -> Counters {
        Counters { refused: std::array::from_fn(|_| Some(why.to_owned())), ..Counters::default() }
    }

    /// Counts these processes too, which joined without having inherited the events. One that has ended, or may not be observed, is no error.
    pub fn join(&mut self, machine: &Machine, pids: &[u32]) {
        let scope = Scope::Processes(pids.to_vec());
        for index in 0..COUNT {
            if self.refused[index].is_none() {
                // What is refused for them is listed, or is told of the first processes.
                let _ = self.open_one(index, machine, &scope);
            }
        }
    }

    /// Processes that this user may not observe, by process id.
    pub fn denied(&self) -> impl Iterator<Item = u32> + '_ {
        self.denied.iter().copied()
    }

    fn open_one(&mut self, index: usize, machine: &Machine, scope: &Scope) -> io::Result<()> {
        let pids = match scope {
            Scope::Children => return self.open_task(index, machine, scope, 0),
            Scope::System => return self.open_task(index, machine, scope, -1),
            Scope::Processes(pids) => pids,
        };
        let (opened, mut denied) = (self.open.len(), None);
        for &pid in pids {
            let tids = numapilot_kernel::task::threads_of(pid).unwrap_or_default();
            for task in tids.into_iter().filter_map(|tid| libc::pid_t::try_from(tid).ok()) {
                match self.open_task(index, machine, scope, task) {
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                        denied = Some((pid, error));
                        break;
                    }
                    other => other?,
                }
            }
            self.denied.extend(denied.as_ref().map(|(pid, _)| *pid).filter(|denied| *denied == pid));
        }
        // If all are refused, so is the event.
        match denied.filter(|_| self.open.len() == opened) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn open_task(&mut self, index: usize, machine: &Machine, scope: &Scope, task: libc::pid_t) -> io::Result<()> {
        for cpu in machine.cpus().iter().filter(|cpu| cpu.online) {
            let node = cpu.node.and_then(|node| machine.node_index(node));
            match open_for(&EVENTS[index], scope, task, cpu.id.0) {
                Ok(fd) => self.open.push(Open { fd, event: index, node }),
                // A thread has ended, or a CPU went offline, since it was listed.
                Err(error) if is_about_one(&error, scope, cpu.id.0) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads every counter.
    #[must_use]
    pub fn read(&self) -> CountersReading {
        CountersReading(self.open.iter().map(|open| read_one(&open.fd).unwrap_or_default()).collect())
    }

    /// Sums between two readings, of a node (index) or of all CPUs.
    #[must_use]
    pub fn sums(&self, before: &CountersReading, now: &CountersReading, node: Option<usize>) -> Sums {
        let since = |index: usize| {
            let now = now.0.get(index).copied().unwrap_or_default();
            now.since(before.0.get(index).copied().unwrap_or_default())
        };
        let mut sums = Sums { running: [1.0; COUNT], ..Sums::default() };
        let mut all = [Raw::default(); COUNT];
        for (index, open) in self.open.iter().enumerate() {
            let since = since(index);
            let sum = &mut all[open.event];
            (sum.enabled, sum.running) = (sum.enabled + since.enabled, sum.running + since.running);
            if node.is_none() || open.node == node {
                sum.value += since.value;
            }
        }
        for (event, sum) in all.iter().enumerate().filter(|(event, _)| self.refused[*event].is_none()) {
            // A task's event for one CPU is enabled but does not run while the task is on another CPU.
            let enabled =
                if self.is_of_tasks { sum.enabled as f64 / self.cpus.max(1) as f64 } else { sum.enabled as f64 };
            let is_hardware = EVENTS[event].kind != event_type::SOFTWARE;
            let took_turns = is_hardware && (sum.running as f64) < enabled * ALL_THE_TIME;
            sums.running[event] = if took_turns { sum.running as f64 / enabled } else { 1.0 };
            let scale = if took_turns && sum.running > 0 { 1.0 / sums.running[event] } else { 1.0 };
            sums.counts[event] = Some(sum.value as f64 * scale);
        }
        sums
    }

    /// All events with their counts.
    #[must_use]
    pub fn figures(&self, sums: &Sums) -> Vec<EventFigures> {
        let of = |index: usize| {
            let source = if EVENTS[index].kind == event_type::SOFTWARE { "kernel" } else { "core PMU" };
            let why = self.refused[index].as_deref().unwrap_or_default();
            let count = match (sums.counts[index], sums.running[index] < 1.0) {
                (Some(count), true) => MetricValue::estimate(count, source),
                (count, _) => MetricValue::of(count, source, why),
            };
            EventFigures { name: EVENTS[index].name, count, running: sums.running[index] }
        };
        (0..COUNT).map(of).collect()
    }

    /// Instructions per cycle.
    #[must_use]
    pub fn ipc(&self, sums: &Sums) -> MetricValue {
        self.ratio(sums, "instructions", "cycles", 1.0, "core PMU (instructions, cycles)")
    }

    /// Last-level misses per 1,000 instructions.
    #[must_use]
    pub fn l3_mpki(&self, sums: &Sums) -> MetricValue {
        self.ratio(sums, "cache-misses", "instructions", 1000.0, "core PMU (cache-misses, instructions)")
    }

    /// Share of memory reads that the node's own memory answered.
    #[must_use]
    pub fn local_share(&self, sums: &Sums) -> MetricValue {
        let of = |name: &str| sums.counts[position(name)];
        let why = self.refused[position("node-loads")].as_deref().unwrap_or("no memory reads in the interval");
        let (Some(loads), Some(misses)) = (of("node-loads"), of("node-load-misses")) else {
            return MetricValue::Missing(why.to_owned());
        };
        let share = match self.node_loads_are_all {
            None => return MetricValue::Missing("what node-loads counts on this processor is not known".into()),
            Some(true) => 1.0 - misses / loads,
            Some(false) => loads / (loads + misses),
        };
        MetricValue::of(
            Some(share).filter(|share| (0.0..=1.0).contains(share)),
            "core PMU (node-loads, node-load-misses)",
            why,
        )
    }

    fn ratio(&self, sums: &Sums, over: &str, under: &str, scale: f64, source: &str) -> MetricValue {
        let refused = |name: &str| self.refused[position(name)].as_deref();
        let why = refused(over).or(refused(under)).unwrap_or("nothing ran in the interval");
        let ratio = sums.counts[position(over)].zip(sums.counts[position(under)]).filter(|(_, under)| *under > 0.0);
        MetricValue::of(ratio.map(|(over, under)| over / under * scale), source, why)
    }
}

fn position(name: &str) -> usize {
    EVENTS.iter().position(|event| event.name == name).unwrap_or(0)
}

/// Opens `event`; excludes the kernel if counting it is refused.
fn open_for(event: &Event, scope: &Scope, task: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
    let mut flags = 0;
    if *scope != Scope::System {
        flags |= 1 << attr_flag::INHERIT;
    }
    if *scope == Scope::Children {
        flags |= 1 << attr_flag::DISABLED | 1 << attr_flag::ENABLE_ON_EXEC;
    }
    let user = 1 << attr_flag::EXCLUDE_KERNEL | 1 << attr_flag::EXCLUDE_HV;
    let opened = open_attr(event.kind, event.config, flags, task, cpu);
    match opened {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            open_attr(event.kind, event.config, flags | user, task, cpu)
        }
        other => other,
    }
}

fn open_attr(kind: u32, config: u64, flags: u64, task: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
    open_counter(EventAttr { kind, config, flags, ..EventAttr::default() }, task, cpu)
}

/// Opens a counting event with the given attributes.
pub fn open_counter(attr: EventAttr, task: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
    let read_format = read_format::TOTAL_TIME_ENABLED | read_format::TOTAL_TIME_RUNNING;
    let request = EventRequest { attr: EventAttr { read_format, ..attr }, ..EventRequest::default() };
    open_event(&request.bytes(&request.attr, 0), task, cpu, -1)
}

/// Reads a counter.
pub fn read_one(fd: &OwnedFd) -> Option<Raw> {
    let mut figures = [0_u64; 3];
    let bytes = size_of_val(&figures);
    // SAFETY: at most `bytes` are written to the array.
    let read = unsafe { libc::read(fd.as_raw_fd(), figures.as_mut_ptr().cast(), bytes) };
    let [value, enabled, running] = figures;
    (usize::try_from(read) == Ok(bytes)).then_some(Raw { value, enabled, running })
}

/// The scaled count between two readings of one counter.
#[must_use]
pub fn scaled_since(before: Raw, now: Raw) -> f64 {
    now.since(before).scaled()
}

fn is_about_one(error: &io::Error, scope: &Scope, cpu: u32) -> bool {
    match error.raw_os_error() {
        Some(libc::ESRCH) => matches!(scope, Scope::Processes(_)),
        // For the first CPU it means that the event does not exist.
        Some(libc::ENODEV) => cpu != 0,
        _ => false,
    }
}

fn reason(event: &Event, error: &io::Error, because: Option<&str>) -> String {
    let paranoid = numapilot_kernel::sysctl::perf_event_paranoid();
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
        (Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL), _)
            if event.kind != event_type::SOFTWARE =>
        {
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
    let text = root.text("proc/cpuinfo")?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    match field("vendor_id")?.as_str() {
        "AuthenticAMD" => Some(true),
        "GenuineIntel" => Some(INTEL_BEFORE_HASWELL.contains(&field("model")?.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Arithmetic of counts, and events of this machine.

    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn counts_are_scaled_by_their_share_of_the_time() {
        let before = Raw { value: 100, enabled: 1000, running: 1000 };
        assert_eq!(scaled_since(before, Raw { value: 150, enabled: 3000, running: 2000 }), 100.0);
        assert_eq!(scaled_since(before, Raw { value: 150, enabled: 3000, running: 3000 }), 50.0);
        assert_eq!(scaled_since(before, Raw { value: 100, enabled: 3000, running: 1000 }), 0.0);
    }

    fn sums(counts: &[(&str, f64)]) -> Sums {
        let mut sums = Sums { running: [1.0; COUNT], ..Sums::default() };
        counts.iter().for_each(|(name, count)| sums.counts[position(name)] = Some(*count));
        sums
    }

    #[test]
    fn metrics_are_ratios_of_counts_and_say_why_they_are_not() {
        let sums = sums(&[
            ("cycles", 2000.0),
            ("instructions", 3000.0),
            ("cache-misses", 6.0),
            ("node-loads", 8.0),
            ("node-load-misses", 2.0),
        ]);
        let of = |all: Option<bool>| Counters { node_loads_are_all: all, ..Counters::default() };
        assert_eq!(of(None).ipc(&sums).value(), Some(1.5));
        assert_eq!(of(None).l3_mpki(&sums).value(), Some(2.0));
        assert_eq!(of(Some(true)).local_share(&sums).value(), Some(0.75));
        assert_eq!(of(Some(false)).local_share(&sums).value(), Some(0.8));
        assert_eq!(of(None).local_share(&sums).value(), None);
        let none = Counters::none("no counters in this virtual machine");
        assert_eq!(none.ipc(&Sums::default()), MetricValue::Missing("no counters in this virtual machine".into()));
    }

    #[test]
    fn what_node_loads_means_goes_by_the_processor() {
        let of = |text: &str| {
            let tree = Tree::empty();
            tree.put("proc/cpuinfo", text);
            node_loads_are_all(&tree.root())
        };
        assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 62\nmodel name\t: Xeon"), Some(true));
        assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 79\nmodel name\t: Xeon"), Some(false));
        assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 143\n"), Some(false));
        assert_eq!(of("vendor_id\t: AuthenticAMD\nmodel : 1\n"), Some(true));
        assert_eq!(of("CPU implementer\t: 0x41\n"), None);
    }

    #[test]
    fn faults_of_a_command_are_counted_from_its_exec_on() {
        let (root, machine) = (Root::default(), Machine::live().unwrap());
        let faults = position("minor-faults");
        if let Some(why) = &Counters::open(&root, &machine, &Scope::Children, None).refused[faults] {
            return numapilot_not_run::not_run!(PageFaultEvents, "{why}");
        }
        // One command for each opening, as `stat -r` has it: where the processor goes from us to a command before its exec, the kernel may give it our
        // event instead of a copy, and later commands then count nothing.
        let run = |bytes: &str| {
            let counters = Counters::open(&root, &machine, &Scope::Children, None);
            let before = counters.read();
            let arguments = ["if=/dev/zero", "of=/dev/null", "count=1", "status=none", bytes];
            assert!(std::process::Command::new("dd").args(arguments).status().unwrap().success());
            let after = counters.read();
            assert!(counters.sums(&before, &after, Some(0)).counts[faults].unwrap() > 0.0);
            counters.sums(&before, &after, None).counts[faults].unwrap()
        };
        // A buffer of 3,072 pages more in the second command than in the first.
        let (small, large) = (run("bs=4k"), run("bs=12292k"));
        let more = large - small;
        // Large pages, where the system gives them for any mapping, fault once per 512.
        assert!((3060.0..3120.0).contains(&more) || (0.0..60.0).contains(&more), "{small} and {large}");
    }
}
