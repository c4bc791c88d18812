//! Which samples of a Java virtual machine were drawn with the same random numbers.
//!
//! HotSpot draws the distances between samples from one generator for all threads, and the constructor of each thread starts it anew with its own address as
//! the seed (`ThreadHeapSampler::ThreadHeapSampler`, `_rnd` is static; newer versions have a generator for each thread, with the same seed). A thread that lies
//! where an ended one lay thus repeats the numbers that were drawn after that one began: a program that makes and joins a thread in each of 20 rounds draws the
//! same samples 20 times, and what they add up to is no better known than from one round. An *epoch* lasts from the start of one thread to that of the next.
//! `malloc` gives a new thread the memory of the one that ended last, so epochs whose threads may have lain at one address share a *seed*.

use std::collections::BTreeMap;

use numapilot_flows::{Object, Trace};
use numapilot_trace::ids::{ProcessIndex, TimeNs};

/// The epoch in which an object was sampled. In this order, those of one seed follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch {
    process: ProcessIndex,
    /// Number of the place in memory, from 0, in which the thread lies with whose start it begins.
    seed: usize,
    /// Number of the epoch in its process, from 0.
    index: usize,
}

/// When the epochs of each process began, and with which seed.
pub(super) struct Epochs {
    starts: BTreeMap<ProcessIndex, Vec<(TimeNs, usize)>>,
}

impl Epochs {
    pub(super) fn of(trace: &Trace) -> Epochs {
        let mut lives: BTreeMap<ProcessIndex, Vec<(TimeNs, Option<TimeNs>)>> = BTreeMap::new();
        for thread in trace.threads() {
            lives.entry(thread.process).or_default().push((thread.start, thread.end));
        }
        Epochs { starts: lives.into_iter().map(|(process, lives)| (process, seeds(lives))).collect() }
    }

    pub(super) fn at(&self, object: &Object) -> Epoch {
        let starts = self.starts.get(&object.process).map_or(&[][..], Vec::as_slice);
        let index = starts.partition_point(|&(start, _)| start <= object.birth).saturating_sub(1);
        Epoch { process: object.process, seed: starts.get(index).map_or(0, |&(_, seed)| seed), index }
    }
}

/// The start of each thread and its place: that of the thread that ended last before, or a new one.
fn seeds(mut lives: Vec<(TimeNs, Option<TimeNs>)>) -> Vec<(TimeNs, usize)> {
    lives.sort_by_key(|&(start, _)| start);
    let (mut places, mut taken): (usize, Vec<(TimeNs, usize)>) = (0, Vec::new());
    let mut found = Vec::with_capacity(lives.len());
    for (start, end) in lives {
        let free = (0..taken.len()).filter(|&at| taken[at].0 <= start).max_by_key(|&at| taken[at].0);
        let place = match free {
            Some(at) => taken.swap_remove(at).1,
            None => {
                places += 1;
                places - 1
            }
        };
        taken.extend(end.map(|end| (end, place)));
        found.push((start, place));
    }
    found
}

/// The variance of a sum whose parts have these variances: parts of one seed may err alike, so that their standard errors add up; others are independent.
pub(super) fn variance(of_epochs: &BTreeMap<Epoch, f64>) -> f64 {
    let mut of_seeds: BTreeMap<(ProcessIndex, usize), f64> = BTreeMap::new();
    for (epoch, variance) in of_epochs {
        *of_seeds.entry((epoch.process, epoch.seed)).or_default() += variance.sqrt();
    }
    of_seeds.values().map(|error| error * error).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(seed: usize, index: usize) -> Epoch {
        Epoch { process: ProcessIndex(0), seed, index }
    }

    #[test]
    fn a_thread_takes_the_place_of_the_one_that_ended_last() {
        let lives = [(0, None), (10, Some(20)), (12, Some(30)), (25, Some(26)), (40, None), (41, None), (42, None)];
        let found = seeds(lives.iter().map(|&(start, end)| (TimeNs(start), end.map(TimeNs))).collect());
        let places: Vec<usize> = found.iter().map(|&(_, place)| place).collect();
        assert_eq!(places, [0, 1, 2, 1, 2, 1, 3]);
    }

    #[test]
    fn errors_of_one_seed_add_up() {
        let epochs = BTreeMap::from([(epoch(0, 0), 9.0), (epoch(1, 1), 16.0), (epoch(1, 3), 4.0)]);
        assert_eq!(variance(&epochs), 9.0 + 36.0);
        assert_eq!(variance(&BTreeMap::new()), 0.0);
    }
}
