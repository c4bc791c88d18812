//! Accesses to each page over a whole program, by accessing node, with threads on the nodes where they start.

use std::collections::BTreeMap;

use numapilot_machine::{Machine, NodeIndex};

use crate::error::SimulatorError;
use crate::options::Layout;
use crate::program::{Action, Program, Step, Thread};

/// Accesses by accessing node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ByNode {
    pub reads: Vec<f64>,
    pub writes: Vec<f64>,
}

impl ByNode {
    fn new(nodes: usize) -> ByNode {
        ByNode { reads: vec![0.0; nodes], writes: vec![0.0; nodes] }
    }

    /// Sum of the accesses of all nodes.
    pub fn total(&self) -> f64 {
        self.reads.iter().chain(&self.writes).sum()
    }
}

/// Sums over the threads of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeWork {
    pub threads: f64,
    pub accesses: f64,
    pub own_ns: f64,
    /// Sum over accesses of 1 / outstanding.
    pub waits: f64,
}

/// The whole program's use of memory.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    /// By slice: accesses to each of its pages, by node.
    slices: Vec<ByNode>,
    /// By region: its slices, those that begin first coming first.
    of_region: Vec<Vec<u32>>,
    /// Work of the threads of each node, by node index.
    pub work: Vec<NodeWork>,
}

/// Every step of a thread with the number of times that it is done.
pub(super) fn steps<'p>(program: &'p Program, thread: &'p Thread) -> impl Iterator<Item = (&'p Step, f64)> {
    let once = |steps: &'p [Step]| steps.iter().map(|step| (step, 1.0));
    let body = thread.body.iter().map(|step| (step, f64::from(program.repeat)));
    once(&thread.prologue).chain(body).chain(once(&thread.epilogue))
}

impl Usage {
    /// Adds up the program.
    pub fn of(program: &Program, machine: &Machine, layout: Layout) -> Result<Usage, SimulatorError> {
        let nodes = machine.nodes().len();
        let seats = crate::seats::seats(program, machine, layout)?;
        let mut by_mix: BTreeMap<(NodeIndex, u32), f64> = BTreeMap::new();
        let mut work = vec![NodeWork::default(); nodes];
        for (thread, (_, node)) in program.threads.iter().zip(&seats) {
            let mut accesses = 0.0;
            for (step, times) in steps(program, thread) {
                let Action::Work(done) = step.action else { continue };
                let behaviour = program.behaviours[done.behaviour as usize];
                *by_mix.entry((*node, behaviour.mix)).or_default() += done.accesses * times;
                accesses += done.accesses * times;
                work[*node].own_ns += done.own_ns * times;
                work[*node].waits += done.accesses * times / behaviour.outstanding.max(1e-9);
            }
            work[*node].accesses += accesses;
            work[*node].threads += f64::from(u8::from(accesses > 0.0));
        }
        let mut slices = vec![ByNode::new(nodes); program.slices.len()];
        for ((node, mix), accesses) in by_mix {
            for part in &program.mixes[mix as usize].parts {
                let pages = program.slices[part.slice as usize].pages as f64;
                let slice = &mut slices[part.slice as usize];
                slice.reads[node] += accesses * part.reads / pages;
                slice.writes[node] += accesses * part.writes / pages;
            }
        }
        let mut of_region = vec![Vec::new(); program.regions.len()];
        for (index, slice) in program.slices.iter().enumerate() {
            of_region[slice.region as usize].push(index as u32);
        }
        for region in &mut of_region {
            region.sort_by_key(|slice| program.slices[*slice as usize].first);
        }
        Ok(Usage { slices, of_region, work })
    }

    /// Accesses to a page, by node.
    pub fn page(&self, program: &Program, region: u32, page: u64) -> ByNode {
        let nodes = self.work.len();
        let mut sum = ByNode::new(nodes);
        for slice in &self.of_region[region as usize] {
            let found = program.slices[*slice as usize];
            if found.first > page {
                break;
            }
            if page < found.first + found.pages {
                let rates = &self.slices[*slice as usize];
                for node in 0..nodes {
                    sum.reads[node] += rates.reads[node];
                    sum.writes[node] += rates.writes[node];
                }
            }
        }
        sum
    }

    /// Node that accesses a page most; `None` for a page without accesses.
    pub fn main_user(&self, program: &Program, region: u32, page: u64) -> Option<NodeIndex> {
        let by_node = self.page(program, region, page);
        let at = |node: &NodeIndex| by_node.reads[*node] + by_node.writes[*node];
        NodeIndex::all(self.work.len()).filter(|node| at(node) > 0.0).max_by(|a, b| at(a).total_cmp(&at(b)))
    }
}
