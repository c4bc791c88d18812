//! Latency against array size, with the levels that were found.

use numapilot_measure::Results;
use numapilot_text::units;

use super::plot::{Axis, Line, Scale, draw};
use super::words::{ns, origin, spread_words, walk_words};

pub fn svg(results: &Results) -> Option<String> {
    let points = || results.caches.iter().flat_map(|stairs| &stairs.points);
    let (least, most) = (points().map(|p| p.bytes).min()? as f64, points().map(|p| p.bytes).max()? as f64);
    let lowest = points().map(|point| point.ns.best()).fold(f64::INFINITY, f64::min);
    let highest = points().map(|point| point.ns.best()).fold(0.0, f64::max);
    let across = Axis {
        scale: Scale::Log2(least, most.max(2.0 * least)),
        title: "bytes of the array".to_owned(),
        words: |bytes| units::bytes(bytes as u64),
    };
    let up = Axis {
        scale: Scale::Log2(lowest / 1.2, highest * 1.2),
        title: "ns per load".to_owned(),
        words: |value| format!("{value}"),
    };
    let lines: Vec<Line> = results
        .caches
        .iter()
        .map(|stairs| Line {
            name: format!("CPU {} to {}, {}", stairs.cpu, stairs.target, walk_words(stairs.walk)),
            points: stairs.points.iter().map(|point| (point.bytes as f64, point.ns.best())).collect(),
            stories: stairs
                .points
                .iter()
                .map(|point| {
                    format!("{}: {} ns {}", units::bytes(point.bytes), ns(point.ns.best()), spread_words(&point.ns))
                })
                .collect(),
        })
        .collect();
    let levels = &results.caches.first()?.levels;
    let words: Vec<String> = levels
        .iter()
        .map(|level| {
            level.bytes.map_or_else(
                || format!("{} ns", ns(level.ns)),
                |bytes| format!("{} ns to {}", ns(level.ns), units::bytes(bytes as u64)),
            )
        })
        .collect();
    let finding = format!("{} levels: {}", levels.len(), words.join(", "));
    let marks: Vec<(f64, String)> = levels.iter().map(|level| (level.ns, format!("{} ns", ns(level.ns)))).collect();
    Some(draw("Cache steps: latency against array size", &finding, &origin(results), (&across, &up), &lines, &marks))
}
