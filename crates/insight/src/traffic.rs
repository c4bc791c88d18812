//! What the links carry: the node-to-node matrix laid over a machine's routes.
//!
//! Only the data of accesses is counted: one line from the page's home to the accessing node. Requests, probes, write-backs
//! and prefetches travel too; no source of this version sees them.

use numapilot_machine::{Endpoint, LinkId, Machine};
use serde::Serialize;

use crate::totals::{LINE_BYTES, Matrix};

/// Load of one directed link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkTraffic {
    /// Which link of the machine.
    pub link: LinkId,
    /// The node or router at which the link begins.
    pub from: Endpoint,
    /// The node or router at which the link ends.
    pub to: Endpoint,
    /// Memory accesses whose data crossed it.
    pub accesses: f64,
    /// Bytes of data: 64 per access.
    pub bytes: f64,
    /// Bytes per second of program time, over the link's peak bandwidth; `None` where no time passed.
    pub utilisation: Option<f64>,
}

/// Traffic of every link of `machine`, in the machine's order. Accesses between two nodes with several routes use them evenly.
/// Pairs that the machine has no route for (or does not know) are left out; their accesses are the second value.
#[must_use]
pub fn link_traffic(matrix: &Matrix, machine: &Machine, program_time_ns: u64) -> (Vec<LinkTraffic>, f64) {
    let mut accesses = vec![0.0; machine.links().len()];
    let mut unrouted = 0.0;
    for (from, row) in matrix.nodes.iter().zip(&matrix.accesses) {
        for (home, count) in matrix.nodes.iter().zip(row).filter(|(home, count)| *home != from && count.value > 0.0) {
            let routes = machine.routes(*home, *from);
            if routes.is_empty() {
                unrouted += count.value;
                continue;
            }
            for link in routes.iter().flatten() {
                accesses[usize::from(link.0)] += count.value / routes.len() as f64;
            }
        }
    }
    let seconds = program_time_ns as f64 / 1e9;
    let loads = machine.links().iter().zip(accesses).map(|(link, accesses)| LinkTraffic {
        link: link.id,
        from: link.from,
        to: link.to,
        accesses,
        bytes: accesses * LINE_BYTES,
        utilisation: (seconds > 0.0).then(|| accesses * LINE_BYTES / seconds / link.bandwidth_bytes_per_s),
    });
    (loads.collect(), unrouted)
}
