//! Measurements as tables.

use std::fmt::Write;

use numapilot_measure::{Calibration, Kernel, LatencyCell, Limit, Proof, Results, Target, Walk};
use numapilot_text::style::Look;
use numapilot_text::style::wrap;
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::remarks;
use super::words::{columns, gb_per_s, ns, origin, overlap_words, queueing_words, rows, spread_words, walk_words};

/// Renders everything for a terminal; with what the traffic model made of it, if that was asked for.
#[must_use]
pub fn render(results: &Results, calibration: Option<&Calibration>, look: Look) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", look.strong("Measured"));
    paragraph(&mut out, &origin(results), look);
    if let Some(words) = placement(results) {
        paragraph(&mut out, &words, look);
    }
    latency(&mut out, results, look);
    caches(&mut out, results, look);
    overlap(&mut out, results, look);
    bandwidth(&mut out, results, look);
    loaded(&mut out, results, look);
    handoff(&mut out, results, look);
    if let Some(calibration) = calibration {
        fitted(&mut out, calibration, look);
    }
    out.push('\n');
    for note in remarks(results) {
        for (index, line) in wrap(&note, look.width.saturating_sub(2)).iter().enumerate() {
            let _ = writeln!(out, "{} {}", if index == 0 { "!" } else { " " }, look.warning(line));
        }
    }
    out
}

fn paragraph(out: &mut String, words: &str, look: Look) {
    for line in wrap(words, look.width) {
        let _ = writeln!(out, "{}", look.faint(&line));
    }
}

fn heading(out: &mut String, title: &str, look: Look) {
    let _ = writeln!(out, "\n{}", look.strong(title));
}

/// How it is known that memory was where it was asked for.
fn placement(results: &Results) -> Option<String> {
    let shown = results.placements.iter().filter_map(|(_, proof)| match proof {
        Proof::Shown { pages, .. } => Some(*pages),
        Proof::OnlyNode => None,
    });
    let pages: u64 = shown.sum();
    if pages > 0 {
        return Some(format!(
            "All {} pages were bound, and shown by the kernel to be on their node, before they were timed.",
            units::count(pages as f64)
        ));
    }
    let words = "There is one node with memory, and the kernel does not say where pages are (move_pages): placement is not shown.";
    (!results.placements.is_empty()).then(|| words.to_owned())
}

fn latency(out: &mut String, results: &Results, look: Look) {
    let mut walks: Vec<Walk> = results.latency.iter().map(|cell| cell.walk).collect();
    walks.sort();
    walks.dedup();
    for walk in walks {
        let cells: Vec<_> = results.latency.iter().filter(|cell| cell.walk == walk).collect();
        let bytes = cells.iter().map(|cell| cell.bytes).max().unwrap_or(0);
        heading(out, &format!("Idle latency, ns per load: {} through {}", walk_words(walk), units::bytes(bytes)), look);
        let targets = columns(cells.iter().map(|cell| &cell.target));
        let has_spread = targets.len() <= SPREAD_COLUMNS;
        let per_table = if has_spread { SPREAD_COLUMNS } else { (look.width - 20) / 10 };
        for targets in targets.chunks(per_table) {
            out.push_str(&matrix(&cells, targets, has_spread).render(look, 0));
        }
        let most = cells.iter().map(|cell| cell.ns.spread.relative()).fold(0.0, f64::max);
        if !has_spread {
            paragraph(out, &format!("Spread at most ±{}.", units::percent(most)), look);
        }
    }
}

/// As many columns have room for their spread beside them.
const SPREAD_COLUMNS: usize = 3;

fn matrix(cells: &[&LatencyCell], targets: &[Target], has_spread: bool) -> Table {
    let mut table = Table::new().flexible("CPUs of \\ memory on", 8);
    for target in targets {
        table = table.column(&target.to_string(), Align::Right);
        if has_spread {
            table = table.column("", Align::Left);
        }
    }
    for from in rows(cells.iter().map(|cell| cell.from)) {
        let mut row = vec![format!("node {from}")];
        for target in targets {
            let cell = cells.iter().find(|cell| cell.from == from && cell.target == *target);
            row.push(cell.map_or_else(|| "-".to_owned(), |cell| ns(cell.ns.best())));
            if has_spread {
                row.push(cell.map_or_else(String::new, |cell| spread_words(&cell.ns)));
            }
        }
        table.row(row);
    }
    table
}

fn caches(out: &mut String, results: &Results, look: Look) {
    for stairs in &results.caches {
        heading(
            out,
            &format!("Cache steps of CPU {} by {}, memory on {}", stairs.cpu, walk_words(stairs.walk), stairs.target),
            look,
        );
        let mut table = Table::new()
            .column("LEVEL", Align::Right)
            .column("NS PER LOAD", Align::Right)
            .column("UP TO ABOUT", Align::Right);
        for (index, level) in stairs.levels.iter().enumerate() {
            let end = level.bytes.map_or_else(|| "(the last)".to_owned(), |bytes| units::bytes(bytes as u64));
            table.row([(index + 1).to_string(), ns(level.ns), end]);
        }
        out.push_str(&table.render(look, 0));
        let Some((first, last)) = stairs.points.first().zip(stairs.points.last()) else { continue };
        let words = format!(
            "{} sizes from {} to {}, {} to {} ns; --json and --html have each.",
            stairs.points.len(),
            units::bytes(first.bytes),
            units::bytes(last.bytes),
            ns(first.ns.best()),
            ns(last.ns.best())
        );
        let _ = writeln!(out, "{}", look.faint(&words));
    }
}

/// Writes the measured overlap of accesses of a core.
fn overlap(out: &mut String, results: &Results, look: Look) {
    let Some(overlap) = &results.overlap else { return };
    heading(out, "Misses outstanding", look);
    paragraph(out, &overlap_words(overlap), look);
}

fn bandwidth(out: &mut String, results: &Results, look: Look) {
    if results.bandwidth.is_empty() {
        return;
    }
    heading(out, "Bandwidth, GB/s (10^9 bytes) as STREAM counts", look);
    let mut table = Table::new()
        .flexible("CPUs of", 7)
        .column("CPUS", Align::Right)
        .flexible("memory on", 8)
        .column("KERNEL", Align::Left)
        .column("GB/S", Align::Right)
        .column("", Align::Left)
        .column("NT", Align::Right)
        .column("", Align::Left)
        .column("ON THE BUS", Align::Right);
    let mut groups: Vec<_> = results.bandwidth.iter().map(|cell| (cell.from, cell.target.clone(), cell.cpus)).collect();
    groups.dedup();
    for (from, target, cpus) in groups {
        let of = |kernel: Kernel| {
            let same = |cell: &&numapilot_measure::BandwidthCell| {
                cell.from == from && cell.target == target && cell.cpus == cpus && cell.kernel == kernel
            };
            results.bandwidth.iter().find(same)
        };
        for (kernel, past) in kernel_rows() {
            let (cell, past) = (of(kernel), past.and_then(of));
            if cell.is_none() && past.is_none() {
                continue;
            }
            let rate = |cell: Option<&numapilot_measure::BandwidthCell>| {
                cell.map_or_else(String::new, |cell| gb_per_s(cell.bytes_per_s.best()))
            };
            let spread = |cell: Option<&numapilot_measure::BandwidthCell>| {
                cell.map_or_else(String::new, |cell| spread_words(&cell.bytes_per_s))
            };
            let most = [cell, past].into_iter().flatten().map(|cell| cell.traffic_bytes_per_s).fold(0.0, f64::max);
            table.row([
                format!("node {from}"),
                cpus.to_string(),
                target.to_string(),
                kernel.word().to_owned(),
                rate(cell),
                spread(cell),
                rate(past),
                spread(past),
                gb_per_s(most),
            ]);
        }
    }
    out.push_str(&table.render(look, 0));
    let words = "NT: non-temporal stores, which bypass the caches. ON THE BUS: traffic on the memory bus, the greater of the two, with the lines that \
                 caches read before they write them: calculated, not measured. 1:1, 2:1, 3:1: lines read for each line written, in place.";
    paragraph(out, words, look);
}

/// Kernels with their variant past the caches.
fn kernel_rows() -> impl Iterator<Item = (Kernel, Option<Kernel>)> {
    let stream = Kernel::STREAM.into_iter().map(|(kernel, past)| (kernel, Some(past)));
    let write = [(Kernel::Read, None), (Kernel::Write, Some(Kernel::WriteNt))];
    let mixed = [Kernel::Mix1To1, Kernel::Mix2To1, Kernel::Mix3To1].map(|kernel| (kernel, None));
    stream.chain(write).chain(mixed)
}

fn loaded(out: &mut String, results: &Results, look: Look) {
    if results.loaded.is_empty() {
        return;
    }
    heading(out, "Latency under load, ns per load of a random chase (median) at GB/s moved", look);
    for curve in &results.loaded {
        let words = format!(
            "node {} to {}: {} neighbour{} at `{}`",
            curve.from,
            curve.target,
            curve.neighbours,
            if curve.neighbours == 1 { "" } else { "s" },
            curve.kernel.word()
        );
        let _ = writeln!(out, "{words}");
        let mut table = Table::new()
            .column("ASKED", Align::Right)
            .column("GB/S", Align::Right)
            .column("NS", Align::Right)
            .column("", Align::Left);
        for point in &curve.points {
            let asked = if point.asked_share == 0.0 { "idle".to_owned() } else { units::percent(point.asked_share) };
            table.row([asked, gb_per_s(point.bytes_per_s), ns(point.ns.best()), spread_words(&point.ns)]);
        }
        out.push_str(&table.render(look, 2));
    }
}

fn handoff(out: &mut String, results: &Results, look: Look) {
    if results.handoff.is_empty() {
        return;
    }
    heading(out, "Hand-off of a cache line, ns one way", look);
    let mut table =
        Table::new().column("CPUS", Align::Right).column("NS", Align::Right).column("", Align::Left).flexible("", 12);
    const SHOWN: usize = 24;
    for cell in results.handoff.iter().take(SHOWN) {
        table.row([
            format!("{}-{}", cell.a, cell.b),
            ns(cell.ns.best()),
            spread_words(&cell.ns),
            cell.relation.words().to_owned(),
        ]);
    }
    out.push_str(&table.render(look, 0));
    if results.handoff.len() > SHOWN {
        let words = format!("and {} more pairs: --json and --html have them.", results.handoff.len() - SHOWN);
        let _ = writeln!(out, "{}", look.faint(&words));
    }
}

/// Every bandwidth of the fit, with what it is of.
pub(super) fn limits(calibration: &Calibration) -> impl Iterator<Item = (String, &Limit)> {
    let controllers = calibration.controllers.iter().map(|(node, limit)| (format!("memory of node {node}"), limit));
    let ports = calibration.read_ports.iter().map(|(node, limit)| (format!("reads of node {node}'s CPUs"), limit));
    let controllers = controllers.chain(ports);
    controllers.chain(calibration.links.iter().map(|((from, to), limit)| (format!("link {from} to {to}"), limit)))
}

fn fitted(out: &mut String, calibration: &Calibration, look: Look) {
    heading(out, "The traffic model, fitted to these figures", look);
    for (what, limit) in limits(calibration) {
        let estimate = if limit.estimate { ", an estimate" } else { "" };
        for (index, line) in
            wrap(&format!("{what}: {} GB/s{estimate}: {}", gb_per_s(limit.bytes_per_s), limit.source), look.width - 2)
                .iter()
                .enumerate()
        {
            let _ = writeln!(out, "{}{line}", if index == 0 { "" } else { "  " });
        }
    }
    for fit in &calibration.fits {
        let words = format!(
            "Latency under load from node {} to {}: the model is off by {} (root mean square), {} at worst.",
            fit.from,
            Target::Node(fit.to),
            units::percent(fit.error),
            units::percent(fit.worst)
        );
        paragraph(out, &words, look);
    }
    if let Some(delay) = &calibration.queueing_delay {
        paragraph(out, &queueing_words(delay), look);
    }
    let figures = [
        ("outstanding accesses of a STREAM thread", calibration.stream_outstanding),
        ("write turnaround", calibration.write_turnaround),
        ("wait beside others at a full controller, over a line's service", calibration.crowding),
    ];
    for (what, value) in figures.into_iter().filter_map(|(what, value)| Some((what, value?))) {
        paragraph(out, &format!("Fitted {what}: {value:.2}"), look);
    }
}
