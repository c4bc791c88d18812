//! Findings as JSON for programs: the data, and each finding and fix in words.

use numapilot_flows::Trace;
use numapilot_insight::{Findings, Fix};
use numapilot_machine::Machine;
use serde_json::{Value, json};

use super::words::{fix_words, nothing_words, subject_words};

/// The findings as JSON.
#[must_use]
pub fn json(findings: &Findings, trace: &Trace, machine: Option<&Machine>) -> Value {
    let fixes = |fixes: &[Fix]| -> Value { fixes.iter().map(|fix| with_words(fix, trace)).collect() };
    let mut value = json!(findings);
    value["predicted"] = json!(true);
    value["says"] = json!(nothing_words(findings));
    for (index, finding) in findings.findings.iter().enumerate() {
        let out = &mut value["findings"][index];
        out["name"] = json!(finding.pattern.name());
        out["about"] = json!(subject_words(&finding.subject, trace, machine));
        out["fixes"] = fixes(&finding.fixes);
    }
    value["tried_by_many"] = fixes(&findings.tried_by_many);
    value
}

fn with_words(fix: &Fix, trace: &Trace) -> Value {
    let mut value = json!(fix);
    value["says"] = json!(fix_words(fix, trace));
    value["loses"] = json!(fix.loses());
    // The arguments with which `whatif --set` prices the same change.
    value["set"] = json!(numapilot_insight::whatif::asked(fix));
    value["works_by_plan"] = json!(fix.works_by_plan(trace));
    value
}
