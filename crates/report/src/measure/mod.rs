//! What `numapilot measure` found: text, pictures (staircase, heat maps, curves) and one page. Measured figures come with their spread, and with
//! a remark where something disturbed them.

mod curves;
mod heat;
mod page;
mod picture;
mod plot;
mod staircase;
mod text;
mod words;

use numapilot_measure::{Figure, Results};

pub use page::html;
pub use picture::Picture;
pub use text::render;
pub use words::walk_words;

/// Draws a picture; `None` where nothing of its kind was measured.
#[must_use]
pub fn svg(picture: Picture, results: &Results) -> Option<String> {
    match picture {
        Picture::Staircase => staircase::svg(results),
        Picture::Latency => heat::latency_svg(results),
        Picture::Bandwidth => heat::bandwidth_svg(results),
        Picture::Loaded => curves::svg(results),
        Picture::Handoff => heat::handoff_svg(results),
    }
}

/// Whether nothing disturbed any figure.
fn is_quiet(results: &Results) -> bool {
    groups(results).iter().flat_map(|(_, figures)| figures).all(|figure| figure.disturbance.remarks().is_empty())
}

/// All figures, by what was measured.
fn groups(results: &Results) -> [(&'static str, Vec<&Figure>); 5] {
    let steps = results.caches.iter().flat_map(|stairs| &stairs.points);
    let loads = results.loaded.iter().flat_map(|curve| &curve.points);
    [
        ("latency", results.latency.iter().map(|cell| &cell.ns).collect()),
        ("cache steps", steps.map(|point| &point.ns).collect()),
        ("bandwidth", results.bandwidth.iter().map(|cell| &cell.bytes_per_s).collect()),
        ("latency under load", loads.map(|point| &point.ns).collect()),
        ("hand-off", results.handoff.iter().map(|cell| &cell.ns).collect()),
    ]
}

/// Every disturbance that is worth a remark, grouped by what was measured, and what else limits the figures.
fn remarks(results: &Results) -> Vec<String> {
    let mut out = results.notes.clone();
    for (what, figures) in groups(results) {
        let disturbed: Vec<&&Figure> =
            figures.iter().filter(|figure| !figure.disturbance.remarks().is_empty()).collect();
        let Some(worst) = disturbed.iter().map(|figure| figure.disturbance).reduce(|a, b| a.and(&b)) else { continue };
        let mean = worst.involuntary_switches / disturbed.len().max(1) as u64;
        let at_worst = numapilot_measure::Disturbance { involuntary_switches: mean, ..worst };
        out.push(format!(
            "Disturbed while measured: {} of {} figures of {what} (worst values; of preemptions the mean: {}).",
            disturbed.len(),
            figures.len(),
            at_worst.remarks().join(", ")
        ));
    }
    let unconfirmed =
        results.latency.iter().map(|cell| &cell.ns).chain(results.bandwidth.iter().map(|cell| &cell.bytes_per_s));
    let unconfirmed = unconfirmed.filter(|figure| !figure.spread.confirmed).count();
    if unconfirmed > 0 {
        out.push(format!(
            "Figures marked `?` ({unconfirmed}): no two repetitions agreed within 2 %, so the median is shown. \
             Measure again on a quieter machine, or for longer."
        ));
    }
    out.extend(results.left_out.iter().map(|what| format!("Not measured: {what}.")));
    out
}

#[cfg(test)]
mod tests;
