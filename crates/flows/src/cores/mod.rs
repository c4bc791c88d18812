//! How the cores of a recorded program work between and during memory accesses: own work, and accesses that they keep outstanding.
//!
//! A simulated clock charges for a core of its own choice. Whoever predicts a run time (`whatif` and findings, and the simulator) asks here by how much the
//! program's own work and its overlap differ on the machine's real cores, so that both predict the run of the same program. Ranges come from published
//! figures and from what processors can do; none is fitted to a program. `docs/patterns.md`, "Interval", has them.

mod native;

use std::collections::BTreeMap;

use numapilot_machine::{Bounded, CoreFigures, CpuId, Machine, NodeId};
use numapilot_trace::meta::Meta;
use numapilot_trace::record::Counters;

use crate::trace::Trace;

pub use native::{OwnWork, own_work};

/// Range of the program's own work, as a multiple of the work that a simulated clock charges. The clock charges 2 cycles an access; loads and stores are
/// about 38 % of instructions, of which a core does 0.8 to 3 a cycle: 0.9 to 3.3 cycles an access.
const OWN_WORK: (f64, f64) = (0.5, 2.0);
/// Scattered accesses that are outstanding at a time while a core waits, where the recording has no dependences between them (before format 1.2). 1 where
/// each address comes from the last; more where they are independent, as far as the window of instructions and the registers for misses reach.
const SCATTERED: (f64, f64) = (1.0, 4.0);
/// Share of the computed overlap that is real. It is at most 1, because an address computed from a just loaded index looks independent, and a mispredicted
/// branch ends the look-ahead of a core. An estimate.
const OVERLAP: (f64, f64) = (0.4, 1.0);
/// Accesses of streams that are outstanding at a time, with what is prefetched: a core's STREAM bandwidth times the latency, over the size of a line: 4.6 on
/// a loaded machine to 17 on an idle one.
const STREAMED: (f64, f64) = (4.0, 17.0);
/// Outstanding accesses of streams for which simulated clocks charge (`STREAM_SHARE` of `crates/runtime/c/filter.c`).
const STREAMED_CHARGED: f64 = 8.0;

/// Dependences between a thread's memory accesses, which decide how many of them a core keeps outstanding (`crates/runtime/c/overlap.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chains {
    /// Share of memory accesses that continue a stream.
    pub streamed: f64,
    /// Share of the others (the scattered ones) that one of them waits for, as its address comes from what they read.
    pub dependent: f64,
    /// Loads and stores from one scattered access to the next.
    pub gap: f64,
}

impl Chains {
    /// From counts of a stretch of a thread: memory accesses, those of them that continue a stream, scattered ones that wait for another, and all loads and
    /// stores, whether caches answered or memory.
    #[must_use]
    pub fn of(accesses: f64, streamed: f64, dependent: f64, issued: f64) -> Chains {
        let scattered = (accesses - streamed).max(0.0);
        let share = |part: f64, all: f64| if all > 0.0 { (part / all).clamp(0.0, 1.0) } else { 0.0 };
        Chains {
            streamed: share(streamed, accesses),
            dependent: share(dependent, scattered),
            // Where there are none, none is within reach.
            gap: if scattered > 0.0 { (issued / scattered).max(1.0) } else { f64::INFINITY },
        }
    }
}

/// How a core of a machine works through a recorded thread's accesses: what simulation and prices need of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Core {
    /// Own work, as a multiple of what the recording's clock charged.
    pub own: f64,
    /// Outstanding scattered accesses, used where chains are not known.
    pub scattered: f64,
    /// Outstanding accesses of streams.
    pub streamed: f64,
    /// Used where chains are known: instructions looked ahead.
    pub window: f64,
    /// Used where chains are known: largest number of outstanding misses.
    pub misses: f64,
    /// Used where chains are known: share of the resulting overlap that is real, 0 to 1.
    pub overlap: f64,
}

impl Core {
    /// The core for which the simulated clock of a recording charged; the default core for recordings that do not name one.
    #[must_use]
    pub fn charged(meta: &Meta) -> Core {
        let number =
            |name: &str| meta.config.get(name).and_then(|value| value.as_f64()).filter(|number| *number >= 1.0);
        let unknown = CoreFigures::default();
        let window = number("core_window_accesses").map(|accesses| accesses / CoreFigures::ACCESSES_PER_INSTRUCTION);
        let misses = number("core_outstanding_misses");
        Core {
            own: 1.0,
            scattered: 1.0,
            streamed: STREAMED_CHARGED,
            window: window.unwrap_or(unknown.window().value),
            misses: misses.unwrap_or(unknown.misses().value),
            overlap: 1.0,
        }
    }

    /// Mean wait of this core for one access, as a share of its latency. `charged_outstanding`: accesses outstanding by the recording's clock, which tells
    /// streams where chains are not known.
    #[must_use]
    pub fn wait_for_one(&self, chains: Option<&Chains>, charged_outstanding: f64) -> f64 {
        let (streamed, scattered) = match chains {
            Some(chains) => (chains.streamed, self.scattered_outstanding(chains)),
            None => {
                let of_streams = 1.0 - 1.0 / STREAMED_CHARGED;
                (((1.0 - 1.0 / charged_outstanding) / of_streams).clamp(0.0, 1.0), self.scattered)
            }
        };
        (1.0 - streamed) / scattered + streamed / self.streamed
    }

    /// Outstanding scattered accesses: those within the core's window that depend on no other of them (`crates/runtime/c/overlap.c`).
    fn scattered_outstanding(&self, chains: &Chains) -> f64 {
        let within_reach = 1.0 + self.window * CoreFigures::ACCESSES_PER_INSTRUCTION / chains.gap;
        let side_by_side = ((1.0 - chains.dependent) * within_reach).min(self.misses);
        (self.overlap * side_by_side).max(1.0)
    }
}

/// Each figure of a machine's cores, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreRanges {
    /// Range of [`Core::own`].
    pub own: Bounded,
    /// Range of [`Core::scattered`].
    pub scattered: Bounded,
    /// Range of [`Core::streamed`].
    pub streamed: Bounded,
    /// Range of [`Core::window`].
    pub window: Bounded,
    /// Range of [`Core::misses`].
    pub misses: Bounded,
    /// Range of [`Core::overlap`].
    pub overlap: Bounded,
}

impl CoreRanges {
    /// Of a machine, where the recording charged for `charged`. `own_work`: what native runs say ([`own_work`]).
    #[must_use]
    pub fn of(machine: &Machine, charged: &Core, own_work: Option<OwnWork>) -> CoreRanges {
        let bounded = |value: f64, (low, high): (f64, f64)| Bounded { value, low, high };
        let own = own_work.map_or_else(
            || bounded(charged.own, OWN_WORK),
            |native| {
                // Clocks charge for no kernel, so that its work comes on top. Geometric means, because the ranges are of factors.
                let (user, kernel) = (both(native.user, OWN_WORK), native.kernel);
                let mean = |(low, high): (f64, f64)| (low * high).sqrt();
                bounded(mean(user) + mean(kernel), (user.0 + kernel.0, user.1 + kernel.1))
            },
        );
        let core = machine.core();
        let of_core = |figure: Option<Bounded>, unknown: Bounded, charged: f64| {
            // For an unknown core, the simulated one is the best guess.
            figure.unwrap_or_else(|| bounded(charged, (unknown.low.min(charged), unknown.high.max(charged))))
        };
        CoreRanges {
            own,
            scattered: bounded(charged.scattered, SCATTERED),
            streamed: streamed(machine, charged),
            window: of_core(core.window_instructions, core.window(), charged.window),
            misses: of_core(core.outstanding_misses, core.misses(), charged.misses),
            overlap: bounded(charged.overlap, OVERLAP),
        }
    }

    /// The core as the machine's description and native runs have it.
    #[must_use]
    pub fn nominal(&self) -> Core {
        Core {
            own: self.own.value,
            scattered: self.scattered.value,
            streamed: self.streamed.value,
            window: self.window.value,
            misses: self.misses.value,
            overlap: self.overlap.value,
        }
    }
}

/// Sum of the idle latencies of the memory accesses that a thread on `node` made between two readings of its counters, ns. What a clock charged for them, over
/// this, is what overlapped. Accesses to pages without a known home are in no count by home, and a simulated clock charges them as local ones
/// (`docs/instrument.md`, "Homes").
#[must_use]
pub fn idle_ns(machine: &Machine, node: Option<NodeId>, before: &Counters, now: &Counters) -> f64 {
    let node = node.unwrap_or_default();
    let (mut known, mut sum_ns) = (0_u64, 0.0);
    for (home, &count) in now.by_home.iter().enumerate() {
        let new = count.saturating_sub(before.by_home.get(home).copied().unwrap_or(0));
        known = known.saturating_add(new);
        sum_ns += new as f64 * machine.idle_latency_or_guess_ns(node, NodeId(home as u16));
    }
    let unknown = now.memory_accesses.saturating_sub(before.memory_accesses).saturating_sub(known);
    sum_ns + unknown as f64 * machine.idle_latency_or_guess_ns(node, node)
}

impl Trace {
    /// The CPU on which each thread made most of its sampled accesses; without any, that of its start. Programs that pin their threads do so after these have
    /// started, so that the CPU of the start says little of them.
    #[must_use]
    pub fn cpus(&self) -> Vec<Option<CpuId>> {
        let mut counts: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); self.threads().len()];
        for access in self.accesses() {
            if let (Some(cpu), Some(counts)) = (access.cpu, counts.get_mut(access.thread.0 as usize)) {
                *counts.entry(cpu.0).or_default() += u64::from(access.weight);
            }
        }
        // Of equals the first, so that the answer does not depend on order.
        let most = |counts: &BTreeMap<u32, u64>| {
            counts.iter().rev().max_by_key(|(_, count)| **count).map(|(cpu, _)| CpuId(*cpu))
        };
        self.threads().iter().zip(&counts).map(|(thread, counts)| most(counts).or(thread.cpu)).collect()
    }
}

/// Outstanding accesses of streams: as the description has them with their range; one figure alone is a measurement of a STREAM thread on an idle machine, and
/// the upper end.
fn streamed(machine: &Machine, charged: &Core) -> Bounded {
    let figure = machine.figures().iter().find(|figure| figure.place == "traffic.stream_outstanding");
    if let (Some(value), Some((low, high))) =
        (machine.traffic().stream_outstanding, figure.and_then(|figure| figure.range))
    {
        return Bounded { value, low, high };
    }
    let (low, high) = machine.traffic().stream_outstanding.map_or(STREAMED, |alone| (STREAMED.0.min(alone), alone));
    Bounded { value: charged.streamed.clamp(low, high), low, high }
}

/// The intersection of two ranges. If it is empty, the measured one, because the other describes programs in general.
fn both(measured: (f64, f64), general: (f64, f64)) -> (f64, f64) {
    let range = (measured.0.max(general.0), measured.1.min(general.1));
    if range.0 < range.1 { range } else { measured }
}

#[cfg(test)]
mod tests {
    //! Cores of several kinds.

    use super::*;

    const CHARGED: Core =
        Core { own: 1.0, scattered: 1.0, streamed: STREAMED_CHARGED, window: 128.0, misses: 10.0, overlap: 1.0 };

    #[test]
    fn accesses_without_a_known_home_are_local_ones() {
        let machine = Machine::load("opteron-8385").expect("builtin");
        let counters = |memory_accesses, by_home: &[u64]| Counters {
            memory_accesses,
            by_home: by_home.to_vec(),
            ..Counters::default()
        };
        let (before, now) = (counters(100, &[60]), counters(200, &[70, 30]));
        let of = |home| machine.idle_latency_ns(NodeId(0), NodeId(home)).expect("told");
        let found = |node| idle_ns(&machine, node, &before, &now);
        assert!((found(Some(NodeId(0))) - 70.0 * of(0) - 30.0 * of(1)).abs() < 1e-6, "60 of 100 are of unknown pages");
        assert_eq!(found(None), found(Some(NodeId(0))));
        assert_eq!(idle_ns(&machine, None, &now, &now), 0.0);
    }

    #[test]
    fn streams_are_as_the_description_has_them() {
        let streamed = |machine: &str| {
            let machine = Machine::load(machine).expect("builtin");
            let Bounded { value, low, high } = CoreRanges::of(&machine, &CHARGED, None).streamed;
            (low, value, high)
        };
        assert_eq!(streamed("opteron-8385"), (5.2, 6.5, 8.0));
        assert_eq!(streamed("x1-32xlarge"), (12.0, 17.0, 22.0));
        assert_eq!(streamed("xeon-2s"), (STREAMED.0, STREAMED_CHARGED, STREAMED.1));
    }

    #[test]
    fn the_kernels_work_comes_on_top_of_what_a_clock_charges() {
        let machine = Machine::load("xeon-2s").expect("builtin");
        let own = |user, kernel| CoreRanges::of(&machine, &CHARGED, Some(OwnWork { user, kernel })).own;
        let without = own((0.8, 1.25), (0.0, 0.0));
        assert_eq!((without.low, without.value, without.high), (0.8, 1.0, 1.25));
        let with = own((0.8, 1.25), (2.0, 2.0));
        assert_eq!(
            (with.low, with.value, with.high),
            (2.8, 3.0, 3.25),
            "more than any program's own work in user mode"
        );
    }

    #[test]
    fn chains_that_wait_for_each_other_overlap_on_no_core() {
        let chains = Chains { streamed: 0.0, dependent: 1.0, gap: 2.0 };
        for window in [72.0, 512.0] {
            assert_eq!(Core { window, ..CHARGED }.scattered_outstanding(&chains), 1.0);
        }
    }

    #[test]
    fn independent_accesses_overlap_as_far_as_window_and_registers_reach() {
        let chains = |gap| Chains { streamed: 0.0, dependent: 0.0, gap };
        let core = CHARGED;
        assert_eq!(core.scattered_outstanding(&chains(1.0)), core.misses);
        let apart = core.window * CoreFigures::ACCESSES_PER_INSTRUCTION;
        assert!((core.scattered_outstanding(&chains(apart)) - 2.0).abs() < 1e-12);
        assert_eq!(core.scattered_outstanding(&chains(f64::INFINITY)), 1.0);
        let half = Core { overlap: 0.5, ..core };
        assert_eq!(half.scattered_outstanding(&chains(1.0)), core.misses / 2.0);
    }
}
