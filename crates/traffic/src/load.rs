//! The load of the memory system: classes of equal threads, and traffic that no thread waits for.

use crate::error::TrafficError;
use crate::system::MemorySystem;

/// A group of threads that run on one node and behave alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Node on which the threads run, as an index.
    pub from: usize,
    /// How many threads; fractions are allowed (a thread that runs half of the time is half a thread).
    pub threads: f64,
    /// Memory accesses that one thread keeps outstanding, on average: 1 is a dependent chase, more is overlap and prefetching.
    pub outstanding: f64,
    /// Nanoseconds of a thread's own work per memory access (everything that is not waiting for memory).
    pub think_ns: f64,
    /// Share of the class's accesses that read from each node's memory, by node index.
    pub reads: Vec<f64>,
    /// Share that writes to each node's memory: the line is read first and written back later. `reads` and `writes` together sum to 1.
    pub writes: Vec<f64>,
}

/// Traffic that takes bandwidth and that no thread waits for, such as the copying of migrated pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// Node that the data is read from.
    pub source: usize,
    /// Node that the data is written to.
    pub target: usize,
    /// Traffic in bytes per second.
    pub bytes_per_s: f64,
}

/// The load of the memory system at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Classes of threads.
    pub classes: Vec<Class>,
    /// The traffic beside them.
    pub background: Vec<Background>,
}

/// By how much a class's shares may miss 1 in sum: what a sum of 64 rounded shares may.
const SHARE_TOLERANCE: f64 = 1e-6;

impl Class {
    /// Whether the class can be; `index` is its place in the load.
    pub(crate) fn check(&self, system: &MemorySystem, index: usize) -> Result<(), TrafficError> {
        let problem =
            |what: String, remedy: &str| Err(TrafficError::Class { class: index, what, remedy: remedy.to_owned() });
        let nodes = system.nodes();
        if self.from >= nodes {
            return problem(format!("it runs on node index {}", self.from), "give an index below the number of nodes");
        }
        let amounts = [("threads", self.threads), ("think_ns", self.think_ns)];
        if let Some((name, value)) = amounts.iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0)) {
            return problem(format!("{name} is {value}"), "give a number from 0");
        }
        if !(self.outstanding.is_finite() && self.outstanding > 0.0) {
            return problem(format!("outstanding is {}", self.outstanding), "give a number above 0");
        }
        if self.reads.len() != nodes || self.writes.len() != nodes {
            let what = format!("{} read and {} write shares for {nodes} nodes", self.reads.len(), self.writes.len());
            return problem(what, "give one of each per node");
        }
        if let Some(share) = self.reads.iter().chain(&self.writes).find(|s| !(s.is_finite() && **s >= 0.0)) {
            return problem(format!("a share is {share}"), "give shares from 0 to 1");
        }
        let sum: f64 = self.reads.iter().chain(&self.writes).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE {
            return problem(format!("its shares sum to {sum}"), "divide them by their sum");
        }
        let used = (0..nodes).filter(|&to| self.reads[to] + self.writes[to] > 0.0);
        let closed = |&to: &usize| system.way(self.from, to).is_none_or(|way| way.fixed_ns.is_none());
        match used.into_iter().find(closed) {
            Some(to) => problem(
                format!(
                    "it accesses node index {to} from node index {}, but one of them does not exist, or lacks memory or CPUs",
                    self.from
                ),
                "run threads on nodes with CPUs, and place pages on nodes with memory",
            ),
            None => Ok(()),
        }
    }
}

impl Background {
    /// Whether the traffic can be; `index` is its place in the load.
    pub(crate) fn check(&self, system: &MemorySystem, index: usize) -> Result<(), TrafficError> {
        let problem =
            |what: String, remedy: &str| Err(TrafficError::Background { index, what, remedy: remedy.to_owned() });
        if !(self.bytes_per_s.is_finite() && self.bytes_per_s >= 0.0) {
            return problem(format!("{} bytes per second", self.bytes_per_s), "give a number from 0");
        }
        let (source, target) = (self.source, self.target);
        let reached = |from: usize, to: usize| from.max(to) < system.nodes() && system.way(from, to).is_some();
        if !reached(target, source) || !reached(target, target) {
            return problem(
                format!(
                    "it goes from node index {source} to node index {target}, but one of them does not exist or lacks memory"
                ),
                "name two nodes with memory",
            );
        }
        Ok(())
    }
}
