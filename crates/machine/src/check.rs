//! Checks a machine's parts, whatever their source. Each failed rule names its place and remedy.

use std::collections::BTreeSet;

use crate::error::Problem;
use crate::hardware::{Bounded, Endpoint, Link};
use crate::ids::{CpuId, LinkId, NodeId};
use crate::parts::MachineParts;
use crate::{MAX_CPUS, MAX_NODES};

/// Bounds beyond which a number is a slip of the unit, not a machine.
pub const MEMORY_BYTES_MAX: u64 = 1 << 54;
pub const BANDWIDTH_MIN: f64 = 1e6;
pub const BANDWIDTH_MAX: f64 = 1e14;
pub const LATENCY_NS_MIN: f64 = 1.0;
pub const LATENCY_NS_MAX: f64 = 1e6;
pub const LINK_LATENCY_NS_MAX: f64 = 1e6;
pub const CLOCK_MHZ_MIN: f64 = 10.0;
pub const CLOCK_MHZ_MAX: f64 = 20_000.0;
pub const CACHE_BYTES_MAX: u64 = 1 << 40;
const CACHE_LEVEL_MAX: u8 = 5;
pub const CACHE_LATENCY_CYCLES_MAX: f64 = 10_000.0;
const CACHES_MAX: usize = 16 * MAX_CPUS;
const ROUTERS_MAX: usize = 64;
const LINKS_MAX: usize = 8192;
const PATHS_MAX: usize = 64;
pub const DISTANCE_MAX: u32 = 255;
/// Smallest and greatest value of each figure for the traffic model.
pub const EFFICIENCY: (f64, f64) = (0.01, 1.0);
pub const TURNAROUND: (f64, f64) = (0.0, 10.0);
/// Smallest and greatest wait where others keep a controller busy all the time, beside its queue; and its unit.
pub const CROWDING: (f64, f64) = (0.0, 10_000.0);
pub const CROWDING_UNIT: &str = "times a line's service";
pub const MESSAGE_BYTES: (f64, f64) = (1.0, 256.0);
pub const OUTSTANDING: (f64, f64) = (1.0, 1000.0);
/// Smallest and greatest queueing delay over the traffic model's; its place in a model file, and its unit.
pub const QUEUEING_DELAY: (f64, f64) = (0.01, 100.0);
pub const QUEUEING_DELAY_PLACE: &str = "traffic.queueing_delay";
pub const QUEUEING_DELAY_UNIT: &str = "times the model's";
/// Smallest and greatest window of a core, in instructions.
pub const CORE_WINDOW: (f64, f64) = (1.0, 100_000.0);

/// Checks everything but connectedness, which needs the routes.
pub fn parts(parts: &MachineParts) -> Result<(), Problem> {
    let nodes = nodes(parts)?;
    let cpus = cpus(parts, &nodes)?;
    caches(parts, &cpus)?;
    links(parts, &nodes)?;
    routes(parts, &nodes)?;
    matrices(parts)?;
    traffic(parts)?;
    core(parts)?;
    if let Some(clock) = parts.clock_mhz {
        within("clock_mhz", "the clock", clock, CLOCK_MHZ_MIN, CLOCK_MHZ_MAX, "MHz")?;
    }
    Ok(())
}

/// Refuses what is not a number or out of all reason.
pub fn within(place: &str, name: &str, value: f64, min: f64, max: f64, unit: &str) -> Result<(), Problem> {
    if value.is_finite() && value >= min && value <= max {
        return Ok(());
    }
    Err(Problem::new(place, format!("{name} is {value} {unit}"), format!("give a number from {min} to {max} {unit}")))
}

fn nodes(parts: &MachineParts) -> Result<BTreeSet<NodeId>, Problem> {
    if parts.nodes.is_empty() || parts.nodes.len() > MAX_NODES {
        let what = format!("the machine has {} nodes", parts.nodes.len());
        return Err(Problem::new("nodes", what, format!("describe 1 to {MAX_NODES} nodes")));
    }
    if !parts.nodes.is_sorted_by_key(|node| node.id) || !parts.cpus.is_sorted_by_key(|cpu| cpu.id) {
        return Err(Problem::new("nodes", "nodes or CPUs are out of order", "list them by ascending number"));
    }
    let mut ids = BTreeSet::new();
    for node in &parts.nodes {
        let place = format!("nodes (node {})", node.id);
        if !ids.insert(node.id) {
            return Err(Problem::new(place, "this node is described twice", "give each node a number of its own"));
        }
        if node.memory_bytes > MEMORY_BYTES_MAX {
            let what = format!("{} bytes of memory", node.memory_bytes);
            return Err(Problem::new(place, what, "give at most 16 PiB; memory_gib counts units of 2^30 bytes"));
        }
        if let Some(bandwidth) = node.memory_bandwidth_bytes_per_s {
            within(&place, "memory bandwidth", bandwidth, BANDWIDTH_MIN, BANDWIDTH_MAX, "bytes/s")?;
        }
        let ports = [
            ("cpus_read_gb_per_s", "what its CPUs read at most", node.cpus_read_bytes_per_s),
            ("cpus_write_gb_per_s", "what its CPUs write at most", node.cpus_write_bytes_per_s),
        ];
        for (key, name, width) in ports {
            let Some(width) = width else { continue };
            within(&place, name, width, BANDWIDTH_MIN, BANDWIDTH_MAX, "bytes/s")?;
            if !node.has_cpus() {
                let what = format!("{key} of a node without CPUs");
                let remedy = "give it for nodes with CPUs; memory has memory_bandwidth_gb_per_s";
                return Err(Problem::new(place, what, remedy));
            }
        }
    }
    Ok(ids)
}

fn cpus(parts: &MachineParts, nodes: &BTreeSet<NodeId>) -> Result<BTreeSet<CpuId>, Problem> {
    if parts.cpus.is_empty() || parts.cpus.len() > MAX_CPUS {
        let what = format!("the machine has {} CPUs", parts.cpus.len());
        return Err(Problem::new("nodes", what, format!("describe 1 to {MAX_CPUS} CPUs")));
    }
    if !parts.cpus.iter().any(|cpu| cpu.online) {
        return Err(Problem::new("nodes", "no CPU is online", "describe a machine on which a thread can run"));
    }
    let mut ids = BTreeSet::new();
    for cpu in &parts.cpus {
        let place = format!("nodes (CPU {})", cpu.id);
        if !ids.insert(cpu.id) {
            return Err(Problem::new(place, "this CPU is described twice", "give each CPU to one node"));
        }
        if let Some(node) = cpu.node.filter(|node| !nodes.contains(node)) {
            return Err(Problem::new(place, format!("its node {node} does not exist"), "describe the node"));
        }
        if !cpu.siblings.contains(&cpu.id) || !cpu.siblings.is_sorted() {
            return Err(Problem::new(
                place,
                "it is not among its own hardware threads",
                "list it among them, ascending",
            ));
        }
    }
    let mut owned = BTreeSet::new();
    for node in &parts.nodes {
        for &cpu in &node.cpus {
            let place = format!("nodes (node {})", node.id);
            if !ids.contains(&cpu) {
                return Err(Problem::new(place, format!("its CPU {cpu} does not exist"), "describe the CPU"));
            }
            if !owned.insert(cpu) {
                return Err(Problem::new(place, format!("CPU {cpu} is in two nodes"), "give each CPU to one node"));
            }
        }
    }
    for cpu in &parts.cpus {
        if let Some(stranger) = cpu.siblings.iter().find(|s| !ids.contains(s)) {
            let what = format!("its sibling CPU {stranger} does not exist");
            return Err(Problem::new(format!("nodes (CPU {})", cpu.id), what, "describe the CPU"));
        }
        if cpu.node.is_some() != owned.contains(&cpu.id) {
            let place = format!("nodes (CPU {})", cpu.id);
            return Err(Problem::new(place, "the CPU and its node disagree", "list the CPU in the node that it names"));
        }
    }
    Ok(ids)
}

fn caches(parts: &MachineParts, cpus: &BTreeSet<CpuId>) -> Result<(), Problem> {
    if parts.caches.len() > CACHES_MAX {
        let what = format!("{} caches", parts.caches.len());
        return Err(Problem::new("caches", what, format!("describe at most {CACHES_MAX}")));
    }
    let mut used = BTreeSet::new();
    for cache in &parts.caches {
        let place = format!("caches (level {})", cache.level);
        let problem = |what: String, remedy: &str| Err(Problem::new(place.clone(), what, remedy));
        if cache.level == 0 || cache.level > CACHE_LEVEL_MAX {
            return problem(format!("level {} is not a cache level", cache.level), "number levels 1 to 5");
        }
        if cache.size_bytes == 0 || cache.size_bytes > CACHE_BYTES_MAX {
            return problem(format!("a size of {} bytes", cache.size_bytes), "give a size above 0, at most 1 TiB");
        }
        if cache.line_bytes.is_some_and(|line| !line.is_power_of_two() || !(8..=4096).contains(&line)) {
            return problem(
                format!("a line of {} bytes", cache.line_bytes.unwrap_or(0)),
                "give a power of two from 8 to 4096",
            );
        }
        if cache.ways.is_some_and(|ways| ways == 0 || ways > 65_536) {
            return problem(format!("{} ways", cache.ways.unwrap_or(0)), "give 1 to 65536 ways, or leave them out");
        }
        if let Some(latency) = cache.latency_cycles {
            within(&place, "latency", latency, 0.5, CACHE_LATENCY_CYCLES_MAX, "cycles")?;
        }
        for cpu in &cache.cpus {
            if !cpus.contains(cpu) {
                return problem(format!("its CPU {cpu} does not exist"), "describe the CPU");
            }
            if !used.insert((cache.level, cache.kind, *cpu)) {
                return problem(format!("CPU {cpu} has two caches of this level and kind"), "describe one of them");
            }
        }
    }
    Ok(())
}

fn links(parts: &MachineParts, nodes: &BTreeSet<NodeId>) -> Result<(), Problem> {
    if parts.links.len() > LINKS_MAX || parts.routers.len() > ROUTERS_MAX {
        let what = format!("{} links and {} routers", parts.links.len(), parts.routers.len());
        return Err(Problem::new(
            "links",
            what,
            format!("describe at most {LINKS_MAX} links and {ROUTERS_MAX} routers"),
        ));
    }
    let mut pairs = BTreeSet::new();
    for (index, link) in parts.links.iter().enumerate() {
        let place = format!("links (link {index}, {} to {})", end_name(parts, link.from), end_name(parts, link.to));
        let problem = |what: String, remedy: &str| Err(Problem::new(place.clone(), what, remedy));
        if usize::from(link.id.0) != index {
            return problem(format!("its number is {}", link.id), "number links in their order, from 0");
        }
        for end in [link.from, link.to] {
            let exists = match end {
                Endpoint::Node(node) => nodes.contains(&node),
                Endpoint::Router(router) => usize::from(router.0) < parts.routers.len(),
            };
            if !exists {
                return problem(format!("{} does not exist", end_name(parts, end)), "name a described node or router");
            }
        }
        if link.from == link.to {
            return problem("both of its ends are the same".into(), "join two different ends");
        }
        if !pairs.insert((link.from, link.to)) {
            return problem("it is described twice".into(), "describe it once, with the sum of the bandwidths");
        }
        within(&place, "bandwidth", link.bandwidth_bytes_per_s, BANDWIDTH_MIN, BANDWIDTH_MAX, "bytes/s")?;
        if let Some(latency) = link.latency_ns {
            within(&place, "latency", latency, 0.0, LINK_LATENCY_NS_MAX, "ns")?;
        }
    }
    Ok(())
}

/// `node 3` or `router "hub"`.
fn end_name(parts: &MachineParts, end: Endpoint) -> String {
    match end {
        Endpoint::Node(node) => format!("node {node}"),
        Endpoint::Router(router) => match parts.routers.get(usize::from(router.0)) {
            Some(router) => format!("router {:?}", router.name),
            None => format!("router {router}"),
        },
    }
}

fn routes(parts: &MachineParts, nodes: &BTreeSet<NodeId>) -> Result<(), Problem> {
    let mut pairs = BTreeSet::new();
    for route in &parts.routes {
        let place = format!("routes (node {} to node {})", route.from, route.to);
        let problem = |what: String, remedy: &str| Err(Problem::new(place.clone(), what, remedy));
        if !nodes.contains(&route.from) || !nodes.contains(&route.to) || route.from == route.to {
            return problem("it does not lead from one node to another".into(), "name two different, described nodes");
        }
        if !pairs.insert((route.from, route.to)) {
            return problem("this pair is routed twice".into(), "put all paths of a pair into one [[routes]]");
        }
        if route.paths.is_empty() || route.paths.len() > PATHS_MAX {
            return problem(format!("{} paths", route.paths.len()), "give 1 to 64 paths");
        }
        for path in &route.paths {
            chain(parts, path, route.from, route.to).or_else(|what| {
                problem(
                    what,
                    "write each path from its first node to its last, over links that exist, passing nothing twice",
                )
            })?;
        }
    }
    Ok(())
}

/// Whether `path` leads from one node to another over existing links without passing anything twice; says what is wrong.
fn chain(parts: &MachineParts, path: &[LinkId], from: NodeId, to: NodeId) -> Result<(), String> {
    let mut at = Endpoint::Node(from);
    let mut passed = BTreeSet::from([at]);
    for id in path {
        let link: &Link = parts.links.get(usize::from(id.0)).ok_or_else(|| format!("link {id} does not exist"))?;
        if link.from != at {
            return Err(format!("link {id} does not begin at {}", end_name(parts, at)));
        }
        if !passed.insert(link.to) {
            return Err(format!("it passes {} twice: a cycle", end_name(parts, link.to)));
        }
        at = link.to;
    }
    if at == Endpoint::Node(to) { Ok(()) } else { Err(format!("it ends at {}", end_name(parts, at))) }
}

fn traffic(parts: &MachineParts) -> Result<(), Problem> {
    let given = &parts.traffic;
    let figures = [
        ("controller_efficiency", "of peak", given.controller_efficiency, EFFICIENCY),
        ("write_turnaround", "of a read's time", given.write_turnaround, TURNAROUND),
        ("crowding", CROWDING_UNIT, given.crowding, CROWDING),
        ("message_bytes", "bytes", given.message_bytes, MESSAGE_BYTES),
        ("answer_bytes", "bytes", given.answer_bytes, MESSAGE_BYTES),
        ("completion_bytes", "bytes", given.completion_bytes, MESSAGE_BYTES),
        ("release_bytes", "bytes", given.release_bytes, MESSAGE_BYTES),
        ("link_efficiency", "of peak", given.link_efficiency, EFFICIENCY),
        ("stream_outstanding", "accesses", given.stream_outstanding, OUTSTANDING),
        ("stride_outstanding", "accesses", given.stride_outstanding, OUTSTANDING),
        ("stride_outstanding_loaded", "accesses", given.stride_outstanding_loaded, OUTSTANDING),
    ];
    for (name, unit, value, (min, max)) in figures {
        if let Some(value) = value {
            within(&format!("traffic.{name}"), "the value", value, min, max, unit)?;
        }
    }
    given.queueing_delay.map_or(Ok(()), queueing_delay)
}

/// A range around the traffic model's own delays. Predictions take these, so no other value is of use.
pub fn queueing_delay(given: Bounded) -> Result<(), Problem> {
    bounded(QUEUEING_DELAY_PLACE, QUEUEING_DELAY_UNIT, given, QUEUEING_DELAY)?;
    if (given.value - 1.0).abs() > 1e-9 {
        let remedy = "write `value = 1`, and how far measured delays are from the model's as its range; if all are longer, or all shorter, mend the bandwidths";
        return Err(Problem::new(QUEUEING_DELAY_PLACE, format!("its value is {}", given.value), remedy));
    }
    Ok(())
}

/// Refuses a figure that is out of all reason or outside its own range.
fn bounded(place: &str, unit: &str, given: Bounded, (min, max): (f64, f64)) -> Result<(), Problem> {
    let Bounded { value, low, high } = given;
    for (what, number) in [("the value", value), ("a bound of its range", low), ("a bound of its range", high)] {
        within(place, what, number, min, max, unit)?;
    }
    if !(low <= value && value <= high) {
        let what = format!("its range {low} to {high} does not hold its value {value}");
        return Err(Problem::new(place, what, "give the least and the most that it may be"));
    }
    Ok(())
}

fn core(parts: &MachineParts) -> Result<(), Problem> {
    let given = &parts.core;
    let figures = [
        ("window_instructions", "instructions", given.window_instructions, CORE_WINDOW),
        ("outstanding_misses", "misses", given.outstanding_misses, OUTSTANDING),
    ];
    for (name, unit, given, range) in figures {
        if let Some(given) = given {
            bounded(&format!("core.{name}"), unit, given, range)?;
        }
    }
    Ok(())
}

fn matrices(parts: &MachineParts) -> Result<(), Problem> {
    let count = parts.nodes.len();
    let square = |rows: &mut dyn Iterator<Item = usize>| rows.filter(|&length| length == count).count() == count;
    if parts.distances.len() != count || !square(&mut parts.distances.iter().map(Vec::len)) {
        return Err(Problem::new("distances", "the matrix is not nodes x nodes", "give one row and column per node"));
    }
    if parts.idle_latency_ns.len() != count || !square(&mut parts.idle_latency_ns.iter().map(Vec::len)) {
        return Err(Problem::new(
            "idle_latency",
            "the matrix is not nodes x nodes",
            "give one row and column per node",
        ));
    }
    for from in 0..count {
        for to in 0..count {
            let pair = format!("(node {} to node {})", parts.nodes[from].id, parts.nodes[to].id);
            if let Some(distance) = parts.distances[from][to].filter(|d| !(1..=DISTANCE_MAX).contains(d)) {
                let what = format!("a distance of {distance}");
                return Err(Problem::new(format!("distances {pair}"), what, "give 10 for local and at most 255"));
            }
            if let Some(latency) = parts.idle_latency_ns[from][to] {
                within(&format!("idle_latency {pair}"), "latency", latency, LATENCY_NS_MIN, LATENCY_NS_MAX, "ns")?;
            }
        }
    }
    Ok(())
}
