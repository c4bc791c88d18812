//! States of a machine: which of the measurements on one memory are of the same one. Pure, from what the CPUs read just before and just after each.
//!
//! Other guests of a host, and a host that moves a guest's CPUs, change from one minute to the next how much its CPUs read together, and nothing in the guest
//! shows it. Figures of different states must not meet in one model: a limit of one state and a latency of another fit no machine. A measurement counts where
//! both probes beside it are of the state in which most of the measurements were seen; nobody looks at the figures themselves for that.

use serde::{Deserialize, Serialize};

/// The highest probe of a state over the lowest, at most: probes of a quiet machine differ by a few percent, states by a third and more.
pub const STATE_WIDTH: f64 = 1.25;

/// One attempt at a measurement, with the probes beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// The measurement, as an index of the caller's.
    pub cell: usize,
    /// What the CPUs read just before, bytes per second.
    pub before: f64,
    /// The same just after.
    pub after: f64,
}

impl Attempt {
    fn least(&self) -> f64 {
        self.before.min(self.after)
    }

    fn most(&self) -> f64 {
        self.before.max(self.after)
    }

    /// Whether both probes may be of one state.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.least() > 0.0 && self.most() <= STATE_WIDTH * self.least()
    }
}

/// A state: what the CPUs read together, in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State {
    /// Bytes per second: as far, in proportion, from the lowest probe of the state as from the highest.
    pub bytes_per_s: f64,
}

impl State {
    /// Whether a probe is of this state.
    #[must_use]
    pub fn holds(&self, bytes_per_s: f64) -> bool {
        let factor = bytes_per_s / self.bytes_per_s;
        // Half of the width to each side; a rounding error does not throw out the ends.
        factor > 0.0 && factor.max(1.0 / factor) <= STATE_WIDTH.sqrt() * (1.0 + 1e-9)
    }

    /// Whether an attempt was made in this state.
    #[must_use]
    pub fn counts(&self, attempt: &Attempt) -> bool {
        self.holds(attempt.before) && self.holds(attempt.after)
    }
}

/// The most frequent state: the one in which most cells were measured; of several, the one with most attempts, then the one whose probes are nearest to one
/// another. `None` where no attempt had two probes of one state.
#[must_use]
pub fn most_frequent(attempts: &[Attempt]) -> Option<State> {
    let steady: Vec<&Attempt> = attempts.iter().filter(|attempt| attempt.is_steady()).collect();
    let of_least = |first: &&Attempt| {
        let low = first.least();
        let within: Vec<&&Attempt> =
            steady.iter().filter(|other| other.least() >= low && other.most() <= STATE_WIDTH * low).collect();
        let mut cells: Vec<usize> = within.iter().map(|attempt| attempt.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        let high = within.iter().map(|attempt| attempt.most()).fold(low, f64::max);
        (cells.len(), within.len(), low / high, State { bytes_per_s: (low * high).sqrt() })
    };
    let best = steady.iter().map(of_least).max_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    best.map(|(_, _, _, state)| state)
}

/// The attempt that stands for each of `cells` measurements: the last one that counts; where none does, the one whose probes are nearest to the state, and
/// `false`. `None` without any attempt. Without a state, which there is where no probe told the same twice, the last attempt stands, and `false`.
#[must_use]
pub fn standing(attempts: &[Attempt], cells: usize, state: Option<State>) -> Vec<Option<(usize, bool)>> {
    let of_cell = |cell: usize| {
        let own = || attempts.iter().enumerate().filter(move |(_, attempt)| attempt.cell == cell);
        let Some(state) = state else { return own().next_back().map(|(index, _)| (index, false)) };
        let counted = own().rfind(|(_, attempt)| state.counts(attempt));
        let away = |attempt: &Attempt| {
            let logarithm = |probe: f64| (probe.max(1.0) / state.bytes_per_s).ln().abs();
            logarithm(attempt.before).max(logarithm(attempt.after))
        };
        let nearest = || own().min_by(|(_, a), (_, b)| away(a).total_cmp(&away(b)));
        counted.map(|(index, _)| (index, true)).or_else(|| nearest().map(|(index, _)| (index, false)))
    };
    (0..cells).map(of_cell).collect()
}

/// The lowest and the highest of all probes, bytes per second; `None` without any above 0.
#[must_use]
pub fn range(attempts: &[Attempt]) -> Option<(f64, f64)> {
    let probes = attempts.iter().flat_map(|attempt| [attempt.before, attempt.after]).filter(|probe| *probe > 0.0);
    probes.fold(None, |range, probe| {
        let (low, high) = range.unwrap_or((probe, probe));
        Some((low.min(probe), high.max(probe)))
    })
}

#[cfg(test)]
mod tests {
    //! Probes written here and made at random.

    use proptest::prelude::*;

    use super::*;

    fn attempt(cell: usize, before: f64, after: f64) -> Attempt {
        Attempt { cell, before, after }
    }

    /// Of the host of a virtual machine: reads were 33 to 38 GB/s in most minutes, and 53 in one, from which the read port came.
    #[test]
    fn the_state_of_most_cells_is_chosen_and_the_others_are_left_out() {
        let attempts = [
            attempt(0, 33e9, 36e9),
            attempt(1, 53e9, 52e9),
            attempt(2, 36e9, 38e9),
            attempt(3, 36e9, 53e9),
            attempt(1, 51e9, 52e9),
            attempt(1, 50e9, 51e9),
        ];
        let state = most_frequent(&attempts).expect("a state");
        assert!((state.bytes_per_s - (33e9_f64 * 38e9).sqrt()).abs() < 1e6, "two cells, not three attempts: {state:?}");
        let found = standing(&attempts, 5, Some(state));
        assert_eq!(found, [Some((0, true)), Some((5, false)), Some((2, true)), Some((3, false)), None]);
        assert_eq!(range(&attempts), Some((33e9, 53e9)));
    }

    #[test]
    fn a_cell_that_is_repeated_in_the_state_counts() {
        let mut attempts = vec![attempt(0, 36e9, 36e9), attempt(1, 36e9, 53e9)];
        let state = most_frequent(&attempts);
        assert_eq!(standing(&attempts, 2, state)[1], Some((1, false)));
        attempts.push(attempt(1, 37e9, 35e9));
        assert_eq!(standing(&attempts, 2, most_frequent(&attempts))[1], Some((2, true)));
    }

    #[test]
    fn probes_that_never_agree_make_no_state() {
        let attempts = [attempt(0, 20e9, 40e9), attempt(0, 0.0, 0.0)];
        assert_eq!(most_frequent(&attempts), None);
        assert_eq!(standing(&attempts, 1, None), [Some((1, false))]);
        assert_eq!((most_frequent(&[]), range(&[])), (None, None));
    }

    fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
        prop::collection::vec((0_usize..6, 1e9_f64..1e11, 0.7_f64..1.4), 0..24).prop_map(|all| {
            all.into_iter().map(|(cell, before, change)| attempt(cell, before, before * change)).collect()
        })
    }

    proptest! {
        #[test]
        fn all_probes_that_count_are_within_one_width(attempts in attempts()) {
            let Some(state) = most_frequent(&attempts) else {
                prop_assert!(!attempts.iter().any(Attempt::is_steady));
                return Ok(());
            };
            let counted: Vec<Attempt> = attempts.iter().copied().filter(|attempt| state.counts(attempt)).collect();
            prop_assert!(!counted.is_empty(), "the state's own attempts");
            let (low, high) = range(&counted).expect("some");
            prop_assert!(high <= STATE_WIDTH * low * (1.0 + 1e-6), "{low} to {high}");
            for found in standing(&attempts, 6, Some(state)).into_iter().flatten() {
                prop_assert_eq!(state.counts(&attempts[found.0]), found.1);
            }
        }

        #[test]
        fn no_other_state_has_more_cells_and_order_is_nothing(attempts in attempts(), at in 1e9_f64..1e11) {
            let cells = |state: State| {
                let counted = attempts.iter().filter(|attempt| state.counts(attempt));
                counted.map(|attempt| attempt.cell).collect::<std::collections::BTreeSet<_>>().len()
            };
            let chosen = most_frequent(&attempts);
            let (most, other) = (chosen.map_or(0, cells), cells(State { bytes_per_s: at }));
            prop_assert!(most >= other, "{most} {other}");
            let reversed: Vec<Attempt> = attempts.iter().rev().copied().collect();
            prop_assert_eq!(most_frequent(&reversed).map(cells), chosen.map(cells));
        }
    }
}
