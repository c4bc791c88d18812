//! The NUMA metrics of a memory system, as Carrefour defines them (Dashti et al., ASPLOS 2013, section 2), from a load and its solution.

use serde::Serialize;

use crate::load::Load;
use crate::solution::Solution;
use crate::system::MemorySystem;

/// Standard deviation over mean, by both definitions of the former; 1 is 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Imbalance {
    /// Divides squares by n - 1. What Carrefour's code computes: all on one of four gives 2.00.
    pub sample: f64,
    /// Divides squares by n: all on one of four gives 1.73.
    pub population: f64,
}

impl Imbalance {
    /// Of these loads; `None` of none, or where nothing is loaded. One load alone is balanced.
    pub fn of(loads: &[f64]) -> Option<Self> {
        let count = loads.len() as f64;
        let mean = loads.iter().sum::<f64>() / count;
        if loads.is_empty() || mean.is_nan() || mean <= 0.0 {
            return None;
        }
        let squares: f64 = loads.iter().map(|load| (load - mean).powi(2)).sum();
        let over = |divisor: f64| if squares > 0.0 { (squares / divisor).sqrt() / mean } else { 0.0 };
        Some(Self { sample: over(count - 1.0), population: over(count) })
    }
}

/// The metrics. `None` where the load or the caller does not tell what one needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Share of memory accesses answered by the accessing thread's own node; `None` without accesses.
    pub local_access_ratio: Option<f64>,
    /// Mean latency of a memory access in nanoseconds; `None` without accesses.
    pub memory_latency_ns: Option<f64>,
    /// The same in core cycles; needs the machine's clock.
    pub memory_latency_cycles: Option<f64>,
    /// Imbalance of accesses per second over the controllers (write-backs not counted twice).
    pub controller_imbalance: Option<Imbalance>,
    /// Mean utilisation of the links; `None` without links.
    pub interconnect_usage: Option<f64>,
    /// Imbalance of the links' utilisation.
    pub interconnect_imbalance: Option<Imbalance>,
    /// Memory accesses per 1,000 instructions: last-level misses, all of which the model's accesses are.
    pub l3_mpki: Option<f64>,
    /// Instructions per cycle of a running thread.
    pub ipc: Option<f64>,
}

/// Metrics of `load`, to which `solution` is the answer. `instructions_per_s` is that of all threads together, where known.
pub fn metrics(system: &MemorySystem, load: &Load, solution: &Solution, instructions_per_s: Option<f64>) -> Metrics {
    let mut served = vec![0.0; system.nodes()];
    let (mut all, mut local, mut waited) = (0.0, 0.0, 0.0);
    for (class, (&per_s, &latency_ns)) in
        load.classes.iter().zip(solution.throughput_per_s.iter().zip(&solution.latency_ns))
    {
        for (to, share) in class.reads.iter().zip(&class.writes).map(|(r, w)| r + w).enumerate() {
            served[to] += per_s * share;
            local += if to == class.from { per_s * share } else { 0.0 };
        }
        all += per_s;
        waited += per_s * latency_ns;
    }
    let of_all = |sum: f64| (all > 0.0).then(|| sum / all);
    let loads: Vec<f64> = system.controllers().map(|node| served[node]).collect();
    let links: Vec<f64> = solution.stations.iter().filter(|s| s.link.is_some()).map(|s| s.utilisation).collect();
    let threads: f64 = load.classes.iter().map(|class| class.threads).sum();
    let cycles_per_s = system.clock_mhz().map(|mhz| mhz * 1e6 * threads).filter(|cycles| *cycles > 0.0);
    Metrics {
        local_access_ratio: of_all(local),
        memory_latency_ns: of_all(waited),
        memory_latency_cycles: of_all(waited).zip(system.clock_mhz()).map(|(ns, mhz)| ns * mhz / 1000.0),
        controller_imbalance: Imbalance::of(&loads),
        interconnect_usage: (!links.is_empty()).then(|| links.iter().sum::<f64>() / links.len() as f64),
        interconnect_imbalance: Imbalance::of(&links),
        l3_mpki: instructions_per_s.filter(|i| *i > 0.0).map(|instructions| all / instructions * 1000.0),
        ipc: instructions_per_s.zip(cycles_per_s).map(|(instructions, cycles)| instructions / cycles),
    }
}
