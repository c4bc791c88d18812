//! The diagnosis as text.

use numapilot_text::style::{clean, columns};
use numapilot_trace::engine::Engine;

use super::{Diagnosis, Finding, Obstacle};

const INDENT: usize = 16;

/// The diagnosis in at most `width` columns.
#[must_use]
pub fn text(diagnosis: &Diagnosis, width: usize) -> String {
    let width = width.max(INDENT + 30);
    let mut out = String::new();
    for (label, value) in &diagnosis.host {
        entry(&mut out, label, value, width);
    }
    out.push('\n');
    for finding in &diagnosis.engines {
        engine(&mut out, finding, width);
    }
    let working = |finding: &&Finding| finding.works && finding.records_accesses;
    let names: Vec<&str> = diagnosis.engines.iter().filter(working).map(|finding| finding.engine.name()).collect();
    let summary = match names[..] {
        [] => "No engine can record memory accesses here.".to_owned(),
        [name] => format!("Memory accesses can be recorded here by engine {name}."),
        _ => format!("Memory accesses can be recorded here by engines {}.", names.join(", ")),
    };
    out.push('\n');
    out.push_str(&summary);
    out.push('\n');
    if diagnosis.engine(Engine::Fault).is_some_and(|finding| finding.works) {
        out.push_str("Page faults can be recorded here by engine fault.\n");
    }
    out
}

fn engine(out: &mut String, finding: &Finding, width: usize) {
    let state = if finding.works { "works" } else { "no" };
    entry(out, &format!("{:<11}{state}", finding.engine), &finding.gives, width);
    for obstacle in &finding.obstacles {
        explain(out, "", obstacle, width);
    }
    for limit in &finding.limits {
        explain(out, "but ", limit, width);
    }
}

fn explain(out: &mut String, before: &str, obstacle: &Obstacle, width: usize) {
    entry(out, "", &format!("{before}{}", obstacle.reason), width);
    entry(out, "", &format!("  -> {}", obstacle.remedy), width);
}

/// A label, and text beside it; later lines begin below the text.
fn entry(out: &mut String, label: &str, text: &str, width: usize) {
    let text = clean(text);
    let arrow = if text.starts_with("  -> ") { 5 } else { 0 };
    let indent = INDENT + 1 + arrow;
    out.push_str(&format!("{label:<INDENT$} "));
    let mut column = INDENT + 1;
    if arrow > 0 {
        out.push_str("  -> ");
        column += arrow;
    }
    let mut is_first = true;
    for word in text[arrow..].split(' ') {
        let length = columns(word);
        if !is_first && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if !is_first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_first = false;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_the_width_in_columns_and_nothing_steers_the_terminal() {
        let mut out = String::new();
        entry(&mut out, "Processor", "日本 ".repeat(30).trim_end(), 60);
        entry(&mut out, "Kernel", "6.1\u{1b}[2J", 60);
        assert!(out.lines().all(|line| columns(line) <= 60) && out.lines().count() == 5, "{out}");
        assert!(out.ends_with("6.1\\u{1b}[2J\n"), "{out}");
    }
}
