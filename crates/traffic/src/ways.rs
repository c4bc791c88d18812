//! The path of one access: the stations that its messages visit and the service time at each, from a machine's routes.
//!
//! A *visit* is a station with the service time that one access asks of it on average. Where a pair has several equal paths its
//! messages use them evenly, so a visit's time is the sum over paths divided by their number.

use numapilot_machine::{Machine, NodeId};

use crate::service::{Message, Service};

/// A station and the time in nanoseconds that one access keeps it busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visit {
    pub station: usize,
    pub service_ns: f64,
}

/// One way in which the probes of an access spread from the home node.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Links that probes cross; each comes after the one that leads to it.
    pub branches: Vec<Branch>,
    /// Nodes whose answer the access waits for.
    pub ends: Vec<End>,
}

/// A link that probes cross together.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    /// The branch that leads to it; `None` for one that begins at the home node.
    pub before: Option<usize>,
    /// The link's station, and the time that one probe keeps it busy.
    pub visit: Visit,
}

/// A node that answers.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The branch by which the probe arrives.
    pub branch: usize,
    /// Index of its answer in [`Way::answers`].
    pub answer: usize,
}

/// Most trees that are told apart, of equal routes; where there are more, these stand for all.
const TREES_MAX: usize = 8;

impl Tree {
    /// The `which`-th of equal routes to each node that answers; where a node has fewer, they take turns.
    fn new(machine: &Machine, service: &Service, home: NodeId, answering: &[NodeId], which: usize) -> Self {
        let mut tree = Self::default();
        for (answer, &other) in answering.iter().enumerate() {
            let routes = machine.routes(home, other);
            let Some(route) = routes.get(which % routes.len().max(1)) else { continue };
            let mut before = None;
            for link in route {
                let link = usize::from(link.0);
                let station = service.first_link + link;
                let known = tree.branches.iter().position(|branch| branch.visit.station == station);
                let here = known.unwrap_or(tree.branches.len());
                if known.is_none() {
                    let visit = Visit { station, service_ns: service.message_ns(link, Message::Request) };
                    tree.branches.push(Branch { before, visit });
                }
                before = Some(here);
            }
            tree.ends.extend(before.map(|branch| End { branch, answer }));
        }
        tree
    }
}

/// Everything that an access from one node to another's memory does.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Messages on which the access waits in any case: the request, which leaves by the asking node's write port.
    pub request: Vec<Visit>,
    /// The controller, and then the line's path back, by the asking node's read port.
    pub answer: Vec<Visit>,
    /// On machines that broadcast: the answer of each other node with CPUs to its probe. They race the line.
    pub answers: Vec<Vec<Visit>>,
    /// How the probes come to these nodes: by each of equal routes in turn. Empty where no answer is waited for.
    pub trees: Vec<Tree>,
    /// By station: the sum of squared service times, in ns^2, of the line's way and of each single probe with its answer.
    pub squares: Vec<(usize, f64)>,
    /// Visits of all probes of one access to the links.
    pub probe_load: Vec<Visit>,
    /// What a read sends that nobody waits for: its end, told to the home node, and buffers given back for all of the read's messages but probes.
    pub control: Vec<Visit>,
    /// A line written back later: the asking node's write port, its way, the controller, the acknowledgement, their buffers.
    pub write_back: Vec<Visit>,
    /// The part of the idle latency that is not service time: caches, crossbars, wires, the DRAM's own latency. `None` where no access is possible (no
    /// CPUs, or no memory).
    pub fixed_ns: Option<f64>,
}

impl Way {
    /// The way from node `from` to the memory of node `to`, both by index; `None` where `to` has no memory or cannot be reached.
    pub fn new(machine: &Machine, service: &Service, from: usize, to: usize) -> Option<Self> {
        let controller = service.controller_of[to]?;
        let ids: Vec<NodeId> = machine.nodes().iter().map(|n| n.id).collect();
        if from != to && machine.routes(ids[from], ids[to]).is_empty() {
            return None;
        }
        let mut sums = ServiceSums::new(machine, service);
        let there = (ids[from], ids[to]);
        let back = (ids[to], ids[from]);
        let (read_port, write_port) = (service.read_port[from], service.write_port[from]);
        // Written lines alone would fill a port that no thread waits for: the requests that leave by it hold threads back then, as they do at a link.
        if let Some(port) = write_port {
            sums.add(port.station, port.request_ns);
        }
        sums.message(there, Message::Request);
        let request = sums.take();
        sums.add(controller, service.read_ns[to]);
        sums.message(back, Message::Line);
        if let Some(port) = read_port {
            sums.add(port.station, port.line_ns);
        }
        let answer = sums.take();
        if service.completion_ns.iter().any(|&ns| ns > 0.0) {
            sums.message(there, Message::Completion);
        }
        sums.give_back();
        let control = sums.take();
        if let Some(port) = write_port {
            sums.add(port.station, port.line_ns);
        }
        sums.message(there, Message::Line);
        sums.add(controller, service.write_ns[to]);
        sums.message(back, Message::Answer);
        sums.give_back();
        let write_back = sums.take();
        let mut way = Self { request, answer, control, write_back, ..Self::default() };
        if machine.broadcasts_probes() == Some(true) {
            let others = machine.nodes().iter().filter(|n| n.has_cpus() && n.id != ids[to]).map(|n| n.id);
            way.probes(&mut sums, ids[from], ids[to], &others.collect::<Vec<_>>());
        }
        Some(way)
    }

    /// The home node asks every other node, and these answer the asking one. The probe is one broadcast: it crosses no link twice. The home's
    /// own answer travels with the line.
    fn probes(&mut self, sums: &mut ServiceSums<'_>, from: NodeId, home: NodeId, others: &[NodeId]) {
        let mut broadcast: Vec<Visit> = Vec::new();
        for &other in others {
            sums.message((home, other), Message::Request);
            for visit in sums.take() {
                match broadcast.iter_mut().find(|v| v.station == visit.station) {
                    Some(known) => known.service_ns = known.service_ns.max(visit.service_ns),
                    None => broadcast.push(visit),
                }
            }
        }
        let answering: Vec<NodeId> = others.iter().copied().filter(|&other| other != from).collect();
        let mut squared = self.answer.clone();
        for &other in &answering {
            sums.message((home, other), Message::Request);
            sums.message((other, from), Message::Answer);
            squared.append(&mut sums.take());
            sums.message((other, from), Message::Answer);
            self.answers.push(sums.take());
        }
        self.squares = squares(&squared);
        let equal = answering.iter().map(|&other| sums.machine.routes(home, other).len()).max().unwrap_or(0);
        let (machine, service) = (sums.machine, sums.service);
        self.trees =
            (0..equal.min(TREES_MAX)).map(|which| Tree::new(machine, service, home, &answering, which)).collect();
        // The buffers of these single probes: those of the broadcast count in their place.
        sums.crossed.fill(0.0);
        broadcast.iter().for_each(|v| sums.request_at(v.station, v.service_ns));
        others.iter().for_each(|&other| sums.message((other, from), Message::Answer));
        sums.give_back();
        self.probe_load = sums.take();
    }

    /// Time in nanoseconds that the stations on the waited-for way are busy with one access.
    pub fn service_ns(&self) -> f64 {
        self.request.iter().chain(&self.answer).map(|v| v.service_ns).sum()
    }
}

/// By station: the sum of the squares of these visits' service times.
fn squares(visits: &[Visit]) -> Vec<(usize, f64)> {
    let mut sums: Vec<(usize, f64)> = Vec::new();
    for visit in visits {
        let square = visit.service_ns * visit.service_ns;
        match sums.iter_mut().find(|(station, _)| *station == visit.station) {
            Some((_, sum)) => *sum += square,
            None => sums.push((visit.station, square)),
        }
    }
    sums
}

/// Sums service times by station.
struct ServiceSums<'a> {
    machine: &'a Machine,
    service: &'a Service,
    sums: Vec<f64>,
    visited: Vec<usize>,
    /// By link: messages that crossed it since buffers were last given back.
    crossed: Vec<f64>,
}

impl<'a> ServiceSums<'a> {
    fn new(machine: &'a Machine, service: &'a Service) -> Self {
        let (stations, links) = (service.stations(), service.link_bytes_per_s.len());
        Self { machine, service, sums: vec![0.0; stations], visited: Vec::new(), crossed: vec![0.0; links] }
    }

    fn add(&mut self, station: usize, service_ns: f64) {
        self.sums[station] += service_ns;
        self.visited.push(station);
    }

    /// One message over the routes of a pair; nothing within a node.
    fn message(&mut self, (from, to): (NodeId, NodeId), message: Message) {
        let routes = self.machine.routes(from, to);
        let share = 1.0 / routes.len() as f64;
        for link in routes.iter().flatten() {
            let link = usize::from(link.0);
            self.add(self.service.first_link + link, share * self.service.message_ns(link, message));
            self.crossed[link] += share;
        }
    }

    /// Requests that keep a link's station busy for so long.
    fn request_at(&mut self, station: usize, service_ns: f64) {
        let link = station - self.service.first_link;
        self.add(station, service_ns);
        self.crossed[link] += service_ns / self.service.message_ns(link, Message::Request);
    }

    /// Gives back the buffers of all messages that crossed links: the links back carry that.
    fn give_back(&mut self) {
        for link in 0..self.crossed.len() {
            let messages = std::mem::take(&mut self.crossed[link]);
            if let Some(release) = self.service.release[link].filter(|_| messages > 0.0) {
                self.add(self.service.first_link + release.link, messages * release.ns);
            }
        }
    }

    /// What was gathered, by ascending station; leaves nothing behind.
    fn take(&mut self) -> Vec<Visit> {
        self.visited.sort_unstable();
        self.visited.dedup();
        let sums = &mut self.sums;
        let take = |station| Visit { station, service_ns: std::mem::take(&mut sums[station]) };
        self.visited.drain(..).map(take).collect()
    }
}
