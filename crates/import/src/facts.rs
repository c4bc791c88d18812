//! The recording's description of its machine, its events and itself, in numapilot's types.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use numapilot_machine::{CpuId, MAX_CPUS, MAX_NODES, Machine, NodeId, parse_cpu_list};
use numapilot_perf::EventAttr;
use numapilot_perf::file::{CacheFact, Features, NodeFact, Walker};
use numapilot_perf::spe::interval;
use numapilot_sampled::EventCounts;
use numapilot_trace::chunk::SessionStart;
use numapilot_trace::engine::Engine;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::events::EventKind;
use super::{command, events};
use numapilot_perf_events::places::{MemoryBlocks, Places};

/// Most nodes that Linux can have (`NODES_SHIFT` is 10 at most).
const NODES_MAX: usize = 1 << 10;
/// Most CPUs that all nodes list together, and that all caches do.
const LISTED_MAX: usize = 16 * MAX_CPUS;

/// What the samples of one event are, for `meta.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SampledEvent {
    /// Name of the event.
    pub event: String,
    /// What the samples are.
    pub kind: EventKind,
    /// Number of samples.
    pub samples: u64,
    /// What they stand for together, in `unit`.
    pub period: u64,
    /// What the event counts.
    pub unit: String,
}

/// Facts about a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Feature sections of the recording.
    pub features: Features,
    /// Facts about events and CPUs, by which samples become accesses or faults.
    pub places: Places,
    /// Descriptions of the events.
    pub attrs: Vec<EventAttr>,
    /// Nodes of the machine; `None`: not recorded.
    pub machine: Option<Machine>,
}

impl Facts {
    /// Reads them. `id_cpus`: CPUs of event ids, where the recording lists them.
    pub fn of<R: Read>(walker: &Walker<R>, id_cpus: &HashMap<u64, CpuId>) -> Facts {
        let features = plausible(walker.features().clone());
        let attrs = walker.session().events().to_vec();
        let events = attrs.iter().enumerate().map(|(index, attr)| events::fact(attr, index, &features)).collect();
        let mut places = Places { events, ..Places::default() };
        for node in &features.nodes {
            let cpus = parse_cpu_list(&node.cpus).unwrap_or_default();
            let Ok(id) = u16::try_from(node.node) else { continue };
            places.node_of_cpu.extend(cpus.into_iter().map(|cpu| (CpuId(cpu), NodeId(id))));
            if node.memory_kib > 0 {
                places.memory_nodes.push(NodeId(id));
            }
        }
        places.packages_are_nodes = packages_are_nodes(&features, &places.node_of_cpu);
        places.cpu_of_id = id_cpus.clone();
        if places.cpu_of_id.is_empty() {
            places.cpu_of_id = cpus_by_order(walker, &features);
        }
        places.block_bytes = features.memory_block_bytes;
        let blocks = features.memory.iter().filter_map(|node| {
            Some(MemoryBlocks { node: NodeId(u16::try_from(node.node).ok()?), blocks: node.blocks.clone() })
        });
        places.blocks = blocks.collect();
        let is_spe = |attr: &&EventAttr| features.pmu_name(attr.kind).is_some_and(|name| name.starts_with("arm_spe"));
        places.spe_period = attrs.iter().find(is_spe).and_then(EventAttr::period).map(interval);
        Facts { machine: machine(&features), features, places, attrs }
    }

    /// The start of a trace whose clock is the recording's own, from `origin` on.
    pub fn session(&self, input: &Path, origin: u64) -> SessionStart {
        let features = &self.features;
        let period = self.attrs.iter().find_map(EventAttr::period);
        let config = json!({
            "source": input.display().to_string(), "events": self.event_list(), "perf_version": features.perf_version,
            "perf_command": features.command, "sample_period": period.unwrap_or(0),
        });
        SessionStart {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: Engine::Import.into(),
            command: command::program(&features.command).unwrap_or_default().to_vec(),
            start_unix_ns: features.wall_clock.map_or(0, |(wall, clock)| wall.wrapping_sub(clock).wrapping_add(origin)),
            start_order: origin,
            order_khz: 1_000_000,
            clock_khz: 1_000_000,
            clock_origin_cycles: origin,
            simulated: self.emulated_pmu().is_some(),
            machine: serde_json::to_value(&self.machine).unwrap_or_default(),
            config: config.as_object().cloned().unwrap_or_default(),
            host: self.host(),
            ..SessionStart::default()
        }
    }

    /// The emulated PMU that the samples come from. By its name: no kernel has a PMU called so, and what emulates one must call it so.
    pub fn emulated_pmu(&self) -> Option<&str> {
        let names = self.attrs.iter().filter_map(|attr| self.features.pmu_name(attr.kind));
        names.into_iter().find(|name| name.starts_with("emulated_"))
    }

    /// What was sampled: the events that have samples.
    pub fn sampled(&self, by_event: &[EventCounts]) -> Vec<SampledEvent> {
        let rows = by_event.iter().enumerate().filter(|(_, counts)| counts.samples > 0);
        let row = |(index, counts): (usize, &EventCounts)| {
            let attr = self.attrs.get(index)?;
            Some(SampledEvent {
                event: events::name(attr, index, &self.features),
                kind: events::kind(self.places.events.get(index).copied().unwrap_or_default(), counts.accesses),
                samples: counts.samples,
                period: counts.period,
                unit: events::unit(attr, index, &self.features),
            })
        };
        rows.filter_map(row).collect()
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
            let name = events::recorded_name(index, &self.features);
            json!({
                "name": name, "type": attr.kind, "pmu": self.features.pmu_name(attr.kind), "config": attr.config,
                "config1": attr.config1, "period": attr.period(), "frequency_hz": attr.is_freq().then_some(attr.period_or_freq),
                "sample_type": attr.sample_type,
            })
        });
        rows.collect()
    }
}

/// Facts without nodes or caches that are more than any machine has: in a damaged or forged recording a few bytes name thousands of CPUs, and there may be
/// millions of such lists.
fn plausible(mut features: Features) -> Features {
    if features.nodes.len() > NODES_MAX || names_too_many(features.nodes.iter().map(|node| node.cpus.as_str())) {
        features.nodes.clear();
    }
    if names_too_many(features.caches.iter().map(|cache| cache.cpus.as_str())) {
        features.caches.clear();
    }
    features
}

/// Whether lists of CPUs name more of them together than [`LISTED_MAX`]. What is no list counts by its length.
fn names_too_many<'a>(mut lists: impl Iterator<Item = &'a str>) -> bool {
    let mut named = 0;
    lists.any(|list| {
        named += parse_cpu_list(list).map_or(list.len(), |cpus| cpus.len());
        named > LISTED_MAX
    })
}

/// Type register of the cores of an Arm machine: what perf records as the processor's id there, which is that of one of them.
pub(super) fn midr(features: &Features) -> Option<u64> {
    let digits = features.cpu_id.strip_prefix("0x").filter(|_| features.arch == "aarch64")?;
    let end = digits.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

/// Whether each package holds exactly one node, and there is no other memory: that of nodes without CPUs (HBM, CXL, persistent memory used as such) is some
/// package's, too, and its processors call it "local" as well.
fn packages_are_nodes(features: &Features, node_of_cpu: &HashMap<CpuId, NodeId>) -> bool {
    let cpus = (0..).map(CpuId).zip(&features.sockets);
    let mut pairs: Vec<(u32, NodeId)> =
        cpus.filter_map(|(cpu, &socket)| Some((socket, *node_of_cpu.get(&cpu)?))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut sockets: Vec<u32> = pairs.iter().map(|(socket, _)| *socket).collect();
    let mut nodes: Vec<NodeId> = pairs.iter().map(|(_, node)| *node).collect();
    sockets.dedup();
    nodes.sort_unstable();
    nodes.dedup();
    let has_cpus = |fact: &NodeFact| nodes.iter().any(|node| u32::from(node.0) == fact.node);
    let is_all_memory = features.nodes.iter().all(|fact| fact.memory_kib == 0 || has_cpus(fact));
    !pairs.is_empty() && sockets.len() == pairs.len() && nodes.len() == pairs.len() && is_all_memory
}

/// perf opens an event CPU by CPU, and writes its ids in that order: where an event has as many ids as there are CPUs online (so that it was opened for one
/// task), the n-th is that of the n-th CPU.
fn cpus_by_order<R: Read>(walker: &Walker<R>, features: &Features) -> HashMap<u64, CpuId> {
    let mut online: Vec<u32> =
        features.nodes.iter().flat_map(|node| parse_cpu_list(&node.cpus).unwrap_or_default()).collect();
    online.sort_unstable();
    let is_whole = features.cpu_counts.is_some_and(|(_, count)| count as usize == online.len());
    if !is_whole || is_otherwise_opened(&features.command) || online.len() < 2 {
        return HashMap::new();
    }
    let events = 0..walker.session().events().len();
    let lists = events.map(|event| walker.ids(event)).filter(|ids| ids.len() == online.len());
    lists.flat_map(|ids| ids.iter().copied().zip(online.iter().copied().map(CpuId))).collect()
}

/// Whether a command line of perf opens events other than once for each CPU online: perf takes the beginnings of options' names, too.
fn is_otherwise_opened(command: &[String]) -> bool {
    let is_cpus = |word: &str| word.starts_with("-C") || word == "--cpu" || word.starts_with("--cpu=");
    command.iter().any(|word| is_cpus(word) || word.starts_with("--per-"))
}

/// The machine as the recording describes it. `None` without its nodes, or where the description contradicts itself.
fn machine(features: &Features) -> Option<Machine> {
    let count = features.nodes.len();
    // A `Machine` takes no more.
    if count == 0 || count > MAX_NODES {
        return None;
    }
    let nodes: Vec<Value> = features.nodes.iter().map(node).collect();
    let all: Vec<u32> = features.nodes.iter().flat_map(cpus).collect();
    let cpus: Vec<Value> = features
        .nodes
        .iter()
        .flat_map(|fact| cpus(fact).into_iter().map(move |cpu| (cpu, fact.node)))
        .map(|(cpu, node)| {
            // perf writes -1 where the kernel does not know the package.
            let socket = features.sockets.get(cpu as usize).filter(|socket| **socket != u32::MAX);
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

    #[test]
    fn arms_type_register_is_the_processors_id() {
        let midr = |arch: &str, id: &str| {
            midr(&Features { arch: arch.to_owned(), cpu_id: id.to_owned(), ..Features::default() })
        };
        assert_eq!(midr("aarch64", "0x00000000413fd0c1"), Some(0x413f_d0c1));
        assert_eq!(midr("aarch64", "0x00000000413fd0c1,more"), Some(0x413f_d0c1));
        assert_eq!([midr("x86_64", "GenuineIntel-6-8F-8"), midr("aarch64", ""), midr("aarch64", "0x")], [None; 3]);
    }

    #[test]
    fn events_of_threads_say_no_cpus_by_their_order() {
        let is = |line: &str| is_otherwise_opened(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["--per-thread -p 7", "--per-th -p 7", "-C 0-3", "-C0-3 -a", "--cpu=0-3", "--cpu 0"] {
            assert!(is(&format!("perf record {line}")), "{line}");
        }
        assert!(!is("perf record -d --period -c 1000 ./app"));
    }

    /// A recording of 4 MB named more CPUs than fit into memory.
    #[test]
    fn lists_of_more_cpus_than_machines_have_are_left_out() {
        let node = |cpus: &str| NodeFact { node: 0, memory_kib: 1 << 20, free_kib: 0, cpus: cpus.to_owned() };
        let cache = |cpus: &str| CacheFact { cpus: cpus.to_owned(), ..CacheFact::default() };
        let left = |nodes: Vec<NodeFact>, caches: Vec<CacheFact>| {
            let left = plausible(Features { nodes, caches, ..Features::default() });
            (left.nodes.len(), left.caches.len())
        };
        // The largest machine: each CPU has five caches.
        assert_eq!(left(vec![node("0-8191")], vec![cache("0-8191"); 5]), (1, 5));
        assert_eq!(left(vec![node(""); NODES_MAX], vec![cache("none"); 5]), (NODES_MAX, 5));
        assert_eq!(left(vec![node(""); NODES_MAX + 1], Vec::new()), (0, 0));
        assert_eq!(left(vec![node("0-65535"); 3], vec![cache("0-3")]), (0, 1));
        assert_eq!(left(vec![node("0-3")], vec![cache("0-65535"); 3]), (1, 0));
    }

    #[test]
    fn a_package_that_the_kernel_does_not_know_is_unknown() {
        let nodes = vec![NodeFact { node: 0, memory_kib: 1 << 20, free_kib: 0, cpus: "0-1".to_owned() }];
        let features = Features { sockets: vec![u32::MAX, 0], nodes, ..Features::default() };
        let machine = machine(&features).expect("a machine");
        let sockets: Vec<Option<u32>> = machine.cpus().iter().map(|cpu| cpu.socket.map(|socket| socket.0)).collect();
        assert_eq!(sockets, [None, Some(0)]);
    }

    #[test]
    fn nodes_within_a_package_are_seen() {
        let features = Features { sockets: vec![0, 0, 1, 1], ..Features::default() };
        let nodes = |list: [u16; 4]| (0..).zip(list).map(|(cpu, node)| (CpuId(cpu), NodeId(node))).collect();
        assert!(packages_are_nodes(&features, &nodes([0, 0, 1, 1])));
        assert!(!packages_are_nodes(&features, &nodes([0, 1, 2, 3])), "two nodes in a package");
        assert!(!packages_are_nodes(&features, &nodes([0, 0, 0, 0])), "one node over two packages");
        assert!(!packages_are_nodes(&Features::default(), &nodes([0, 0, 1, 1])), "packages not recorded");
    }

    /// Xeon Max in flat mode: the HBM of each package is a node without CPUs, and a load from it has "local RAM" as its source.
    #[test]
    fn memory_of_nodes_without_cpus_is_a_packages_too() {
        let fact = |node, cpus: &str, memory_kib| NodeFact { node, memory_kib, free_kib: 0, cpus: cpus.to_owned() };
        let node_of_cpu = HashMap::from([(CpuId(0), NodeId(0)), (CpuId(1), NodeId(1))]);
        let with = |more: NodeFact| {
            let nodes = vec![fact(0, "0", 1 << 20), fact(1, "1", 1 << 20), more];
            packages_are_nodes(&Features { sockets: vec![0, 1], nodes, ..Features::default() }, &node_of_cpu)
        };
        assert_eq!([with(fact(2, "", 1 << 20)), with(fact(2, "", 0))], [false, true]);
    }
}
