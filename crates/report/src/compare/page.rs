//! The comparison as one page that opens from disk.

use std::fmt::Write;

use numapilot_insight::compare::{Comparison, Remedy, RunSummary};
use numapilot_text::markup::{escaped, escaped_line};
use numapilot_text::units;

use super::{svg, words};
use crate::plain_page;

/// Columns in a line of the page's commands.
const PAGE_COLUMNS: usize = 100;

/// Writes the page; `top` objects at most.
#[must_use]
pub fn html(comparison: &Comparison, top: usize) -> String {
    let program = comparison.after.first().map_or("", |run| run.program.as_str());
    let mut out = String::new();
    let _ = writeln!(out, "<p><strong>{}</strong></p>", escaped_line(&words::headline(comparison)));
    if let Some(line) = words::prediction(comparison) {
        let _ = writeln!(out, "<p>{}</p>", escaped_line(&line));
    }
    metrics(&mut out, comparison);
    if !comparison.objects.is_empty() {
        let _ = write!(out, "<h2>Remote accesses by object</h2>\n<figure>{}</figure>\n", svg(comparison, top));
        objects(&mut out, comparison, top);
    }
    plain_page::notes(&mut out, &comparison.notes);
    if let Some(remedy) = &comparison.remedy {
        out.push_str(&how_to_tell(remedy));
    }
    let origin = format!(
        "{} Before: {}. After: {}.",
        setting(comparison),
        traces(&comparison.before),
        traces(&comparison.after)
    );
    plain_page::page(&format!("{program}: before and after"), &origin, &out)
}

/// What to record, and the command that then compares all, whose words are clean.
fn how_to_tell(remedy: &Remedy) -> String {
    let command = words::command(remedy, PAGE_COLUMNS).join("\n");
    format!("<p>{}</p>\n<pre>{}</pre>\n", escaped_line(&remedy.how), escaped(&command))
}

fn setting(comparison: &Comparison) -> String {
    let machine = comparison.after.first().map_or("", |run| run.machine.as_str());
    let engine = comparison.after.first().map_or("", |run| run.engine.name());
    format!("Engine {engine}, machine {machine}.")
}

fn traces(runs: &[RunSummary]) -> String {
    runs.iter().map(|run| run.trace.as_str()).collect::<Vec<_>>().join(", ")
}

fn head(out: &mut String, titles: &[&str]) {
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for title in titles {
        let _ = write!(out, "<th scope=\"col\">{title}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
}

fn metrics(out: &mut String, comparison: &Comparison) {
    head(out, &["Program", "Before", "After", "Change", "Verdict"]);
    for line in &comparison.metrics {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            words::metric(line.metric, comparison),
            words::value(line.metric, line.change.before),
            words::value(line.metric, line.change.after),
            words::difference(line.metric, &line.change),
            words::verdict(line.change.verdict)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn objects(out: &mut String, comparison: &Comparison, top: usize) {
    head(
        out,
        &["Object", "Place", "Peak size", "Remote before", "After", "Change", "Busiest node", "Verdict", "Match"],
    );
    for change in comparison.objects.iter().take(top) {
        let (name, place) = words::object(change);
        let [before, after, difference] = words::remote(change);
        let bytes = change.after.as_ref().or(change.before.as_ref()).map_or(0, |object| object.peak_live_bytes);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped_line(&name),
            escaped_line(&place),
            units::bytes(bytes),
            before,
            after,
            difference,
            escaped_line(&words::busiest(change)),
            words::verdict_on(change),
            words::matched(change.matched)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_keeps_its_lines() {
        let words = ["numapilot".to_owned(), "compare".to_owned(), "a<b>".to_owned(), "c".repeat(90)];
        let remedy = Remedy { each: 2, how: "Record & compare:".to_owned(), command: words.into() };
        let lines = format!("<pre>numapilot compare 'a&lt;b&gt;' \\\n    {}</pre>\n", "c".repeat(90));
        assert_eq!(how_to_tell(&remedy), format!("<p>Record &amp; compare:</p>\n{lines}"));
    }
}
