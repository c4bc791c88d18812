//! Delay that one more access causes to all other accesses, at every station at once.
//!
//! Let J be the sum over classes of X dC: the time that customers lose per nanosecond when cycle times change by dC. At the fixed point
//! u = G(u, b), with b the additional demand on the stations, dJ/db = lambda G_b where lambda = J_u + lambda G_u: one linear fixed point, by the
//! transpose of the map in [`crate::state`], gives the derivative by every station's b. It is iterated with the same acceleration and has
//! the same rate of convergence.

use crate::accelerate::Accelerator;
use crate::network::Network;
use crate::probes::Race;
use crate::state::{LEFT_MIN, State};
use crate::system::MemorySystem;

/// Relative accuracy of the derivative.
const TOLERANCE: f64 = 1e-8;
const ITERATIONS_MAX: u32 = 400;

/// The derivative, and the vectors of its iteration.
#[derive(Clone, Debug, Default)]
pub struct Adjoint {
    /// By station: nanoseconds lost by all customers per nanosecond of service of an additional access that waits for it.
    pub waited: Vec<f64>,
    /// The same for background traffic, which no thread waits for.
    pub aside: Vec<f64>,
    /// Multipliers of stretches and responses, by their logarithms.
    lambda: Vec<f64>,
    image: Vec<f64>,
    accelerator: Accelerator,
    /// `[pair * stations + station]`, pairs as in [`State::excess_ns`]: derivative of the wait for probes by the station's stretch.
    by_probes: Vec<f64>,
    /// By pair: derivative by the wait for probes.
    by_pair: Vec<f64>,
    race: Race,
}

impl Adjoint {
    /// Forgets the last solution.
    pub fn reset(&mut self) {
        self.lambda.clear();
    }

    /// The derivative at the fixed point `state`. Returns the relative residual that is left.
    pub fn solve(&mut self, system: &MemorySystem, network: &Network, state: &State) -> f64 {
        let stations = state.stretch.len();
        let length = stations + state.response_ns.len();
        if self.lambda.len() != length {
            self.lambda.clear();
            self.lambda.resize(length, 0.0);
        }
        self.image.resize(length, 0.0);
        self.aside.resize(stations, 0.0);
        self.accelerator.reset(length);
        self.probes(system, state);
        let mut residual = f64::INFINITY;
        for _ in 0..ITERATIONS_MAX {
            self.transpose(system, network, state);
            let scale = self.image.iter().fold(f64::MIN_POSITIVE, |most, v| most.max(v.abs()));
            residual = self.accelerator.step(&mut self.lambda, &self.image, f64::INFINITY) / scale;
            if residual < TOLERANCE {
                break;
            }
        }
        self.waited.clear();
        self.waited.extend_from_slice(&self.lambda[..stations]);
        residual
    }

    /// Derivatives of the waits for probes, which are the same at every step.
    fn probes(&mut self, system: &MemorySystem, state: &State) {
        let (nodes, stations) = (system.nodes(), state.stretch.len());
        let pairs = if system.broadcasts() { nodes * nodes } else { 0 };
        self.by_pair.clear();
        self.by_pair.resize(pairs, 0.0);
        self.by_probes.clear();
        self.by_probes.resize(pairs * stations, 0.0);
        for (pair, slopes) in self.by_probes.chunks_exact_mut(stations.max(1)).enumerate() {
            if let Some(way) = system.way(pair / nodes, pair % nodes) {
                self.race.add_slopes(way, &state.stretch, &state.variance, slopes);
            }
        }
    }

    /// `image` = J_u + lambda G_u and `aside` = lambda G_b for open traffic: the steps of [`State::advance`] backwards. A variable called `by_x` holds the
    /// derivative by x.
    fn transpose(&mut self, system: &MemorySystem, network: &Network, state: &State) {
        let stations = state.stretch.len();
        let (station_lambda, class_lambda) = self.lambda.split_at(stations);
        let (by_stretch, by_response) = self.image.split_at_mut(stations);
        // Through open traffic: next stretches directly, next responses by what it leaves.
        self.aside.copy_from_slice(station_lambda);
        for (class, row) in network.rows.iter().enumerate() {
            let by_next_response = class_lambda[class] / state.response_ns[class];
            for (entry, own) in network.entries_of(row).iter().zip(&state.own_stretch[row.first..row.end]) {
                if 1.0 - state.open[entry.station] > LEFT_MIN {
                    self.aside[entry.station] -= by_next_response * entry.demand_ns * own * own;
                }
            }
        }
        for (station, by) in by_stretch.iter_mut().enumerate() {
            *by = station_lambda[station] / state.stretch[station] * state.open[station];
        }
        let nodes = system.nodes();
        let more_queues = system.queues() - 1.0;
        self.by_pair.fill(0.0);
        for (class, row) in network.rows.iter().enumerate() {
            let per_ns = state.per_ns[class];
            let by_next_response = class_lambda[class] / state.response_ns[class];
            let entries = || network.entries_of(row).iter().zip(&state.own_stretch[row.first..row.end]);
            let by_next = |station: usize| station_lambda[station] / state.stretch[station];
            let by_per_ns: f64 = entries()
                .map(|(e, own)| by_next(e.station) * e.demand_ns * own + self.aside[e.station] * e.aside_ns)
                .sum();
            let by_throughput = by_per_ns * per_ns / state.cycle_ns[class];
            let mut by_wait = per_ns + by_next_response - by_throughput;
            // Responses follow the model's own waits, everything else what these are taken times.
            if more_queues != 0.0 {
                by_wait += more_queues * (per_ns - by_throughput);
            }
            let share = row.own() / state.response_ns[class];
            let mut by_share = 0.0;
            for (entry, own) in entries() {
                let left = (1.0 - state.open[entry.station]).max(LEFT_MIN);
                let mut by_own =
                    by_wait + by_next_response * (2.0 * own * left - 1.0) + by_next(entry.station) * per_ns;
                if system.crowds() {
                    by_own += by_wait * system.crowd_slope(entry.station, *own);
                }
                // own + share * demand * own^2 = stretch, differentiated.
                let by_root = entry.demand_ns * by_own / (1.0 + 2.0 * share * entry.demand_ns * own);
                by_stretch[entry.station] += by_root;
                by_share -= by_root * entry.demand_ns * own * own;
            }
            // share = own / response, by the logarithm of the response.
            by_response[class] = -by_share * share;
            if system.broadcasts() {
                for (to, part) in network.shares[class * nodes..(class + 1) * nodes].iter().enumerate() {
                    self.by_pair[row.from * nodes + to] += by_wait * part;
                }
            }
        }
        for (by, slopes) in self.by_pair.iter().zip(self.by_probes.chunks_exact(stations.max(1))) {
            if *by != 0.0 {
                by_stretch.iter_mut().zip(slopes).for_each(|(by_stretch, slope)| *by_stretch += by * slope);
            }
        }
        by_stretch.iter_mut().zip(&state.stretch).for_each(|(by, stretch)| *by *= stretch);
    }
}
