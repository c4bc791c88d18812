//! Findings as text for terminals.

use std::fmt::Write;

use numapilot_flows::Trace;
use numapilot_insight::{Confidence, Finding, Findings, Fix, Nothing};
use numapilot_machine::Machine;
use numapilot_text::style::wrap;
use numapilot_text::style::{Look, clean};
use numapilot_text::units;

use super::SHOWN;
use super::words::{
    doubt_words, effect_words, evidence_words, explanation, fix_words, means_words, nothing_words, subject_words,
};

/// Renders the first findings with their best fixes, or, if `all`, every finding with its evidence and every fix that was priced, losses included.
#[must_use]
pub fn text(findings: &Findings, trace: &Trace, machine: Option<&Machine>, all: bool, look: Look) -> String {
    let mut out = String::new();
    for why in &findings.cannot_say {
        paragraph(&mut out, 2, "", why, look, &|line| look.faint(line));
    }
    // The report's first line already says why a blind recording cannot be judged.
    if let Some(words) = nothing_words(findings).filter(|_| findings.nothing != Some(Nothing::Blind)) {
        paragraph(&mut out, 2, "", &words, look, &|line| look.strong(line));
    }
    let shown = if all { usize::MAX } else { SHOWN };
    for (index, finding) in findings.findings.iter().take(shown).enumerate() {
        one(&mut out, index + 1, finding, trace, machine, all, look);
    }
    let mut fixes = findings.findings.iter().take(shown).flat_map(|finding| &finding.fixes);
    if !all && fixes.any(|fix| fix.works_by_plan(trace) && fix.decisive().low > 0.0) {
        paragraph(
            &mut out,
            2,
            "",
            "`--plan FILE` writes the fixes that need no change of the source as a plan.",
            look,
            &|line| look.faint(line),
        );
    }
    let more = findings.findings.len().saturating_sub(shown);
    if more > 0 {
        let words = format!("{more} more; `--findings` shows them, with the evidence and every fix that was priced");
        paragraph(&mut out, 2, "", &words, look, &str::to_owned);
    }
    if all {
        for fix in &findings.tried_by_many {
            paragraph(&mut out, 2, "Often tried: ", &priced(fix, trace, ""), look, &str::to_owned);
        }
    }
    out
}

fn one(
    out: &mut String,
    number: usize,
    finding: &Finding,
    trace: &Trace,
    machine: Option<&Machine>,
    all: bool,
    look: Look,
) {
    let title = format!("{}: {}", clean(&subject_words(&finding.subject, trace, machine)), finding.pattern.name());
    let (suffix, confidence) = match finding.confidence {
        Confidence::High => ("", "high"),
        Confidence::Medium => (" (medium confidence)", "medium"),
        Confidence::Low => (" (low confidence)", "low"),
    };
    paragraph(out, 2, &format!("{number}. "), &format!("{title}{suffix}"), look, &|line| look.strong(line));
    paragraph(out, 5, "", &explanation(finding), look, &str::to_owned);
    // The best fix, and the best that needs no change of the source; the others only if `all`.
    let by_plan = finding.fixes.iter().position(|fix| fix.works_by_plan(trace) && fix.decisive().low > 0.0);
    for (index, fix) in
        finding.fixes.iter().enumerate().filter(|(index, _)| all || *index == 0 || Some(*index) == by_plan)
    {
        let label = match index {
            0 => "Fix: ",
            _ if Some(index) == by_plan => "By plan: ",
            _ => "Or: ",
        };
        let doubt = if index == 0 { doubt_words(fix) } else { "" };
        paragraph(out, 5, label, &priced(fix, trace, doubt), look, &str::to_owned);
    }
    if all {
        let evidence: Vec<String> = finding.evidence.iter().map(evidence_words).collect();
        paragraph(out, 5, "Evidence: ", &clean(&format!("{}.", evidence.join("; "))), look, &str::to_owned);
        let because = format!("{confidence}, because {}.", finding.confidence_because);
        paragraph(out, 5, "Confidence: ", &because, look, &|line| look.faint(line));
    }
    for condition in &finding.would_change {
        let refuted = format!("{}.", clean(condition));
        paragraph(out, 5, "This finding would be wrong if ", &refuted, look, &|line| look.faint(line));
    }
}

/// A fix with its predicted gain, what is in doubt of it, its memory, and what it needs where no plan applies it.
fn priced(fix: &Fix, trace: &Trace, doubt: &str) -> String {
    let loses = match &fix.work_gain {
        _ if !fix.loses() => "",
        None => " It would make the program slower.",
        Some(_) => " It would make the program work longer.",
    };
    let memory = match fix.more_bytes {
        0 => String::new(),
        bytes => format!(" Takes {} more memory.", units::bytes(bytes)),
    };
    let by = means_words(fix, trace);
    let effect = effect_words(&fix.gain, fix.work_gain.as_ref(), &fix.uncertainty);
    clean(&format!("{}: {effect}.{loses}{doubt}{memory}{by}", fix_words(fix, trace)))
}

/// Writes a label and text, wrapped and indented; further lines have a hanging indent.
fn paragraph(out: &mut String, indent: usize, label: &str, words: &str, look: Look, paint: &dyn Fn(&str) -> String) {
    let hang = indent + if label.len() <= 5 { label.len() } else { 2 };
    let whole = format!("{label}{words}");
    let lines = wrap(&whole, look.width.saturating_sub(hang));
    for (index, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "{}{}", " ".repeat(if index == 0 { indent } else { hang }), paint(line));
    }
}
