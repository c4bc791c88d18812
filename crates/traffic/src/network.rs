//! One load on one memory system as a closed queueing network: a row per class with its demand on each station. All vectors are
//! kept between loads, so that building the next network allocates nothing.

use crate::error::TrafficError;
use crate::load::{Background, Load};
use crate::service::LINE_BYTES;
use crate::system::MemorySystem;
use crate::ways::Visit;

/// Most of a station's time that background traffic gets; the rest of it is not carried. Somebody has to move on.
const BACKGROUND_MAX: f64 = 0.9;
const NS: f64 = 1e9;

/// Demand of one access of a class on one station, in nanoseconds of service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub station: usize,
    /// Service time in nanoseconds that the access waits for.
    pub demand_ns: f64,
    /// Service time in nanoseconds that the access does not wait for: write-backs, probes, flow control.
    pub aside_ns: f64,
}

/// A class in the network.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub from: usize,
    /// Accesses outstanding of all its threads together.
    pub customers: f64,
    /// Own work of a thread between two accesses of the same outstanding slot.
    pub think_ns: f64,
    /// Mean fixed latency of its accesses.
    pub fixed_ns: f64,
    /// Index of the row's first entry.
    pub first: usize,
    pub end: usize,
}

impl Row {
    /// Share of a customer that does not see itself in the queues: a class of less than one customer has less to leave out.
    pub fn own(&self) -> f64 {
        self.customers.min(1.0)
    }
}

/// A station's variance of waits over that of exponential ones of the same mean, 0 to 1, and its derivative by the station's stretch.
#[derive(Clone, Copy, Debug)]
pub struct Variance {
    pub value: f64,
    pub slope: f64,
}

/// A closed queueing network of stations and classes.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub rows: Vec<Row>,
    pub entries: Vec<Entry>,
    /// `[class * nodes + to]`: share of its accesses that go to each node.
    pub shares: Vec<f64>,
    /// `[from * nodes + to]`: whether a class accesses memory there.
    pub is_used: Vec<bool>,
    /// By station: utilisation by background traffic.
    pub base: Vec<f64>,
    /// By station: customers whose accesses ask anything of it; of a class of less than one customer, fewer ([`Row::own`]).
    customers: Vec<f64>,
    /// Share of the background traffic that fits.
    pub background_carried: f64,
    dense: Vec<(f64, f64)>,
}

impl Network {
    /// Lays `load` over `system`.
    pub fn build(&mut self, system: &MemorySystem, load: &Load) -> Result<(), TrafficError> {
        self.rows.clear();
        self.entries.clear();
        self.shares.clear();
        self.is_used.clear();
        self.is_used.resize(system.nodes() * system.nodes(), false);
        self.base.clear();
        self.base.resize(system.stations(), 0.0);
        self.customers.clear();
        self.customers.resize(system.stations(), 0.0);
        self.dense.clear();
        self.dense.resize(system.stations(), (0.0, 0.0));
        for index in 0..load.classes.len() {
            self.class(system, load, index)?;
        }
        for (index, background) in load.background.iter().enumerate() {
            background.check(system, index)?;
            self.background(system, background);
        }
        let fullest = self.base.iter().copied().fold(0.0, f64::max);
        self.background_carried = if fullest > BACKGROUND_MAX { BACKGROUND_MAX / fullest } else { 1.0 };
        self.base.iter_mut().for_each(|b| *b *= self.background_carried);
        Ok(())
    }

    fn class(&mut self, system: &MemorySystem, load: &Load, index: usize) -> Result<(), TrafficError> {
        let class = &load.classes[index];
        class.check(system, index)?;
        let mut fixed_ns = 0.0;
        for (to, (&reads, &writes)) in class.reads.iter().zip(&class.writes).enumerate() {
            let share = reads + writes;
            self.shares.push(share);
            let Some(way) = system.way(class.from, to).filter(|_| share > 0.0) else { continue };
            self.is_used[class.from * system.nodes() + to] = true;
            fixed_ns += share * way.fixed_ns.unwrap_or(0.0);
            let mut add = |visits: &[Visit], demand: f64, aside: f64| {
                for visit in visits {
                    self.dense[visit.station].0 += demand * visit.service_ns;
                    self.dense[visit.station].1 += aside * visit.service_ns;
                }
            };
            add(&way.request, share, 0.0);
            add(&way.answer, share, 0.0);
            add(&way.probe_load, 0.0, share);
            add(&way.control, 0.0, share);
            add(&way.write_back, 0.0, writes);
        }
        let first = self.entries.len();
        for (station, sums) in self.dense.iter_mut().enumerate() {
            let (demand_ns, aside_ns) = std::mem::take(sums);
            if demand_ns > 0.0 || aside_ns > 0.0 {
                self.entries.push(Entry { station, demand_ns, aside_ns });
            }
        }
        let row = Row {
            from: class.from,
            customers: class.threads * class.outstanding,
            think_ns: class.outstanding * class.think_ns,
            fixed_ns,
            first,
            end: self.entries.len(),
        };
        for entry in &self.entries[first..] {
            self.customers[entry.station] += row.customers * row.own();
        }
        self.rows.push(row);
        Ok(())
    }

    /// How much waits at a station vary, where `stretch` is sojourn over service time there. In a queue that an open stream feeds, the number of customers
    /// varies as its mean does, and so do waits: 1. In a closed network the variance of that number is its derivative by the logarithm of the station's service
    /// time; where most of N customers wait already, more service time brings no more of them. For one class and one full station with a
    /// mean queue of n, mean value analysis gives (1 - n / N) / (1 + n^2 / N) of the open queue's variance. The first factor is left out: the queue also has
    /// messages for which no thread waits, so that n may be greater than N.
    pub fn variance(&self, station: usize, stretch: f64) -> Variance {
        let customers = self.customers[station];
        if customers <= 0.0 {
            return Variance { value: 1.0, slope: 0.0 };
        }
        let left = 1.0 - self.base[station];
        let queue = (stretch * left - 1.0).max(0.0);
        let value = 1.0 / (1.0 + queue * queue / customers);
        Variance { value, slope: -value * value * 2.0 * queue * left / customers }
    }

    /// A copy is a read by the target from the source, and a line written to the target.
    fn background(&mut self, system: &MemorySystem, background: &Background) {
        let lines_per_ns = background.bytes_per_s / LINE_BYTES / NS;
        let read = system.way(background.target, background.source);
        let write = system.way(background.target, background.target);
        let reads = read.into_iter().flat_map(|w| [&w.request, &w.answer, &w.probe_load, &w.control]);
        let visits = reads.chain(write.map(|w| &w.write_back));
        visits.flatten().for_each(|v| self.base[v.station] += lines_per_ns * v.service_ns);
    }

    /// The entries of a row.
    pub fn entries_of(&self, row: &Row) -> &[Entry] {
        &self.entries[row.first..row.end]
    }
}
