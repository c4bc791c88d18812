//! How long each station is busy with one message: from bandwidths, the controllers' efficiency and the messages' sizes.

use numapilot_machine::Machine;

use crate::error::TrafficError;

/// Bytes that one access moves: a cache line.
pub const LINE_BYTES: f64 = 64.0;
/// Share of the peak that a controller reaches on reads alone, where the model file does not say.
pub const DEFAULT_CONTROLLER_EFFICIENCY: f64 = 0.8;
/// How much longer a controller is busy with a line written than with one read, where the model file does not say.
pub const DEFAULT_WRITE_TURNAROUND: f64 = 0.2;
/// Bytes of a request, a probe, an acknowledgement, or a line's header, where the model file does not say: a HyperTransport command with its
/// address, or a QPI flit.
pub const DEFAULT_MESSAGE_BYTES: f64 = 8.0;
const NS: f64 = 1e9;

/// Service times in nanoseconds, and the numbering of stations: controllers in node order, then links.
#[derive(Clone, Debug)]
pub struct Service {
    /// By node: its controller's station, if it has memory.
    pub controller_of: Vec<Option<usize>>,
    /// By node: service times of a line read and of a line written, in nanoseconds.
    pub read_ns: Vec<f64>,
    pub write_ns: Vec<f64>,
    /// Station of the first link.
    pub first_link: usize,
    /// By link: service times of a message without and with a line, in nanoseconds.
    pub message_ns: Vec<f64>,
    pub line_ns: Vec<f64>,
}

impl Service {
    pub fn new(machine: &Machine) -> Result<Self, TrafficError> {
        let figures = machine.traffic();
        let efficiency = figures.controller_efficiency.unwrap_or(DEFAULT_CONTROLLER_EFFICIENCY);
        let turnaround = figures.write_turnaround.unwrap_or(DEFAULT_WRITE_TURNAROUND);
        let message_bytes = figures.message_bytes.unwrap_or(DEFAULT_MESSAGE_BYTES);
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
        let links = machine.links();
        Ok(Self {
            controller_of,
            write_ns: read_ns.iter().map(|ns| ns * (1.0 + turnaround)).collect(),
            read_ns,
            first_link,
            message_ns: links.iter().map(|l| message_bytes * NS / l.bandwidth_bytes_per_s).collect(),
            line_ns: links.iter().map(|l| (LINE_BYTES + message_bytes) * NS / l.bandwidth_bytes_per_s).collect(),
        })
    }

    /// Number of stations.
    pub fn stations(&self) -> usize {
        self.first_link + self.message_ns.len()
    }
}
