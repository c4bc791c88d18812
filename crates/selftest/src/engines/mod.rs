//! Engines: each engine that works on this machine records a program whose accesses are known, and the recording of its one block is compared with the
//! truth. A thread on node A allocates and touches the block, another thread on node B reads it several times.
//!
//! [`truth`] is the program, [`record`] records it by numapilot's own executable, [`judge`] compares; that half is pure.

pub mod judge;
pub mod record;
pub mod truth;

use numapilot_machine::{CpuId, Machine, NodeId};
use numapilot_measure::Permit;
use numapilot_trace::engine::Engine;

/// What an engine claims to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// Objects and the threads that allocate them; no accesses.
    Objects,
    /// First touches too: the first toucher, and the home node of the page.
    FirstTouches,
    /// Accesses of all threads.
    Accesses,
}

/// An engine as it is tried. Where its machine is simulated, the nodes are the model's, whatever this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineTrial {
    /// The engine.
    pub engine: Engine,
    /// What the engine claims to see.
    pub sees: Sees,
    /// Whether the program must be compiled for it.
    pub is_compiled: bool,
}

/// Engines that record programs. (`import` takes what other programs recorded: there is nothing to try.)
pub const ENGINES: [EngineTrial; 5] = [
    EngineTrial { engine: Engine::Pmu, sees: Sees::Accesses, is_compiled: false },
    EngineTrial { engine: Engine::Fault, sees: Sees::FirstTouches, is_compiled: false },
    EngineTrial { engine: Engine::Instrument, sees: Sees::Accesses, is_compiled: true },
    EngineTrial { engine: Engine::Emulate, sees: Sees::Accesses, is_compiled: false },
    EngineTrial { engine: Engine::Track, sees: Sees::Objects, is_compiled: false },
];

/// The machine on which simulating engines run the program: more than one node, whatever this machine has.
pub const SIMULATED: &str = "opteron-8385";

/// CPUs and nodes of the two threads of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// CPU and node of the thread that allocates and touches: A.
    pub owner: (CpuId, NodeId),
    /// CPU and node of the thread that reads: B.
    pub reader: (CpuId, NodeId),
}

impl ThreadPlacement {
    /// The first node with memory and usable CPUs for A, the next node with usable CPUs for B; the same CPU twice where there is no other.
    #[must_use]
    pub fn of(machine: &Machine, permit: Option<&Permit>) -> Option<ThreadPlacement> {
        let usable = |cpu: &CpuId| {
            permit.is_none_or(|permit| permit.cpus.contains(cpu)) && machine.cpu(*cpu).is_some_and(|cpu| cpu.online)
        };
        let seats = machine.nodes().iter().flat_map(|node| {
            node.cpus.iter().copied().filter(usable).map(move |cpu| (cpu, node.id, node.has_memory()))
        });
        let may = |node: &NodeId| permit.is_none_or(|permit| permit.memory_nodes.contains(node));
        let owner = seats.clone().find(|(_, node, has_memory)| *has_memory && may(node))?;
        let elsewhere = seats.clone().find(|(_, node, _)| *node != owner.1);
        let beside = seats.clone().find(|(cpu, node, _)| *node == owner.1 && *cpu != owner.0);
        let reader = elsewhere.or(beside).unwrap_or(owner);
        Some(ThreadPlacement { owner: (owner.0, owner.1), reader: (reader.0, reader.1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_where_there_are_two_and_two_cpus_where_there_are_two() {
        let machine = Machine::load(SIMULATED).expect("a model");
        let whole = ThreadPlacement::of(&machine, None).expect("CPUs");
        assert_eq!((whole.owner.1, whole.reader.1), (NodeId(0), NodeId(1)));
        let permit = |cpus: &[u32]| Permit {
            cpus: cpus.iter().map(|cpu| CpuId(*cpu)).collect(),
            memory_nodes: (0..4).map(NodeId).collect(),
            cpus_at_once: None,
            memory_bytes: None,
            large_pages: false,
            large_page_bytes: 2 << 20,
            huge_free_bytes: std::collections::BTreeMap::new(),
        };
        let placement = |cpus: &[u32]| ThreadPlacement::of(&machine, Some(&permit(cpus)));
        let one_node = placement(&[1, 2]).expect("CPUs");
        assert_eq!((one_node.owner.0, one_node.reader.0, one_node.reader.1), (CpuId(1), CpuId(2), NodeId(0)));
        let one_cpu = placement(&[3]).expect("a CPU");
        assert_eq!(one_cpu.owner, one_cpu.reader);
        assert_eq!(placement(&[]), None);
    }
}
