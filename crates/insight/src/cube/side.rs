//! Data beside the cells: one row per instance, pages over time of the objects with most accesses, and latencies.

use foldhash::{HashMap, HashMapExt};
use numapilot_trace::ids::{ObjectId, TimeNs};

use super::keep::Ranks;
use super::rows::NONE;
use crate::context::Analysis;
use crate::detail::PAGE_BYTES;
use crate::estimate::Tally;

/// Largest number of objects whose pages are kept over time.
const PAGED_OBJECTS: usize = 48;
/// Largest number of stretches of pages of one object.
const STRETCHES: u64 = 64;
/// Page cells altogether; objects come in order of their accesses until these are used up.
const PAGE_CELLS: usize = 120_000;
/// Slices of time in a page map: several of the cube's make one.
const PAGE_BINS: u64 = 60;
/// Largest number of latency cells.
const LATENCY_CELLS: usize = 60_000;
/// Number of latency buckets per doubling of the latency.
const BUCKETS_PER_OCTAVE: f64 = 4.0;

/// One instance and its accesses, for rates and rankings; intervals follow from `tally`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceRow {
    /// The object instance.
    pub object: ObjectId,
    /// Sums over its accesses.
    pub tally: Tally,
    /// Number of these accesses with a known home node.
    pub known: f64,
    /// Number of these accesses that are remote.
    pub remote: f64,
    /// Number of accesses that write.
    pub writes: f64,
}

/// Accesses to a stretch of an object's pages in a slice of time, from one node, at home on another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCell {
    /// The object instance.
    pub object: ObjectId,
    /// First page of the stretch.
    pub page: u32,
    /// Number of pages in the stretch.
    pub pages: u32,
    /// Start of the slice of program time.
    pub time: TimeNs,
    /// Position of the accessing node, or [`NONE`].
    pub from: u32,
    /// Position of the home node, or [`NONE`].
    pub home: u32,
    /// Number of accesses.
    pub weight: f64,
}

/// Accesses whose latency was measured, by size of the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyCell {
    /// Start of the slice of program time.
    pub time: TimeNs,
    /// Position of the accessing node, or [`NONE`].
    pub from: u32,
    /// Position of the home node, or [`NONE`].
    pub home: u32,
    /// Latency bucket; [`latency_bucket_start`] gives its first latency.
    pub bucket: u8,
    /// Number of accesses.
    pub weight: f64,
}

/// First latency of a bucket, in cycles: four buckets per doubling.
#[must_use]
pub fn latency_bucket_start(bucket: u8) -> f64 {
    (f64::from(bucket) / BUCKETS_PER_OCTAVE).exp2()
}

fn latency_bucket(cycles: u32) -> u8 {
    (f64::from(cycles.max(1)).log2() * BUCKETS_PER_OCTAVE) as u8
}

pub(super) fn instances(ranks: &Ranks) -> Vec<InstanceRow> {
    let row = |&id: &u32| {
        let tally = &ranks.tallies[id as usize];
        InstanceRow {
            object: ObjectId(id),
            tally: tally.all,
            known: tally.known,
            remote: tally.remote,
            writes: tally.writes,
        }
    };
    ranks.instance_order.iter().map(row).collect()
}

fn position(analysis: &Analysis<'_>, node: Option<numapilot_machine::NodeId>) -> u32 {
    node.and_then(|node| analysis.node_position(node)).map_or(NONE, |position| position as u32)
}

/// Width of a slice where the time covered is cut into about `count`: a multiple of the cube's own slices of `bin_ns`.
fn width_ns(analysis: &Analysis<'_>, count: u64, bin_ns: u64) -> u64 {
    analysis.duration().0.div_ceil(count).div_ceil(bin_ns).max(1) * bin_ns
}

/// Pages over time, and the width of their slices; `bin_ns` is the cube's slice, of which the slices here are multiples.
pub(super) fn pages(analysis: &Analysis<'_>, ranks: &Ranks, bin_ns: u64) -> (Vec<PageCell>, u64) {
    let wide = width_ns(analysis, PAGE_BINS, bin_ns);
    let start = analysis.start_ns();
    let mut cells = Vec::new();
    for &id in ranks.instance_order.iter().take(PAGED_OBJECTS) {
        let Some(object) = analysis.trace.object(ObjectId(id)) else { continue };
        let stretch = object.bytes.div_ceil(PAGE_BYTES).div_ceil(STRETCHES).max(1);
        let mut sums: HashMap<(u32, u64, u32, u32), f64> = HashMap::new();
        for access in analysis.accesses_to(object.id) {
            let page = access.address.0.saturating_sub(object.address.0) / PAGE_BYTES / stretch * stretch;
            let slice = access.time.0.saturating_sub(start) / wide;
            let (from, home) = (position(analysis, access.node), position(analysis, access.home));
            let key = (u32::try_from(page).unwrap_or(NONE), slice, from, home);
            *sums.entry(key).or_default() += f64::from(access.weight.max(1));
        }
        if cells.len() + sums.len() > PAGE_CELLS {
            break;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|a| a.0);
        cells.extend(sums.into_iter().map(|((page, slice, from, home), weight)| PageCell {
            object: object.id,
            page,
            pages: u32::try_from(stretch).unwrap_or(NONE),
            time: TimeNs(start + slice * wide),
            from,
            home,
            weight,
        }));
    }
    (cells, wide)
}

/// Latencies where any was measured, in the finest slices that fit, and the width of these.
pub(super) fn latencies(analysis: &Analysis<'_>, bin_ns: u64) -> (Vec<LatencyCell>, u64) {
    let start = analysis.start_ns();
    let slices = [PAGE_BINS, PAGE_BINS / 6, 1];
    for count in slices {
        let wide = width_ns(analysis, count, bin_ns);
        let mut sums: HashMap<(u64, u32, u32, u8), f64> = HashMap::new();
        for access in analysis.accesses() {
            let Some(cycles) = access.latency_cycles else { continue };
            let slice = access.time.0.saturating_sub(start) / wide;
            let (from, home) = (position(analysis, access.node), position(analysis, access.home));
            *sums.entry((slice, from, home, latency_bucket(cycles))).or_default() += f64::from(access.weight.max(1));
            if sums.len() > LATENCY_CELLS && count > 1 {
                break;
            }
        }
        if sums.len() > LATENCY_CELLS && count > 1 {
            continue;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|a| a.0);
        let cell = |((slice, from, home, bucket), weight): ((u64, u32, u32, u8), f64)| LatencyCell {
            time: TimeNs(start + slice * wide),
            from,
            home,
            bucket,
            weight,
        };
        return (sums.into_iter().map(cell).collect(), wide);
    }
    (Vec::new(), bin_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_in_its_bucket() {
        for cycles in [1u32, 2, 3, 17, 300, 1200, 1 << 20, u32::MAX - 1] {
            let bucket = latency_bucket(cycles);
            assert!(latency_bucket_start(bucket) <= f64::from(cycles) * 1.000_001, "{cycles}");
            assert!(f64::from(cycles) < latency_bucket_start(bucket + 1) * 1.000_001, "{cycles}");
        }
    }
}
