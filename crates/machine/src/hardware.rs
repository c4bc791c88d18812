//! The parts of a machine as plain data: nodes, CPUs, caches, links, routers, and the figures that describe them.
//! Units are in the names; `None` means that a value is unknown, never zero.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{CoreId, CpuId, LinkId, NodeId, RouterId, SocketId};

/// Origin of a machine's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineSource {
    /// Read from the running system, or from a captured tree of one.
    Live {
        /// The prefix under which `/sys` and `/proc` were read; `/` on the running system.
        root: PathBuf,
    },
    /// Read from a model file.
    Model {
        /// Path of the model file.
        path: PathBuf,
    },
    /// One of the models that the library carries.
    Builtin,
    /// Described by a recording of another tool.
    Recording {
        /// Host that recorded; empty where it is unknown.
        host: String,
    },
}

/// Whether a node has CPUs, memory or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// CPUs and memory: the common case.
    CpusAndMemory,
    /// Memory without CPUs: a CXL expander, high-bandwidth memory as a node of its own, a node all of whose CPUs are removed.
    MemoryOnly,
    /// The node has CPUs and no memory.
    CpusOnly,
    /// The node has neither CPUs nor memory.
    Empty,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's or the model's number.
    pub id: NodeId,
    /// Package that the node belongs to, where known and single.
    pub socket: Option<SocketId>,
    /// CPUs of the node, online or not, ascending.
    pub cpus: Vec<CpuId>,
    /// Installed memory in bytes; 0 on a node without memory.
    pub memory_bytes: u64,
    /// Free memory in bytes when it was read; `None` for models.
    pub free_bytes: Option<u64>,
    /// Peak bandwidth of the node's memory in bytes per second.
    pub memory_bandwidth_bytes_per_s: Option<f64>,
    /// What all CPUs of the node together read at most, bytes per second, from whichever memory and whatever they write meanwhile: the width of the node's
    /// read port, as of a core complex's link to the I/O die. `None`: no such limit is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_read_bytes_per_s: Option<f64>,
    /// The same of what they write: the node's write port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_write_bytes_per_s: Option<f64>,
    /// Kind of the memory, in words ("2 channels of DDR2-800").
    pub memory_kind: Option<String>,
}

impl Node {
    /// Whether the node has CPUs, memory or both.
    pub fn kind(&self) -> NodeKind {
        match (self.cpus.is_empty(), self.memory_bytes == 0) {
            (false, false) => NodeKind::CpusAndMemory,
            (true, false) => NodeKind::MemoryOnly,
            (false, true) => NodeKind::CpusOnly,
            (true, true) => NodeKind::Empty,
        }
    }

    /// Whether pages can live here.
    pub fn has_memory(&self) -> bool {
        self.memory_bytes > 0
    }

    /// Whether threads can run here (online or not).
    pub fn has_cpus(&self) -> bool {
        !self.cpus.is_empty()
    }
}

/// A logical CPU (a hardware thread).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's or the model's number.
    pub id: CpuId,
    /// Node of the CPU; `None` for an offline CPU whose node the kernel no longer shows.
    pub node: Option<NodeId>,
    /// Processor package of the CPU; `None` if unknown.
    pub socket: Option<SocketId>,
    /// Core of the CPU; the number is unique in the machine.
    pub core: Option<CoreId>,
    /// Whether threads can run on it now.
    pub online: bool,
    /// CPUs of the same core, itself among them, ascending.
    pub siblings: Vec<CpuId>,
}

impl Cpu {
    /// 0 for the first hardware thread of a core, 1 for the second, and so on.
    pub fn smt_rank(&self) -> usize {
        self.siblings.iter().position(|&c| c == self.id).unwrap_or(0)
    }
}

/// Kind of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// A cache of data.
    Data,
    /// A cache of instructions.
    Instruction,
    /// A cache of data and instructions.
    Unified,
}

/// One cache (not a kind of cache: a machine with 16 private L2s has 16 of these).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2, 3, ...
    pub level: u8,
    /// Kind of the cache: data, instructions or both.
    pub kind: CacheKind,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// Line size in bytes; `None` if unknown.
    pub line_bytes: Option<u32>,
    /// Associativity; `None` where unknown or fully associative.
    pub ways: Option<u32>,
    /// Load-to-use latency in core cycles.
    pub latency_cycles: Option<f64>,
    /// CPUs that share it, ascending.
    pub cpus: Vec<CpuId>,
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// An end at a NUMA node.
    Node(NodeId),
    /// A switch without CPUs or memory: an I/O die, a mesh, a node controller.
    Router(RouterId),
}

/// A point of the interconnect that only forwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// Name of the router in the model file.
    pub name: String,
    /// The package that it is part of, where that makes sense.
    pub socket: Option<SocketId>,
}

/// A *directed* link: a full-duplex cable is two of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Index of this link in [`crate::Machine::links`].
    pub id: LinkId,
    /// Source of the link.
    pub from: Endpoint,
    /// Target of the link.
    pub to: Endpoint,
    /// Peak bandwidth in this direction, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Time that one crossing adds, where known by itself.
    pub latency_ns: Option<f64>,
    /// Kind of the link, in words ("HyperTransport 1.0").
    pub kind: String,
}

/// How a core finds the other holders of a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coherence {
    /// Every miss asks every other node and waits for the slowest answer: links carry probes even for local misses.
    Broadcast,
    /// A directory or probe filter at the home node knows which nodes to probe.
    Directory,
}

/// How paths through the links were chosen where the model gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Paths with the fewest links.
    #[default]
    Shortest,
    /// Greatest bandwidth of the narrowest link; among those, fewest links.
    Widest,
}

/// Parameters of the traffic model beyond latencies and bandwidths. `None` means that a value is unknown: the model then uses its
/// documented default, or gives no result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficFigures {
    /// Share of the peak memory bandwidth that a controller reaches on reads alone, 0 to 1: row misses, refresh and the rest in one figure.
    pub controller_efficiency: Option<f64>,
    /// How much longer a controller is busy with a line written than with a line read, as a share of the latter: turning the bus round.
    pub write_turnaround: Option<f64>,
    /// How many times as long as it takes a controller to serve a line an access waits, beside its queue, where others keep that controller busy all the time;
    /// where they take a share of the time, that share of it. `None`: nothing but the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowding: Option<f64>,
    /// Bytes on a link of a message that holds an address: a request, a probe. Where `answer_bytes` is not given, of every message without data.
    pub message_bytes: Option<f64>,
    /// Bytes on a link of a message without address: an acknowledgement, a probe's answer, and the header of a line.
    pub answer_bytes: Option<f64>,
    /// Bytes on a link of the message with which the asking node tells the home node that a read has ended (HyperTransport's SrcDone). `None`: there is none.
    pub completion_bytes: Option<f64>,
    /// Bytes that each message costs the other direction of each link that it crosses: its buffers are given back. `None`: nothing.
    pub release_bytes: Option<f64>,
    /// Share of its peak bandwidth that a link reaches, 0 to 1. `None`: all of it.
    pub link_efficiency: Option<f64>,
    /// Memory accesses that one thread running STREAM keeps outstanding, with all that is prefetched for it.
    pub stream_outstanding: Option<f64>,
    /// Memory accesses outstanding, with prefetching, in a chase of pointers with a stride of one line, on an idle machine.
    pub stride_outstanding: Option<f64>,
    /// Memory accesses outstanding in such a chase while other cores use the memory's bandwidth: the core holds prefetches back then.
    pub stride_outstanding_loaded: Option<f64>,
    /// Queueing delay over the traffic model's: its value is 1, its range how far delays that were measured on this machine are from them. `None`: nobody
    /// measured any.
    pub queueing_delay: Option<Bounded>,
}

/// A figure with the least and the most that it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounded {
    /// The value in the description.
    pub value: f64,
    /// Lower bound of the value; the value itself where it is known exactly.
    pub low: f64,
    /// Upper bound of the value.
    pub high: f64,
}

/// How far one core overlaps memory accesses. `None` where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreFigures {
    /// Instructions that it looks ahead while it waits: its reorder buffer.
    pub window_instructions: Option<Bounded>,
    /// Misses of its first-level cache that it keeps outstanding, at most.
    pub outstanding_misses: Option<Bounded>,
}

impl CoreFigures {
    /// Loads and stores among instructions: about 38 % of those of integer and floating-point programs.
    pub const ACCESSES_PER_INSTRUCTION: f64 = 0.38;
    /// Default: between K10's 72 and Skylake's 224 (the geometric mean). Cores of today look further.
    const WINDOW: Bounded = Bounded { value: 128.0, low: 72.0, high: 224.0 };
    /// Default: the registers for misses of the same two. Cores of today have more.
    const MISSES: Bounded = Bounded { value: 10.0, low: 8.0, high: 12.0 };

    /// Instructions that a core looks ahead, by the description or as most cores do.
    #[must_use]
    pub fn window(&self) -> Bounded {
        self.window_instructions.unwrap_or(Self::WINDOW)
    }

    /// Misses that a core keeps outstanding at most, by the description or as most cores do.
    #[must_use]
    pub fn misses(&self) -> Bounded {
        self.outstanding_misses.unwrap_or(Self::MISSES)
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == CoreFigures::default()
    }
}

/// A number or a few words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FigureValue {
    /// A number in the figure's unit.
    Number(f64),
    /// Words: a layout, a protocol.
    Text(String),
}

/// One figure or fact of a machine's description, with where it is from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Place of the value in the model file, as a TOML path (`nodes[0].memory_gib`), or the file that it was read from.
    pub place: String,
    /// The number, or the words.
    pub value: FigureValue,
    /// The number's unit; empty for words.
    pub unit: String,
    /// Source of the value, in words.
    pub source: String,
    /// Whether it is an estimate, to be calibrated.
    pub estimate: bool,
    /// Least and most that it may be, where the description gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}
