//! Figures over the accesses that a filter lets pass, for whoever asks about them alone: the C API and Python.

use numapilot_flows::{Evidence, Filter, Trace};

use crate::context::AllSums;
use crate::estimate::{Estimate, Tally};

/// Figures over some accesses. Shares lie between 0 and 1. Of page faults, and of samples of other events, only the samples are counted: all else is NaN,
/// because their rates measure no accesses. So are shares of nothing: the remote share where no home is known, the share of writes where nothing passes the
/// filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Number of samples that pass the filter.
    pub samples: u64,
    /// How many of these crossed nodes.
    pub remote_samples: u64,
    /// How many of these wrote.
    pub write_samples: u64,
    /// Memory accesses that they stand for.
    pub accesses: Estimate,
    /// Share of them that is remote, of all whose home is known.
    pub remote: Estimate,
    /// Share of them that writes.
    pub writes: Estimate,
    /// Share of the trace's memory accesses that they are.
    pub share: Estimate,
}

impl Statistics {
    /// Over what `filter` lets pass. Hits in caches, which recordings of hardware may hold, are left out as in the report.
    #[must_use]
    pub fn of(trace: &Trace, filter: &Filter) -> Statistics {
        let (mut whole, mut sums) = (Tally::default(), AllSums::default());
        for access in trace.accesses().filter(|access| access.is_memory_access()) {
            whole.add(access);
            if filter.admits(trace, &access) {
                sums.add(&access);
            }
        }
        let AllSums { all, known, remote, writes } = sums;
        let is_known = trace.evidence() == Evidence::Accesses;
        let figure = |estimate: Estimate| if is_known { estimate } else { Estimate::exact(f64::NAN) };
        let share = |part: &Tally, whole: &Tally| match whole.samples {
            0 => Estimate::exact(f64::NAN),
            _ => figure(part.share_of(whole)),
        };
        Statistics {
            samples: all.samples,
            remote_samples: remote.samples,
            write_samples: writes.samples,
            accesses: figure(all.total()),
            remote: share(&remote, &known),
            writes: share(&writes, &all),
            share: share(&all, &whole),
        }
    }
}
