//! Sums of traffic over an interval of time, and the NUMA metrics computed from them (`docs/metrics.md`, `docs/simulator.md`).

use numapilot_traffic::{Imbalance, Metrics};

use crate::report::Traffic;

/// The traffic of one epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// By accessing node (row) and home node (column).
    pub(crate) reads: Vec<Vec<f64>>,
    pub(crate) writes: Vec<Vec<f64>>,
    /// Sum over accesses of their latencies.
    pub(crate) latency_ns: f64,
    pub(crate) instructions: f64,
    pub(crate) busy_ns: f64,
    /// Utilisation of each station.
    pub(crate) utilisation: Vec<f64>,
}

/// Constants of a run that the metrics need.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Per node: the position of its controller among the stations.
    pub(crate) controllers: Vec<Option<usize>>,
    /// First link among the stations, and how many links there are: ports come after them.
    pub(crate) first_link: usize,
    pub(crate) links: usize,
    /// `None` where the program does not count instructions.
    pub(crate) clock_mhz: Option<f64>,
    pub(crate) counts_instructions: bool,
}

/// Sums of the entries of all epochs since the last reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) from_ns: f64,
    pub(crate) to_ns: f64,
    pub(crate) reads: Vec<Vec<f64>>,
    pub(crate) writes: Vec<Vec<f64>>,
    latency_ns: f64,
    instructions: f64,
    busy_ns: f64,
    /// By station: utilisation (0 to 1) times nanoseconds.
    station_ns: Vec<f64>,
}

fn add(sums: &mut Vec<f64>, more: &[f64], factor: f64) {
    sums.resize(more.len(), 0.0);
    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x * factor);
}

fn add_rows(sums: &mut Vec<Vec<f64>>, more: &[Vec<f64>]) {
    sums.resize(more.len(), Vec::new());
    sums.iter_mut().zip(more).for_each(|(sum, row)| add(sum, row, 1.0));
}

impl Ledger {
    /// Empty, from this time on.
    pub(crate) fn at(from_ns: f64) -> Ledger {
        Ledger { from_ns, to_ns: from_ns, ..Ledger::default() }
    }

    /// Adds an epoch that ends at `to_ns`.
    pub(crate) fn record(&mut self, entry: &Entry, to_ns: f64) {
        add_rows(&mut self.reads, &entry.reads);
        add_rows(&mut self.writes, &entry.writes);
        add(&mut self.station_ns, &entry.utilisation, to_ns - self.to_ns);
        self.latency_ns += entry.latency_ns;
        self.instructions += entry.instructions;
        self.busy_ns += entry.busy_ns;
        self.to_ns = to_ns;
    }

    /// Adds another ledger that begins where this one ends.
    pub(crate) fn append(&mut self, next: &Ledger) {
        add_rows(&mut self.reads, &next.reads);
        add_rows(&mut self.writes, &next.writes);
        add(&mut self.station_ns, &next.station_ns, 1.0);
        self.latency_ns += next.latency_ns;
        self.instructions += next.instructions;
        self.busy_ns += next.busy_ns;
        self.to_ns = next.to_ns;
    }

    pub(crate) fn elapsed_ns(&self) -> f64 {
        self.to_ns - self.from_ns
    }

    /// Reads and writes by accessing and answering node.
    pub(crate) fn accesses(&self) -> Vec<Vec<f64>> {
        let mut sums = self.reads.clone();
        add_rows(&mut sums, &self.writes);
        sums
    }

    /// Accesses that each node answered.
    pub(crate) fn served(&self) -> Vec<f64> {
        let mut served = Vec::new();
        self.reads.iter().chain(&self.writes).for_each(|row| add(&mut served, row, 1.0));
        served
    }

    fn utilisation(&self, station: usize) -> f64 {
        let elapsed = self.elapsed_ns();
        let busy = self.station_ns.get(station).copied().unwrap_or(0.0);
        if elapsed > 0.0 { busy / elapsed } else { 0.0 }
    }

    /// Mean utilisation of controllers, by node.
    pub(crate) fn controllers(&self, scale: &Scale) -> Vec<Option<f64>> {
        scale.controllers.iter().map(|station| station.map(|station| self.utilisation(station))).collect()
    }

    /// Mean utilisation of links.
    pub(crate) fn links(&self, scale: &Scale) -> Vec<f64> {
        let end = self.station_ns.len().min(scale.first_link + scale.links);
        (scale.first_link..end).map(|station| self.utilisation(station)).collect()
    }

    /// The seven metrics, as [`numapilot_traffic::metrics`] defines them, over the whole stretch.
    pub(crate) fn metrics(&self, scale: &Scale) -> Metrics {
        let served = self.served();
        let total: f64 = served.iter().sum();
        let local: f64 = (0..self.reads.len()).map(|node| self.reads[node][node] + self.writes[node][node]).sum();
        let with_memory = served.iter().zip(&scale.controllers).filter(|(_, station)| station.is_some());
        let with_memory: Vec<f64> = with_memory.map(|(served, _)| *served).collect();
        let links = self.links(scale);
        let per_access = |sum: f64| (total > 0.0).then(|| sum / total);
        let instructions = Some(self.instructions).filter(|&count| scale.counts_instructions && count > 0.0);
        let cycles = scale.clock_mhz.map(|mhz| self.busy_ns * mhz / 1000.0).filter(|&cycles| cycles > 0.0);
        let latency_ns = per_access(self.latency_ns);
        Metrics {
            local_access_ratio: per_access(local),
            memory_latency_ns: latency_ns,
            memory_latency_cycles: latency_ns.zip(scale.clock_mhz).map(|(ns, mhz)| ns * mhz / 1000.0),
            controller_imbalance: Imbalance::of(&with_memory),
            interconnect_usage: (!links.is_empty()).then(|| links.iter().sum::<f64>() / links.len() as f64),
            interconnect_imbalance: Imbalance::of(&links),
            l3_mpki: instructions.map(|instructions| 1000.0 * total / instructions),
            ipc: instructions.zip(cycles).map(|(instructions, cycles)| instructions / cycles),
        }
    }

    /// The sums as a report shows them.
    pub(crate) fn traffic(&self, scale: &Scale) -> Traffic {
        Traffic {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            accesses: self.accesses(),
            writes: self.writes.clone(),
            controllers: self.controllers(scale),
            links: self.links(scale),
            accesses_per_us: self.served().iter().sum::<f64>() / self.elapsed_ns().max(1.0) * 1000.0,
            metrics: self.metrics(scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_no_links() {
        let controllers = vec![Some(0)];
        let scale = Scale { controllers, first_link: 1, links: 2, clock_mhz: None, counts_instructions: false };
        let mut ledger = Ledger::at(0.0);
        assert!(ledger.links(&scale).is_empty(), "nothing ran yet");
        ledger.record(&Entry { utilisation: vec![0.5, 0.25, 0.75, 1.0], ..Entry::default() }, 8.0);
        assert_eq!(ledger.links(&scale), [0.25, 0.75]);
        assert_eq!(ledger.metrics(&scale).interconnect_usage, Some(0.5));
    }
}
