//! What `numapilot measure` found: text, pictures (staircase, heat maps, curves) and one page. Measured figures come with their spread, and with
//! a remark where something disturbed them.

mod curves;
mod heat;
mod page;
mod plot;
mod staircase;
mod text;

use numapilot_machine::NodeId;
use numapilot_measure::{Figure, Kernel, Results, Target, Walk};

pub use page::html;
pub use text::render;

/// A picture of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Latency against array size.
    Staircase,
    /// Idle latency of every pair.
    Latency,
    /// Bandwidth of every pair.
    Bandwidth,
    /// Latency under load.
    Loaded,
    /// Hand-off between CPUs.
    Handoff,
}

impl Picture {
    /// All, in the order of the page.
    pub const ALL: [Picture; 5] =
        [Picture::Latency, Picture::Bandwidth, Picture::Loaded, Picture::Staircase, Picture::Handoff];

    /// The title of the picture.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Picture::Staircase => "Cache steps: latency against array size",
            Picture::Latency => "Idle latency of every pair of nodes",
            Picture::Bandwidth => "Bandwidth of every pair of nodes",
            Picture::Loaded => "Latency under load",
            Picture::Handoff => "Hand-off of a cache line between CPUs",
        }
    }
}

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

/// Processor, kernel and settings of the measurement, in one line.
fn origin(results: &Results) -> String {
    let host = &results.host;
    let cpu = host.cpu_model.as_deref().unwrap_or("unknown processor");
    let kernel = host.kernel.as_deref().unwrap_or("unknown");
    let isa = host.isa.map_or("portable", numapilot_measure::Isa::word);
    format!(
        "{cpu} at {:.2} GHz (measured), Linux {kernel}; {isa} kernels, {} pages{}; measured in {:.1} s",
        host.clock_mhz / 1000.0,
        pages(results),
        results
            .large_share
            .filter(|_| results.pages != numapilot_measure::Pages::Base)
            .map_or_else(String::new, |share| { format!(" ({:.0} % of the memory really is)", share * 100.0) }),
        results.seconds
    )
}

fn pages(results: &Results) -> &'static str {
    match results.pages {
        numapilot_measure::Pages::Base => "base",
        numapilot_measure::Pages::Large => "large",
        numapilot_measure::Pages::Huge => "reserved huge",
    }
}

/// CPU nodes of some cells, ascending, each once.
fn rows(nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    let mut rows: Vec<NodeId> = nodes.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Targets, nodes first, each once.
fn columns<'a>(targets: impl Iterator<Item = &'a Target>) -> Vec<Target> {
    let mut columns: Vec<Target> = targets.cloned().collect();
    columns.sort();
    columns.dedup();
    columns
}

/// The name of a walk.
fn walk_words(walk: Walk) -> String {
    match walk {
        Walk::Random => "random chase".to_owned(),
        Walk::RandomInPages => "random chase, page by page".to_owned(),
        Walk::Strided(stride) => format!("chase with a stride of {stride} bytes"),
    }
}

/// `±0.4 %`, with a mark where no repetition confirmed another.
fn spread_words(figure: &Figure) -> String {
    let mark = if figure.spread.confirmed { "" } else { " ?" };
    format!("±{:.1} %{mark}", figure.spread.relative() * 100.0)
}

/// Formats a bandwidth in GB/s (10^9 bytes per second).
fn gb_per_s(bytes_per_s: f64) -> String {
    let value = bytes_per_s / 1e9;
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Nanoseconds with the digits that matter.
fn ns(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// `90.0 to 250.0`, or the one number that all are.
fn between((low, high): (f64, f64), words: fn(f64) -> String) -> String {
    let (low, high) = (words(low), words(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// The kernel that stands for reading in pictures of bandwidth, and what was measured of it.
const SHOWN_KERNEL: Kernel = Kernel::Read;

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
            "{} of {} figures of {what} were disturbed while they were measured (at worst, with preemptions as a mean: {}).",
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
