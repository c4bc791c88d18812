//! What a policy's work costs. Every constant has its source, and can be set.

use serde::{Deserialize, Serialize};

/// Costs of moving pages, of sampling, of hints.
///
/// Sources: (1) `move_pages` with 512 pages per call, 2017 hardware, Linux before 6.3: 3.9 us per page of 4 KiB, 658 us per page of 2 MiB.
/// (2) Reports on Linux NUMA balancing: its scans of 256 MB stall a task for 5 ms on average. (3) MemProf (USENIX ATC 2012): 2,000 cycles for a kept sample.
/// (4) Estimates of ours, to be calibrated: what published kernel measurements of such events lie around.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Nanoseconds of the mover to move a page of 4 KiB (1).
    pub move_small_ns: f64,
    /// Nanoseconds of the mover to move a page of 2 MiB (1).
    pub move_large_ns: f64,
    /// Movers that work at the same time: one daemon.
    pub movers: u32,
    /// Nanoseconds that each CPU running the process loses to one TLB shootdown (4).
    pub shootdown_ns: f64,
    /// Pages moved per TLB shootdown: 1 before Linux 6.3, up to 512 since.
    pub pages_per_shootdown: u32,
    /// Nanoseconds of the mover to split a large page (4).
    pub split_ns: f64,
    /// Nanoseconds that the writer loses when its write collapses a replicated page: a fault and a shootdown (4).
    pub collapse_ns: f64,
    /// Nanoseconds that a thread loses when it is moved (4). The loss of its caches is not modelled.
    pub move_thread_ns: f64,
    /// Nanoseconds that a thread of the process loses per small page unmapped for a hint: 5 ms per 256 MB (2).
    pub unmap_ns: f64,
    /// Nanoseconds of the mover to clear a page's accessed bit and to read it later: two walks of its mappings (4). With DAMON's 1,000 regions every 5 ms, that
    /// is 2 % of a CPU. No TLB is flushed for it (`ptep_test_and_clear_young`).
    pub clear_accessed_ns: f64,
    /// Nanoseconds that a NUMA hinting fault costs its thread (4).
    pub hint_fault_ns: f64,
    /// Cycles that a sample costs the CPU on which it is taken (3).
    pub sample_cycles: f64,
    /// Samples per second and CPU beyond which the sampler loses them: the default of `perf_event_max_sample_rate`.
    pub samples_max_per_s_and_cpu: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            move_small_ns: 3_900.0,
            move_large_ns: 658_000.0,
            movers: 1,
            shootdown_ns: 1_000.0,
            pages_per_shootdown: 1,
            split_ns: 20_000.0,
            collapse_ns: 5_000.0,
            move_thread_ns: 5_000.0,
            unmap_ns: 5e6 / 65_536.0,
            clear_accessed_ns: 100.0,
            hint_fault_ns: 1_500.0,
            sample_cycles: 2_000.0,
            samples_max_per_s_and_cpu: 100_000.0,
        }
    }
}

impl Costs {
    /// Every cost by name, for checks.
    pub(crate) fn named(&self) -> [(&'static str, f64); 13] {
        [
            ("move_small_ns", self.move_small_ns),
            ("move_large_ns", self.move_large_ns),
            ("movers", f64::from(self.movers)),
            ("shootdown_ns", self.shootdown_ns),
            ("pages_per_shootdown", f64::from(self.pages_per_shootdown)),
            ("split_ns", self.split_ns),
            ("collapse_ns", self.collapse_ns),
            ("move_thread_ns", self.move_thread_ns),
            ("unmap_ns", self.unmap_ns),
            ("clear_accessed_ns", self.clear_accessed_ns),
            ("hint_fault_ns", self.hint_fault_ns),
            ("sample_cycles", self.sample_cycles),
            ("samples_max_per_s_and_cpu", self.samples_max_per_s_and_cpu),
        ]
    }
}
