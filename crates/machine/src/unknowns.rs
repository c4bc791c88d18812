//! What a machine's description leaves open, and the same machine with other values for it.

use crate::builtin::builtin_text;
use crate::error::Problem;
use crate::hardware::Node;
use crate::machine::Machine;
use crate::parts::MachineParts;
use crate::unknown::{Subject, Unknown};

impl Subject {
    /// The present values in a description.
    fn figures(&self, parts: &MachineParts) -> Vec<Option<f64>> {
        let traffic = &parts.traffic;
        match self {
            Subject::IdleLatency(pairs) => pairs.iter().map(|&(from, to)| latency_of(parts, from, to)).collect(),
            Subject::OverLocal(pairs) => {
                let both = |&(from, to): &(usize, usize)| [latency_of(parts, from, to), local_of(parts, from)];
                pairs.iter().flat_map(both).collect()
            }
            Subject::MemoryBandwidth(nodes) => {
                nodes.iter().map(|&node| parts.nodes.get(node)?.memory_bandwidth_bytes_per_s).collect()
            }
            Subject::CpusRead(nodes) => {
                nodes.iter().map(|&node| parts.nodes.get(node)?.cpus_read_bytes_per_s).collect()
            }
            Subject::CpusWrite(nodes) => {
                nodes.iter().map(|&node| parts.nodes.get(node)?.cpus_write_bytes_per_s).collect()
            }
            Subject::LinkBandwidth(links) => {
                links.iter().map(|&link| Some(parts.links.get(link)?.bandwidth_bytes_per_s)).collect()
            }
            Subject::ControllerEfficiency => vec![traffic.controller_efficiency],
            Subject::WriteTurnaround => vec![traffic.write_turnaround],
            Subject::Crowding => vec![traffic.crowding],
            Subject::MessageBytes => vec![traffic.message_bytes],
            Subject::AnswerBytes => vec![traffic.answer_bytes],
            Subject::CompletionBytes => vec![traffic.completion_bytes],
            Subject::ReleaseBytes => vec![traffic.release_bytes],
            Subject::LinkEfficiency => vec![traffic.link_efficiency],
        }
    }
}

impl Machine {
    /// The same machine with the ranges of the built-in model that it is, if it says none: recordings of older versions hold the figures alone.
    #[must_use]
    pub fn with_ranges_of_builtin(self) -> Machine {
        if !self.unknowns().is_empty() {
            return self;
        }
        let Some(text) = builtin_text(self.name()) else { return self };
        let Ok(model) = Machine::from_model_text(text, self.name()) else { return self };
        let mut parts = self.parts().clone();
        let is_same = |unknown: &&Unknown| unknown.subject.figures(model.parts()) == unknown.subject.figures(&parts);
        parts.unknowns = model.unknowns().iter().filter(is_same).cloned().collect();
        if parts.core.is_empty() {
            parts.core = model.parts().core;
        }
        Machine::try_from(parts).unwrap_or(self)
    }

    /// Values that are only known to lie between two bounds, in the order of the model file. Empty where it gives no ranges, even if not all is known.
    #[must_use]
    pub fn unknowns(&self) -> &[Unknown] {
        &self.parts().unknowns
    }

    /// The same machine with other values for some figures: each an unknown (this machine's, or one that the caller adds) and its value.
    ///
    /// # Errors
    /// If a value is out of all reason.
    pub fn with_values(&self, values: &[(&Unknown, f64)]) -> Result<Machine, Problem> {
        let mut parts = self.parts().clone();
        // Latencies that are multiples of the local ones need these first.
        for (unknown, value) in values {
            if let Subject::IdleLatency(pairs) = &unknown.subject {
                pairs.iter().for_each(|&(from, to)| set(&mut parts, from, to, *value));
            }
        }
        for unknown in self.unknowns() {
            let Subject::OverLocal(pairs) = &unknown.subject else { continue };
            let times = values.iter().find(|(other, _)| other.place == unknown.place).map_or(unknown.value, |v| v.1);
            for &(from, to) in pairs {
                let (local, was) = (local_of(&parts, from), local_of(self.parts(), from));
                if let (Some(local), Some(was), Some(ns)) = (local, was, latency_of(self.parts(), from, to)) {
                    set(&mut parts, from, to, ns * (local / was) * (times / unknown.value));
                }
            }
        }
        for (unknown, value) in values {
            let value = *value;
            match &unknown.subject {
                Subject::IdleLatency(_) | Subject::OverLocal(_) => {}
                Subject::MemoryBandwidth(nodes) => {
                    set_of_nodes(&mut parts, nodes, value, |node| &mut node.memory_bandwidth_bytes_per_s);
                }
                Subject::CpusRead(nodes) => {
                    set_of_nodes(&mut parts, nodes, value, |node| &mut node.cpus_read_bytes_per_s);
                }
                Subject::CpusWrite(nodes) => {
                    set_of_nodes(&mut parts, nodes, value, |node| &mut node.cpus_write_bytes_per_s);
                }
                Subject::LinkBandwidth(links) => {
                    for &link in links {
                        if let Some(link) = parts.links.get_mut(link) {
                            link.bandwidth_bytes_per_s = value;
                        }
                    }
                }
                Subject::ControllerEfficiency => parts.traffic.controller_efficiency = Some(value),
                Subject::WriteTurnaround => parts.traffic.write_turnaround = Some(value),
                Subject::Crowding => parts.traffic.crowding = Some(value),
                Subject::MessageBytes => parts.traffic.message_bytes = Some(value),
                Subject::AnswerBytes => parts.traffic.answer_bytes = Some(value),
                Subject::CompletionBytes => parts.traffic.completion_bytes = Some(value),
                Subject::ReleaseBytes => parts.traffic.release_bytes = Some(value),
                Subject::LinkEfficiency => parts.traffic.link_efficiency = Some(value),
            }
        }
        self.with_figures_in(parts)
    }
}

/// Sets a figure of these nodes.
fn set_of_nodes(parts: &mut MachineParts, nodes: &[usize], value: f64, figure: fn(&mut Node) -> &mut Option<f64>) {
    for &node in nodes {
        if let Some(node) = parts.nodes.get_mut(node) {
            *figure(node) = Some(value);
        }
    }
}

/// A node's latency to its own memory.
pub(crate) fn local_of(parts: &MachineParts, from: usize) -> Option<f64> {
    latency_of(parts, from, from)
}

fn latency_of(parts: &MachineParts, from: usize, to: usize) -> Option<f64> {
    parts.idle_latency_ns.get(from)?.get(to).copied().flatten()
}

fn set(parts: &mut MachineParts, from: usize, to: usize, ns: f64) {
    if let Some(known) = parts.idle_latency_ns.get_mut(from).and_then(|row| row.get_mut(to)) {
        *known = Some(ns);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Routing, builtin_names};

    use super::*;

    /// Its paths are taken over, and what else is derived: all of it is what its parts give.
    #[test]
    fn a_machine_with_other_values_is_what_its_parts_describe() {
        for name in builtin_names() {
            for routing in [Routing::Shortest, Routing::Widest] {
                let mut parts = Machine::load(name).unwrap().parts().clone();
                parts.routing = routing;
                let machine = Machine::try_from(parts).unwrap();
                let links = (0..machine.links().len()).step_by(2).collect();
                let some_links = Unknown {
                    place: "some links".to_owned(),
                    subject: Subject::LinkBandwidth(links),
                    value: 1e9,
                    low: 1e9,
                    high: 1e9,
                    source: String::new(),
                };
                let of_others = machine.unknowns().iter().map(|unknown| (unknown, unknown.high));
                let values: Vec<(&Unknown, f64)> = of_others.chain([(&some_links, 1e9)]).collect();
                let other = machine.with_values(&values).unwrap();
                assert_eq!(other, Machine::try_from(other.parts().clone()).unwrap(), "{name}, {routing:?}");
                assert_ne!(other, machine, "{name}");
            }
        }
    }

    #[test]
    fn a_recorded_machine_has_the_ranges_of_the_model_that_it_is_and_of_no_other() {
        let model = Machine::load("memprof-a").unwrap();
        assert!(!model.unknowns().is_empty());
        let mut parts = model.parts().clone();
        parts.unknowns.clear();
        let old = Machine::try_from(parts.clone()).unwrap();
        assert_eq!(old.with_ranges_of_builtin().unknowns(), model.unknowns());
        let bandwidths = |unknown: &&Unknown| matches!(unknown.subject, Subject::MemoryBandwidth(_));
        let others: Vec<Unknown> = model.unknowns().iter().filter(|unknown| !bandwidths(unknown)).cloned().collect();
        parts.nodes[0].memory_bandwidth_bytes_per_s = Some(1e9);
        let own = Machine::try_from(parts.clone()).unwrap();
        assert_eq!(own.with_ranges_of_builtin().unknowns(), others);
        parts.name = "mine".to_owned();
        assert!(Machine::try_from(parts).unwrap().with_ranges_of_builtin().unknowns().is_empty());
    }
}
