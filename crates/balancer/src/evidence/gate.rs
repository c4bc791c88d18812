//! Decides when there is enough new evidence for another decision. A decision costs time per page, and with little new evidence it would repeat the last one.
//! Pure.
//!
//! A decision is due once the new evidence is 1/[`PORTION`] of the known pages, or once it differs from the old by more than chance explains (a new phase).
//! After decisions without orders the next ones become less frequent. The time for all decisions comes from a budget: an advance, and a share of the elapsed
//! time.

use std::time::Duration;

use numapilot_machine::NodeIndex;

use crate::allowance::Allowance;

/// Minimum number of new samples for a decision: shares of fewer are meaningless.
const LEAST: usize = 64;
/// An ordinary decision requires new samples for 1 in this many of the known pages.
const PORTION: usize = 16;
/// Maximum multiple of that requirement: it doubles with each decision without orders.
const CALM_MAX: usize = 32;
/// Multiple from which the gate counts as calm: after two decisions without orders.
const CALM: usize = 4;
/// As [`PORTION`], for new evidence that differs from the old.
const PORTION_IF_DIFFERENT: usize = 128;
/// Distance between new and old shares (total variation) that counts as a change of use, in addition to chance.
const CHANGED: f64 = 0.15;
/// Advance of the time budget for decisions: what a new program needs.
const ADVANCE: Duration = Duration::from_millis(500);
/// Share of the time that may be spent on deciding.
const SHARE: f64 = 0.003;

/// Counts new evidence since the last decision.
#[derive(Clone, Debug)]
pub struct Gate {
    /// New samples by accessing node (row) and home node (column).
    fresh: Vec<u32>,
    samples: usize,
    allowance: Allowance,
    calm: usize,
}

impl Gate {
    /// Makes a gate for a machine of `nodes` nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Gate {
        Gate { fresh: vec![0; nodes * nodes], samples: 0, allowance: Allowance::new(ADVANCE, SHARE), calm: 1 }
    }

    /// Counts a sample: a use from node `from` of a page on node `home`, of `nodes` nodes.
    pub fn saw(&mut self, from: NodeIndex, home: NodeIndex, nodes: usize) {
        self.samples += 1;
        if let Some(count) = self.fresh.get_mut(from.0 * nodes + home.0) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the share of elapsed time to the budget.
    pub fn passed(&mut self, time: Duration) {
        self.allowance.passed(time);
    }

    /// Number of samples since the last decision.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Whether a decision is due. `known_pages`: number of pages in the table; `flow`: all evidence including the new samples, as in
    /// [`super::table::PageTable::flow`].
    #[must_use]
    pub fn is_due(&self, known_pages: usize, flow: &[f64]) -> bool {
        if self.samples < LEAST || !self.allowance.is_left() {
            return false;
        }
        self.samples >= (known_pages / PORTION).max(LEAST) * self.calm
            || self.samples >= known_pages / PORTION_IF_DIFFERENT && self.is_different(flow)
    }

    /// Whether the new samples are distributed differently from the old ones, beyond chance: the distance of n samples in k cells from their own distribution
    /// is below sqrt(k / 4n) on average (Cauchy-Schwarz over the cells' standard deviations).
    fn is_different(&self, flow: &[f64]) -> bool {
        let total: f64 = flow.iter().sum();
        let before = total - self.samples as f64;
        if before < LEAST as f64 {
            return true;
        }
        let samples = self.samples as f64;
        let cells = self.fresh.iter().zip(flow);
        let share = |fresh: u32, flow: f64| (f64::from(fresh) / samples, (flow - f64::from(fresh)).max(0.0) / before);
        let distance: f64 = cells.map(|(fresh, flow)| share(*fresh, *flow)).map(|(new, old)| (new - old).abs()).sum();
        let used = flow.iter().filter(|flow| **flow > 0.5).count() as f64;
        distance / 2.0 > CHANGED + (used / (4.0 * samples)).sqrt() + (used / (4.0 * before)).sqrt()
    }

    /// Whether several decisions in a row brought no orders.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm >= CALM
    }

    /// Makes the next decision come soon, because other evidence indicates a change.
    pub fn request_decision(&mut self) {
        self.calm = 1;
    }

    /// Registers a decision: the time that it took, and whether it had orders.
    pub fn decided(&mut self, took: Duration, has_ordered: bool) {
        self.calm = if has_ordered { 1 } else { (self.calm * 2).min(CALM_MAX) };
        self.fresh.iter_mut().for_each(|count| *count = 0);
        self.samples = 0;
        self.allowance.spent(took);
    }
}

#[cfg(test)]
mod tests {
    //! Two nodes.

    use numapilot_random::Random;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// `samples` of which a share `local` stays on node 0, the rest goes to node 1.
    fn feed(gate: &mut Gate, flow: &mut [f64], samples: usize, local: f64) {
        for number in 0..samples {
            let home = usize::from((number as f64 * 0.618_034).fract() >= local);
            gate.saw(NodeIndex(0), NodeIndex(home), 2);
            flow[home] += 1.0;
        }
    }

    #[test]
    fn new_programs_are_decided_on_at_once_and_known_ones_after_a_part_of_their_pages() {
        let (mut gate, mut flow) = (Gate::new(2), vec![0.0; 4]);
        feed(&mut gate, &mut flow, LEAST - 1, 0.5);
        assert!(!gate.is_due(LEAST - 1, &flow), "too few to say anything");
        feed(&mut gate, &mut flow, 1, 0.5);
        assert!(gate.is_due(LEAST, &flow));
        gate.decided(Duration::from_micros(10), true);
        feed(&mut gate, &mut flow, 999, 0.5);
        assert!(!gate.is_due(16_000, &flow), "the same again");
        feed(&mut gate, &mut flow, 1, 0.5);
        assert!(gate.is_due(16_000, &flow));
    }

    #[test]
    fn where_nothing_is_ordered_less_is_decided() {
        let (mut gate, mut flow, mut decisions) = (Gate::new(2), vec![0.0; 4], 0);
        for _ in 0..100 {
            gate.passed(STEP);
            feed(&mut gate, &mut flow, LEAST, 0.5);
            if gate.is_due(100, &flow) {
                gate.decided(Duration::from_micros(100), false);
                decisions += 1;
            }
        }
        assert_eq!(decisions, 7, "after 1, 2, 4, 8, 16, 32 and 32 times as many samples");
    }

    #[test]
    fn a_new_phase_is_decided_on_soon() {
        let (mut gate, mut flow) = (Gate::new(2), vec![0.0; 4]);
        feed(&mut gate, &mut flow, 4000, 0.9);
        gate.decided(STEP / 1000, false);
        feed(&mut gate, &mut flow, 130, 0.1);
        assert!(gate.is_due(16_000, &flow));
    }

    /// Draws that come out the same in every run: of 256 new ones each time, one run in 8,000 has one beyond the limit.
    #[test]
    fn chance_alone_is_no_new_phase() {
        for seed in 0..256 {
            let mut random = Random::new(seed);
            let (local, samples) = (0.05 + 0.9 * random.unit(), LEAST + random.index(600 - LEAST));
            let (mut gate, mut flow) = (Gate::new(2), vec![0.0; 4]);
            let mut draw = |gate: &mut Gate, flow: &mut Vec<f64>| {
                let home = usize::from(random.unit() >= local);
                gate.saw(NodeIndex(0), NodeIndex(home), 2);
                flow[home] += 1.0;
            };
            (0..2000).for_each(|_| draw(&mut gate, &mut flow));
            gate.decided(Duration::ZERO, true);
            (0..samples).for_each(|_| draw(&mut gate, &mut flow));
            assert!(!gate.is_due(usize::MAX / 2, &flow), "seed {seed}: {samples} samples, {local}");
            assert!(!gate.is_different(&flow), "seed {seed}: {samples} samples, {local}: {flow:?}");
        }
    }
}
