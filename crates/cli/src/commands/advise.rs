//! `numapilot advise`: recommends nodes for a program that is about to be started.

use anyhow::Result;
use anyhow::anyhow;
use numapilot_balancer::decision::packing::MachineCapacity;
use numapilot_balancer::decision::packing::PackingSettings;
use numapilot_balancer::decision::packing::place;
use numapilot_balancer::packer;
use numapilot_host::Mounts;
use numapilot_host::Root;
use numapilot_host::TaskStatus;
use numapilot_machine::Machine;
use numapilot_machine::Node;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;
use numapilot_text::units::whole_percent;
use serde_json::json;

use crate::args::AdviseArgs;
use crate::output;

/// What is said in a container whose `/proc/stat` has as many processors as the container may use, with numbers of their own.
const MADE_UP: &str = "how many processors of each node are busy is not known, because in this container /proc/stat is made up (by lxcfs): run it on the host";

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
    let has_memory = |id: &NodeId| machine.node(*id).is_some_and(Node::has_memory);
    let with_memory: Vec<NodeId> = chosen.iter().copied().filter(has_memory).collect();
    let list = format_cpu_list(chosen.iter().map(|node| u32::from(node.0)));
    let reason = reason(&capacity, nodes, fits, &settings);
    if Mounts::read(&Root::default()).has_made_up_cpu_times() {
        crate::output::tell!("numapilot: {MADE_UP}");
    }
    looker.unread().values().for_each(|what| crate::output::tell!("numapilot: {what}"));
    if !arguments.json {
        if !fits {
            crate::output::tell!("numapilot: {reason}");
        }
        if arguments.slurm
            && let Some(why) = refusal(&Root::default(), &machine)
        {
            crate::output::tell!("numapilot: {why}");
        }
        let options = || options_of_srun(&chosen, &with_memory);
        return output::print(&if arguments.slurm { options() } else { format!("{list}\n") });
    }
    let as_json = |(at, node): (usize, &numapilot_balancer::decision::packing::NodeCapacity)| {
        let id = machine.nodes()[at].id;
        let available = node.memory_bytes.saturating_sub(node.memory_taken);
        json!({
            "node": id.0, "cpus": node.cpus, "cpus_busy": node.cpus_taken, "memory_bytes": node.memory_bytes,
            "available_bytes": (!looker.unread().contains_key(&id)).then_some(available), "allowed": allowed.contains(NodeIndex(at)),
        })
    };
    output::print_json(&json!({
        "list": list, "nodes": chosen, "fits": fits, "reason": reason, "cpus": cpus, "memory_bytes": memory_bytes,
        "slurm": { "cpu_bind": format!("mask_ldom:{}", mask(&chosen)), "mem_bind": format!("mask_mem:{}", mask(&with_memory)) },
        "by_node": capacity.nodes.iter().enumerate().map(as_json).collect::<Vec<_>>(),
    }))
}

/// Options that make Slurm's `srun` bind a task to these nodes, and its memory to those of them that have some. Its locality domains have the kernel's numbers
/// of nodes (`_bind_ldom` in its `src/plugins/task/affinity/affinity.c`).
fn options_of_srun(nodes: &[NodeId], with_memory: &[NodeId]) -> String {
    format!("--cpu-bind=mask_ldom:{} --mem-bind=mask_mem:{}\n", mask(nodes), mask(with_memory))
}

/// That Slurm does not bind to nodes here, with the next step; `None`: this process may use all CPUs of the machine, or that is not known. Its documentation of
/// `srun --cpu-bind` has `mask_ldom` for jobs that have the entire machine.
fn refusal(root: &Root, machine: &Machine) -> Option<String> {
    let mut text = Vec::new();
    let listed = TaskStatus::read_own(root, &mut text)?.allowed_cpus()?;
    let allowed = parse_cpu_list(listed).ok()?;
    let has_all = machine.cpus().iter().filter(|cpu| cpu.online).all(|cpu| allowed.contains(&cpu.id.0));
    (!has_all).then(|| {
        format!(
            "Slurm binds to nodes only in a job that has all of its machine, and this process may use CPUs {listed} of it: ask for all with \
             `sbatch --exclusive`, or start the program with `srun numactl -N LIST -m LIST`"
        )
    })
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
        let options = options_of_srun(&[0, 2].map(NodeId), &[NodeId(0)]);
        assert_eq!(options, "--cpu-bind=mask_ldom:0x5 --mem-bind=mask_mem:0x1\n");
    }

    /// The step was refused, or ran unbound.
    #[test]
    fn a_job_with_a_part_of_the_machine_is_told_that_slurm_does_not_bind_there() {
        let folder = tempfile::tempdir().unwrap();
        let (root, machine) = (Root::new(folder.path()), Machine::load("opteron-8385").unwrap());
        let told = |cpus: &str| {
            std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
            let text = format!("Name:\tx\nCpus_allowed_list:\t{cpus}\n");
            std::fs::write(folder.path().join("proc/self/status"), text).unwrap();
            refusal(&root, &machine)
        };
        assert_eq!(refusal(&root, &machine), None, "not known");
        assert_eq!([told("0-15"), told("0-255")], [None, None]);
        assert!(told("0-7").is_some_and(|why| why.contains("CPUs 0-7 of it") && why.contains("--exclusive")));
    }
}
