//! What all CPUs of a node together read at most, where that is less than their memory serves: pure, from the measured bandwidths.
//!
//! The bus of a memory carries one direction at a time, so reads alone get all that it has, and reads with writes rather less. Where the CPUs of a node read
//! clearly less than the same CPUs read *and* write together, it is not their memory that holds the reads up. Nor is it the cores, where all of them together
//! read clearly less than as many times what one reads alone, or where the latency rises under their load. Then a direction between them and the memory is
//! full: AMD's core complexes, stops of Intel's meshes and ports of Arm's CHI each have a width of their own for what comes in.
//!
//! Rates are medians of the repetitions, not the best: other guests of a host use the same way to memory, and the best repetition is of a moment in which they
//! did not. The model is of the state in which programs meet; where a machine is left alone, both are within the clock's noise.
//!
//! Of writes nothing is said: where writes alone stay behind, the memory's own turns between reading and writing may be the reason.

use numapilot_machine::{Machine, NodeId};
use numapilot_traffic::LINE_BYTES;

use crate::calibration::Limit;
use crate::kernels::Kernel;
use crate::results::{BandwidthCell, Results, Walk};

/// What is clearly more: best figures are confirmed within 2 %, and all cores together run at a lower clock than one, which costs their reads less than this.
const CLEAR: f64 = 1.1;
/// An idle latency is divided among so many services at most, in equal parts: memory, link, port. Only emulated machines come near that.
pub const PARTS: f64 = 3.0;

/// The limit of what the CPUs of `node` read together, if one shows in `results`: the highest rate of reads that was seen, from whichever memory.
/// `is_filled`: whether latency rose under the load of these CPUs on their own memory.
pub fn read_port(machine: &Machine, results: &Results, node: NodeId, is_filled: bool) -> Option<Limit> {
    let read = results.bandwidth_of(node, node, Kernel::Read)?;
    let is_own = |cell: &&BandwidthCell| cell.from == node && cell.target.node() == Some(node);
    let together = (results.bandwidth.iter().filter(is_own))
        .filter(|cell| cell.cpus == read.cpus && cell.kernel.usage().writes > 0 && !cell.kernel.usage().allocates)
        .max_by(|a, b| a.bytes_per_s.spread.median.total_cmp(&b.bytes_per_s.spread.median))?;
    let most = most_read(results, node)?;
    let both = together.bytes_per_s;
    if both.spread.median < CLEAR * most || both.spread.low <= read.bytes_per_s.spread.high {
        return None;
    }
    let one = results.bandwidth.iter().filter(is_own).find(|cell| cell.cpus == 1 && cell.kernel == Kernel::Read);
    // Hardware threads of one core share its outstanding misses.
    let cores = machine.node(node).map_or(0, |node| machine.online_cores_of(&node.cpus));
    let cores = read.cpus.min(cores) as f64;
    let is_shared = one.is_some_and(|one| cores * one.bytes_per_s.spread.median > CLEAR * most);
    if !(is_shared || is_filled) || most < PARTS * LINE_BYTES * 1e9 / least_latency_ns(results, node)? {
        return None;
    }
    let source = format!(
        "measured: reads of all CPUs of the node reach {:.1} GB/s while reads and writes together reach {:.1}",
        most / 1e9,
        both.spread.median / 1e9
    );
    Some(Limit { bytes_per_s: most, estimate: false, range: None, source })
}

/// The highest rate of reads of these CPUs, among kernels of which it is known what they read: of lines that a cache may or may not read before they are
/// written it is not.
fn most_read(results: &Results, node: NodeId) -> Option<f64> {
    let cells = results.bandwidth.iter().filter(|cell| cell.from == node);
    let cells = cells.filter_map(|cell| Some(cell.bytes_per_s.spread.median * read_share(cell.kernel)?));
    let curves = results.loaded.iter().filter(|curve| curve.from == node);
    let points = curves.filter_map(|curve| {
        let most = curve.points.iter().map(|point| point.bytes_per_s).max_by(f64::total_cmp)?;
        Some(most * read_share(curve.kernel)?)
    });
    cells.chain(points).max_by(f64::total_cmp)
}

/// Share of a kernel's bytes that it reads; `None` where that is not known.
pub fn read_share(kernel: Kernel) -> Option<f64> {
    let usage = kernel.usage();
    (!usage.allocates).then(|| usage.reads as f64 / (usage.reads + usage.writes) as f64)
}

/// The shortest idle latency of the node's CPUs.
fn least_latency_ns(results: &Results, node: NodeId) -> Option<f64> {
    let is_random = |walk: Walk| !matches!(walk, Walk::Strided(_));
    let of_node = results.latency.iter().filter(|cell| cell.from == node && is_random(cell.walk));
    of_node.map(|cell| cell.ns.best()).min_by(f64::total_cmp)
}
