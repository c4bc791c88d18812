//! Measurements as one page that opens from disk.

use std::fmt::Write;

use numapilot_measure::{Calibration, Results};
use numapilot_text::markup::escaped_line;
use numapilot_text::units::percent;

use super::text::limits;
use super::words::{gb_per_s, origin, overlap_words, queueing_words, spread_words};
use super::{Picture, is_quiet, remarks, svg};
use crate::plain_page;

/// Renders the page.
#[must_use]
pub fn html(results: &Results, calibration: Option<&Calibration>) -> String {
    let mut out = String::new();
    let remarks = remarks(results);
    if !is_quiet(results) {
        out.push_str("<p><strong>Other work disturbed some of these figures</strong>: the notes at the end say which, and how much.</p>\n");
    }
    for picture in Picture::ALL {
        if let Some(svg) = svg(picture, results) {
            // Each picture has its title in it.
            let _ = writeln!(out, "<figure>{svg}</figure>");
        }
    }
    if let Some(overlap) = &results.overlap {
        let _ = writeln!(out, "<h2>Misses outstanding</h2>\n<p>{}</p>", escaped_line(&overlap_words(overlap)));
    }
    bandwidths(&mut out, results);
    if let Some(calibration) = calibration {
        fit(&mut out, calibration);
    }
    plain_page::notes(&mut out, &remarks);
    plain_page::page("What this machine can do", &format!("{}.", origin(results)), &out)
}

fn table(out: &mut String, title: &str, heads: &[&str]) {
    let _ = write!(out, "<h2>{}</h2>\n<div class=\"scroll\"><table><thead><tr>", escaped_line(title));
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escaped_line(head));
    }
    out.push_str("</tr></thead><tbody>\n");
}

fn row(out: &mut String, first: &str, rest: &[String]) {
    let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped_line(first));
    for cell in rest {
        let _ = write!(out, "<td>{}</td>", escaped_line(cell));
    }
    out.push_str("</tr>\n");
}

fn bandwidths(out: &mut String, results: &Results) {
    if results.bandwidth.is_empty() {
        return;
    }
    table(
        out,
        "Bandwidth by kernel",
        &["CPUs of", "CPUs", "Memory on", "Kernel", "GB/s as STREAM counts", "Spread", "GB/s on the bus (calculated)"],
    );
    for cell in &results.bandwidth {
        let rest = [
            cell.cpus.to_string(),
            cell.target.to_string(),
            cell.kernel.word().to_owned(),
            gb_per_s(cell.bytes_per_s.best()),
            spread_words(&cell.bytes_per_s),
            gb_per_s(cell.traffic_bytes_per_s),
        ];
        row(out, &format!("node {}", cell.from), &rest);
    }
    out.push_str("</tbody></table></div>\n");
}

fn fit(out: &mut String, calibration: &Calibration) {
    table(out, "The traffic model, fitted", &["What", "GB/s", "How"]);
    for (what, limit) in limits(calibration) {
        let how = if limit.estimate { format!("estimate: {}", limit.source) } else { limit.source.clone() };
        row(out, &what, &[gb_per_s(limit.bytes_per_s), how]);
    }
    out.push_str("</tbody></table></div>\n");
    for fit in &calibration.fits {
        let _ = writeln!(
            out,
            "<p>Latency under load from node {} to node {}: the model is off by {} (root mean square), {} at worst.</p>",
            fit.from,
            fit.to,
            percent(fit.error),
            percent(fit.worst)
        );
    }
    if let Some(delay) = &calibration.queueing_delay {
        let _ = writeln!(out, "<p>{}</p>", escaped_line(&queueing_words(delay)));
    }
}
