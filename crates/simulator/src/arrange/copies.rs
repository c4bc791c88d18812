//! A copy of some pages for every node: each thread reads and writes the copy of its own node.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};

use super::range::Part;
use super::usage;
use crate::error::SimulatorError;
use crate::options::Layout;
use crate::program::{
    Action, Behaviour, Mix, MixPart, OrderedHomes, PAGE_BYTES, Program, Region, SMALL_PER_LARGE, Slice,
};

/// Rewrites the program so that threads of each node use copies of `parts` on that node. Gives back the bytes that this takes beyond one copy.
pub(super) fn replicate(
    program: &mut Program,
    machine: &Machine,
    layout: Layout,
    parts: &[Part],
) -> Result<u64, SimulatorError> {
    let seats = crate::seats::seats(program, machine, layout)?;
    let mut copier = Copier { parts, copies: BTreeMap::new(), mixes: BTreeMap::new(), behaviours: BTreeMap::new() };
    for (thread, &(_, node)) in seats.iter().enumerate() {
        if !machine.nodes()[node].has_memory() {
            continue;
        }
        let behaviours: Vec<u32> = usage::steps(program, &program.threads[thread])
            .filter_map(|(step, _)| if let Action::Work(work) = step.action { Some(work.behaviour) } else { None })
            .collect();
        for behaviour in behaviours {
            copier.behaviour(program, machine, node, behaviour);
        }
        let data = &mut program.threads[thread];
        for step in data.prologue.iter_mut().chain(&mut data.body).chain(&mut data.epilogue) {
            if let Action::Work(work) = &mut step.action {
                work.behaviour = copier.behaviours[&(node, work.behaviour)];
            }
        }
    }
    let copied: u64 = copier.copies.keys().map(|(_, part)| parts[*part].2 * PAGE_BYTES).sum();
    let once: u64 = parts.iter().map(|part| part.2 * PAGE_BYTES).sum();
    Ok(copied.saturating_sub(once))
}

struct Copier<'p> {
    parts: &'p [Part],
    /// By (node, part): the region that holds the copy.
    copies: BTreeMap<(NodeIndex, usize), u32>,
    /// Index of the node's version of each mix, by (node, mix).
    mixes: BTreeMap<(NodeIndex, u32), u32>,
    /// By (node, behaviour); those that were made map to themselves.
    behaviours: BTreeMap<(NodeIndex, u32), u32>,
}

impl Copier<'_> {
    fn behaviour(&mut self, program: &mut Program, machine: &Machine, node: NodeIndex, behaviour: u32) {
        if self.behaviours.contains_key(&(node, behaviour)) {
            return;
        }
        let old = program.behaviours[behaviour as usize];
        let mix = self.mix(program, machine, node, old.mix);
        let new = if mix == old.mix {
            behaviour
        } else {
            program.behaviours.push(Behaviour { mix, ..old });
            (program.behaviours.len() - 1) as u32
        };
        self.behaviours.insert((node, behaviour), new);
    }

    fn mix(&mut self, program: &mut Program, machine: &Machine, node: NodeIndex, mix: u32) -> u32 {
        if let Some(known) = self.mixes.get(&(node, mix)) {
            return *known;
        }
        let mut parts = Vec::new();
        let mut changed = false;
        for part in program.mixes[mix as usize].parts.clone() {
            let slice = program.slices[part.slice as usize];
            let mut left = vec![(slice.first, slice.first + slice.pages)];
            for (index, &(region, first, pages)) in
                self.parts.iter().enumerate().filter(|(_, copied)| copied.0 == slice.region)
            {
                let (from, to) = (slice.first.max(first), (slice.first + slice.pages).min(first + pages));
                if from >= to {
                    continue;
                }
                changed = true;
                let copy = self.copy(program, machine, node, index, region);
                let inside = Slice { region: copy, first: from - first, pages: to - from, label: slice.label };
                parts.push(share(program, part, slice, inside));
                left = left
                    .into_iter()
                    .flat_map(|(a, b)| [(a, b.min(from)), (a.max(to), b)])
                    .filter(|(a, b)| a < b)
                    .collect();
            }
            for (from, to) in left {
                parts.push(share(program, part, slice, Slice { first: from, pages: to - from, ..slice }));
            }
        }
        let new = if changed {
            program.mixes.push(Mix { parts });
            (program.mixes.len() - 1) as u32
        } else {
            mix
        };
        self.mixes.insert((node, mix), new);
        new
    }

    /// The region of a node's copy of a part, made at its first use.
    fn copy(&mut self, program: &mut Program, machine: &Machine, node: NodeIndex, part: usize, region: u32) -> u32 {
        if let Some(known) = self.copies.get(&(node, part)) {
            return *known;
        }
        let original = program.regions[region as usize].clone();
        let same = program.regions.iter().filter(|other| other.process == original.process);
        let after = same.map(|other| other.first_page + other.pages).max().unwrap_or_default();
        let pages = self.parts[part].2.next_multiple_of(SMALL_PER_LARGE);
        let id = machine.nodes()[node].id;
        program.regions.push(Region {
            name: format!("{} (copy on node {id})", original.name),
            first_page: PageNumber(after.0.next_multiple_of(SMALL_PER_LARGE) + SMALL_PER_LARGE),
            pages,
            ..original
        });
        let copy = (program.regions.len() - 1) as u32;
        program.ordered_homes.push(OrderedHomes { region: copy, first: 0, homes: vec![id; pages as usize] });
        self.copies.insert((node, part), copy);
        copy
    }
}

/// The share of a mix's part that falls on some pages of its slice.
fn share(program: &mut Program, part: MixPart, whole: Slice, slice: Slice) -> MixPart {
    let share = slice.pages as f64 / whole.pages as f64;
    let index = if slice == whole {
        part.slice
    } else {
        program.slices.push(slice);
        (program.slices.len() - 1) as u32
    };
    MixPart { slice: index, reads: part.reads * share, writes: part.writes * share }
}
