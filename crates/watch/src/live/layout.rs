//! How the events of tasks are opened: one for each CPU, so that counts are known by node, or one for the task wherever it runs.
//!
//! Every fork and every new thread of a watched program copies all events of its parent, and every exit folds them back, one by one under a lock
//! (`perf_event_init_task`, `kernel/events/core.c`): some microseconds each, and about a kilobyte of kernel memory. On a machine of 128 CPUs five events for
//! each CPU would make every fork milliseconds longer. `perf stat` opens one event for each task; here the split by node is kept where it costs little.

use numapilot_host::Root;
use numapilot_machine::Machine;
use numapilot_machine::parse_cpu_list;

/// The most events for a task: with these a fork takes less than half again as long as with the one event of each kind that `perf stat` opens (measured with
/// software events: 330 microseconds with 10, 390 with 20, 830 with 320, against 120 without any).
const OF_A_TASK_MAX: usize = 80;
/// The most events for all tasks: each is an open file, and is read in every interval.
const IN_ALL_MAX: usize = 2000;

/// How an event of tasks is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Once for each CPU: its counts are known by node.
    EachCpu,
    /// Once, wherever the task runs.
    Anywhere,
    /// Not at all: the machine's cores are of several kinds, of which one event counts only one, and events for each CPU are too many.
    Refused,
}

/// What decides on the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Events that would be opened for each CPU and thread.
    pub events: usize,
    /// Online CPUs.
    pub cpus: usize,
    /// Nodes with CPUs.
    pub nodes: usize,
    /// Threads that have events of their own; those that a watched thread starts inherit its.
    pub threads: usize,
    /// Whether cores are of several kinds, each with counters of its own.
    pub has_kinds: bool,
}

impl Size {
    /// The layout for tasks on such a machine.
    #[must_use]
    pub fn layout(self) -> Layout {
        let of_a_task = self.events.saturating_mul(self.cpus);
        let in_all = of_a_task.saturating_mul(self.threads.max(1));
        let fits = of_a_task <= OF_A_TASK_MAX && in_all <= IN_ALL_MAX;
        match (self.nodes > 1 || self.has_kinds, fits) {
            (true, true) => Layout::EachCpu,
            (true, false) if self.has_kinds => Layout::Refused,
            _ => Layout::Anywhere,
        }
    }
}

/// Whether the machine has cores of several kinds, with a PMU for each (`cpu_core` and `cpu_atom`, big.LITTLE): a PMU whose CPUs are not all of them.
#[must_use]
pub fn has_kinds_of_cores(root: &Root, machine: &Machine) -> bool {
    const DEVICES: &str = "sys/bus/event_source/devices";
    root.names(DEVICES).iter().any(|name| {
        // PMUs outside of the cores have a `cpumask` in place of `cpus`.
        let cpus = root.text(&format!("{DEVICES}/{name}/cpus")).and_then(|text| parse_cpu_list(text.trim()).ok());
        cpus.is_some_and(|cpus| {
            !cpus.is_empty() && machine.cpus().iter().any(|cpu| cpu.online && !cpus.contains(&cpu.id.0))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn tasks_have_few_events_whatever_the_machine() {
        let layout = |cpus, nodes, threads| Size { events: 5, cpus, nodes, threads, has_kinds: false }.layout();
        assert_eq!(layout(2, 1, 1), Layout::Anywhere, "one node is not split");
        assert_eq!(layout(16, 2, 1), Layout::EachCpu);
        assert_eq!(layout(16, 2, 500), Layout::Anywhere, "40,000 events");
        assert_eq!(layout(128, 2, 1), Layout::Anywhere);
        assert_eq!(layout(1024, 16, 500), Layout::Anywhere);
        assert_eq!(layout(4, 2, 0), Layout::EachCpu);
        for cpus in [2, 16, 128, 1024] {
            for threads in [1, 25, 500] {
                let is_each = layout(cpus, 2, threads) == Layout::EachCpu;
                assert!(!is_each || 5 * cpus <= OF_A_TASK_MAX && 5 * cpus * threads <= IN_ALL_MAX);
            }
        }
    }

    #[test]
    fn one_event_never_stands_for_cores_of_several_kinds() {
        let layout = |cpus| Size { events: 5, cpus, nodes: 1, threads: 1, has_kinds: true }.layout();
        assert_eq!((layout(8), layout(24)), (Layout::EachCpu, Layout::Refused));
        let tree = Tree::symmetric(1, 4, 1 << 20);
        assert!(!has_kinds_of_cores(&tree.root(), &tree.machine()));
        tree.put("sys/bus/event_source/devices/armv8_pmuv3/cpus", "0-3");
        assert!(!has_kinds_of_cores(&tree.root(), &tree.machine()));
        tree.put("sys/bus/event_source/devices/cpu_atom/cpus", "2-3");
        assert!(has_kinds_of_cores(&tree.root(), &tree.machine()));
    }
}
