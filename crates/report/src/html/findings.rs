//! The page's first screen in sentences: the verdict, then each finding with its fix. Where `insight` has no findings, the objects with most remote accesses
//! and how they are used stand in their place.
//!
//! Every number comes from `insight`. Advice on an object follows from its pattern alone and promises no gain.

use numapilot_flows::Trace;
use numapilot_insight::DecisionRow;
use numapilot_insight::Findings;
use numapilot_insight::Headline;
use numapilot_insight::Nothing;
use numapilot_insight::Pattern;
use numapilot_insight::RowKey;
use numapilot_insight::Subject;
use numapilot_insight::Verdict;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_text::style::shorten;
use numapilot_text::units;
use serde::Serialize;

use crate::estimates;
use crate::findings::{
    doubt_words, effect_words, evidence_words, explanation, fix_words, means_words, nothing_words, subject_words,
};
use crate::heading::Heading;

/// Largest number of findings, or of objects, on the first screen.
const SENTENCES: usize = 4;
/// Share of all accesses, and of the remote ones, below which an object is left out, unless it is the first.
const WORTH_A_SENTENCE: f64 = 0.01;
/// Largest width of a place in a sentence, in columns: names of files can be longer than the page.
const PLACE_COLUMNS: usize = 120;
/// Share of accesses by the allocating thread from which an object counts as private to it.
const PRIVATE: f64 = 0.9;
/// Share of an object's accesses to one node from which only that node is named.
const ONE_NODE: f64 = 0.8;

/// A run of words, and whether it is emphasised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Words(String, bool);

/// One entry of the first screen: a finding, or an object and how it is used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The allocation site that it is about; `None` for threads, processes, controllers and links.
    pub site: Option<u32>,
    /// What happens and what it costs.
    pub says: Vec<Words>,
    /// What to do, and the predicted gain where it was priced; empty where there is nothing to do.
    pub advice: String,
    /// Figures that the finding rests on, one phrase each, which the page shows on a click; empty for an object.
    pub evidence: Vec<String>,
}

/// What is said in place of a verdict on a recording of allocations alone.
#[must_use]
pub fn heap_only() -> Vec<Words> {
    vec![
        strong("Allocations were recorded, but no memory accesses, so this page shows the heap alone."),
        plain(" Record memory accesses to see which memory is remote for the threads that use it."),
    ]
}

/// What is said before a verdict: what is missing of the program itself.
#[must_use]
pub fn missing(heading: &Heading) -> Vec<Words> {
    heading.missing().into_iter().map(|says| strong(&(says + " "))).collect()
}

/// One or two sentences on the whole recording, for the top of the page.
#[must_use]
pub fn verdict(headline: &Headline, found: &Findings, nodes: &[NodeId]) -> Vec<Words> {
    if let Some(blindness) = &headline.blindness {
        return vec![strong(&blindness.says())];
    }
    let is_empty = matches!(headline.verdict, Verdict::NothingSeen | Verdict::NothingPasses | Verdict::NotSampled);
    // What limits findings and gains is said whether there are any or not.
    let open = if found.cannot_say.is_empty() { String::new() } else { format!(" {}", found.cannot_say.join(" ")) };
    if let Some(words) = nothing_words(found).filter(|_| !is_empty) {
        let limits = Some(open).filter(|open| !open.is_empty() && found.nothing != Some(Nothing::Blind));
        return std::iter::once(strong(&words)).chain(limits.map(|open| plain(&open))).collect();
    }
    let totals = &headline.totals;
    let all: f64 = totals.served.iter().map(|served| served.value).sum();
    let busiest = totals.served.iter().zip(nodes).max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    // Up to half of the accesses may have no known home: no node is known to serve those.
    let of = if totals.knows_all_homes() { "all memory accesses" } else { "the memory accesses with known home" };
    let busiest = busiest
        .filter(|_| all > 0.0)
        .map(|(served, node)| format!("node {node} alone serves {} of {of}", units::part_percent(served.value / all)));
    let busiest = busiest.unwrap_or_default();
    match headline.verdict {
        Verdict::NothingPasses => {
            vec![strong("No memory access passes the filters."), plain(" Objects and threads are still listed.")]
        }
        Verdict::NothingSeen | Verdict::Blind => {
            vec![strong("No memory access was recorded."), plain(" Objects and threads are still listed.")]
        }
        Verdict::NotSampled => {
            vec![
                strong("Memory accesses were not sampled:"),
                plain(" no event of this recording samples them. The notes list the sampled events."),
            ]
        }
        Verdict::PageFaults => {
            vec![
                strong("Page faults were recorded, not accesses:"),
                plain(
                    " which thread touched each page first, and on which node that page is. How often memory is accessed is not known.",
                ),
            ]
        }
        Verdict::HomesUnknown => {
            let why = if found.cannot_say.is_empty() {
                "The home node of most accesses is unknown.".to_owned()
            } else {
                found.cannot_say.join(" ")
            };
            vec![strong("No placement can be judged."), plain(&format!(" {why}"))]
        }
        Verdict::TooFew => too_few(totals.samples),
        Verdict::NothingToFix => vec![
            strong("Accesses are mostly local,"),
            plain(&format!(" and the memory controllers are evenly loaded.{open}")),
        ],
        Verdict::Remote => vec![
            strong("Many accesses are remote;"),
            plain(&format!(" the memory controllers are evenly loaded.{open}")),
        ],
        Verdict::Imbalanced => {
            vec![strong("The memory controllers are unevenly loaded:"), plain(&format!(" {busiest}.{open}"))]
        }
        Verdict::RemoteAndImbalanced => vec![
            strong("Many accesses are remote, and the memory controllers are unevenly loaded:"),
            plain(&format!(" {busiest}.{open}")),
        ],
    }
}

/// That so few accesses were sampled that nothing can be judged by them.
fn too_few(samples: u64) -> Vec<Words> {
    let samples = units::counted(samples, "memory access was", "memory accesses were");
    vec![
        strong(&format!("Only {samples} sampled, which is too little to judge by.")),
        plain(" Record longer, or sample more often."),
    ]
}

/// The first findings of `insight`, each with its best fix and predicted gain; empty where there are none.
#[must_use]
pub fn priced(found: &Findings, trace: &Trace, machine: Option<&Machine>) -> Vec<Finding> {
    let finding = |finding: &numapilot_insight::Finding| {
        let fix = finding.fixes.first().map_or_else(String::new, |fix| {
            let by = means_words(fix, trace);
            let effect = effect_words(&fix.gain, fix.work_gain.as_ref(), &fix.uncertainty);
            format!("Fix: {}: {effect}.{}{by}", fix_words(fix, trace), doubt_words(fix))
        });
        Finding {
            site: if let Subject::Site(site) = finding.subject { Some(site.0) } else { None },
            says: vec![
                strong(&subject_words(&finding.subject, trace, machine)),
                plain(": "),
                strong(finding.pattern.name()),
                plain(&format!(". {}", explanation(finding))),
            ],
            advice: fix,
            evidence: finding.evidence.iter().map(evidence_words).collect(),
        }
    };
    found.findings.iter().take(SENTENCES).map(finding).collect()
}

/// The objects with most remote accesses, heaviest first, and how each is used. `is_advised`: whether to say what can be done about them.
#[must_use]
pub fn findings(rows: &[DecisionRow], nodes: &[NodeId], is_advised: bool) -> Vec<Finding> {
    let mut known: Vec<&DecisionRow> = rows.iter().filter(|row| row.key != RowKey::Unknown).collect();
    let weight = |row: &DecisionRow| row.share_of_remote.value.max(row.share.value * 0.5);
    known.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let worth = |row: &DecisionRow| row.share.value.max(row.share_of_remote.value) >= WORTH_A_SENTENCE;
    let chosen = known.iter().enumerate().filter(|(place, row)| *place == 0 || worth(row)).map(|(_, row)| row);
    chosen.take(SENTENCES).map(|row| finding(row, nodes, is_advised)).collect()
}

fn finding(row: &DecisionRow, nodes: &[NodeId], is_advised: bool) -> Finding {
    let site = match row.key {
        RowKey::Site(site) => Some(site.0),
        RowKey::Object(_) | RowKey::Unknown => None,
    };
    let place = if row.place.is_empty() { String::new() } else { format!("{}, ", shorten(&row.place, PLACE_COLUMNS)) };
    let peak = units::bytes(row.size.peak_live_bytes);
    let what = match row.size.allocated_instances {
        0 | 1 => format!(" ({place}{peak} of {})", row.kind.word()),
        many => format!(" ({place}{many} {} objects, {peak} at their peak)", row.kind.word()),
    };
    let mut says = vec![
        strong(&row.name),
        plain(&what),
        plain(" receives "),
        strong(&estimates::share(&row.share)),
        plain(" of all memory accesses"),
    ];
    if row.knows_homes() {
        says.extend([
            plain(" and "),
            strong(&estimates::share(&row.share_of_remote)),
            plain(" of the remote ones; "),
            plain(&format!("{} of its own are remote", units::part_percent(row.remote.value))),
        ]);
    }
    says.push(plain(&format!(". {}; {}.", users(row), served(row, nodes))));
    let advice = if is_advised { advice(row, nodes) } else { String::new() };
    Finding { site, says, advice, evidence: Vec::new() }
}

/// The threads that use an object, and whether they read or write it.
fn users(row: &DecisionRow) -> String {
    let writes = match row.read_only_bound {
        Some(bound) => format!("no write in {} samples: under {}", row.samples, estimates::bound_percent(bound)),
        None => format!("{} writes", units::part_percent(row.writes.value)),
    };
    let own = row.by_allocator.map_or(0.0, |share| share.value);
    if row.instances > 1 && own >= PRIVATE {
        return format!(
            "Each is used by the thread that allocated it ({} of the accesses; {writes})",
            units::part_percent(own)
        );
    }
    let users = match (row.threads, row.nodes) {
        (1, _) => "One thread".to_owned(),
        // From where they make their accesses is not known.
        (threads, 0) => format!("{threads} threads"),
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

/// The node or nodes that serve an object's accesses. Where its pages lie is not known but by these.
fn served(row: &DecisionRow, nodes: &[NodeId]) -> String {
    let whose = if row.instances > 1 { "their" } else { "its" };
    let known = if row.known_homes < 1.0 { " with known home" } else { "" };
    let accesses = format!("{whose} accesses{known}");
    let found = most(&row.on_node.iter().map(|share| share.value).collect::<Vec<_>>(), nodes);
    match found.filter(|_| row.knows_homes()) {
        Some((node, share)) if share >= 1.0 => format!("all of {accesses} are served by node {node}"),
        Some((node, share)) if share >= ONE_NODE => {
            format!("{} of {accesses} are served by node {node}", units::part_percent(share))
        }
        Some((node, share)) => {
            format!("{accesses} are served by several nodes, most by node {node} ({})", units::part_percent(share))
        }
        None => format!("the home node of most of {whose} accesses is not known"),
    }
}

fn advice(row: &DecisionRow, nodes: &[NodeId]) -> String {
    let on: Vec<f64> = row.on_node.iter().map(|share| share.value).collect();
    let home = most(&on, nodes).filter(|(_, share)| *share >= ONE_NODE).map(|(node, _)| node);
    match row.pattern {
        Pattern::TooFewSamples => "There are too few samples to judge how it is used.".to_owned(),
        Pattern::HomesUnknown => {
            "The home node of most of its accesses is unknown, so how it is placed cannot be judged.".to_owned()
        }
        Pattern::Local => "Nearly all of its accesses are local: leave it where it is.".to_owned(),
        Pattern::PrivateRemote => {
            "Nearly all accesses come from its allocating thread, but its pages are on another node: allocate it from a heap per thread or node."
                .to_owned()
        }
        Pattern::UsedElsewhere => match row.best_node {
            Some(node) => format!(
                "Nearly all accesses come from node {node}: allocate it there, or let a thread of that node touch it first."
            ),
            None => "Nearly all accesses come from a node without memory: allocate it on the nearest node that has some."
                .to_owned(),
        },
        Pattern::SharedRead | Pattern::SharedWritten if row.threads == 1 => match home {
            Some(node) => format!("One thread uses it, from several nodes: keep that thread on node {node}."),
            None => "One thread uses it, from several nodes: keep that thread on one node, and its memory there.".to_owned(),
        },
        Pattern::SharedRead => match home {
            Some(node) => format!(
                "It is hardly ever written: interleaving its pages would relieve node {node}, and if it is not written after its initialisation, a copy \
                 per node would make its accesses local."
            ),
            None => {
                "It is hardly ever written: if it is not written after its initialisation, a copy per node would make its accesses local."
                    .to_owned()
            }
        },
        Pattern::SharedWritten => match home {
            Some(node) => format!(
                "Several nodes read and write it: let each thread touch its own part first, or interleave its pages to relieve node {node}."
            ),
            None => {
                "Several nodes read and write it: if each thread has its own part, let it touch that part first."
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

/// The words without emphasis, joined.
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

#[cfg(test)]
mod tests {
    use numapilot_flows::Filter;

    use super::*;
    use crate::fixture::of_unknown_homes;

    /// What is found of the objects, as text.
    fn said(change: impl Fn(&mut DecisionRow)) -> Vec<String> {
        of_unknown_homes().with(Filter::default(), |export| {
            let mut rows = export.analysis.sites();
            rows.iter_mut().for_each(change);
            findings(&rows, export.analysis.nodes(), true).iter().map(|finding| text(&finding.says)).collect()
        })
    }

    fn of<'a>(found: &'a [String], name: &str) -> &'a str {
        found.iter().find(|says| says.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name}: {found:?}"))
    }

    /// Shares by home node are of accesses: of pages that nobody accesses, or seldom, they say nothing.
    #[test]
    fn an_object_is_served_by_nodes_and_its_pages_are_not_counted() {
        let found = said(|_| ());
        let words = of(&found, "known");
        assert!(words.ends_with("; all of its accesses are served by node 0."), "{words}");
        let words = of(&found, "unknown");
        assert!(words.ends_with("; the home node of most of its accesses is not known."), "{words}");
        let found = said(|row| {
            row.known_homes = row.known_homes.min(0.9);
            (row.on_node[0].value, row.on_node[1].value) = (0.9, 0.1);
        });
        let words = of(&found, "known");
        assert!(words.ends_with("; 90.0 % of its accesses with known home are served by node 0."), "{words}");
        let found = said(|row| (row.on_node[0].value, row.on_node[1].value) = (0.6, 0.4));
        let words = of(&found, "known");
        assert!(words.ends_with("; its accesses are served by several nodes, most by node 0 (60.0 %)."), "{words}");
    }

    #[test]
    fn a_place_of_any_length_leaves_the_sentence_readable() {
        let found = said(|row| row.place = "x".repeat(10_000));
        let words = of(&found, "known");
        assert!(words.contains("x…x") && words.len() < 1000, "{words}");
    }

    #[test]
    fn threads_on_unknown_nodes_are_not_on_0_nodes() {
        let found = said(|row| row.nodes = 0);
        let words = of(&found, "known");
        assert!(words.contains(" 2 threads read it "), "{words}");
    }

    #[test]
    fn a_node_serves_a_share_of_the_accesses_with_known_home() {
        let opened = of_unknown_homes();
        let say = |filter: Filter| {
            opened.with(filter, |export| {
                let headline = export.analysis.headline();
                assert_eq!(headline.verdict, Verdict::RemoteAndImbalanced);
                text(&verdict(&headline, &Findings::default(), export.analysis.nodes()))
            })
        };
        let words = say(Filter::default());
        assert!(words.ends_with("node 0 alone serves 100.0 % of the memory accesses with known home."), "{words}");
        let known = Filter { site: Some(numapilot_flows::SiteId(0)), ..Filter::default() };
        let words = say(known);
        assert!(words.ends_with("node 0 alone serves 100.0 % of all memory accesses."), "{words}");
    }

    /// That the figures look well is no finding: where findings could not be made, or were, the page does not say that there is nothing to fix.
    #[test]
    fn mostly_local_accesses_are_not_called_nothing_to_fix() {
        of_unknown_homes().with(Filter::default(), |export| {
            let mut headline = export.analysis.headline();
            headline.verdict = Verdict::NothingToFix;
            let say = |found: &Findings| text(&verdict(&headline, found, export.analysis.nodes()));
            assert_eq!(
                say(&Findings::default()),
                "Accesses are mostly local, and the memory controllers are evenly loaded."
            );
            let unpriced = Findings { cannot_say: vec!["No gain can be predicted.".to_owned()], ..Findings::default() };
            assert!(say(&unpriced).ends_with(" evenly loaded. No gain can be predicted."), "{}", say(&unpriced));
            let sound = Findings { nothing: Some(numapilot_insight::Nothing::HardlyWaits), ..Findings::default() };
            assert!(say(&sound).starts_with("Nothing to fix: the threads spend"), "{}", say(&sound));
            let limited = Findings { cannot_say: vec!["Records were lost.".to_owned()], ..sound };
            assert!(say(&limited).ends_with(" Records were lost."), "{}", say(&limited));
        });
    }

    /// A page of five samples began with "Many accesses are remote", and ended with why they cannot be judged.
    #[test]
    fn a_few_samples_have_no_verdict() {
        of_unknown_homes().with(Filter::default(), |export| {
            let mut headline = export.analysis.headline();
            (headline.verdict, headline.totals.samples) = (Verdict::TooFew, 5);
            assert_eq!(
                text(&verdict(&headline, &Findings::default(), export.analysis.nodes())),
                "Only 5 memory accesses were sampled, which is too little to judge by. Record longer, or sample more often."
            );
        });
    }

    #[test]
    fn where_nothing_is_to_be_fixed_there_is_no_advice() {
        of_unknown_homes().with(Filter::default(), |export| {
            let rows = export.analysis.sites();
            let advice = |is_advised: bool| findings(&rows, export.analysis.nodes(), is_advised)[0].advice.clone();
            assert!(advice(true).contains("copy per node") && advice(false).is_empty(), "{}", advice(true));
        });
    }

    #[test]
    fn one_thread_is_kept_on_a_node_and_a_node_without_memory_gets_none() {
        of_unknown_homes().with(Filter::default(), |export| {
            let mut row = export.analysis.sites().into_iter().find(|row| row.name == "known").expect("the object");
            row.threads = 1;
            let nodes = export.analysis.nodes();
            assert!(advice(&row, nodes).ends_with("keep that thread on node 0."), "{}", advice(&row, nodes));
            (row.pattern, row.best_node) = (Pattern::UsedElsewhere, None);
            assert!(advice(&row, nodes).ends_with("on the nearest node that has some."), "{}", advice(&row, nodes));
        });
    }
}
