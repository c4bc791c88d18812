//! Idle latencies and distances of a model file: rules by number of hops or by nodes, later ones over earlier ones.

use std::ops::Range;

use super::Reader;
use crate::check;
use crate::error::{MachineError, Problem};
use crate::ids::NodeId;
use crate::machine::Machine;

/// `[from][to]`, by position in the list of nodes.
type Matrix<T> = Vec<Vec<Option<T>>>;

/// Latencies in nanoseconds, distances, and notes.
type Pairs = (Matrix<f64>, Matrix<u32>, Vec<String>);

/// The common part of the rules of both tables.
struct Rule<'a> {
    place: String,
    hops: Option<usize>,
    from: Option<&'a [u16]>,
    to: Option<&'a [u16]>,
    span: Range<usize>,
}

impl Reader<'_> {
    /// Latencies, distances, and notes on what was derived.
    pub(super) fn pairs(&mut self, machine: &Machine) -> Result<Pairs, MachineError> {
        let latencies = self.latencies(machine)?;
        let mut notes = Vec::new();
        let distances = if self.raw.distances.is_empty() && machine.nodes().len() > 1 {
            notes.push("Distances are derived from idle latencies (10 x latency / local latency, rounded): the model gives none.".into());
            derived_distances(machine, &latencies)
        } else {
            self.distances(machine)?
        };
        Ok((latencies, distances, notes))
    }

    fn latencies(&mut self, machine: &Machine) -> Result<Matrix<f64>, MachineError> {
        let count = machine.nodes().len();
        let mut latencies = vec![vec![None; count]; count];
        self.rule_of = vec![vec![None; count]; count];
        let raw = self.raw;
        for (index, spanned) in raw.idle_latency.iter().enumerate() {
            let given = spanned.get_ref();
            let place = format!("idle_latency[{index}]");
            let ns =
                self.figure(&format!("{place}.ns"), "ns", &given.ns, check::LATENCY_NS_MIN, check::LATENCY_NS_MAX)?;
            let rule = Rule {
                place,
                hops: given.hops,
                from: given.from.as_deref(),
                to: given.to.as_deref(),
                span: spanned.span(),
            };
            for (from, to) in self.matching(machine, &rule)? {
                if machine.nodes()[from].has_cpus() && machine.nodes()[to].has_memory() {
                    latencies[from][to] = Some(ns);
                    self.rule_of[from][to] = Some(index);
                }
            }
        }
        for (from, row) in latencies.iter().enumerate().filter(|(from, _)| machine.nodes()[*from].has_cpus()) {
            if let Some(to) = (0..count).find(|&to| row[to].is_none() && machine.nodes()[to].has_memory()) {
                let (from, to) = (machine.nodes()[from].id, machine.nodes()[to].id);
                let hops = machine.hops(from, to).unwrap_or(0);
                let what = format!("none is given from node {from} to node {to} ({hops} hops)");
                let remedy =
                    format!("add [[idle_latency]] with hops = {hops}, or with from = [{from}] and to = [{to}]");
                return Err(self.located(Problem::new("idle_latency", what, remedy)));
            }
        }
        Ok(latencies)
    }

    fn distances(&mut self, machine: &Machine) -> Result<Matrix<u32>, MachineError> {
        let count = machine.nodes().len();
        let mut distances: Matrix<u32> =
            (0..count).map(|i| (0..count).map(|j| (i == j).then_some(10)).collect()).collect();
        let raw = self.raw;
        for (index, spanned) in raw.distances.iter().enumerate() {
            let given = spanned.get_ref();
            let place = format!("distances[{index}]");
            let max = f64::from(check::DISTANCE_MAX);
            let value = self.whole(&format!("{place}.value"), "(10 is local)", &given.value, 10.0, max)?;
            let rule = Rule {
                place,
                hops: given.hops,
                from: given.from.as_deref(),
                to: given.to.as_deref(),
                span: spanned.span(),
            };
            for (from, to) in self.matching(machine, &rule)? {
                distances[from][to] = Some(value as u32);
            }
        }
        Ok(distances)
    }

    /// The pairs that a rule speaks of, by position.
    fn matching(&self, machine: &Machine, rule: &Rule<'_>) -> Result<Vec<(usize, usize)>, MachineError> {
        let error =
            |what: String, remedy: &str| self.error(Problem::new(&rule.place, what, remedy), Some(rule.span.clone()));
        if rule.hops.is_none() && (rule.from.is_none() || rule.to.is_none()) {
            return Err(error(
                "it does not say which pairs of nodes it is for".into(),
                "give hops = N, or from = [...] and to = [...]",
            ));
        }
        for id in rule.from.into_iter().chain(rule.to).flatten() {
            if machine.node(NodeId(*id)).is_none() {
                return Err(error(format!("there is no node {id}"), "name described nodes"));
            }
        }
        let named = |list: Option<&[u16]>, id: NodeId| list.is_none_or(|list| list.contains(&id.0));
        let mut pairs = Vec::new();
        for (i, from) in machine.nodes().iter().enumerate().filter(|(_, n)| named(rule.from, n.id)) {
            for (j, to) in machine.nodes().iter().enumerate().filter(|(_, n)| named(rule.to, n.id)) {
                if rule.hops.is_none_or(|hops| machine.hops(from.id, to.id) == Some(hops)) {
                    pairs.push((i, j));
                }
            }
        }
        if pairs.is_empty() {
            return Err(error(
                "no pair of nodes fits it".into(),
                "correct or remove it; hops counts links, also those to routers",
            ));
        }
        Ok(pairs)
    }
}

/// The relative latencies that ACPI's distance is defined as. From nodes without CPUs, the way back stands in.
fn derived_distances(machine: &Machine, latencies: &Matrix<f64>) -> Matrix<u32> {
    let count = machine.nodes().len();
    let one_way = |from: usize, to: usize| {
        let local =
            latencies[from][from].or_else(|| latencies[from].iter().flatten().copied().min_by(f64::total_cmp))?;
        let ratio = (10.0 * latencies[from][to]? / local).round();
        Some((ratio as u32).clamp(10, check::DISTANCE_MAX))
    };
    let cell =
        |from: usize, to: usize| if from == to { Some(10) } else { one_way(from, to).or_else(|| one_way(to, from)) };
    (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect()
}
