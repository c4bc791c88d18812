//! Fixes and their prices: a fix changes the homes of accesses or the nodes of threads, and the traffic model compares the run time with that of the recording.
//!
//! A price is a *prediction*. Its interval covers the sampling of accesses (jackknife over cache lines) and what is not known of the machine and of the
//! program's cores, with the traffic model's own error (an ensemble). `docs/patterns.md`, "Prices".

mod bandwidth;
mod candidate;
pub(crate) mod costs;
mod drawn;
mod kind;

pub(crate) use candidate::{FixCandidate, copies, too_large_together};
pub(crate) use kind::Effect;
pub use kind::{Fix, FixKind, is_placeable};

use std::cell::RefCell;

use numapilot_machine::NodeIndex;
use numapilot_traffic::TrafficError;

use self::drawn::Drawn;
use crate::calibration;
use crate::estimate::Estimate;
use crate::price::{Change, Priced, Pricer, To};
use crate::scene::Scene;
use crate::shared_cores;
use crate::uncertainty::{Calibration, Uncertainty, interval};
use crate::usage::{Cell, FALSE_SHARED, HOT, OWN_PROCESS, PARTS, Row, SHARED, WRITE};

/// Predicts the gains of fixes over the program as it was recorded.
pub(crate) struct FixPricer<'a> {
    scene: &'a Scene<'a>,
    pricer: Pricer<'a>,
    now: Priced,
    /// What measured latencies leave of the ensemble, where that was asked for.
    calibration: Option<Calibration>,
    /// Fixes priced so far, because several findings propose the same one.
    priced: RefCell<Vec<(FixCandidate, Fix)>>,
}

/// A predicted time, the same with each part of the samples left out, and for each member of the ensemble, ns.
type Times<'p> = (f64, &'p [f64; PARTS], &'p [f64]);

fn run_of(priced: &Priced) -> Times<'_> {
    (priced.run_ns, &priced.parts_ns, &priced.members_ns)
}

fn work_of(priced: &Priced) -> Times<'_> {
    (priced.worked_ns, &priced.parts_worked_ns, &priced.members_worked_ns)
}

impl<'a> FixPricer<'a> {
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn new(scene: &'a Scene<'a>) -> Result<FixPricer<'a>, TrafficError> {
        // The program as it was recorded once more: rows may have been added since the scene's own.
        let (pricer, now, calibration) = calibration::priced(scene)?;
        Ok(FixPricer { scene, pricer, now, calibration, priced: RefCell::default() })
    }

    /// Prices a fix: its predicted gain with its interval.
    pub fn price(&self, candidate: &FixCandidate) -> Result<Fix, TrafficError> {
        if let Some((_, fix)) = self.priced.borrow().iter().find(|(known, _)| known == candidate) {
            return Ok(fix.clone());
        }
        let then = self.then(&[candidate], true)?;
        let fix = candidate.fix(self.scene, self.effect(&then, &[candidate]));
        self.priced.borrow_mut().push((candidate.clone(), fix.clone()));
        Ok(fix)
    }

    /// Whether the memory that it places fits where it places it.
    pub fn fits(&self, candidate: &FixCandidate) -> bool {
        candidate.too_large_for(self.scene.machine).is_none()
    }

    /// The predicted gain that decides ([`Fix::decisive`]) without its interval, whose computation takes most of the time.
    pub fn value(&self, candidate: &FixCandidate) -> Result<f64, TrafficError> {
        let times = if self.scene.usage.paced().is_some() { work_of } else { run_of };
        let then = self.then(&[candidate], false)?;
        Ok(gain_of(times(&self.now).0, times(&then).0))
    }

    /// The program as it was recorded, under the traffic model.
    pub fn now(&self) -> &Priced {
        &self.now
    }

    /// The program with all these fixes. If two concern the same memory, the later one counts. `by_members`: also under each member of the ensemble.
    pub fn then(&self, candidates: &[&FixCandidate], by_members: bool) -> Result<Priced, TrafficError> {
        let even = self.even(|node| self.scene.machine.nodes()[node].has_memory());
        let near = self.even(|node| self.scene.machine.nodes()[node].has_memory() && self.scene.has_cpus(node));
        let weights: Vec<Vec<f64>> = candidates.iter().map(|candidate| self.weights(candidate)).collect();
        let (of_thread, of_process) = self.seats(candidates);
        let pinned = |row: &Row| of_process[row.thread as usize];
        let seat = |row: &Row| of_thread[row.thread as usize].or_else(|| pinned(row)).unwrap_or(row.from);
        let all_nodes = NodeIndex::all(self.scene.usage.nodes);
        let memory_of: Vec<NodeIndex> = all_nodes.map(|node| self.scene.memory_of(node)).collect();
        let to = |cell: &Cell| {
            let Some(home) = cell.home.index() else { return To::Node(None) };
            let row = &self.scene.usage.rows[cell.row as usize];
            let about = candidates
                .iter()
                .zip(&weights)
                .rev()
                .find(|(candidate, _)| candidate.is_of_memory() && candidate.is_about(cell.group));
            let wanted = match about {
                Some((candidate, weights)) => {
                    let spreads = Spreads { even: &even, near: &near, weights };
                    match candidate.kind {
                        FixKind::AllocateOnNode(node) => {
                            To::Node(Some(self.scene.machine.node_index(node).unwrap_or(home)))
                        }
                        _ => placed(&candidate.kind, cell, seat(row), &spreads),
                    }
                }
                None if cell.flags & OWN_PROCESS != 0 => To::Node(Some(pinned(row).unwrap_or(home))),
                None => To::Node(Some(home)),
            };
            match wanted {
                To::Node(node) => To::Node(node.map(|node| memory_of.get(node.0).copied().unwrap_or(node))),
                spread_or_gone => spread_or_gone,
            }
        };
        let machine = self.scene.machine;
        let extra_ns = candidates.iter().map(|candidate| candidate.cost_ns(machine)).sum();
        let extra_work_ns = candidates.iter().map(|candidate| candidate.cost_of_all_ns(machine)).sum();
        self.pricer.price(&Change { to: &to, seat: &seat, extra_ns, extra_work_ns }, by_members)
    }

    /// By thread: the node on which a fix of threads pins it, and the node on which a fix of processes pins its process.
    fn seats(&self, candidates: &[&FixCandidate]) -> (Vec<Option<NodeIndex>>, Vec<Option<NodeIndex>>) {
        let threads = self.scene.analysis.trace().threads();
        let (mut of_thread, mut of_process) =
            (vec![None; self.scene.usage.threads], vec![None; self.scene.usage.threads]);
        for candidate in candidates {
            for thread in 0..self.scene.usage.threads {
                match candidate.kind {
                    FixKind::PinThreads => {
                        let recorded = self.scene.seats.of_moved[thread];
                        of_thread[thread] = candidate.seat(thread as u32, recorded).or(of_thread[thread]);
                    }
                    FixKind::PinProcesses => {
                        let Some(process) = threads.get(thread).map(|thread| thread.process.0) else { continue };
                        let recorded = self.scene.processes.seat.get(&process).copied();
                        of_process[thread] = candidate.seat(process, recorded).or(of_process[thread]);
                    }
                    _ => {}
                }
            }
        }
        (of_thread, of_process)
    }

    /// That threads share cores in the recording, or where these fixes move them, in whole sentences.
    pub fn shared_cores(&self, candidates: &[&FixCandidate]) -> Option<&'static str> {
        let (trace, machine, usage) = (self.scene.analysis.trace(), self.scene.machine, &self.scene.usage);
        if shared_cores::are_shared(trace, machine, usage) {
            return Some(shared_cores::RECORDED);
        }
        let (of_thread, of_process) = self.seats(candidates);
        let seat = |row: &Row| of_thread[row.thread as usize].or(of_process[row.thread as usize]).unwrap_or(row.from);
        shared_cores::are_crowded(trace, machine, usage, &seat).then_some(shared_cores::MOVED)
    }

    /// How much faster these fixes make it (`then`: what they lead to), as a share of the new time, and where its interval comes from.
    pub fn effect(&self, then: &Priced, candidates: &[&FixCandidate]) -> Effect {
        let is_about = |group: u32| candidates.iter().any(|fix| !fix.is_of_memory() || fix.is_about(group));
        let drawn = Drawn::of(&self.scene.usage.drawn, is_about);
        let (gain, uncertainty) = self.gain(then, drawn, run_of);
        if self.scene.usage.paced().is_none() {
            return Effect { gain, work_gain: None, uncertainty };
        }
        let (work_gain, uncertainty) = self.gain(then, drawn, work_of);
        Effect { gain, work_gain: Some(work_gain), uncertainty }
    }

    fn gain(&self, then: &Priced, drawn: Drawn, times: fn(&Priced) -> Times<'_>) -> (Estimate, Uncertainty) {
        let ((now_ns, now_parts, now_members), (then_ns, then_parts, then_members)) = (times(&self.now), times(then));
        let gain = gain_of(now_ns, then_ns);
        let mut parts = *then_parts;
        parts.iter_mut().zip(now_parts).for_each(|(then, now)| *then = gain_of(*now, *then));
        let sampled = drawn.margin(gain, &parts);
        let gains: Vec<f64> = now_members.iter().zip(then_members).map(|(now, then)| gain_of(*now, *then)).collect();
        // Times that are off by some share put their ratio off by the sum of the shares.
        let unsettled = (1.0 + gain) * (self.now.unsettled + then.unsettled);
        let (gain, uncertainty) = interval(gain, &gains, (sampled, unsettled), &self.pricer.members.open);
        (gain, Uncertainty { calibration: self.calibration.clone(), ..uncertainty })
    }

    fn even(&self, is_in: impl Fn(NodeIndex) -> bool) -> Vec<f64> {
        let nodes = NodeIndex::all(self.scene.usage.nodes);
        let count = nodes.clone().filter(|&node| is_in(node)).count().max(1) as f64;
        nodes.map(|node| if is_in(node) { 1.0 / count } else { 0.0 }).collect()
    }

    fn weights(&self, candidate: &FixCandidate) -> Vec<f64> {
        let FixKind::WeightedInterleave(weights) = &candidate.kind else { return Vec::new() };
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let mut shares = vec![0.0; self.scene.usage.nodes];
        for (node, weight) in weights {
            if let Some(index) = self.scene.machine.node_index(*node) {
                // A node may be named more than once.
                shares[index] += f64::from(*weight) / sum;
            }
        }
        shares
    }
}

/// How much faster, as a share of the new run time; 0 where that is none.
fn gain_of(now_ns: f64, then_ns: f64) -> f64 {
    if then_ns > 0.0 { now_ns / then_ns - 1.0 } else { 0.0 }
}

/// Shares by node for what is spread.
struct Spreads<'s> {
    even: &'s [f64],
    near: &'s [f64],
    weights: &'s [f64],
}

/// Where a fix that concerns pages puts an access by a thread on node `from`.
fn placed<'s>(kind: &FixKind, cell: &Cell, from: NodeIndex, spreads: &Spreads<'s>) -> To<'s> {
    match kind {
        FixKind::Interleave | FixKind::InterleaveAll => To::Spread(spreads.even),
        // The object's other pages stay where they are.
        FixKind::SpreadHot if cell.flags & HOT != 0 => To::Spread(spreads.even),
        FixKind::WeightedInterleave(_) => To::Spread(spreads.weights),
        FixKind::NearTier => To::Spread(spreads.near),
        // Before it is shared, and by writes, the original is used.
        FixKind::Replicate if cell.flags & SHARED != 0 && cell.flags & WRITE == 0 => To::Node(Some(from)),
        FixKind::LocalArenas => To::Node(cell.allocator.index()),
        FixKind::ParallelFirstTouch | FixKind::FirstTouchByUsers => To::Node(cell.users.index()),
        FixKind::MigrateAtHandOver => To::Node(cell.owner.index()),
        FixKind::SplitOrAlign if cell.flags & FALSE_SHARED != 0 => To::Gone,
        FixKind::Replicate
        | FixKind::SpreadHot
        | FixKind::SplitOrAlign
        | FixKind::PinThreads
        | FixKind::PinProcesses
        | FixKind::AllocateOnNode(_) => To::Node(cell.home.index()),
    }
}
