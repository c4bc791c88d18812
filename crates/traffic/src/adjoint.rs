//! Delay that one more access causes to everybody else, at every station at once.
//!
//! Let J be the sum over classes of X dC: the time that customers lose per nanosecond when cycle times change by dC. At the fixed point
//! u = G(u, b), with b what somebody new asks of the stations, dJ/db = lambda G_b where lambda = w + lambda G_u: one linear fixed point, by the transpose
//! of the map in [`crate::state`], gives the derivative by every station's b. It is iterated with the same acceleration and has the
//! same rate of convergence.

use crate::accelerate::Accelerator;
use crate::network::Network;
use crate::probes;
use crate::state::{State, own_view};
use crate::system::MemorySystem;

/// Relative accuracy of the derivative.
const TOLERANCE: f64 = 1e-8;
const ITERATIONS_MAX: u32 = 400;

/// The derivative, and the vectors of its iteration.
#[derive(Clone, Debug, Default)]
pub struct Adjoint {
    /// By station: nanoseconds lost by all customers per nanosecond of service that somebody new asks of it and waits for.
    pub waited: Vec<f64>,
    /// The same for service that nobody waits for.
    pub aside: Vec<f64>,
    /// Multipliers of stretches and cycle times, in units of their logarithms.
    lambda: Vec<f64>,
    image: Vec<f64>,
    /// By station: derivatives by the stretch, the open traffic and the entries' stretch.
    by_stretch: Vec<f64>,
    by_open: Vec<f64>,
    accelerator: Accelerator,
}

impl Adjoint {
    /// Forgets the last solution.
    pub fn reset(&mut self) {
        self.lambda.clear();
    }

    /// The derivative at the fixed point `state`. Returns the relative residual that is left.
    pub fn solve(&mut self, system: &MemorySystem, network: &Network, state: &State) -> f64 {
        let length = state.stretch.len() + state.cycle_ns.len();
        if self.lambda.len() != length {
            self.lambda.clear();
            self.lambda.resize(length, 0.0);
        }
        self.image.resize(length, 0.0);
        self.accelerator.reset(length);
        for per_station in [&mut self.waited, &mut self.aside, &mut self.by_stretch, &mut self.by_open] {
            per_station.resize(state.stretch.len(), 0.0);
        }
        let mut residual = f64::INFINITY;
        for _ in 0..ITERATIONS_MAX {
            self.transpose(system, network, state);
            let scale = self.image.iter().fold(f64::MIN_POSITIVE, |most, v| most.max(v.abs()));
            residual = self.accelerator.step(&mut self.lambda, &self.image) / scale;
            if residual < TOLERANCE {
                break;
            }
        }
        residual
    }

    /// `image` = w + lambda G_u, `waited` and `aside` = lambda G_b: the steps of [`State::advance`] backwards.
    fn transpose(&mut self, system: &MemorySystem, network: &Network, state: &State) {
        let stations = state.stretch.len();
        let nodes = system.nodes();
        let (station_lambda, class_lambda) = self.lambda.split_at(stations);
        for (station, lambda) in station_lambda.iter().enumerate() {
            // next = 1 + base * stretch + ...; lambda is by the logarithm of next, which equals stretch at the fixed point.
            let by_next = lambda / state.stretch[station];
            self.by_stretch[station] = by_next * network.base[station];
            self.by_open[station] = 0.0;
        }
        for (class, row) in network.rows.iter().enumerate() {
            let (cycle_ns, per_ns) = (state.cycle_ns[class], state.per_ns[class]);
            let mut by_per_ns = 0.0;
            for entry in network.entries_of(row) {
                let view = own_view(row, entry, state.open[entry.station], cycle_ns);
                by_per_ns += station_lambda[entry.station] * (entry.aside_ns + entry.demand_ns * view.factor);
            }
            // Through the new cycle time: its own multiplier, and the new throughput.
            let by_cycle = class_lambda[class] / cycle_ns - by_per_ns * per_ns / cycle_ns;
            let mut by_old_cycle = per_ns;
            for entry in network.entries_of(row) {
                let stretch = state.stretch[entry.station];
                let view = own_view(row, entry, state.open[entry.station], cycle_ns);
                let by_next = station_lambda[entry.station] / stretch;
                let by_own = entry.demand_ns * (by_cycle + by_next * per_ns);
                self.by_stretch[entry.station] += by_own * view.factor + by_next * per_ns * entry.aside_ns;
                self.by_open[entry.station] -= by_own * stretch * view.by_left;
                let share = row.own() * entry.demand_ns / cycle_ns;
                by_old_cycle -= by_own * stretch * view.by_share * share / cycle_ns;
            }
            if system.broadcasts() {
                for (to, share) in network.shares[class * nodes..(class + 1) * nodes].iter().enumerate() {
                    if let Some(way) = system.way(row.from, to).filter(|_| *share > 0.0) {
                        probes::add_slopes(way, &state.stretch, by_cycle * share, &mut self.by_stretch);
                    }
                }
            }
            self.image[stations + class] = by_old_cycle;
        }
        for (station, lambda) in station_lambda.iter().enumerate() {
            self.image[station] = self.by_stretch[station] * state.stretch[station];
            self.waited[station] = *lambda;
            self.aside[station] = lambda + self.by_open[station];
        }
        for (class, row) in network.rows.iter().enumerate() {
            let asides = network.entries_of(row).iter();
            let by_per_ns: f64 = asides.map(|e| self.by_open[e.station] * e.aside_ns).sum();
            let by_old_cycle = self.image[stations + class] - by_per_ns * state.per_ns[class] / state.cycle_ns[class];
            self.image[stations + class] = by_old_cycle * state.cycle_ns[class];
        }
    }
}
