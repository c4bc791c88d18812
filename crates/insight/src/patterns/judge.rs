//! From drafts to findings: which are worth a line, how sure each is, and, where there are none, why.

use numapilot_flows::Evidence;
use numapilot_machine::Machine;
use numapilot_traffic::TrafficError;

use super::{Confidence, Draft, Finding, Findings, MATERIAL, Nothing, Scene, Subject, Sure, drafts};
use crate::context::{AllSums, Analysis};
use crate::fixes::{FixCandidate, FixPricer};
use crate::scene::Interest;
use crate::unseen;

/// Share of accesses with unknown home beyond which nothing is said.
const UNKNOWN_MAX: f64 = 0.5;

impl Analysis<'_> {
    /// Named patterns with their fixes and prices, on `machine`; what cannot be said, and why, where evidence is missing.
    #[must_use]
    pub fn findings(&self, machine: Option<&Machine>) -> Findings {
        find(self, machine)
    }
}

/// Everything found in a whole recording.
pub(crate) fn find(analysis: &Analysis<'_>, machine: Option<&Machine>) -> Findings {
    if let Some(blindness) = analysis.blindness() {
        return Findings { nothing: Some(Nothing::Blind), cannot_say: vec![blindness.says()], ..Findings::default() };
    }
    let sums = analysis.sum();
    if sums.all.samples == 0 {
        return Findings { nothing: Some(Nothing::NothingSeen), ..Findings::default() };
    }
    let silent = |why: Vec<String>| Findings { cannot_say: why, ..Findings::default() };
    if !analysis.filter().is_empty() {
        return silent(vec!["Patterns and prices are those of a whole recording: leave the filters out.".to_owned()]);
    }
    if let Some(why) = why_unpriced(analysis, &sums) {
        return silent(why);
    }
    let Some(machine) = machine else {
        return silent(vec!["The trace holds no description of its machine, so nothing has a price.".to_owned()]);
    };
    judged(analysis, machine)
        .unwrap_or_else(|error| silent(vec![format!("Nothing has a price on this machine: {error}.")]))
}

/// Why no fix has a price in this recording, in whole sentences; `None` where they have.
pub(crate) fn why_unpriced(analysis: &Analysis<'_>, sums: &AllSums) -> Option<Vec<String>> {
    let engine = analysis.trace().meta().engine.as_str();
    let evidence = analysis.trace().evidence();
    if engine == "import" && evidence == Evidence::PageFaults {
        let why = "Page faults do not tell how often memory is accessed, so no pattern can be told from another and no fix has a price; record with \
             `perf mem record`.";
        return Some(vec![why.to_owned()]);
    }
    if evidence == Evidence::PageFaults || engine == "track" {
        return Some(vec![format!(
            "Engine {engine} does not see how often memory is accessed, so no pattern can be told from another and no fix has a price; record with \
             `--engine instrument`, or `pmu` where there is one."
        )]);
    }
    if sums.known.weight < (1.0 - UNKNOWN_MAX) * sums.all.weight {
        let unseen = unseen::sentences(&unseen::unseen_sites(analysis));
        if !unseen.is_empty() {
            return Some(unseen);
        }
        let why = "The home node is unknown for more than half of the accesses; record from the program's start, or with physical addresses.";
        return Some(vec![why.to_owned()]);
    }
    None
}

fn judged(analysis: &Analysis<'_>, machine: &Machine) -> Result<Findings, TrafficError> {
    let scene = Scene::new(analysis, machine, &Interest::default())?;
    let pricer_of_fixes = FixPricer::new(&scene)?;
    let mut findings: Vec<Finding> = Vec::new();
    let mut dropped = 0;
    let unseen = unseen::unseen_sites(analysis);
    for draft in drafts(&scene) {
        if matches!(draft.subject, Subject::Site(site) if unseen.iter().any(|unseen| unseen.site == site)) {
            continue;
        }
        // Most drafts end here, before their intervals are computed.
        let best = draft
            .candidates
            .iter()
            .map(|candidate| pricer_of_fixes.value(candidate))
            .try_fold(0.0, |best: f64, gain| Ok(best.max(gain?)))?;
        if best < MATERIAL {
            dropped += 1;
            continue;
        }
        let finding = finding(&pricer_of_fixes, draft)?;
        match finding.fixes.first() {
            // Samples must surely show it. What machine and program leave open of the gain, its interval and the finding's confidence tell.
            Some(fix) if fix.gain.value >= MATERIAL.max(fix.uncertainty.of_samples) && fix.uncertainty.median > 0.0 => {
                findings.push(finding);
            }
            _ => dropped += 1,
        }
    }
    let order = |finding: &Finding| usize::from(!matches!(finding.subject, Subject::Site(_)));
    findings.sort_by(|a, b| {
        let gain = |finding: &Finding| finding.fixes.first().map_or(0.0, |fix| fix.gain.value);
        (gain(b) * 1000.0).round().total_cmp(&(gain(a) * 1000.0).round()).then(order(a).cmp(&order(b)))
    });
    let memory_share = scene.now.memory_ns / scene.now.busy_ns.max(1.0);
    let at_stake = scene.all_at_stake();
    let nothing = match (findings.is_empty(), memory_share < MATERIAL, at_stake < MATERIAL && dropped == 0) {
        // What is not known may be what is wrong.
        (false, _, _) => None,
        (true, false, _) if !unseen.is_empty() => None,
        (_, true, _) => Some(Nothing::HardlyWaits),
        (_, _, true) => Some(Nothing::WellPlaced),
        _ => Some(Nothing::NoFixGains),
    };
    Ok(Findings {
        findings,
        nothing,
        memory_share: Some(memory_share),
        at_stake: Some(at_stake),
        modelled_ns: Some(scene.now.run_ns),
        tried_by_many: vec![pricer_of_fixes.price(&FixCandidate::of_all())?],
        cannot_say: unknowns(analysis).into_iter().chain(unseen::sentences(&unseen)).collect(),
    })
}

fn finding(pricer_of_fixes: &FixPricer<'_>, draft: Draft) -> Result<Finding, TrafficError> {
    let mut fixes =
        draft.candidates.iter().map(|candidate| pricer_of_fixes.price(candidate)).collect::<Result<Vec<_>, _>>()?;
    fixes.sort_by(|a, b| b.gain.value.total_cmp(&a.gain.value));
    let gains = fixes.first().is_some_and(|fix| fix.gain.low > 0.0);
    let (confidence, confidence_because) = confidence(&draft.sure, gains);
    Ok(Finding {
        pattern: draft.pattern,
        subject: draft.subject,
        at_stake: draft.at_stake,
        evidence: draft.evidence,
        confidence,
        confidence_because,
        would_change: draft.would_change,
        fixes,
    })
}

fn confidence(sure: &Sure, gains: bool) -> (Confidence, String) {
    let Sure { value, threshold, below, what } = sure;
    let holds = if *below { value.high <= *threshold } else { value.low >= *threshold };
    let (side, end) = if *below { ("below", value.high) } else { ("above", value.low) };
    let stands = if holds { "lies" } else { "does not surely lie" };
    let why = format!(
        "{what} {stands} {side} {} (its 95 % interval ends at {}){}",
        percent(*threshold),
        percent(end),
        if gains { "" } else { ", and the gain may be nothing" }
    );
    let confidence = match (holds, gains) {
        (true, true) => Confidence::High,
        (false, false) => Confidence::Low,
        _ => Confidence::Medium,
    };
    (confidence, why)
}

fn percent(share: f64) -> String {
    if share.abs() < 0.01 { format!("{:.3} %", share * 100.0) } else { format!("{:.1} %", share * 100.0) }
}

/// What limits the judgement, in whole sentences.
fn unknowns(analysis: &Analysis<'_>) -> Vec<String> {
    let mut said = Vec::new();
    if analysis.trace().counters().is_empty() {
        said.push(
            "This engine does not count accesses and waits: rates come from the samples' weights, and threads count as busy all their life, so \
             gains err on the small side."
                .to_owned(),
        );
    }
    if analysis.trace().losses().records_lost() {
        said.push("Records were lost: what the lost part of the run did is not in these findings.".to_owned());
    }
    said
}
