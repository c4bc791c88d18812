//! A value of a machine's description that is only known to lie between two bounds.

use serde::{Deserialize, Serialize};

/// What a value describes, by positions in the machine's lists of nodes and links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Idle latencies of these pairs (from, to), in nanoseconds.
    IdleLatency(Vec<(usize, usize)>),
    /// Idle latencies of these pairs (from, to), as multiples of the local latency of the node that they are from.
    OverLocal(Vec<(usize, usize)>),
    /// Peak bandwidths of these nodes' memories, in bytes per second.
    MemoryBandwidth(Vec<usize>),
    /// What all CPUs of each of these nodes read together at most, in bytes per second ([`crate::Node::cpus_read_bytes_per_s`]).
    CpusRead(Vec<usize>),
    /// What they write together at most, in bytes per second ([`crate::Node::cpus_write_bytes_per_s`]).
    CpusWrite(Vec<usize>),
    /// Peak bandwidths of these directed links, in bytes per second.
    LinkBandwidth(Vec<usize>),
    /// [`crate::TrafficFigures::controller_efficiency`].
    ControllerEfficiency,
    /// [`crate::TrafficFigures::write_turnaround`].
    WriteTurnaround,
    /// [`crate::TrafficFigures::crowding`].
    Crowding,
    /// [`crate::TrafficFigures::message_bytes`].
    MessageBytes,
    /// [`crate::TrafficFigures::answer_bytes`].
    AnswerBytes,
    /// [`crate::TrafficFigures::completion_bytes`].
    CompletionBytes,
    /// [`crate::TrafficFigures::release_bytes`].
    ReleaseBytes,
    /// [`crate::TrafficFigures::link_efficiency`].
    LinkEfficiency,
}

/// A value that is only known to lie between two bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unknown {
    /// Place of the value in the model file, as a TOML path.
    pub place: String,
    /// What the value describes; the unit follows from it.
    pub subject: Subject,
    /// The value in the machine's description.
    pub value: f64,
    /// Lower bound of the value.
    pub low: f64,
    /// Upper bound of the value.
    pub high: f64,
    /// Source of the range, in words.
    pub source: String,
}

impl Unknown {
    /// The subject in words.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match &self.subject {
            Subject::IdleLatency(pairs) if pairs.iter().all(|(from, to)| from == to) => "idle latency of local memory",
            Subject::IdleLatency(_) => "idle latency of remote memory",
            Subject::OverLocal(_) => "idle latency of remote memory over that of local memory",
            Subject::MemoryBandwidth(_) => "peak bandwidth of a node's memory",
            Subject::CpusRead(_) => "what a node's CPUs read together at most",
            Subject::CpusWrite(_) => "what a node's CPUs write together at most",
            Subject::LinkBandwidth(_) => "peak bandwidth of links",
            Subject::ControllerEfficiency => "share of its peak bandwidth that a memory controller reaches",
            Subject::WriteTurnaround => "what a memory controller loses between reads and writes",
            Subject::Crowding => {
                "wait beside the queue at a controller that others keep busy all the time, over a line's service"
            }
            Subject::MessageBytes => "bytes on a link that carry no data, for each message",
            Subject::AnswerBytes => "bytes on a link of each message without address",
            Subject::CompletionBytes => "bytes on a link that tell the home node that a read has ended",
            Subject::ReleaseBytes => "bytes that each message costs the other direction of a link",
            Subject::LinkEfficiency => "share of its peak bandwidth that a link reaches",
        }
    }
}
