//! The fixed point: stations' stretches and classes' responses, and the map whose fixed point they are.
//!
//! Symbols as in `docs/traffic-model.md`: `stretch` is y, `own_stretch` is y_c, `response_ns` is V, `open` is rho_o, `per_ns` is X.

use crate::network::{Network, Variance};
use crate::probes::Race;
use crate::solution::worse_residual;
use crate::system::MemorySystem;

/// Least share of a station's time that open traffic is taken to leave when a class's response is computed: on its way the iteration may pass
/// points where open traffic alone overfills a station.
pub const LEFT_MIN: f64 = 0.05;

/// A point of the iteration, and what follows from it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By station: sojourn over service time, as a stranger's arrival sees it. It is one more than the customers there.
    pub stretch: Vec<f64>,
    /// By class: how a customer taken away would leave its places, in nanoseconds; see the document.
    pub response_ns: Vec<f64>,
    /// By entry of the network: the stretch that the class itself sees there.
    pub own_stretch: Vec<f64>,
    /// By class: latency of its accesses, time between two accesses of one customer, accesses per nanosecond.
    pub latency_ns: Vec<f64>,
    pub cycle_ns: Vec<f64>,
    pub per_ns: Vec<f64>,
    /// By class: the time between two accesses of one customer if it waited in queues as the model says ([`MemorySystem::with_queues`]).
    modelled_ns: Vec<f64>,
    /// By station: share of its time that goes to background traffic.
    pub open: Vec<f64>,
    /// `[from * nodes + to]`: wait for probes beyond the line's own.
    pub excess_ns: Vec<f64>,
    /// By station: how much waits vary. Only where probes are broadcast.
    pub variance: Vec<Variance>,
    race: Race,
}

impl State {
    /// Takes the network's size. Unless `warm` says that the last point is near, begins at an idle system.
    pub fn begin(&mut self, system: &MemorySystem, network: &Network, warm: bool) {
        if !warm {
            self.stretch.clear();
            self.stretch.resize(system.stations(), 1.0);
            self.response_ns.clear();
            for row in &network.rows {
                let served: f64 = network.entries_of(row).iter().map(|e| e.demand_ns).sum();
                self.response_ns.push(row.think_ns + row.fixed_ns + served);
            }
        }
        self.own_stretch.resize(network.entries.len(), 1.0);
        for per_class in [&mut self.latency_ns, &mut self.cycle_ns, &mut self.per_ns, &mut self.modelled_ns] {
            per_class.resize(network.rows.len(), 0.0);
        }
        self.open.resize(system.stations(), 0.0);
        self.excess_ns.clear();
        self.excess_ns.resize(system.nodes() * system.nodes(), 0.0);
        self.variance.resize(system.stations(), Variance { value: 1.0, slope: 0.0 });
    }

    /// One step of the map: `image` becomes the logarithms of the next stretches; responses follow the stretches at once. Returns the greatest relative
    /// change of a response; infinite where one is no number.
    pub fn advance(&mut self, system: &MemorySystem, network: &Network, image: &mut [f64]) -> f64 {
        // Where nobody goes, nobody is kept waiting.
        self.wait_for_probes(system, network, |pair| network.is_used[pair]);
        self.throughputs(system, network);
        let mut change = 0.0f64;
        for (class, row) in network.rows.iter().enumerate() {
            // By the model's own waits, whatever they are taken times: own stretches then stay so far below strangers' that no station is fuller than full.
            let mut response_ns = self.modelled_ns[class];
            for (entry, own) in network.entries_of(row).iter().zip(&self.own_stretch[row.first..row.end]) {
                let left = (1.0 - self.open[entry.station]).max(LEFT_MIN);
                response_ns += entry.demand_ns * own * (own * left - 1.0);
            }
            change = worse_residual(change, (response_ns / self.response_ns[class] - 1.0).abs());
            self.response_ns[class] = response_ns;
        }
        self.throughputs(system, network);
        for ((next, open), stretch) in image.iter_mut().zip(&self.open).zip(&self.stretch) {
            *next = 1.0 + open * stretch;
        }
        for (row, per_ns) in network.rows.iter().zip(&self.per_ns) {
            for (entry, own) in network.entries_of(row).iter().zip(&self.own_stretch[row.first..row.end]) {
                image[entry.station] += per_ns * entry.demand_ns * own;
            }
        }
        image.iter_mut().for_each(|next| *next = next.ln());
        change
    }

    /// Latency that probes add at these stretches, for the pairs of nodes (`from * nodes + to`) that are asked for.
    pub fn wait_for_probes(&mut self, system: &MemorySystem, network: &Network, is_asked: impl Fn(usize) -> bool) {
        let nodes = system.nodes();
        if system.broadcasts() {
            for (station, (variance, stretch)) in self.variance.iter_mut().zip(&self.stretch).enumerate() {
                *variance = network.variance(station, *stretch);
            }
            for (pair, excess) in self.excess_ns.iter_mut().enumerate().filter(|(pair, _)| is_asked(*pair)) {
                let way = system.way(pair / nodes, pair % nodes);
                *excess = way.map_or(0.0, |way| self.race.excess_ns(way, &self.stretch, &self.variance));
            }
        }
    }

    /// What follows from the point: latencies, throughputs, open traffic. Takes [`State::wait_for_probes`] as it is.
    pub fn throughputs(&mut self, system: &MemorySystem, network: &Network) {
        let nodes = system.nodes();
        let more_queues = system.queues() - 1.0;
        self.open.copy_from_slice(&network.base);
        for (class, row) in network.rows.iter().enumerate() {
            let mut latency_ns = row.fixed_ns;
            let mut idle_ns = row.fixed_ns;
            let share = row.own() / self.response_ns[class];
            for (entry, own) in network.entries_of(row).iter().zip(&mut self.own_stretch[row.first..row.end]) {
                // The positive root of own + share * demand * own^2 = stretch.
                let stretch = self.stretch[entry.station];
                *own = stretch / (0.5 + (0.25 + share * entry.demand_ns * stretch).sqrt());
                latency_ns += entry.demand_ns * *own;
                idle_ns += entry.demand_ns;
            }
            if system.crowds() {
                let own = &self.own_stretch[row.first..row.end];
                let waits = network.entries_of(row).iter().zip(own);
                latency_ns += waits.map(|(e, own)| e.demand_ns * system.crowd(e.station, *own)).sum::<f64>();
            }
            if system.broadcasts() {
                let excess = &self.excess_ns[row.from * nodes..(row.from + 1) * nodes];
                let shares = &network.shares[class * nodes..(class + 1) * nodes];
                latency_ns += excess.iter().zip(shares).map(|(e, s)| e * s).sum::<f64>();
            }
            self.modelled_ns[class] = row.think_ns + latency_ns;
            if more_queues != 0.0 {
                latency_ns += more_queues * (latency_ns - idle_ns);
            }
            self.latency_ns[class] = latency_ns;
            self.cycle_ns[class] = row.think_ns + latency_ns;
            self.per_ns[class] = row.customers / self.cycle_ns[class];
            for entry in network.entries_of(row) {
                self.open[entry.station] += self.per_ns[class] * entry.aside_ns;
            }
        }
    }

    /// Takes stretches from their logarithms. An extrapolated point may undercut an idle station: it and the logarithm are put right.
    pub fn read_logs(&mut self, logs: &mut [f64]) {
        for (stretch, log) in self.stretch.iter_mut().zip(logs) {
            *log = log.max(0.0);
            *stretch = log.exp();
        }
    }
}

#[cfg(test)]
mod tests {
    use numapilot_machine::Machine;

    use super::*;
    use crate::load::{Class, Load};

    /// It was left out of the change, which was then that of the other classes: the iteration could end there.
    #[test]
    fn a_response_that_is_no_number_has_not_settled() {
        let system = MemorySystem::new(&Machine::load("opteron-8385").expect("a model")).expect("whole");
        let (reads, writes) = (vec![1.0, 0.0, 0.0, 0.0], vec![0.0; 4]);
        let class = Class { from: 0, threads: 1.0, outstanding: 1.0, think_ns: 0.0, reads, writes };
        let (mut network, mut state) = (Network::default(), State::default());
        let load = Load { classes: vec![class.clone(), class], background: Vec::new() };
        network.build(&system, &load).expect("a sound load");
        state.begin(&system, &network, false);
        let mut image = vec![0.0; system.stations()];
        assert!(state.advance(&system, &network, &mut image).is_finite());
        state.response_ns[1] = f64::NAN;
        assert_eq!(state.advance(&system, &network, &mut image), f64::INFINITY);
    }
}
