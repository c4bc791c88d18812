//! An interval as text: known figures with their source, the others with the reason.

use std::fmt::Write;

use numapilot_machine::format_cpu_list;
use numapilot_text::style::{Look, clean, wrap};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::Stat;
use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NodeFigures;
use crate::figures::NumaStat;
use crate::figures::ProcessFigures;
use crate::maps::MemoryMap;
use crate::maps::NUMASTAT_KINDS;
use crate::maps::tree_text;

/// Maximum number of processes shown.
const PROCESSES_MAX: usize = 15;
const MIB: f64 = (1_u64 << 20) as f64;

/// An interval, and the memory of the watched processes.
#[must_use]
pub fn text(stat: &Stat, look: Look) -> String {
    let interval = &stat.interval;
    let mut out = heading(interval, look);
    out.push_str(&metrics(interval, look));
    out.push('\n');
    out.push_str(&nodes(interval, look));
    out.push_str(&tiers(interval, look));
    out.push_str(&sampled(interval, look));
    if interval.has_numastat() {
        out.push('\n');
        out.push_str(&numastat(interval, look));
    }
    if !interval.links.is_empty() {
        out.push('\n');
        out.push_str(&links(interval, look));
    }
    if !interval.processes.is_empty() {
        out.push('\n');
        out.push_str(&processes(interval, look));
    }
    // Of a tree, a row for each process; the kinds of memory of each are in JSON and CSV.
    if stat.memory.len() > 1 {
        let _ = write!(out, "\n{}", tree_text(&stat.memory, look));
    }
    for map in stat.memory.iter().filter(|_| stat.memory.len() == 1) {
        out.push('\n');
        out.push_str(&memory(map, look));
    }
    let counted: Vec<_> = interval.events.iter().filter(|event| event.count.value().is_some()).collect();
    if !counted.is_empty() {
        out.push('\n');
        let mut table = Table::new().flexible("event", 16).column("count", Align::Right).flexible("", 10);
        for event in counted {
            let turns =
                if event.running < 1.0 { format!("counted {}", units::percent(event.running)) } else { String::new() };
            table.row([event.name.to_owned(), event_value(event.name, event.count.value().unwrap_or(0.0)), turns]);
        }
        out.push_str(&table.render(look, 0));
    }
    let moved: Vec<_> = interval.kernel.iter().filter(|(_, _, delta)| *delta > 0).collect();
    if !moved.is_empty() {
        let words: Vec<String> = moved.iter().map(|(name, _, delta)| format!("{name} {delta}")).collect();
        let _ = write!(out, "\nThe kernel counted: {}\n", words.join(", "));
    }
    out + &notes(interval, look)
}

/// What the reader has to know. Some notes name processes.
pub(super) fn notes(interval: &Interval, look: Look) -> String {
    let lines = interval.notes.iter().flat_map(|note| wrap(&clean(note), look.width));
    lines.map(|line| format!("{}\n", look.faint(&line))).collect()
}

fn heading(interval: &Interval, look: Look) -> String {
    let span = format!("{:.3} s to {:.3} s", interval.from_ns as f64 / 1e9, interval.to_ns as f64 / 1e9);
    match &interval.simulated {
        Some(title) => {
            let what = format!("SIMULATED: {}, {span} of simulated time. Nothing here is measured.", clean(title));
            format!("{}\n", look.strong(&what))
        }
        None => format!("{}\n", look.heading(&span)),
    }
}

fn metrics(interval: &Interval, look: Look) -> String {
    let width = Metric::ALL.iter().map(|metric| metric.title().len()).max().unwrap_or(0);
    let mut out = String::new();
    for metric in Metric::ALL {
        let lead = format!("{:<width$}  ", metric.title());
        if let MetricValue::Value { value, source, is_estimate } = interval.metrics.get(metric) {
            let kind = if *is_estimate { "estimate, " } else { "" };
            let _ = writeln!(out, "{lead}{:<14}{}", metric.format(*value), look.faint(&format!("{kind}{source}")));
        }
    }
    out + &missing(interval, look)
}

/// The metrics without a source, and why: each reason once. Without hardware counters all of them lack one, most for the same reason.
pub(super) fn missing(interval: &Interval, look: Look) -> String {
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    for metric in Metric::ALL {
        let MetricValue::Missing(why) = interval.metrics.get(metric) else { continue };
        match groups.iter_mut().find(|(_, other)| *other == why.as_str()) {
            Some((titles, _)) => titles.push(metric.title()),
            None => groups.push((vec![metric.title()], why.as_str())),
        }
    }
    // A reason that is part of others comes before them, and is not told again.
    let whys: Vec<&str> = groups.iter().map(|(_, why)| *why).collect();
    let is_part = |why: &str| !why.is_empty() && whys.iter().any(|other| *other != why && other.contains(why));
    let part = whys.iter().copied().find(|why| is_part(why)).unwrap_or("\n");
    groups.sort_by_key(|(_, why)| if *why == part { 0 } else { 2 - u8::from(why.contains(part)) });
    let mut out = String::new();
    for (titles, why) in groups {
        let reason = match why.strip_prefix(part) {
            Some(rest) if why != part => format!(" for the same reason{rest}"),
            _ => format!(", because {}", why.replace(&format!(": {part}"), ", for the same reason")),
        };
        let line = format!("{}: not available here{reason}", titles.join(", "));
        wrap(&line, look.width).iter().for_each(|line| out.push_str(&format!("{}\n", look.faint(line))));
    }
    out
}

fn nodes(interval: &Interval, look: Look) -> String {
    let mut table = Table::new().column("node", Align::Right);
    for title in ["CPUs", "busy", "memory", "free", "local", "IPC", "L3 MPKI", "controller", "load"] {
        table = table.column(title, Align::Right);
    }
    let shown = |figure: &MetricValue, format: &dyn Fn(f64) -> String| figure.value().map_or("-".to_owned(), format);
    for node in &interval.nodes {
        table.row([
            node.node.to_string(),
            node.cpus.to_string(),
            node.busy_cpus.map_or("-".to_owned(), |busy| format!("{busy:.2}")),
            units::bytes(node.memory_bytes),
            node.free_bytes.map_or("-".to_owned(), units::bytes),
            shown(&node.local_share, &units::part_percent),
            shown(&node.ipc, &|value| format!("{value:.2}")),
            shown(&node.l3_mpki, &|value| format!("{value:.2}")),
            shown(&node.controller_bytes_per_s, &|value| format!("{}/s", units::bytes(value as u64))),
            node.controller_load.map_or("-".to_owned(), units::percent),
        ]);
    }
    table.render(look, 0)
}

/// Memory by tier, where the kernel has several: a line for each, the fastest first.
fn tiers(interval: &Interval, look: Look) -> String {
    let mut out = String::new();
    for (tier, nodes) in interval.tiers() {
        let list = format_cpu_list(nodes.iter().map(|node| u32::from(node.node.0)));
        let memory = units::bytes(nodes.iter().map(|node| node.memory_bytes).sum());
        let free: Option<u64> = nodes.iter().map(|node| node.free_bytes).sum();
        let free = free.map_or("free memory not known".to_owned(), |free| format!("{} free", units::bytes(free)));
        let plural = if nodes.len() > 1 { "s" } else { "" };
        let words = format!("memory tier {tier}: node{plural} {list}: {memory}, {free}");
        wrap(&words, look.width).iter().for_each(|line| out.push_str(&format!("{line}\n")));
    }
    out
}

/// Table of the sampled accesses of each node's CPUs.
fn sampled(interval: &Interval, look: Look) -> String {
    let Some(sampled) = &interval.sampled else { return String::new() };
    let lost = if sampled.lost > 0 { format!(", {} more lost", sampled.lost) } else { String::new() };
    let title = format!("estimates from {} {}{lost}", sampled.samples, sampled.source);
    let mut table = Table::new().column("from node", Align::Right);
    for column in ["local/s", "remote/s", "unknown/s", "latency"] {
        table = table.column(column, Align::Right);
    }
    let rate = |value: f64| if value > 0.0 { units::count(value) } else { ".".to_owned() };
    for node in &interval.nodes {
        let Some(of) = node.sampled else { continue };
        let latency = of.latency_cycles.map_or("-".to_owned(), |cycles| format!("{cycles:.0} cycles"));
        table.row([
            node.node.to_string(),
            rate(of.local_per_s),
            rate(of.remote_per_s),
            rate(of.unknown_per_s),
            latency,
        ]);
    }
    format!("\n{}\n{}", look.faint(&title), table.render(look, 0))
}

/// numastat's table: pages since boot, and in the interval.
fn numastat(interval: &Interval, look: Look) -> String {
    let mut table = Table::new().column("pages since boot (+ in the interval)", Align::Left);
    for node in &interval.nodes {
        table = table.column(&format!("node {}", node.node), Align::Right);
    }
    for (index, name) in NumaStat::NAMES.iter().enumerate() {
        let of = |node: &NodeFigures| match node.numastat_delta.0[index] {
            0 => node.numastat.0[index].to_string(),
            delta => format!("{} (+{delta})", node.numastat.0[index]),
        };
        table.row(std::iter::once((*name).to_owned()).chain(interval.nodes.iter().map(of)));
    }
    table.render(look, 0)
}

fn links(interval: &Interval, look: Look) -> String {
    let words: Vec<String> =
        interval.links.iter().map(|link| format!("{} {}", link.name, units::whole_percent(link.load))).collect();
    let lines = wrap(&format!("links: {}", words.join(", ")), look.width);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn processes(interval: &Interval, look: Look) -> String {
    let mut table = Table::new().column("process", Align::Right).flexible("name", 10);
    for title in ["threads", "CPUs", "node", "resident", "local", "accesses/s", "IPC"] {
        table = table.column(title, Align::Right);
    }
    for process in interval.processes.iter().take(PROCESSES_MAX) {
        let dash = || "-".to_owned();
        table.row([
            process.pid.to_string(),
            process.name.to_string(),
            process.threads.to_string(),
            format!("{:.2}", process.cpus),
            process.node.map_or_else(dash, |node| node.to_string()),
            units::bytes(process.resident_bytes),
            process.local_share.value().map_or_else(dash, units::part_percent),
            process.accesses_per_s.map_or_else(dash, units::count),
            process.ipc.value().map_or_else(dash, |ipc| format!("{ipc:.2}")),
        ]);
    }
    let rows = &interval.processes;
    if interval.simulated.is_none() {
        let mut sum = |head: &str, of: &[ProcessFigures], noun: &str| {
            let threads: u32 = of.iter().map(|process| process.threads).sum();
            let cpus: f64 = of.iter().map(|process| process.cpus).sum();
            let cells = [head.to_owned(), format!("{} {noun}", of.len()), threads.to_string(), format!("{cpus:.2}")];
            table.row(cells.into_iter().chain(std::iter::repeat_n(String::new(), 5)));
        };
        if rows.len() > PROCESSES_MAX {
            sum("", &rows[PROCESSES_MAX..], "more");
        }
        if rows.len() > 1 {
            sum("total", rows, "processes");
        }
    }
    table.render(look, 0)
}

/// `numastat -p`'s table, in MiB as there.
fn memory(map: &MemoryMap, look: Look) -> String {
    let title = format!("{} (process {}), MiB", clean(&map.name), map.pid);
    let mut table = Table::new().flexible(&title, 10);
    for node in &map.nodes {
        table = table.column(&format!("node {node}"), Align::Right);
    }
    table = table.column("total", Align::Right);
    let rows = map.by_numastat_kind();
    let mebi = |bytes: u64| format!("{:.2}", bytes as f64 / MIB);
    let cells = |name: &str, row: &[u64]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(row.iter().map(|bytes| mebi(*bytes)));
        cells.push(mebi(row.iter().sum()));
        cells
    };
    for (kind, row) in NUMASTAT_KINDS.iter().zip(&rows) {
        table.row(cells(kind, row));
    }
    table.row(cells("Total", &map.bytes_by_node()));
    let notes = map.notes.iter().flat_map(|note| wrap(&clean(note), look.width));
    table.render(look, 0) + &notes.map(|line| line + "\n").collect::<String>()
}

/// Formats a figure by its name: clocks are in nanoseconds, metrics have their own units, and all others are counts.
pub fn event_value(name: &str, value: f64) -> String {
    if let Some(metric) = Metric::ALL.iter().find(|metric| metric.name() == name) {
        return metric.format(value);
    }
    match name {
        "seconds" => format!("{value:.3} s"),
        "task-clock" => format!("{:.2} ms", value / 1e6),
        _ => grouped(value),
    }
}

/// Formats a number with thousands separators: `1,234,567`.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value <= -0.5 { format!("-{out}") } else { out }
}

/// Heading of [`brief`], and why columns are empty.
#[must_use]
pub fn brief_heading(interval: &Interval, look: Look) -> String {
    let mut out = match &interval.simulated {
        Some(title) => format!("{}\n", look.strong(&format!("SIMULATED: {}. Nothing here is measured.", clean(title)))),
        None => String::new(),
    };
    out.push_str(&missing(interval, look));
    let line = format!(
        "{:>9} {:>8} {:>13} {:>9} {:>8} {:>8} {:>8} {:>6} {:>8}",
        "seconds", "local", "latency", "ctrl imb", "links", "link imb", "L3 MPKI", "IPC", "faults"
    );
    out + &look.heading(&line) + "\n"
}

/// An interval in one line.
#[must_use]
pub fn brief(interval: &Interval) -> String {
    let of = |metric: Metric| interval.metrics.get(metric).value().map_or("-".to_owned(), |value| metric.format(value));
    let kinds: Vec<_> = interval.events.iter().filter(|event| event.name.ends_with("-faults")).collect();
    let faults: Option<f64> = kinds.iter().map(|event| event.count.value()).sum();
    let faults = faults.filter(|_| !kinds.is_empty());
    format!(
        "{:>9.3} {:>8} {:>13} {:>9} {:>8} {:>8} {:>8} {:>6} {:>8}\n",
        interval.to_ns as f64 / 1e9,
        of(Metric::LocalShare),
        of(Metric::Latency),
        of(Metric::ControllerImbalance),
        of(Metric::LinkUsage),
        of(Metric::LinkImbalance),
        of(Metric::L3Mpki),
        of(Metric::Ipc),
        faults.map_or("-".to_owned(), grouped)
    )
}
