//! False sharing: nodes use different words of the same cache lines, and at least one of them writes once they are shared. The lines then move between nodes
//! although no data is shared.
//!
//! Words distinguish it from true sharing: nearly all samples of each word come from one node, while the samples of each line come from several.

use numapilot_text::units::whole_percent;

use super::{Criterion, Draft, PatternKind, Scene, Subject, number, share};
use super::{MATERIAL, NEARLY_ALL, Unit};
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts) -> Option<Draft> {
    let at_stake = facts.on_false_shared.scaled(scene.waits(facts.site.0));
    // Below half of the site's accesses, another pattern explains the site better.
    if facts.on_false_shared.value < 0.5 || at_stake.value < MATERIAL {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::FalseSharing,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share(
                "of its accesses are to cache lines of which several nodes use different words",
                facts.on_false_shared,
            ),
            share("of its accesses write after its initialisation", facts.writes),
            number("samples", facts.samples as f64, Unit::Count),
        ],
        criterion: Criterion::above(facts.on_false_shared, 0.5, "share of its accesses to such lines"),
        would_change: vec![format!(
            "several nodes use the same words (a word belongs to a node that makes at least {} of its accesses)",
            whole_percent(NEARLY_ALL)
        )],
        candidates: vec![FixCandidate::of(FixKind::SplitOrAlign, facts)],
    })
}
