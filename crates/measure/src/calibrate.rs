//! Fits the traffic model to what was measured: bandwidths of controllers and links such that the model, given the load of each point of a measured curve,
//! predicts the latency that was measured there. The remaining error is part of the result.
//!
//! One unknown at a time, each by golden-section search: a node's controller from the curve of its own CPUs, then each link from the curve of the pair
//! whose answers cross it. Where the CPUs of a node have a limit of their own on what they read ([`crate::ports`]), their curve tells of that limit, and not of
//! the memory behind it. A memory without CPUs has no curve of its own: its controller and links are tied and fitted as one.

use std::collections::BTreeMap;

use numapilot_machine::{Machine, NodeId};
use numapilot_text::units::{percent, short_bytes};
use numapilot_traffic::{Class, DEFAULT_WRITE_TURNAROUND, LINE_BYTES, Load, MemorySystem};

use crate::calibration::{Calibration, Latencies, Limit, PairFit, has_online_cpus, shown_nodes};
use crate::error::MeasureError;
use crate::kernels::Kernel;
use crate::model_file::model_text;
use crate::ports::{PARTS, read_port, read_share};
use crate::queues::queueing_delay;
use crate::results::{BandwidthCell, Curve, Results};

/// A memory is filled where its latency under full load exceeds the idle one by this much; else its limit was not seen.
const FILLED: f64 = 1.25;
/// A curve whose reads reach this share of what the port of its CPUs lets through is held up there.
const AT_PORT: f64 = 0.9;
/// How far above the highest measured rate a limit is looked for. Whoever is asked for an eighth of what it can do hardly keeps anybody waiting: whether it can
/// do even more makes no difference.
const REACH: f64 = 8.0;
/// What an access waits beside queues at a full controller, over its idle latency: at most, and what is nothing.
const CROWDED_MAX: f64 = 4.0;
const CROWDED_MIN: f64 = 0.01;
/// The same over a line's service: model files' bound.
const CROWDING_MAX: f64 = 10_000.0;
const SEARCH_STEPS: usize = 28;
/// To a fifth of what is nothing.
const CROWDED_STEPS: usize = 16;
const BISECTIONS: usize = 40;
/// Most accesses that a thread of the model keeps outstanding (the machine model's bound).
const OUTSTANDING_MAX: f64 = 1000.0;
const THINK_MAX_NS: f64 = 1e6;
/// A request, or a line's header: model files' default message.
const MESSAGE_BYTES: f64 = 8.0;
/// A line on a link with its header over the line itself.
const WITH_HEADER: f64 = (LINE_BYTES + MESSAGE_BYTES) / LINE_BYTES;
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Calibrates the traffic model of `machine`, which `results` were measured on.
///
/// # Errors
/// A pair of nodes was not measured, or the resulting model is invalid.
pub fn calibrate(machine: &Machine, results: &Results) -> Result<Calibration, MeasureError> {
    let mut calibration = Calibration { latency_ns: latencies(machine, results)?, ..Calibration::default() };
    let memories: Vec<NodeId> = machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    let computes: Vec<NodeId> =
        machine.nodes().iter().filter(|node| has_online_cpus(machine, node.id)).map(|node| node.id).collect();
    calibration.read_ports = read_ports(machine, results, &computes);
    for &to in &memories {
        let limit = highest(results, to).ok_or_else(|| MeasureError::ModelNeeds {
            what: format!("the bandwidth of node {to}"),
            remedy: "measure it too (--only must name latency and bandwidth)".to_owned(),
        })?;
        let source = "the highest rate that was measured: the memory's bandwidth may be higher".to_owned();
        let bytes_per_s = limit.max(least_controller(&calibration, to));
        let range = Some((bytes_per_s, bytes_per_s * REACH * computes.len() as f64));
        calibration.controllers.insert(to, Limit { bytes_per_s, estimate: true, range, source });
    }
    for &from in &computes {
        for &to in memories.iter().filter(|to| **to != from) {
            let measured = rate(results, from, to).unwrap_or(calibration.controllers[&to].bytes_per_s);
            let source =
                "the rate that was measured between these nodes, with headers: the link may carry more".to_owned();
            let least = least_link(&calibration, from, to);
            let bytes_per_s = (measured * WITH_HEADER).max(least);
            let range = Some((bytes_per_s, bytes_per_s * REACH));
            let limit = Limit { bytes_per_s, estimate: true, range, source };
            calibration.links.insert((to, from), limit.clone());
            // The direction of requests and of written lines; where it also carries read lines, those decide.
            let source = "assumed to equal the bandwidth of the opposite direction".to_owned();
            let range = Some((least, bytes_per_s * REACH));
            calibration.links.entry((from, to)).or_insert(Limit { source, range, ..limit });
        }
    }
    for &to in &memories {
        fit_controller(machine, results, &computes, to, &mut calibration)?;
    }
    for &from in &computes {
        for &to in memories.iter().filter(|to| **to != from && computes.contains(to)) {
            fit_link(machine, results, (from, to), &mut calibration)?;
        }
    }
    widen(results, &mut calibration);
    // Before what is fitted to kernels that write, and before the fits are told: the model file has it.
    calibration.write_turnaround = write_turnaround(results, &calibration);
    calibration.crowding = crowding(machine, results, &calibration)?;
    let system = system(machine, results, &calibration)?;
    calibration.stream_outstanding = stream_outstanding(machine, &system, results);
    for curve in &results.loaded {
        if let Some(fit) = fit_of(machine, &system, curve) {
            calibration.fits.push(fit);
        }
    }
    calibration.queueing_delay = queueing_delay(&results.loaded, &calibration.fits);
    Ok(calibration)
}

/// Limits of pairs whose figures are of several states of the machine, or of none that lasted, are estimates: each may be what it is in the least of these
/// states or in the best.
fn widen(results: &Results, calibration: &mut Calibration) {
    for state in results.states.iter().filter(|state| state.is_mixed()) {
        let Some(to) = state.target.node() else { continue };
        let middle = (state.range.0 * state.range.1).sqrt();
        let (low, high) = state.factors().unwrap_or((state.range.0 / middle, state.range.1 / middle));
        let ports = calibration.read_ports.get_mut(&state.from).into_iter();
        let links = calibration.links.get_mut(&(to, state.from)).into_iter();
        for limit in ports.chain(calibration.controllers.get_mut(&to)).chain(links) {
            let (least, most) = limit.range.unwrap_or((limit.bytes_per_s, limit.bytes_per_s));
            limit.estimate = true;
            limit.range = Some((least.min(limit.bytes_per_s * low), most.max(limit.bytes_per_s * high)));
            limit.source.push_str("; of several states of the machine");
        }
    }
}

/// Limits of what the CPUs of each of these nodes read together, where they show.
fn read_ports(machine: &Machine, results: &Results, computes: &[NodeId]) -> BTreeMap<NodeId, Limit> {
    let of_node = |&node: &NodeId| {
        let is_filled = curve_of(results, node, node).is_some_and(is_filled);
        Some((node, read_port(machine, results, node, is_filled)?))
    };
    computes.iter().filter_map(of_node).collect()
}

/// Idle latencies of every pair.
fn latencies(machine: &Machine, results: &Results) -> Result<Latencies, MeasureError> {
    let mut out = BTreeMap::new();
    for from in machine.nodes().iter().filter(|node| has_online_cpus(machine, node.id)) {
        for to in machine.nodes().iter().filter(|node| node.has_memory()) {
            let cell =
                results.idle_latency(from.id, to.id).ok_or(MeasureError::PairMissing { from: from.id, to: to.id })?;
            let words = format!(
                "measured: random chase through {}, {} repetitions, spread {}",
                short_bytes(cell.bytes),
                cell.ns.spread.repetitions,
                percent(cell.ns.spread.relative())
            );
            out.insert((from.id, to.id), (cell.ns.best(), words));
        }
    }
    Ok(out)
}

/// The highest rate (of medians, as in [`crate::ports`]) at which a node's memory was seen to work, by anybody: reads alone, or with writes, of which every
/// byte passes the controller. Kernels whose lines the cache reads before they are written are left out: some processors save that read where a whole line is
/// written, without any documentation.
fn highest(results: &Results, to: NodeId) -> Option<f64> {
    let of_node = results.bandwidth.iter().filter(|cell| cell.target.node() == Some(to));
    let cells = of_node.filter(|cell| !cell.kernel.usage().allocates);
    let curves = results.loaded.iter().filter(|curve| curve.target.node() == Some(to));
    let points = curves.flat_map(|curve| curve.points.iter().map(|point| point.bytes_per_s));
    cells.map(|cell| cell.bytes_per_s.spread.median).chain(points).max_by(f64::total_cmp)
}

/// Into how many equal parts the idle latency of a node's accesses is divided, of which each service on the way may take one.
fn parts(calibration: &Calibration, from: NodeId) -> f64 {
    if calibration.read_ports.contains_key(&from) { PARTS } else { 2.0 }
}

/// One access may keep the memory busy for half of its idle latency at most: the other half is the way there. Only emulated machines come near that. Where a
/// port is on the way too, a third each.
fn least_controller(calibration: &Calibration, to: NodeId) -> f64 {
    let latencies = calibration.latency_ns.iter().filter(|((_, home), _)| *home == to);
    latencies.map(|((from, _), (ns, _))| parts(calibration, *from) * LINE_BYTES * 1e9 / ns).fold(0.0, f64::max)
}

/// The same of a link, with the request that goes before the line. It carries the answers of one direction and the requests of the other, so the
/// shorter of both latencies decides.
fn least_link(calibration: &Calibration, from: NodeId, to: NodeId) -> f64 {
    let ways = [(from, to), (to, from)];
    let least = |way: &(NodeId, NodeId)| {
        let (ns, _) = calibration.latency_ns.get(way)?;
        Some(parts(calibration, way.0) * (WITH_HEADER * LINE_BYTES + MESSAGE_BYTES) * 1e9 / ns)
    };
    ways.iter().filter_map(least).fold(0.0, f64::max)
}

/// The highest rate of reads of one pair.
fn rate(results: &Results, from: NodeId, to: NodeId) -> Option<f64> {
    Some(results.bandwidth_of(from, to, Kernel::Read)?.bytes_per_s.spread.median)
}

fn curve_of(results: &Results, from: NodeId, to: NodeId) -> Option<&Curve> {
    results.loaded.iter().find(|curve| curve.from == from && curve.target.node() == Some(to))
}

fn system(machine: &Machine, results: &Results, calibration: &Calibration) -> Result<MemorySystem, MeasureError> {
    let text = model_text(machine, results, calibration, "measured");
    Ok(MemorySystem::new(&Machine::from_model_text(&text, "the fitted model")?)?)
}

/// Whether the load of a curve's last point was enough to show a limit.
fn is_filled(curve: &Curve) -> bool {
    let idle = curve.points.first().map(|point| point.ns.spread.median);
    let full = curve.points.iter().map(|point| point.ns.spread.median).max_by(f64::total_cmp);
    idle.zip(full).is_some_and(|(idle, full)| full > FILLED * idle)
}

/// Whether a curve rose where the port of its CPUs is full: then it says nothing of what is behind.
fn is_at_port(curve: &Curve, calibration: &Calibration) -> bool {
    let most = curve.points.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max);
    let read = read_share(curve.kernel).map(|share| share * most);
    let port = calibration.read_ports.get(&curve.from);
    is_filled(curve) && port.zip(read).is_some_and(|(port, read)| read > AT_PORT * port.bytes_per_s)
}

/// The read port of a curve's CPUs, if it is what the curve shows.
fn fit_port(
    machine: &Machine,
    results: &Results,
    curve: &Curve,
    calibration: &mut Calibration,
) -> Result<(), MeasureError> {
    let Some(seen) = calibration.read_ports.get(&curve.from).cloned() else { return Ok(()) };
    let at = |calibration: &mut Calibration, bytes_per_s: f64| {
        let source = format!("{}; fitted to measured latency under load", seen.source);
        calibration.read_ports.insert(curve.from, Limit { bytes_per_s, source, ..seen.clone() });
    };
    search(machine, results, curve, calibration, seen.bytes_per_s, &at)
}

/// The controller of one node, from its own CPUs' curve, or for memory without CPUs from any. Where these CPUs have a port, they cannot fill the memory of
/// their node by reading: it stays at the highest rate that was seen, and the port is fitted where the curve shows it.
fn fit_controller(
    machine: &Machine,
    results: &Results,
    computes: &[NodeId],
    to: NodeId,
    calibration: &mut Calibration,
) -> Result<(), MeasureError> {
    let own = curve_of(results, to, to);
    let Some(curve) = own.or_else(|| computes.iter().find_map(|from| curve_of(results, *from, to))) else {
        return Ok(());
    };
    let from = curve.from;
    let is_at_port = is_at_port(curve, calibration);
    if is_at_port && from == to {
        return fit_port(machine, results, curve, calibration);
    }
    if is_at_port || (from == to && calibration.read_ports.contains_key(&from)) {
        return Ok(());
    }
    let link = if from == to { 0.0 } else { least_link(calibration, from, to) / WITH_HEADER };
    let least = highest(results, to).unwrap_or(0.0).max(least_controller(calibration, to)).max(link);
    let at = |calibration: &mut Calibration, bytes_per_s: f64| {
        let filled = is_filled(curve);
        // The CPUs of all nodes may ask as much of it as those of one.
        let range = (!filled).then(|| (least, bytes_per_s.max(least * REACH * computes.len() as f64)));
        let source = limit_words(curve, filled);
        calibration.controllers.insert(to, Limit { bytes_per_s, estimate: !filled, range, source });
        if from != to {
            let source = "not separable from the memory's own bandwidth: assumed to equal it".to_owned();
            let bytes_per_s = bytes_per_s * WITH_HEADER;
            // What was seen is the narrower of the two.
            let least = if filled { bytes_per_s } else { least * WITH_HEADER };
            let range = Some((least, bytes_per_s.max(least * REACH)));
            let limit = Limit { bytes_per_s, estimate: true, range, source };
            calibration.links.insert((to, from), limit.clone());
            calibration.links.insert((from, to), limit);
        }
    };
    search(machine, results, curve, calibration, least, &at)
}

/// The link over which answers come from one node to another.
fn fit_link(
    machine: &Machine,
    results: &Results,
    (from, to): (NodeId, NodeId),
    calibration: &mut Calibration,
) -> Result<(), MeasureError> {
    let Some(curve) = curve_of(results, from, to).filter(|curve| !is_at_port(curve, calibration)) else {
        return Ok(());
    };
    let points = curve.points.iter().map(|point| point.bytes_per_s);
    let least = (points.chain(rate(results, from, to)).fold(0.0, f64::max) * WITH_HEADER).max(least_link(
        calibration,
        from,
        to,
    ));
    let at = |calibration: &mut Calibration, bytes_per_s: f64| {
        let filled = is_filled(curve);
        let range = (!filled).then(|| (least, bytes_per_s.max(least * REACH)));
        let source = limit_words(curve, filled);
        calibration.links.insert((to, from), Limit { bytes_per_s, estimate: !filled, range, source });
    };
    search(machine, results, curve, calibration, least, &at)
}

fn limit_words(curve: &Curve, filled: bool) -> String {
    let most = curve.points.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max) / 1e9;
    if filled {
        format!("fitted to measured latency under load, up to {most:.1} GB/s")
    } else {
        format!("fitted to latency under load that hardly rose up to {most:.1} GB/s: the CPUs here cannot fill it")
    }
}

/// Golden-section search for the bandwidth, between the highest measured rate and several times that, at which the model comes nearest to the curve.
fn search(
    machine: &Machine,
    results: &Results,
    curve: &Curve,
    calibration: &mut Calibration,
    least: f64,
    set: &dyn Fn(&mut Calibration, f64),
) -> Result<(), MeasureError> {
    let mut trial = calibration.clone();
    let mut cost = |logarithm: f64| -> Result<f64, MeasureError> {
        set(&mut trial, logarithm.exp());
        let system = system(machine, results, &trial)?;
        Ok(fit_of(machine, &system, curve).map_or(f64::INFINITY, |fit| fit.error))
    };
    let (low, high) = golden(((least * 1.0005).ln(), (least * REACH).ln()), SEARCH_STEPS, &mut cost)?;
    set(calibration, f64::midpoint(low, high).exp());
    Ok(())
}

/// Golden-section search for the least cost, in so many steps: the ends of what is left of the range.
fn golden(
    (mut low, mut high): (f64, f64),
    steps: usize,
    cost: &mut dyn FnMut(f64) -> Result<f64, MeasureError>,
) -> Result<(f64, f64), MeasureError> {
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut left_cost, mut right_cost) = (cost(left)?, cost(right)?);
    for _ in 0..steps {
        if left_cost <= right_cost {
            (high, right, right_cost) = (right, left, left_cost);
            left = high - GOLDEN * (high - low);
            left_cost = cost(left)?;
        } else {
            (low, left, left_cost) = (left, right, right_cost);
            right = low + GOLDEN * (high - low);
            right_cost = cost(right)?;
        }
    }
    Ok((low, high))
}

/// What accesses wait beside queues at a full controller, over a line's service, such that latencies under load rise as they did, of each node's CPUs on its
/// own memory. Rises alone count: by how much all of a curve differs from the best idle latency says nothing of load. `None` where it is nothing.
fn crowding(machine: &Machine, results: &Results, calibration: &Calibration) -> Result<Option<f64>, MeasureError> {
    let curves: Vec<&Curve> = results.loaded.iter().filter(|curve| curve.target.node() == Some(curve.from)).collect();
    let idle_ns = calibration.latency_ns.iter().filter(|((from, to), _)| from == to).map(|(_, (ns, _))| *ns);
    let most_per_s = calibration.controllers.values().map(|limit| limit.bytes_per_s).fold(0.0, f64::max);
    let in_services = idle_ns.fold(0.0, f64::max) * most_per_s / (LINE_BYTES * 1e9);
    if curves.is_empty() || in_services <= 0.0 {
        return Ok(None);
    }
    let mut trial = calibration.clone();
    let mut cost = |crowding: f64| -> Result<f64, MeasureError> {
        trial.crowding = Some(crowding);
        let system = system(machine, results, &trial)?;
        let fits = curves.iter().filter_map(|curve| fit_of(machine, &system, curve));
        Ok(fits.map(|fit| rise_error(&fit)).sum())
    };
    let (low, high) = golden((0.0, (CROWDED_MAX * in_services).min(CROWDING_MAX)), CROWDED_STEPS, &mut cost)?;
    let found = f64::midpoint(low, high);
    Ok(Some(found).filter(|found| *found > CROWDED_MIN * in_services))
}

/// Sum of squared relative errors of a curve's latencies, all of them taken times what makes it least: no point is surer than the others, nor is the idle one.
fn rise_error(fit: &PairFit) -> f64 {
    let ratios = || fit.points.iter().map(|(_, ns, model_ns)| model_ns / ns);
    let scale = ratios().sum::<f64>() / ratios().map(|ratio| ratio * ratio).sum::<f64>();
    ratios().map(|ratio| (scale * ratio - 1.0).powi(2)).sum()
}

/// The model's latency at each point of a curve, under the load that moves as much.
fn fit_of(machine: &Machine, system: &MemorySystem, curve: &Curve) -> Option<PairFit> {
    let to = curve.target.node()?;
    let mut points = Vec::new();
    let at_full = curve.points.last()?;
    let Model { from, to: home, nodes } = Model::of(machine, curve.from, to)?;
    let (mut reads, mut writes) = (vec![0.0; nodes], vec![0.0; nodes]);
    let (_, write_share) = curve.kernel.model_accesses();
    (reads[home], writes[home]) = (1.0 - write_share, write_share);
    let mut only = vec![0.0; nodes];
    only[home] = 1.0;
    let class = |threads: f64, outstanding: f64, think_ns: f64| {
        let (reads, writes) = (reads.clone(), writes.clone());
        Class { from, threads, outstanding, think_ns, reads, writes }
    };
    let chase = Class { from, threads: 1.0, outstanding: 1.0, think_ns: 0.0, reads: only, writes: vec![0.0; nodes] };
    let bytes_per_access = LINE_BYTES * (1.0 + writes[home]);
    let moved = |outstanding: f64, think_ns: f64| -> Option<(f64, f64)> {
        let load = Load {
            classes: vec![chase.clone(), class(curve.neighbours as f64, outstanding, think_ns)],
            background: Vec::new(),
        };
        let solution = system.solve(&load).ok()?;
        Some((
            solution.throughput_per_s[0] * LINE_BYTES + solution.throughput_per_s[1] * bytes_per_access,
            solution.latency_ns[0],
        ))
    };
    // As many outstanding as move what was moved without a pause.
    let outstanding = bisect(1.0, OUTSTANDING_MAX, |m| Some(moved(m, 0.0)?.0 < at_full.bytes_per_s))?;
    for point in &curve.points {
        let model_ns = if point.asked_share == 0.0 {
            system.solve(&Load { classes: vec![chase.clone()], background: Vec::new() }).ok()?.latency_ns[0]
        } else {
            let think = bisect(0.0, THINK_MAX_NS, |think| Some(moved(outstanding, think)?.0 > point.bytes_per_s))?;
            moved(outstanding, think)?.1
        };
        points.push((point.bytes_per_s, point.ns.spread.median, model_ns));
    }
    let errors: Vec<f64> = points.iter().map(|(_, measured, model)| (model / measured - 1.0).abs()).collect();
    Some(PairFit {
        from: curve.from,
        to,
        error: (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt(),
        worst: errors.into_iter().fold(0.0, f64::max),
        points,
    })
}

/// Places of two nodes in the model, which leaves out nodes that have nothing.
struct Model {
    from: usize,
    to: usize,
    nodes: usize,
}

impl Model {
    fn of(machine: &Machine, from: NodeId, to: NodeId) -> Option<Model> {
        let shown: Vec<NodeId> = shown_nodes(machine).map(|node| node.id).collect();
        let place = |id| shown.iter().position(|node| *node == id);
        Some(Model { from: place(from)?, to: place(to)?, nodes: shown.len() })
    }
}

/// Where `is_below` turns from true to false, to a millionth; an end where it does not.
fn bisect(low: f64, high: f64, mut is_below: impl FnMut(f64) -> Option<bool>) -> Option<f64> {
    let (mut low, mut high) = (low, high);
    for _ in 0..BISECTIONS {
        // Halved in proportion where both ends allow it.
        let middle = if low > 0.0 { (low * high).sqrt() } else { f64::midpoint(low, high) };
        if is_below(middle)? {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-6 * high {
            break;
        }
    }
    Some(f64::midpoint(low, high))
}

/// Of lines read and written in turn, beyond what reading twice would take; only where memory was filled, so that it is memory that was timed.
fn write_turnaround(results: &Results, calibration: &Calibration) -> Option<f64> {
    if !calibration.read_ports.is_empty() {
        return most_turnaround(results, calibration);
    }
    let filled = results.loaded.iter().find(|curve| curve.target.node() == Some(curve.from) && is_filled(curve))?;
    let (node, controller) = (filled.from, calibration.controllers.get(&filled.from)?);
    let mixed = results.bandwidth_of(node, node, Kernel::Mix1To1)?.bytes_per_s.spread.median;
    let read = rate(results, node, node)?;
    // What the read kernel reached of the controller's limit, the mixed one is taken to reach too.
    let reached = (read / controller.bytes_per_s).min(1.0);
    Some((2.0 * controller.bytes_per_s * reached / mixed - 2.0).clamp(0.0, 10.0))
}

/// Where CPUs have limits of their own, nothing shows what a written line costs their memory: no more than leaves the rates possible that were seen, where the
/// model's default would not.
fn most_turnaround(results: &Results, calibration: &Calibration) -> Option<f64> {
    let most = |cell: &BandwidthCell| {
        let usage = cell.kernel.usage();
        let controller = calibration.controllers.get(&cell.target.node()?)?;
        let per_s = cell.bytes_per_s.spread.median;
        let written = per_s * usage.writes as f64 / (usage.reads + usage.writes) as f64;
        let is_known = usage.writes > 0 && !usage.allocates;
        is_known.then(|| ((controller.bytes_per_s - per_s) / written).max(0.0))
    };
    let least = results.bandwidth.iter().filter_map(most).min_by(f64::total_cmp)?;
    Some(least).filter(|turnaround| *turnaround < DEFAULT_WRITE_TURNAROUND)
}

/// Accesses that a STREAM thread keeps outstanding, from the Triad of one CPU with memory on its node.
fn stream_outstanding(machine: &Machine, system: &MemorySystem, results: &Results) -> Option<f64> {
    let cell = results
        .bandwidth
        .iter()
        .find(|cell| cell.cpus == 1 && cell.target.node() == Some(cell.from) && cell.kernel == Kernel::Triad)?;
    let Model { from, to, nodes } = Model::of(machine, cell.from, cell.from)?;
    let (mut reads, mut writes) = (vec![0.0; nodes], vec![0.0; nodes]);
    (reads[to], writes[to]) = (2.0 / 3.0, 1.0 / 3.0);
    let wanted_per_s = cell.bytes_per_s.best() / LINE_BYTES;
    bisect(1.0, OUTSTANDING_MAX, |outstanding| {
        let class =
            Class { from, threads: 1.0, outstanding, think_ns: 0.0, reads: reads.clone(), writes: writes.clone() };
        let solution = system.solve(&Load { classes: vec![class], background: Vec::new() }).ok()?;
        Some(solution.throughput_per_s[0] < wanted_per_s)
    })
}

#[cfg(test)]
mod tests;
