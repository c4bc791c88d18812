//! The fixed point: stations' stretches and classes' cycle times, the map whose fixed point they are, and the map's transpose.
//!
//! Symbols as in `docs/traffic-model.md`: `stretch` is y, `busy` is rho, `cycle_ns` is C, `per_ns` is X.

use crate::network::{Entry, Network, Row};
use crate::probes;
use crate::system::MemorySystem;

/// Least share of a station's time that open traffic is taken to leave when a class's view of its queue is corrected. On its way the iteration may pass
/// points where open traffic alone overfills a station; with less left, classes would then not see the queue that must slow them.
const LEFT_MIN: f64 = 0.05;

/// A point of the iteration, and what follows from it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By station: sojourn over service time, as a stranger's arrival sees it.
    pub stretch: Vec<f64>,
    /// By class: nanoseconds between two accesses of one customer.
    pub cycle_ns: Vec<f64>,
    /// By class: accesses per nanosecond.
    pub per_ns: Vec<f64>,
    /// By station: share of its time that goes to traffic which nobody waits for.
    pub open: Vec<f64>,
    /// `[from * nodes + to]`: wait for probes beyond the line's own.
    pub excess_ns: Vec<f64>,
    /// By class, after [`State::advance`]: latency of its accesses.
    pub latency_ns: Vec<f64>,
    next_stretch: Vec<f64>,
}

/// A class's stretch at a station over a stranger's: it does not meet itself. Also the derivatives by what is left of the station,
/// and by the share of its cycle that a customer spends being served there.
#[derive(Clone, Copy)]
pub struct OwnView {
    pub factor: f64,
    pub by_left: f64,
    pub by_share: f64,
}

/// See [`OwnView`].
pub fn own_view(row: &Row, entry: &Entry, open: f64, cycle_ns: f64) -> OwnView {
    let left = (1.0 - open).max(LEFT_MIN);
    let open_matters = f64::from(u8::from(1.0 - open > LEFT_MIN));
    let share = row.own() * entry.demand_ns / cycle_ns;
    let sum = left + share;
    OwnView { factor: left / sum, by_left: open_matters * share / (sum * sum), by_share: -left / (sum * sum) }
}

impl State {
    /// An idle system: where an iteration begins that knows nothing better.
    pub fn begin(&mut self, system: &MemorySystem, network: &Network) {
        self.stretch.clear();
        self.stretch.resize(system.stations(), 1.0);
        self.cycle_ns.clear();
        for row in &network.rows {
            let served: f64 = network.entries_of(row).iter().map(|e| e.demand_ns).sum();
            self.cycle_ns.push(row.think_ns + row.fixed_ns + served);
        }
        for per_class in [&mut self.per_ns, &mut self.latency_ns] {
            per_class.clear();
            per_class.resize(network.rows.len(), 0.0);
        }
        self.open.resize(system.stations(), 0.0);
        self.next_stretch.resize(system.stations(), 0.0);
        self.excess_ns.clear();
        self.excess_ns.resize(system.nodes() * system.nodes(), 0.0);
    }

    /// One step of the map: `image` becomes the logarithms of the next stretches and cycle times.
    pub fn advance(&mut self, system: &MemorySystem, network: &Network, image: &mut [f64]) {
        self.settle(system, network);
        for (next, (base, stretch)) in self.next_stretch.iter_mut().zip(network.base.iter().zip(&self.stretch)) {
            *next = 1.0 + base * stretch;
        }
        let nodes = system.nodes();
        let stations = self.stretch.len();
        for (class, row) in network.rows.iter().enumerate() {
            let mut latency_ns = row.fixed_ns;
            for entry in network.entries_of(row) {
                let view = own_view(row, entry, self.open[entry.station], self.cycle_ns[class]);
                latency_ns += entry.demand_ns * self.stretch[entry.station] * view.factor;
            }
            if system.broadcasts() {
                let excess = &self.excess_ns[row.from * nodes..(row.from + 1) * nodes];
                let shares = &network.shares[class * nodes..(class + 1) * nodes];
                latency_ns += excess.iter().zip(shares).map(|(e, s)| e * s).sum::<f64>();
            }
            let cycle_ns = row.think_ns + latency_ns;
            let per_ns = row.customers / cycle_ns;
            for entry in network.entries_of(row) {
                let view = own_view(row, entry, self.open[entry.station], self.cycle_ns[class]);
                let busy = entry.aside_ns + entry.demand_ns * view.factor;
                self.next_stretch[entry.station] += per_ns * busy * self.stretch[entry.station];
            }
            self.latency_ns[class] = latency_ns;
            image[stations + class] = cycle_ns.ln();
        }
        image.iter_mut().zip(&self.next_stretch).for_each(|(image, next)| *image = next.ln());
    }

    /// Throughputs, open traffic and waits for probes at this point.
    pub fn settle(&mut self, system: &MemorySystem, network: &Network) {
        self.open.copy_from_slice(&network.base);
        for (class, row) in network.rows.iter().enumerate() {
            self.per_ns[class] = row.customers / self.cycle_ns[class];
            for entry in network.entries_of(row).iter().filter(|e| e.aside_ns > 0.0) {
                self.open[entry.station] += self.per_ns[class] * entry.aside_ns;
            }
        }
        if system.broadcasts() {
            let nodes = system.nodes();
            for (pair, excess) in self.excess_ns.iter_mut().enumerate() {
                let way = system.way(pair / nodes, pair % nodes);
                *excess = way.map_or(0.0, |way| probes::excess_ns(way, &self.stretch));
            }
        }
    }

    /// The point as logarithms: stretches, then cycle times.
    pub fn write_logs(&self, logs: &mut Vec<f64>) {
        logs.clear();
        logs.extend(self.stretch.iter().chain(&self.cycle_ns).map(|v| v.ln()));
    }

    /// Takes a point from logarithms.
    pub fn read_logs(&mut self, logs: &[f64]) {
        self.stretch.iter_mut().chain(&mut self.cycle_ns).zip(logs).for_each(|(v, log)| *v = log.exp());
        // An extrapolated point may undercut an idle station.
        self.stretch.iter_mut().for_each(|y| *y = y.max(1.0));
    }
}
