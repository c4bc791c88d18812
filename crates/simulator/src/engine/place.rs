//! First touches: which node a new page gets.

use numapilot_machine::{Machine, NodeId};
use numapilot_placement::Allocation;

use crate::error::SimulatorError;
use crate::pages::{PageTable, Unit};
use crate::program::Program;
use crate::random::scramble;

/// Where new pages go.
#[derive(Clone, Debug)]
pub(crate) struct Placer {
    seed: u64,
    machine: String,
    memory_bytes: u64,
    nodes: Vec<NodeId>,
    /// Per process.
    allocations: Vec<Allocation>,
}

impl Placer {
    pub(crate) fn new(program: &Program, machine: &Machine, allocation: &Allocation, seed: u64) -> Placer {
        Placer {
            seed,
            machine: machine.name().to_owned(),
            memory_bytes: machine.memory_bytes(),
            nodes: machine.nodes().iter().map(|node| node.id).collect(),
            allocations: vec![allocation.clone(); program.processes.len()],
        }
    }

    /// From now on, new pages of a process go there. False: no such process, or the rule names no node or one that is not there.
    pub(crate) fn allocate(&mut self, process: u32, allocation: &Allocation) -> bool {
        let nodes = self.nodes.len();
        let sound = match allocation {
            Allocation::FirstTouch => true,
            Allocation::Interleave(list) => !list.is_empty() && list.iter().all(|&node| node < nodes),
            Allocation::WeightedInterleave(list) => {
                !list.is_empty() && list.iter().all(|&(node, weight)| node < nodes && weight > 0)
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

    /// Gives homes to the pages of a slice that have none. `touchers` are nodes with weights: each page is touched first by one of them.
    pub(crate) fn touch(
        &self,
        program: &Program,
        pages: &mut PageTable,
        slice: u32,
        bound: Option<u16>,
        touchers: &[(usize, f64)],
        now_ns: f64,
    ) -> Result<(), SimulatorError> {
        if pages.counts(slice).absent == 0 {
            return Ok(());
        }
        let slice = program.slices[slice as usize];
        let region = slice.region as usize;
        let bound = bound.and_then(|id| self.nodes.iter().position(|node| node.0 == id));
        let mut page = slice.first;
        while page < slice.first + slice.pages {
            let unit = pages.unit(region, page);
            page = unit.first + unit.pages;
            if pages.home(region, unit.first).is_some() {
                continue;
            }
            let wanted = bound.unwrap_or_else(|| self.wanted(program, unit, touchers));
            if pages.place(unit, wanted).is_none() {
                let region = program.regions[region].name.clone();
                let (bytes, machine) = (self.memory_bytes, self.machine.clone());
                return Err(SimulatorError::OutOfMemory { region, at_ns: now_ns, bytes, machine });
            }
        }
        Ok(())
    }

    /// Gives homes to all pages of a mix that have none: touched by the threads that are about to use them, page by page by one of them.
    pub(crate) fn first_use(
        &self,
        program: &Program,
        pages: &mut PageTable,
        mix: usize,
        touchers: &[(usize, f64)],
        now_ns: f64,
    ) -> Result<(), SimulatorError> {
        program.mixes[mix].parts.iter().try_for_each(|p| self.touch(program, pages, p.slice, None, touchers, now_ns))
    }

    fn wanted(&self, program: &Program, unit: Unit, touchers: &[(usize, f64)]) -> usize {
        let region = &program.regions[unit.region];
        // Interleaving goes by page number, as the kernel's does within a mapping.
        let number = (region.first_page + unit.first) / unit.pages;
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
            Allocation::FirstTouch => self.toucher(unit, touchers),
        }
    }

    fn toucher(&self, unit: Unit, touchers: &[(usize, f64)]) -> usize {
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
        touchers.last().map_or(0, |toucher| toucher.0)
    }
}
