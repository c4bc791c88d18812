//! Named patterns of misplaced memory: small detectors over the flows, one file each. A detector names its evidence, the share that decides, what would
//! refute the finding, and which fixes to price; the gains of these decide whether it is shown. Definitions and thresholds: `docs/patterns.md`.

mod allocator_arenas;
mod alternate_remote;
mod concurrent_read;
mod concurrent_written;
mod draft;
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

pub use finding::{
    Confidence, Evidence, Finding, Findings, Nothing, OF_ITS_ACCESSES_REMOTE, PatternKind, Subject, Unit,
};

pub(crate) use draft::{Criterion, Draft};
pub(crate) use judge::{limits_of, paced, too_few, why_unpriced};

use draft::{NEARLY_ALL, number, share};

use crate::estimate::Estimate;
use crate::facts::SiteFacts;
use crate::scene::{MATERIAL, Scene};
use crate::totals::ENOUGH_SAMPLES;

/// Recognises a pattern in one site. The estimate is the site's share of the threads' time at stake.
type SiteDetector = fn(&Scene<'_>, &SiteFacts, Estimate) -> Option<Draft>;

/// Detectors that explain a site whatever its share of remote accesses, in order: the first that recognises it explains it.
const LOCAL_OR_REMOTE_DETECTORS: [SiteDetector; 2] = [hot_page::detect, tier::detect];

/// Detectors that explain why a site's accesses are remote, in order, after those. They are not asked about a site whose accesses are nearly all local: where
/// it costs time all the same, accesses queue at a controller, and that is another finding.
const REMOTE_DETECTORS: [SiteDetector; 7] = [
    private_on_shared_pages::detect,
    allocator_arenas::detect,
    remote_after_allocation::detect,
    serial_first_touch::detect,
    alternate_remote::detect,
    concurrent_read::detect,
    concurrent_written::detect,
];

/// Detectors of patterns of the whole recording: threads, processes, controllers and links.
const WHOLE_DETECTORS: [fn(&Scene<'_>) -> Vec<Draft>; 4] =
    [threads_moved::detect, process_sharing::detect, saturated_controller::detect, saturated_link::detect];

/// Whether more of a site's accesses are remote than of one that reports call local already.
fn is_remote(facts: &SiteFacts) -> bool {
    facts.remote.value > 1.0 - NEARLY_ALL
}

/// All patterns that the detectors recognise, before fixes are priced.
pub(crate) fn drafts(scene: &Scene<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for facts in &scene.sites {
        let at_stake = scene.at_stake(facts.site.0);
        if facts.samples < ENOUGH_SAMPLES {
            continue;
        }
        let is_material = at_stake.value >= MATERIAL;
        let of_remote = if is_remote(facts) { &REMOTE_DETECTORS[..] } else { &[] };
        let first =
            || LOCAL_OR_REMOTE_DETECTORS.iter().chain(of_remote).find_map(|detect| detect(scene, facts, at_stake));
        // False sharing costs all the time of these accesses, not only their time beyond idle local latency.
        drafts.extend(false_sharing::detect(scene, facts).or_else(|| is_material.then(first).flatten()));
    }
    drafts.extend(WHOLE_DETECTORS.iter().flat_map(|detect| detect(scene)));
    drafts
}
