//! What the rows of a recording are: memory accesses, or page faults. A report names them by what they are.

use numapilot_flows::{Evidence, Trace};
use serde::Serialize;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Counted {
    /// Memory accesses.
    #[default]
    #[serde(rename = "memory accesses")]
    Accesses,
    /// Page faults, which say nothing of how often memory is accessed.
    #[serde(rename = "page faults")]
    PageFaults,
}

impl Counted {
    /// What the rows of this recording are.
    #[must_use]
    pub fn of(trace: &Trace) -> Counted {
        match trace.evidence() {
            Evidence::PageFaults => Counted::PageFaults,
            Evidence::Accesses | Evidence::Other => Counted::Accesses,
        }
    }

    /// Whether they are page faults.
    #[must_use]
    pub fn is_faults(self) -> bool {
        self == Counted::PageFaults
    }

    /// Several of them, in full: `memory accesses`.
    #[must_use]
    pub fn in_full(self) -> &'static str {
        self.or_faults("memory accesses", "page faults")
    }

    /// Several of them: `accesses`.
    #[must_use]
    pub fn many(self) -> &'static str {
        self.or_faults("accesses", "page faults")
    }

    /// Several of them where a row is what was sampled: `sampled accesses`.
    #[must_use]
    pub fn sampled(self) -> &'static str {
        self.or_faults("sampled accesses", "page faults")
    }

    /// The first words, or the second ones where page faults are counted.
    #[must_use]
    pub fn or_faults(self, accesses: &'static str, faults: &'static str) -> &'static str {
        match self {
            Counted::Accesses => accesses,
            Counted::PageFaults => faults,
        }
    }
}
