//! `numapilot advise`: recommends nodes for a program that is about to be started.

use anyhow::Result;
use anyhow::anyhow;
use numapilot_balancer::decision::packing::MachineCapacity;
use numapilot_balancer::decision::packing::PackingSettings;
use numapilot_balancer::decision::packing::place;
use numapilot_balancer::packer;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;
use numapilot_machine::format_cpu_list;
use numapilot_text::units::whole_percent;
use serde_json::json;

use crate::args::AdviseArgs;
use crate::output;

/// Observes the use of the machine, and prints the recommended nodes.
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
        .ok_or_else(|| anyhow!("this process may use no node with processors; check its cpuset"))?;
    let chosen: Vec<NodeId> = nodes.iter().map(|node| machine.nodes()[node].id).collect();
    let list = format_cpu_list(chosen.iter().map(|node| u32::from(node.0)));
    let reason = reason(&capacity, nodes, fits, &settings);
    if !arguments.json {
        if !fits {
            crate::output::tell!("numapilot: {reason}");
        }
        return output::print(&if arguments.slurm { options_of_srun(&chosen) } else { format!("{list}\n") });
    }
    let as_json = |(at, node): (usize, &numapilot_balancer::decision::packing::NodeCapacity)| {
        json!({
            "node": machine.nodes()[at].id.0, "cpus": node.cpus, "cpus_busy": node.cpus_taken, "memory_bytes": node.memory_bytes,
            "available_bytes": node.memory_bytes.saturating_sub(node.memory_taken), "allowed": allowed.contains(NodeIndex(at)),
        })
    };
    output::print_json(&json!({
        "list": list, "nodes": chosen, "fits": fits, "reason": reason, "cpus": cpus, "memory_bytes": memory_bytes,
        "slurm": { "cpu_bind": format!("mask_ldom:{}", mask(&chosen)), "mem_bind": format!("mask_mem:{}", mask(&chosen)) },
        "by_node": capacity.nodes.iter().enumerate().map(as_json).collect::<Vec<_>>(),
    }))
}

/// Options that make Slurm's `srun` bind a task to these nodes. Its locality domains have the kernel's numbers of nodes (`_bind_ldom` in
/// its `src/plugins/task/affinity/affinity.c`).
fn options_of_srun(nodes: &[NodeId]) -> String {
    let mask = mask(nodes);
    format!("--cpu-bind=mask_ldom:{mask} --mem-bind=mask_mem:{mask}\n")
}

/// A bit for each node, as a hexadecimal number.
fn mask(nodes: &[NodeId]) -> String {
    let highest = nodes.iter().map(|node| node.0).max().unwrap_or(0);
    let digit =
        |at: u16| -> u32 { nodes.iter().filter(|node| node.0 / 4 == at).map(|node| 1_u32 << (node.0 % 4)).sum() };
    let digits: String = (0..=highest / 4).rev().map(|at| format!("{:x}", digit(at))).collect();
    format!("0x{digits}")
}

/// Sets the capacity of nodes that this process may not use to zero.
fn leave_out(capacity: &mut MachineCapacity, allowed: NodeSet) {
    for (at, node) in capacity.nodes.iter_mut().enumerate() {
        if !allowed.contains(NodeIndex(at)) {
            (node.cpus, node.memory_bytes) = (0.0, 0);
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
    let (share, memory) = (whole_percent(settings.target), whole_percent(settings.memory_target));
    if fits {
        format!("the smallest set of nodes with enough free capacity: {here}")
    } else {
        format!(
            "no nodes fit the demand within {share} of their processors and {memory} of their memory; these come closest: {here}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_become_options_of_srun() {
        let of = |nodes: &[u16]| mask(&nodes.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!(
            [of(&[0]), of(&[1]), of(&[0, 1, 2, 3]), of(&[4]), of(&[1, 9])],
            ["0x1", "0x2", "0xf", "0x10", "0x202"]
        );
        assert_eq!(of(&[70]), format!("0x4{}", "0".repeat(17)), "more nodes than a number has bits");
        let options = options_of_srun(&[0, 2].map(NodeId));
        assert_eq!(options, "--cpu-bind=mask_ldom:0x5 --mem-bind=mask_mem:0x5\n");
    }
}
