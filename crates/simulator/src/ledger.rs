//! Books of traffic over a stretch of time, and the seven metrics computed from them (`docs/metrics.md`, `docs/simulator.md`).

use serde::Serialize;

use crate::report::Traffic;

/// The seven metrics of a stretch of time, and the rate of memory accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Local access ratio: share of memory accesses that the accessing node's own memory answers.
    pub local_share: Option<f64>,
    /// Mean latency of a memory access, ns.
    pub latency_ns: Option<f64>,
    /// Memory-controller imbalance: standard deviation of the accesses served per node over their mean, dividing by n.
    pub controller_imbalance: Option<f64>,
    /// The same, dividing by n - 1.
    pub controller_imbalance_sample: Option<f64>,
    /// Interconnect usage: mean utilisation of the links.
    pub interconnect_usage: Option<f64>,
    /// Interconnect imbalance: standard deviation of the links' utilisation over their mean, dividing by n.
    pub interconnect_imbalance: Option<f64>,
    /// Memory accesses per 1,000 instructions; `None` where the program's source does not count instructions.
    pub accesses_per_kilo_instruction: Option<f64>,
    /// Instructions per cycle of busy CPUs; `None` likewise, or where the clock is unknown.
    pub instructions_per_cycle: Option<f64>,
    /// Memory accesses per microsecond, whole machine.
    pub accesses_per_us: f64,
}

/// What one epoch adds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// By accessing and answering node.
    pub(crate) reads: Vec<Vec<f64>>,
    pub(crate) writes: Vec<Vec<f64>>,
    /// Sum over accesses of their latencies.
    pub(crate) latency_ns: f64,
    pub(crate) instructions: f64,
    pub(crate) busy_ns: f64,
    /// Utilisation of each station.
    pub(crate) utilisation: Vec<f64>,
}

/// What does not change in a run and metrics need.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Per node: the position of its controller among the stations.
    pub(crate) controllers: Vec<Option<usize>>,
    /// First link among the stations.
    pub(crate) first_link: usize,
    /// `None` where the program does not count instructions.
    pub(crate) clock_mhz: Option<f64>,
    pub(crate) counts_instructions: bool,
}

/// Sums of entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) from_ns: f64,
    pub(crate) to_ns: f64,
    pub(crate) reads: Vec<Vec<f64>>,
    pub(crate) writes: Vec<Vec<f64>>,
    latency_ns: f64,
    instructions: f64,
    busy_ns: f64,
    /// Utilisation times nanoseconds.
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

/// Standard deviation over mean, dividing by `n - less`; `None` without any load.
pub(crate) fn imbalance(values: &[f64], less: usize) -> Option<f64> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    if count <= less || mean <= 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some((squares / (count - less) as f64).sqrt() / mean)
}

impl Ledger {
    /// Empty, from this time on.
    pub(crate) fn at(from_ns: f64) -> Ledger {
        Ledger { from_ns, to_ns: from_ns, ..Ledger::default() }
    }

    /// Adds an epoch that ends at `to_ns`.
    pub(crate) fn book(&mut self, entry: &Entry, to_ns: f64) {
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
        (scale.first_link..self.station_ns.len()).map(|station| self.utilisation(station)).collect()
    }

    pub(crate) fn metrics(&self, scale: &Scale) -> Metrics {
        let served = self.served();
        let total: f64 = served.iter().sum();
        let local: f64 = (0..self.reads.len()).map(|node| self.reads[node][node] + self.writes[node][node]).sum();
        let with_memory = served.iter().zip(&scale.controllers).filter(|(_, station)| station.is_some());
        let with_memory: Vec<f64> = with_memory.map(|(served, _)| *served).collect();
        let links = self.links(scale);
        let counted = scale.counts_instructions && self.instructions > 0.0;
        let cycles = scale.clock_mhz.map(|mhz| self.busy_ns * mhz / 1000.0).filter(|&cycles| cycles > 0.0);
        Metrics {
            local_share: (total > 0.0).then(|| local / total),
            latency_ns: (total > 0.0).then(|| self.latency_ns / total),
            controller_imbalance: imbalance(&with_memory, 0),
            controller_imbalance_sample: imbalance(&with_memory, 1),
            interconnect_usage: (!links.is_empty()).then(|| links.iter().sum::<f64>() / links.len() as f64),
            interconnect_imbalance: imbalance(&links, 0),
            accesses_per_kilo_instruction: counted.then(|| 1000.0 * total / self.instructions),
            instructions_per_cycle: cycles.filter(|_| counted).map(|cycles| self.instructions / cycles),
            accesses_per_us: if self.elapsed_ns() > 0.0 { total / self.elapsed_ns() * 1000.0 } else { 0.0 },
        }
    }

    /// As people are shown it.
    pub(crate) fn traffic(&self, scale: &Scale) -> Traffic {
        Traffic {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            accesses: self.accesses(),
            writes: self.writes.clone(),
            controllers: self.controllers(scale),
            links: self.links(scale),
            metrics: self.metrics(scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arithmetic that every metric must satisfy: all on one of four, one of eight, and the gate of 35 %.
    #[test]
    fn imbalance_is_that_of_the_definitions() {
        let one_of = |count: usize| -> Vec<f64> { (0..count).map(|node| if node == 0 { 7.0 } else { 0.0 }).collect() };
        let percent = |values: &[f64], less| (imbalance(values, less).expect("load") * 100.0).round();
        assert_eq!((percent(&one_of(4), 1), percent(&one_of(4), 0)), (200.0, 173.0));
        assert_eq!((percent(&one_of(8), 1), percent(&one_of(8), 0)), (283.0, 265.0));
        let hottest = |share: f64| [share, (1.0 - share) / 3.0, (1.0 - share) / 3.0, (1.0 - share) / 3.0];
        assert_eq!((percent(&hottest(0.381), 1), percent(&hottest(0.402), 0)), (35.0, 35.0));
        assert_eq!(imbalance(&[0.0, 0.0], 0), None);
    }
}
