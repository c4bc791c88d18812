//! A recognised pattern before its fixes are priced, and the words in which detectors state their evidence.

use super::finding::{Evidence, PatternKind, Subject, Unit};
use crate::estimate::Estimate;
use crate::fixes::FixCandidate;

/// Share, 0 to 1, that counts as nearly all.
pub(super) const NEARLY_ALL: f64 = 0.9;

/// A recognised pattern before its fixes are priced.
pub(crate) struct Draft {
    pub pattern: PatternKind,
    pub subject: Subject,
    /// Share of the threads' time that accesses to this subject take beyond idle local accesses.
    pub at_stake: Estimate,
    pub evidence: Vec<Evidence>,
    pub criterion: Criterion,
    pub would_change: Vec<String>,
    pub candidates: Vec<FixCandidate>,
}

/// The share that decides a pattern, and its threshold.
pub(crate) struct Criterion {
    pub value: Estimate,
    /// The value must lie above it, or below it if `below`.
    pub threshold: f64,
    pub below: bool,
    pub what: &'static str,
}

impl Criterion {
    pub fn above(value: Estimate, threshold: f64, what: &'static str) -> Criterion {
        Criterion { value, threshold, below: false, what }
    }

    pub fn below(value: Estimate, threshold: f64, what: &'static str) -> Criterion {
        Criterion { value, threshold, below: true, what }
    }
}

pub(super) fn share(what: &str, value: Estimate) -> Evidence {
    Evidence { what: what.to_owned(), value, unit: Unit::Share }
}

pub(super) fn number(what: &str, value: f64, unit: Unit) -> Evidence {
    Evidence { what: what.to_owned(), value: Estimate::exact(value), unit }
}
