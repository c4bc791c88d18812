//! The engines: the ways in which a running program becomes a trace. Their names stand on the command line and in every trace (`docs/engines.md`).

use std::fmt;

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

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
    /// What perf recorded, on any machine.
    Import,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Engine; 6] =
        [Engine::Instrument, Engine::Emulate, Engine::Track, Engine::Fault, Engine::Pmu, Engine::Import];

    /// The name on the command line and in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Instrument => "instrument",
            Engine::Emulate => "emulate",
            Engine::Track => "track",
            Engine::Fault => "fault",
            Engine::Pmu => "pmu",
            Engine::Import => "import",
        }
    }

    /// The engine of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Whether programs run on a simulated machine, in virtual time.
    #[must_use]
    pub fn is_simulated(self) -> bool {
        matches!(self, Engine::Instrument | Engine::Emulate)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The engine that a file names as its maker. A later version may have engines that this one does not: their files are read all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordedBy {
    /// An engine that this version has.
    Known(Engine),
    /// Any other name. Empty where the file has none.
    Other(String),
}

impl RecordedBy {
    /// The name as in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            RecordedBy::Known(engine) => engine.name(),
            RecordedBy::Other(name) => name,
        }
    }

    /// The engine, if this version has it.
    #[must_use]
    pub fn known(&self) -> Option<Engine> {
        match self {
            RecordedBy::Known(engine) => Some(*engine),
            RecordedBy::Other(_) => None,
        }
    }
}

impl Default for RecordedBy {
    fn default() -> RecordedBy {
        RecordedBy::Other(String::new())
    }
}

impl From<Engine> for RecordedBy {
    fn from(engine: Engine) -> RecordedBy {
        RecordedBy::Known(engine)
    }
}

impl PartialEq<Engine> for RecordedBy {
    fn eq(&self, engine: &Engine) -> bool {
        self.known() == Some(*engine)
    }
}

impl fmt::Display for RecordedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for RecordedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for RecordedBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RecordedBy, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(Engine::from_name(&name).map_or(RecordedBy::Other(name), RecordedBy::Known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_file_and_unknown_ones_are_kept() {
        for engine in Engine::ALL {
            let text = serde_json::to_string(&RecordedBy::from(engine)).unwrap();
            assert_eq!(text, format!("\"{engine}\""));
            assert_eq!(serde_json::from_str::<RecordedBy>(&text).unwrap(), engine);
        }
        let later: RecordedBy = serde_json::from_str("\"telepathy\"").unwrap();
        assert_eq!((later.known(), serde_json::to_string(&later).unwrap().as_str()), (None, "\"telepathy\""));
        assert!(serde_json::from_str::<RecordedBy>("7").is_err());
    }
}
