//! How long each station is busy with one message: from bandwidths, the controllers' efficiency and the messages' sizes.

use numapilot_machine::{Link, Machine};

use crate::error::TrafficError;

/// Bytes that one access moves: a cache line.
pub const LINE_BYTES: f64 = 64.0;
/// Share of the peak that a controller reaches on reads alone, where the model file does not say.
pub const DEFAULT_CONTROLLER_EFFICIENCY: f64 = 0.8;
/// How much longer a controller is busy with a line written than with one read, where the model file does not say.
pub const DEFAULT_WRITE_TURNAROUND: f64 = 0.2;
/// Bytes of a request or a probe, where the model file does not say: a HyperTransport command with its address, or a QPI flit. Messages without address
/// (acknowledgements, probes' answers, lines' headers) are taken to be as long where the model file does not say.
pub const DEFAULT_MESSAGE_BYTES: f64 = 8.0;
const NS: f64 = 1e9;

/// Service times in nanoseconds, and the numbering of stations: controllers in node order, then links, then ports: of each node that has any, the read port,
/// then the write port.
#[derive(Clone, Debug)]
pub struct Service {
    /// By node: its controller's station, if it has memory.
    pub controller_of: Vec<Option<usize>>,
    /// By node: service times of a line read and of a line written, in nanoseconds.
    pub read_ns: Vec<f64>,
    pub write_ns: Vec<f64>,
    /// Station of the first link.
    pub first_link: usize,
    /// By link: service times of each kind of message, in nanoseconds; that of a completion is 0 where there is none.
    pub request_ns: Vec<f64>,
    pub answer_ns: Vec<f64>,
    pub line_ns: Vec<f64>,
    pub completion_ns: Vec<f64>,
    /// By link: what each message that crosses it costs the link back, which gives its buffers back; `None` where nothing.
    pub release: Vec<Option<Release>>,
    /// By link: bytes per second that it reaches.
    pub link_bytes_per_s: Vec<f64>,
    /// By node: where its CPUs have a limit of their own on what they read and write together, the stations that stand for it.
    pub read_port: Vec<Option<Port>>,
    pub write_port: Vec<Option<Port>>,
}

/// A node's port in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    pub station: usize,
    /// Service times of a line and of a request, in nanoseconds.
    pub line_ns: f64,
    pub request_ns: f64,
}

/// A link's flow control.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The link of the other direction.
    pub link: usize,
    /// Service time there for each message, in nanoseconds.
    pub ns: f64,
}

/// What crosses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request or a probe.
    Request,
    /// An acknowledgement or a probe's answer.
    Answer,
    /// A line with its header.
    Line,
    /// The end of a read, told to the home node.
    Completion,
}

impl Service {
    pub fn new(machine: &Machine) -> Result<Self, TrafficError> {
        let figures = machine.traffic();
        let efficiency = figures.controller_efficiency.unwrap_or(DEFAULT_CONTROLLER_EFFICIENCY);
        let turnaround = figures.write_turnaround.unwrap_or(DEFAULT_WRITE_TURNAROUND);
        let message_bytes = figures.message_bytes.unwrap_or(DEFAULT_MESSAGE_BYTES);
        let answer_bytes = figures.answer_bytes.unwrap_or(message_bytes);
        let mut first_link = 0;
        let mut controller_of = Vec::new();
        let mut read_ns = Vec::new();
        for node in machine.nodes() {
            if !node.has_memory() {
                controller_of.push(None);
                read_ns.push(0.0);
                continue;
            }
            let Some(peak) = node.memory_bandwidth_bytes_per_s else {
                return Err(TrafficError::NoBandwidth { machine: machine.name().to_owned(), node: node.id });
            };
            controller_of.push(Some(first_link));
            read_ns.push(LINE_BYTES * NS / (peak * efficiency));
            first_link += 1;
        }
        let reached = figures.link_efficiency.unwrap_or(1.0);
        let link_bytes_per_s: Vec<f64> = machine.links().iter().map(|l| l.bandwidth_bytes_per_s * reached).collect();
        let (read_port, write_port) = ports(machine, first_link + link_bytes_per_s.len(), message_bytes);
        let times = |bytes: f64| link_bytes_per_s.iter().map(|per_s| bytes * NS / per_s).collect::<Vec<f64>>();
        Ok(Self {
            controller_of,
            write_ns: read_ns.iter().map(|ns| ns * (1.0 + turnaround)).collect(),
            read_ns,
            first_link,
            request_ns: times(message_bytes),
            answer_ns: times(answer_bytes),
            line_ns: times(LINE_BYTES + answer_bytes),
            completion_ns: times(figures.completion_bytes.unwrap_or(0.0)),
            release: releases(machine, &times(figures.release_bytes.unwrap_or(0.0))),
            link_bytes_per_s,
            read_port,
            write_port,
        })
    }

    /// Nanoseconds that `link` is busy with one message.
    pub fn message_ns(&self, link: usize, message: Message) -> f64 {
        match message {
            Message::Request => self.request_ns[link],
            Message::Answer => self.answer_ns[link],
            Message::Line => self.line_ns[link],
            Message::Completion => self.completion_ns[link],
        }
    }

    /// Number of stations.
    pub fn stations(&self) -> usize {
        let ports = self.read_port.iter().chain(&self.write_port).flatten();
        self.first_link + self.link_bytes_per_s.len() + ports.count()
    }
}

/// Read and write ports by node, numbered from `first` on.
fn ports(machine: &Machine, first: usize, message_bytes: f64) -> (Vec<Option<Port>>, Vec<Option<Port>>) {
    let mut next = first;
    let mut port = |limit: Option<f64>| {
        let per_s = limit?;
        let station = next;
        next += 1;
        Some(Port { station, line_ns: LINE_BYTES * NS / per_s, request_ns: message_bytes * NS / per_s })
    };
    let nodes = machine.nodes().iter();
    nodes.map(|node| (port(node.cpus_read_bytes_per_s), port(node.cpus_write_bytes_per_s))).unzip()
}

/// By link: the link back and what one message costs it, of `release_ns` by link. Links of one direction alone have none.
fn releases(machine: &Machine, release_ns: &[f64]) -> Vec<Option<Release>> {
    let links = machine.links();
    let back = |of: &Link| {
        let link = links.iter().position(|other| other.from == of.to && other.to == of.from)?;
        Some(Release { link, ns: release_ns[link] }).filter(|release| release.ns > 0.0)
    };
    // Most machines say nothing of it: then nobody looks for links back.
    let any = release_ns.iter().any(|&ns| ns > 0.0);
    links.iter().map(|link| if any { back(link) } else { None }).collect()
}
