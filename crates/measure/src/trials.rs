//! The measurements on one memory, each tried until it was made in the state of the machine in which most of them were (`states`). Pure but for what it keeps.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::{CpuId, NodeId};

use crate::plan::{Group, Step, Task};
use crate::results::{BandwidthCell, Curve, LatencyCell, Overlap, PairState, Results, Target};
use crate::states::{Attempt, State, most_frequent, range, standing};

/// What a measurement found.
#[derive(Debug)]
pub enum Found {
    /// Idle latency, and the misses outstanding where they were measured with it.
    Latency(LatencyCell, Option<Overlap>),
    /// Latency under load.
    Loaded(Curve),
    /// Bandwidth.
    Bandwidth(BandwidthCell),
}

/// One attempt at a measurement.
#[derive(Debug)]
pub struct Trial {
    /// The measurement, as an index into the group's steps.
    pub step: usize,
    /// Node of its CPUs.
    pub from: NodeId,
    /// The measurement, in words.
    pub what: String,
    /// What the node's CPUs read just before and just after, bytes per second; `None` where they could not be asked.
    pub probes: Option<(f64, f64)>,
    /// What it found.
    pub found: Found,
}

/// All attempts on one memory.
#[derive(Debug, Default)]
pub struct Trials {
    /// By node: the CPUs that read together before and after each measurement.
    probers: BTreeMap<NodeId, Vec<CpuId>>,
    trials: Vec<Trial>,
}

impl Trials {
    /// None yet, of this group: the most CPUs of a node that work together in it are those of the probe. One CPU alone shows no state.
    pub fn new(group: &Group) -> Trials {
        let mut probers: BTreeMap<NodeId, Vec<CpuId>> = BTreeMap::new();
        for step in &group.steps {
            let (from, cpus) = match &step.task {
                Task::Bandwidth { from, cpus, .. } => (*from, cpus.clone()),
                Task::Loaded { from, cpu, neighbours, .. } => (*from, [&[*cpu], neighbours.as_slice()].concat()),
                _ => continue,
            };
            let known = probers.entry(from).or_default();
            if cpus.len() > known.len().max(1) {
                *known = cpus;
            }
        }
        probers.retain(|_, cpus| !cpus.is_empty());
        Trials { probers, trials: Vec::new() }
    }

    /// CPUs of the probe beside measurements of this node.
    pub fn probers(&self, from: NodeId) -> Option<&[CpuId]> {
        self.probers.get(&from).map(Vec::as_slice)
    }

    /// Adds an attempt.
    pub fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// The measurement of the misses outstanding goes with one latency, the first: whether this step may make it.
    pub fn may_overlap(&self, step: usize) -> bool {
        let has_one = |trial: &&Trial| matches!(trial.found, Found::Latency(_, Some(_)));
        self.trials.iter().find(has_one).is_none_or(|trial| trial.step == step)
    }

    /// Attempts of a node that have probes, by their places among all.
    fn attempts(&self, from: NodeId) -> (Vec<usize>, Vec<Attempt>) {
        let of_node = self.trials.iter().enumerate().filter(|(_, trial)| trial.from == from);
        let told = |(index, trial): (usize, &Trial)| {
            let (before, after) = trial.probes?;
            Some((index, Attempt { cell: trial.step, before, after }))
        };
        of_node.filter_map(told).unzip()
    }

    /// The most frequent state of a node's measurements so far.
    pub fn state(&self, from: NodeId) -> Option<State> {
        most_frequent(&self.attempts(from).1)
    }

    /// For each step up to the last that was tried: the attempt that stands for it, and whether it was made in the state.
    fn standing(attempts: &[Attempt], state: Option<State>) -> Vec<Option<(usize, bool)>> {
        let steps = attempts.iter().map(|attempt| attempt.cell + 1).max().unwrap_or(0);
        standing(attempts, steps, state)
    }

    /// Steps that were tried, and never in the most frequent state, with their nodes.
    pub fn missing(&self) -> BTreeSet<(NodeId, usize)> {
        let mut missing = BTreeSet::new();
        for &from in self.probers.keys() {
            let (_, attempts) = self.attempts(from);
            let found = Self::standing(&attempts, most_frequent(&attempts));
            let left = found.iter().enumerate().filter(|(_, found)| found.is_some_and(|(_, counts)| !counts));
            missing.extend(left.map(|(step, _)| (from, step)));
        }
        missing
    }

    /// Puts the attempts that stand into the results, in the order of the plan, and says of which states they are.
    pub fn finish(self, target: &Target, results: &mut Results) {
        let mut chosen: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, trial) in self.trials.iter().enumerate().filter(|(_, trial)| trial.probes.is_none()) {
            chosen.insert(trial.step, index);
        }
        for (&from, cpus) in &self.probers {
            let (places, attempts) = self.attempts(from);
            let state = most_frequent(&attempts);
            let found: Vec<(usize, bool)> = Self::standing(&attempts, state).into_iter().flatten().collect();
            let (Some(range), false) = (range(&attempts), found.is_empty()) else { continue };
            chosen.extend(found.iter().map(|&(attempt, _)| (attempts[attempt].cell, places[attempt])));
            let others = found.iter().filter(|(_, counts)| !counts);
            let of_other_states: Vec<String> =
                others.map(|&(attempt, _)| self.trials[places[attempt]].what.clone()).collect();
            let (target, cpus) = (target.clone(), cpus.len());
            let counts = |attempt: &&Attempt| !state.is_some_and(|state| state.counts(attempt));
            let left_out = attempts.iter().filter(counts).count() - of_other_states.len();
            let told = PairState { from, target, cpus, state, range, cells: found.len(), left_out, of_other_states };
            results.notes.extend(told.note());
            results.states.push(told);
        }
        let mut trials: Vec<Option<Found>> = self.trials.into_iter().map(|trial| Some(trial.found)).collect();
        for place in chosen.into_values() {
            match trials[place].take() {
                Some(Found::Latency(cell, overlap)) => {
                    results.latency.push(cell);
                    results.overlap = results.overlap.take().or(overlap);
                }
                Some(Found::Loaded(curve)) => results.loaded.push(curve),
                Some(Found::Bandwidth(cell)) => results.bandwidth.push(cell),
                None => {}
            }
        }
    }
}

/// Node whose CPUs a step uses, of those that are repeated where the machine changes.
pub fn node_of(step: &Step) -> Option<NodeId> {
    match step.task {
        Task::Latency { from, .. } | Task::Loaded { from, .. } | Task::Bandwidth { from, .. } => Some(from),
        Task::Stairs { .. } | Task::Handoff { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    //! Bandwidths written here, as of a machine that goes from one state to another and back.

    use super::*;
    use crate::disturbance::Disturbance;
    use crate::kernels::Kernel;
    use crate::results::Figure;
    use crate::stats::{Better, Spread};

    /// Step, kernel, GB/s found, GB/s of the probes.
    type Told = (usize, Kernel, f64, Option<(f64, f64)>);

    fn trials(of: &[Told]) -> Trials {
        let mut trials = Trials { probers: [(NodeId(0), vec![CpuId(0), CpuId(1)])].into(), trials: Vec::new() };
        for &(step, kernel, gb, probes) in of {
            let spread = Spread::of(&[gb * 1e9; 3], Better::High).expect("three values");
            let cell = BandwidthCell {
                from: NodeId(0),
                cpus: 2,
                target: Target::Node(NodeId(0)),
                kernel,
                bytes: 1 << 28,
                traffic_bytes_per_s: gb * 1e9,
                bytes_per_s: Figure { spread, disturbance: Disturbance::default() },
            };
            let probes = probes.map(|(before, after)| (before * 1e9, after * 1e9));
            let (from, what) = (NodeId(0), kernel.word().to_owned());
            trials.add(Trial { step, from, what, probes, found: Found::Bandwidth(cell) });
        }
        trials
    }

    fn finish(trials: Trials) -> (Results, Vec<f64>) {
        let mut results = Results::default();
        trials.finish(&Target::Node(NodeId(0)), &mut results);
        let figures = results.bandwidth.iter().map(|cell| cell.bytes_per_s.best() / 1e9).collect();
        (results, figures)
    }

    /// The port of reads came from a minute of 53 GB/s, all the rest from minutes of 38.
    #[test]
    fn figures_of_two_states_are_not_mixed_where_each_was_seen_in_one() {
        let mut both = trials(&[
            (0, Kernel::Read, 37.0, Some((36.0, 38.0))),
            (1, Kernel::Mix2To1, 53.0, Some((53.0, 52.0))),
            (2, Kernel::Write, 20.0, Some((37.0, 37.0))),
        ]);
        assert_eq!(both.missing(), [(NodeId(0), 1)].into());
        both.trials.extend(trials(&[(1, Kernel::Mix2To1, 43.0, Some((37.0, 36.0)))]).trials);
        assert!(both.missing().is_empty());
        let (results, figures) = finish(both);
        assert_eq!(figures, [37.0, 43.0, 20.0], "in the order of the plan");
        let state = &results.states[0];
        assert_eq!((state.cells, state.left_out, state.of_other_states.len()), (3, 1, 0));
        assert!(!state.is_mixed() && results.notes[0].contains("1 measurement"), "{:?}", results.notes);
    }

    #[test]
    fn what_was_never_seen_in_the_state_is_kept_and_told() {
        let (results, figures) = finish(trials(&[
            (0, Kernel::Read, 37.0, Some((36.0, 38.0))),
            (1, Kernel::Mix2To1, 53.0, Some((53.0, 52.0))),
            (2, Kernel::Write, 20.0, Some((37.0, 37.0))),
        ]));
        assert_eq!(figures, [37.0, 53.0, 20.0]);
        let state = &results.states[0];
        assert!(state.is_mixed() && state.of_other_states == ["2:1"], "{state:?}");
        assert!(results.notes[0].contains("2:1") && results.notes[0].contains("estimates"), "{:?}", results.notes);
        let (low, high) = state.factors().expect("a state");
        assert!(low > 0.9 && low < 1.0 && (1.4..1.5).contains(&high), "{low} {high}");
    }

    #[test]
    fn a_quiet_machine_and_one_without_probes_say_nothing() {
        let (results, figures) = finish(trials(&[
            (0, Kernel::Read, 37.0, Some((36.0, 38.0))),
            (1, Kernel::Write, 20.0, Some((37.0, 37.0))),
        ]));
        assert!(results.notes.is_empty() && results.states.len() == 1 && figures == [37.0, 20.0]);
        let (results, figures) = finish(trials(&[(0, Kernel::Read, 37.0, None), (0, Kernel::Read, 38.0, None)]));
        assert!(results.states.is_empty() && figures == [38.0], "the last one");
    }
}
