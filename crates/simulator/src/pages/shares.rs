//! Where accesses go: the shares of a mix by home node, for each accessing node.

use numapilot_machine::NodeIndex;

use super::PageTable;
use crate::program::Mix;

/// Shares by answering node. Pages without a home answer nothing, so the sum may be below 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) reads: Vec<f64>,
    pub(crate) writes: Vec<f64>,
}

impl PageTable {
    /// Of the nodes in `mask`, the one nearest to `from`.
    pub(crate) fn nearest_copy(&self, mask: u64, from: NodeIndex, home: NodeIndex) -> NodeIndex {
        self.nearest[from].iter().copied().find(|&node| mask >> node.0 & 1 == 1).unwrap_or(home)
    }

    /// Shares of a mix as seen from a node. Reads go to the nearest copy, writes to the home.
    pub(crate) fn shares(&self, program_pages: &[u64], mix: &Mix, from: NodeIndex) -> Shares {
        let nodes = self.free.len();
        let mut shares = Shares { reads: vec![0.0; nodes], writes: vec![0.0; nodes] };
        for part in &mix.parts {
            let counts = &self.slices[part.slice as usize];
            let pages = program_pages[part.slice as usize] as f64;
            for (node, &count) in counts.by_home.iter().enumerate().filter(|&(_, &count)| count > 0) {
                shares.reads[node] += part.reads * count as f64 / pages;
                shares.writes[node] += part.writes * count as f64 / pages;
            }
            for (&(mask, home), &count) in &counts.copied {
                shares.reads[self.nearest_copy(mask, from, home)] += part.reads * count as f64 / pages;
                shares.writes[home] += part.writes * count as f64 / pages;
            }
        }
        shares
    }

    /// Whether every page of a mix has a home.
    pub(crate) fn is_present(&self, mix: &Mix) -> bool {
        mix.parts.iter().all(|part| self.slices[part.slice as usize].absent == 0)
    }
}
