//! What several commands ask of a recording: its machine, that machine's nodes, and the program simulated as it was recorded.

use anyhow::Result;
use numapilot_flows::Trace;
use numapilot_machine::{Machine, NodeId};
use numapilot_placement::policy_by_name;
use numapilot_simulator::program::Program;
use numapilot_simulator::{Options, Report, Simulation};

/// The machine that the trace carries; none in traces made without one.
pub fn machine_of(trace: &Trace) -> Option<Machine> {
    serde_json::from_value(trace.meta().machine.clone()).ok()
}

/// All nodes, and those with memory. Without a machine: the nodes that the trace names, and of none is it known that it has memory.
pub fn nodes_of(trace: &Trace, machine: Option<&Machine>) -> (Vec<NodeId>, Vec<NodeId>) {
    match machine {
        Some(machine) => (
            machine.nodes().iter().map(|node| node.id).collect(),
            machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect(),
        ),
        None => (trace.nodes().to_vec(), Vec::new()),
    }
}

/// The program on the machine with its pages where it says, and nobody moving them.
pub fn as_recorded(program: &Program, machine: &Machine, seed: u64) -> Result<Report> {
    let mut policy = policy_by_name("first-touch", machine, seed)?;
    let options = Options { seed, ..Options::default() };
    Ok(Simulation::new(program, machine, options)?.run(policy.as_mut(), &mut |_| true)?)
}
