//! The observation for a policy: counters since its last decision, read as on a real machine.

use std::collections::{BTreeMap, BTreeSet};

use numapilot_machine::{NodeIndex, NodeSet};
use numapilot_placement::{HintFault, NodeCounters, Observation, PageKey, ThreadState};
use numapilot_traffic::{Class, Load};

use crate::engine::runner::{Epoch, Runners, Status};
use crate::engine::ways::Ways;
use crate::ledger::{Ledger, Scale};
use crate::pages::PageTable;
use crate::program::Program;

/// One thread's sums since the last decision.
#[derive(Clone, Debug, Default)]
struct ThreadSums {
    busy_ns: f64,
    instructions: f64,
    accesses: f64,
}

/// Sums of one group of threads: those of one process on one node.
#[derive(Clone, Debug, Default)]
struct GroupSums {
    busy_ns: f64,
    own_ns: f64,
    accesses: f64,
    latency_ns: f64,
    reads: Vec<f64>,
    writes: Vec<f64>,
}

/// Everything that is observed since the last decision.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) ledger: Ledger,
    threads: Vec<ThreadSums>,
    /// Sums by (process index, node).
    groups: BTreeMap<(u32, NodeIndex), GroupSums>,
    pub(crate) faults: Vec<HintFault>,
    pub(crate) collapses: Vec<(PageKey, NodeIndex)>,
    pub(crate) accessed: BTreeSet<PageKey>,
}

impl Watch {
    /// Starts observing at this time.
    pub(crate) fn at(now_ns: f64, threads: usize) -> Watch {
        Watch { ledger: Ledger::at(now_ns), threads: vec![ThreadSums::default(); threads], ..Watch::default() }
    }

    /// Adds the counts of one epoch.
    pub(crate) fn record(
        &mut self,
        epoch: &Epoch,
        program: &Program,
        pages: &PageTable,
        ways: &mut Ways,
        runners: &Runners,
    ) {
        for (sums, ready) in self.threads.iter_mut().zip(&epoch.ready_ns) {
            sums.busy_ns += ready;
        }
        for spent in &epoch.spent {
            let thread = spent.thread as usize;
            let node = runners.all[thread].node;
            let sums = &mut self.threads[thread];
            sums.instructions += spent.instructions;
            sums.accesses += spent.accesses;
            if spent.accesses <= 0.0 {
                continue;
            }
            let latency = ways.access_ns(program, pages, spent.behaviour, node);
            let mix = program.behaviours[spent.behaviour as usize].mix;
            let shares = ways.shares(program, pages, mix, node);
            let group = self.groups.entry((program.threads[thread].process, node)).or_default();
            group.busy_ns += spent.busy_ns;
            group.own_ns += spent.own_ns;
            group.accesses += spent.accesses;
            group.latency_ns += spent.accesses * latency;
            for (sums, shares) in [(&mut group.reads, &shares.reads), (&mut group.writes, &shares.writes)] {
                sums.resize(shares.len(), 0.0);
                sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share * spent.accesses);
            }
        }
    }

    /// The counters as an observation; samples, mapped ranges and outcomes are added by the caller.
    pub(crate) fn observation(
        &self,
        scale: &Scale,
        program: &Program,
        pages: &PageTable,
        runners: &Runners,
    ) -> Observation {
        let utilisations = self.ledger.controllers(scale);
        let node = |(node, &free_bytes): (usize, &u64)| NodeCounters {
            reads_to: self.ledger.reads.get(node).cloned().unwrap_or_else(|| vec![0.0; utilisations.len()]),
            writes_to: self.ledger.writes.get(node).cloned().unwrap_or_else(|| vec![0.0; utilisations.len()]),
            free_bytes,
            controller_utilisation: utilisations[node],
        };
        let alive = |&(thread, _): &(usize, &ThreadSums)| !matches!(runners.all[thread].status, Status::Done(_));
        let thread = |(thread, sums): (usize, &ThreadSums)| ThreadState {
            thread: thread as u32,
            process: program.threads[thread].process,
            node: runners.all[thread].node,
            allowed: NodeSet::all(utilisations.len()),
            busy_ns: sums.busy_ns,
            instructions: sums.instructions,
            memory_accesses: sums.accesses,
        };
        let links = self.ledger.links(scale);
        Observation {
            now_ns: self.ledger.to_ns as u64,
            elapsed_ns: self.ledger.elapsed_ns() as u64,
            nodes: pages.free_bytes().iter().enumerate().map(node).collect(),
            threads: self.threads.iter().enumerate().filter(alive).map(thread).collect(),
            hint_faults: self.faults.clone(),
            collapses: self.collapses.clone(),
            accessed: self.accessed.iter().copied().collect(),
            links: (!links.is_empty()).then_some(links),
            load: Some(self.load()),
            ..Observation::default()
        }
    }

    /// The groups as classes: overlap is latency over the time waited per access.
    fn load(&self) -> Load {
        let elapsed = self.ledger.elapsed_ns();
        let class = |(&(_, from), group): (&(u32, NodeIndex), &GroupSums)| {
            let sum: f64 = group.reads.iter().chain(&group.writes).sum();
            if sum <= 0.0 || elapsed <= 0.0 {
                return None;
            }
            let waited = group.busy_ns - group.own_ns;
            Some(Class {
                from: from.0,
                threads: group.busy_ns / elapsed,
                outstanding: if waited > 0.0 { group.latency_ns / waited } else { 1.0 },
                think_ns: group.own_ns / group.accesses,
                reads: group.reads.iter().map(|x| x / sum).collect(),
                writes: group.writes.iter().map(|x| x / sum).collect(),
            })
        };
        Load { classes: self.groups.iter().filter_map(class).collect(), background: Vec::new() }
    }
}
