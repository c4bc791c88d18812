//! `numapilot topo` on real kernels with several memory nodes: it shows the machine that the guest was given.

use std::process::Command;
use std::thread;

use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::Topology;
use serde_json::Value;

/// Nodes, CPUs and distances of a machine, from the guest against what was asked for.
fn check(kernel: Kernel, topology: Topology) -> (Value, String) {
    let outcome = Lab::new(topology.clone())
        .kernel(kernel)
        .run(Command::new(env!("CARGO_BIN_EXE_numapilot")).args(["topo", "--json"]))
        .expect("a guest")
        .expect_success();
    let how = outcome.how;
    let machine: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e} in {} ({how})", outcome.stdout));
    let nodes = machine["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), topology.nodes(), "{how}");
    for (id, node) in nodes.iter().enumerate() {
        let cpus: Vec<u64> = topology.cpus_of(id).map(|(a, b)| (a.into()..=b.into()).collect()).unwrap_or_default();
        let kind = if cpus.is_empty() { "memory_only" } else { "cpus_and_memory" };
        assert_eq!((&node["id"], &node["kind"], &node["cpus"]), (&id.into(), &kind.into(), &cpus.into()), "{how}");
        let mib = node["memory_bytes"].as_u64().expect("bytes") >> 20;
        assert!((380..=512).contains(&mib), "node {id} has {mib} MiB of the 512 that it was given ({how})");
    }
    assert_eq!(machine["distances"], serde_json::json!(topology.distances()), "{how}");
    (machine, how)
}

#[test]
fn every_machine_is_seen_as_it_is() {
    if !numapilot_lab::wanted("numapilot topo on machines with several nodes") {
        return;
    }
    let lopsided = Topology::with_distances(vec![vec![10, 21], vec![31, 10]]);
    let guests = [
        thread::spawn(|| vec![check(Kernel::V6_12, lopsided).1, check(Kernel::V6_12, Topology::symmetric(4)).1]),
        thread::spawn(|| {
            vec![check(Kernel::V6_1, Topology::symmetric(4)).1, check(Kernel::V6_1, Topology::opteron(8)).1]
        }),
    ];
    for guest in guests {
        match guest.join() {
            Ok(ways) => ways.iter().for_each(|how| eprintln!("{how}")),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[test]
fn firmwares_latencies_and_memory_without_cpus_are_seen() {
    if !numapilot_lab::wanted("numapilot topo on a machine with HMAT and a node of memory only") {
        return;
    }
    let (machine, how) = check(Kernel::V6_12, Topology::opteron(8).memory_only_node().hmat(true));
    eprintln!("{how}");
    // The kernel shows the best initiator of each node only: its own CPUs, and node 0's for the memory without any.
    assert_eq!(machine["idle_latency_ns"][3][3], 100.0, "{how}");
    assert_eq!(machine["idle_latency_ns"][0][8], 240.0, "{how}");
    assert_eq!(machine["idle_latency_ns"][0][1], Value::Null, "{how}");
    let bandwidth = |node: usize| machine["nodes"][node]["memory_bandwidth_bytes_per_s"].as_f64().unwrap_or(0.0);
    assert_eq!(bandwidth(0), 20_480.0 * 1_048_576.0, "{how}");
    // 20480 * 10 / 24, in whole MiB/s.
    assert_eq!(bandwidth(8), 8_533.0 * 1_048_576.0, "{how}");
}
