//! Program time from left to right: accesses by the node that serves them, stacked, and below them the remote share with its interval.

use numapilot_insight::{Bin, Series, Source};
use numapilot_text::units;
use numapilot_trace::ids::TimeNs;

use crate::estimates;
use crate::estimates::found;
use crate::export::Export;
use crate::svg_writer::{SvgWriter, Type};

use super::axis::{ticks, ticks_within};
use super::palette::{self, FAINT, GRID, INK, OTHERS, REMOTE};
use super::sheet::{MARGIN, TOP, WIDTH, begin, fit, key, no_access, nothing};

/// Number of slices of program time.
const SLICES: usize = 160;
/// Heights of the panels, and of the gap between them.
const RATE: f64 = 210.0;
const SHARE: f64 = 110.0;
const GAP: f64 = 48.0;
const AXIS: f64 = 60.0;

/// Where time is on the picture.
struct Frame {
    left: f64,
    width: f64,
    start_ns: u64,
    span_ns: u64,
}

impl Frame {
    fn x(&self, time_ns: u64) -> f64 {
        self.left + time_ns.saturating_sub(self.start_ns) as f64 / self.span_ns.max(1) as f64 * self.width
    }

    fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.span_ns)
    }
}

pub fn svg(export: &Export<'_>) -> String {
    let what = export.counted().or_faults("Memory accesses", "Page faults");
    let title = format!("{what} of {} over program time", export.heading.program());
    let series = export.analysis.series(SLICES);
    if series.bins.iter().all(|bin| bin.samples == 0) {
        return nothing(export, &title, no_access(export));
    }
    let totals = export.analysis.totals();
    let finding = format!(
        "{} of {} remote, {}",
        estimates::remote_share(&totals),
        estimates::remote_base(&totals, export.counted().in_full()),
        found(Source::Sampled)
    );
    let mut writer = begin(export, &title, &finding, 30.0 + RATE + GAP + SHARE + 44.0);
    let start_ns = series.bins.first().map_or(0, |bin| bin.start.0);
    let left = MARGIN + AXIS;
    let frame =
        Frame { left, width: WIDTH - MARGIN - left, start_ns, span_ns: series.bin_ns * series.bins.len() as u64 };
    let top = TOP + 30.0;
    rates(&mut writer, export, &series, &frame, top);
    shares(&mut writer, &series, &frame, top + RATE + GAP);
    time_axis(&mut writer, &frame, top + RATE + GAP + SHARE);
    marks(&mut writer, export.trace().marks(), &frame, (top, top + RATE + GAP + SHARE));
    writer.finish()
}

/// The nodes that have a colour of their own, and whether there are others.
fn shown_nodes(series: &Series) -> (Vec<usize>, bool) {
    let count = series.bins.first().map_or(0, |bin| bin.on_node.len());
    let served = |node: usize| series.bins.iter().map(|bin| bin.on_node[node]).sum::<f64>();
    let mut nodes: Vec<usize> = (0..count).filter(|&node| served(node) > 0.0).collect();
    if nodes.len() <= palette::NODE_COLOURS {
        return (nodes, false);
    }
    nodes.sort_by(|&a, &b| served(b).total_cmp(&served(a)).then(a.cmp(&b)));
    nodes.truncate(palette::NODE_COLOURS - 1);
    nodes.sort_unstable();
    (nodes, true)
}

/// Accesses per second of program time, one step per slice, node upon node.
fn rates(writer: &mut SvgWriter, export: &Export<'_>, series: &Series, frame: &Frame, top: f64) {
    let (nodes, has_others) = shown_nodes(series);
    let per_second = 1e9 / series.bin_ns as f64;
    let rate = |value: f64| value * per_second;
    let most = series.bins.iter().map(|bin| rate(bin.accesses.value)).fold(0.0, f64::max).max(1e-9);
    let bottom = top + RATE;
    let y = |value: f64| bottom - value / most * (RATE - 8.0);
    for tick in ticks(most, 4) {
        writer.line((frame.left, y(tick)), (frame.left + frame.width, y(tick)), &format!(r#"stroke="{GRID}""#));
        writer.text((frame.left - 8.0, y(tick) + 4.0), Type::new(11.0, FAINT).anchored("end"), &units::count(tick));
    }
    let mut base = vec![0.0; series.bins.len()];
    let mut entries: Vec<(&str, String)> = Vec::new();
    for (place, &node) in nodes.iter().enumerate() {
        let next: Vec<f64> = base.iter().zip(&series.bins).map(|(base, bin)| base + rate(bin.on_node[node])).collect();
        steps(writer, frame, series, (&base, &next), &y, palette::node(place));
        entries.push((palette::node(place), format!("node {}", export.analysis.nodes()[node])));
        base = next;
    }
    // What is left: nodes without a colour, and accesses of unknown home.
    let all: Vec<f64> = series.bins.iter().map(|bin| rate(bin.accesses.value)).collect();
    let left: f64 = all.iter().zip(&base).map(|(all, base)| (all - base).max(0.0)).sum();
    if left > 0.001 * all.iter().sum::<f64>() {
        steps(writer, frame, series, (&base, &all), &y, OTHERS);
        let served: f64 = series.bins.iter().flat_map(|bin| &bin.on_node).map(|&served| rate(served)).sum();
        let has_unknown = served < 0.999 * all.iter().sum::<f64>();
        let words = match (has_others, has_unknown) {
            (true, true) => "other nodes, home unknown",
            (true, false) => "other nodes",
            (false, _) => "home unknown",
        };
        entries.push((OTHERS, words.to_owned()));
    }
    key(writer, frame.left + 36.0, top - 14.0, &entries);
    writer.text(
        (MARGIN, top - 14.0),
        Type::new(11.0, FAINT),
        export.counted().or_faults("accesses / s, on", "faults / s, on"),
    );
}

/// The area between two lines of steps.
fn steps(
    writer: &mut SvgWriter,
    frame: &Frame,
    series: &Series,
    (base, next): (&[f64], &[f64]),
    y: &dyn Fn(f64) -> f64,
    colour: &str,
) {
    let mut points = Vec::with_capacity(4 * base.len());
    for (bin, value) in series.bins.iter().zip(next) {
        points.push((frame.x(bin.start.0), y(*value)));
        points.push((frame.x(bin.start.0.saturating_add(series.bin_ns)), y(*value)));
    }
    for (bin, value) in series.bins.iter().zip(base).rev() {
        points.push((frame.x(bin.start.0.saturating_add(series.bin_ns)), y(*value)));
        points.push((frame.x(bin.start.0), y(*value)));
    }
    writer.polygon(&points, &format!(r#"fill="{colour}""#));
}

/// The remote share as a line in its interval; slices without samples, or without a known home, have none.
fn shares(writer: &mut SvgWriter, series: &Series, frame: &Frame, top: f64) {
    let bottom = top + SHARE;
    let y = |share: f64| bottom - share.clamp(0.0, 1.0) * SHARE;
    for tick in [0.0, 0.5, 1.0] {
        writer.line((frame.left, y(tick)), (frame.left + frame.width, y(tick)), &format!(r#"stroke="{GRID}""#));
        writer.text(
            (frame.left - 8.0, y(tick) + 4.0),
            Type::new(11.0, FAINT).anchored("end"),
            &units::whole_percent(tick),
        );
    }
    writer.text((MARGIN, top - 10.0), Type::new(11.0, FAINT), "remote share, with its 95 % interval");
    let is_known = |bin: &Bin| bin.samples > 0 && !bin.remote.is_share_of_nothing();
    for bins in series.bins.chunk_by(|a, b| is_known(a) == is_known(b)).filter(|bins| is_known(&bins[0])) {
        // A slice alone is drawn as wide as it is: its middle alone would not be seen.
        let places: &[u64] = if bins.len() == 1 { &[0, series.bin_ns] } else { &[series.bin_ns / 2] };
        let course = |share: fn(&Bin) -> f64| -> Vec<(f64, f64)> {
            let mut points = Vec::new();
            for bin in bins {
                points.extend(places.iter().map(|place| (frame.x(bin.start.0.saturating_add(*place)), y(share(bin)))));
            }
            points
        };
        let mut band = course(|bin| bin.remote.high);
        band.extend(course(|bin| bin.remote.low).into_iter().rev());
        writer.polygon(&band, &format!(r#"fill="{REMOTE}" fill-opacity="0.22""#));
        let line = course(|bin| bin.remote.value);
        writer.polyline(&line, &format!(r#"stroke="{REMOTE}" stroke-width="1.6""#));
    }
}

fn time_axis(writer: &mut SvgWriter, frame: &Frame, y: f64) {
    writer.line((frame.left, y), (frame.left + frame.width, y), &format!(r#"stroke="{INK}""#));
    // One unit for all ticks, named under the axis.
    let (unit, ns) = [("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)]
        .into_iter()
        .find(|(_, ns)| frame.span_ns as f64 >= 2.0 * ns)
        .unwrap_or(("ns", 1.0));
    let (start, end) = (frame.start_ns as f64 / ns, frame.end_ns() as f64 / ns);
    for tick in ticks_within(start, end, 8) {
        let x = frame.x((tick * ns) as u64);
        writer.line((x, y), (x, y + 5.0), &format!(r#"stroke="{INK}""#));
        writer.text(
            (x, y + 18.0),
            Type::new(11.0, FAINT).anchored("middle"),
            &format!("{}", (tick * 1000.0).round() / 1000.0),
        );
    }
    let words = format!("program time, {unit}");
    writer.text((frame.left + frame.width, y + 36.0), Type::new(11.0, FAINT).anchored("end"), &words);
}

/// Draws the marks that the program set.
fn marks(writer: &mut SvgWriter, marks: &[(TimeNs, String)], frame: &Frame, (top, bottom): (f64, f64)) {
    const MOST: usize = 12;
    let end = frame.end_ns();
    let shown: Vec<_> = marks.iter().filter(|(time, _)| (frame.start_ns..end).contains(&time.0)).collect();
    for (index, (time, text)) in shown.iter().enumerate().take(MOST) {
        let x = frame.x(time.0);
        let next = shown.get(index + 1).map_or(frame.left + frame.width, |mark| frame.x(mark.0.0));
        let style = format!(r#"stroke="{INK}" stroke-width="0.8" stroke-dasharray="3 3""#);
        writer.line((x, top), (x, top + RATE + 14.0), &style);
        writer.line((x, bottom - SHARE), (x, bottom), &style);
        writer.text((x + 4.0, top + RATE + 13.0), Type::new(10.5, INK), &fit(text, next - x - 6.0, 10.0));
    }
}
