//! The metrics over time: one panel per metric, one line per policy.

use numapilot_simulator::{Point, Report};
use numapilot_text::style::{clean, shorten};
use numapilot_text::units;

use super::{Comparison, colour, population};
use crate::svg_writer::{FAINT, INK, SvgWriter, Type};

const PANEL: (f64, f64) = (330.0, 120.0);
const GAP: (f64, f64) = (74.0, 62.0);
const MARGIN: f64 = 64.0;
const TOP: f64 = 104.0;
const COLUMNS: usize = 2;

/// One panel: its title, its unit's factor and suffix, and the figure.
struct Panel {
    title: &'static str,
    factor: f64,
    suffix: &'static str,
    of: fn(&Point) -> Option<f64>,
}

const PANELS: [Panel; 8] = [
    Panel { title: "Local access ratio", factor: 100.0, suffix: " %", of: |p| p.metrics.local_access_ratio },
    Panel { title: "Latency of a memory access", factor: 1.0, suffix: " ns", of: |p| p.metrics.memory_latency_ns },
    Panel {
        title: "Controller imbalance (population)",
        factor: 100.0,
        suffix: " %",
        of: |p| population(p.metrics.controller_imbalance),
    },
    Panel {
        title: "Memory accesses per microsecond",
        factor: 1.0,
        suffix: "",
        of: |p| Some(p.served.iter().sum::<f64>() / (p.to_ns - p.from_ns).max(1.0) * 1e3),
    },
    Panel { title: "Interconnect usage", factor: 100.0, suffix: " %", of: |p| p.metrics.interconnect_usage },
    Panel {
        title: "Interconnect imbalance (population)",
        factor: 100.0,
        suffix: " %",
        of: |p| population(p.metrics.interconnect_imbalance),
    },
    Panel { title: "Memory accesses per 1,000 instructions", factor: 1.0, suffix: "", of: |p| p.metrics.l3_mpki },
    Panel { title: "Instructions per cycle", factor: 1.0, suffix: "", of: |p| p.metrics.ipc },
];

/// Draws the metrics over time.
#[must_use]
pub fn svg(comparison: &Comparison<'_>) -> String {
    let base = &comparison.runs[comparison.base];
    let shown: Vec<&Panel> = PANELS.iter().filter(|panel| figures(comparison.runs, panel).next().is_some()).collect();
    let rows = shown.len().div_ceil(COLUMNS).max(1);
    let legend_rows = comparison.runs.len().div_ceil(4);
    let top = TOP + 20.0 * legend_rows as f64;
    let width = 2.0 * MARGIN + COLUMNS as f64 * PANEL.0 + (COLUMNS as f64 - 1.0) * GAP.0;
    let height = top + rows as f64 * (PANEL.1 + GAP.1);
    let mut writer = SvgWriter::new(width, height, "The metrics of simulated runs over time");
    let title = format!("{} on {}", clean(&base.program), clean(&base.machine));
    writer.text((MARGIN, 40.0), Type::new(20.0, INK).bold(), &shorten(&title, 70));
    writer.text((MARGIN, 62.0), Type::new(13.0, FAINT), "metrics over program time, simulated");
    for (index, run) in comparison.runs.iter().enumerate() {
        let at = (MARGIN + (index % 4) as f64 * 190.0, 88.0 + 20.0 * (index / 4) as f64);
        writer.line((at.0, at.1 - 4.0), (at.0 + 18.0, at.1 - 4.0), &stroke(index));
        writer.text((at.0 + 24.0, at.1), Type::new(12.5, INK), &shorten(&clean(&run.policy), 24));
    }
    let end_ns = comparison.runs.iter().map(|run| run.run_time_ns).fold(1.0, f64::max);
    for (index, panel) in shown.iter().enumerate() {
        let corner = (
            MARGIN + (index % COLUMNS) as f64 * (PANEL.0 + GAP.0),
            top + (index / COLUMNS) as f64 * (PANEL.1 + GAP.1) + 24.0,
        );
        draw(&mut writer, comparison.runs, panel, corner, end_ns);
    }
    writer.finish()
}

fn stroke(run: usize) -> String {
    let dash = ["", "6 3", "2 2", "8 3 2 3"][(run / 2) % 4];
    let dash = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
    format!(r#"stroke="{}" stroke-width="1.8"{dash}"#, colour(run))
}

fn figures<'a>(runs: &'a [Report], panel: &'a Panel) -> impl Iterator<Item = f64> + 'a {
    runs.iter().flat_map(|run| &run.series).filter_map(|point| (panel.of)(point)).filter(|value| value.is_finite())
}

fn draw(writer: &mut SvgWriter, runs: &[Report], panel: &Panel, corner: (f64, f64), end_ns: f64) {
    let most = figures(runs, panel).fold(0.0, f64::max);
    let top = round_up(most * panel.factor);
    writer.text((corner.0, corner.1 - 8.0), Type::new(13.0, INK).bold(), panel.title);
    for part in [0.0, 0.5, 1.0] {
        let y = corner.1 + PANEL.1 * (1.0 - part);
        writer.line((corner.0, y), (corner.0 + PANEL.0, y), r##"stroke="#dcdcd6" stroke-width="1""##);
        let value = top * part;
        let words = if value.fract() == 0.0 {
            format!("{value:.0}{}", panel.suffix)
        } else {
            format!("{value:.1}{}", panel.suffix)
        };
        writer.text((corner.0 - 6.0, y + 4.0), Type::new(10.5, FAINT).anchored("end"), &words);
    }
    writer.text((corner.0, corner.1 + PANEL.1 + 15.0), Type::new(10.5, FAINT), "0");
    let end = units::time_ns(end_ns as u64);
    writer.text((corner.0 + PANEL.0, corner.1 + PANEL.1 + 15.0), Type::new(10.5, FAINT).anchored("end"), &end);
    for (index, run) in runs.iter().enumerate() {
        let mut points = Vec::new();
        for point in &run.series {
            let Some(value) = (panel.of)(point).filter(|value| value.is_finite()) else { continue };
            let y = corner.1 + PANEL.1 * (1.0 - (value * panel.factor / top).clamp(0.0, 1.0));
            points
                .extend([point.from_ns, point.to_ns].map(|at| (corner.0 + PANEL.0 * (at / end_ns).clamp(0.0, 1.0), y)));
        }
        if points.len() > 1 {
            writer.polyline(&points, &stroke(index));
        }
    }
}

/// The next of 1, 2, 5 times a power of ten; 1 for nothing.
fn round_up(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|step| step * power).find(|top| *top >= value * 0.999).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!((round_up(0.0), round_up(1.0), round_up(173.0), round_up(43.0)), (1.0, 1.0, 200.0, 50.0));
    }
}
