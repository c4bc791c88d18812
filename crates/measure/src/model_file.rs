//! Writes a machine model file (`docs/machine-model.md`) of a live machine and what was measured on it, every figure with its source.

use std::collections::BTreeMap;
use std::fmt::Write;

use numapilot_machine::{Cache, CacheKind, CpuId, Machine, Node, NodeId, format_cpu_list};
use numapilot_text::toml::quoted;
use numapilot_text::units::percent;

use crate::calibration::{Calibration, Limit, QueueingDelay, shown_nodes};
use crate::results::Results;

const GIB: f64 = (1_u64 << 30) as f64;
const GB: f64 = 1e9;
/// Least and most GB/s that a model file may say.
const BANDWIDTH_GB: (f64, f64) = (0.001, 100_000.0);
/// Least and most misses outstanding that a model file may say: repetitions that lost their CPU on a busy machine make a range of any width.
const OUTSTANDING: (f64, f64) = (1.0, 1000.0);

/// The text of a model called `name` (letters, digits, `-`, `_`, `.`). What it says is checked by whoever reads it: `Machine::from_model_text`.
#[must_use]
pub fn model_text(machine: &Machine, results: &Results, calibration: &Calibration, name: &str) -> String {
    let mut out = String::new();
    let cpu = machine.cpu_model().unwrap_or("unknown processor");
    let kernel = results.host.kernel.as_deref().unwrap_or("of unknown release");
    let _ = writeln!(
        out,
        "# Measured by `numapilot measure` in {:.0} s. docs/machine-model.md describes the format.",
        results.seconds
    );
    // What limits the measurement limits whoever takes the file for the machine: chases that caches answered in part, say.
    for line in header(calibration).iter().chain(&results.notes) {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "# {line}");
    }
    let _ = writeln!(out, "format = 1\nname = {}\ncpu = {}", quoted(name), quoted(cpu));
    let _ = writeln!(out, "description = {}", quoted(&format!("Measured on Linux {kernel}.")));
    let clock = "measured: a loop of known cycles";
    let _ = writeln!(out, "clock_mhz = {}", figure(results.host.clock_mhz.clamp(10.0, 20_000.0).round(), clock, false));
    let _ = writeln!(out, "\n[sources]\nsysfs = \"the kernel's /sys/devices/system on the measured machine\"");
    for node in shown_nodes(machine) {
        node_table(&mut out, machine, node, calibration);
    }
    caches(&mut out, machine, results);
    for ((from, to), link) in &calibration.links {
        let _ = writeln!(
            out,
            "\n[[links]]\npairs = [[{from}, {to}]]\nkind = \"as if these nodes had a link of their own\""
        );
        let _ = writeln!(out, "bandwidth_gb_per_s = {}", limit(link));
    }
    for ((from, to), (ns, words)) in &calibration.latency_ns {
        let _ = writeln!(
            out,
            "\n[[idle_latency]]\nfrom = [{from}]\nto = [{to}]\nns = {}",
            latency(results, (*from, *to), round(*ns), words)
        );
    }
    distances(&mut out, machine);
    core(&mut out, results);
    traffic(&mut out, calibration);
    out
}

/// Notes on the fit for the reader of the file.
fn header(calibration: &Calibration) -> Vec<String> {
    let mut lines = Vec::new();
    for fit in &calibration.fits {
        lines.push(format!(
            "Fit of latency under load, node {} to memory of node {}: error {} (root mean square), at worst {}.",
            fit.from,
            fit.to,
            percent(fit.error),
            percent(fit.worst)
        ));
    }
    lines
}

fn node_table(out: &mut String, machine: &Machine, node: &Node, calibration: &Calibration) {
    let _ = writeln!(out, "\n[[nodes]]\nids = [{}]", node.id);
    if let Some(socket) = node.socket.filter(|_| all_have_sockets(machine)) {
        let _ = writeln!(out, "sockets = [{socket}]");
    }
    let cpus = online(machine, node);
    if !cpus.is_empty() {
        let list = format_cpu_list(cpus.iter().map(|cpu| cpu.0));
        let _ = writeln!(out, "cpus = [\"{list}\"]\nthreads_per_core = {}", threads_per_core(machine, &cpus));
    }
    let _ = writeln!(out, "source = \"sysfs\"");
    if node.has_memory() {
        let gib = (node.memory_bytes as f64 / GIB).max(0.001);
        let _ = writeln!(out, "memory_gib = {}", figure(round(gib), "sysfs", false));
        if let Some(controller) = calibration.controllers.get(&node.id) {
            let _ = writeln!(out, "memory_bandwidth_gb_per_s = {}", limit(controller));
        }
    }
    if let Some(port) = calibration.read_ports.get(&node.id) {
        let _ = writeln!(out, "cpus_read_gb_per_s = {}", limit(port));
    }
}

fn all_have_sockets(machine: &Machine) -> bool {
    shown_nodes(machine).all(|node| node.socket.is_some())
}

fn online(machine: &Machine, node: &Node) -> Vec<CpuId> {
    node.cpus.iter().copied().filter(|cpu| machine.cpu(*cpu).is_some_and(|cpu| cpu.online)).collect()
}

/// Hardware threads per core, where CPUs are numbered as model files take them to be (entry k and k + n of a node share a core); else 1.
fn threads_per_core(machine: &Machine, cpus: &[CpuId]) -> usize {
    let siblings = |cpu: &CpuId| -> Vec<CpuId> {
        let known = machine.cpu(*cpu).map_or(Vec::new(), |cpu| cpu.siblings.clone());
        known.into_iter().filter(|sibling| cpus.contains(sibling)).collect()
    };
    let threads = cpus.first().map_or(1, |cpu| siblings(cpu).len()).max(1);
    if !cpus.len().is_multiple_of(threads) {
        return 1;
    }
    let cores = cpus.len() / threads;
    let as_dealt = |(position, cpu): (usize, &CpuId)| {
        let expected: Vec<CpuId> = (0..threads).map(|thread| cpus[position % cores + thread * cores]).collect();
        siblings(cpu) == expected
    };
    if cpus.iter().enumerate().all(as_dealt) { threads } else { 1 }
}

/// A latency with the 95 % interval of its repetitions' median as its range, where that is more than a point.
fn latency(results: &Results, (from, to): (NodeId, NodeId), ns: f64, source: &str) -> String {
    let spread = results.idle_latency(from, to).map(|cell| cell.ns.spread);
    let (low, high) = spread.map_or((ns, ns), |spread| (round(spread.low).min(ns), round(spread.high).max(ns)));
    if low < high {
        format!("{{ value = {ns}, source = {}, range = [{low}, {high}] }}", quoted(source))
    } else {
        figure(ns, source, false)
    }
}

/// Cache levels, with the latencies that the staircase found where it found as many levels as there are.
fn caches(out: &mut String, machine: &Machine, results: &Results) {
    let mut kinds: BTreeMap<(u8, CacheKind), Vec<&Cache>> = BTreeMap::new();
    for cache in machine.caches() {
        kinds.entry((cache.level, cache.kind)).or_default().push(cache);
    }
    let data_levels: Vec<u8> =
        kinds.keys().filter(|(_, kind)| *kind != CacheKind::Instruction).map(|(level, _)| *level).collect();
    let stairs = results.caches.first().map_or(&[][..], |stairs| &stairs.levels[..]);
    for ((level, kind), caches) in &kinds {
        let word = match kind {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instruction",
            CacheKind::Unified => "unified",
        };
        let Some(first) = caches.first() else { continue };
        let _ = writeln!(out, "\n[[caches]]\nlevel = {level}\nkind = \"{word}\"");
        let _ = writeln!(out, "size_kib = {}", figure((first.size_bytes / 1024) as f64, "sysfs", false));
        if let Some(line) = first.line_bytes {
            let _ = writeln!(out, "line_bytes = {}", figure(f64::from(line), "sysfs", false));
        }
        if let Some(ways) = first.ways {
            let _ = writeln!(out, "ways = {}", figure(f64::from(ways), "sysfs", false));
        }
        let position = data_levels.iter().position(|data| data == level).filter(|_| *kind != CacheKind::Instruction);
        if let Some(found) = position.filter(|_| stairs.len() == data_levels.len() + 1).map(|position| stairs[position])
        {
            let cycles = (found.ns * results.host.clock_mhz / 1000.0).clamp(0.5, 10_000.0);
            let _ = writeln!(
                out,
                "latency_cycles = {}",
                figure(round(cycles), "measured: the flat part of latency against array size", false)
            );
        }
        let _ = writeln!(out, "{}", sharing(machine, caches));
    }
}

/// How a model file says who shares a level's caches. What it cannot say exactly, it says by the number of cores.
fn sharing(machine: &Machine, caches: &[&Cache]) -> String {
    let is_online = |cpu: &CpuId| machine.cpu(*cpu).is_some_and(|cpu| cpu.online);
    let members = |cache: &Cache| -> Vec<CpuId> { cache.cpus.iter().copied().filter(is_online).collect() };
    let all = |same: &dyn Fn(&Cache, CpuId) -> bool| {
        caches.iter().all(|cache| members(cache).first().is_some_and(|first| same(cache, *first)))
    };
    let core = |cache: &Cache, first: CpuId| {
        let siblings = machine.cpu(first).map_or(Vec::new(), |cpu| cpu.siblings.clone());
        members(cache) == siblings.into_iter().filter(is_online).collect::<Vec<_>>()
    };
    let node = |cache: &Cache, first: CpuId| {
        let node = machine.node_of_cpu(first).and_then(|node| machine.node(node));
        node.is_some_and(|node| members(cache) == online(machine, node))
    };
    if all(&core) {
        return "shared_by = \"core\"".to_owned();
    }
    if all(&node) {
        return "shared_by = \"node\"".to_owned();
    }
    let socket = |cache: &Cache, first: CpuId| {
        let socket = machine.cpu(first).and_then(|cpu| cpu.socket);
        let of_socket = machine.cpus().iter().filter(|cpu| cpu.online && cpu.socket == socket).map(|cpu| cpu.id);
        socket.is_some() && members(cache) == of_socket.collect::<Vec<_>>()
    };
    if all_have_sockets(machine) && all(&socket) {
        return "shared_by = \"socket\"".to_owned();
    }
    let cores = caches.iter().map(|cache| machine.online_cores_of(&members(cache)));
    format!("shared_by_cores = {}", cores.max().unwrap_or(1).max(1))
}

fn distances(out: &mut String, machine: &Machine) {
    let nodes: Vec<NodeId> = shown_nodes(machine).map(|node| node.id).collect();
    for &from in &nodes {
        for &to in nodes.iter().filter(|to| **to != from) {
            if let Some(distance) = machine.distance(from, to).filter(|distance| (10..=255).contains(distance)) {
                let value = figure(f64::from(distance), "sysfs", false);
                let _ = writeln!(out, "\n[[distances]]\nfrom = [{from}]\nto = [{to}]\nvalue = {value}");
            }
        }
    }
}

fn core(out: &mut String, results: &Results) {
    let Some(overlap) = &results.overlap else { return };
    let source = format!("measured: {} random chases on one core, against one", overlap.chains);
    let [value, low, high] = [overlap.outstanding, overlap.range.0, overlap.range.1]
        .map(|misses| round(misses.clamp(OUTSTANDING.0, OUTSTANDING.1)));
    let (source, low, high) = (quoted(&source), low.min(value), high.max(value));
    let _ = writeln!(
        out,
        "\n[core]\noutstanding_misses = {{ value = {value}, source = {source}, range = [{low}, {high}] }}"
    );
}

fn traffic(out: &mut String, calibration: &Calibration) {
    let _ = writeln!(out, "\n[traffic]");
    let reason = "bandwidths above are what controllers were measured to serve, no theoretical peak";
    let _ = writeln!(out, "controller_efficiency = {}", figure(1.0, reason, false));
    if let Some(turnaround) = calibration.write_turnaround {
        let source = if calibration.read_ports.is_empty() {
            "measured: lines read and written in turn, against lines read"
        } else {
            "the most with which the memory serves the reads and writes that were measured"
        };
        let _ = writeln!(out, "write_turnaround = {}", figure(round(turnaround), source, true));
    }
    if let Some(crowding) = calibration.crowding {
        let source = "fitted to measured latency under load of each node's CPUs on its memory";
        let _ = writeln!(out, "crowding = {}", figure(round(crowding), source, true));
    }
    if let Some(outstanding) = calibration.stream_outstanding {
        let source = "fitted to the Triad of one CPU";
        let _ = writeln!(out, "stream_outstanding = {}", figure(round(outstanding), source, true));
    }
    if let Some(delay) = calibration.queueing_delay {
        let (source, low, high) = (quoted(&queueing_source(&delay)), round(delay.low), round(delay.high));
        // To what a model file may hold: beyond that, delays were not measured.
        let (low, high) = (low.clamp(0.01, 1.0), high.clamp(1.0, 100.0));
        let _ = writeln!(out, "queueing_delay = {{ value = 1, source = {source}, range = [{low}, {high}] }}");
    }
}

/// Where the range of queueing delays is from.
pub fn queueing_source(delay: &QueueingDelay) -> String {
    match delay.curves {
        0 => "measured: no latency under load rose enough to tell, so this is the model's error on another machine"
            .to_owned(),
        1 => "measured: latency under load beside the model's, one curve".to_owned(),
        curves => format!("measured: latency under load beside the model's, {curves} curves"),
    }
}

/// A bandwidth; with its range where the limit was not seen, from which predictions then draw it.
fn limit(limit: &Limit) -> String {
    let gb = |bytes_per_s: f64| round(bytes_per_s / GB).clamp(BANDWIDTH_GB.0, BANDWIDTH_GB.1);
    let value = gb(limit.bytes_per_s);
    match limit.range.map(|(low, high)| (gb(low).min(value), gb(high).max(value))) {
        Some((low, high)) if limit.estimate && low < high => {
            let source = quoted(&limit.source);
            format!("{{ value = {value}, source = {source}, estimate = true, range = [{low}, {high}] }}")
        }
        _ => figure(value, &limit.source, limit.estimate),
    }
}

fn figure(value: f64, source: &str, estimate: bool) -> String {
    let estimate = if estimate { ", estimate = true" } else { "" };
    format!("{{ value = {value}, source = {}{estimate} }}", quoted(source))
}

/// Four digits that matter.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9);
    let power = 10_f64.powi(digits);
    (value * power).round() / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!([123.456, 0.012_345_6, 98_765.4, 0.0].map(round), [123.5, 0.012_35, 98_765.0, 0.0]);
    }
}
