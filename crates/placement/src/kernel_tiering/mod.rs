//! `kernel-tiering`: a model of Linux memory tiering, `numa_balancing=2` (`NUMA_BALANCING_MEMORY_TIERING`) with `demotion_enabled`: NUMA hinting faults on slow
//! memory promote hot pages to the faulting thread's node, and kswapd demotes cold ones where a fast node is full.
//!
//! Rules and constants are those of `kernel/sched/fair.c`, `mm/migrate.c`, `mm/vmscan.c`, `mm/page_alloc.c` and `mm/memory-tiers.c`; hot page selection came
//! with Linux 6.1 and is the same in 6.12. What differs from the kernel, and why, is in `docs/policies.md`.

mod hot;
mod lru;
mod scan;
#[cfg(test)]
mod tests;
mod watermarks;

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};

use crate::action::Action;
use crate::error::PlacementError;
use crate::kernel_tiers::KernelTiers;
use crate::nodes::NodeFacts;
use crate::observation::{HintFault, Observation};
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};
use crate::scan_limits::ScanLimits;
use hot::{HotLimits, HotPages, Verdict};
use lru::Lru;
use scan::Scanner;
use watermarks::Watermarks;

/// With this part of a node's memory free beyond the watermark, or with as much as `enough-free-mib`, every page is promoted (`pgdat_free_space_enough`).
const ENOUGH_PART: u64 = 16;
/// Pages of 4 KiB in a MiB.
const PAGES_PER_MIB: u64 = (1 << 20) / PageNumber::BYTES;

/// Policy `kernel-tiering`.
pub(crate) struct KernelTiering {
    tiers: KernelTiers,
    step_ns: u64,
    hot_limits: HotLimits,
    demotes: bool,
    enough_free: u64,
    scanner: Scanner,
    /// State of each node, by index.
    nodes: Vec<Node>,
    explanation: String,
}

/// A node with memory of a tier above another.
struct Node {
    watermarks: Watermarks,
    /// All its pages of 4 KiB.
    pages: u64,
    hot: HotPages,
    lru: Lru,
    /// Pages of 4 KiB that are free, as far as is known in this step.
    free: u64,
    is_kswapd_awake: bool,
}

/// What one step came to, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    promoted: u64,
    cold: u64,
    beyond_rate: u64,
    without_room: u64,
    demoted: u64,
    unmapped: u64,
}

impl KernelTiering {
    /// The options of the policy.
    pub const OPTIONS: &[OptionInfo] = &[
        OptionInfo::new(
            "hot-threshold-ms",
            "1000",
            "a page is hot if it is accessed within this time of its unmapping, milliseconds; adapts up to twice that (numa_balancing/hot_threshold_ms)",
        ),
        OptionInfo::new(
            "promote-rate-limit-mb",
            "65536",
            "MiB per second that may be promoted to a node (kernel.numa_balancing_promote_rate_limit_MBps)",
        ),
        OptionInfo::new("demotion", "on", "whether kswapd demotes (/sys/kernel/mm/numa/demotion_enabled)"),
        OptionInfo::new(
            "enough-free-mib",
            "1024",
            "MiB free on a node, or a sixteenth of its memory if that is more, from which on pages are promoted whether hot or not",
        ),
        ScanLimits::DELAY,
        ScanLimits::PERIOD_MIN,
        ScanLimits::PERIOD_MAX,
        ScanLimits::SIZE,
        ScanLimits::NS_PER_PAGE,
        OptionInfo::new(
            "step-ms",
            "100",
            "milliseconds between decisions; the kernel promotes in each fault, and kswapd runs when it is woken",
        ),
    ];

    /// Makes the policy from its options.
    pub fn new(options: &Options, machine: &Machine, facts: &NodeFacts) -> Result<Self, PlacementError> {
        let limits = ScanLimits::new(options)?;
        let pages_of = |node: NodeIndex| facts.memory_bytes[node] / PageNumber::BYTES;
        let all = facts.total_memory_bytes() / PageNumber::BYTES;
        let node = |node: NodeIndex| Node {
            watermarks: Watermarks::new(pages_of(node), all),
            pages: pages_of(node),
            hot: HotPages::default(),
            lru: Lru::default(),
            free: 0,
            is_kswapd_awake: false,
        };
        Ok(Self {
            tiers: KernelTiers::new(machine, facts),
            step_ns: options.whole("step-ms", 1, 60_000)? * 1_000_000,
            hot_limits: HotLimits {
                threshold_ms: options.whole("hot-threshold-ms", 8, 3_600_000)?,
                pages_per_s: options.whole("promote-rate-limit-mb", 1, 1 << 30)? * PAGES_PER_MIB,
                adjust_ms: limits.period_max_ms,
            },
            demotes: options.flag("demotion")?,
            enough_free: options.whole("enough-free-mib", 0, 1 << 30)? * PAGES_PER_MIB,
            scanner: Scanner::new(limits),
            nodes: NodeIndex::all(facts.count()).map(node).collect(),
            explanation: String::new(),
        })
    }

    /// Nodes from which kswapd demotes.
    fn demotes_from(&self, node: NodeIndex) -> bool {
        self.demotes && !self.tiers.below(node).is_empty()
    }

    /// One hinting fault (`do_numa_page`) on slow memory: whether the page is promoted.
    fn fault(&mut self, fault: &HintFault, step: &mut Step, actions: &mut Vec<Action>) {
        let pages = fault.page.size.small_pages();
        // Nodes without memory get no pages (Linux 6.9), and only slow memory was unmapped.
        if !self.tiers.is_slow(fault.home) || !self.tiers.is_top(fault.from) {
            return;
        }
        let limits = self.hot_limits;
        let node = &mut self.nodes[fault.from.0];
        let enough = self.enough_free.max(node.pages / ENOUGH_PART);
        if node.free > node.watermarks.promo + enough {
            node.hot.reset();
        } else {
            let latency_ms = fault.age_ns / 1_000_000;
            match node.hot.fault(fault.time_ns / 1_000_000, latency_ms, pages, &limits) {
                Verdict::Cold => {
                    step.cold += pages;
                    return;
                }
                Verdict::BeyondRate => {
                    step.beyond_rate += pages;
                    return;
                }
                Verdict::Hot => {}
            }
        }
        // `migrate_balanced_pgdat`; kswapd makes room for the next ones (`migrate_misplaced_folio_prepare`).
        if node.free <= node.watermarks.high + pages {
            node.is_kswapd_awake = true;
            step.without_room += pages;
            return;
        }
        node.free -= pages;
        step.promoted += pages;
        actions.push(Action::Migrate { page: fault.page, to: fault.from });
        self.scanner.promoted(fault.thread, fault.time_ns);
    }

    /// kswapd of every node that is short of free memory.
    fn demote(&mut self, step: &mut Step, actions: &mut Vec<Action>) {
        for index in NodeIndex::all(self.nodes.len()).filter(|&node| self.demotes_from(node)).collect::<Vec<_>>() {
            let node = &mut self.nodes[index.0];
            node.is_kswapd_awake |= node.free < node.watermarks.low;
            if !node.is_kswapd_awake {
                continue;
            }
            // Once all is well it looks again a tenth of a second later, and only then goes to sleep (`kswapd_try_to_sleep`).
            let wanted = (node.watermarks.promo + 1).saturating_sub(node.free);
            if wanted == 0 {
                node.is_kswapd_awake = false;
                continue;
            }
            let reclaim = node.lru.reclaim(wanted);
            let clear = |key: &crate::observation::PageKey| Action::ClearAccessed {
                process: key.process,
                first: key.page,
                pages: key.size.small_pages(),
            };
            actions.extend(reclaim.cleared.iter().map(clear));
            for page in reclaim.demoted {
                let pages = page.size.small_pages();
                let below = self.tiers.below(index);
                let Some(&to) = below.iter().find(|to| self.nodes[to.0].free > self.nodes[to.0].watermarks.low + pages)
                else {
                    step.without_room += pages;
                    continue;
                };
                self.nodes[to.0].free -= pages;
                self.nodes[index.0].free += pages;
                step.demoted += pages;
                actions.push(Action::Migrate { page, to });
            }
        }
    }

    /// Takes what is free and where pages are.
    fn update(&mut self, seen: &Observation) {
        for (node, counters) in self.nodes.iter_mut().zip(&seen.nodes) {
            node.free = counters.free_bytes / PageNumber::BYTES;
        }
        self.scanner.update(seen);
        for index in NodeIndex::all(self.nodes.len()).filter(|&node| self.demotes_from(node)).collect::<Vec<_>>() {
            let lru = &mut self.nodes[index.0].lru;
            lru.update(seen.homes.iter().filter(|run| run.node == index).flat_map(|run| run.keys()));
            seen.accessed.iter().for_each(|key| lru.access(*key));
        }
    }

    /// Why nothing is ordered on this machine, and what to do; `None`: there is slow memory.
    fn idle(&self) -> Option<&'static str> {
        if !self.tiers.are_several() {
            return Some(
                "this machine has one tier of memory: nothing is ordered; take kernel-balancing (numa_balancing=1)",
            );
        }
        None
    }

    fn explain_step(&mut self, step: Step, faults: usize) {
        let thresholds: BTreeMap<usize, u64> = (0..self.nodes.len())
            .filter(|&node| self.tiers.is_top(NodeIndex(node)))
            .map(|node| (node, self.nodes[node].hot.threshold_ms(&self.hot_limits)))
            .collect();
        let thresholds: Vec<String> = thresholds.values().map(u64::to_string).collect();
        let (shortest, longest) = self.scanner.periods_ms();
        let Step { promoted, cold, beyond_rate, without_room, demoted, unmapped } = step;
        let none = if self.tiers.have_slow() {
            ""
        } else {
            "; the kernel counts all memory here as fast as that of nodes with CPUs and promotes nothing: take weighted-interleave, or damon"
        };
        self.explanation = format!(
            "{faults} faults: {promoted} pages promoted, {cold} not hot, {beyond_rate} beyond the rate limit, {without_room} without room; {demoted} demoted; \
             {unmapped} unmapped; thresholds {} ms; scan periods {shortest}-{longest} ms{none}",
            thresholds.join("/")
        );
    }
}

impl Policy for KernelTiering {
    fn name(&self) -> &str {
        "kernel-tiering"
    }

    fn requirements(&self) -> PolicyRequirements {
        let homes = self.tiers.are_several();
        PolicyRequirements { next_ns: self.step_ns, samples_per_s_and_cpu: 0.0, mapped: false, homes }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        if let Some(why) = self.idle() {
            why.clone_into(&mut self.explanation);
            return Vec::new();
        }
        if seen.nodes.len() != self.nodes.len() {
            let (is, expected) = (seen.nodes.len(), self.nodes.len());
            self.explanation = format!("{is} nodes in the observation, {expected} expected: no decision in this step");
            return Vec::new();
        }
        self.update(seen);
        let (mut step, mut actions) = (Step::default(), Vec::new());
        for fault in &seen.hint_faults {
            self.fault(fault, &mut step, &mut actions);
        }
        self.demote(&mut step, &mut actions);
        step.unmapped = self.scanner.scan(seen, &self.tiers, &mut actions);
        self.explain_step(step, seen.hint_faults.len());
        actions
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}
