//! The sentences of findings: what a finding is about, what happens, what a fix does and gains.

use numapilot_flows::{SiteId, Trace};
use numapilot_insight::{
    Estimate, Evidence, Finding, Findings, Fix, FixKind, Nothing, OF_ITS_ACCESSES_REMOTE, PatternKind, Subject,
    Uncertainty, Unit, is_placeable,
};
use numapilot_machine::{Machine, NodeId, format_cpu_list};
use numapilot_text::units;

use crate::estimates;

/// Names in a list before the rest is counted ("and 4 more").
const NAMES: usize = 3;

/// What a finding is about: `block (streamcluster.cpp:138)`, `node 0's memory controller`.
pub(crate) fn subject_words(subject: &Subject, trace: &Trace, machine: Option<&Machine>) -> String {
    match subject {
        Subject::Site(site) => site_words(*site, trace),
        Subject::Threads(threads) => units::counted(threads.len() as u64, "thread", "threads"),
        Subject::Processes(processes) => units::counted(processes.len() as u64, "process", "processes"),
        Subject::Controller(node) => format!("node {node}'s memory controller"),
        Subject::Link(link) => match machine.and_then(|machine| machine.link(*link).map(|link| (machine, link))) {
            Some((machine, link)) => {
                let end = |end| crate::text::end(machine, end);
                format!("the link from {} to {}", end(link.from), end(link.to))
            }
            None => format!("link {link}"),
        },
    }
}

fn site_words(site: SiteId, trace: &Trace) -> String {
    let Some(site) = trace.site(site) else { return "an unknown object".to_owned() };
    match site.place() {
        place if place.is_empty() => site.name.to_string(),
        place => format!("{} ({place})", site.name),
    }
}

/// What happens and what it costs, in two or three sentences.
pub(crate) fn explanation(finding: &Finding) -> String {
    let percent = units::significant_percent(finding.at_stake.value);
    let cost = match finding.pattern {
        PatternKind::FalseSharing => format!("Accesses to these lines take {percent} of the threads' time (modelled)."),
        PatternKind::SaturatedController | PatternKind::SaturatedLink => {
            format!("This queueing costs {percent} of the threads' time (modelled).")
        }
        _ => format!("Compared with idle local accesses, this costs {percent} of the threads' time (modelled)."),
    };
    let what = partly_remote(finding).unwrap_or_else(|| what_happens(finding.pattern).to_owned());
    format!("{what} {cost}")
}

/// Share of remote accesses below which "this memory" would be taken for all of it.
const MOSTLY: f64 = 0.5;

/// What happens to memory that threads of another node than its own use in part only.
fn partly_remote(finding: &Finding) -> Option<String> {
    let share = finding.evidence.iter().find(|evidence| evidence.what == OF_ITS_ACCESSES_REMOTE)?.value.value;
    (finding.pattern == PatternKind::RemoteAfterAllocation && share < MOSTLY).then(|| {
        format!(
            "Part of this memory is on the node where it was allocated or first touched, but threads of another node use that part: {} of the \
             accesses to this memory are remote.",
            units::significant_percent(share)
        )
    })
}

fn what_happens(pattern: PatternKind) -> &'static str {
    match pattern {
        PatternKind::RemoteAfterAllocation => {
            "This memory is on the node where it was allocated or first touched, but threads of another node use it. Their accesses are remote."
        }
        PatternKind::AlternateRemote => {
            "Several nodes use this object in turn, each for a while. Its pages stay where they are, so the other nodes' accesses are remote."
        }
        PatternKind::ConcurrentReadMostly => {
            "Several nodes read this object at the same time, and hardly any access writes it after its initialisation. A page is local to one \
             node only, so the other nodes' reads are remote."
        }
        PatternKind::ConcurrentWritten => {
            "Several nodes read and write this object at the same time. A page is local to one node only, so the other nodes' accesses are \
             remote."
        }
        PatternKind::SaturatedController => {
            "Accesses queue at this memory controller, while other controllers have bandwidth to spare. The queue delays every access to this \
             node's memory."
        }
        PatternKind::SaturatedLink => {
            "Remote accesses queue at this interconnect link, so they take longer than their idle latency."
        }
        PatternKind::PrivateOnSharedPages => {
            "Nearly all accesses to each object come from the node that allocated it, but its pages also hold objects that other nodes use. A \
             page is on one node, so the other nodes' accesses to it are remote."
        }
        PatternKind::SerialFirstTouch => {
            "This memory is on the node that touched it first, as after an initialisation by one thread. Other nodes then use their parts of it \
             remotely, and all accesses compete for one memory controller."
        }
        PatternKind::ArenasAcrossNodes => {
            "Nearly all accesses to each object come from the node that allocated it, but the allocator returned memory of other nodes for \
             some of them. Accesses to that memory are remote."
        }
        PatternKind::ThreadsMoved => {
            "The scheduler moved these threads to other nodes, but their memory stayed where it was. Their accesses are remote after such a move."
        }
        PatternKind::ProcessWideSharing => {
            "The threads of each process share its memory but run on several nodes. They access their own process's memory remotely, although \
             each process could run on one node."
        }
        PatternKind::HotPage => {
            "One page receives more accesses than a whole node would under an even spread. A page is on one node, so all of them go to one \
             memory controller."
        }
        PatternKind::FalseSharing => {
            "Different nodes use different words of the same cache lines, and some accesses write. Each write moves the line between nodes, \
             although no data is shared."
        }
        PatternKind::TierMisplacement => {
            "This memory is used often, but it is on a node without CPUs. Such memory is slower for every thread."
        }
    }
}

/// That the best fix of a finding may gain nothing by what is known, as a sentence behind its gain; else nothing.
pub(crate) fn doubt_words(fix: &Fix) -> &'static str {
    match fix.decisive() {
        gain if gain.low > 0.0 || fix.loses() => "",
        gain if gain.low < 0.0 => " It may gain nothing, or lose.",
        _ => " It may gain nothing.",
    }
}

/// What a fix needs where no plan applies it, as a sentence behind another one; else nothing.
pub(crate) fn means_words(fix: &Fix, trace: &Trace) -> &'static str {
    if fix.works_by_plan(trace) || fix.kind == FixKind::InterleaveAll {
        ""
    } else if fix.kind.works_by_plan() && fix.sites.iter().all(|site| is_of_page_cache(*site, trace)) {
        " No plan can move the pages of a file: they stay on the node where they were read in. `numapilot run --interleave` places the \
         pages that the program itself reads in."
    } else {
        " Needs a change of the source."
    }
}

fn is_of_page_cache(site: SiteId, trace: &Trace) -> bool {
    trace.site(site).is_some_and(|site| !is_placeable(site.kind, &site.name))
}

/// What a fix does: `interleave block (streamcluster.cpp:138) over all nodes with memory`.
#[must_use]
pub fn fix_words(fix: &Fix, trace: &Trace) -> String {
    let names: Vec<String> = fix.sites.iter().take(NAMES).map(|site| site_words(*site, trace)).collect();
    let more = fix.sites.len().saturating_sub(NAMES);
    let what = if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(" and ") };
    match &fix.kind {
        FixKind::AllocateOnNode(node) => format!("allocate {what} on node {node}"),
        FixKind::FirstTouchByUsers => format!("let the threads that use {what} touch it first"),
        FixKind::MigrateAtHandOver => format!("move {what} to the node that takes it over, at each hand-over"),
        FixKind::Interleave => {
            format!("interleave {what} over all nodes with memory{}", without_cpus(&fix.without_cpus))
        }
        FixKind::WeightedInterleave(weights) => {
            let weights: Vec<String> = weights.iter().map(|(node, weight)| format!("{node}:{weight}")).collect();
            format!("interleave {what} with weights {}", weights.join(","))
        }
        FixKind::Replicate => format!("keep a copy of {what} on each node, made after its initialisation"),
        FixKind::LocalArenas => format!("allocate {what} from arenas of the allocating thread's node"),
        FixKind::ParallelFirstTouch => format!("let each thread touch its own part of {what} first"),
        FixKind::PinThreads if fix.threads.len() == 1 => "pin 1 thread to the node of its memory".to_owned(),
        FixKind::PinThreads => format!("pin {} threads to the nodes of their memory", fix.threads.len()),
        FixKind::PinProcesses if fix.processes.len() == 1 => "pin the process to one node".to_owned(),
        FixKind::PinProcesses => format!("pin each of {} processes to one node", fix.processes.len()),
        FixKind::SpreadHot => format!("spread the data on the hot page of {what} over several pages"),
        FixKind::SplitOrAlign => {
            format!("give each node its own cache lines for its part of {what} (align to 64 bytes)")
        }
        FixKind::NearTier => format!("place {what} in the memory of nodes with CPUs"),
        FixKind::InterleaveAll => {
            format!("interleave everything (numactl --interleave=all){}", without_cpus(&fix.without_cpus))
        }
    }
}

/// That these are among all nodes, behind those words; nothing if there are none.
fn without_cpus(nodes: &[NodeId]) -> String {
    match nodes {
        [] => String::new(),
        [node] => format!(", also node {node}, which has no CPUs"),
        nodes => {
            let list = format_cpu_list(nodes.iter().map(|node| u32::from(node.0)));
            format!(", also nodes {list}, which have no CPUs")
        }
    }
}

/// `+93 % (65 to 121), predicted`.
#[must_use]
pub fn gain_words(gain: &Estimate) -> String {
    format!("{}, predicted", gain_span(gain))
}

/// The predicted gain of a fix, and whether the model converged: `+93 % (65 to 121), predicted`.
#[must_use]
pub fn price_words(gain: &Estimate, uncertainty: &Uncertainty) -> String {
    match unsettled_words(uncertainty) {
        Some(open) => format!("{} ({open})", gain_words(gain)),
        None => gain_words(gain),
    }
}

/// The predicted gain that decides whether a fix is worth it, and whether the model converged. `work`: that of processor time, where sleeps decide how long the
/// run is.
#[must_use]
pub fn effect_words(gain: &Estimate, work: Option<&Estimate>, uncertainty: &Uncertainty) -> String {
    let Some(work) = work else { return price_words(gain, uncertainty) };
    let open = unsettled_words(uncertainty).map_or_else(String::new, |open| format!(" ({open})"));
    format!("{}, predicted{open}", work_span(work))
}

/// `12 % less processor time for the same work (8 to 15)`, from the old time over the new one, less one.
pub(crate) fn work_span(work: &Estimate) -> String {
    let (shown, word) = saved(work);
    let value = signed(shown.value, shown.value);
    format!("{value} % {word} processor time for the same work ({})", span(&shown))
}

/// From the old time over the new one, less one: the share of the old time that is saved or added, never below 0, and `less` or `more`.
pub(crate) fn saved(work: &Estimate) -> (Estimate, &'static str) {
    // All of the old time is saved at most, of which no gain is too much: where the model did not converge, an end of its interval may be infinite.
    let saved = |gain: f64| match gain {
        gain if gain <= -1.0 => f64::NEG_INFINITY,
        gain if gain.is_infinite() => 1.0,
        gain => gain / (1.0 + gain),
    };
    let saved = Estimate { value: saved(work.value), low: saved(work.low), high: saved(work.high) };
    if saved.value >= 0.0 {
        (saved, "less")
    } else {
        (Estimate { value: -saved.value, low: -saved.high, high: -saved.low }, "more")
    }
}

/// That the model did not converge, and by how much the gain is off at least: a clause; `None` where it converged.
pub(crate) fn unsettled_words(uncertainty: &Uncertainty) -> Option<String> {
    let points = uncertainty.unsettled * 100.0;
    match points {
        0.0 => None,
        _ if points.is_finite() => {
            Some(format!("the model did not converge: at least ± {points:.1} percentage points"))
        }
        _ => Some("the model did not converge".to_owned()),
    }
}

/// A share in per cent, with a digit behind the point where the figure that it belongs to, `of`, is below a tenth.
fn signed(share: f64, of: f64) -> String {
    let said = format!("{:.*}", usize::from(of.abs() < 0.1), share * 100.0);
    // A value that rounds to zero is written without a sign.
    if said.trim_start_matches(['-', '0', '.']).is_empty() { said.trim_start_matches('-').to_owned() } else { said }
}

/// `+93 % (65 to 121)`.
pub(crate) fn gain_span(gain: &Estimate) -> String {
    let sign = if gain.value >= 0.0 { "+" } else { "" };
    format!("{sign}{} % ({})", signed(gain.value, gain.value), span(gain))
}

/// `65 to 121`, of an interval in per cent: the other end alone where one is left open.
fn span(gain: &Estimate) -> String {
    let percent = |share: f64| signed(share, gain.value);
    match (gain.low.is_finite(), gain.high.is_finite()) {
        (true, true) => format!("{} to {}", percent(gain.low), percent(gain.high)),
        (true, false) => format!("at least {}", percent(gain.low)),
        (false, true) => format!("at most {}", percent(gain.high)),
        (false, false) => "any".to_owned(),
    }
}

/// `25 ± 3 % of its accesses write`, `nodes that use it: 4`.
pub(crate) fn evidence_words(evidence: &Evidence) -> String {
    let value = match evidence.unit {
        Unit::Share if evidence.value.value == 0.0 && evidence.value.high > 0.0 => {
            format!("under {}", units::significant_percent(evidence.value.high.max(0.0001)))
        }
        Unit::Share => rounded_share(&evidence.value),
        Unit::Count => units::count(evidence.value.value),
        Unit::Nanoseconds => units::time_ns(evidence.value.value as u64),
        Unit::Bytes => units::bytes(evidence.value.value as u64),
    };
    match evidence.unit {
        Unit::Share => format!("{value} {}", evidence.what),
        Unit::Count | Unit::Nanoseconds | Unit::Bytes => format!("{}: {value}", evidence.what),
    }
}

/// `25 ± 3 %`, or `25 %` where half of the interval is below one percentage point.
fn rounded_share(share: &Estimate) -> String {
    if share.margin() < 0.01 { units::significant_percent(share.value) } else { estimates::whole(share) }
}

/// Why there is nothing to fix, or why nothing can be judged; `None` where there are findings.
pub(crate) fn nothing_words(findings: &Findings) -> Option<String> {
    let percent = |share: Option<f64>| units::part_percent(share.unwrap_or_default());
    Some(match findings.nothing? {
        Nothing::Blind => findings.cannot_say.join(" "),
        Nothing::NothingSeen => "No memory access was recorded, so nothing can be judged.".to_owned(),
        Nothing::HardlyWaits => format!(
            "Nothing to fix: the threads spend {} of their time waiting for memory, whatever the share of remote accesses (modelled).",
            percent(findings.memory_share)
        ),
        Nothing::WellPlaced => format!(
            "Nothing to fix: remote accesses and queueing cost {} of the threads' time, compared with idle local accesses (modelled).",
            percent(findings.at_stake)
        ),
        Nothing::NoFixGains => format!(
            "Nothing to fix by placing memory or threads: remote accesses and queueing cost {} of the threads' time, compared with idle local \
             accesses (modelled), but no known fix gains 1 % or more, and more than the error of sampling.",
            percent(findings.at_stake)
        ),
    })
}
