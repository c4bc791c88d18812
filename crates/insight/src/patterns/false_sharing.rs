//! False sharing: nodes use different words of the same cache lines, somebody writes, and so the lines travel although nothing is shared.
//!
//! Told from true sharing by words: each word's samples come from one node, by far more than the lines' do.

use super::{Draft, PatternKind, Scene, Subject, Sure, number, share};
use super::{MATERIAL, NEARLY_ALL, Unit};
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts) -> Option<Draft> {
    let at_stake = facts.on_false_shared.scaled(scene.waits(facts.site.0));
    // Half of the site's accesses, or else the rest of its use is the better story.
    if facts.on_false_shared.value < 0.5 || at_stake.value < MATERIAL {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::FalseSharing,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses go to lines of which several nodes use different words", facts.on_false_shared),
            share("of them write, once shared", facts.writes),
            number("samples", facts.samples as f64, Unit::Count),
        ],
        sure: Sure::above(facts.on_false_shared, 0.5, "share of its accesses on such lines"),
        would_change: vec![format!(
            "samples of one word from several nodes: {:.0} % from one node is what counts as apart",
            100.0 * NEARLY_ALL
        )],
        candidates: vec![FixCandidate::of(FixKind::SplitOrAlign, facts)],
    })
}
