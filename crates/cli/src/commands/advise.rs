//! `numapilot advise`: nodes for a program that is yet to be started.

use anyhow::Result;
use anyhow::anyhow;
use numapilot_balancer::packer;
use numapilot_balancer::packing::MachineCapacity;
use numapilot_balancer::packing::NodeSet;
use numapilot_balancer::packing::PackingSettings;
use numapilot_balancer::packing::place;
use numapilot_machine::Machine;
use numapilot_machine::format_cpu_list;
use serde_json::json;

use crate::args::AdviseArgs;
use crate::output;

/// Looks, and prints the nodes.
pub fn run(arguments: &AdviseArgs) -> Result<()> {
    let machine = Machine::live()?;
    let mut looker = packer::Looker::new()?;
    std::thread::sleep(arguments.sample);
    let mut capacity = looker.capacity(&machine, &[])?;
    let allowed = packer::allowed_here(&machine);
    leave_out(&mut capacity, allowed);
    let (cpus, memory_bytes) = arguments.want;
    let settings = PackingSettings::default();
    let (nodes, fits) = place(&capacity, cpus, memory_bytes, &settings)
        .ok_or_else(|| anyhow!("this process may use no node with processors; look at its cpuset"))?;
    let numbers: Vec<u16> = nodes.iter().map(|node| machine.nodes()[node].id.0).collect();
    let list = format_cpu_list(numbers.iter().map(|node| u32::from(*node)));
    let reason = reason(&capacity, nodes, fits, &settings);
    if !arguments.json {
        if !fits {
            eprintln!("numapilot: {reason}");
        }
        return output::print(&format!("{list}\n"));
    }
    let node = |(at, room): (usize, &numapilot_balancer::packing::NodeCapacity)| {
        json!({
            "node": machine.nodes()[at].id.0, "cpus": room.cpus, "cpus_busy": room.cpus_taken, "memory_bytes": room.memory_bytes,
            "available_bytes": room.memory_bytes.saturating_sub(room.memory_taken), "allowed": allowed.iter().any(|node| node == at),
        })
    };
    output::print_json(&json!({
        "list": list, "nodes": numbers, "fits": fits, "reason": reason, "cpus": cpus, "memory_bytes": memory_bytes,
        "by_node": capacity.nodes.iter().enumerate().map(node).collect::<Vec<_>>(),
    }))
}

/// Nodes that may not be used have nothing to give.
fn leave_out(capacity: &mut MachineCapacity, allowed: NodeSet) {
    for (at, room) in capacity.nodes.iter_mut().enumerate() {
        if !allowed.iter().any(|node| node == at) {
            (room.cpus, room.memory_bytes) = (0.0, 0);
        }
    }
}

fn reason(capacity: &MachineCapacity, nodes: NodeSet, fits: bool, settings: &PackingSettings) -> String {
    let of = |set: NodeSet| {
        set.iter().fold((0.0, 0.0), |(cpus, busy), node| {
            (cpus + capacity.nodes[node].cpus, busy + capacity.nodes[node].cpus_taken)
        })
    };
    let ((cpus, busy), (all, all_busy)) = (of(nodes), of(NodeSet::all(capacity.nodes.len())));
    let here = format!("{busy:.1} of their {cpus:.0} processors are busy, {all_busy:.1} of {all:.0} in all");
    let (share, memory) = (100.0 * settings.target, 100.0 * settings.memory_target);
    if fits {
        format!("the fewest and emptiest nodes that have room: {here}")
    } else {
        format!(
            "no nodes have room within {share:.0} % of processors and {memory:.0} % of memory; these lose least: {here}"
        )
    }
}
