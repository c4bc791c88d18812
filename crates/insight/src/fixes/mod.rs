//! Fixes and their prices: what a fix does to the places of accesses or threads, run through the traffic model, against the program as it was.
//!
//! A price is a *prediction*. Its interval covers the sampling of accesses (jackknife over cache lines) and a chosen margin for the model's own
//! error ([`MODEL_ERROR`]). `docs/patterns.md`, "Prices".

pub(crate) mod costs;
mod kind;
mod wish;

pub use kind::{Fix, FixKind};
pub(crate) use wish::Wish;

use numapilot_traffic::TrafficError;

use crate::estimate::Estimate;
use crate::patterns::Scene;
use crate::price::{Change, Priced, Pricer, To};
use crate::usage::{Cell, FALSE_SHARED, NONE, OWN_PROCESS, Row, SHARED, WRITE};

/// Half width, as a share of a predicted gain, that is allowed for the model's simplicity. Chosen, not measured: `docs/patterns.md`, "Prices", lists
/// the few predictions that were held against the simulator.
pub const MODEL_ERROR: f64 = 0.3;

/// Prices wishes against the program as it was.
pub(crate) struct Shop<'a> {
    scene: &'a Scene<'a>,
    pricer: Pricer<'a>,
    now: Priced,
}

impl<'a> Shop<'a> {
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn new(scene: &'a Scene<'a>) -> Result<Shop<'a>, TrafficError> {
        let pricer = Pricer::new(scene.machine, &scene.usage)?;
        // Once more: rows may have been added since the scene's own.
        let now = pricer.now()?;
        Ok(Shop { scene, pricer, now })
    }

    /// The fix that a wish comes to.
    pub fn price(&self, wish: &Wish) -> Result<Fix, TrafficError> {
        let then = self.then(&[wish])?;
        Ok(wish.fix(self.scene, self.gain(&then)))
    }

    /// The program as it was.
    pub fn now(&self) -> &Priced {
        &self.now
    }

    /// The program with all these wishes granted; of two that concern the same memory, the later one is.
    pub fn then(&self, wishes: &[&Wish]) -> Result<Priced, TrafficError> {
        let even = self.even(|node| self.scene.machine.nodes()[node].has_memory());
        let near = self.even(|node| self.scene.machine.nodes()[node].has_memory() && self.scene.has_cpus(node));
        let weights: Vec<Vec<f64>> = wishes.iter().map(|wish| self.weights(wish)).collect();
        let process_of =
            |thread: u32| self.scene.analysis.trace().threads().get(thread as usize).map(|thread| thread.process.0);
        let pinned =
            |row: &Row| process_of(row.thread).and_then(|process| self.scene.processes.seat.get(&process).copied());
        let has = |kind: &FixKind| wishes.iter().any(|wish| wish.kind == *kind);
        let (pins_threads, pins_processes) = (has(&FixKind::PinThreads), has(&FixKind::PinProcesses));
        let seat = |row: &Row| {
            let of_thread = self.scene.seats.of_moved[row.thread as usize].filter(|_| pins_threads);
            of_thread.or_else(|| pinned(row).filter(|_| pins_processes)).unwrap_or(row.from)
        };
        let to = |cell: &Cell| {
            if cell.home == NONE {
                return To::Node(cell.home);
            }
            let row = &self.scene.usage.rows[cell.row as usize];
            let about =
                wishes.iter().zip(&weights).rev().find(|(wish, _)| wish.is_of_memory() && wish.is_about(cell.group));
            match about {
                Some((wish, weights)) => {
                    let spreads = Spreads { even: &even, near: &near, weights };
                    match wish.kind {
                        FixKind::AllocateOnNode(node) => {
                            To::Node(self.scene.machine.node_index(node).map_or(cell.home, |index| index as u16))
                        }
                        _ => placed(&wish.kind, cell, seat(row), &spreads),
                    }
                }
                None if pins_processes && cell.flags & OWN_PROCESS != 0 => To::Node(pinned(row).unwrap_or(cell.home)),
                None => To::Node(cell.home),
            }
        };
        let extra_ns = wishes.iter().map(|wish| wish.cost_ns(self.scene.machine)).sum();
        self.pricer.price(&Change { to: &to, seat: &seat, extra_ns })
    }

    /// How much faster, as a share of the new run time.
    pub fn gain(&self, then: &Priced) -> Estimate {
        let of = |now: f64, then: f64| if then > 0.0 { now / then - 1.0 } else { 0.0 };
        let gain = of(self.now.run_ns, then.run_ns);
        let mut parts = then.parts_ns;
        parts.iter_mut().zip(&self.now.parts_ns).for_each(|(then, now)| *then = of(*now, *then));
        let sampled = Estimate::jackknife(gain, &parts).margin();
        let half = (sampled.powi(2) + (MODEL_ERROR * gain).powi(2)).sqrt();
        Estimate { value: gain, low: gain - half, high: gain + half }
    }

    fn even(&self, is_in: impl Fn(usize) -> bool) -> Vec<f64> {
        let nodes = 0..self.scene.usage.nodes;
        let count = nodes.clone().filter(|&node| is_in(node)).count().max(1) as f64;
        nodes.map(|node| if is_in(node) { 1.0 / count } else { 0.0 }).collect()
    }

    fn weights(&self, wish: &Wish) -> Vec<f64> {
        let FixKind::WeightedInterleave(weights) = &wish.kind else { return Vec::new() };
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let mut shares = vec![0.0; self.scene.usage.nodes];
        for (node, weight) in weights {
            if let Some(index) = self.scene.machine.node_index(*node) {
                shares[index] = f64::from(*weight) / sum;
            }
        }
        shares
    }
}

/// Shares by node for what is spread.
struct Spreads<'s> {
    even: &'s [f64],
    near: &'s [f64],
    weights: &'s [f64],
}

/// Where a fix that concerns pages puts an access by a thread on node `from`.
fn placed<'s>(kind: &FixKind, cell: &Cell, from: u16, spreads: &Spreads<'s>) -> To<'s> {
    match kind {
        FixKind::Interleave | FixKind::InterleaveAll | FixKind::SpreadHot => To::Spread(spreads.even),
        FixKind::WeightedInterleave(_) => To::Spread(spreads.weights),
        FixKind::NearTier => To::Spread(spreads.near),
        // Before it is shared, and by writes, the original is used.
        FixKind::Replicate if cell.flags & SHARED != 0 && cell.flags & WRITE == 0 => To::Node(from),
        FixKind::LocalArenas => To::Node(cell.allocator),
        FixKind::ParallelFirstTouch | FixKind::FirstTouchByUsers => To::Node(cell.users),
        FixKind::MigrateAtHandOver => To::Node(cell.owner),
        FixKind::SplitOrAlign if cell.flags & FALSE_SHARED != 0 => To::Gone,
        FixKind::Replicate
        | FixKind::SplitOrAlign
        | FixKind::PinThreads
        | FixKind::PinProcesses
        | FixKind::AllocateOnNode(_) => To::Node(cell.home),
    }
}
