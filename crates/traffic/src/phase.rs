//! Predicted time of a phase of a program on a machine, from exact counts of its threads' accesses, such as those of an emulator.

use crate::error::TrafficError;
use crate::load::Class;
use crate::load::Load;
use crate::run_time::finish_times_s;
use crate::solver::Solver;
use crate::system::MemorySystem;

/// Counts of one thread, or of one CPU's threads, in a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Node on which it ran, as an index.
    pub from: usize,
    /// Number of instructions.
    pub instructions: f64,
    /// Memory accesses that read from each node's memory, by node index: what missed its caches.
    pub reads: Vec<f64>,
    /// Memory accesses that write to each node's memory, by node index.
    pub writes: Vec<f64>,
}

/// Speed of a core while it does not wait for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Core {
    /// Instructions per second without misses.
    pub instructions_per_s: f64,
    /// Misses that it keeps outstanding, on average.
    pub outstanding: f64,
}

/// Predicted time of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseTime {
    /// Seconds until the last of the work is done.
    pub seconds: f64,
    /// Largest relative change in the last iteration of any load that did not converge; 0 where all did: see [`crate::FinishTimes::residual`].
    pub residual: f64,
}

/// Seconds until the last of `work` is done, each on a core of its own and all from the same moment. Modelled, never measured: who shows it says so.
///
/// # Errors
/// If the machine cannot do the work, or a value is not a number.
pub fn phase_time_s(
    system: &MemorySystem,
    solver: &mut Solver,
    work: &[Work],
    core: Core,
) -> Result<PhaseTime, TrafficError> {
    if !(core.instructions_per_s.is_finite() && core.instructions_per_s > 0.0) {
        let what = format!("{} instructions per second", core.instructions_per_s);
        return Err(TrafficError::Work { what, remedy: "give a number above 0".to_owned() });
    }
    let (mut load, mut accesses) = (Load::default(), Vec::new());
    let mut longest_s: f64 = 0.0;
    for work in work {
        let own_s = work.instructions / core.instructions_per_s;
        let all: f64 = work.reads.iter().chain(&work.writes).sum();
        if all == 0.0 {
            longest_s = longest_s.max(own_s);
            continue;
        }
        let shares = |counts: &[f64]| counts.iter().map(|count| count / all).collect();
        load.classes.push(Class {
            from: work.from,
            threads: 1.0,
            outstanding: core.outstanding,
            think_ns: own_s * 1e9 / all,
            reads: shares(&work.reads),
            writes: shares(&work.writes),
        });
        accesses.push(all);
    }
    let finish = finish_times_s(system, solver, &load, &accesses)?;
    Ok(PhaseTime { seconds: finish.times_s.into_iter().fold(longest_s, f64::max), residual: finish.residual })
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;

    use super::*;

    const CORE: Core = Core { instructions_per_s: 2e9, outstanding: 1.0 };

    fn time_s(work: &[Work]) -> f64 {
        let system = MemorySystem::new(&Machine::load("opteron-8385").expect("a model")).expect("whole");
        let time = phase_time_s(&system, &mut Solver::default(), work, CORE).expect("possible");
        assert_eq!(time.residual, 0.0, "every load is solved");
        time.seconds
    }

    fn reads(from: usize, instructions: f64, reads: [f64; 4]) -> Work {
        Work { from, instructions, reads: reads.to_vec(), writes: vec![0.0; 4] }
    }

    #[test]
    fn a_lone_thread_takes_its_instructions_and_its_latencies() {
        let machine = Machine::load("opteron-8385").expect("a model");
        let nodes = machine.nodes();
        for to in 0..4 {
            let mut counts = [0.0; 4];
            counts[to] = 1e6;
            let idle_ns = machine.idle_latency_ns(nodes[0].id, nodes[to].id).expect("known");
            let expected_s = 3e6 / 2e9 + 1e6 * idle_ns * 1e-9;
            let got_s = time_s(&[reads(0, 3e6, counts)]);
            assert!((got_s / expected_s - 1.0).abs() < 0.01, "to node {to}: {got_s} s, not {expected_s} s");
        }
        assert_eq!(time_s(&[reads(0, 4e9, [0.0; 4])]), 2.0, "no access");
        assert_eq!(time_s(&[]), 0.0);
    }

    #[test]
    fn everybody_on_one_node_takes_longer_than_at_home() {
        let at_home: Vec<Work> = (0..4)
            .map(|node| {
                let mut counts = [0.0; 4];
                counts[node] = 1e7;
                reads(node, 1e7, counts)
            })
            .collect();
        let on_one: Vec<Work> = (0..4).map(|node| reads(node, 1e7, [1e7, 0.0, 0.0, 0.0])).collect();
        assert!(time_s(&on_one) > 1.1 * time_s(&at_home));
    }
}
