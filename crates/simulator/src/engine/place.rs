//! First touches: which node a new page gets.

use numapilot_machine::{Machine, NodeId, NodeIndex, Packed};
use numapilot_placement::Allocation;

use crate::error::SimulatorError;
use crate::pages::{PageTable, Unit};
use crate::program::Program;
use crate::random::scramble;

/// Chooses the home nodes of new pages.
#[derive(Clone, Debug)]
pub(crate) struct Placer {
    seed: u64,
    machine: String,
    memory_bytes: u64,
    nodes: Vec<NodeId>,
    /// Allocation policy of each process, by process index.
    allocations: Vec<Allocation>,
    /// Per small page of each region that has any: thread that touches it first and node that it is bound to, as an index into `known`.
    known_at: Vec<Vec<u32>>,
    known: Vec<(u32, Option<NodeIndex>)>,
    /// Per small page of each region that has any: node that it is ordered to; none without an order.
    ordered: Vec<Vec<Ordered>>,
}

/// The node that a small page is ordered to.
type Ordered = Packed<NodeIndex, u16>;

/// In place of an index: the first toucher is not known beforehand.
const UNKNOWN: u32 = u32::MAX;

/// First accesses to the pages of a slice.
pub(crate) struct Touch<'a> {
    pub(crate) slice: u32,
    /// Node that the program asks for.
    pub(crate) bound: Option<NodeId>,
    /// Pages that have a home lose it first.
    pub(crate) anew: bool,
    /// Nodes of the threads that touch, with weights: each page is touched first by one of them.
    pub(crate) touchers: &'a [(NodeIndex, f64)],
    /// Node of each thread now.
    pub(crate) node_of: &'a dyn Fn(u32) -> NodeIndex,
    pub(crate) now_ns: f64,
}

/// The position of a node.
fn position(nodes: &[NodeId], id: NodeId) -> Option<NodeIndex> {
    nodes.iter().position(|node| *node == id).map(NodeIndex)
}

impl Placer {
    pub(crate) fn new(program: &Program, machine: &Machine, allocation: &Allocation, seed: u64) -> Placer {
        let nodes: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
        let mut known_at = vec![Vec::new(); program.regions.len()];
        let mut known = Vec::with_capacity(program.first_touches.len());
        for touch in &program.first_touches {
            let region = touch.region as usize;
            known_at[region].resize(program.regions[region].pages as usize, UNKNOWN);
            let pages = &mut known_at[region][touch.first as usize..(touch.first + touch.pages) as usize];
            pages.iter_mut().filter(|at| **at == UNKNOWN).for_each(|at| *at = known.len() as u32);
            let bound = touch.bound.and_then(|id| position(&nodes, id));
            known.push((touch.thread, bound));
        }
        let mut ordered = vec![Vec::new(); program.regions.len()];
        for order in &program.ordered_homes {
            let pages: &mut Vec<Ordered> = &mut ordered[order.region as usize];
            pages.resize(program.regions[order.region as usize].pages as usize, Ordered::NONE);
            for (page, home) in pages[order.first as usize..].iter_mut().zip(&order.homes) {
                *page = position(&nodes, *home).into();
            }
        }
        Placer {
            ordered,
            known_at,
            known,
            seed,
            machine: machine.name().to_owned(),
            memory_bytes: machine.memory_bytes(),
            nodes,
            allocations: vec![allocation.clone(); program.processes.len()],
        }
    }

    /// From now on, new pages of a process go there. False: no such process, or the rule names no node or one that is not there.
    pub(crate) fn allocate(&mut self, process: u32, allocation: &Allocation) -> bool {
        let nodes = self.nodes.len();
        let sound = match allocation {
            Allocation::FirstTouch => true,
            Allocation::Interleave(list) => !list.is_empty() && list.iter().all(|node| node.0 < nodes),
            Allocation::WeightedInterleave(list) => {
                !list.is_empty() && list.iter().all(|&(node, weight)| node.0 < nodes && weight > 0)
            }
        };
        match self.allocations.get_mut(process as usize) {
            Some(slot) if sound => {
                *slot = allocation.clone();
                true
            }
            _ => false,
        }
    }

    /// Gives homes to the pages of a slice that have none.
    pub(crate) fn touch(
        &self,
        program: &Program,
        pages: &mut PageTable,
        touch: &Touch<'_>,
    ) -> Result<(), SimulatorError> {
        if pages.counts(touch.slice).absent == 0 && !touch.anew {
            return Ok(());
        }
        let slice = program.slices[touch.slice as usize];
        let region = slice.region as usize;
        let bound = touch.bound.and_then(|id| position(&self.nodes, id));
        let mut page = slice.first;
        while page < slice.first + slice.pages {
            let unit = pages.unit(region, page);
            page = unit.first + unit.pages;
            if touch.anew {
                pages.release(unit);
            } else if pages.home(region, unit.first).is_some() {
                continue;
            }
            let ordered = self.ordered[region].get(unit.first as usize).and_then(|node| node.index());
            let wanted = ordered.or(bound).unwrap_or_else(|| self.wanted(program, unit, touch));
            if pages.place(unit, wanted).is_none() {
                let region = program.regions[region].name.clone();
                let (bytes, machine) = (self.memory_bytes, self.machine.clone());
                return Err(SimulatorError::OutOfMemory { region, at_ns: touch.now_ns, bytes, machine });
            }
        }
        Ok(())
    }

    /// Whether the program itself asked for the page's node when it was touched first.
    pub(crate) fn is_bound(&self, region: usize, page: u64) -> bool {
        let known = self.known_at[region].get(page as usize).and_then(|&at| self.known.get(at as usize));
        known.is_some_and(|&(_, bound)| bound.is_some())
    }

    fn wanted(&self, program: &Program, unit: Unit, touch: &Touch<'_>) -> NodeIndex {
        let region = &program.regions[unit.region];
        let known = self.known_at[unit.region].get(unit.first as usize).and_then(|&at| self.known.get(at as usize));
        let known = known.filter(|_| !touch.anew);
        if let Some(&(_, Some(bound))) = known {
            return bound;
        }
        // Interleaving goes by page number, as the kernel's does within a mapping.
        let number = (region.first_page + unit.first).0 / unit.pages;
        match &self.allocations[region.process as usize] {
            Allocation::Interleave(nodes) => nodes[(number % nodes.len() as u64) as usize],
            Allocation::WeightedInterleave(nodes) => {
                let total: u64 = nodes.iter().map(|&(_, weight)| u64::from(weight)).sum();
                let mut turn = number % total;
                let mut chosen = nodes[0].0;
                for &(node, weight) in nodes {
                    chosen = node;
                    if turn < u64::from(weight) {
                        break;
                    }
                    turn -= u64::from(weight);
                }
                chosen
            }
            Allocation::FirstTouch => {
                known.map_or_else(|| self.toucher(unit, touch.touchers), |known| (touch.node_of)(known.0))
            }
        }
    }

    fn toucher(&self, unit: Unit, touchers: &[(NodeIndex, f64)]) -> NodeIndex {
        if let [(node, _)] = touchers {
            return *node;
        }
        let total: f64 = touchers.iter().map(|toucher| toucher.1).sum();
        let bits = scramble(self.seed ^ scramble((unit.region as u64) << 40 | unit.first));
        let mut draw = (bits >> 11) as f64 / (1u64 << 53) as f64 * total;
        for &(node, weight) in touchers {
            draw -= weight;
            if draw < 0.0 {
                return node;
            }
        }
        touchers.last().map_or(NodeIndex(0), |toucher| toucher.0)
    }
}
