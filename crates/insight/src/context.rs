//! What an analysis looks at: a trace, the machine's nodes, and a filter.

use numapilot_flows::{AccessRef, Filter, Trace};
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::ids::ObjectId;

use crate::blind::Blindness;
use crate::estimate::Tally;

/// An analysis of the part of a trace that a filter lets pass. Cheap to make; each method walks the flows that it needs.
#[derive(Clone, Debug)]
pub struct Analysis<'t> {
    pub(crate) trace: &'t Trace,
    pub(crate) filter: Filter,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) memory_nodes: Vec<NodeId>,
    /// Nodes with memory on which no thread can run (CXL, HBM).
    pub(crate) without_cpus: Vec<NodeId>,
    /// Whether the program's threads take the next piece of work when they are free ([`Analysis::of_taken_work`]).
    pub(crate) takes_work: bool,
    /// Whether latencies that the processor measured narrow intervals of predictions ([`Analysis::calibrated`]).
    pub(crate) calibrates: bool,
    position: Vec<u16>,
}

impl<'t> Analysis<'t> {
    /// Looks at `trace` through `filter`. `nodes` are the machine's nodes in the order in which rows and columns are wanted (nodes
    /// that appear in the trace only are added at the end), `memory_nodes` those that have memory: imbalance is taken over these.
    #[must_use]
    pub fn new(trace: &'t Trace, nodes: &[NodeId], memory_nodes: &[NodeId], filter: Filter) -> Analysis<'t> {
        let mut all = nodes.to_vec();
        all.extend(trace.nodes().iter().filter(|node| !nodes.contains(node)));
        let mut position = vec![u16::MAX; all.iter().map(|node| usize::from(node.0) + 1).max().unwrap_or(0)];
        for (index, node) in all.iter().enumerate() {
            position[usize::from(node.0)] = index as u16;
        }
        let memory_nodes = if memory_nodes.is_empty() { all.clone() } else { memory_nodes.to_vec() };
        let without_cpus = Vec::new();
        Analysis {
            trace,
            filter,
            nodes: all,
            memory_nodes,
            without_cpus,
            takes_work: false,
            calibrates: false,
            position,
        }
    }

    /// Looks at `trace` on `machine`, with all nodes of the machine in its order. Without a machine: with the nodes that the trace names, all of which count
    /// as nodes with memory.
    #[must_use]
    pub fn on(trace: &'t Trace, machine: Option<&Machine>, filter: Filter) -> Analysis<'t> {
        let Some(machine) = machine else { return Analysis::new(trace, trace.nodes(), &[], filter) };
        let nodes: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
        let with_memory: Vec<NodeId> =
            machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
        let without_cpus = machine.memory_without_cpus().map(|node| node.id).collect();
        Analysis { without_cpus, ..Analysis::new(trace, &nodes, &with_memory, filter) }
    }

    /// The trace that is analysed.
    #[must_use]
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The same analysis with another filter.
    #[must_use]
    pub fn with(self, filter: Filter) -> Analysis<'t> {
        Analysis { filter, ..self }
    }

    /// The same analysis of a program whose threads take the next piece of work when they are free (a queue, a counter, a dynamic loop): intervals of
    /// predictions then reach from the division of work that was recorded to one in which a slowed thread does less.
    #[must_use]
    pub fn of_taken_work(self) -> Analysis<'t> {
        Analysis { takes_work: true, ..self }
    }

    /// The same analysis with intervals of predictions that leave out the machines on which loads take less time than the processor measured, where the
    /// recording's latencies can bear that (`docs/traffic-model.md`, "Calibration by measured latencies").
    #[must_use]
    pub fn calibrated(self) -> Analysis<'t> {
        Analysis { calibrates: true, ..self }
    }

    /// Nodes in the order of every per-node list.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Nodes that have memory.
    #[must_use]
    pub fn memory_nodes(&self) -> &[NodeId] {
        &self.memory_nodes
    }

    /// Nodes with memory on which no thread can run: every access to their memory is remote. Empty without a machine.
    #[must_use]
    pub fn nodes_without_cpus(&self) -> &[NodeId] {
        &self.without_cpus
    }

    /// The filter through which the trace is analysed.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Position of a node in per-node lists; `None` if the node is unknown. It is no position in a machine's list, because the trace alone may name nodes, too.
    #[must_use]
    pub fn node_position(&self, node: NodeId) -> Option<usize> {
        self.position.get(usize::from(node.0)).filter(|&&index| index != u16::MAX).map(|&index| usize::from(index))
    }

    /// Why nothing can be judged from this recording; `None` where it can be.
    #[must_use]
    pub fn blindness(&self) -> Option<Blindness> {
        crate::blind::of(self.trace)
    }

    pub(crate) fn accesses(&self) -> Box<dyn Iterator<Item = AccessRef> + '_> {
        Box::new(self.trace.filtered(&self.filter).filter(AccessRef::is_memory_access))
    }

    /// The accesses to one object.
    pub(crate) fn accesses_to(&self, object: ObjectId) -> impl Iterator<Item = AccessRef> + '_ {
        let own = self.trace.oef(object).filter(AccessRef::is_memory_access);
        own.filter(|access| self.filter.admits(self.trace, access))
    }

    pub(crate) fn sum(&self) -> AllSums {
        let mut sums = AllSums::default();
        for access in self.accesses() {
            sums.add(&access);
        }
        sums
    }
}

/// Sums over accesses. Over all that the filter lets pass, they are the denominators of shares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllSums {
    pub all: Tally,
    pub known: Tally,
    pub remote: Tally,
    pub writes: Tally,
}

impl AllSums {
    pub fn add(&mut self, access: &AccessRef) {
        self.all.add(access);
        if access.is_write {
            self.writes.add(access);
        }
        if let Some(is_remote) = access.is_remote() {
            self.known.add(access);
            if is_remote {
                self.remote.add(access);
            }
        }
    }
}
