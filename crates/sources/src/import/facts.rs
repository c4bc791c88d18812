//! What the recording says of its machine, its events and itself, in our terms.

use std::collections::HashMap;
use std::io::Read;

use numapilot_machine::{CpuId, Machine, NodeId, parse_cpu_list};
use numapilot_perf::EventAttr;
use numapilot_perf::abi::{event_type, software};
use numapilot_perf::data_src::{Distance, Level};
use numapilot_perf::file::{CacheFact, Features, NodeFact, Walker};
use serde_json::{Map, Value, json};

/// What an event's samples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventFact {
    /// Page faults.
    pub is_fault: bool,
    /// Of AMD's `ibs_op`: raw samples hold its registers.
    pub is_ibs: bool,
}

/// Facts about a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// As recorded.
    pub features: Features,
    /// What the samples of each event are.
    pub events: Vec<EventFact>,
    /// Descriptions of the events.
    pub attrs: Vec<EventAttr>,
    /// Nodes of the machine; `None`: not recorded.
    pub machine: Option<Machine>,
    node_of_cpu: HashMap<u32, NodeId>,
    cpu_of_id: HashMap<u64, u32>,
    /// Nodes with memory.
    memory_nodes: Vec<NodeId>,
    /// Each package is one node, so that "local" and "remote" memory are the node's own and another's.
    packages_are_nodes: bool,
}

impl Facts {
    /// Reads them. `id_cpus`: CPUs of event ids, where the recording lists them.
    pub fn of<R: Read>(walker: &Walker<R>, id_cpus: &HashMap<u64, u32>) -> Facts {
        let features = walker.features().clone();
        let attrs = walker.session().events().to_vec();
        let events = attrs.iter().map(|attr| event_fact(attr, &features)).collect();
        let mut facts = Facts { events, attrs, ..Facts::default() };
        for node in &features.nodes {
            let cpus = parse_cpu_list(&node.cpus).unwrap_or_default();
            let Ok(id) = u16::try_from(node.node) else { continue };
            facts.node_of_cpu.extend(cpus.into_iter().map(|cpu| (cpu, NodeId(id))));
            if node.memory_kib > 0 {
                facts.memory_nodes.push(NodeId(id));
            }
        }
        facts.packages_are_nodes = packages_are_nodes(&features, &facts.node_of_cpu);
        facts.cpu_of_id = id_cpus.clone();
        if facts.cpu_of_id.is_empty() {
            facts.cpu_of_id = cpus_by_order(walker, &features);
        }
        facts.machine = machine(&features);
        facts.features = features;
        facts
    }

    /// CPU of an event's id.
    pub fn cpu_of_id(&self, id: u64) -> Option<u32> {
        self.cpu_of_id.get(&id).copied()
    }

    /// Node of a CPU.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<NodeId> {
        self.node_of_cpu.get(&cpu).copied()
    }

    /// Node whose memory has a physical address, by the recorded map of memory blocks.
    pub fn node_of_physical(&self, address: u64) -> Option<NodeId> {
        let block = address.checked_div(self.features.memory_block_bytes)?;
        let word = usize::try_from(block / 64).ok()?;
        let has = |blocks: &[u64]| blocks.get(word).is_some_and(|bits| bits >> (block % 64) & 1 != 0);
        let mut found = self.features.memory.iter().filter(|node| has(&node.blocks));
        let node = found.next()?;
        // A block that two nodes share says nothing.
        if found.next().is_some() {
            return None;
        }
        u16::try_from(node.node).ok().map(NodeId)
    }

    /// The only node with memory, if there is but one.
    pub fn only_node(&self) -> Option<NodeId> {
        match self.memory_nodes[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    /// Node of memory that the hardware calls local or remote: of two nodes, remote is the other one. Only where nodes are packages: with several
    /// nodes in a package the words mean different things on different processors.
    pub fn node_by_distance(&self, level: Level, distance: Distance, own: Option<NodeId>) -> Option<NodeId> {
        let own = own.filter(|_| self.packages_are_nodes && level == Level::Ram)?;
        match (distance.is_other_node()?, &self.memory_nodes[..]) {
            (false, _) => Some(own),
            (true, &[first, second]) if own == first => Some(second),
            (true, &[first, second]) if own == second => Some(first),
            (true, _) => None,
        }
    }

    /// Operations that an SPE record stands for.
    pub fn spe_period(&self) -> Option<u64> {
        let is_spe =
            |attr: &&EventAttr| self.features.pmu_name(attr.kind).is_some_and(|name| name.starts_with("arm_spe"));
        self.attrs.iter().find(is_spe)?.period()
    }

    /// The program that was recorded: what stands after `--` in perf's own command line, else all of that.
    pub fn command(&self) -> Vec<String> {
        let line = &self.features.command;
        match line.iter().position(|word| word == "--") {
            Some(at) if at + 1 < line.len() => line[at + 1..].to_vec(),
            _ => line.clone(),
        }
    }

    /// Facts about the host, for `meta.json`.
    pub fn host(&self) -> Map<String, Value> {
        let features = &self.features;
        let words = [
            ("hostname", &features.hostname),
            ("kernel", &features.os_release),
            ("arch", &features.arch),
            ("cpu_model", &features.cpu_description),
            ("cpu_id", &features.cpu_id),
        ];
        let known = words.into_iter().filter(|(_, word)| !word.is_empty());
        let mut out: Map<String, Value> = known.map(|(name, word)| (name.to_owned(), json!(word))).collect();
        if let Some((_, online)) = features.cpu_counts {
            out.insert("cpu_count".to_owned(), json!(online));
        }
        out
    }

    /// The events, for `meta.json`.
    pub fn event_list(&self) -> Value {
        let rows = self.attrs.iter().enumerate().map(|(index, attr)| {
            let name = self.features.event_names.get(index).map(|(name, _)| name.as_str());
            json!({
                "name": name, "type": attr.kind, "pmu": self.features.pmu_name(attr.kind), "config": attr.config,
                "period": attr.period(), "frequency_hz": attr.is_freq().then_some(attr.period_or_freq),
                "sample_type": attr.sample_type,
            })
        });
        rows.collect()
    }
}

fn event_fact(attr: &EventAttr, features: &Features) -> EventFact {
    let faults = [software::PAGE_FAULTS, software::PAGE_FAULTS_MIN, software::PAGE_FAULTS_MAJ];
    EventFact {
        is_fault: attr.kind == event_type::SOFTWARE && faults.contains(&attr.config),
        is_ibs: features.pmu_name(attr.kind) == Some("ibs_op"),
    }
}

/// Whether each package holds exactly one node.
fn packages_are_nodes(features: &Features, node_of_cpu: &HashMap<u32, NodeId>) -> bool {
    let mut pairs: Vec<(u32, u16)> =
        (0..).zip(&features.sockets).filter_map(|(cpu, &socket)| Some((socket, node_of_cpu.get(&cpu)?.0))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut sockets: Vec<u32> = pairs.iter().map(|(socket, _)| *socket).collect();
    let mut nodes: Vec<u16> = pairs.iter().map(|(_, node)| *node).collect();
    sockets.dedup();
    nodes.sort_unstable();
    nodes.dedup();
    !pairs.is_empty() && sockets.len() == pairs.len() && nodes.len() == pairs.len()
}

/// perf opens an event CPU by CPU, and writes its ids in that order: where an event has as many ids as there are CPUs online (so that it was opened for one
/// task), the n-th is that of the n-th CPU.
fn cpus_by_order<R: Read>(walker: &Walker<R>, features: &Features) -> HashMap<u64, u32> {
    let mut online: Vec<u32> =
        features.nodes.iter().flat_map(|node| parse_cpu_list(&node.cpus).unwrap_or_default()).collect();
    online.sort_unstable();
    let is_whole = features.cpu_counts.is_some_and(|(_, count)| count as usize == online.len());
    let per_thread = features.command.iter().any(|word| word == "--per-thread" || word == "-C" || word == "--cpu");
    if !is_whole || per_thread || online.len() < 2 {
        return HashMap::new();
    }
    let events = 0..walker.session().events().len();
    let lists = events.map(|event| walker.ids(event)).filter(|ids| ids.len() == online.len());
    lists.flat_map(|ids| ids.iter().copied().zip(online.iter().copied())).collect()
}

/// The machine as the recording describes it. `None` without its nodes, or where the description contradicts itself.
fn machine(features: &Features) -> Option<Machine> {
    if features.nodes.is_empty() {
        return None;
    }
    let count = features.nodes.len();
    let nodes: Vec<Value> = features.nodes.iter().map(node).collect();
    let all: Vec<u32> = features.nodes.iter().flat_map(cpus).collect();
    let cpus: Vec<Value> = features
        .nodes
        .iter()
        .flat_map(|fact| cpus(fact).into_iter().map(move |cpu| (cpu, fact.node)))
        .map(|(cpu, node)| {
            let socket = features.sockets.get(cpu as usize);
            json!({ "id": CpuId(cpu), "node": node, "socket": socket, "core": null, "online": true, "siblings": [cpu] })
        })
        .collect();
    let caches: Vec<Value> = features.caches.iter().filter_map(|cache| self::cache(cache, &all)).collect();
    let mut cpus = cpus;
    cpus.sort_by_key(|cpu| cpu["id"].as_u64());
    let name = if features.hostname.is_empty() { "recorded machine" } else { &features.hostname };
    let parts = json!({
        "name": name, "source": { "recording": { "host": features.hostname } },
        "cpu_model": Some(&features.cpu_description).filter(|name| !name.is_empty()),
        "description": null, "clock_mhz": null, "coherence": null, "nodes": nodes, "cpus": cpus, "caches": caches,
        "routers": [], "links": [], "routing": "shortest", "routes": [],
        "distances": vec![vec![Value::Null; count]; count], "idle_latency_ns": vec![vec![Value::Null; count]; count],
        "figures": [], "notes": [],
    });
    serde_json::from_value(parts).ok()
}

fn cpus(fact: &NodeFact) -> Vec<u32> {
    parse_cpu_list(&fact.cpus).unwrap_or_default()
}

fn node(fact: &NodeFact) -> Value {
    json!({
        "id": fact.node, "socket": null, "cpus": cpus(fact), "memory_bytes": fact.memory_kib.saturating_mul(1024),
        "free_bytes": fact.free_kib.saturating_mul(1024), "memory_bandwidth_bytes_per_s": null, "memory_kind": null,
    })
}

fn cache(fact: &CacheFact, known: &[u32]) -> Option<Value> {
    let (digits, scale) = match fact.size.strip_suffix('K') {
        Some(digits) => (digits, 1024),
        None => (fact.size.strip_suffix('M')?, 1 << 20),
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    let kind = match fact.kind.as_str() {
        "Data" => "data",
        "Instruction" => "instruction",
        "Unified" => "unified",
        _ => return None,
    };
    let cpus: Vec<u32> = parse_cpu_list(&fact.cpus).ok()?.into_iter().filter(|cpu| known.contains(cpu)).collect();
    (!cpus.is_empty()).then(|| {
        json!({
            "level": u8::try_from(fact.level).ok(), "kind": kind, "size_bytes": size, "line_bytes": fact.line_bytes,
            "ways": fact.ways, "latency_cycles": null, "cpus": cpus,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numapilot_perf::file::MemoryNode;

    /// Two packages with a node each, CPUs 0 and 1, and two memory blocks of 1 GiB each; block 2 is on both.
    fn two_nodes() -> Facts {
        let node = |node: u32, cpus: &str| NodeFact { node, memory_kib: 1 << 20, free_kib: 0, cpus: cpus.to_owned() };
        let features = Features {
            nodes: vec![node(0, "0"), node(1, "1")],
            sockets: vec![0, 1],
            memory_block_bytes: 1 << 30,
            memory: vec![MemoryNode { node: 0, blocks: vec![0b101] }, MemoryNode { node: 1, blocks: vec![0b110] }],
            ..Features::default()
        };
        let node_of_cpu = HashMap::from([(0, NodeId(0)), (1, NodeId(1))]);
        let packages_are_nodes = packages_are_nodes(&features, &node_of_cpu);
        Facts {
            features,
            node_of_cpu,
            memory_nodes: vec![NodeId(0), NodeId(1)],
            packages_are_nodes,
            ..Facts::default()
        }
    }

    #[test]
    fn physical_addresses_name_nodes_where_one_node_has_the_block() {
        let facts = two_nodes();
        let node = |gib: u64| facts.node_of_physical(gib << 30);
        assert_eq!(
            [node(0), node(1), node(2), node(3), node(1 << 20)],
            [Some(NodeId(0)), Some(NodeId(1)), None, None, None]
        );
        assert_eq!(Facts::default().node_of_physical(0), None);
        assert_eq!(facts.only_node(), None);
    }

    #[test]
    fn remote_names_the_other_of_two_nodes_only_where_packages_are_nodes() {
        let facts = two_nodes();
        let node = |level, distance, own| facts.node_by_distance(level, distance, own);
        assert_eq!(node(Level::Ram, Distance::Remote, Some(NodeId(0))), Some(NodeId(1)));
        assert_eq!(node(Level::Ram, Distance::Local, Some(NodeId(1))), Some(NodeId(1)));
        assert_eq!(node(Level::Ram, Distance::Unknown, Some(NodeId(1))), None);
        assert_eq!(node(Level::Ram, Distance::Local, None), None);
        assert_eq!(node(Level::L3, Distance::Local, Some(NodeId(1))), None);
        let many = Facts { memory_nodes: vec![NodeId(0), NodeId(1), NodeId(2)], ..facts.clone() };
        assert_eq!(many.node_by_distance(Level::Ram, Distance::Remote, Some(NodeId(0))), None);
        let clustered = Facts { packages_are_nodes: false, ..facts };
        assert_eq!(clustered.node_by_distance(Level::Ram, Distance::Local, Some(NodeId(0))), None);
    }

    #[test]
    fn nodes_within_a_package_are_seen() {
        let features = Features { sockets: vec![0, 0, 1, 1], ..Features::default() };
        let nodes = |list: [u16; 4]| (0..).zip(list).map(|(cpu, node)| (cpu, NodeId(node))).collect();
        assert!(packages_are_nodes(&features, &nodes([0, 0, 1, 1])));
        assert!(!packages_are_nodes(&features, &nodes([0, 1, 2, 3])), "two nodes in a package");
        assert!(!packages_are_nodes(&features, &nodes([0, 0, 0, 0])), "one node over two packages");
        assert!(!packages_are_nodes(&Features::default(), &nodes([0, 0, 1, 1])), "packages not recorded");
    }
}
