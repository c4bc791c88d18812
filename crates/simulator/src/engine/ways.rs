//! Duration of an access: the latencies of the present epoch, weighted by the home nodes of each mix's pages.

use numapilot_machine::NodeIndex;

use crate::pages::{PageTable, Shares};
use crate::program::Program;

/// Shares of a mix as seen from a node, and when they were true.
#[derive(Clone, Debug, Default)]
struct Cached {
    /// The page table's generation plus 1; 0: never.
    generation: u64,
    shares: Shares,
}

/// Latencies, and shares by mix and node.
#[derive(Debug)]
pub(crate) struct Ways {
    nodes: usize,
    /// Loaded latency in nanoseconds, from node (row) to memory (column).
    path_ns: Vec<Vec<f64>>,
    cached: Vec<Cached>,
    slice_pages: Vec<u64>,
}

impl Ways {
    /// Starts with the given latencies.
    pub(crate) fn new(program: &Program, path_ns: Vec<Vec<f64>>) -> Ways {
        let nodes = path_ns.len();
        let slice_pages = program.slices.iter().map(|slice| slice.pages).collect();
        Ways { nodes, path_ns, cached: vec![Cached::default(); nodes * program.mixes.len()], slice_pages }
    }

    /// Latencies from node (row) to memory (column), in nanoseconds.
    pub(crate) fn path_ns(&self) -> &[Vec<f64>] {
        &self.path_ns
    }

    pub(crate) fn set_path_ns(&mut self, path_ns: Vec<Vec<f64>>) {
        self.path_ns = path_ns;
    }

    /// Shares of a mix's accesses by home node, for one accessing node.
    pub(crate) fn shares(&mut self, program: &Program, pages: &PageTable, mix: u32, node: NodeIndex) -> &Shares {
        let cached = &mut self.cached[mix as usize * self.nodes + node.0];
        if cached.generation != pages.generation() + 1 {
            cached.shares = pages.shares(&self.slice_pages, &program.mixes[mix as usize], node);
            cached.generation = pages.generation() + 1;
        }
        &cached.shares
    }

    /// Mean latency of an access of a behaviour from a node, in nanoseconds.
    pub(crate) fn access_ns(&mut self, program: &Program, pages: &PageTable, behaviour: u32, node: NodeIndex) -> f64 {
        let mix = program.behaviours[behaviour as usize].mix;
        let row = self.path_ns[node].clone();
        let shares = self.shares(program, pages, mix, node);
        let shares = shares.reads.iter().zip(&shares.writes).map(|(reads, writes)| reads + writes);
        // A column without a path is NaN, and no share goes to it.
        shares.zip(row).filter(|&(share, _)| share > 0.0).map(|(share, ns)| share * ns).sum()
    }
}
