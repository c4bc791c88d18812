//! Phrases that the terminal drawing and the picture share.

use std::collections::BTreeMap;

use numapilot_machine::{
    Cache, CacheKind, CpuId, Endpoint, Link, LinkId, Machine, Node, NodeId, NodeKind, format_cpu_list,
};
use numapilot_text::style::clean;
use numapilot_text::units::{short_bytes, short_number};

/// `12.8 GB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{} GB/s", short_number(bytes_per_s / 1e9))
}

/// `1 core`, `2 cores`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `0-3,8`.
pub fn cpu_list(cpus: impl IntoIterator<Item = CpuId>) -> String {
    format_cpu_list(cpus.into_iter().map(|c| c.0))
}

/// The name of a link's end.
pub fn end(machine: &Machine, end: Endpoint) -> String {
    match end {
        Endpoint::Node(node) => node.to_string(),
        Endpoint::Router(router) => {
            machine.routers().get(usize::from(router.0)).map_or_else(|| format!("router {router}"), |r| clean(&r.name))
        }
    }
}

/// What a node without CPUs or memory is.
pub fn kind(node: &Node) -> Option<&'static str> {
    match node.kind() {
        NodeKind::CpusAndMemory => None,
        NodeKind::MemoryOnly => Some("memory only"),
        NodeKind::CpusOnly => Some("no memory"),
        NodeKind::Empty => Some("no CPUs, no memory"),
    }
}

/// CPUs of a node that are offline.
pub fn offline(machine: &Machine, node: &Node) -> Vec<CpuId> {
    node.cpus.iter().copied().filter(|&c| machine.cpu(c).is_some_and(|c| !c.online)).collect()
}

/// CPUs of a node that are online.
pub fn online(machine: &Machine, node: &Node) -> Vec<CpuId> {
    node.cpus.iter().copied().filter(|&c| machine.cpu(c).is_some_and(|c| c.online)).collect()
}

/// The same as a list: `0-3,8`, or `none online`.
pub fn online_list(machine: &Machine, node: &Node) -> String {
    let online = online(machine, node);
    if online.is_empty() { "none online".to_owned() } else { cpu_list(online) }
}

/// `4 cores x 2 threads`, `1 core`; `2 cores, up to 2 threads each` where some have fewer threads online.
pub fn amount(machine: &Machine, node: &Node) -> String {
    let cores = cores(machine, node);
    let amount = plural(cores.len(), "core", "cores");
    let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
    match cores.iter().all(|core| core.len() == threads) {
        _ if threads <= 1 => amount,
        true => format!("{amount} x {threads} threads"),
        false => format!("{amount}, up to {threads} threads each"),
    }
}

/// Cores of a node: groups of online CPUs, by first CPU.
pub fn cores(machine: &Machine, node: &Node) -> Vec<Vec<CpuId>> {
    let mut cores: BTreeMap<CpuId, Vec<CpuId>> = BTreeMap::new();
    for cpu in node.cpus.iter().filter_map(|&c| machine.cpu(c)).filter(|c| c.online) {
        let first = cpu.siblings.iter().copied().find(|&s| machine.cpu(s).is_some_and(|s| s.online)).unwrap_or(cpu.id);
        cores.entry(first).or_default().push(cpu.id);
    }
    cores.into_values().collect()
}

/// One phrase per kind of cache that the node's CPUs use: `L1d 64 KiB per core`, `8 x L3 32 MiB`, `L3 105 MiB of the socket`.
pub fn caches(machine: &Machine, node: &Node) -> Vec<String> {
    let mut groups: BTreeMap<(u8, CacheKind, u64), Vec<&Cache>> = BTreeMap::new();
    for cache in machine.caches().iter().filter(|c| c.cpus.iter().any(|cpu| node.cpus.contains(cpu))) {
        groups.entry((cache.level, cache.kind, cache.size_bytes)).or_default().push(cache);
    }
    let cores = cores(machine, node).len();
    let phrase = |((level, kind, bytes), caches): ((u8, CacheKind, u64), Vec<&Cache>)| {
        let letter = match kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        let name = format!("L{level}{letter} {}", short_bytes(bytes));
        let beyond = caches.iter().any(|c| c.cpus.iter().any(|cpu| !node.cpus.contains(cpu)));
        match caches.len() {
            _ if beyond => format!("{name} shared with other nodes"),
            count if count == cores && count > 1 => format!("{name} per core"),
            1 => name,
            count => format!("{count} x {name}"),
        }
    };
    groups.into_iter().map(phrase).collect()
}

/// `16 GiB, 12.8 GB/s`.
pub fn memory(node: &Node) -> String {
    let mut words = if node.has_memory() { short_bytes(node.memory_bytes) } else { "none".to_owned() };
    if let Some(free) = node.free_bytes {
        words.push_str(&format!(" ({} free)", short_bytes(free)));
    }
    if let Some(bandwidth) = node.memory_bandwidth_bytes_per_s {
        words.push_str(&format!(", {}", rate(bandwidth)));
    }
    words
}

/// `All CPUs read at most 34 GB/s`: the limits of what a node's CPUs read and write together, a line each, where they are known. They fit the narrowest box.
pub fn ports(node: &Node) -> Vec<String> {
    let limits = [("read", node.cpus_read_bytes_per_s), ("write", node.cpus_write_bytes_per_s)];
    let line = |(verb, limit): (&str, Option<f64>)| Some(format!("All CPUs {verb} at most {}", rate(limit?)));
    limits.into_iter().filter_map(line).collect()
}

/// Idle latency of the memory that is local to a node's CPUs, in nanoseconds: its own, or that of the nearest node where it has none. `None`: it is not known;
/// that of other memory is then no measure, although the firmware may tell it (of CXL memory alone, say).
pub fn local_ns(machine: &Machine, from: NodeId) -> Option<f64> {
    if machine.node(from).is_some_and(Node::has_memory) {
        return machine.idle_latency_ns(from, from);
    }
    machine.nodes().iter().filter_map(|to| machine.idle_latency_ns(from, to.id)).min_by(f64::total_cmp)
}

/// One line about the whole: nodes, cores, CPUs, memory.
pub fn totals(machine: &Machine) -> Vec<String> {
    let mut words = vec![plural(machine.nodes().len(), "node", "nodes")];
    let sockets = machine.sockets().len();
    if sockets > 0 {
        words.push(plural(sockets, "socket", "sockets"));
    }
    words.push(plural(machine.online_core_count(), "core", "cores"));
    words.push(plural(machine.online_cpu_count(), "CPU online", "CPUs online"));
    words.push(format!("{} of memory", short_bytes(machine.memory_bytes())));
    if let Some(mhz) = machine.clock_mhz() {
        words.push(format!("{mhz:.0} MHz"));
    }
    match machine.broadcasts_probes() {
        Some(true) => words.push("every miss probes all nodes".to_owned()),
        Some(false) => words.push("directory coherence".to_owned()),
        None => {}
    }
    words
}

/// Two directions of one connection, or one of which there is no way back.
pub struct Connection<'a> {
    pub forth: &'a Link,
    pub back: Option<&'a Link>,
}

/// Links, the two directions of a connection together, in order of the first.
pub fn connections(machine: &Machine) -> Vec<Connection<'_>> {
    let mut taken = vec![false; machine.links().len()];
    let mut connections = Vec::new();
    for (index, link) in machine.links().iter().enumerate() {
        if std::mem::replace(&mut taken[index], true) {
            continue;
        }
        let back =
            machine.links().iter().enumerate().find(|(i, l)| !taken[*i] && l.from == link.to && l.to == link.from);
        if let Some((other, _)) = back {
            taken[other] = true;
        }
        connections.push(Connection { forth: link, back: back.map(|(_, l)| l) });
    }
    connections
}

/// What lies between the ends of a path: `1`, or `io-die-0, io-die-1`.
pub fn via(machine: &Machine, path: &[LinkId]) -> String {
    let stops = path.iter().take(path.len().saturating_sub(1)).filter_map(|&id| machine.link(id));
    stops.map(|link| end(machine, link.to)).collect::<Vec<_>>().join(", ")
}

/// Pairs of nodes that share the same intermediate stops, for every way of more than one link; in order of first use.
pub fn detours(machine: &Machine) -> Vec<(String, Vec<(NodeId, NodeId)>)> {
    let mut groups: Vec<(String, Vec<(NodeId, NodeId)>)> = Vec::new();
    for from in machine.nodes() {
        for to in machine.nodes() {
            let paths = machine.routes(from.id, to.id);
            if paths.first().is_none_or(|path| path.len() < 2) {
                continue;
            }
            let mut ways: Vec<String> = paths.iter().map(|path| via(machine, path)).collect();
            ways.sort();
            let words = ways.join(" or ");
            match groups.iter_mut().find(|(known, _)| *known == words) {
                Some((_, pairs)) => pairs.push((from.id, to.id)),
                None => groups.push((words, vec![(from.id, to.id)])),
            }
        }
    }
    groups
}
