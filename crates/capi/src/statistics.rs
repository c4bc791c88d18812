//! Figures over the accesses that a filter lets pass, each with its 95 % interval: those of `numapilot report`.

use std::ffi::c_int;

use numapilot_insight::{Estimate, Tally};

use crate::border::*;
use crate::filter::{FilterRow, filter_of};
use crate::trace::{TraceHandle, opened};

/// A figure with its 95 % interval; a point where nothing was left out.
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

/// Figures over some accesses. Shares lie between 0 and 1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StatisticsRow {
    /// Set to sizeof(struct numapilot_statistics).
    pub type_size: usize,
    /// Samples that passed.
    pub samples: u64,
    /// How many of these crossed nodes.
    pub remote_samples: u64,
    /// How many of these wrote.
    pub write_samples: u64,
    /// Memory accesses that they stand for.
    pub accesses: EstimateRow,
    /// Share of them that is remote, of all whose home is known.
    pub remote: EstimateRow,
    /// Share of them that writes. Of 0 samples that write, `high` is the bound on what "read-only" can mean.
    pub writes: EstimateRow,
    /// Share of the trace's memory accesses that they are.
    pub share: EstimateRow,
}

versioned!(StatisticsRow);

impl From<Estimate> for EstimateRow {
    fn from(estimate: Estimate) -> EstimateRow {
        EstimateRow { value: estimate.value, low: estimate.low, high: estimate.high }
    }
}

/// Figures over the accesses that pass the filter (null: all). Hits in caches, which recordings of hardware may hold, are left out as in the report.
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
        let (mut whole, mut all, mut known, mut remote, mut writes) = <[Tally; 5]>::default().into();
        for access in open.trace.accesses().filter(|access| access.is_memory_access()) {
            whole.add(access);
            if !filter.admits(&open.trace, &access) {
                continue;
            }
            all.add(access);
            if access.is_write {
                writes.add(access);
            }
            if let Some(is_remote) = access.is_remote() {
                known.add(access);
                if is_remote {
                    remote.add(access);
                }
            }
        }
        let row = StatisticsRow {
            type_size: 0,
            samples: all.samples,
            remote_samples: remote.samples,
            write_samples: writes.samples,
            accesses: all.total().into(),
            remote: remote.share_of(&known).into(),
            writes: writes.share_of(&all).into(),
            share: all.share_of(&whole).into(),
        };
        // SAFETY: as above.
        unsafe { fill(statistics, row, "statistics") }
    })
}
