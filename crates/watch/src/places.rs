//! Where the threads of a process run: each node's share of their processor time, from `/proc/PID/task/*/stat`.
//!
//! The kernel reports on which CPU a thread last ran, not where it spent its time. So the time that a thread used between two readings is credited to its node
//! at the later one, and at the first reading the time of its whole life. A thread that moves between nodes within an interval is credited to one of them only.

use std::collections::BTreeMap;

use numapilot_kernel::KernelError;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::MemoryTier;
use numapilot_machine::NodeId;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::Tid;

/// ACPI's distance of a node to itself, and the one that is assumed if the firmware gives none.
const LOCAL_DISTANCE: u32 = 10;
const UNTOLD_DISTANCE: u32 = 20;
/// Minimum share of a process's processor time for a node to count as one where it runs.
const RUNS_THERE: f64 = 0.05;

/// Reading of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    node: Option<NodeId>,
    cpu_ticks: u64,
    start_ticks: u64,
}

/// The nodes on which a process's threads run, to be kept between readings.
#[derive(Clone, Debug, Default)]
pub struct Places {
    threads: BTreeMap<Tid, Seen>,
    /// Share of processor time by node; the sum is 1 if any thread's node is known.
    shares: BTreeMap<NodeId, f64>,
    buffer: Vec<u8>,
}

impl Places {
    /// Reads the threads of `pid`.
    ///
    /// # Errors
    /// The process has ended, or may not be inspected.
    pub fn look(&mut self, root: &Root, machine: &Machine, pid: Pid) -> Result<(), KernelError> {
        let mut found = BTreeMap::new();
        for tid in task::threads_under(root.path(), pid)? {
            // A thread that ended since it was listed is no error.
            let Ok(text) = root.read(&format!("proc/{pid}/task/{tid}/stat"), &mut self.buffer) else { continue };
            let Some(stat) = TaskStat::parse(text) else { continue };
            let node = machine.node_of_cpu(CpuId(stat.cpu));
            found.insert(tid, Seen { node, cpu_ticks: stat.cpu_ticks(), start_ticks: stat.start_ticks });
        }
        if found.is_empty() {
            return Err(KernelError::Gone { pid });
        }
        self.shares = shares(&self.threads, &found);
        self.threads = found;
        Ok(())
    }

    /// Number of threads at the last reading.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Share of processor time by node, ascending; empty if no thread's node is known.
    pub fn shares(&self) -> impl Iterator<Item = (NodeId, f64)> + '_ {
        self.shares.iter().map(|(node, share)| (*node, *share))
    }

    /// Whether a significant share of the threads' time is on this node.
    #[must_use]
    pub fn runs_on(&self, node: NodeId) -> bool {
        self.shares.get(&node).is_some_and(|share| *share >= RUNS_THERE)
    }

    /// Mean ACPI distance from the threads, weighted by their processor time, to memory on a node; `None` if no thread's node is known.
    #[must_use]
    pub fn distance(&self, machine: &Machine, memory: NodeId) -> Option<f64> {
        if self.shares.is_empty() {
            return None;
        }
        let of = |from: NodeId| {
            let untold = if from == memory { LOCAL_DISTANCE } else { UNTOLD_DISTANCE };
            f64::from(machine.distance(from, memory).unwrap_or(untold))
        };
        Some(self.shares.iter().map(|(from, share)| share * of(*from)).sum())
    }

    /// Nodes whose memory is *far*: none of the threads runs there, and another node with memory is nearer to them on average. Memory without CPUs that has
    /// more bandwidth than that of nodes with CPUs (HBM) is compared with its own kind alone: it is farther than theirs, and there on purpose.
    #[must_use]
    pub fn far_nodes(&self, machine: &Machine) -> Vec<NodeId> {
        let wide = machine.nodes_of_tier(MemoryTier::Wide);
        let nearest = |is_wide: bool| {
            let of_kind = machine.nodes().iter().filter(|node| node.has_memory() && wide.contains(&node.id) == is_wide);
            of_kind.filter_map(|node| self.distance(machine, node.id)).min_by(f64::total_cmp)
        };
        let least = [nearest(false), nearest(true)];
        let is_far = |node: &NodeId| {
            let distances = self.distance(machine, *node).zip(least[usize::from(wide.contains(node))]);
            !self.runs_on(*node) && distances.is_some_and(|(here, least)| here > least)
        };
        machine.nodes().iter().map(|node| node.id).filter(is_far).collect()
    }
}

/// Shares of processor time between two readings by node. If there was none (all threads slept), the shares of the threads' whole lives; if there was none at
/// all, all threads count equally.
fn shares(before: &BTreeMap<Tid, Seen>, now: &BTreeMap<Tid, Seen>) -> BTreeMap<NodeId, f64> {
    let since = |tid: &Tid, seen: &Seen| match before.get(tid) {
        Some(old) if old.start_ticks == seen.start_ticks => seen.cpu_ticks.saturating_sub(old.cpu_ticks),
        _ => seen.cpu_ticks,
    };
    let weigh = |weight: &dyn Fn(&Tid, &Seen) -> u64| {
        let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (tid, seen) in now {
            let Some(node) = seen.node else { continue };
            match weight(tid, seen) {
                0 => {}
                ticks => *sums.entry(node).or_default() += ticks,
            }
        }
        sums
    };
    let mut sums = weigh(&since);
    if sums.is_empty() {
        sums = weigh(&|_, seen| seen.cpu_ticks);
    }
    if sums.is_empty() {
        sums = weigh(&|_, _| 1);
    }
    let all: u64 = sums.values().sum();
    sums.into_iter().map(|(node, ticks)| (node, ticks as f64 / all as f64)).collect()
}

#[cfg(test)]
mod tests {
    //! Shares of time, and what is far.

    use super::*;

    fn seen(node: u16, cpu_ticks: u64) -> Seen {
        Seen { node: Some(NodeId(node)), cpu_ticks, start_ticks: 5 }
    }

    #[test]
    fn time_since_the_last_look_counts_and_else_that_of_lives_and_else_heads() {
        let now = BTreeMap::from([(Tid(1), seen(0, 100)), (Tid(2), seen(1, 300))]);
        assert_eq!(shares(&BTreeMap::new(), &now), BTreeMap::from([(NodeId(0), 0.25), (NodeId(1), 0.75)]));
        let before = BTreeMap::from([(Tid(1), seen(0, 90)), (Tid(2), seen(0, 300))]);
        assert_eq!(shares(&before, &now), BTreeMap::from([(NodeId(0), 1.0)]));
        assert_eq!(shares(&now, &now)[&NodeId(1)], 0.75, "nobody ran since");
        let fresh = BTreeMap::from([(Tid(1), seen(0, 0)), (Tid(2), seen(1, 0))]);
        assert_eq!(shares(&BTreeMap::new(), &fresh)[&NodeId(0)], 0.5);
        // The number of an ended thread given to a new one: its time is not the difference.
        let reborn = BTreeMap::from([(Tid(1), Seen { start_ticks: 99, ..seen(1, 95) })]);
        assert_eq!(shares(&now, &reborn)[&NodeId(1)], 1.0);
    }

    fn places(shares: &[(u16, f64)]) -> Places {
        Places { shares: shares.iter().map(|(node, share)| (NodeId(*node), *share)).collect(), ..Places::default() }
    }

    #[test]
    fn memory_is_far_where_no_thread_runs_and_nearer_memory_exists() {
        // A square: 0-1, 0-2, 1-3, 2-3 are neighbours.
        let machine = Machine::load("opteron-8385").unwrap();
        let far = |shares: &[(u16, f64)]| -> Vec<u16> {
            places(shares).far_nodes(&machine).into_iter().map(|node| node.0).collect()
        };
        assert_eq!(far(&[(0, 1.0)]), [1, 2, 3]);
        assert_eq!(far(&[(0, 0.7), (3, 0.3)]), [1, 2]);
        assert_eq!(far(&[(0, 0.97), (3, 0.03)]), [1, 2, 3], "a thread in passing does not make it near");
        assert!(far(&[(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]).is_empty());
        assert!(far(&[]).is_empty(), "nothing is known of its threads");
    }

    /// All that a program had put into HBM was called far from its threads.
    #[test]
    fn memory_of_more_bandwidth_is_compared_with_its_own_kind() {
        let far = |machine: &str, shares: &[(u16, f64)]| -> Vec<u16> {
            let machine = Machine::load(machine).unwrap();
            places(shares).far_nodes(&machine).into_iter().map(|node| node.0).collect()
        };
        assert_eq!(far("xeon-max-flat", &[(0, 1.0)]), [1, 3], "HBM of the other socket");
        assert!(far("xeon-max-flat", &[(0, 0.5), (1, 0.5)]).is_empty());
        assert_eq!(far("xeon-2s-cxl", &[(0, 1.0)]), [1, 2], "an expander is slow");
    }
}
