//! Measured figures in words.

use numapilot_machine::NodeId;
use numapilot_measure::{Figure, Kernel, Overlap, QueueingDelay, Results, Target, Walk};

/// The kernel that stands for reading in pictures of bandwidth, and what was measured of it.
pub(super) const SHOWN_KERNEL: Kernel = Kernel::Read;

/// Processor, kernel and settings of the measurement, in one line.
pub(super) fn origin(results: &Results) -> String {
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
            .map_or_else(String::new, |share| {
                format!(" ({} of the memory really is)", numapilot_text::units::short_percent(share))
            }),
        results.seconds
    )
}

pub(super) fn pages(results: &Results) -> &'static str {
    match results.pages {
        numapilot_measure::Pages::Base => "base",
        numapilot_measure::Pages::Large => "large",
        numapilot_measure::Pages::Huge => "reserved huge",
    }
}

/// CPU nodes of some cells, ascending, each once.
pub(super) fn rows(nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    let mut rows: Vec<NodeId> = nodes.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Targets, nodes first, each once.
pub(super) fn columns<'a>(targets: impl Iterator<Item = &'a Target>) -> Vec<Target> {
    let mut columns: Vec<Target> = targets.cloned().collect();
    columns.sort();
    columns.dedup();
    columns
}

/// The name of a walk.
#[must_use]
pub fn walk_words(walk: Walk) -> String {
    match walk {
        Walk::Random => "random chase".to_owned(),
        Walk::RandomInPages => "random chase, page by page".to_owned(),
        Walk::Strided(stride) => format!("chase with a stride of {stride} bytes"),
    }
}

/// How many misses a core keeps outstanding, and how that was measured.
pub(super) fn overlap_words(overlap: &Overlap) -> String {
    format!(
        "A core keeps {:.1} misses outstanding ({:.1} to {:.1}): {} random chases side by side on CPU {} take {} ns per load.",
        overlap.outstanding,
        overlap.range.0,
        overlap.range.1,
        overlap.chains,
        overlap.cpu,
        ns(overlap.ns.best())
    )
}

/// How far queueing delays are from the model's.
pub(super) fn queueing_words(delay: &QueueingDelay) -> String {
    let range = format!("{:.2} to {:.2} times the model's", delay.low, delay.high);
    match delay.curves {
        0 => format!(
            "No latency under load rose enough to measure queueing delays: they are taken to be {range}, its error on another machine."
        ),
        curves => format!(
            "Queueing delays are {range} (from {} that rose, and the model's error on another machine).",
            if curves == 1 { "one curve".to_owned() } else { format!("{curves} curves") }
        ),
    }
}

/// `±0.4 %`, with a mark where no repetition confirmed another.
pub(super) fn spread_words(figure: &Figure) -> String {
    let mark = if figure.spread.confirmed { "" } else { " ?" };
    format!("±{}{mark}", numapilot_text::units::percent(figure.spread.relative()))
}

/// Formats a bandwidth in GB/s (10^9 bytes per second).
pub(super) fn gb_per_s(bytes_per_s: f64) -> String {
    let value = bytes_per_s / 1e9;
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Nanoseconds with the digits that matter.
pub(super) fn ns(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// `90.0 to 250.0`, or the one number that all are.
pub(super) fn between((low, high): (f64, f64), words: fn(f64) -> String) -> String {
    let (low, high) = (words(low), words(high));
    if low == high { low } else { format!("{low} to {high}") }
}
