//! Whole-machine figures: totals, the node-to-node matrix, controller imbalance, links, and all of it over time.
//!
//! Exact where the engine counted every access and no filter is set; estimated from weighted samples otherwise. Each figure
//! says which.

use numapilot_machine::NodeId;
use numapilot_trace::ids::{ThreadIndex, TimeNs};
use serde::Serialize;

use crate::context::{AllSums, Analysis};
use crate::estimate::{Estimate, Tally};

/// Bytes that one memory access moves: a cache line.
pub const LINE_BYTES: f64 = 64.0;

/// Share of accesses with an unknown home node above which nothing is said of placement.
pub(crate) const UNKNOWN_MAX: f64 = 0.5;

/// Share of accesses with an unknown home node, 0 to 1, from which findings say so and nothing is called well placed: the same as of one object's pages. Gains
/// leave them out however few they are.
pub(crate) const UNKNOWN_MATERIAL: f64 = 0.05;

/// Number of samples of a recording, or of a site, below which nothing is judged by them.
pub(crate) const ENOUGH_SAMPLES: u64 = 30;

/// How a figure was obtained: counted, or estimated from samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Every access was counted.
    Counted,
    /// Estimated from samples.
    Sampled,
}

/// Spread of accesses over the memory controllers: standard deviation over mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Imbalance {
    /// With the sample standard deviation (divided by n - 1). All on one of four nodes gives 2.
    pub sample: Estimate,
    /// With the population standard deviation (divided by n). All on one of four nodes gives 1.73.
    pub population: Estimate,
}

/// Accesses from node to node: `accesses[i][j]` from node i to memory of node j, in the order of `nodes`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matrix {
    /// Nodes of rows and columns.
    pub nodes: Vec<NodeId>,
    /// Number of memory accesses by accessing node (row) and home node (column).
    pub accesses: Vec<Vec<Estimate>>,
    /// Number of memory accesses in none of these cells: their home node, or the node from which they came, is unknown.
    pub unknown: f64,
    /// Whether they were counted or sampled.
    pub source: Source,
}

/// Totals of the recording, or of what the filter lets pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// How the accesses, shares and per-node figures were found.
    pub source: Source,
    /// Number of samples.
    pub samples: u64,
    /// Number of memory accesses.
    pub accesses: Estimate,
    /// Of these with known home: remote ones.
    pub remote_accesses: Estimate,
    /// Remote accesses over accesses with known home.
    pub remote_share: Estimate,
    /// Local accesses over accesses with known home (local access ratio).
    pub local_share: Estimate,
    /// Share of accesses that write.
    pub write_share: Estimate,
    /// Instrumented accesses of the program, where counted: memory accesses over these is the miss ratio.
    pub program_accesses: Option<u64>,
    /// Memory accesses that another cache answered, where counted.
    pub cache_transfers: Option<u64>,
    /// Accesses served by each node, in the order of [`Analysis::nodes`].
    pub served: Vec<Estimate>,
    /// Spread of `served` over the nodes that have memory.
    pub imbalance: Imbalance,
    /// Program time covered, in nanoseconds.
    pub duration: TimeNs,
}

impl Totals {
    /// Whether enough of the accesses have a known home node (and come from a known node) for shares of remote ones to mean anything.
    #[must_use]
    pub fn knows_homes(&self) -> bool {
        let known = self.known_accesses();
        known > 0.0 && known >= (1.0 - UNKNOWN_MAX) * self.accesses.value
    }

    /// Number of memory accesses that have a known home node and come from a known node: those that the remote share is of.
    #[must_use]
    pub fn known_accesses(&self) -> f64 {
        self.served.iter().map(|served| served.value).sum()
    }

    /// Whether these are all memory accesses.
    #[must_use]
    pub fn knows_all_homes(&self) -> bool {
        self.known_accesses() >= self.accesses.value * (1.0 - 1e-9)
    }
}

/// One slice of program time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Its start; it ends where the next begins.
    pub start: TimeNs,
    /// Number of samples.
    pub samples: u64,
    /// Number of memory accesses.
    pub accesses: Estimate,
    /// Share of these accesses that is remote.
    pub remote: Estimate,
    /// Share of these accesses that writes.
    pub writes: Estimate,
    /// Accesses made from each node.
    pub from_node: Vec<f64>,
    /// Accesses served by each node.
    pub on_node: Vec<f64>,
}

/// Program time in equal slices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Width of a slice in nanoseconds.
    pub bin_ns: u64,
    /// The slices, in order of time.
    pub bins: Vec<Bin>,
}

impl Analysis<'_> {
    /// Whether so few accesses as `samples` were sampled that the recording cannot be judged. Where accesses are counted, hardly any sample means hardly any
    /// access.
    pub(crate) fn samples_too_few(&self, samples: u64) -> bool {
        samples < ENOUGH_SAMPLES && self.trace.threads().iter().all(|thread| thread.counters.is_none())
    }

    /// Exact number of all memory accesses: only without a filter, and where every access was counted.
    #[must_use]
    pub fn counted_total(&self) -> Option<f64> {
        if !self.filter.is_empty() || self.trace.line_sampling() > 1 {
            return None;
        }
        let counted: u64 =
            self.trace.threads().iter().filter_map(|t| t.counters.as_ref()).map(|c| c.memory_accesses).sum();
        (counted > 0).then_some(counted as f64)
    }

    /// Totals over the accesses that the filter lets pass.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let sums = self.sum();
        let matrix = self.matrix();
        let served: Vec<Estimate> = (0..self.nodes.len()).map(|node| column(&matrix, node)).collect();
        let counted = self.counted_total();
        let (remote_accesses, remote_share) = match matrix.source {
            Source::Counted => counted_remote(&matrix),
            Source::Sampled => (sums.remote.total(), sums.remote.share_of(&sums.known)),
        };
        let count = |field: fn(&numapilot_trace::record::Counters) -> u64| -> Option<u64> {
            counted.map(|_| self.trace.threads().iter().filter_map(|t| t.counters.as_ref()).map(field).sum())
        };
        let writes = count(|counters| counters.memory_writes);
        Totals {
            source: matrix.source,
            samples: sums.all.samples,
            accesses: counted.map_or_else(|| sums.all.total(), Estimate::exact),
            remote_accesses,
            remote_share,
            local_share: remote_share.complement(),
            write_share: match (writes, counted) {
                (Some(writes), Some(total)) => Estimate::exact(writes as f64 / total),
                _ => sums.writes.share_of(&sums.all),
            },
            program_accesses: count(|counters| counters.accesses),
            cache_transfers: count(|counters| counters.cache_transfers),
            imbalance: self.imbalance(&served),
            served,
            duration: self.duration(),
        }
    }

    /// Program time that the filter lets pass.
    #[must_use]
    pub fn duration(&self) -> TimeNs {
        let end = self.trace.end();
        match &self.filter.time {
            Some(time) => TimeNs(time.end.0.min(end.0).saturating_sub(time.start.0)),
            None => end,
        }
    }

    /// Computes the node-to-node matrix.
    #[must_use]
    pub fn matrix(&self) -> Matrix {
        let n = self.nodes.len();
        if let Some((total, counts)) = self.counted_total().and_then(|total| Some((total, self.counted_matrix()?))) {
            let unknown = (total - counts.iter().flatten().sum::<f64>()).max(0.0);
            let accesses = counts.iter().map(|row| row.iter().map(|&c| Estimate::exact(c)).collect()).collect();
            return Matrix { nodes: self.nodes.clone(), accesses, unknown, source: Source::Counted };
        }
        let mut tallies = vec![vec![Tally::default(); n]; n];
        let mut unknown = Tally::default();
        for access in self.accesses() {
            let from = access.node.and_then(|node| self.node_position(node));
            let home = access.home.and_then(|node| self.node_position(node));
            match (from, home) {
                (Some(from), Some(home)) => tallies[from][home].add(access),
                _ => unknown.add(access),
            }
        }
        let accesses = tallies.iter().map(|row| row.iter().map(Tally::total).collect()).collect();
        Matrix { nodes: self.nodes.clone(), accesses, unknown: unknown.weight, source: Source::Sampled }
    }

    /// From the counters: what a thread added between two of its readings was added on the node that the later one names.
    /// `None` when some thread's node is not known, so that the rows cannot be told apart, or where the counts take memory of several processes for each
    /// one's own.
    fn counted_matrix(&self) -> Option<Vec<Vec<f64>>> {
        if !self.trace.counts_by_home_hold() {
            return None;
        }
        let n = self.nodes.len();
        let mut matrix = vec![vec![0.0; n]; n];
        let mut before: Vec<Vec<u64>> = vec![Vec::new(); self.trace.threads().len()];
        let mut add = |thread: ThreadIndex, node: Option<NodeId>, totals: &[u64]| -> Option<()> {
            let last = before.get_mut(thread.0 as usize)?;
            let from = node.and_then(|node| self.node_position(node));
            for (home, &total) in totals.iter().enumerate() {
                let added = total.saturating_sub(last.get(home).copied().unwrap_or(0));
                if added > 0 {
                    matrix[from?][self.node_position(NodeId(home as u16))?] += added as f64;
                }
            }
            *last = totals.to_vec();
            Some(())
        };
        for reading in self.trace.counters() {
            add(reading.thread, reading.node, &reading.totals.by_home)?;
        }
        for thread in self.trace.threads() {
            if let Some(counters) = &thread.counters {
                add(thread.index, thread.node, &counters.by_home)?;
            }
        }
        Some(matrix)
    }

    /// Imbalance of what the nodes served (in the order of [`Analysis::nodes`]) over those that have memory.
    #[must_use]
    pub fn imbalance(&self, served: &[Estimate]) -> Imbalance {
        let values: Vec<Estimate> = (self.nodes.iter().zip(served))
            .filter(|(node, _)| self.memory_nodes.contains(node))
            .map(|(_, &served)| served)
            .collect();
        imbalance_of(&values)
    }

    /// Everything over program time, in `bins` equal slices of what the filter's time (or else the recording) covers.
    #[must_use]
    pub fn series(&self, bins: usize) -> Series {
        self.series_of(bins, self.accesses())
    }

    pub(crate) fn series_of(&self, bins: usize, accesses: impl Iterator<Item = numapilot_flows::AccessRef>) -> Series {
        let bins = bins.clamp(1, 1 << 20);
        let start = self.filter.time.as_ref().map_or(0, |time| time.start.0);
        let bin_ns = self.duration().0.div_ceil(bins as u64).max(1);
        let zeros = vec![0.0; self.nodes.len()];
        let mut sums = vec![(AllSums::default(), zeros.clone(), zeros); bins];
        for access in accesses {
            let bin = (access.time.0.saturating_sub(start) / bin_ns).min(bins as u64 - 1) as usize;
            let (all, from_node, on_node) = &mut sums[bin];
            all.add(&access);
            if let Some(node) = access.node.and_then(|node| self.node_position(node)) {
                from_node[node] += f64::from(access.weight);
            }
            if let Some(node) = access.home.and_then(|node| self.node_position(node)) {
                on_node[node] += f64::from(access.weight);
            }
        }
        let bin = |(index, (all, from_node, on_node)): (usize, (AllSums, Vec<f64>, Vec<f64>))| Bin {
            start: TimeNs(start.saturating_add(index as u64 * bin_ns)),
            samples: all.all.samples,
            accesses: all.all.total(),
            remote: all.remote.share_of(&all.known),
            writes: all.writes.share_of(&all.all),
            from_node,
            on_node,
        };
        Series { bin_ns, bins: sums.into_iter().enumerate().map(bin).collect() }
    }
}

fn column(matrix: &Matrix, node: usize) -> Estimate {
    matrix.accesses.iter().map(|row| row[node]).fold(Estimate::default(), sum_independent)
}

fn counted_remote(matrix: &Matrix) -> (Estimate, Estimate) {
    let (mut all, mut local) = (0.0, 0.0);
    for (index, row) in matrix.accesses.iter().enumerate() {
        all += row.iter().map(|accesses| accesses.value).sum::<f64>();
        local += row[index].value;
    }
    // Of no access with a known home, any share may be remote.
    let nothing = Estimate { value: 0.0, low: 0.0, high: 1.0 };
    let share = if all > 0.0 { Estimate::exact((all - local) / all) } else { nothing };
    (Estimate::exact(all - local), share)
}

/// Sum of two independent estimates: margins add in quadrature, on each side.
fn sum_independent(a: Estimate, b: Estimate) -> Estimate {
    let value = a.value + b.value;
    let below = ((a.value - a.low).powi(2) + (b.value - b.low).powi(2)).sqrt();
    let above = ((a.high - a.value).powi(2) + (b.high - b.value).powi(2)).sqrt();
    Estimate { value, low: value - below, high: value + above }
}

/// Imbalance of these loads: of controllers, or of links. Its interval is the linearised one of the loads' own.
#[must_use]
pub fn imbalance_of(loads: &[Estimate]) -> Imbalance {
    let n = loads.len() as f64;
    let mean = loads.iter().map(|load| load.value).sum::<f64>() / n;
    if loads.len() < 2 || mean <= 0.0 {
        return Imbalance::default();
    }
    let squares: f64 = loads.iter().map(|load| (load.value - mean).powi(2)).sum();
    let population = (squares / n).sqrt() / mean;
    let margin_squared: f64 = loads
        .iter()
        .map(|load| {
            // d(sd / mean) / d(load) = (load - mean) / (n sd mean) - sd / (n mean^2); flat where all loads are equal.
            let deviation = population * mean;
            let spread =
                if deviation > 0.0 { (load.value - mean) / (n * deviation * mean) } else { 1.0 / (n.sqrt() * mean) };
            ((spread - population / (n * mean)) * load.margin()).powi(2)
        })
        .sum();
    let margin = margin_squared.sqrt();
    let greatest = (n - 1.0).sqrt();
    let estimate = |scale: f64| Estimate {
        value: population * scale,
        low: (population - margin).max(0.0) * scale,
        high: (population + margin).min(greatest).max(population) * scale,
    };
    Imbalance { sample: estimate((n / (n - 1.0)).sqrt()), population: estimate(1.0) }
}
