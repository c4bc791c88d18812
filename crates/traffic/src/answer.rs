//! From the fixed point to the solution: latencies of pairs, marginal costs, loads of stations.

use crate::adjoint::Adjoint;
use crate::load::Load;
use crate::network::Network;
use crate::service::LINE_BYTES;
use crate::solution::{Solution, StationLoad};
use crate::state::State;
use crate::system::{MemorySystem, Station};
use crate::ways::{Visit, Way};

const NS: f64 = 1e9;

/// Scratch for filling solutions.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// By station: the stretch that the threads of one node see.
    stretch: Vec<f64>,
}

impl Answer {
    /// Fills every field that follows from the fixed point alone.
    pub fn fill(
        &mut self,
        solution: &mut Solution,
        system: &MemorySystem,
        load: &Load,
        network: &Network,
        state: &State,
    ) {
        solution.throughput_per_s.clear();
        solution.throughput_per_s.extend(state.per_ns.iter().map(|x| x * NS));
        solution.latency_ns.clone_from(&state.latency_ns);
        solution.background_carried = network.background_carried;
        self.paths(&mut solution.path_ns, system, network, state);
        stations(solution, system, load, network, state);
    }

    /// Loaded latencies, ns, by accessing and answering node; NaN where there is no way.
    pub fn paths(&mut self, paths: &mut Vec<Vec<f64>>, system: &MemorySystem, network: &Network, state: &State) {
        size(paths, system.nodes());
        for (from, paths) in paths.iter_mut().enumerate() {
            self.view_from(system, network, state, from);
            for (to, path) in paths.iter_mut().enumerate() {
                let of = |way: &Way| {
                    let excess = state.excess_ns[from * system.nodes() + to];
                    let fixed_ns = way.fixed_ns?;
                    let loaded =
                        fixed_ns + weigh(&way.request, &self.stretch) + weigh(&way.answer, &self.stretch) + excess;
                    let more_queues = system.queues() - 1.0;
                    let more =
                        if more_queues == 0.0 { 0.0 } else { more_queues * (loaded - fixed_ns - way.service_ns()) };
                    Some(loaded + more)
                };
                *path = system.way(from, to).and_then(of).unwrap_or(f64::NAN);
            }
        }
    }

    /// Stretch of the accesses of the threads on `from` at each station, on average over them; that of an additional access where there are none. With what
    /// they wait beside queues.
    fn view_from(&mut self, system: &MemorySystem, network: &Network, state: &State, from: usize) {
        let with_crowd = |station: usize, stretch: f64| {
            if system.crowds() { stretch + system.crowd(station, stretch) } else { stretch }
        };
        self.stretch.clear();
        self.stretch.extend(state.stretch.iter().enumerate().map(|(station, stretch)| with_crowd(station, *stretch)));
        let rows = || network.rows.iter().enumerate().filter(|(_, row)| row.from == from);
        let all: f64 = rows().map(|(class, _)| state.per_ns[class]).sum();
        if all <= 0.0 {
            return;
        }
        for (class, row) in rows() {
            let entries = network.entries_of(row).iter().zip(&state.own_stretch[row.first..row.end]);
            for (entry, own) in entries {
                let stranger = with_crowd(entry.station, state.stretch[entry.station]);
                self.stretch[entry.station] -= state.per_ns[class] / all * (stranger - with_crowd(entry.station, *own));
            }
        }
    }
}

/// Fills the marginal costs of a solution that [`Answer::fill`] has filled: loaded latencies, and the delay of all others.
pub fn fill_marginal(solution: &mut Solution, system: &MemorySystem, adjoint: &Adjoint) {
    size(&mut solution.marginal_ns, system.nodes());
    for (from, paths) in solution.path_ns.iter().enumerate() {
        for (to, path) in paths.iter().enumerate() {
            let others = |way: &Way| {
                weigh(&way.request, &adjoint.waited)
                    + weigh(&way.answer, &adjoint.waited)
                    + weigh(&way.probe_load, &adjoint.aside)
                    + weigh(&way.control, &adjoint.aside)
            };
            solution.marginal_ns[from][to] = system.way(from, to).map_or(f64::NAN, |way| path + others(way));
        }
    }
}

fn size(matrix: &mut Vec<Vec<f64>>, nodes: usize) {
    matrix.resize_with(nodes, Vec::new);
    matrix.iter_mut().for_each(|row| row.resize(nodes, f64::NAN));
}

/// Sum of visits' service times, each times its station's value.
fn weigh(visits: &[Visit], by_station: &[f64]) -> f64 {
    visits.iter().map(|v| v.service_ns * by_station[v.station]).sum()
}

fn stations(solution: &mut Solution, system: &MemorySystem, load: &Load, network: &Network, state: &State) {
    solution.stations.resize(system.stations(), StationLoad::default());
    for (station, out) in solution.stations.iter_mut().enumerate() {
        out.utilisation = state.open[station];
        out.queue = state.stretch[station] - 1.0;
    }
    for (class, row) in network.rows.iter().enumerate() {
        for entry in network.entries_of(row) {
            solution.stations[entry.station].utilisation += state.per_ns[class] * entry.demand_ns;
        }
    }
    for (station, out) in solution.stations.iter_mut().enumerate() {
        let (utilisation, queue) = (out.utilisation, out.queue);
        *out = StationLoad { utilisation, queue, ..StationLoad::default() };
        out.bytes_per_s = match system.kinds()[station] {
            Station::Controller { node, id } => {
                out.controller = Some(id);
                controller_bytes(load, network, state, node)
            }
            Station::Link { id, bandwidth_bytes_per_s } => {
                out.link = Some(id);
                utilisation * bandwidth_bytes_per_s
            }
            Station::ReadPort { id, bandwidth_bytes_per_s } => {
                out.read_port = Some(id);
                utilisation * bandwidth_bytes_per_s
            }
            Station::WritePort { id, bandwidth_bytes_per_s } => {
                out.write_port = Some(id);
                utilisation * bandwidth_bytes_per_s
            }
        };
    }
}

/// Bytes per second read and written at a node's controller.
fn controller_bytes(load: &Load, network: &Network, state: &State, node: usize) -> f64 {
    let classes = load.classes.iter().zip(&state.per_ns);
    let lines: f64 = classes.map(|(class, per_ns)| per_ns * (class.reads[node] + 2.0 * class.writes[node])).sum();
    let copies = |b: &crate::Background| {
        b.bytes_per_s * (f64::from(u8::from(b.source == node)) + f64::from(u8::from(b.target == node)))
    };
    lines * LINE_BYTES * NS + load.background.iter().map(copies).sum::<f64>() * network.background_carried
}
