//! The address spaces of a recording: runs of pages that were touched become regions; objects become slices.

use numapilot_flows::Trace;
use numapilot_host::PageNumber;
use numapilot_placement::PageSize;
use numapilot_ranges::{Piece, RangeMap};
use numapilot_trace::tables::PlacementRow;

use crate::program::{Builder, Region, Slice};

/// All regions, searchable by process and page.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Number of the region, by process and page.
    regions: RangeMap<(u32, PageNumber), u32>,
}

impl Space {
    /// Regions of all pages that were given a home or sampled. Homes are recorded for pages of 4 KiB, so all are small.
    pub(super) fn new(trace: &Trace, placements: &[PlacementRow], builder: &mut Builder) -> Space {
        let process_of = |thread: u32| trace.threads().get(thread as usize).map_or(0, |thread| thread.process.0);
        let mut runs: Vec<(u32, PageNumber, PageNumber)> = Vec::new();
        for row in placements {
            let first = PageNumber::of(row.address);
            runs.push((process_of(row.thread), first, first + u64::from(row.pages)));
        }
        for access in trace.accesses() {
            let page = access.address.page();
            runs.push((process_of(access.thread.0), page, page + 1));
        }
        runs.sort_unstable();
        let mut joined: Vec<(u32, PageNumber, PageNumber)> = Vec::new();
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.0 == run.0 && run.1 <= last.2 => last.2 = last.2.max(run.2),
                _ => joined.push(run),
            }
        }
        let mut space = Space::default();
        for (process, first, end) in joined {
            let name = format!("pages {:#x} to {:#x}", first.0, end.0);
            let pages = end - first;
            let region = Region { name, process, first_page: first, pages, page_size: PageSize::Small };
            space.regions.set((process, first), (process, end), builder.region(region));
        }
        space
    }

    /// Slices for the pages `first..end` of a process: one for each region that they reach into.
    pub(super) fn slices(&self, process: u32, first: PageNumber, end: PageNumber, label: u32) -> Vec<Slice> {
        let slice = |run: Piece<(u32, PageNumber), u32>| {
            let (from, to) = (first.max(run.start.1), end.min(run.end.1));
            Slice { region: run.value, first: from - run.start.1, pages: to - from, label }
        };
        self.regions.overlapping((process, first), (process, end)).map(slice).collect()
    }
}
