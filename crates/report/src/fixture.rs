//! Opened synthetic traces, for this crate's tests.

use numapilot_fixtures::{Kind, Size, write};
use numapilot_flows::{Filter, Trace};
use numapilot_insight::Analysis;
use numapilot_machine::{Machine, NodeId};

use crate::Heading;
use crate::export::Export;

/// A trace with what a report knows of it.
pub struct Opened {
    pub trace: Trace,
    pub machine: Option<Machine>,
    pub heading: Heading,
}

/// The trace of this kind, cut down to this size.
pub fn open(kind: Kind, accesses: u64, objects: u32, threads: u32) -> Opened {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("made.numatrace");
    let size = kind.size();
    let size = Size {
        accesses: accesses.min(size.accesses),
        objects: objects.min(size.objects),
        threads: threads.min(size.threads),
        ..size
    };
    write(kind, &size, &dir).expect("the trace is written");
    let trace = Trace::open(&dir).expect("the trace opens");
    let meta = trace.meta();
    let heading = Heading {
        command: meta.command.clone(),
        machine: meta.machine_name.clone(),
        is_simulated: meta.simulated,
        origin: meta.origin(),
        engine: meta.engine.clone(),
        program_time_ns: meta.duration_ns,
        losses: trace.losses().clone(),
        ..Heading::default()
    };
    let machine = serde_json::from_value(meta.machine.clone()).ok();
    Opened { trace, machine, heading }
}

impl Opened {
    /// Looks at it through a filter.
    pub fn with<R>(&self, filter: Filter, look: impl FnOnce(&Export<'_>) -> R) -> R {
        let nodes: Vec<NodeId> =
            self.machine.iter().flat_map(|machine| machine.nodes().iter().map(|node| node.id)).collect();
        let analysis = Analysis::new(&self.trace, &nodes, &nodes, filter);
        look(&Export { heading: &self.heading, analysis: &analysis, machine: self.machine.as_ref() })
    }
}
