//! What is true of the engines of a machine, as `doctor` reports it.

use numapilot_perf_events::rights::Obstacle;
use numapilot_trace::engine::Engine;
use serde::Serialize;

/// What is true of one engine here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The engine.
    pub engine: Engine,
    /// Whether the engine can record here.
    pub works: bool,
    /// Whether it records memory accesses of programs that it starts, not only their page faults or allocations.
    pub records_accesses: bool,
    /// What it gives, in a sentence without a full stop.
    pub gives: String,
    /// Why it does not work; empty if it does.
    pub obstacles: Vec<Obstacle>,
    /// What it could do besides, if something were different.
    pub limits: Vec<Obstacle>,
}

impl Finding {
    /// A finding of which only the engine is known.
    pub(crate) fn of(engine: Engine) -> Finding {
        Finding {
            engine,
            works: false,
            records_accesses: false,
            gives: String::new(),
            obstacles: Vec::new(),
            limits: Vec::new(),
        }
    }
}

/// What is true of all engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The machine in two or three lines: what is looked at, and what it is.
    pub host: Vec<(&'static str, String)>,
    /// One per engine, the most telling first.
    pub engines: Vec<Finding>,
}

impl Diagnosis {
    /// The finding about an engine.
    #[must_use]
    pub fn engine(&self, engine: Engine) -> Option<&Finding> {
        self.engines.iter().find(|finding| finding.engine == engine)
    }

    /// Whether any engine records memory accesses here.
    #[must_use]
    pub fn can_record_accesses(&self) -> bool {
        self.engines.iter().any(|finding| finding.works && finding.records_accesses)
    }
}
