//! An interval as JSON.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::Stat;
use crate::figures::Metric;
use crate::figures::NodeFigures;
use crate::figures::NumaStat;
use crate::figures::ProcessFigures;
use crate::maps::MemoryMap;
use crate::maps::NUMASTAT_KINDS;
use crate::maps::total_by_node;

/// An interval, and the memory of the watched processes.
#[must_use]
pub fn json(stat: &Stat) -> Value {
    let interval = &stat.interval;
    let has_numastat = interval.has_numastat();
    let metrics: Map<String, Value> =
        Metric::ALL.iter().map(|metric| (metric.name().to_owned(), interval.metrics.get(*metric).json())).collect();
    let events: Map<String, Value> = interval
        .events
        .iter()
        .map(|event| {
            let mut value = event.count.json();
            // An event that was not counted had no share of the time.
            value["running"] = json!(event.count.value().map(|_| event.running));
            (event.name.to_owned(), value)
        })
        .collect();
    let kernel: Map<String, Value> = interval
        .kernel
        .iter()
        .map(|(name, total, delta)| ((*name).to_owned(), json!({"since_boot": total, "interval": delta})))
        .collect();
    let links: Vec<Value> = interval.links.iter().map(|link| json!({"link": link.name, "load": link.load})).collect();
    json!({
        "simulated": interval.simulated, "from_s": interval.from_ns as f64 / 1e9, "to_s": interval.to_ns as f64 / 1e9,
        "metrics": metrics, "nodes": interval.nodes.iter().map(|of| node(of, has_numastat)).collect::<Vec<_>>(), "links": links,
        "processes": interval.processes.iter().map(process).collect::<Vec<_>>(), "events": events, "kernel": kernel,
        "samples": interval.sampled.as_ref().map(|of| json!({"source": of.source, "samples": of.samples, "lost": of.lost})),
        "memory": stat.memory.iter().map(memory).collect::<Vec<_>>(), "memory_total": total(&stat.memory), "notes": interval.notes,
    })
}

fn node(node: &NodeFigures, has_numastat: bool) -> Value {
    let numastat = |counts: NumaStat| -> Option<Map<String, Value>> {
        let named = NumaStat::NAMES.iter().zip(counts.0);
        has_numastat.then(|| named.map(|(name, count)| ((*name).to_owned(), json!(count))).collect())
    };
    json!({
        "node": node.node, "cpus": node.cpus, "busy_cpus": node.busy_cpus, "memory_bytes": node.memory_bytes, "free_bytes": node.free_bytes,
        "tier": node.tier, "local_access_ratio": node.local_share.json(), "ipc": node.ipc.json(), "l3_mpki": node.l3_mpki.json(),
        "controller_bytes_per_s": node.controller_bytes_per_s.json(), "controller_load": node.controller_load,
        "sampled": node.sampled.map(|of| json!({
            "local_per_s": of.local_per_s, "remote_per_s": of.remote_per_s, "unknown_per_s": of.unknown_per_s, "latency_cycles": of.latency_cycles,
        })),
        "numastat": numastat(node.numastat), "numastat_interval": numastat(node.numastat_delta),
    })
}

fn process(process: &ProcessFigures) -> Value {
    json!({
        "pid": process.pid, "name": *process.name, "threads": process.threads, "cpus": process.cpus, "node": process.node,
        "resident_bytes": process.resident_bytes, "faults_per_s": process.faults_per_s, "accesses_per_s": process.accesses_per_s,
        "local_access_ratio": process.local_share.json(), "ipc": process.ipc.json(), "l3_mpki": process.l3_mpki.json(),
    })
}

/// Memory of all the processes, in bytes by node: what they share counts once.
fn total(memory: &[MemoryMap]) -> Value {
    let by_node = total_by_node(memory);
    by_node.into_iter().map(|(node, bytes)| (node.to_string(), json!(bytes))).collect::<Map<_, _>>().into()
}

/// `numastat -p`, in bytes.
fn memory(map: &MemoryMap) -> Value {
    let by_node = |bytes: &[u64]| -> Map<String, Value> {
        map.nodes.iter().zip(bytes).map(|(node, bytes)| (node.to_string(), json!(bytes))).collect()
    };
    let kinds = NUMASTAT_KINDS.iter().zip(map.by_numastat_kind());
    let kinds: Map<String, Value> = kinds.map(|(kind, row)| (kind.to_lowercase(), by_node(&row).into())).collect();
    json!({
        "pid": map.pid, "name": map.name, "bytes_by_node": by_node(&map.bytes_by_node()), "by_kind": kinds,
        "far_bytes": map.far_bytes(), "notes": map.notes,
    })
}
