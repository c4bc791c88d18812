//! The three figures and the verdict at the top of every report.

use numapilot_flows::Evidence;
use numapilot_machine::NodeId;
use serde::Serialize;

use crate::blind::Blindness;
use crate::context::Analysis;
use crate::decision::{DecisionRow, RowKey};
use crate::estimate::Estimate;
use crate::totals::{Totals, imbalance_of};

/// The figures and the verdict at the top of a report. The report words them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Headline {
    /// Totals: share of remote accesses, controller imbalance.
    pub totals: Totals,
    /// The allocation site with most accesses; `None` where no access has a known object.
    pub top: Option<DecisionRow>,
    /// Whether there is anything to fix on the machine as a whole.
    pub verdict: Verdict,
    /// Why there is no verdict, where too little was seen.
    pub blindness: Option<Blindness>,
    /// What nodes without CPUs serve; `None` where the machine has none, or too few homes are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_cpus: Option<WithoutCpus>,
}

/// Accesses to memory of nodes on which no thread can run (CXL, HBM): remote ones wherever threads run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithoutCpus {
    /// These nodes, in the machine's order.
    pub nodes: Vec<NodeId>,
    /// Of the accesses with known home, the share that they serve, 0 to 1.
    pub share: f64,
}

/// Whether there is anything to fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Too little was seen to judge by.
    Blind,
    /// No memory access was seen.
    NothingSeen,
    /// Memory accesses may have been seen, but none passes the filter.
    NothingPasses,
    /// No event that samples memory accesses was recorded, so nothing is known of them.
    NotSampled,
    /// Page faults were recorded: who touched each page first, not how often memory is accessed.
    PageFaults,
    /// The home node of more than half of the accesses is unknown.
    HomesUnknown,
    /// Fewer accesses were sampled than a verdict needs, by an engine that does not count them.
    TooFew,
    /// Few remote accesses and balanced controllers. The model may find something to fix all the same, such as false sharing.
    NothingToFix,
    /// Many accesses are remote; the memory controllers are evenly loaded.
    Remote,
    /// The memory controllers are unevenly loaded; accesses are mostly local.
    Imbalanced,
    /// Many accesses are remote, and the memory controllers are unevenly loaded.
    RemoteAndImbalanced,
}

/// Remote share, 0 to 1, from which the verdict says that many accesses are remote.
const MUCH_REMOTE: f64 = 0.1;
/// Imbalance (sample definition) from which controllers count as unevenly loaded: one of four nodes at about twice the mean.
const MUCH_IMBALANCE: f64 = 0.5;

impl Analysis<'_> {
    /// Computes the figures and the verdict for the top of the report.
    #[must_use]
    pub fn headline(&self) -> Headline {
        self.headline_of(&self.sites())
    }

    /// The same for callers that already have the result of [`Analysis::sites`].
    #[must_use]
    pub fn headline_of(&self, sites: &[DecisionRow]) -> Headline {
        let totals = self.totals();
        let top = sites.iter().find(|row| row.key != RowKey::Unknown).cloned();
        let is_remote = totals.remote_share.value >= MUCH_REMOTE;
        let is_imbalanced = self.imbalance_that_counts(&totals) >= MUCH_IMBALANCE;
        let evidence = self.trace.evidence();
        let blindness = self.blindness();
        let verdict = match (totals.accesses.value > 0.0, is_remote, is_imbalanced) {
            _ if blindness.is_some() => Verdict::Blind,
            _ if evidence == Evidence::Other => Verdict::NotSampled,
            (false, _, _) if !self.filter.is_empty() => Verdict::NothingPasses,
            (false, _, _) => Verdict::NothingSeen,
            _ if evidence == Evidence::PageFaults => Verdict::PageFaults,
            _ if !totals.knows_homes() => Verdict::HomesUnknown,
            // Where nothing was left out, few are all there are.
            _ if self.samples_too_few(totals.samples) && !totals.remote_share.is_exact() => Verdict::TooFew,
            (true, false, false) => Verdict::NothingToFix,
            (true, true, false) => Verdict::Remote,
            (true, false, true) => Verdict::Imbalanced,
            (true, true, true) => Verdict::RemoteAndImbalanced,
        };
        let without_cpus = self.served_without_cpus(&totals);
        Headline { totals, top, verdict, blindness, without_cpus }
    }

    /// Imbalance (sample definition) over the nodes with memory, but for those without CPUs that serve less than an even share: where threads touch pages
    /// first, they serve nothing, and no page is the worse placed for it.
    fn imbalance_that_counts(&self, totals: &Totals) -> f64 {
        let served = self.nodes.iter().zip(&totals.served).filter(|(node, _)| self.memory_nodes.contains(node));
        let served: Vec<(NodeId, Estimate)> = served.map(|(node, served)| (*node, *served)).collect();
        let even = served.iter().map(|(_, served)| served.value).sum::<f64>() / served.len() as f64;
        let counts = |(node, served): &(NodeId, Estimate)| served.value >= even || !self.without_cpus.contains(node);
        let counted: Vec<Estimate> = served.into_iter().filter(counts).map(|(_, served)| served).collect();
        imbalance_of(&counted).sample.value
    }

    fn served_without_cpus(&self, totals: &Totals) -> Option<WithoutCpus> {
        if self.without_cpus.is_empty() || !totals.knows_homes() {
            return None;
        }
        let served = self.nodes.iter().zip(&totals.served).filter(|(node, _)| self.without_cpus.contains(node));
        let share = served.map(|(_, served)| served.value).sum::<f64>() / totals.known_accesses();
        Some(WithoutCpus { nodes: self.without_cpus.clone(), share })
    }
}
