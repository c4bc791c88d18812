//! Other homes for a program's pages than the program chose: what a fix in its source, or the best placement that can be found, would do.
//!
//! Pure: takes a program and gives another, to be simulated like any other. What a fix costs to carry out (copying, more memory traffic at
//! the start) is not in it.

mod copies;
mod optimum;
mod pins;
mod range;
mod usage;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, MemoryTier, NodeId};

use crate::error::SimulatorError;
use crate::options::Layout;
use crate::program::{FirstTouch, OrderedHomes, Program};

pub use optimum::{OptimalPlacement, optimal};
pub use range::PageRange;
use range::Part;
use usage::Usage;

/// A placement of some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Round robin over all nodes with memory.
    Interleave,
    /// Round robin over the nodes that have memory and CPUs.
    Near,
    /// The same, asked for as the fast tier: refused where other memory has more bandwidth, or there is none.
    FastTier,
    /// All on one node.
    On(NodeId),
    /// Each page on the node that accesses it most: what local arenas, or a parallel first touch, would do.
    Users,
    /// A copy on every node whose threads use them; each thread uses its node's.
    Replicate,
    /// By first touch, whatever the program requests.
    FirstTouch,
    /// All threads of each process on one node, whatever pages are named; the recorded CPUs of threads no longer apply.
    PinProcesses,
}

/// The effect of an arrangement on a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Pages of 4 KiB that it applies to: those of the ranges that the program touches.
    pub pages: u64,
    /// Additional bytes of memory that it needs.
    pub more_bytes: u64,
}

/// Gives the pages of `ranges` other home nodes. Ranges may overlap; pages that the program never touches are passed over.
///
/// # Errors
/// If the machine has no such node or tier, or the node has no memory.
pub fn arrange(
    program: &mut Program,
    machine: &Machine,
    layout: Layout,
    ranges: &[PageRange],
    how: &Arrangement,
) -> Result<Arranged, SimulatorError> {
    let with_memory: Vec<NodeId> =
        machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    if let Arrangement::On(node) = how
        && !with_memory.contains(node)
    {
        let why = format!("it has no node {node} with memory; those with memory are {}", list(&with_memory));
        return Err(SimulatorError::Machine { machine: machine.name().to_owned(), why });
    }
    let spread = spread(machine, how, &with_memory)?;
    let parts = parts(program, ranges);
    let pages = parts.iter().map(|part| part.2).sum();
    let more_bytes = match how {
        Arrangement::Replicate => copies::replicate(program, machine, layout, &parts)?,
        Arrangement::PinProcesses => {
            pins::pin_processes(program, machine);
            0
        }
        Arrangement::FirstTouch => {
            program.first_touches = unbound(std::mem::take(&mut program.first_touches), &parts);
            0
        }
        Arrangement::Interleave
        | Arrangement::Near
        | Arrangement::FastTier
        | Arrangement::On(_)
        | Arrangement::Users => {
            let usage = (*how == Arrangement::Users).then(|| Usage::of(program, machine, layout)).transpose()?;
            for &(region, first, count) in &parts {
                let number = (program.regions[region as usize].first_page + first).0;
                let home = |page: u64| match (how, &usage) {
                    (Arrangement::On(node), _) => *node,
                    (_, Some(usage)) => usage
                        .main_user(program, region, first + page)
                        .map_or(with_memory[0], |node| machine.nodes()[node].id),
                    _ => spread[((number + page) % spread.len() as u64) as usize],
                };
                let homes = (0..count).map(home).collect();
                program.ordered_homes.push(OrderedHomes { region, first, homes });
            }
            0
        }
    };
    Ok(Arranged { pages, more_bytes })
}

/// The nodes over which pages are spread, at least one where `with_memory` has one.
fn spread(machine: &Machine, how: &Arrangement, with_memory: &[NodeId]) -> Result<Vec<NodeId>, SimulatorError> {
    if *how == Arrangement::FastTier && machine.nodes_of_tier(MemoryTier::Fast).is_empty() {
        let why = match machine.wide_memory() {
            Some(wide) => format!(
                "memory of node {} has more bandwidth than that of nodes with CPUs, so which is fast depends on the program; write near or bind:N",
                wide.id
            ),
            None => "it has no tiers of memory; write near, interleave or bind:N".to_owned(),
        };
        return Err(SimulatorError::Machine { machine: machine.name().to_owned(), why });
    }
    let near: Vec<NodeId> = machine.cpu_and_memory_nodes().map(|node| node.id).collect();
    let is_near = matches!(how, Arrangement::Near | Arrangement::FastTier) && !near.is_empty();
    Ok(if is_near { near } else { with_memory.to_vec() })
}

/// First touches without the nodes that the program asks for, on the pages of `parts` alone: a touch may be of more pages than these, and is cut then.
fn unbound(touches: Vec<FirstTouch>, parts: &[Part]) -> Vec<FirstTouch> {
    let mut cut = Vec::with_capacity(touches.len());
    for touch in touches {
        let end = touch.first + touch.pages;
        let mut next = touch.first;
        for &(_, first, pages) in parts.iter().filter(|part| part.0 == touch.region && touch.bound.is_some()) {
            let (from, to) = (first.max(next), (first + pages).min(end));
            if from >= to {
                continue;
            }
            if next < from {
                cut.push(FirstTouch { first: next, pages: from - next, ..touch });
            }
            cut.push(FirstTouch { first: from, pages: to - from, bound: None, ..touch });
            next = to;
        }
        if next < end {
            cut.push(FirstTouch { first: next, pages: end - next, ..touch });
        }
    }
    cut
}

/// The parts of regions that ranges of a process's pages reach into, each page once, ascending.
fn parts(program: &Program, ranges: &[PageRange]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, region) in program.regions.iter().enumerate() {
        let end = region.first_page + region.pages;
        let mut found: Vec<(PageNumber, PageNumber)> = ranges
            .iter()
            .filter(|range| range.0 == region.process)
            .map(|range| (range.1.max(region.first_page), (range.1 + range.2).min(end)))
            .filter(|(from, to)| from < to)
            .collect();
        found.sort_unstable();
        let mut next = PageNumber::default();
        for (from, to) in found {
            let from = from.max(next);
            if from < to {
                parts.push((index as u32, from - region.first_page, to - from));
                next = to;
            }
        }
    }
    parts
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
