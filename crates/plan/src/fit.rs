//! Fits a plan to a machine: resolves the nodes that its rules name, and handles nodes that the machine does not have.

use numapilot_machine::{CpuId, Machine, MemoryTier, NodeId, format_cpu_list};

use crate::error::PlanError;
use crate::plan::{Placing, Plan};
use crate::policy::{NodeSet, Policy};

/// How [`Plan::fit`] handles nodes that the plan names and the machine does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Such a node is an error.
    #[default]
    Exact,
    /// Node N becomes the machine's k-th node, where k is N modulo the machine's number of nodes. A tier that the machine lacks becomes all nodes.
    Fold,
}

/// A plan whose nodes are resolved for a machine, with the machine's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The plan, with each node set resolved to a list of nodes that the machine has. CPU lists are checked and unchanged.
    pub plan: Plan,
    /// Nodes with memory, ascending.
    pub memory_nodes: Vec<NodeId>,
    /// Nodes with CPUs that are online, ascending.
    pub cpu_nodes: Vec<NodeId>,
}

impl Fitted {
    /// Whether the machine has a single node, so that no rule can have an effect.
    #[must_use]
    pub fn is_moot(&self) -> bool {
        self.memory_nodes.len() < 2 && self.cpu_nodes.len() < 2
    }
}

impl Plan {
    /// Resolves the plan's nodes for a machine.
    ///
    /// # Errors
    /// [`PlanError::Misfit`] if the plan names a CPU that the machine does not have, or, with [`Fit::Exact`], such a node or tier of memory.
    pub fn fit(&self, machine: &Machine, fit: Fit) -> Result<Fitted, PlanError> {
        let nodes = machine.nodes();
        let memory_nodes: Vec<NodeId> = nodes.iter().filter(|n| n.has_memory()).map(|n| n.id).collect();
        let cpu_nodes: Vec<NodeId> = machine.cpu_nodes().map(|n| n.id).collect();
        let memory = Have { nodes: &memory_nodes, with: "memory" };
        let of_threads: Vec<NodeId> = machine.cpu_and_memory_nodes().map(|n| n.id).collect();
        // Where threads touch pages first.
        let touched = if of_threads.is_empty() { memory } else { Have { nodes: &of_threads, ..memory } };
        let cpus = Have { nodes: &cpu_nodes, with: "CPUs that are online" };
        let mut plan = self.clone();
        let fitter = Fitter { file: &self.file, machine, fit };
        for rule in &mut plan.objects {
            match &mut rule.policy {
                Policy::Node { node, .. } => *node = fitter.node(*node, memory, rule.line)?,
                Policy::Split(set @ NodeSet::All) => fitter.set(set, touched, rule.line)?,
                Policy::Interleave(set) | Policy::Split(set) => fitter.set(set, memory, rule.line)?,
                Policy::WeightedInterleave(weights) => fitter.weights(weights, memory, rule.line)?,
                Policy::Local | Policy::FirstUse | Policy::Replicate | Policy::HandOver(_) => {}
            }
        }
        let places = plan.threads.iter_mut().map(|rule| (&mut rule.placing, rule.line));
        for (placing, line) in places.chain(plan.processes.iter_mut().map(|rule| (&mut rule.placing, rule.line))) {
            match placing {
                Placing::Nodes(set) => fitter.set(set, cpus, line)?,
                Placing::Cpus(listed) => fitter.cpus(listed, line)?,
            }
        }
        Ok(Fitted { plan, memory_nodes, cpu_nodes })
    }
}

/// Nodes of the machine that a rule may name, and what they have.
#[derive(Clone, Copy)]
struct Have<'a> {
    nodes: &'a [NodeId],
    with: &'static str,
}

struct Fitter<'a> {
    file: &'a str,
    machine: &'a Machine,
    fit: Fit,
}

impl Fitter<'_> {
    fn misfit(&self, line: usize, what: String, remedy: String) -> PlanError {
        let file = if self.file.is_empty() { "the plan".to_owned() } else { self.file.to_owned() };
        PlanError::Misfit { file, line, what, remedy }
    }

    fn node(&self, node: NodeId, have: Have<'_>, line: usize) -> Result<NodeId, PlanError> {
        if have.nodes.contains(&node) {
            return Ok(node);
        }
        if self.fit == Fit::Fold && !have.nodes.is_empty() {
            return Ok(have.nodes[usize::from(node.0) % have.nodes.len()]);
        }
        let (known, with) = (format_cpu_list(have.nodes.iter().map(|id| u32::from(id.0))), have.with);
        let what =
            format!("it names node {node}, but machine {} has only nodes {known} with {with}", self.machine.name());
        let remedy =
            "name those (or \"all\"), or let `--fold` map node N to the machine's node N modulo its number of nodes"
                .to_owned();
        Err(self.misfit(line, what, remedy))
    }

    fn set(&self, set: &mut NodeSet, have: Have<'_>, line: usize) -> Result<(), PlanError> {
        let mut nodes = match &*set {
            NodeSet::All => have.nodes.to_vec(),
            NodeSet::Listed(listed) => {
                listed.iter().map(|node| self.node(*node, have, line)).collect::<Result<Vec<_>, _>>()?
            }
            NodeSet::Tier(tier) => self.tier(*tier, have, line)?,
        };
        nodes.sort_unstable();
        nodes.dedup();
        *set = NodeSet::Listed(nodes);
        Ok(())
    }

    fn tier(&self, tier: MemoryTier, have: Have<'_>, line: usize) -> Result<Vec<NodeId>, PlanError> {
        let mut nodes = self.machine.nodes_of_tier(tier);
        nodes.retain(|node| have.nodes.contains(node));
        if !nodes.is_empty() {
            return Ok(nodes);
        }
        if self.fit == Fit::Fold {
            return Ok(have.nodes.to_vec());
        }
        let why = match (tier, self.machine.wide_memory()) {
            (MemoryTier::Fast, Some(wide)) => {
                format!(": memory of node {} has more bandwidth than that of nodes with CPUs", wide.id)
            }
            _ if self.machine.nodes().iter().all(|node| self.machine.has_online_cpus(node)) => {
                ": all its nodes have CPUs".to_owned()
            }
            _ => String::new(),
        };
        let what =
            format!("it names tier {} of memory, but machine {} has none{why}", tier.name(), self.machine.name());
        let remedy = "name nodes (or \"all\"), or let `--fold` take all nodes for it".to_owned();
        Err(self.misfit(line, what, remedy))
    }

    fn weights(&self, weights: &mut Vec<(NodeId, u32)>, have: Have<'_>, line: usize) -> Result<(), PlanError> {
        let mut sums = std::collections::BTreeMap::new();
        for (node, weight) in weights.iter() {
            *sums.entry(self.node(*node, have, line)?).or_insert(0) += weight;
        }
        *weights = within_a_byte(sums.into_iter().collect());
        Ok(())
    }

    fn cpus(&self, cpus: &[CpuId], line: usize) -> Result<(), PlanError> {
        let all: Vec<CpuId> = self.machine.cpus().iter().map(|cpu| cpu.id).collect();
        match cpus.iter().find(|cpu| !all.contains(cpu)) {
            None => Ok(()),
            Some(cpu) => {
                let known = format_cpu_list(all.iter().map(|cpu| cpu.0));
                let what = format!("it names CPU {cpu}, but machine {} has only CPUs {known}", self.machine.name());
                Err(self.misfit(line, what, "name those, or give `nodes` in place of `cpus`".to_owned()))
            }
        }
    }
}

/// Weights are at most 255, as the kernel's are. Sums that are more become smaller in the same proportions, as nearly as whole numbers allow.
fn within_a_byte(mut weights: Vec<(NodeId, u32)>) -> Vec<(NodeId, u32)> {
    const MOST: u32 = 255;
    let greatest = |weights: &[(NodeId, u32)]| weights.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
    if greatest(&weights) <= MOST {
        return weights;
    }
    let common = weights.iter().fold(0, |common, (_, weight)| greatest_divisor(common, *weight)).max(1);
    weights.iter_mut().for_each(|(_, weight)| *weight /= common);
    let most = greatest(&weights);
    if most > MOST {
        weights.iter_mut().for_each(|(_, weight)| *weight = ((*weight * MOST + most / 2) / most).max(1));
    }
    weights
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}
