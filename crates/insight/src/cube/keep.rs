//! Decides what gets rows of its own: a list of levels from fine to coarse, and ranks by accesses.

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::LocationId;
use numapilot_trace::ids::StackId;
use serde::Serialize;

use crate::context::Analysis;
use crate::estimate::Tally;

/// How finely rows distinguish accesses. What ranks below a limit is folded: instances into their site, sites into "others", stacks into their
/// code address, code into "others", threads into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Number of slices of program time.
    pub time_bins: u32,
    /// Number of instances with rows of their own.
    pub instances: u32,
    /// Number of sites with rows of their own.
    pub sites: u32,
    /// Call stacks (and, apart from these, code addresses) with rows of their own.
    pub stacks: u32,
    /// Number of threads with rows of their own.
    pub threads: u32,
}

impl Level {
    /// The level at which nothing is folded.
    pub(super) const EVERYTHING: Level =
        Level { time_bins: u32::MAX, instances: u32::MAX, sites: u32::MAX, stacks: u32::MAX, threads: u32::MAX };

    /// From fine to coarse: call stacks go first, sites last. Each needs a fraction of the cells of the one before; what multiplies in the last one (slices,
    /// threads, nodes squared, direction) is small, so that it fits any budget worth asking for.
    pub(super) const LADDER: [Level; 12] = [
        Level::new(240, 4096, 4096, 4096, u32::MAX),
        Level::new(240, 1024, 2048, 1024, u32::MAX),
        Level::new(160, 512, 1024, 256, u32::MAX),
        Level::new(120, 256, 1024, 128, u32::MAX),
        Level::new(96, 128, 512, 64, u32::MAX),
        Level::new(80, 64, 512, 32, 2048),
        Level::new(64, 48, 256, 24, 1024),
        Level::new(60, 32, 128, 16, 1024),
        Level::new(48, 16, 64, 12, 512),
        Level::new(32, 8, 32, 8, 256),
        Level::new(24, 4, 16, 4, 64),
        Level::new(12, 1, 2, 1, 8),
    ];

    const fn new(time_bins: u32, instances: u32, sites: u32, stacks: u32, threads: u32) -> Level {
        Level { time_bins, instances, sites, stacks, threads }
    }

    /// Width of a slice of what the analysis covers.
    pub(super) fn bin_ns(&self, analysis: &Analysis<'_>) -> u64 {
        analysis.duration().0.div_ceil(u64::from(self.time_bins)).max(1)
    }
}

/// Ranks of instances, sites, threads and code by their accesses, 0 for the most; [`u32::MAX`] without accesses.
pub(super) struct Ranks {
    /// Number of samples.
    pub samples: u64,
    /// By object id: the sums of each instance.
    pub tallies: Vec<InstanceTally>,
    /// Object ids, most accesses first; only those with accesses.
    pub instance_order: Vec<u32>,
    pub instances: Vec<u32>,
    pub sites: Vec<u32>,
    pub threads: Vec<u32>,
    pub locations: Vec<u32>,
    pub stacks: HashMap<(LocationId, StackId), u32>,
}

/// Sums over one instance's accesses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InstanceTally {
    pub all: Tally,
    pub known: f64,
    pub remote: f64,
    pub writes: f64,
}

impl Ranks {
    pub fn of(analysis: &Analysis<'_>) -> Ranks {
        let trace = analysis.trace;
        let mut samples = 0;
        let mut tallies = vec![InstanceTally::default(); trace.objects().len()];
        let mut threads = vec![0.0; trace.threads().len()];
        let mut locations = vec![0.0; trace.locations().len()];
        let mut stacks: HashMap<(LocationId, StackId), f64> = HashMap::new();
        for access in analysis.accesses() {
            let weight = f64::from(access.weight.max(1));
            samples += 1;
            if let Some(tally) = access.object.and_then(|object| tallies.get_mut(object.0 as usize)) {
                tally.all.add(access);
                tally.writes += if access.is_write { weight } else { 0.0 };
                if let Some(is_remote) = access.is_remote() {
                    tally.known += weight;
                    tally.remote += if is_remote { weight } else { 0.0 };
                }
            }
            if let Some(sum) = threads.get_mut(access.thread.0 as usize) {
                *sum += weight;
            }
            if let Some(sum) = locations.get_mut(access.location.0 as usize) {
                *sum += weight;
            }
            *stacks.entry((access.location, access.stack)).or_default() += weight;
        }
        let mut sites = vec![0.0; trace.sites().len()];
        for (object, tally) in trace.objects().iter().zip(&tallies) {
            if let Some(sum) = sites.get_mut(object.site.0 as usize) {
                *sum += tally.all.weight;
            }
        }
        let weights: Vec<f64> = tallies.iter().map(|tally| tally.all.weight).collect();
        let (instance_order, instances) = ranked(&weights);
        Ranks {
            samples,
            tallies,
            instance_order,
            instances,
            sites: ranked(&sites).1,
            threads: ranked(&threads).1,
            locations: ranked(&locations).1,
            stacks: ranked_stacks(stacks),
        }
    }
}

/// Indices by falling sum (those with any), and each index's place among them.
fn ranked(sums: &[f64]) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..sums.len() as u32).filter(|&index| sums[index as usize] > 0.0).collect();
    order.sort_by(|&a, &b| sums[b as usize].total_cmp(&sums[a as usize]).then(a.cmp(&b)));
    let mut places = vec![u32::MAX; sums.len()];
    for (place, &index) in order.iter().enumerate() {
        places[index as usize] = place as u32;
    }
    (order, places)
}

fn ranked_stacks(sums: HashMap<(LocationId, StackId), f64>) -> HashMap<(LocationId, StackId), u32> {
    let mut order: Vec<((LocationId, StackId), f64)> = sums.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order.into_iter().enumerate().map(|(place, (key, _))| (key, place as u32)).collect()
}
