//! How fast a unit is before and after it was placed, and how long it is left alone after its placement was undone. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use numapilot_machine::NodeIndex;

use crate::decision::harm_windows::HarmWindows;
use crate::evidence::table::REST_DOUBLINGS;
use crate::evidence::table::REST_TICKS;
use crate::system::speed_meter::Work;

/// Share of one CPU below which a unit counts as idle: it is not measured then.
pub(super) const IDLE_SHARE: f64 = 0.02;
/// Decisions of a batch that are named in its evaluation, at most.
const DECISIONS_MAX: usize = 64;
/// The measure where instructions are counted, and that where they are not.
const COUNTED: &str = "instructions per ns in which threads ran or waited for a CPU";
const ESTIMATED: &str = "time for which threads ran, of that for which they were ready to run, over the estimated cost of their memory's distance";

/// The trial of a unit's placements (see the module's documentation).
#[derive(Clone, Debug)]
pub struct Trial {
    /// Windows before and after its placements.
    pub windows: HarmWindows,
    /// Whether its measure has the instructions of its threads; `None`: it was not measured yet.
    counts: Option<bool>,
    batch: Batch,
    /// Placements that were undone since one was kept.
    undone: u32,
    /// Observation from which it may be placed again.
    rests_until: u64,
}

/// The placements that are judged together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The decisions.
    pub decisions: Vec<u64>,
    /// Nanoseconds that moving pages took.
    pub moving_ns: f64,
}

impl Trial {
    /// A unit that was not placed yet. `max_harm`: the share by which it may become slower; `may_measure`: whether this kernel shows how fast programs are.
    #[must_use]
    pub fn new(max_harm: f64, may_measure: bool) -> Trial {
        let windows = HarmWindows::new(max_harm).with_measure(may_measure);
        Trial { windows, counts: None, batch: Batch::default(), undone: 0, rests_until: 0 }
    }

    /// The measure of a window of this length in which the unit did this; `None`: it was idle, or nothing was counted. `far`: how much longer it takes at the
    /// present distance of its memory, by estimation; it counts where instructions do not.
    pub fn measure(&mut self, work: &Work, far: f64, elapsed: Duration) -> Option<f64> {
        let (ran_ns, ready_ns) = (work.ran_ns as f64, (work.ran_ns + work.waited_ns) as f64);
        if ready_ns <= 0.0 || ready_ns < IDLE_SHARE * elapsed.as_nanos() as f64 {
            return None;
        }
        let per_ns = (work.counted_ns > 0).then(|| work.instructions as f64 / work.counted_ns as f64);
        // Windows of both kinds cannot be compared.
        match *self.counts.get_or_insert(per_ns.is_some()) {
            true => per_ns.map(|per_ns| per_ns * ran_ns / ready_ns),
            false => Some(ran_ns / ready_ns / far),
        }
    }

    /// What the measure is, with its unit.
    #[must_use]
    pub fn measure_name(&self) -> &'static str {
        match self.counts {
            Some(true) => COUNTED,
            _ => ESTIMATED,
        }
    }

    /// Registers that the unit was placed by this decision.
    pub fn placed(&mut self, decision: u64, moving_ns: f64) {
        self.windows.changed();
        self.batch.moving_ns += moving_ns;
        let decisions = &mut self.batch.decisions;
        if decisions.last() != Some(&decision) && decisions.len() < DECISIONS_MAX {
            decisions.push(decision);
        }
    }

    /// Whether a placement is being judged, and there is something to judge it by.
    #[must_use]
    pub fn is_judging(&self) -> bool {
        self.windows.is_judging() && self.windows.has_measure()
    }

    /// Ends a batch that was judged: it is kept, or undone. After an undone one the unit rests for as many observations as a page that moved back and forth,
    /// and for twice as many each time. Returns the batch, and for how many observations the unit rests.
    pub fn judged(&mut self, undo: bool, observation: u64) -> (Batch, u64) {
        let batch = std::mem::take(&mut self.batch);
        if !undo {
            self.undone = 0;
            return (batch, 0);
        }
        let rest = u64::from(REST_TICKS) << self.undone.min(u32::from(REST_DOUBLINGS));
        self.undone = self.undone.saturating_add(1);
        self.rests_until = observation + rest;
        (batch, rest)
    }

    /// Whether the unit rests at this observation.
    #[must_use]
    pub fn rests(&self, observation: u64) -> bool {
        observation < self.rests_until
    }
}

/// How much longer a program takes with its memory at its present distance than with all of it on the nodes of its threads, by the estimate that packings are
/// computed with ([`PackingSettings::memory_share`]). `ran_on`: nanoseconds of running by node; `bytes`: its memory by node; `distance` as of
/// [`MachineCapacity`]. Where nothing is known, 1.
///
/// [`PackingSettings::memory_share`]: crate::decision::packing::PackingSettings::memory_share
/// [`MachineCapacity`]: crate::decision::packing::MachineCapacity
#[must_use]
pub fn far(ran_on: &BTreeMap<NodeIndex, u64>, bytes: &[u64], distance: &[Vec<u32>], memory_share: f64) -> f64 {
    let (ran_ns, all): (u64, u64) = (ran_on.values().sum(), bytes.iter().sum());
    if ran_ns == 0 || all == 0 {
        return 1.0;
    }
    let mut mean = 0.0;
    for (from, on_node) in ran_on {
        let local = f64::from(distance[*from][*from].max(1));
        let costs = distance[*from].iter().zip(bytes).map(|(to, bytes)| f64::from(*to) / local * *bytes as f64);
        mean += *on_node as f64 / ran_ns as f64 * costs.sum::<f64>() / all as f64;
    }
    1.0 - memory_share + memory_share * mean
}

#[cfg(test)]
mod tests {
    //! A unit that does so much in windows of 2 s.

    use super::*;
    use crate::decision::harm_windows::AFTER;
    use crate::decision::harm_windows::Judgement;
    use crate::decision::harm_windows::LEAST;

    const WINDOW: Duration = Duration::from_secs(2);

    /// Work of four threads, of which this share of the time that they were ready passed without a CPU; `per_ns` 0: instructions are not counted.
    fn work(waited: f64, per_ns: f64) -> Work {
        let ready_ns = 8e9;
        let ran_ns = ready_ns * (1.0 - waited);
        let counted_ns = if per_ns > 0.0 { ran_ns as u64 } else { 0 };
        let (ran_ns, waited_ns) = (ran_ns as u64, (ready_ns * waited) as u64);
        let instructions = (counted_ns as f64 * per_ns) as u64;
        Work { ran_ns, waited_ns, instructions, counted_ns, ..Work::default() }
    }

    /// The judgement after windows like `before`, a placement and windows like `after`.
    fn judged(trial: &mut Trial, before: &(Work, f64), after: &(Work, f64)) -> Judgement {
        let window = |trial: &mut Trial, (work, far): &(Work, f64)| {
            let measure = trial.measure(work, *far, WINDOW);
            trial.windows.window(measure, work.ran_ns as f64).judgement
        };
        (0..LEAST).for_each(|_| assert_eq!(window(trial, before), None));
        trial.placed(3, 5e6);
        (1..AFTER).for_each(|_| assert_eq!(window(trial, after), None));
        window(trial, after).expect("judged")
    }

    /// Nothing that packing did to a process was measured, and nothing was undone.
    #[test]
    fn a_unit_that_waits_for_processors_or_memory_is_slower() {
        let of = |before: (Work, f64), after: (Work, f64)| judged(&mut Trial::new(0.01, true), &before, &after);
        // Local memory makes up for waiting, as far as it is seen in the instructions, or estimated.
        for (waited, per_ns, undo) in [(0.0, 2.0, false), (0.2, 2.0, true), (0.2, 3.0, false), (0.0, 1.5, true)] {
            let judgement = of((work(0.0, 2.0), 1.2), (work(waited, per_ns), 1.0));
            assert_eq!(judgement.undo, undo, "{waited} {per_ns}: {judgement:?}");
        }
        for (waited, far, undo) in [(0.1, 1.2, true), (0.1, 1.0, false), (0.3, 1.0, true)] {
            let judgement = of((work(0.0, 0.0), 1.2), (work(waited, 0.0), far));
            assert_eq!(judgement.undo, undo, "{waited} {far}: {judgement:?}");
        }
    }

    #[test]
    fn windows_are_comparable_and_idle_ones_are_no_measure() {
        let mut trial = Trial::new(0.01, true);
        let idle = Work { ran_ns: 30_000_000, ..Work::default() };
        assert_eq!(trial.measure(&idle, 1.0, WINDOW), None);
        assert_eq!(trial.measure(&Work::default(), 1.0, Duration::ZERO), None);
        assert_eq!(trial.measure(&work(0.5, 2.0), 1.5, WINDOW), Some(1.0));
        assert!(trial.measure_name().starts_with("instructions"));
        assert_eq!(trial.measure(&work(0.5, 0.0), 1.5, WINDOW), None, "instructions are not counted for once");
        let mut trial = Trial::new(0.01, true);
        assert_eq!(trial.measure(&work(0.5, 0.0), 2.0, WINDOW), Some(0.25));
        assert_eq!(trial.measure(&work(0.5, 2.0), 2.0, WINDOW), Some(0.25));
        assert!(trial.measure_name().contains("estimated"), "no estimate is shown as measured");
    }

    #[test]
    fn distant_memory_is_estimated_as_packings_are() {
        let distance = vec![vec![10, 20], vec![20, 10]];
        let far = |ran_on: &[(usize, u64)], bytes: [u64; 2]| {
            let ran_on = ran_on.iter().map(|(node, ran_ns)| (NodeIndex(*node), *ran_ns)).collect();
            far(&ran_on, &bytes, &distance, 0.5)
        };
        assert_eq!([far(&[], [1, 1]), far(&[(0, 5)], [0, 0]), far(&[(1, 5)], [0, 7])], [1.0; 3]);
        assert_eq!((far(&[(0, 5)], [0, 7]), far(&[(0, 5)], [4, 4]), far(&[(0, 3), (1, 3)], [8, 0])), (1.5, 1.25, 1.25));
    }

    #[test]
    fn a_unit_rests_longer_each_time_that_its_placement_is_undone() {
        let mut trial = Trial::new(0.01, true);
        trial.placed(3, 5e6);
        trial.placed(3, 1e6);
        trial.placed(4, 0.0);
        assert!(trial.is_judging() && !trial.rests(0));
        let (batch, rest) = trial.judged(true, 50);
        assert_eq!((batch, rest), (Batch { decisions: vec![3, 4], moving_ns: 6e6 }, 300));
        assert!(trial.rests(349) && !trial.rests(350) && trial.batch == Batch::default());
        let rests: Vec<u64> = (0..8).map(|_| trial.judged(true, 0).1).collect();
        assert_eq!(rests, [600, 1200, 2400, 4800, 9600, 19_200, 19_200, 19_200]);
        assert_eq!((trial.judged(false, 0).1, trial.judged(true, 0).1), (0, 300), "one was kept");
        assert!(!Trial::new(0.01, false).windows.must_wait(), "there is nothing to wait for");
    }
}
