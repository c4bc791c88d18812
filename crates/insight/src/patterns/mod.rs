//! Named patterns of misplaced memory: small detectors over the flows, one file each. A detector says what it saw, how sure that is, what would change its
//! mind, and which fixes to price; whether one is worth having, `fixes` decides. Definitions, thresholds and where these come from: `docs/patterns.md`.

mod allocator_arenas;
mod alternate_remote;
mod concurrent_read;
mod concurrent_written;
mod false_sharing;
mod finding;
mod hot_page;
mod judge;
mod private_on_shared_pages;
mod process_sharing;
mod remote_after_allocation;
mod saturated_controller;
mod saturated_link;
mod serial_first_touch;
mod threads_moved;
mod tier;

pub use finding::{Confidence, Evidence, Finding, Findings, Nothing, PatternKind, Subject, Unit};

pub(crate) use judge::why_unpriced;

use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::fixes::FixCandidate;
use crate::scene::{MATERIAL, Scene};

/// Samples of a site below which nothing is said of it.
const ENOUGH_SAMPLES: u64 = 30;
/// "Nearly all".
const NEARLY_ALL: f64 = 0.9;

/// What a detector hands on.
pub(crate) struct Draft {
    pub pattern: PatternKind,
    pub subject: Subject,
    /// Share of the threads' time that accesses of this subject take beyond idle local ones.
    pub at_stake: Estimate,
    pub evidence: Vec<Evidence>,
    pub sure: Sure,
    pub would_change: Vec<String>,
    pub candidates: Vec<FixCandidate>,
}

/// The statement that a pattern stands or falls with.
pub(crate) struct Sure {
    pub value: Estimate,
    /// It must be above this (or below, if `below`).
    pub threshold: f64,
    pub below: bool,
    pub what: &'static str,
}

impl Sure {
    pub fn above(value: Estimate, threshold: f64, what: &'static str) -> Sure {
        Sure { value, threshold, below: false, what }
    }

    pub fn below(value: Estimate, threshold: f64, what: &'static str) -> Sure {
        Sure { value, threshold, below: true, what }
    }
}

/// Looks at one site.
type SiteDetector = fn(&Scene<'_>, &SiteFacts, Estimate) -> Option<Draft>;

/// In this order, after false sharing: the first that recognises a site explains it.
const SITE_DETECTORS: [SiteDetector; 9] = [
    hot_page::detect,
    tier::detect,
    private_on_shared_pages::detect,
    allocator_arenas::detect,
    remote_after_allocation::detect,
    serial_first_touch::detect,
    alternate_remote::detect,
    concurrent_read::detect,
    concurrent_written::detect,
];

/// Looks at the whole.
const WHOLE_DETECTORS: [fn(&Scene<'_>) -> Vec<Draft>; 4] =
    [threads_moved::detect, process_sharing::detect, saturated_controller::detect, saturated_link::detect];

/// Everything that any detector sees.
pub(crate) fn drafts(scene: &Scene<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for facts in &scene.sites {
        let at_stake = scene.at_stake(facts.site.0);
        if facts.samples < ENOUGH_SAMPLES || process_sharing::explains(scene, facts) {
            continue;
        }
        let is_material = at_stake.value >= MATERIAL;
        let first = || SITE_DETECTORS.iter().find_map(|detect| detect(scene, facts, at_stake));
        // What lines cost that travel for nothing is all their time, not only what is beyond local.
        drafts.extend(false_sharing::detect(scene, facts).or_else(|| is_material.then(first).flatten()));
    }
    drafts.extend(WHOLE_DETECTORS.iter().flat_map(|detect| detect(scene)));
    drafts
}

fn share(what: &str, value: Estimate) -> Evidence {
    Evidence { what: what.to_owned(), value, unit: Unit::Share }
}

fn number(what: &str, value: f64, unit: Unit) -> Evidence {
    Evidence { what: what.to_owned(), value: Estimate::exact(value), unit }
}
