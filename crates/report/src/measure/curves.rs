//! Latency under load: what a chase sees while its neighbours move more and more.

use numapilot_measure::Results;

use super::plot::{Axis, Line, Scale, draw};
use super::words::{gb_per_s, ns, origin, spread_words};

/// A round value, without what binary fractions add to it.
fn tick(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

pub fn svg(results: &Results) -> Option<String> {
    let points = || results.loaded.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.bytes_per_s / 1e9).fold(0.0, f64::max);
    let highest = points().map(|point| point.ns.best()).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let across =
        Axis { scale: Scale::Linear(most * 1.05), title: "GB/s moved by all, chase included".to_owned(), words: tick };
    let up = Axis { scale: Scale::Linear(highest * 1.1), title: "ns per load (median)".to_owned(), words: tick };
    let lines: Vec<Line> = results
        .loaded
        .iter()
        .map(|curve| Line {
            name: format!("node {} to {}, {} × `{}`", curve.from, curve.target, curve.neighbours, curve.kernel.word()),
            points: curve.points.iter().map(|point| (point.bytes_per_s / 1e9, point.ns.best())).collect(),
            stories: curve
                .points
                .iter()
                .map(|point| {
                    format!(
                        "{} GB/s: {} ns {}",
                        gb_per_s(point.bytes_per_s),
                        ns(point.ns.best()),
                        spread_words(&point.ns)
                    )
                })
                .collect(),
        })
        .collect();
    let worst = results.loaded.iter().filter_map(|curve| {
        let idle = curve.points.first()?.ns.best();
        let full = curve.points.iter().map(|point| point.ns.best()).fold(0.0, f64::max);
        Some((full / idle, curve.from, curve.target.clone(), idle, full))
    });
    let (_, from, target, idle, full) = worst.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let finding = match full > idle {
        true => {
            format!("node {from} to {target} rises most: from {} ns idle to {} ns at its highest", ns(idle), ns(full))
        }
        false => format!("no latency rises; node {from} to {target} has {} ns idle", ns(idle)),
    };
    Some(draw("Latency under load", &finding, &origin(results), (&across, &up), &lines, &[]))
}
