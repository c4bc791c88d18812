//! Estimates the load on the memory system: from processor samples where there are any, otherwise from the threads' running time, the pages that they use, and
//! documented assumptions. Pure.
//!
//! Page faults show *which* memory a node's threads use, but not how often. So each running thread is assumed to be memory-bound: [`OUTSTANDING`] lines in
//! flight and [`THINK_NS`] of computation per line. The resulting rates, utilisation and gains are upper bounds, and are labelled as estimates wherever they
//! are shown. Shares (local access ratio, imbalance) depend on the evidence alone.

use numapilot_machine::Machine;
use numapilot_machine::Problem;
use numapilot_placement::NodeCounters;
use numapilot_traffic::Class;
use numapilot_traffic::Load;

/// Outstanding cache-line misses of a memory-bound thread: assumed.
pub const OUTSTANDING: f64 = 4.0;
/// Nanoseconds of computation per line: assumed.
pub const THINK_NS: f64 = 10.0;
/// Memory bandwidth of a node in bytes per second where it is not known: two channels of DDR4-3200 at 80 %, assumed ([`assumed_bandwidth`]).
const BANDWIDTH_BYTES_PER_S: f64 = 40e9;
/// Bandwidth of a link between two nodes in bytes per second: assumed.
const LINK_BYTES_PER_S: f64 = 20e9;
/// Amount of evidence below which a node's accesses are assumed to be distributed as the whole machine's.
const LEAST: f64 = 0.5;

/// Completes a live machine with what the traffic model needs. Returns it with the assumptions, one sentence each.
///
/// # Errors
/// The completed machine is inconsistent, which is a defect of this program.
pub fn completed(machine: &Machine) -> Result<(Machine, Vec<String>), Problem> {
    let nodes = machine.nodes();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)));
    let mut reachable = pairs.filter(|(from, to)| from.has_cpus() && to.has_memory());
    let mut notes = Vec::new();
    if reachable.any(|(from, to)| machine.idle_latency_ns(from.id, to.id).is_none()) {
        notes.push(
            "this machine's latencies are not all known: the local one (100 ns where unknown) times distance / 10 is assumed"
                .to_owned(),
        );
    }
    let bandwidth = assumed_bandwidth(machine);
    if nodes.iter().any(|node| node.has_memory() && node.memory_bandwidth_bytes_per_s.is_none()) {
        notes.push(format!(
            "this machine's memory bandwidths are not all known: {} GB/s is assumed for each node where it is unknown",
            (bandwidth / 1e8).round() / 10.0
        ));
    }
    if machine.links().is_empty() && nodes.len() > 1 {
        notes.push(format!(
            "this machine's links are not known: one link of {} GB/s from each node to each other is assumed",
            LINK_BYTES_PER_S / 1e9
        ));
    }
    let latency_ns = |from, to| machine.idle_latency_or_guess_ns(from, to);
    Ok((machine.filled_in(latency_ns, bandwidth, LINK_BYTES_PER_S)?, notes))
}

/// Bandwidth in bytes per second of memory whose bandwidth is not known. It makes no node's memory wide that was not known to be ([`Machine::wide_memory`]):
/// nodes with CPUs get at least what is known of the others, and nodes without get at most what is known of those with CPUs.
fn assumed_bandwidth(machine: &Machine) -> f64 {
    let known = |has_cpus: bool| {
        let nodes = machine.nodes().iter().filter(move |node| machine.has_online_cpus(node) == has_cpus);
        nodes.filter_map(|node| node.memory_bandwidth_bytes_per_s).reduce(f64::max)
    };
    match known(true) {
        Some(near) => BANDWIDTH_BYTES_PER_S.min(near),
        None => known(false).map_or(BANDWIDTH_BYTES_PER_S, |apart| BANDWIDTH_BYTES_PER_S.max(apart)),
    }
}

/// Running time of one node's threads since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    /// Sum of the threads' running times in nanoseconds.
    pub ran_ns: f64,
}

/// The estimated load, and the counters that would show it.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Input of the traffic model.
    pub load: Load,
    /// The load as the counters of nodes would show it; `free_bytes` is 0.
    pub nodes: Vec<NodeCounters>,
    /// Total number of memory accesses.
    pub accesses: f64,
}

/// Estimates the load from the flow of evidence (accessing node as row, home node as column) and the running times. `latency_ns[from][home]` is the present
/// latency of an access. `measured` holds the memory accesses by node that processor samples stand for, which replace the assumed rates; empty or all 0: no
/// samples.
#[must_use]
pub fn estimate(
    flow: &[f64],
    running: &[Running],
    latency_ns: &[Vec<f64>],
    elapsed_ns: f64,
    measured: &[f64],
) -> Estimate {
    let is_measured = measured.iter().any(|accesses| *accesses > 0.0);
    let nodes = running.len();
    let all: Vec<f64> = (0..nodes).map(|home| (0..nodes).map(|from| flow[from * nodes + home]).sum()).collect();
    let everything: f64 = all.iter().sum();
    let mut out = Estimate { nodes: vec![NodeCounters::default(); nodes], ..Estimate::default() };
    for (from, node) in out.nodes.iter_mut().enumerate() {
        node.reads_to = vec![0.0; nodes];
        node.writes_to = vec![0.0; nodes];
        let row = &flow[from * nodes..(from + 1) * nodes];
        let own: f64 = row.iter().sum();
        let (row, sum) = if own >= LEAST { (row, own) } else { (&all[..], everything) };
        let threads = running[from].ran_ns / elapsed_ns.max(1.0);
        if sum <= 0.0 || threads <= 1e-3 {
            continue;
        }
        let shares: Vec<f64> = row.iter().map(|share| share / sum).collect();
        let latency: f64 = shares.iter().enumerate().map(|(home, share)| share * latency_ns[from][home]).sum();
        let (outstanding, think_ns) = match measured.get(from).filter(|_| is_measured) {
            None => (OUTSTANDING, THINK_NS),
            // Its threads run and access no memory.
            Some(accesses) if *accesses <= 0.0 => continue,
            Some(accesses) => pace(threads * elapsed_ns / accesses, latency),
        };
        let accesses = threads * elapsed_ns / (think_ns + latency / outstanding);
        node.reads_to.iter_mut().zip(&shares).for_each(|(reads, share)| *reads = accesses * share);
        out.accesses += accesses;
        out.load.classes.push(Class { from, threads, outstanding, think_ns, reads: shares, writes: vec![0.0; nodes] });
    }
    out
}

/// Returns outstanding lines, and nanoseconds of computation per line, of a thread that takes `each_ns` per access of this latency: [`OUTSTANDING`] lines as
/// long as that leaves time to compute.
fn pace(each_ns: f64, latency_ns: f64) -> (f64, f64) {
    let waits_ns = latency_ns / OUTSTANDING;
    if each_ns >= waits_ns { (OUTSTANDING, each_ns - waits_ns) } else { (latency_ns / each_ns, 0.0) }
}

/// Mean latency of the observed accesses in nanoseconds, with the probed latency of each pair of nodes; `None` without evidence or probes.
#[must_use]
pub fn mean_latency_ns(flow: &[f64], probes: &[Vec<Option<f64>>]) -> Option<f64> {
    let nodes = probes.len();
    let (mut sum, mut weight) = (0.0, 0.0);
    for (from, row) in probes.iter().enumerate() {
        for (home, probe) in row.iter().enumerate() {
            let share = flow[from * nodes + home];
            if share > 0.0 {
                sum += share * (*probe)?;
                weight += share;
            }
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Local access ratio of the flow, and its imbalance: sample standard deviation over mean by home node, in percent; `None` without evidence.
#[must_use]
pub fn shares(flow: &[f64], nodes: usize) -> Option<(f64, f64)> {
    let total: f64 = flow.iter().sum();
    if total <= 0.0 {
        return None;
    }
    let local: f64 = (0..nodes).map(|node| flow[node * nodes + node]).sum();
    let served: Vec<f64> = (0..nodes).map(|home| (0..nodes).map(|from| flow[from * nodes + home]).sum()).collect();
    let imbalance = numapilot_traffic::Imbalance::of(&served).map_or(0.0, |imbalance| imbalance.sample);
    Some((local / total, 100.0 * imbalance))
}

#[cfg(test)]
mod tests {
    //! Two nodes.

    use super::*;

    #[test]
    fn shares_follow_the_evidence_and_rates_the_time_that_threads_ran() {
        let latency = vec![vec![90.0, 190.0], vec![190.0, 90.0]];
        let flow = [3.0, 1.0, 0.0, 0.0];
        let running = [Running { ran_ns: 1e9 }, Running { ran_ns: 0.5e9 }];
        let found = estimate(&flow, &running, &latency, 1e9, &[]);
        assert_eq!(found.load.classes.len(), 2);
        assert_eq!(found.load.classes[0].reads, [0.75, 0.25]);
        // Nobody was seen from node 1: it is taken to be like all.
        assert_eq!(found.load.classes[1].reads, [0.75, 0.25]);
        let per_access = THINK_NS + (0.75 * 90.0 + 0.25 * 190.0) / OUTSTANDING;
        let sum: f64 = found.nodes[0].reads_to.iter().sum();
        assert!((sum - 1e9 / per_access).abs() < 1.0, "{sum}");
        assert!(estimate(&flow, &[Running::default(); 2], &latency, 1e9, &[]).load.classes.is_empty());
        assert!(estimate(&[0.0; 4], &running, &latency, 1e9, &[0.0; 2]).load.classes.is_empty());
    }

    #[test]
    fn measured_rates_are_what_is_told() {
        let latency = vec![vec![90.0, 190.0], vec![190.0, 90.0]];
        let flow = [3.0, 1.0, 1.0, 3.0];
        let running = [Running { ran_ns: 1e9 }, Running { ran_ns: 2e9 }];
        // A thread that computes a lot, and two that wait for more lines at once than is assumed.
        let found = estimate(&flow, &running, &latency, 1e9, &[1e6, 4e8]);
        for (node, accesses) in found.nodes.iter().zip([1e6, 4e8]) {
            let told: f64 = node.reads_to.iter().sum();
            assert!((told / accesses - 1.0).abs() < 1e-9, "{told}");
        }
        let [calm, greedy] = &found.load.classes[..] else { panic!("{:?}", found.load) };
        assert!(calm.think_ns > 900.0 && (calm.outstanding - OUTSTANDING).abs() < 1e-9);
        assert!(greedy.think_ns == 0.0 && greedy.outstanding > 20.0);
        let idle = estimate(&flow, &running, &latency, 1e9, &[0.0, 1e6]);
        assert_eq!((idle.load.classes.len(), idle.load.classes[0].from), (1, 1), "node 0 runs and asks for nothing");
    }

    #[test]
    fn latency_is_weighted_by_the_evidence() {
        let probes = vec![vec![Some(100.0), Some(200.0)], vec![None, Some(100.0)]];
        assert_eq!(mean_latency_ns(&[1.0, 1.0, 0.0, 2.0], &probes), Some(125.0));
        assert_eq!(mean_latency_ns(&[1.0, 1.0, 1.0, 2.0], &probes), None);
        assert_eq!(mean_latency_ns(&[0.0; 4], &probes), None);
        let (local, imbalance) = shares(&[1.0, 0.0, 1.0, 0.0], 2).unwrap();
        assert_eq!((local, imbalance.round()), (0.5, 141.0));
    }

    /// Two nodes, of which the second has a CPU or not, and the bandwidths that the firmware states, in MiB/s.
    fn live(has_cpu: bool, bandwidths: [Option<u32>; 2]) -> Machine {
        let root = tempfile::tempdir().unwrap();
        for (node, bandwidth) in bandwidths.iter().enumerate() {
            let folder = root.path().join(format!("sys/devices/system/node/node{node}"));
            let initiators = folder.join("access1/initiators");
            std::fs::create_dir_all(&initiators).unwrap();
            if let Some(bandwidth) = bandwidth {
                std::fs::write(initiators.join("read_bandwidth"), format!("{bandwidth}\n")).unwrap();
            }
            let cpus = if node == 0 || has_cpu { format!("{node}\n") } else { "\n".to_owned() };
            std::fs::write(folder.join("cpulist"), cpus).unwrap();
            std::fs::write(folder.join("distance"), if node == 0 { "10 20\n" } else { "20 10\n" }).unwrap();
            std::fs::write(
                folder.join("meminfo"),
                format!("Node {node} MemTotal: 1000000 kB\nNode {node} MemFree: 900000 kB\n"),
            )
            .unwrap();
        }
        let folder = root.path().join("sys/devices/system/node");
        std::fs::write(folder.join("online"), "0-1\n").unwrap();
        let cpus = root.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).unwrap();
        let list = if has_cpu { "0-1\n" } else { "0\n" };
        std::fs::write(cpus.join("online"), list).unwrap();
        std::fs::write(cpus.join("present"), list).unwrap();
        Machine::from_sysfs(root.path()).unwrap()
    }

    #[test]
    fn a_live_machine_without_figures_can_be_modelled() {
        let (whole, notes) = completed(&live(true, [None; 2])).unwrap();
        numapilot_traffic::MemorySystem::new(&whole).unwrap();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[1].contains(": 40 GB/s is assumed"), "{notes:?}");
    }

    /// CXL memory of known bandwidth was taken for HBM, because it has more than was assumed of memory whose bandwidth is not known; and so was CXL memory of
    /// unknown bandwidth beside slow memory.
    #[test]
    fn an_assumed_bandwidth_makes_no_memory_wide() {
        let is_wide = |bandwidths: [Option<u32>; 2]| {
            let bare = live(false, bandwidths);
            let (whole, _) = completed(&bare).unwrap();
            [bare, whole].map(|machine| machine.wide_memory().is_some())
        };
        assert_eq!(is_wide([None, Some(65_536)]), [false; 2]);
        assert_eq!(is_wide([Some(16_384), None]), [false; 2]);
        assert_eq!(is_wide([None, None]), [false; 2]);
        assert_eq!(is_wide([Some(65_536), Some(262_144)]), [true; 2], "HBM stays what it is");
    }
}
