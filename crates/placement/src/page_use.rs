//! The sampled users of each page: samples of one interval, summed by page and accessing node.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;

use crate::observation::{PageKey, ReadOnlyRange, Sample};

/// The samples of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageUse {
    /// Samples from each node, by index.
    pub from: Vec<u32>,
    /// Samples that were writes.
    pub writes: u32,
    /// Samples that the accessing node's own memory answered.
    pub local: u32,
    /// Node that answered the last of them.
    pub home: NodeIndex,
}

impl PageUse {
    /// Counts one sample. Nodes that the machine does not have are left out.
    pub fn add(&mut self, sample: &Sample, nodes: usize) {
        if sample.from.0 >= nodes || sample.home.0 >= nodes {
            return;
        }
        self.from.resize(nodes, 0);
        self.from[sample.from] += 1;
        self.writes += u32::from(sample.is_write);
        self.local += u32::from(sample.from == sample.home);
        self.home = sample.home;
    }

    /// Number of all samples of the page.
    pub fn total(&self) -> u32 {
        self.from.iter().sum()
    }

    /// Nodes that were seen to use it, ascending.
    pub fn users(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        NodeIndex::all(self.from.len()).filter(move |node| self.from[*node] > 0)
    }

    /// The only node that was seen to use it, if there is only one.
    pub fn only_user(&self) -> Option<NodeIndex> {
        let mut users = self.users();
        users.next().filter(|_| users.next().is_none())
    }

    /// Whether samples from several nodes exist.
    pub fn is_shared(&self) -> bool {
        self.users().nth(1).is_some()
    }
}

/// Whether a read shows that its node has no copy, though it had one (`has_copy`): the page was freed since copies were made, and its address is in use again.
/// A node that has a copy reads that, but in files of which some processes do not use it (yet): of `read_only` ranges the environment tells which copies there
/// are.
pub(crate) fn shows_no_copy(sample: &Sample, has_copy: bool, read_only: &[ReadOnlyRange]) -> bool {
    let elsewhere = has_copy && !sample.is_write && sample.from != sample.home;
    elsewhere && !is_within(sample.page, read_only)
}

/// Whether a page is of one of the ranges, which are ascending.
fn is_within(page: PageKey, ranges: &[ReadOnlyRange]) -> bool {
    let after = ranges.partition_point(|range| (range.process, range.first) <= (page.process, page.page));
    let range = after.checked_sub(1).map(|at| &ranges[at]);
    range.is_some_and(|range| range.process == page.process && page.page < range.first + range.pages)
}

/// The samples of one interval by page, up to a bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    /// Sampled uses of each page.
    pub pages: BTreeMap<PageKey, PageUse>,
    /// Samples that found the table full.
    pub dropped: u64,
}

impl PageTable {
    /// Adds up samples in their order. Once the table holds `bound` pages (0: no bound), samples of further pages are dropped and counted.
    pub fn collect(samples: &[Sample], nodes: usize, bound: usize, key: impl Fn(&Sample) -> PageKey) -> Self {
        let mut table = Self::default();
        for sample in samples.iter().filter(|s| s.from.0 < nodes && s.home.0 < nodes) {
            let key = key(sample);
            if bound > 0 && table.pages.len() >= bound && !table.pages.contains_key(&key) {
                table.dropped += 1;
                continue;
            }
            table.pages.entry(key).or_default().add(sample, nodes);
        }
        table
    }
}
