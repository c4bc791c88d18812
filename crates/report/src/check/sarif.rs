//! SARIF 2.1.0 (OASIS, 2020): code review tools show each result beside the source line that allocates the object.

use std::path::Path;

use numapilot_insight::check::{Judgement, Limit, Verdict};
use numapilot_text::units;
use serde_json::{Value, json};

use super::{blame, found, subject};

const RULES: [(&str, &str, &str); 4] = [
    (
        "remote-share",
        "Remote accesses",
        "A greater share of the program's memory accesses is remote than the limit allows.",
    ),
    (
        "controller-imbalance",
        "Controller imbalance",
        "The memory controllers are loaded less evenly than the limit allows.",
    ),
    (
        "object-remote-share",
        "Remote accesses to an object",
        "A greater share of the accesses to an object is remote than the limit allows.",
    ),
    (
        "slower-than-baseline",
        "Slower than the baseline",
        "The run time (on a simulated machine, the predicted one) rose over the baseline's by more than the limit allows.",
    ),
];

/// Writes the log: one result per limit that is not kept. Files below `folder` get relative names, as review tools want them.
/// `is_failure` says which verdicts fail the check; the others become warnings.
#[must_use]
pub fn sarif(judgements: &[Judgement], is_failure: impl Fn(Verdict) -> bool, folder: &Path, version: &str) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(id, name, text)| json!({"id": id, "name": name, "shortDescription": {"text": name}, "fullDescription": {"text": text}}))
        .collect();
    let results: Vec<Value> = judgements
        .iter()
        .filter(|judged| judged.verdict != Verdict::Kept)
        .map(|judged| result(judged, if is_failure(judged.verdict) { "error" } else { "warning" }, folder))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "numapilot", "version": version, "rules": rules}},
            "results": results,
        }],
    })
}

fn result(judged: &Judgement, level: &str, folder: &Path) -> Value {
    let rule = match judged.limit {
        Limit::Remote(_) => 0,
        Limit::Imbalance(_) => 1,
        Limit::RemoteOf(..) => 2,
        Limit::Slowdown(_) => 3,
    };
    let greatest = units::percent(judged.limit.greatest());
    let mut text = format!("{}: {}, limit {greatest}.", subject(judged), found(judged));
    match (&judged.object, judged.remark.is_empty()) {
        (_, false) => text.push_str(&format!(" {}.", judged.remark)),
        (Some(object), true) => text.push_str(&format!(" Largest contribution: {}.", blame(object))),
        (None, true) => {}
    }
    let mut result = json!({"ruleId": RULES[rule].0, "ruleIndex": rule, "level": level, "message": {"text": text}});
    if let Some(object) = judged.object.as_ref().filter(|object| !object.file.is_empty()) {
        let mut place = json!({"artifactLocation": {"uri": uri(&object.file, folder)}});
        if object.line > 0 {
            place["region"] = json!({"startLine": object.line});
        }
        result["locations"] = json!([{"physicalLocation": place}]);
    }
    result
}

/// Relative to `folder` where the file lies below it, else an absolute file URI; reserved characters are escaped (RFC 3986).
fn uri(file: &str, folder: &Path) -> String {
    let path = Path::new(file);
    let relative = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let plain = relative.unwrap_or(file);
    let mut out = String::new();
    for byte in plain.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    if relative.is_none() && path.is_absolute() { format!("file://{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_the_folder_are_relative_and_others_absolute() {
        assert_eq!(uri("/src/app/a b.c", Path::new("/src/app")), "a%20b.c");
        assert_eq!(uri("/usr/include/x.h", Path::new("/src/app")), "file:///usr/include/x.h");
        assert_eq!(uri("../x.c", Path::new("/src/app")), "../x.c");
    }
}
