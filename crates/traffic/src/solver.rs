//! [`Solver`]: solves one load after another on one machine, each from the last solution, without allocating.

use crate::accelerate::Accelerator;
use crate::adjoint::Adjoint;
use crate::answer::{Answer, fill_marginal};
use crate::error::TrafficError;
use crate::load::Load;
use crate::network::Network;
use crate::solution::{Solution, TOLERANCE};
use crate::state::State;
use crate::system::MemorySystem;

/// In place of [`TOLERANCE`] where only loaded latencies are asked for ([`Solver::paths`]): largest relative change in the last iteration.
const PATHS_TOLERANCE: f64 = 1e-6;
/// Most loads take 20, one of a thousand more than 200; those that two full stations share, thousands.
const ITERATIONS_MAX: u32 = 12_000;
/// How far an accelerated step may lead from the plain one, in logarithms: a factor of seven.
const REACH: f64 = 2.0;

impl MemorySystem {
    /// Solves one load. For many loads, keep a [`Solver`].
    pub fn solve(&self, load: &Load) -> Result<Solution, TrafficError> {
        let mut solver = Solver::default();
        solver.solve(self, load)?;
        Ok(solver.into_solution())
    }
}

/// Solves loads. It keeps its vectors and begins where the last solution ended, which a simulation's next epoch or a search's next candidate is
/// near to. The same sequence of loads gives the same solutions to the last bit; another sequence gives the same within
/// [`TOLERANCE`].
#[derive(Clone, Debug, Default)]
pub struct Solver {
    network: Network,
    state: State,
    point: Vec<f64>,
    image: Vec<f64>,
    accelerator: Accelerator,
    adjoint: Adjoint,
    answer: Answer,
    solution: Solution,
}

impl Solver {
    /// Solves `load` on `system`. The solution stays valid until the next call. A load that cannot be leaves the last solution in place.
    pub fn solve(&mut self, system: &MemorySystem, load: &Load) -> Result<&Solution, TrafficError> {
        self.fill(system, load)?;
        self.solution.adjoint_residual = self.adjoint.solve(system, &self.network, &self.state);
        fill_marginal(&mut self.solution, system, &self.adjoint);
        Ok(&self.solution)
    }

    /// The same but for marginal costs, whose own iteration takes about as long: [`Solution::marginal_ns`] is empty, and [`Solution::adjoint_residual`] 0.
    ///
    /// # Errors
    /// The errors of [`Solver::solve`].
    pub fn without_marginal(&mut self, system: &MemorySystem, load: &Load) -> Result<&Solution, TrafficError> {
        self.fill(system, load)?;
        self.solution.adjoint_residual = 0.0;
        self.solution.marginal_ns.clear();
        Ok(&self.solution)
    }

    /// Everything that follows from the fixed point.
    fn fill(&mut self, system: &MemorySystem, load: &Load) -> Result<(), TrafficError> {
        (self.solution.iterations, self.solution.residual) = self.settle(system, load, TOLERANCE)?;
        self.answer.fill(&mut self.solution, system, load, &self.network, &self.state);
        Ok(())
    }

    /// Only the loaded latencies of `load`, as [`Solution::path_ns`] has them, to six digits: for whoever solves many and asks for nothing else.
    ///
    /// # Errors
    /// The errors of [`Solver::solve`].
    pub fn paths(&mut self, system: &MemorySystem, load: &Load) -> Result<&[Vec<f64>], TrafficError> {
        self.settle(system, load, PATHS_TOLERANCE)?;
        self.answer.paths(&mut self.solution.path_ns, system, &self.network, &self.state);
        Ok(&self.solution.path_ns)
    }

    /// Iterates to the fixed point and computes the solution; returns iterations and residual. A point that did not converge is discarded.
    fn settle(&mut self, system: &MemorySystem, load: &Load, tolerance: f64) -> Result<(u32, f64), TrafficError> {
        self.network.build(system, load)?;
        let (stations, classes) = (system.stations(), self.network.rows.len());
        let warm = self.point.len() == stations && self.state.response_ns.len() == classes;
        self.image.resize(stations, 0.0);
        self.begin(system, warm);
        let (mut iterations, mut residual) = self.iterate(system, tolerance);
        if warm && residual >= tolerance {
            self.begin(system, false);
            (iterations, residual) = self.iterate(system, tolerance);
        }
        self.state.wait_for_probes(system, &self.network, |_| true);
        self.state.throughputs(system, &self.network);
        if residual >= tolerance {
            self.forget();
        }
        Ok((iterations, residual))
    }

    /// Where the iteration begins: at the last solution, or at an idle system.
    fn begin(&mut self, system: &MemorySystem, warm: bool) {
        self.state.begin(system, &self.network, warm);
        if !warm {
            self.point.clear();
            self.point.resize(system.stations(), 0.0);
            self.adjoint.reset();
        }
    }

    /// Forgets the last solution: the next load is solved as if it were the first.
    pub fn forget(&mut self) {
        self.point.clear();
    }

    /// Ends the solver and returns its last solution.
    pub fn into_solution(self) -> Solution {
        self.solution
    }

    fn iterate(&mut self, system: &MemorySystem, tolerance: f64) -> (u32, f64) {
        self.accelerator.reset(self.point.len());
        let mut residual = f64::INFINITY;
        for iteration in 1..=ITERATIONS_MAX {
            let change = self.state.advance(system, &self.network, &mut self.image);
            residual = self.accelerator.step(&mut self.point, &self.image, REACH).max(change);
            self.state.read_logs(&mut self.point);
            if residual < tolerance {
                return (iteration, residual);
            }
        }
        (ITERATIONS_MAX, residual)
    }
}
