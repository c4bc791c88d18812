//! For terminals.

use std::fmt::Write;

use numapilot_flows::Trace;
use numapilot_insight::{Confidence, Finding, Findings, Fix, FixKind, Nothing};
use numapilot_machine::Machine;

use super::SHOWN;
use super::words::{evidence_words, fix_words, gain_words, nothing_words, subject_words};
use crate::text::style::wrap;
use crate::text::{Look, clean};
use crate::units;

/// Renders the first findings with their best fixes, or, if `all`, every finding with every fix, be it a loss.
#[must_use]
pub fn text(findings: &Findings, trace: &Trace, machine: Option<&Machine>, all: bool, look: Look) -> String {
    let mut out = String::new();
    for why in &findings.cannot_say {
        paragraph(&mut out, 2, "", why, look, &|line| look.faint(line));
    }
    // Of a blind recording the reason stands above.
    if let Some(words) = nothing_words(findings).filter(|_| findings.nothing != Some(Nothing::Blind)) {
        paragraph(&mut out, 2, "", &words, look, &|line| look.strong(line));
    }
    let shown = if all { usize::MAX } else { SHOWN };
    for (index, finding) in findings.findings.iter().take(shown).enumerate() {
        one(&mut out, index + 1, finding, trace, machine, all, look);
    }
    let mut fixes = findings.findings.iter().take(shown).flat_map(|finding| &finding.fixes);
    if !all && fixes.any(|fix| fix.kind.works_by_plan() && fix.gain.low > 0.0) {
        paragraph(
            &mut out,
            2,
            "",
            "`--plan FILE` writes as a plan what needs no change of the source.",
            look,
            &|line| look.faint(line),
        );
    }
    let more = findings.findings.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "  {more} more; `--findings` shows them, and what else was priced");
    }
    if all {
        for fix in &findings.tried_by_many {
            paragraph(&mut out, 2, "Often tried: ", &priced(fix, trace), look, &str::to_owned);
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
    let sure = match finding.confidence {
        Confidence::High => "",
        Confidence::Medium => " (fairly sure)",
        Confidence::Low => " (unsure)",
    };
    paragraph(out, 2, &format!("{number}. "), &format!("{title}{sure}"), look, &|line| look.strong(line));
    let evidence: Vec<String> = finding.evidence.iter().map(evidence_words).collect();
    paragraph(out, 5, "", &clean(&format!("{}.", evidence.join("; "))), look, &str::to_owned);
    // The best, and the best that needs no change of the source; all of them only when asked for.
    let by_plan = finding.fixes.iter().position(|fix| fix.kind.works_by_plan() && fix.gain.low > 0.0);
    for (index, fix) in
        finding.fixes.iter().enumerate().filter(|(index, _)| all || *index == 0 || Some(*index) == by_plan)
    {
        let label = match index {
            0 => "Fix: ",
            _ if Some(index) == by_plan => "By plan: ",
            _ => "Or: ",
        };
        paragraph(out, 5, label, &priced(fix, trace), look, &str::to_owned);
    }
    if all {
        paragraph(out, 5, "Sure because: ", &finding.confidence_because, look, &|line| look.faint(line));
    }
    for doubt in &finding.would_change {
        paragraph(out, 5, "Would change our mind: ", &clean(doubt), look, &|line| look.faint(line));
    }
}

/// A fix with its price and how it is done.
fn priced(fix: &Fix, trace: &Trace) -> String {
    let loses = if fix.loses() { " It would lose." } else { "" };
    let memory = match fix.more_bytes {
        0 => String::new(),
        bytes => format!(" Takes {} more memory.", units::bytes(bytes)),
    };
    let by = if fix.kind.works_by_plan() || fix.kind == FixKind::InterleaveAll {
        ""
    } else {
        " Needs a change of the source."
    };
    clean(&format!("{}: {}.{loses}{memory}{by}", fix_words(fix, trace), gain_words(&fix.gain)))
}

/// Folded text after a label, indented; further lines hang.
fn paragraph(out: &mut String, indent: usize, label: &str, words: &str, look: Look, paint: &dyn Fn(&str) -> String) {
    let hang = indent + if label.len() <= 5 { label.len() } else { 2 };
    let whole = format!("{label}{words}");
    let lines = wrap(&whole, look.width.saturating_sub(hang));
    for (index, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "{}{}", " ".repeat(if index == 0 { indent } else { hang }), paint(line));
    }
}
