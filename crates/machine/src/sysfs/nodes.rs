//! Nodes: their CPUs, memory, distances, and what the firmware's HMAT says of latency and bandwidth.

use super::figure;
use super::tree::{Tree, shortened};
use numapilot_host::meminfo;

use crate::MAX_NODES;
use crate::check;
use crate::error::MachineError;
use crate::hardware::{Cpu, Figure, Node};
use crate::ids::{CpuId, NodeId, SocketId};

const NODE: &str = "sys/devices/system/node";
/// `access1` ranks initiators that are CPUs; `access0`, older, also counts devices.
const ACCESS_CLASSES: [&str; 2] = ["access1", "access0"];
const MIB: f64 = (1u64 << 20) as f64;

/// Distances, idle latencies `[from][to]`, and the figures that HMAT gave.
type Pairs = (Vec<Vec<Option<u32>>>, Vec<Vec<Option<f64>>>, Vec<Figure>);

/// All online nodes, ascending; also sets the node of each CPU.
pub fn read(tree: &mut Tree, cpus: &mut [Cpu]) -> Result<Vec<Node>, MachineError> {
    let online = match tree.list(&format!("{NODE}/online"))? {
        Some(list) => list,
        None => tree.numbered(NODE, "node"),
    };
    if online.is_empty() {
        return without_nodes(tree, cpus);
    }
    if online.len() > MAX_NODES {
        return Err(tree.too_large(&format!("{NODE}/online"), format!("it names {} nodes", online.len()), MAX_NODES));
    }
    let mut nodes = Vec::with_capacity(online.len());
    for number in online {
        let Ok(id) = u16::try_from(number) else {
            return Err(tree.malformed(&format!("{NODE}/online"), format!("{number} is not the number of a node")));
        };
        let folder = format!("{NODE}/node{id}");
        let mut members = members(tree, &folder, cpus, NodeId(id))?;
        members.sort_unstable();
        let (memory_bytes, free_bytes) = memory(tree, &format!("{folder}/meminfo"))?;
        nodes.push(Node {
            id: NodeId(id),
            socket: socket(cpus, &members),
            cpus: members,
            memory_bytes,
            free_bytes: (memory_bytes > 0).then_some(free_bytes).flatten(),
            memory_bandwidth_bytes_per_s: None,
            cpus_read_bytes_per_s: None,
            cpus_write_bytes_per_s: None,
            memory_kind: None,
        });
    }
    Ok(nodes)
}

/// A kernel built without NUMA shows no nodes: everything is node 0.
fn without_nodes(tree: &mut Tree, cpus: &mut [Cpu]) -> Result<Vec<Node>, MachineError> {
    tree.notes.push("The kernel shows no NUMA nodes: all CPUs and memory are treated as node 0.".to_owned());
    let (memory_bytes, free_bytes) = memory(tree, "proc/meminfo")?;
    cpus.iter_mut().for_each(|cpu| cpu.node = Some(NodeId(0)));
    let members: Vec<CpuId> = cpus.iter().map(|cpu| cpu.id).collect();
    Ok(vec![Node {
        id: NodeId(0),
        socket: socket(cpus, &members),
        cpus: members,
        memory_bytes,
        free_bytes,
        memory_bandwidth_bytes_per_s: None,
        cpus_read_bytes_per_s: None,
        cpus_write_bytes_per_s: None,
        memory_kind: None,
    }])
}

/// CPUs of a node: `cpulist` names the online ones; the offline ones have only their `cpuN` link in the node's folder.
fn members(tree: &mut Tree, folder: &str, cpus: &mut [Cpu], node: NodeId) -> Result<Vec<CpuId>, MachineError> {
    let file = format!("{folder}/cpulist");
    let mut members = Vec::new();
    let listed = tree.list(&file)?.unwrap_or_default();
    for id in listed.iter().copied().chain(tree.numbered(folder, "cpu")) {
        let Ok(index) = cpus.binary_search_by_key(&CpuId(id), |cpu| cpu.id) else {
            return Err(tree.malformed(&file, format!("it names CPU {id}, which is not present")));
        };
        match cpus[index].node {
            Some(other) if other == node => {}
            Some(other) => {
                return Err(tree.malformed(&file, format!("it names CPU {id}, which is also in node {other}")));
            }
            None => {
                cpus[index].node = Some(node);
                members.push(CpuId(id));
            }
        }
    }
    Ok(members)
}

/// The package of all the node's CPUs, if they agree.
fn socket(cpus: &[Cpu], members: &[CpuId]) -> Option<SocketId> {
    let mut sockets: Vec<SocketId> = cpus.iter().filter(|c| members.contains(&c.id)).filter_map(|c| c.socket).collect();
    sockets.dedup();
    if sockets.len() == 1 { Some(sockets[0]) } else { None }
}

/// `MemTotal` and `MemFree` in bytes. The lines of a node's file begin with `Node N`.
fn memory(tree: &mut Tree, file: &str) -> Result<(u64, Option<u64>), MachineError> {
    let text = tree.text(file)?.unwrap_or_default();
    let field = |name: &str| -> Result<Option<u64>, MachineError> {
        let Some(line) =
            text.lines().find(|line| line.split_whitespace().any(|word| word.strip_suffix(':') == Some(name)))
        else {
            return Ok(None);
        };
        match meminfo::bytes_of(line.as_bytes(), name) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(tree.malformed(file, format!("{:?} is not an amount in kB", shortened(line)))),
        }
    };
    let total = field("MemTotal")?.unwrap_or(0);
    if total > check::MEMORY_BYTES_MAX {
        return Err(tree.malformed(file, format!("{total} bytes of memory in one node")));
    }
    Ok((total, field("MemFree")?))
}

/// Distances and HMAT attributes. HMAT has only the values seen from a node's best initiators: all other pairs stay unknown.
pub fn pairs(tree: &mut Tree, nodes: &mut [Node]) -> Result<Pairs, MachineError> {
    let count = nodes.len();
    let mut distances = vec![vec![None; count]; count];
    let mut latencies = vec![vec![None; count]; count];
    let mut figures = Vec::new();
    for to in 0..count {
        let folder = format!("{NODE}/node{}", nodes[to].id);
        distances[to] = distance_row(tree, &format!("{folder}/distance"), count)?;
        let Some(class) =
            ACCESS_CLASSES.into_iter().find(|class| tree.path(&format!("{folder}/{class}/initiators")).is_dir())
        else {
            continue;
        };
        let initiators = format!("{folder}/{class}/initiators");
        let latency_file = format!("{initiators}/read_latency");
        let (least, most) = (check::LATENCY_NS_MIN, check::LATENCY_NS_MAX);
        let latency = told(tree, &latency_file, 1.0, (least, most, "ns"))?;
        let bandwidth_file = format!("{initiators}/read_bandwidth");
        let (least, most) = (check::BANDWIDTH_MIN, check::BANDWIDTH_MAX);
        let bandwidth = told(tree, &bandwidth_file, MIB, (least, most, "bytes/s"))?;
        if let Some(bandwidth) = bandwidth {
            let place = format!("node {} memory bandwidth", nodes[to].id);
            figures.push(figure(&place, bandwidth, "bytes/s", &format!("firmware (HMAT), /{bandwidth_file}")));
            nodes[to].memory_bandwidth_bytes_per_s = Some(bandwidth);
        }
        let Some(latency) = latency else { continue };
        let names = tree.numbered(&initiators, "node");
        for from in 0..count {
            if !names.contains(&u32::from(nodes[from].id.0)) || !nodes[from].has_cpus() {
                continue;
            }
            let place = format!("idle latency node {} to node {}", nodes[from].id, nodes[to].id);
            figures.push(figure(&place, latency, "ns", &format!("firmware (HMAT), /{latency_file}")));
            latencies[from][to] = Some(latency);
        }
    }
    Ok((distances, latencies, figures))
}

/// A value that the firmware stated, in units of `unit`; `None` where it says nothing (the kernel writes 0), or what no machine has: other values may be right.
fn told(tree: &mut Tree, file: &str, unit: f64, within: (f64, f64, &str)) -> Result<Option<f64>, MachineError> {
    let Some(number) = tree.number(file)?.filter(|&number| number > 0) else { return Ok(None) };
    if number > u64::from(u32::MAX) {
        return Err(tree.malformed(file, format!("{number} is more than the kernel's 32 bits")));
    }
    let (value, (least, most, name)) = (number as f64 * unit, within);
    if (least..=most).contains(&value) {
        return Ok(Some(value));
    }
    let path = tree.path(file);
    tree.notes
        .push(format!("The firmware states {value} {name} in {}, which cannot be: it is not used.", path.display()));
    Ok(None)
}

/// One node's row of distances, in the order of the online nodes.
fn distance_row(tree: &mut Tree, file: &str, count: usize) -> Result<Vec<Option<u32>>, MachineError> {
    let Some(text) = tree.text(file)? else { return Ok(vec![None; count]) };
    let number = |word: &str| word.parse::<u32>().ok().filter(|d| (1..=check::DISTANCE_MAX).contains(d));
    let row: Vec<Option<u32>> = text.split_whitespace().map(number).collect();
    if row.len() != count || row.iter().any(Option::is_none) {
        return Err(tree.malformed(file, format!("{:?} is not {count} distances of 1 to 255", shortened(&text))));
    }
    Ok(row)
}
