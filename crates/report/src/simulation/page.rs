//! The comparison as one page that opens from disk: table, bars, metrics over time, traffic before and after.

use std::fmt::Write;

use numapilot_machine::Machine;
use numapilot_simulator::Report;
use numapilot_text::markup::escaped_line;
use numapilot_text::units;

use super::{Comparison, OF_ONE_RUN, bars_svg, population, series_svg, text, traffic_svg};
use crate::plain_page;

/// Writes the page. `machine` is the one that was simulated.
#[must_use]
pub fn html(comparison: &Comparison<'_>, machine: &Machine) -> String {
    let base = &comparison.runs[comparison.base];
    let title = format!("{} on {}: placement policies, simulated", base.program, base.machine);
    let mut out = String::new();
    table(&mut out, comparison);
    figure(&mut out, "Gain over the baseline", &bars_svg(comparison));
    figure(&mut out, "Metrics over time", &series_svg(comparison));
    for run in comparison.runs {
        traffic(&mut out, run, machine);
    }
    plain_page::notes(&mut out, &text::notes(comparison));
    let origin = format!("{} Nothing on this page was measured.", text::origin(base));
    plain_page::page(&title, &origin, &out)
}

fn figure(out: &mut String, title: &str, svg: &str) {
    let _ = write!(out, "<h2>{}</h2>\n<figure>{svg}</figure>\n", escaped_line(title));
}

fn traffic(out: &mut String, run: &Report, machine: &Machine) {
    let policy = escaped_line(&run.policy);
    match (&run.before, &run.after) {
        (Some(before), Some(after)) => {
            let _ = writeln!(out, "<h2>Traffic under {policy}, before it moved anything and at the end</h2>");
            for (stretch, what) in [(before, "before"), (after, "at the end")] {
                let words = format!("{}, {what}", run.policy);
                let _ = writeln!(out, "<figure>{}</figure>", traffic_svg(run, machine, stretch, &words));
            }
        }
        _ => figure(out, &format!("Traffic under {}", run.policy), &traffic_svg(run, machine, &run.total, &run.policy)),
    }
}

fn table(out: &mut String, comparison: &Comparison<'_>) {
    out.push_str("<h2>Policies</h2>\n<div class=\"scroll\"><table><thead><tr>");
    let titles =
        ["Policy", "Run time", "Gain", "Local", "Latency", "Imbalance", "Links", "Moved", "Copies", "CPU time taken"];
    for title in titles {
        let _ = write!(out, "<th scope=\"col\">{title}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    let share = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), units::percent);
    for (index, run) in comparison.runs.iter().enumerate() {
        let metrics = &run.total.metrics;
        let gain = if index == comparison.base {
            "–".to_owned()
        } else {
            comparison.gain(index).map_or_else(|| "did not end".to_owned(), units::signed_percent)
        };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{gain}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped_line(&run.policy),
            units::time_ns(run.run_time_ns as u64),
            metrics.local_access_ratio.map_or_else(|| "–".to_owned(), units::part_percent),
            metrics.memory_latency_ns.map_or_else(|| "–".to_owned(), |ns| format!("{ns:.0} ns")),
            share(population(metrics.controller_imbalance)),
            share(metrics.interconnect_usage),
            run.moves.pages(),
            run.moves.copies_made,
            units::time_ns(run.cost.total_ns() as u64),
        );
    }
    out.push_str("</tbody></table></div>\n");
    let base = escaped_line(&comparison.runs[comparison.base].policy);
    let _ = writeln!(out, "<p>Gain: how much faster than {base}, {OF_ONE_RUN}.</p>");
}
