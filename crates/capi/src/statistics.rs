//! Figures over the accesses that pass a filter, each with its 95 % interval, as in `numapilot report`.

use std::ffi::c_int;

use numapilot_insight::{Estimate, Statistics};

use crate::ffi::*;
use crate::filter::{FilterRow, filter_of};
use crate::trace::{TraceHandle, opened};

/// A figure with its 95 % interval; the interval is a point if the figure was counted and not sampled.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct EstimateRow {
    /// Best value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Figures over some accesses. Shares lie between 0 and 1. If `evidence` of numapilot_info is not 0, samples are counted and every estimate is NaN: unknown.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StatisticsRow {
    /// Set to sizeof(struct numapilot_statistics).
    pub type_size: usize,
    /// Samples that pass the filter.
    pub samples: u64,
    /// How many of these are remote.
    pub remote_samples: u64,
    /// How many of these are writes.
    pub write_samples: u64,
    /// Memory accesses that the samples represent.
    pub accesses: EstimateRow,
    /// Share of these accesses that is remote, among those whose home is known. NaN if no home is known.
    pub remote: EstimateRow,
    /// Share of these accesses that writes. If no sample writes, `high` is the upper bound on that share.
    pub writes: EstimateRow,
    /// Their share of the trace's memory accesses.
    pub share: EstimateRow,
}

versioned!(StatisticsRow);

impl From<Estimate> for EstimateRow {
    fn from(estimate: Estimate) -> EstimateRow {
        EstimateRow { value: estimate.value, low: estimate.low, high: estimate.high }
    }
}

/// Computes figures over the accesses that pass the filter (null: all). Cache hits, which hardware recordings may hold, are excluded, as in the report.
///
/// # Safety
/// `filter` is null or points to a struct whose `type_size` is set, and so is `statistics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_statistics_of(
    trace: TraceHandle,
    filter: *const FilterRow,
    statistics: *mut StatisticsRow,
) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        // SAFETY: by this function's contract.
        let filter = unsafe { filter_of(&open.trace, filter)? };
        let found = Statistics::of(&open.trace, &filter);
        let row = StatisticsRow {
            type_size: 0,
            samples: found.samples,
            remote_samples: found.remote_samples,
            write_samples: found.write_samples,
            accesses: found.accesses.into(),
            remote: found.remote.into(),
            writes: found.writes.into(),
            share: found.share.into(),
        };
        // SAFETY: as above.
        unsafe { fill(statistics, row, "statistics") }
    })
}
