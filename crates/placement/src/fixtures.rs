//! Hand-made observations for tests, on Carrefour's machine: four nodes of four CPUs.

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex, NodeSet};

use crate::observation::{HintFault, NodeCounters, Observation, PageKey, PageSize, Sample, ThreadState};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

pub(crate) fn machine() -> Machine {
    Machine::load("opteron-8385").expect("built-in model")
}

/// A small page of process 1.
pub(crate) fn page(number: u64) -> PageKey {
    PageKey { process: 1, page: PageNumber(number), size: PageSize::Small }
}

/// A large page of process 1; `number` in units of 2 MiB.
pub(crate) fn large_page(number: u64) -> PageKey {
    PageKey { process: 1, page: PageNumber::first_of_large(number), size: PageSize::Large }
}

pub(crate) fn sample(page: PageKey, from: usize, home: usize, is_write: bool) -> Sample {
    let thread = from as u32;
    let (from, home) = (NodeIndex(from), NodeIndex(home));
    Sample { page, small_page: page.page, thread, from, home, is_write, latency_ns: None }
}

/// Thread k on node k, all busy for the whole second; no traffic; memory nearly all free.
pub(crate) fn quiet() -> Observation {
    let thread = |thread: u32| ThreadState {
        thread,
        process: 1,
        node: NodeIndex(thread as usize),
        allowed: NodeSet::all(4),
        busy_ns: SECOND_NS as f64,
        instructions: 2.3e9,
        memory_accesses: 2.3e7,
    };
    let node = NodeCounters {
        reads_to: vec![0.0; 4],
        writes_to: vec![0.0; 4],
        free_bytes: 15 * GIB,
        controller_utilisation: None,
    };
    Observation {
        now_ns: SECOND_NS,
        elapsed_ns: SECOND_NS,
        nodes: vec![node; 4],
        threads: (0..4).map(thread).collect(),
        sample_period: 1000.0,
        ..Observation::default()
    }
}

/// The same with this many accesses per microsecond, of which each node's memory serves a share, each node asking for a quarter of them.
pub(crate) fn busy(accesses_per_us: f64, shares: [f64; 4], write_share: f64) -> Observation {
    let mut seen = quiet();
    for node in &mut seen.nodes {
        for (to, share) in shares.iter().enumerate() {
            let accesses = accesses_per_us * 1e6 * share / 4.0;
            node.reads_to[to] = accesses * (1.0 - write_share);
            node.writes_to[to] = accesses * write_share;
        }
    }
    seen
}

pub(crate) fn hint_fault(page: PageKey, thread: u32, from: usize, home: usize, time_ns: u64) -> HintFault {
    let (from, home) = (NodeIndex(from), NodeIndex(home));
    HintFault { time_ns, page, thread, from, home, is_write: false, age_ns: 1_000_000 }
}
