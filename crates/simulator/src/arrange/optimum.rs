//! The best placement of a whole program that the search of `numapilot_placement` finds: one home for every page, from the first touch to the end.

use std::collections::BTreeMap;

use numapilot_machine::{Machine, NodeId, NodeIndex};
use numapilot_placement::{Change, Demand, OptimumOptions, PageGroup, PageHome, Phase, ThreadGroup, Work, optimum};
use numapilot_traffic::MemorySystem;

use super::usage::{ByNode, Usage};
use crate::error::SimulatorError;
use crate::notes::UNSOLVED;
use crate::options::Layout;
use crate::program::{OrderedHomes, PAGE_BYTES, Program};

/// A node with at least this part of an equal share uses a page.
const USER_SHARE: f64 = 0.5;
/// Regions of fewer pages are taken together, by process.
const SMALL_REGION: u64 = 64;
/// A page with fewer writes than this share is read-only.
const READ_ONLY: f64 = 1e-6;

/// Result of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimalPlacement {
    /// Seconds that the model predicts for it, without synchronisation.
    pub predicted_s: f64,
    /// No static placement takes less, in seconds.
    pub bound_s: f64,
    /// Whether the search ended because its budget of evaluations was used up.
    pub out_of_budget: bool,
    /// How far the model was from converging for it, 0 where it did ([`numapilot_placement::Optimum::residual`]).
    pub residual: f64,
}

impl OptimalPlacement {
    /// Whether the model did not converge for it, so that what it predicts is approximate.
    #[must_use]
    pub fn is_approximate(&self) -> bool {
        self.residual > UNSOLVED
    }
}

/// Gives every page the home that the search finds best, and says what it predicts.
///
/// # Errors
/// If the machine cannot be modelled, or the program does not fit into its memory.
pub fn optimal(program: &mut Program, machine: &Machine, layout: Layout) -> Result<OptimalPlacement, SimulatorError> {
    let usage = Usage::of(program, machine, layout)?;
    let groups = Groups::of(program, &usage);
    let system = MemorySystem::new(machine)?;
    let options = OptimumOptions { change: Change::Never, ..OptimumOptions::default() };
    let found = optimum(machine, &system, &groups.demand(&usage), &options)?;
    let mut homes: Vec<Vec<NodeId>> =
        program.regions.iter().map(|region| vec![NodeId(0); region.pages as usize]).collect();
    let placement = &found.phases[0].placement;
    for (group, home) in groups.all.values().zip(&placement.pages) {
        let PageHome::Spread(counts) = home else { continue };
        // By number of pages as planned, and evenly by heat: the hottest page goes to the node that lacks most.
        let mut pages = group.pages.clone();
        pages.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        let total: u64 = counts.iter().sum();
        let heat: f64 = pages.iter().map(|page| page.2).sum();
        let mut lacks: Vec<f64> =
            counts.iter().map(|count| *count as f64 / total.max(1) as f64 * heat.max(1e-9)).collect();
        let mut room = counts.clone();
        for (region, page, accesses) in pages {
            let open = |node: &usize| room[*node] > 0;
            let Some(node) = (0..room.len()).filter(open).max_by(|a, b| lacks[*a].total_cmp(&lacks[*b])) else { break };
            lacks[node] -= accesses;
            room[node] -= 1;
            homes[region as usize][page as usize] = machine.nodes()[node].id;
        }
    }
    for (region, homes) in homes.into_iter().enumerate() {
        program.ordered_homes.push(OrderedHomes { region: region as u32, first: 0, homes });
    }
    let (predicted_s, bound_s) = (found.total_s, found.bound_s);
    Ok(OptimalPlacement { predicted_s, bound_s, out_of_budget: found.out_of_budget, residual: found.residual })
}

/// The key of a group of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Region, or all small ones of a process.
    label: u32,
    main: usize,
    users: u64,
    read_only: bool,
}

#[derive(Default)]
struct PageSet {
    /// The pages as (region index, page index, accesses).
    pages: Vec<(u32, u64, f64)>,
    sum: ByNode,
}

struct Groups {
    all: BTreeMap<Kind, PageSet>,
}

impl Groups {
    fn of(program: &Program, usage: &Usage) -> Groups {
        let nodes = usage.work.len();
        let mut all: BTreeMap<Kind, PageSet> = BTreeMap::new();
        for (index, region) in program.regions.iter().enumerate() {
            for page in 0..region.pages {
                let by_node = usage.page(program, index as u32, page);
                let label = if region.pages >= SMALL_REGION { index as u32 } else { u32::MAX - region.process };
                let kind = kind(&by_node, nodes, label);
                let set = all.entry(kind).or_default();
                set.pages.push((index as u32, page, by_node.total()));
                set.sum.reads.resize(nodes, 0.0);
                set.sum.writes.resize(nodes, 0.0);
                for node in 0..nodes {
                    set.sum.reads[node] += by_node.reads[node];
                    set.sum.writes[node] += by_node.writes[node];
                }
            }
        }
        Groups { all }
    }

    fn demand(&self, usage: &Usage) -> Demand {
        let nodes = usage.work.len();
        let busy: Vec<usize> = (0..nodes).filter(|node| usage.work[*node].threads > 0.0).collect();
        let group = |node: &usize| ThreadGroup { node: NodeIndex(*node), threads: usage.work[*node].threads };
        let threads = busy.iter().map(group).collect();
        let even = vec![1.0 / nodes as f64; nodes];
        let page_group =
            |set: &PageSet| PageGroup { bytes: set.pages.len() as u64 * PAGE_BYTES, first_touch: even.clone() };
        let pages = self.all.values().map(page_group).collect();
        let work = |node: &usize| {
            let done = usage.work[*node];
            let of_all = |accesses: f64| accesses / done.accesses.max(1e-9);
            Work {
                accesses: done.accesses,
                outstanding: if done.waits > 0.0 { done.accesses / done.waits } else { 1.0 },
                think_ns: of_all(done.own_ns),
                reads: self.all.values().map(|set| of_all(set.sum.reads[*node])).collect(),
                writes: self.all.values().map(|set| of_all(set.sum.writes[*node])).collect(),
            }
        };
        Demand { threads, pages, phases: vec![Phase { work: busy.iter().map(work).collect() }] }
    }
}

/// Pages of one region (or of all small ones) with the same main user and the same set of users are one group.
fn kind(by_node: &ByNode, nodes: usize, label: u32) -> Kind {
    let total = by_node.total();
    let at = |node: usize| by_node.reads[node] + by_node.writes[node];
    let main = (0..nodes).find(|node| at(*node) > 0.6 * total).unwrap_or(nodes);
    let users = (0..nodes)
        .filter(|node| at(*node) * nodes as f64 >= USER_SHARE * total && total > 0.0)
        .fold(0, |mask, node| mask | 1u64 << node);
    let read_only = by_node.writes.iter().sum::<f64>() <= READ_ONLY * total;
    Kind { label, main, users, read_only }
}
