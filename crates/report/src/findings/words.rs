//! The words.

use numapilot_flows::{SiteId, Trace};
use numapilot_insight::{Estimate, Evidence, Findings, Fix, FixKind, Nothing, Subject, Unit};
use numapilot_machine::Machine;

use crate::units;

/// Names spelled out before "and so many more".
const NAMES: usize = 3;

/// What a finding is about: `block (streamcluster.cpp:138)`, `node 0's memory controller`.
pub(crate) fn subject_words(subject: &Subject, trace: &Trace, machine: Option<&Machine>) -> String {
    match subject {
        Subject::Site(site) => site_words(*site, trace),
        Subject::Threads(threads) => format!("{} threads", threads.len()),
        Subject::Processes(processes) => format!("{} processes", processes.len()),
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
        FixKind::Interleave => format!("interleave {what} over all nodes with memory"),
        FixKind::WeightedInterleave(weights) => {
            let weights: Vec<String> = weights.iter().map(|(node, weight)| format!("{node}:{weight}")).collect();
            format!("interleave {what} with weights {}", weights.join(","))
        }
        FixKind::Replicate => format!("keep a copy of {what} on each node, made after its initialisation"),
        FixKind::LocalArenas => format!("allocate {what} from arenas of the allocating thread's node"),
        FixKind::ParallelFirstTouch => format!("let each thread touch its own part of {what} first"),
        FixKind::PinThreads => format!("pin {} threads to the nodes of their memory", fix.threads.len()),
        FixKind::PinProcesses => format!("pin each of {} processes to one node", fix.processes.len()),
        FixKind::SpreadHot => format!("spread what lies on the hot page of {what} over several pages"),
        FixKind::SplitOrAlign => {
            format!("give what each node uses of {what} cache lines of its own (align to 64 bytes)")
        }
        FixKind::NearTier => format!("put {what} into the memory of nodes with CPUs"),
        FixKind::InterleaveAll => "interleave everything (numactl --interleave=all)".to_owned(),
    }
}

/// `+93 % (65 to 121), predicted`.
#[must_use]
pub fn gain_words(gain: &Estimate) -> String {
    format!("{}, predicted", gain_span(gain))
}

/// `+93 % (65 to 121)`.
pub(crate) fn gain_span(gain: &Estimate) -> String {
    let percent = |share: f64| {
        let said = format!("{:.*}", usize::from(gain.value.abs() < 0.1), share * 100.0);
        // Rounded to nothing, it has no sign.
        if said.trim_start_matches(['-', '0', '.']).is_empty() { said.trim_start_matches('-').to_owned() } else { said }
    };
    let sign = if gain.value >= 0.0 { "+" } else { "" };
    format!("{sign}{} % ({} to {})", percent(gain.value), percent(gain.low), percent(gain.high))
}

/// `0.6 ± 0.1 % of its accesses write`.
pub(crate) fn evidence_words(evidence: &Evidence) -> String {
    let value = match evidence.unit {
        Unit::Share if evidence.value.value == 0.0 && evidence.value.high > 0.0 => {
            format!("under {:.3} %", evidence.value.high * 100.0)
        }
        Unit::Share if evidence.value.high < 0.01 => format!("{:.3} %", evidence.value.value * 100.0),
        Unit::Share => units::share(&evidence.value),
        Unit::Count => units::count(evidence.value.value),
        Unit::Nanoseconds => units::time_ns(evidence.value.value as u64),
        Unit::Bytes => units::bytes(evidence.value.value as u64),
    };
    match evidence.unit {
        Unit::Share => format!("{value} {}", evidence.what),
        Unit::Count | Unit::Nanoseconds | Unit::Bytes => format!("{}: {value}", evidence.what),
    }
}

/// Why there is nothing to fix, or nothing to say; `None` where there are findings.
pub(crate) fn nothing_words(findings: &Findings) -> Option<String> {
    let percent = |share: Option<f64>| units::percent(share.unwrap_or_default());
    Some(match findings.nothing? {
        Nothing::Blind => findings.cannot_say.join(" "),
        Nothing::NothingSeen => "No memory access was recorded, so nothing can be said.".to_owned(),
        Nothing::HardlyWaits => format!(
            "Nothing to fix: the threads spend {} of their time waiting for memory, whatever the share of remote accesses (modelled).",
            percent(findings.memory_share)
        ),
        Nothing::WellPlaced => format!(
            "Nothing to fix: of the threads' time, remote and congested accesses take {} beyond idle local ones (modelled).",
            percent(findings.at_stake)
        ),
        Nothing::NoFixGains => format!(
            "Nothing to fix by placing memory or threads: remote and congested accesses take {} of the threads' time beyond idle local ones \
             (modelled), but no fix that is known surely gains 1 %.",
            percent(findings.at_stake)
        ),
    })
}
