//! When there is enough new evidence for another decision. Deciding costs time by the page, and evidence of which little is new says what it said
//! before, give or take chance. Pure.
//!
//! A decision is due once what is new is a [`PORTION`]th of what is known, or once it differs from what was known by more than chance explains (a new phase).
//! Decisions that bring no orders are asked for more and more seldom. All pay for their time from an account, as moves do: an advance, and a share of the
//! time that passes.

use std::time::Duration;

use crate::allowance::Allowance;

/// New samples that a decision takes at least: fewer say nothing of shares.
const LEAST: usize = 64;
/// What is new is at least one part in so many of the pages known, for an ordinary decision.
const PORTION: usize = 16;
/// The same after decisions without orders: it doubles with each, up to so many times.
const CALM_MAX: usize = 32;
/// From so many times on it is calm: two decisions.
const CALM: usize = 4;
/// The same where it differs from what was known.
const PORTION_IF_DIFFERENT: usize = 128;
/// Distance between new and known shares (total variation) that is a change of use; chance comes on top.
const CHANGED: f64 = 0.15;
/// What deciding may take beyond its share, all together: what learning a new program takes.
const ADVANCE: Duration = Duration::from_millis(500);
/// Share of the time that may be spent on deciding.
const SHARE: f64 = 0.003;

/// See the module.
#[derive(Clone, Debug)]
pub struct Gate {
    /// New samples by node of the user (row) and home (column).
    fresh: Vec<u32>,
    samples: usize,
    allowance: Allowance,
    calm: usize,
}

impl Gate {
    /// For machines of `nodes` nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Gate {
        Gate { fresh: vec![0; nodes * nodes], samples: 0, allowance: Allowance::new(ADVANCE, SHARE), calm: 1 }
    }

    /// A sample: somebody on node `from` used a page on node `home`, of `nodes`.
    pub fn saw(&mut self, from: usize, home: usize, nodes: usize) {
        self.samples += 1;
        if let Some(count) = self.fresh.get_mut(from * nodes + home) {
            *count = count.saturating_add(1);
        }
    }

    /// So much time has passed.
    pub fn passed(&mut self, time: Duration) {
        self.allowance.passed(time);
    }

    /// Samples since the last decision.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Whether to decide now. `known_pages`: of how many something is known; `flow`: evidence so far, new samples included, as in
    /// [`super::table::PageTable::flow`].
    #[must_use]
    pub fn is_due(&self, known_pages: usize, flow: &[f64]) -> bool {
        if self.samples < LEAST || !self.allowance.is_left() {
            return false;
        }
        self.samples >= (known_pages / PORTION).max(LEAST) * self.calm
            || self.samples >= known_pages / PORTION_IF_DIFFERENT && self.is_different(flow)
    }

    /// Whether new samples come from elsewhere or go elsewhere than those before, beyond chance: the distance of n samples in k cells from their own
    /// distribution is below sqrt(k / 4n) on average (Cauchy-Schwarz over the cells' standard deviations).
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

    /// Whether decision after decision brought nothing.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm >= CALM
    }

    /// Something else says that much may have changed: the next decision comes soon.
    pub fn stir(&mut self) {
        self.calm = 1;
    }

    /// A decision was made, which took so long and ordered something or nothing.
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

    use proptest::prelude::*;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// `samples` of which a share `local` stays on node 0, the rest goes to node 1.
    fn feed(gate: &mut Gate, flow: &mut [f64], samples: usize, local: f64) {
        for number in 0..samples {
            let home = usize::from((number as f64 * 0.618_034).fract() >= local);
            gate.saw(0, home, 2);
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

    proptest! {
        #[test]
        fn chance_alone_is_no_new_phase(seed in any::<u64>(), local in 0.05..0.95_f64, samples in LEAST..600_usize) {
            let (mut gate, mut flow, mut state) = (Gate::new(2), vec![0.0; 4], seed | 1);
            let mut draw = |gate: &mut Gate, flow: &mut Vec<f64>| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let home = usize::from((state >> 11) as f64 / (1_u64 << 53) as f64 >= local);
                gate.saw(0, home, 2);
                flow[home] += 1.0;
            };
            (0..2000).for_each(|_| draw(&mut gate, &mut flow));
            gate.decided(Duration::ZERO, true);
            (0..samples).for_each(|_| draw(&mut gate, &mut flow));
            prop_assert!(!gate.is_due(usize::MAX / 2, &flow));
            prop_assert!(!gate.is_different(&flow));
        }
    }
}
