//! `run --weighted-interleave=auto`: weights of the nodes by the bandwidth of their memory, and the kernel's table of weights, by which it interleaves.

use std::fs;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use numapilot_apply::MemoryPolicy;
use numapilot_host::Root;
use numapilot_machine::Machine;
use numapilot_machine::Node;
use numapilot_machine::NodeId;
use numapilot_machine::format_cpu_list;
use numapilot_placement::Allocation;
use numapilot_placement::policy_by_name;

/// The kernel's table, a file `nodeN` for each node (Linux 6.9, `Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave`).
const TABLE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

const MIB: f64 = (1u64 << 20) as f64;

/// A node, and its weight.
type Weight = (NodeId, u8);

/// The policy that `auto` stands for: all `nodes` by the kernel's weights, or evenly where the kernel has none. `sets`: the kernel gets the weights that follow
/// from the bandwidths, for all programs. With notes for the user, whole sentences without their full stops.
///
/// # Errors
/// The weights are to be set, and are not known or cannot be.
pub fn auto(root: &Root, machine: &Machine, nodes: &[NodeId], sets: bool) -> Result<(MemoryPolicy, Vec<String>)> {
    if nodes.len() < 2 && !sets {
        let note = "this process may use the memory of one node only: nothing is interleaved".to_owned();
        return Ok((MemoryPolicy::Interleave(nodes.to_vec()), vec![note]));
    }
    let wanted = by_bandwidth(root, machine)?;
    let unknown = format_cpu_list(unknown(machine).map(|node| u32::from(node.id.0)));
    let of_nodes =
        |all: &[Weight]| -> Vec<Weight> { all.iter().copied().filter(|(id, _)| nodes.contains(id)).collect() };
    let list = format_cpu_list(nodes.iter().map(|node| u32::from(node.0)));
    let Some(table) = of_kernel(root, nodes) else {
        if sets {
            bail!("--set-weights: this kernel has no weights of nodes; they need Linux 6.9");
        }
        let asked = wanted.map_or_else(String::new, |all| format!(", and not {}", ratio(&of_nodes(&all))));
        let note = format!(
            "this kernel has no weighted interleaving (Linux 6.9): memory is interleaved evenly over nodes {list}{asked}"
        );
        return Ok((MemoryPolicy::Interleave(nodes.to_vec()), vec![note]));
    };
    // Weights are set for all programs, which may use the other nodes, too.
    let is_settled = |all: &[Weight]| match sets {
        true => {
            let ids: Vec<NodeId> = all.iter().map(|(id, _)| *id).collect();
            of_kernel(root, &ids).is_some_and(|whole| is_alike(all, &whole))
        }
        false => is_alike(&of_nodes(all), &table),
    };
    let mut notes = Vec::new();
    match wanted {
        None if sets => bail!(
            "--set-weights: the bandwidth of the memory of nodes {unknown} is not known; measure it (`numapilot measure --model FILE`), then add --machine FILE"
        ),
        None => notes.push(format!(
            "the bandwidth of the memory of nodes {unknown} is not known (the firmware's HMAT does not tell it): memory is interleaved over nodes {list} by \
             the kernel's weights, {}; measure the bandwidths (`numapilot measure --model FILE`), then add --machine FILE",
            ratio(&table)
        )),
        Some(all) if is_settled(&all) => {}
        Some(all) if sets => {
            set(root, &all)?;
            let changed = format_cpu_list(all.iter().map(|(node, _)| u32::from(node.0)));
            notes.push(format!(
                "the kernel's weights of nodes {changed} are {} from now on, for all programs, until the next boot",
                ratio(&all)
            ));
        }
        Some(all) => notes.push(format!(
            "memory is interleaved over nodes {list} by the kernel's weights, {}; by the bandwidths of their memory it would be {} \
             (--set-weights, as root, sets that for all programs)",
            ratio(&table),
            ratio(&of_nodes(&all))
        )),
    }
    Ok((MemoryPolicy::WeightedInterleave(nodes.to_vec()), notes))
}

/// Nodes with memory whose bandwidth is not known.
fn unknown(machine: &Machine) -> impl Iterator<Item = &Node> {
    machine.nodes().iter().filter(|node| node.has_memory() && node.memory_bandwidth_bytes_per_s.is_none())
}

/// Weights of all nodes with memory by its bandwidth, as Linux 6.16 computes them; `None`: that of one of them is not known.
fn by_bandwidth(root: &Root, machine: &Machine) -> Result<Option<Vec<Weight>>> {
    if unknown(machine).next().is_some() {
        return Ok(None);
    }
    let weighed = machine.with_memory_bandwidths(|node| weighed_bandwidth(root, node))?;
    let policy = policy_by_name("weighted-interleave", &weighed, 1)?;
    let Allocation::WeightedInterleave(weights) = policy.initial_allocation() else { return Ok(None) };
    Ok(Some(weights.into_iter().map(|(node, weight)| (machine.nodes()[node].id, weight)).collect()))
}

/// The bandwidth in bytes per second by which the kernel weighs a node's memory: of what the firmware states of reading and writing, the lower one
/// (`mempolicy_set_node_perf` in mm/mempolicy.c). That of a model stays as it is.
fn weighed_bandwidth(root: &Root, node: &Node) -> Option<f64> {
    let stated = |what: &str| {
        let file = format!("sys/devices/system/node/node{}/access1/initiators/{what}_bandwidth", node.id);
        root.number(&file).filter(|number| *number > 0).map(|number| number as f64 * MIB)
    };
    let known = node.memory_bandwidth_bytes_per_s?;
    let is_stated = stated("read").is_some_and(|reading| (reading - known).abs() < 1.0);
    let writing = stated("write").filter(|_| is_stated);
    Some(writing.map_or(known, |writing| known.min(writing)))
}

/// The kernel's weights of these nodes; `None`: it has none.
fn of_kernel(root: &Root, nodes: &[NodeId]) -> Option<Vec<Weight>> {
    let weight =
        |node: &NodeId| root.number(&format!("{TABLE}/node{node}")).and_then(|weight| u8::try_from(weight).ok());
    root.has(TABLE).then(|| nodes.iter().map(|node| (*node, weight(node).unwrap_or(1))).collect())
}

/// Whether two lists of weights of the same nodes divide memory alike.
fn is_alike(a: &[Weight], b: &[Weight]) -> bool {
    let number = |weight: u8| u32::from(weight);
    let (Some((_, first)), Some((_, other))) = (a.first(), b.first()) else { return true };
    let mut pairs = a.iter().zip(b);
    pairs.all(|((_, a), (_, b))| number(*a) * number(*other) == number(*b) * number(*first))
}

fn set(root: &Root, weights: &[Weight]) -> Result<()> {
    for (node, weight) in weights {
        let file = root.path().join(format!("{TABLE}/node{node}"));
        fs::write(&file, format!("{weight}\n")).with_context(|| {
            format!("--set-weights: cannot write {}; run as root, outside of a container", file.display())
        })?;
    }
    Ok(())
}

/// Such as `3:3:1`.
fn ratio(weights: &[Weight]) -> String {
    weights.iter().map(|(_, weight)| weight.to_string()).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    //! A machine with a CXL expander, another without known bandwidths, and tables as the kernel's.

    use tempfile::TempDir;

    use super::*;

    const NODES: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

    /// Two sockets of 307.2 GB/s each, and an expander of 76.8: 14.2, 14.2 and 3.6 of 32.
    fn expanded() -> Machine {
        Machine::load("xeon-2s-cxl").unwrap()
    }

    fn table(weights: [u8; 3]) -> (TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(TABLE)).unwrap();
        for (node, weight) in NODES.iter().zip(weights) {
            fs::write(folder.path().join(format!("{TABLE}/node{node}")), format!("{weight}\n")).unwrap();
        }
        let root = Root::new(folder.path());
        (folder, root)
    }

    #[test]
    fn the_kernels_weights_are_compared_with_the_bandwidths_and_set_on_request() {
        let (_folder, root) = table([1, 1, 1]);
        let asked = |nodes: &[NodeId], sets: bool| auto(&root, &expanded(), nodes, sets).unwrap();
        let (policy, notes) = asked(&NODES, false);
        assert_eq!(policy, MemoryPolicy::WeightedInterleave(NODES.to_vec()));
        assert!(notes.len() == 1 && notes[0].contains("weights, 1:1:1;") && notes[0].contains("14:14:3"), "{notes:?}");
        let (_, notes) = asked(&NODES[..2], false);
        assert!(notes.is_empty(), "these two are alike: {notes:?}");
        assert_eq!(root.number(&format!("{TABLE}/node0")), Some(1), "nobody asked for more");
        let (_, notes) = asked(&NODES[1..], true);
        assert!(notes.len() == 1 && notes[0].contains("nodes 0-2 are 14:14:3 from now on"), "{notes:?}");
        assert_eq!(NODES.map(|node| root.number(&format!("{TABLE}/node{node}"))), [14, 14, 3].map(Some));
        assert!(asked(&NODES, false).1.is_empty() && asked(&NODES, true).1.is_empty());
    }

    /// A process that may use two alike nodes of three left the weight of the third as it was, without a word.
    #[test]
    fn weights_are_set_for_the_nodes_of_others_too() {
        let (_folder, root) = table([1, 1, 1]);
        let (policy, notes) = auto(&root, &expanded(), &NODES[..2], true).unwrap();
        assert_eq!(policy, MemoryPolicy::WeightedInterleave(NODES[..2].to_vec()));
        assert!(notes.len() == 1 && notes[0].contains("nodes 0-2 are 14:14:3 from now on"), "{notes:?}");
        assert_eq!(NODES.map(|node| root.number(&format!("{TABLE}/node{node}"))), [14, 14, 3].map(Some));
    }

    #[test]
    fn weights_that_divide_memory_alike_are_the_same() {
        let (_folder, root) = table([28, 28, 6]);
        let (_, notes) = auto(&root, &expanded(), &NODES, false).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn older_kernels_interleave_evenly_and_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let (policy, notes) = auto(&root, &expanded(), &NODES, false).unwrap();
        assert_eq!(policy, MemoryPolicy::Interleave(NODES.to_vec()));
        assert!(
            notes.len() == 1 && notes[0].contains("Linux 6.9") && notes[0].ends_with("and not 14:14:3"),
            "{notes:?}"
        );
        assert!(auto(&root, &expanded(), &NODES, true).unwrap_err().to_string().contains("Linux 6.9"));
        let (policy, notes) = auto(&root, &expanded(), &NODES[..1], false).unwrap();
        assert_eq!(policy, MemoryPolicy::Interleave(vec![NodeId(0)]));
        assert!(notes.len() == 1 && notes[0].contains("one node only"), "{notes:?}");
    }

    /// Three nodes in `folder`; the firmware states these bandwidths of reading and writing, in MiB/s, if any.
    fn live(folder: &TempDir, bandwidths: Option<[(u64, u64); 3]>) -> Machine {
        let put = |path: &str, text: &str| {
            let file = folder.path().join("sys/devices/system").join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        };
        for (path, text) in [("cpu/present", "0-2"), ("cpu/online", "0-2"), ("node/online", "0-2")] {
            put(path, text);
        }
        for (node, distances) in ["10 20 20", "20 10 20", "20 20 10"].iter().enumerate() {
            put(&format!("node/node{node}/cpulist"), &node.to_string());
            put(&format!("node/node{node}/distance"), distances);
            let memory = format!("Node {node} MemTotal: 4096 kB\nNode {node} MemFree: 2048 kB");
            put(&format!("node/node{node}/meminfo"), &memory);
            if let Some((reading, writing)) = bandwidths.map(|all| all[node]) {
                put(&format!("node/node{node}/access1/initiators/read_bandwidth"), &reading.to_string());
                put(&format!("node/node{node}/access1/initiators/write_bandwidth"), &writing.to_string());
            }
        }
        Machine::from_sysfs(folder.path()).unwrap()
    }

    /// By the bandwidth of reading alone, the kernel's own weights seemed to be wrong.
    #[test]
    fn memory_is_weighed_by_the_lower_bandwidth_of_reading_and_writing_as_the_kernel_does() {
        let (folder, root) = table([14, 14, 3]);
        let machine = live(&folder, Some([(100_000, 100_000), (100_000, 100_000), (100_000, 25_000)]));
        let notes = |machine: &Machine| auto(&root, machine, &NODES, false).unwrap().1;
        assert!(notes(&machine).is_empty(), "{:?}", notes(&machine));
        let measured = machine.with_memory_bandwidths(|_| Some(50e9)).unwrap();
        let told = notes(&measured);
        assert!(told.len() == 1 && told[0].contains("it would be 1:1:1"), "a model's are what they are: {told:?}");
        // A firmware that states nothing of writing.
        let machine = live(&folder, Some([(100_000, 0), (100_000, 0), (25_000, 0)]));
        assert!(notes(&machine).is_empty(), "{:?}", notes(&machine));
    }

    #[test]
    fn bandwidths_that_are_not_known_are_asked_for() {
        let sysfs = tempfile::tempdir().unwrap();
        let machine = live(&sysfs, None);
        let (_folder, root) = table([5, 5, 2]);
        let (policy, notes) = auto(&root, &machine, &NODES, false).unwrap();
        assert_eq!(policy, MemoryPolicy::WeightedInterleave(NODES.to_vec()));
        assert!(notes.len() == 1 && notes[0].contains("nodes 0-2 is not known"), "{notes:?}");
        assert!(notes[0].contains("5:5:2"), "{notes:?}");
        let error = auto(&root, &machine, &NODES, true).unwrap_err().to_string();
        assert!(error.contains("of nodes 0-2 is not known") && error.contains("--machine FILE"), "{error}");
        assert_eq!(root.number(&format!("{TABLE}/node0")), Some(5));
    }
}
