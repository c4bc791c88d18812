//! The comparison for a terminal.

use std::fmt::Write;

use numapilot_insight::compare::{ChangeVerdict, Comparison};
use numapilot_text::style::wrap;
use numapilot_text::style::{Look, clean};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::words;

/// Renders the comparison with at most `top` objects.
#[must_use]
pub fn render(comparison: &Comparison, top: usize, look: Look) -> String {
    let mut out = format!("{}\n", look.strong(&words::headline(comparison)));
    for line in words::prediction(comparison).iter().flat_map(|line| wrap(line, look.width)) {
        let _ = writeln!(out, "{line}");
    }
    for (side, runs) in [("before", &comparison.before), ("after", &comparison.after)] {
        let traces: Vec<String> = runs.iter().map(|run| clean(&run.trace)).collect();
        let indented = wrap(&format!("{side}: {}", traces.join(", ")), look.width.saturating_sub(2));
        indented.iter().for_each(|line| {
            let _ = writeln!(out, "  {}", look.faint(line));
        });
    }
    out.push('\n');
    let mut table = Table::new()
        .column("PROGRAM", Align::Left)
        .column("BEFORE", Align::Right)
        .column("AFTER", Align::Right)
        .column("CHANGE", Align::Right)
        .column("", Align::Left);
    for line in &comparison.metrics {
        let change = &line.change;
        table.row([
            words::metric(line.metric, comparison).to_owned(),
            words::value(line.metric, change.before),
            words::value(line.metric, change.after),
            words::difference(line.metric, change),
            words::verdict(change.verdict).to_owned(),
        ]);
    }
    out.push_str(&table.render(look, 0));
    objects(&mut out, comparison, top, look);
    if !comparison.notes.is_empty() {
        out.push('\n');
    }
    for note in &comparison.notes {
        wrap(&clean(note), look.width.saturating_sub(2)).iter().for_each(|line| {
            let _ = writeln!(out, "  {}", look.faint(line));
        });
    }
    if let Some(remedy) = &comparison.remedy {
        wrap(&clean(&remedy.how), look.width.saturating_sub(2)).iter().for_each(|line| {
            let _ = writeln!(out, "  {}", look.faint(line));
        });
        words::command(remedy, look.width.saturating_sub(4)).iter().for_each(|line| {
            let _ = writeln!(out, "    {line}");
        });
    }
    out
}

fn objects(out: &mut String, comparison: &Comparison, top: usize, look: Look) {
    let mut table = Table::new()
        .flexible("OBJECT", 12)
        .flexible("PLACE", 12)
        .column("PEAK", Align::Right)
        .column("REMOTE: BEFORE", Align::Right)
        .column("AFTER", Align::Right)
        .column("CHANGE", Align::Right)
        .column("BUSIEST NODE", Align::Right)
        .column("", Align::Left);
    for change in comparison.objects.iter().take(top) {
        let (name, place) = words::object(change);
        let bytes = change.after.as_ref().or(change.before.as_ref()).map_or(0, |object| object.peak_live_bytes);
        let is_told = change.remote.as_ref().is_none_or(|remote| remote.verdict != ChangeVerdict::NoEvidence);
        let verdict = if is_told { words::verdict_on(change).to_owned() } else { String::new() };
        let [before, after, difference] = words::remote(change);
        let remarks = [verdict, words::matched(change.matched).to_owned()];
        table.row([
            name,
            place,
            units::bytes(bytes),
            before,
            after,
            difference,
            words::busiest(change),
            remarks.into_iter().filter(|remark| !remark.is_empty()).collect::<Vec<_>>().join(", "),
        ]);
    }
    if table.is_empty() {
        return;
    }
    let _ = write!(out, "\n{}", table.render(look, 0));
    let hidden = comparison.objects.len().saturating_sub(top);
    let legend = "REMOTE: remote accesses to the object, as a share of all the program's memory accesses. BUSIEST NODE: share of the object's accesses \
                  that one node serves, before > after.";
    wrap(legend, look.width.saturating_sub(2)).iter().for_each(|line| {
        let _ = writeln!(out, "  {}", look.faint(line));
    });
    if hidden > 0 {
        let _ = writeln!(
            out,
            "  {}",
            look.faint(&format!(
                "{} not shown (--top N shows more)",
                units::counted(hidden as u64, "object is", "objects are")
            ))
        );
    }
}
