//! The machine as JSON. Units are in the names; `null` means unknown; matrices are `[from][to]` in the order of `nodes`.

use numapilot_machine::{Cache, Endpoint, Machine, MachineSource};
use serde_json::{Value, json};

/// Everything that is known of the machine. Its shape, with `version` 1:
///
/// * `name`, `source` (`{"kind": "live" | "model" | "builtin", "path"}`), `cpu`, `description`, `clock_mhz`, `coherence` (`broadcast` | `directory`);
/// * `nodes[]`: `id`, `kind`, `socket`, `cpus`, `memory_bytes`, `free_bytes`, `memory_bandwidth_bytes_per_s`, `cpus_read_bytes_per_s`,
///   `cpus_write_bytes_per_s`, `memory_kind`;
/// * `cpus[]`: `id`, `node`, `socket`, `core`, `online`, `siblings`, `l3` (index among the L3 caches);
/// * `caches[]`: `level`, `kind`, `size_bytes`, `line_bytes`, `ways`, `latency_cycles`, `cpus`;
/// * `distances`, `idle_latency_ns`, `idle_latency_cycles`: matrices;
/// * `routers[]`, `links[]` (directed: `id`, `from`, `to`, `bandwidth_bytes_per_s`, `latency_ns`, `kind`);
/// * `routing` (`shortest` | `widest`), `routes[]` (`from`, `to`, `hops`, `paths`: lists of link ids);
/// * `figures[]`: every figure with its `source`, whether it is an `estimate`, and its `range` (least and most) where one is known;
///   `notes[]`: sentences.
pub fn json(machine: &Machine) -> Value {
    let ids: Vec<_> = machine.nodes().iter().map(|n| n.id).collect();
    let matrix = |cell: &dyn Fn(numapilot_machine::NodeId, numapilot_machine::NodeId) -> Value| -> Value {
        ids.iter().map(|&from| ids.iter().map(|&to| cell(from, to)).collect::<Value>()).collect()
    };
    json!({
        "version": 1,
        "name": machine.name(),
        "source": source(machine.source()),
        "cpu": machine.cpu_model(),
        "description": machine.description(),
        "clock_mhz": machine.clock_mhz(),
        "coherence": machine.coherence(),
        "nodes": machine.nodes().iter().map(|node| json!({
            "id": node.id,
            "kind": node.kind(),
            "socket": node.socket,
            "cpus": node.cpus,
            "memory_bytes": node.memory_bytes,
            "free_bytes": node.free_bytes,
            "memory_bandwidth_bytes_per_s": node.memory_bandwidth_bytes_per_s,
            "cpus_read_bytes_per_s": node.cpus_read_bytes_per_s,
            "cpus_write_bytes_per_s": node.cpus_write_bytes_per_s,
            "memory_kind": node.memory_kind,
        })).collect::<Value>(),
        "cpus": machine.cpus().iter().map(|cpu| json!({
            "id": cpu.id,
            "node": cpu.node,
            "socket": cpu.socket,
            "core": cpu.core,
            "online": cpu.online,
            "siblings": cpu.siblings,
            "l3": machine.l3_index(cpu.id),
        })).collect::<Value>(),
        "caches": machine.caches().iter().map(cache).collect::<Value>(),
        "distances": matrix(&|from, to| json!(machine.distance(from, to))),
        "idle_latency_ns": matrix(&|from, to| json!(machine.idle_latency_ns(from, to))),
        "idle_latency_cycles": matrix(&|from, to| json!(machine.idle_latency_cycles(from, to))),
        "routers": machine.routers(),
        "links": machine.links().iter().map(|link| json!({
            "id": link.id,
            "from": end(machine, link.from),
            "to": end(machine, link.to),
            "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s,
            "latency_ns": link.latency_ns,
            "kind": link.kind,
        })).collect::<Value>(),
        "routing": machine.routing(),
        "routes": routes(machine),
        "figures": machine.figures(),
        "notes": machine.notes(),
    })
}

fn source(source: &MachineSource) -> Value {
    match source {
        MachineSource::Live { root } => json!({ "kind": "live", "path": root }),
        MachineSource::Model { path } => json!({ "kind": "model", "path": path }),
        MachineSource::Builtin => json!({ "kind": "builtin", "path": null }),
        MachineSource::Recording { host } => json!({ "kind": "recording", "path": null, "host": host }),
    }
}

fn cache(cache: &Cache) -> Value {
    json!({
        "level": cache.level,
        "kind": cache.kind,
        "size_bytes": cache.size_bytes,
        "line_bytes": cache.line_bytes,
        "ways": cache.ways,
        "latency_cycles": cache.latency_cycles,
        "cpus": cache.cpus,
    })
}

/// A node's number, or a router's name.
fn end(machine: &Machine, end: Endpoint) -> Value {
    match end {
        Endpoint::Node(node) => json!(node),
        Endpoint::Router(router) => json!(machine.routers().get(usize::from(router.0)).map(|r| &r.name)),
    }
}

fn routes(machine: &Machine) -> Value {
    let nodes = machine.nodes();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from.id, to.id)));
    let known = pairs.filter(|&(from, to)| !machine.routes(from, to).is_empty());
    known
        .map(|(from, to)| json!({ "from": from, "to": to, "hops": machine.hops(from, to), "paths": machine.routes(from, to) }))
        .collect()
}
