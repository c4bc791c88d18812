//! Ranges of a model file: values that are only known to lie between two bounds, and the parts of the machine that depend on each.

use toml::Spanned;

use super::file::RawFigure;
use super::{GB, Reader};
use crate::check;
use crate::error::{MachineError, Problem};
use crate::ids::NodeId;
use crate::parts::MachineParts;
use crate::unknown::{Subject, Unknown};
use crate::unknowns::local_of;

/// Latencies from a node to others are no multiple of its local one beyond these.
const OVER_LOCAL: (f64, f64) = (0.1, 1000.0);

impl Reader<'_> {
    /// Values for the traffic model that are not known exactly. To be called when all figures are read.
    pub(super) fn unknowns(&self, parts: &MachineParts) -> Result<Vec<Unknown>, MachineError> {
        let mut found = Vec::new();
        let raw = self.raw;
        let at = |id: u16| parts.nodes.iter().position(|node| node.id == NodeId(id));
        for (index, nodes) in raw.nodes.iter().enumerate() {
            let nodes: Vec<usize> = nodes.get_ref().ids.iter().filter_map(|&id| at(id)).collect();
            let figures = [
                ("memory_bandwidth_gb_per_s", Subject::MemoryBandwidth(nodes.clone())),
                ("cpus_read_gb_per_s", Subject::CpusRead(nodes.clone())),
                ("cpus_write_gb_per_s", Subject::CpusWrite(nodes)),
            ];
            for (name, subject) in figures {
                found.extend(self.ranged(&format!("nodes[{index}].{name}"), GB, subject));
            }
        }
        let mut first = 0;
        for (index, links) in raw.links.iter().enumerate() {
            let links = links.get_ref();
            let count = links.pairs.len() * if links.both_ways { 2 } else { 1 };
            let subject = Subject::LinkBandwidth((first..first + count).collect());
            found.extend(self.ranged(&format!("links[{index}].bandwidth_gb_per_s"), GB, subject));
            first += count;
        }
        self.ranged_latencies(parts, &mut found)?;
        let traffic = [
            ("controller_efficiency", Subject::ControllerEfficiency),
            ("write_turnaround", Subject::WriteTurnaround),
            ("crowding", Subject::Crowding),
            ("message_bytes", Subject::MessageBytes),
            ("answer_bytes", Subject::AnswerBytes),
            ("completion_bytes", Subject::CompletionBytes),
            ("release_bytes", Subject::ReleaseBytes),
            ("link_efficiency", Subject::LinkEfficiency),
        ];
        for (name, subject) in traffic {
            found.extend(self.ranged(&format!("traffic.{name}"), 1.0, subject));
        }
        Ok(found)
    }

    /// Latencies with a range, or with one of their ratio to the local latency.
    fn ranged_latencies(&self, parts: &MachineParts, found: &mut Vec<Unknown>) -> Result<(), MachineError> {
        let raw = self.raw;
        let mut pairs_of = vec![Vec::new(); raw.idle_latency.len()];
        for (from, row) in self.rule_of.iter().enumerate() {
            for (to, rule) in row.iter().enumerate().filter_map(|(to, rule)| Some((to, (*rule)?))) {
                pairs_of[rule].push((from, to));
            }
        }
        for (index, (latency, pairs)) in raw.idle_latency.iter().zip(&pairs_of).enumerate() {
            let place = format!("idle_latency[{index}]");
            let Some(ratio) = &latency.get_ref().over_local else {
                found.extend(self.ranged(&format!("{place}.ns"), 1.0, Subject::IdleLatency(pairs.clone())));
                continue;
            };
            found.extend(self.over_local(&place, ratio, &latency.get_ref().ns, pairs, parts)?);
        }
        Ok(())
    }

    /// The ratio of latencies between `pairs`, in nanoseconds `ns`, to the local ones of the nodes that they are from; `None` without pairs.
    fn over_local(
        &self,
        place: &str,
        ratio: &Spanned<(f64, f64)>,
        ns: &Spanned<RawFigure>,
        pairs: &[(usize, usize)],
        parts: &MachineParts,
    ) -> Result<Option<Unknown>, MachineError> {
        let (place, (low, high)) = (format!("{place}.over_local"), *ratio.get_ref());
        let error = |what: String, remedy: &str| self.error(Problem::new(&place, what, remedy), Some(ratio.span()));
        for bound in [low, high] {
            check::within(&place, "a bound", bound, OVER_LOCAL.0, OVER_LOCAL.1, "")
                .map_err(|problem| self.error(problem, Some(ratio.span())))?;
        }
        let ns = ns.get_ref();
        if ns.range.is_some() {
            let remedy = "give `range` of its nanoseconds, or `over_local`, not both";
            return Err(error("it has two ranges".to_owned(), remedy));
        }
        let mut value = None;
        for &(from, to) in pairs {
            let Some(local) = local_of(parts, from).filter(|_| from != to) else {
                let remedy = "give `range` of its nanoseconds there";
                return Err(error("it is for pairs without a latency to compare it with".to_owned(), remedy));
            };
            let of_local = ns.value / local;
            // To three digits, as figures are written.
            if of_local < low - 0.005 * low || of_local > high + 0.005 * high {
                let what = format!("{} ns are {of_local:.3} times the local latency, not {low} to {high}", ns.value);
                return Err(error(what, "give the least and the most that the ratio may be"));
            }
            // To a millionth: digits that JSON keeps.
            value = value.or(Some((of_local.clamp(low, high) * 1e6).round() / 1e6));
        }
        let source = self.source(&place, &ns.source, ratio.span())?;
        let subject = Subject::OverLocal(pairs.to_vec());
        Ok(value.map(|value| Unknown { place, subject, value, low, high, source }))
    }

    /// The unknown that a figure with a range is; `unit` turns the file's into the machine's.
    fn ranged(&self, place: &str, unit: f64, subject: Subject) -> Option<Unknown> {
        let figure = self.figures.iter().find(|figure| figure.place == place)?;
        let crate::FigureValue::Number(value) = figure.value else { return None };
        let (low, high) = figure.range?;
        let (place, source) = (place.to_owned(), figure.source.clone());
        Some(Unknown { place, subject, value: value * unit, low: low * unit, high: high * unit, source })
    }
}
