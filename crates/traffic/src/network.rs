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

/// A closed queueing network of stations and classes.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub rows: Vec<Row>,
    pub entries: Vec<Entry>,
    /// `[class * nodes + to]`: share of its accesses that go to each node.
    pub shares: Vec<f64>,
    /// By station: utilisation by background traffic.
    pub base: Vec<f64>,
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
        self.base.clear();
        self.base.resize(system.stations(), 0.0);
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
        self.rows.push(Row {
            from: class.from,
            customers: class.threads * class.outstanding,
            think_ns: class.outstanding * class.think_ns,
            fixed_ns,
            first,
            end: self.entries.len(),
        });
        Ok(())
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
