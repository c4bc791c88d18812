//! The engines, what the user may ask for, and what came of it.

use std::str::FromStr;

pub use numapilot_trace::engine::Engine;

use crate::error::SourceError;

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
        match Engine::from_name(name) {
            // It takes files, by a command of its own.
            Some(Engine::Import) => Err(SourceError::EngineNotAvailable { name: name.to_owned() }),
            Some(engine) => Ok(EngineChoice::Only(engine)),
            None if name == "auto" => Ok(EngineChoice::Auto),
            None => Err(SourceError::EngineUnknown { name: name.to_owned() }),
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
