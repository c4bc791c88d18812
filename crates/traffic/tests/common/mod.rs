//! What the tests of the traffic model share: random machines and loads, and the same closed queueing network laid out a second time, from the
//! machine's own figures, by code that shares nothing with the model's.

#![allow(dead_code)]

use std::fmt::Write;

use numapilot_machine::{LinkId, Machine, NodeId};
use numapilot_random::Random;
use numapilot_traffic::{Class, Load};
use proptest::prelude::*;

/// The text of a model with `nodes` nodes in a ring with some chords, random bandwidths and latencies. Directions differ.
pub fn random_model(nodes: usize, coherence: &str, random: &mut Random) -> String {
    let list = |f: &dyn Fn(usize) -> String| (0..nodes).map(f).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "format = 1\nname = \"random\"\ncpu = \"none\"\nclock_mhz = {{ value = 2000, source = \"made up\" }}\n\
         coherence = {{ value = \"{coherence}\", source = \"made up\" }}\n[sources]\n\
         [traffic]\ncontroller_efficiency = {{ value = {:.3}, source = \"made up\" }}\n",
        0.5 + 0.5 * random.unit()
    );
    for node in 0..nodes {
        let _ = write!(
            text,
            "[[nodes]]\nids = [{node}]\ncpus = [\"{}-{}\"]\nsource = \"made up\"\nmemory_gib = {{ value = 1, source = \"made up\" }}\n\
             memory_bandwidth_gb_per_s = {{ value = {:.2}, source = \"made up\" }}\n",
            node * 4,
            node * 4 + 3,
            2.5 + 30.0 * random.unit().powi(2)
        );
    }
    let mut link = |from: usize, to: usize, random: &mut Random| {
        let _ = write!(
            text,
            "[[links]]\npairs = [[{from}, {to}]]\nkind = \"wire\"\nbandwidth_gb_per_s = {{ value = {:.2}, source = \"made up\" }}\n",
            2.0 + 12.0 * random.unit().powi(2)
        );
    };
    for from in 0..nodes {
        for to in (0..nodes).filter(|&to| to != from) {
            let neighbours = (from + 1) % nodes == to || (to + 1) % nodes == from;
            if neighbours || random.unit() < 0.3 {
                link(from, to, random);
            }
        }
    }
    let all = list(&|node| node.to_string());
    for (hops, ns) in [80.0, 160.0, 240.0, 320.0].into_iter().enumerate() {
        let ns = ns + 40.0 * random.unit();
        let _ = write!(
            text,
            "[[idle_latency]]\nhops = {hops}\nfrom = [{all}]\nto = [{all}]\nns = {{ value = {ns:.1}, source = \"made up\" }}\n"
        );
    }
    text
}

/// A machine of a random model.
pub fn random_machine(nodes: usize, coherence: &str, random: &mut Random) -> Machine {
    machine_of(&random_model(nodes, coherence, random))
}

/// A machine of that text; hop counts that it has no pair for are not asked for.
pub fn machine_of(text: &str) -> Machine {
    let mut blocks: Vec<&str> = text.split("[[idle_latency]]").collect();
    loop {
        let joined = blocks.join("[[idle_latency]]");
        match Machine::from_model_text(&joined, "random") {
            Ok(machine) => return machine,
            Err(error) => assert!(blocks.len() > 2 && blocks.pop().is_some(), "{error}\n{text}"),
        }
    }
}

/// A class with random shares; `writes` bounds the share that writes.
pub fn random_class(nodes: usize, from: usize, writes: f64, random: &mut Random) -> Class {
    let weights: Vec<f64> = (0..nodes).map(|_| random.unit().powi(3) + 1e-3).collect();
    let sum: f64 = weights.iter().sum();
    let writes = writes * random.unit();
    Class {
        from,
        threads: (1.0 + 3.0 * random.unit()).floor(),
        outstanding: 1.0,
        think_ns: 300.0 * random.unit(),
        reads: weights.iter().map(|w| w / sum * (1.0 - writes)).collect(),
        writes: weights.iter().map(|w| w / sum * writes).collect(),
    }
}

/// Machines and loads for property tests: 1 to 5 nodes, 1 to 8 classes, up to 12 outstanding per thread.
pub fn scenario(coherence: &'static str) -> impl Strategy<Value = (Machine, Load)> {
    scenario_of(coherence, str::to_owned)
}

/// The same on machines whose text was changed.
pub fn scenario_of(coherence: &'static str, changed: fn(&str) -> String) -> impl Strategy<Value = (Machine, Load)> {
    (1usize..6, 1usize..9, any::<u64>()).prop_map(move |(nodes, classes, seed)| {
        let mut random = Random::new(seed);
        let machine = machine_of(&changed(&random_model(nodes, coherence, &mut random)));
        let classes = (0..classes).map(|index| {
            let mut class = random_class(nodes, index % nodes, 0.5, &mut random);
            class.outstanding = 0.2 + 12.0 * random.unit().powi(2);
            class.threads *= 0.1 + random.unit();
            class
        });
        let load = Load { classes: classes.collect(), background: Vec::new() };
        (machine, load)
    })
}

/// The stations of one access, laid out anew: (station, nanoseconds), on the waited-for way and beside it. Stations are controllers in node
/// order, then links, then ports. No probes.
pub struct Demands {
    /// Idle latency less service, plus own work.
    pub delay_ns: f64,
    pub waited: Vec<f64>,
    pub aside: Vec<f64>,
}

pub const LINE: f64 = 64.0;
pub const TURNAROUND: f64 = 0.2;

/// Bytes of messages on links, by the machine's description, and the share of their peak that links reach.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub request: f64,
    pub answer: f64,
    pub completion: f64,
    pub release: f64,
    pub reached: f64,
}

impl Sizes {
    pub fn of(machine: &Machine) -> Self {
        let given = machine.traffic();
        let request = given.message_bytes.unwrap_or(8.0);
        Self {
            request,
            answer: given.answer_bytes.unwrap_or(request),
            completion: given.completion_bytes.unwrap_or(0.0),
            release: given.release_bytes.unwrap_or(0.0),
            reached: given.link_efficiency.unwrap_or(1.0),
        }
    }
}

/// The link of the other direction and its nanoseconds for these bytes, if there is one.
pub fn back(machine: &Machine, link: LinkId, bytes: f64, sizes: Sizes) -> Option<(usize, f64)> {
    let of = machine.link(link)?;
    let back = machine.links().iter().find(|other| other.from == of.to && other.to == of.from)?;
    Some((usize::from(back.id.0), bytes / (back.bandwidth_bytes_per_s * sizes.reached) * 1e9))
}

/// A machine of that text whose links carry messages of other sizes, ends of reads and flow control, and reach less than their peak.
pub fn with_flow_control(text: &str) -> String {
    let figures = [
        ("message_bytes", 12.0),
        ("answer_bytes", 4.0),
        ("completion_bytes", 5.0),
        ("release_bytes", 6.0),
        ("link_efficiency", 0.9),
    ];
    let line = |(name, value): &(&str, f64)| format!("{name} = {{ value = {value}, source = \"made up\" }}\n");
    text.replace("[traffic]\n", &format!("[traffic]\n{}", figures.iter().map(line).collect::<String>()))
}

/// A machine of that text at whose controllers accesses wait beside queues: up to four times their service.
pub fn with_crowding(text: &str) -> String {
    text.replace("[traffic]\n", "[traffic]\ncrowding = { value = 4, source = \"made up\" }\n")
}

/// A machine of that text whose nodes' CPUs have limits of their own. Some nodes lack one or both, so that ports are not simply as many as nodes.
pub fn with_ports(text: &str) -> String {
    let mut parts = text.split("memory_gib = ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (node, part) in parts.enumerate() {
        for (key, gb_per_s, every) in [("cpus_read_gb_per_s", 6.0, 3), ("cpus_write_gb_per_s", 4.0, 2)] {
            if node % every != 1 {
                let _ = writeln!(out, "{key} = {{ value = {gb_per_s}, source = \"made up\" }}");
            }
        }
        out.push_str("memory_gib = ");
        out.push_str(part);
    }
    out
}

/// Read and write port of a node: station and bytes per second, where its CPUs have such a limit.
pub fn ports(machine: &Machine, node: usize) -> [Option<(usize, f64)>; 2] {
    let mut station = machine.nodes().len() + machine.links().len();
    let mut found = [None, None];
    for (at, of) in machine.nodes().iter().enumerate() {
        for (side, limit) in [of.cpus_read_bytes_per_s, of.cpus_write_bytes_per_s].into_iter().enumerate() {
            if let Some(limit) = limit {
                found[side] = (at == node).then_some((station, limit)).or(found[side]);
                station += 1;
            }
        }
    }
    found
}

/// Controllers (every node has memory here), links and ports.
pub fn station_count(machine: &Machine) -> usize {
    let limits = machine.nodes().iter().flat_map(|node| [node.cpus_read_bytes_per_s, node.cpus_write_bytes_per_s]);
    machine.nodes().len() + machine.links().len() + limits.flatten().count()
}

/// What one access of `class` asks, on average. Every node has memory here.
pub fn demands(machine: &Machine, class: &Class) -> Demands {
    let nodes = machine.nodes();
    let efficiency = machine.traffic().controller_efficiency.unwrap_or(0.8);
    let mut out = Demands { delay_ns: class.outstanding * class.think_ns, waited: Vec::new(), aside: Vec::new() };
    out.waited.resize(station_count(machine), 0.0);
    out.aside.resize(station_count(machine), 0.0);
    let [read_port, write_port] = ports(machine, class.from);
    let sizes = Sizes::of(machine);
    // One message: its time on the links, and what it costs the links back.
    let cross = |a: NodeId, b: NodeId, bytes: f64, share: f64, into: &mut Vec<f64>, released: &mut Vec<f64>| {
        let paths = machine.routes(a, b);
        let mut ns = 0.0;
        for link in paths.iter().flatten() {
            let per_s = machine.link(*link).unwrap().bandwidth_bytes_per_s * sizes.reached;
            let time = share * bytes / per_s * 1e9 / paths.len() as f64;
            into[nodes.len() + usize::from(link.0)] += time;
            ns += time;
            if let Some((back, time)) = back(machine, *link, sizes.release, sizes) {
                released[nodes.len() + back] += share * time / paths.len() as f64;
            }
        }
        ns
    };
    let mut released = out.aside.clone();
    for (to, node) in nodes.iter().enumerate() {
        let (from, home) = (nodes[class.from].id, node.id);
        let share = class.reads[to] + class.writes[to];
        let read_ns = LINE / (node.memory_bandwidth_bytes_per_s.unwrap() * efficiency) * 1e9;
        let mut service = share * read_ns;
        out.waited[to] += share * read_ns;
        service += cross(from, home, sizes.request, share, &mut out.waited, &mut released);
        service += cross(home, from, LINE + sizes.answer, share, &mut out.waited, &mut released);
        if let Some((station, per_s)) = read_port {
            out.waited[station] += share * LINE / per_s * 1e9;
            service += share * LINE / per_s * 1e9;
        }
        if let Some((station, per_s)) = write_port {
            out.waited[station] += share * sizes.request / per_s * 1e9;
            service += share * sizes.request / per_s * 1e9;
            out.aside[station] += class.writes[to] * LINE / per_s * 1e9;
        }
        if sizes.completion > 0.0 {
            cross(from, home, sizes.completion, share, &mut out.aside, &mut released);
        }
        out.delay_ns += share * machine.idle_latency_ns(from, home).unwrap() - service;
        out.aside[to] += class.writes[to] * read_ns * (1.0 + TURNAROUND);
        cross(from, home, LINE + sizes.answer, class.writes[to], &mut out.aside, &mut released);
        cross(home, from, sizes.answer, class.writes[to], &mut out.aside, &mut released);
    }
    out.aside.iter_mut().zip(released).for_each(|(aside, released)| *aside += released);
    out
}
