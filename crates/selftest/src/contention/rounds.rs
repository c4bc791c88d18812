//! Which rounds of a row count, and how long a row goes on: pure, from what the CPUs read before and after each round.
//!
//! The criterion never looks at a slow-down or at a prediction: a round is left out because the machine is not the one that was measured, whatever came of it.

use numapilot_measure::STATE_WIDTH;

/// A row runs so many times the usual number of rounds at most.
const RUN_MAX: usize = 3;

/// The rounds of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    wanted: usize,
    /// By round that ran: whether it counts.
    counts: Vec<bool>,
}

impl Rounds {
    /// None yet, of which `wanted` have to count.
    #[must_use]
    pub fn new(wanted: usize) -> Rounds {
        Rounds { wanted, counts: Vec::new() }
    }

    /// Whether another round runs: until enough of them count, or three times as many have run. Without time for more, no more than the usual number.
    #[must_use]
    pub fn goes_on(&self, has_time: bool) -> bool {
        let most = if has_time { RUN_MAX * self.wanted } else { self.wanted };
        self.counted() < self.wanted && self.ran() < most
    }

    /// Adds a round, which counts where it was in the state of the machine that was measured: half of a state's width up or down. `before` and `after`: by
    /// which factor the machine differs then from the one that was measured; `None` where nothing tells.
    pub fn add(&mut self, before: Option<f64>, after: Option<f64>) {
        let is_same = |factor: Option<f64>| factor.is_none_or(|factor| factor <= STATE_WIDTH.sqrt());
        self.counts.push(is_same(before) && is_same(after));
    }

    /// Number of rounds that ran.
    #[must_use]
    pub fn ran(&self) -> usize {
        self.counts.len()
    }

    /// Number of rounds that count.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.counts.iter().filter(|counts| **counts).count()
    }

    /// Number of rounds that ran while the machine was another one.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.ran() - self.counted()
    }

    /// Whether a prediction may be judged by them: at least half of the usual number count. Where fewer do, of three times as many, the machine is another one.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        2 * self.counted() >= self.wanted
    }

    /// The rounds that figures are of, from 0: those that count. Where none does all of them, for a row that is not judged.
    #[must_use]
    pub fn kept(&self) -> Vec<usize> {
        let none_counts = self.counted() == 0;
        (0..self.ran()).filter(|round| none_counts || self.counts[*round]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a row of which `wanted` rounds have to count, with the factors of the probes in turn; there is time for all.
    fn run(wanted: usize, factors: &[Option<f64>]) -> Rounds {
        run_within(wanted, factors, usize::MAX)
    }

    /// The same where time is over after so many rounds.
    fn run_within(wanted: usize, factors: &[Option<f64>], in_time: usize) -> Rounds {
        let mut rounds = Rounds::new(wanted);
        let mut probes = factors.iter().copied().cycle();
        let mut before = probes.next().flatten();
        while rounds.goes_on(rounds.ran() < in_time) {
            let after = probes.next().flatten();
            rounds.add(before, after);
            before = after;
        }
        rounds
    }

    #[test]
    fn a_steady_machine_runs_the_usual_number() {
        for factors in [&[Some(1.0)][..], &[Some(1.1)][..], &[None][..]] {
            let rounds = run(9, factors);
            assert_eq!((rounds.ran(), rounds.counted(), rounds.left_out(), rounds.is_judged()), (9, 9, 0, true));
            assert_eq!(rounds.kept(), (0..9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rounds_of_another_machine_are_made_up_for() {
        // The fourth probe: the third and the fourth round are beside it.
        let mut factors = vec![Some(1.0); 64];
        factors[3] = Some(2.0);
        let rounds = run(5, &factors);
        assert_eq!((rounds.ran(), rounds.counted(), rounds.left_out(), rounds.is_judged()), (7, 5, 2, true));
        assert_eq!(rounds.kept(), [0, 1, 4, 5, 6]);
    }

    #[test]
    fn a_machine_that_changed_for_good_is_given_up_after_three_times_as_many() {
        let rounds = run(5, &[Some(1.9)]);
        assert_eq!((rounds.ran(), rounds.counted(), rounds.is_judged()), (15, 0, false));
        assert_eq!(rounds.kept().len(), 15, "figures to show, of a row that is not judged");
        // As one that was slower when it was measured, and one that reads nothing.
        assert!(!run(5, &[Some(f64::INFINITY)]).is_judged());
    }

    #[test]
    fn a_row_that_began_in_time_ends_with_the_usual_number() {
        let changed = [Some(1.9)];
        assert_eq!(run_within(5, &changed, 0).ran(), 5);
        assert_eq!(run_within(5, &changed, 8).ran(), 8, "time was over in the middle of what makes up for others");
        assert_eq!(run_within(5, &[Some(1.0)], 0).counted(), 5);
    }

    #[test]
    fn half_of_the_usual_number_is_judged_and_less_is_not() {
        for (counting, is_judged) in [(5, true), (4, false)] {
            let mut factors = vec![Some(3.0); 64];
            factors[..=counting].fill(Some(1.0));
            let rounds = run(9, &factors);
            assert_eq!((rounds.ran(), rounds.counted(), rounds.is_judged()), (27, counting, is_judged));
        }
    }
}
