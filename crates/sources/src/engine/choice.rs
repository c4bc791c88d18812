//! The engines, what the user may ask for, and what came of it.

use std::fmt;
use std::str::FromStr;

use crate::error::SourceError;

/// An engine that this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Every access of an instrumented program, on a simulated machine, in virtual time.
    Instrument,
    /// Every access of an unmodified program that runs in an emulator, on a simulated machine, in virtual time.
    Emulate,
    /// Lifecycles only (allocations, mappings, threads, processes), in real time.
    Track,
    /// Page faults, by the running kernel: who touches each page first, and on kernels that balance, who uses it later.
    Fault,
    /// Memory accesses that the processor samples (AMD IBS, Intel PEBS, Arm SPE), with their latencies.
    Pmu,
}

impl Engine {
    /// As on the command line and in traces.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Instrument => "instrument",
            Engine::Emulate => "emulate",
            Engine::Track => "track",
            Engine::Fault => "fault",
            Engine::Pmu => "pmu",
        }
    }

    /// Whether programs run on a simulated machine, in virtual time.
    pub fn is_simulated(self) -> bool {
        matches!(self, Engine::Instrument | Engine::Emulate)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the user asked for with `--engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The best one that works here.
    #[default]
    Auto,
    /// This engine, or an error.
    Only(Engine),
}

impl FromStr for EngineChoice {
    type Err = SourceError;

    fn from_str(name: &str) -> Result<Self, SourceError> {
        match name {
            "auto" => Ok(EngineChoice::Auto),
            "instrument" => Ok(EngineChoice::Only(Engine::Instrument)),
            "emulate" => Ok(EngineChoice::Only(Engine::Emulate)),
            "track" => Ok(EngineChoice::Only(Engine::Track)),
            "fault" => Ok(EngineChoice::Only(Engine::Fault)),
            "pmu" => Ok(EngineChoice::Only(Engine::Pmu)),
            "import" => Err(SourceError::EngineNotAvailable { name: name.to_owned() }),
            _ => Err(SourceError::EngineUnknown { name: name.to_owned() }),
        }
    }
}

/// Why an engine was not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The refused engine.
    pub engine: Engine,
    /// Why the engine cannot be used, as part of a sentence.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: String,
}

/// The chosen engine, and what the user should know about the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The engine that records.
    pub engine: Engine,
    /// Better engines, and why each refused.
    pub refusals: Vec<Refusal>,
    /// What is worth telling: which binary of a script is recorded, what will not be seen.
    pub notes: Vec<String>,
    /// The tracker is loaded into the program.
    pub has_tracker: bool,
}
