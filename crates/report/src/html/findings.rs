//! The first screen in sentences: what is wrong, which objects matter, how each is used, and what that use calls for.
//!
//! Every number in them is one of `insight`'s; what to do follows from the pattern alone and promises no gain.

use numapilot_flows::Trace;
use numapilot_insight::DecisionRow;
use numapilot_insight::Findings;
use numapilot_insight::Headline;
use numapilot_insight::Pattern;
use numapilot_insight::RowKey;
use numapilot_insight::Subject;
use numapilot_insight::Verdict;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use serde::Serialize;

use crate::findings::{evidence_words, fix_words, gain_words, nothing_words, subject_words};
use crate::units;

/// Objects with a sentence.
const SENTENCES: usize = 4;
/// Share of accesses (all, or remote ones) below which an object gets none, once there is a first.
const WORTH_A_SENTENCE: f64 = 0.01;
/// Share of the allocating threads from which objects are said to be theirs alone.
const PRIVATE: f64 = 0.9;
/// Share on one node from which that node is named alone.
const ONE_NODE: f64 = 0.8;

/// A run of words; the strong ones are what an eye that only skims should catch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Words(String, bool);

/// What the first screen says of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The site that it is about.
    pub site: Option<u32>,
    /// What is so.
    pub says: Vec<Words>,
    /// What that calls for.
    pub advice: String,
}

/// One sentence on the whole, for the top of the page.
#[must_use]
pub fn verdict(headline: &Headline, found: &Findings, nodes: &[NodeId]) -> Vec<Words> {
    if let Some(blindness) = &headline.blindness {
        return vec![strong(&blindness.says())];
    }
    let is_empty = matches!(headline.verdict, Verdict::NothingSeen | Verdict::NotSampled);
    if let Some(words) = nothing_words(found).filter(|_| !is_empty) {
        return vec![strong(&words)];
    }
    let totals = &headline.totals;
    let all: f64 = totals.served.iter().map(|served| served.value).sum();
    let busiest = totals.served.iter().zip(nodes).max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let busiest = busiest.filter(|_| all > 0.0).map(|(served, node)| {
        format!("node {node} alone serves {} of all memory accesses", units::percent(served.value / all))
    });
    let busiest = busiest.unwrap_or_default();
    match headline.verdict {
        Verdict::NothingSeen | Verdict::Blind => {
            vec![strong("No memory access was recorded."), plain(" Objects and threads are listed all the same.")]
        }
        Verdict::NotSampled => {
            vec![
                strong("Nothing is known of memory accesses:"),
                plain(" no event of them was sampled. The notes say what was."),
            ]
        }
        Verdict::NothingToFix => {
            vec![
                strong("Nothing to fix."),
                plain(" Accesses are mostly local and the memory controllers evenly loaded."),
            ]
        }
        Verdict::Remote => {
            vec![strong("Accesses travel"), plain(" to other nodes; the memory controllers are evenly loaded.")]
        }
        Verdict::Imbalanced => vec![strong("Accesses pile up:"), plain(&format!(" {busiest}."))],
        Verdict::RemoteAndImbalanced => {
            vec![strong("Accesses travel and pile up:"), plain(&format!(" {busiest}."))]
        }
    }
}

/// What `insight` found, with the best fix of each and its price; empty where it found nothing.
#[must_use]
pub fn priced(found: &Findings, trace: &Trace, machine: Option<&Machine>) -> Vec<Finding> {
    let finding = |finding: &numapilot_insight::Finding| {
        let evidence: Vec<String> = finding.evidence.iter().map(evidence_words).collect();
        let fix = finding.fixes.first().map_or_else(String::new, |fix| {
            let by = if fix.kind.works_by_plan() { "" } else { " Needs a change of the source." };
            format!("To do: {}: {}.{by}", fix_words(fix, trace), gain_words(&fix.gain))
        });
        Finding {
            site: if let Subject::Site(site) = finding.subject { Some(site.0) } else { None },
            says: vec![
                strong(&subject_words(&finding.subject, trace, machine)),
                plain(": "),
                strong(finding.pattern.name()),
                plain(&format!(". {}.", evidence.join("; "))),
            ],
            advice: fix,
        }
    };
    found.findings.iter().take(SENTENCES).map(finding).collect()
}

/// The objects that matter most, first those that draw most remote accesses.
#[must_use]
pub fn findings(rows: &[DecisionRow], nodes: &[NodeId]) -> Vec<Finding> {
    let mut known: Vec<&DecisionRow> = rows.iter().filter(|row| row.key != RowKey::Unknown).collect();
    let weight = |row: &DecisionRow| row.share_of_remote.value.max(row.share.value * 0.5);
    known.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let worth = |row: &DecisionRow| row.share.value.max(row.share_of_remote.value) >= WORTH_A_SENTENCE;
    let chosen = known.iter().enumerate().filter(|(place, row)| *place == 0 || worth(row)).map(|(_, row)| row);
    chosen.take(SENTENCES).map(|row| finding(row, nodes)).collect()
}

fn finding(row: &DecisionRow, nodes: &[NodeId]) -> Finding {
    let site = match row.key {
        RowKey::Site(site) => Some(site.0),
        RowKey::Object(_) | RowKey::Unknown => None,
    };
    let place = if row.place.is_empty() { String::new() } else { format!("{}, ", row.place) };
    let peak = units::bytes(row.size.peak_live_bytes);
    let what = match row.size.allocated_instances {
        0 | 1 => format!(" ({place}{peak} of {})", row.kind.word()),
        many => format!(" ({place}{many} {} objects, {peak} at their peak)", row.kind.word()),
    };
    Finding {
        site,
        says: vec![
            strong(&row.name),
            plain(&what),
            plain(" draws "),
            strong(&units::share(&row.share)),
            plain(" of all memory accesses and "),
            strong(&units::share(&row.share_of_remote)),
            plain(" of the remote ones; "),
            plain(&format!("{} of its own are remote.", units::percent(row.remote.value))),
            plain(&format!(" {}; {}.", users(row), lies(row, nodes))),
        ],
        advice: advice(row, nodes),
    }
}

/// Who uses it, and how.
fn users(row: &DecisionRow) -> String {
    let writes = match row.read_only_bound {
        Some(bound) => format!("no write among {} samples: under {}", row.samples, units::percent(bound)),
        None => format!("{} writes", units::percent(row.writes.value)),
    };
    let own = row.by_allocator.map_or(0.0, |share| share.value);
    if row.instances > 1 && own >= PRIVATE {
        return format!(
            "Each is used by the thread that allocated it ({} of the accesses; {writes})",
            units::percent(own)
        );
    }
    let users = match (row.threads, row.nodes) {
        (1, _) => "One thread".to_owned(),
        (threads, 1) => format!("{threads} threads on one node"),
        (threads, nodes) => format!("{threads} threads on {nodes} nodes"),
    };
    let verb = match (row.writes.value, row.threads) {
        (writes, 1) if writes <= 0.05 => "reads",
        (writes, 1) if writes >= 0.95 => "writes",
        (_, 1) => "reads and writes",
        (writes, _) if writes <= 0.05 => "read",
        (writes, _) if writes >= 0.95 => "write",
        _ => "read and write",
    };
    let them = if row.instances > 1 { "them" } else { "it" };
    format!("{users} {verb} {them} ({writes})")
}

/// Where its pages are.
fn lies(row: &DecisionRow, nodes: &[NodeId]) -> String {
    let pages = if row.instances > 1 { "their pages" } else { "its pages" };
    match most(&row.on_node.iter().map(|share| share.value).collect::<Vec<_>>(), nodes) {
        Some((node, share)) if share >= 0.995 => format!("all of {pages} lie on node {node}"),
        Some((node, share)) if share >= ONE_NODE => {
            format!("{} of {pages} in use lie on node {node}", units::percent(share))
        }
        Some(_) => format!("{pages} are spread over the nodes"),
        None => format!("where {pages} lie is not known"),
    }
}

fn advice(row: &DecisionRow, nodes: &[NodeId]) -> String {
    let on: Vec<f64> = row.on_node.iter().map(|share| share.value).collect();
    let home = most(&on, nodes).filter(|(_, share)| *share >= ONE_NODE).map(|(node, _)| node);
    match row.pattern {
        Pattern::TooFewSamples => "Too few samples to say how it is used.".to_owned(),
        Pattern::Local => "Local already: leave it where it is.".to_owned(),
        Pattern::PrivateRemote => {
            "Only its allocating thread uses it, on pages that others placed: allocate it locally, from a heap per thread or node."
                .to_owned()
        }
        Pattern::UsedElsewhere => {
            let node = row.best_node.map_or_else(|| "the node that uses it".to_owned(), |node| format!("node {node}"));
            format!("Nearly only {node} uses it: allocate it there, or let a thread there touch it first.")
        }
        Pattern::SharedRead => match home {
            Some(node) => format!(
                "Hardly anybody writes it: a copy per node would make it local; spreading its pages would at least relieve node {node}."
            ),
            None => "Hardly anybody writes it: a copy per node would make it local.".to_owned(),
        },
        Pattern::SharedWritten => match home {
            Some(node) => format!(
                "Several nodes use it, with writes: let each thread touch its own part first, or spread its pages to relieve node {node}."
            ),
            None => {
                "Several nodes use it, with writes: if each thread has a part of its own, let it touch that part first."
                    .to_owned()
            }
        },
    }
}

/// The node with the greatest share, and that share.
fn most(shares: &[f64], nodes: &[NodeId]) -> Option<(NodeId, f64)> {
    let most = nodes.iter().copied().zip(shares.iter().copied()).max_by(|a, b| a.1.total_cmp(&b.1));
    most.filter(|(_, share)| *share > 0.0)
}

/// The words without their weight.
#[must_use]
pub fn text(words: &[Words]) -> String {
    words.iter().map(|words| words.0.as_str()).collect()
}

fn plain(text: &str) -> Words {
    Words(text.to_owned(), false)
}

fn strong(text: &str) -> Words {
    Words(text.to_owned(), true)
}
