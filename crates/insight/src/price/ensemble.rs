//! Prices one change for every member of the ensemble.
//!
//! A member starts from the solution of the machine as described, so it converges in few rounds. Windows that are similar on that machine stay similar on a
//! slightly different one: only the first of them is solved, and the latencies of the others follow in proportion. As many threads as there are CPUs process
//! the members in parts of fixed size, each with its own starting point, so the result depends neither on the number of threads nor on their order.

use std::sync::atomic::{AtomicUsize, Ordering};

use numapilot_host::workers;
use numapilot_traffic::{Solver, TrafficError};

use super::members::{Member, kept, paces_on};
use super::{Effort, Gathered, Priced, Pricer, Settled, Window};

/// Less effort than for the price itself, because only the ends of the interval depend on a member's run time.
const EFFORT: Effort = Effort { rounds: 3, settled: 1e-3 };
/// Largest relative difference of latencies, and largest absolute difference of utilisations, at which windows count as similar.
const ALIKE: f64 = 0.05;
/// Number of members in a part.
const PART: usize = 25;

/// By window, accessing node and home node.
type Latencies = Vec<Vec<Vec<f64>>>;

/// What a member makes of a change.
#[derive(Clone, Debug, Default)]
pub(super) struct OfMember {
    /// Predicted run time, ns.
    pub run_ns: f64,
    /// Predicted work of all threads, ns ([`Priced::worked_ns`]).
    pub worked_ns: f64,
    /// Mean latency of each of the accesses that are watched, ns.
    pub watched_ns: Vec<f64>,
}

impl Priced {
    /// Keeps the times of some members, as [`super::members::Members::keep`] does the members. `is_left`: which, in their order.
    pub(crate) fn keep(&mut self, is_left: &[bool]) {
        self.members_ns = kept(&self.members_ns, is_left);
        self.members_worked_ns = kept(&self.members_worked_ns, is_left);
        // They were watched to choose the members.
        self.watched_ns.clear();
    }
}

impl Pricer<'_> {
    /// What each member makes of a change; `nominal` is the solution of the machine as described.
    pub(super) fn of_members(&self, gathered: &Gathered, nominal: &Settled) -> Result<Vec<OfMember>, TrafficError> {
        let leaders = leaders(&nominal.windows);
        let parts: Vec<&[Member]> = self.members.all.chunks(PART).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            // One thread processes each part; which one does not matter.
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(at) else { break };
                done.push((at, self.of_part(gathered, nominal, &leaders, part)));
            }
            done
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
        let of_threads = workers::together(threads, work).into_iter();
        let mut done: Vec<_> =
            of_threads.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
        done.sort_by_key(|(at, _)| *at);
        let mut all = Vec::with_capacity(self.members.all.len());
        for (_, of_part) in done {
            all.extend(of_part?);
        }
        Ok(all)
    }

    fn of_part(
        &self,
        gathered: &Gathered,
        nominal: &Settled,
        leaders: &[usize],
        part: &[Member],
    ) -> Result<Vec<OfMember>, TrafficError> {
        // Each window starts from the solution for the previous member.
        let mut solvers: Vec<Solver> = vec![Solver::default(); leaders.len()];
        let mut over_nominal: Latencies = vec![Vec::new(); leaders.len()];
        let mut paces = self.usage.paces.clone();
        let mut of_member = |member: &Member| {
            paces_on(&member.core, self.usage, &mut paces);
            let from = Settled { taken: member.taken, ..nominal.clone() };
            let settled = self.settle(gathered, from, &paces, &EFFORT, |at, window, load| {
                let (leader, was) = (leaders[at], &nominal.windows[at].path_ns);
                if leader == at {
                    over(&mut over_nominal[at], solvers[at].paths(&member.system, load)?, was);
                }
                let ratios = over_nominal[leader].iter().flatten();
                let paths = window.path_ns.iter_mut().flatten().zip(was.iter().flatten());
                paths.zip(ratios).for_each(|((path, was), ratio)| *path = was * ratio);
                Ok(())
            })?;
            let run_ns = gathered.extra_ns + settled.walked.end_ns;
            let worked_ns = gathered.extra_work_ns + self.worked_ns(&settled.busy);
            let watched_ns = self.watched.iter().map(|watched| watched.mean_ns(&settled.windows)).collect();
            Ok(OfMember { run_ns, worked_ns, watched_ns })
        };
        part.iter().map(&mut of_member).collect()
    }
}

/// A member's latencies, `paths`, over those of the machine as described.
fn over(ratios: &mut Vec<Vec<f64>>, paths: &[Vec<f64>], nominal: &[Vec<f64>]) {
    ratios.resize_with(paths.len(), Vec::new);
    for ((ratios, paths), nominal) in ratios.iter_mut().zip(paths).zip(nominal) {
        ratios.clear();
        ratios.extend(paths.iter().zip(nominal).map(|(path, nominal)| path / nominal));
    }
}

/// By window: the first window that is similar to it.
fn leaders(windows: &[Window]) -> Vec<usize> {
    let near = |a: f64, b: f64, scale: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= ALIKE * scale;
    let is_like = |a: &Window, b: &Window| {
        let paths = || a.path_ns.iter().flatten().zip(b.path_ns.iter().flatten());
        // Windows without accesses have no latencies.
        a.path_ns.len() == b.path_ns.len()
            && paths().all(|(a, b)| near(*a, *b, *a))
            && a.stations.iter().zip(&b.stations).all(|(a, b)| near(*a, *b, 1.0))
    };
    let mut leading: Vec<usize> = Vec::new();
    let of_window = |(at, window): (usize, &Window)| {
        let known = leading.iter().copied().find(|&leader| is_like(&windows[leader], window));
        known.unwrap_or_else(|| {
            leading.push(at);
            at
        })
    };
    windows.iter().enumerate().map(of_window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(latency_ns: f64, busy: f64) -> Window {
        Window { lasted_ns: 1.0, path_ns: vec![vec![latency_ns, f64::NAN]], stations: vec![busy] }
    }

    /// A gain is that of one member: without this, the work of one would be compared with that of another.
    #[test]
    fn members_that_are_left_keep_their_run_times_and_their_work() {
        let (members_ns, members_worked_ns) = (vec![10.0, 20.0, 30.0], vec![100.0, 200.0, 300.0]);
        let watched_ns = vec![vec![1.0]; 3];
        let mut priced = Priced { members_ns, members_worked_ns, watched_ns, ..Priced::default() };
        priced.keep(&[true, false, true]);
        assert_eq!((priced.members_ns, priced.members_worked_ns), (vec![10.0, 30.0], vec![100.0, 300.0]));
        assert!(priced.watched_ns.is_empty());
    }

    #[test]
    fn windows_that_are_alike_have_one_leader() {
        let idle = Window::default();
        let windows =
            [window(100.0, 0.5), idle.clone(), window(104.0, 0.54), window(100.0, 0.6), window(120.0, 0.5), idle];
        assert_eq!(leaders(&windows), [0, 1, 0, 3, 4, 1]);
    }
}
