//! Concurrent, read-mostly: several nodes read an object at the same time, and hardly any access writes after its initialisation.
//!
//! The tolerable share of writes follows from costs. A write to a replicated page invalidates its copies, and each has to be made again. A copy saves, per
//! read, at least the difference between the idle remote and the idle local latency. Above the share of writes at which both are equal, copies lose.

use numapilot_text::units::significant_percent;

use super::{Criterion, Draft, ENOUGH_SAMPLES, PatternKind, Scene, Subject, Unit, number, share};
use crate::estimate::{Estimate, draws_without};
use crate::facts::SiteFacts;
use crate::fixes::{FixCandidate, FixKind, copies, costs};

pub(super) fn detect(scene: &Scene<'_>, facts: &SiteFacts, at_stake: Estimate) -> Option<Draft> {
    if !is_concurrent(facts) {
        return None;
    }
    let most = writes_allowed(scene);
    let bound = writes_bound(facts);
    if facts.write_samples > 0 && bound.high >= most {
        return None;
    }
    Some(Draft {
        pattern: PatternKind::ConcurrentReadMostly,
        subject: Subject::Site(facts.site),
        at_stake,
        evidence: vec![
            share("of its accesses write after its initialisation (95 % bound)", bound),
            share(
                "is the highest share of writes at which a copy per node gains on this machine",
                Estimate::exact(most),
            ),
            number("nodes that use it at the same time", users(facts) as f64, Unit::Count),
            number("samples after its initialisation", facts.after_samples as f64, Unit::Count),
        ],
        criterion: Criterion::below(bound, most, "share of writes"),
        would_change: vec![format!(
            "the program writes it after its initialisation: look for a write in the source, or record longer ({:.0} samples without a write would lower \
             the bound to {})",
            3.0 / most,
            significant_percent(most)
        )],
        candidates: vec![FixCandidate::of(FixKind::Replicate, facts), FixCandidate::of(FixKind::Interleave, facts)],
    })
}

/// Share of writes up to which a copy on every node gains on an idle machine.
pub(super) fn writes_allowed(scene: &Scene<'_>) -> f64 {
    let per_write_ns = costs::COLLAPSE_NS + copies(scene.machine) as f64 * costs::MOVE_SMALL_NS;
    let saving_ns = scene.idle_saving_ns();
    saving_ns / (saving_ns + per_write_ns)
}

/// The share of writes with its 95 % bound, which is 3 over the number of samples where no sample writes; samples of one cluster count as one.
fn writes_bound(facts: &SiteFacts) -> Estimate {
    if facts.write_samples > 0 {
        return facts.writes;
    }
    let draws = draws_without(facts.writes).min(facts.after_samples as f64).max(1.0);
    Estimate { value: 0.0, low: 0.0, high: (3.0 / draws).min(1.0) }
}

/// Whether there are enough samples after the initialisation to say that several nodes use the object then. An object that one node uses has none.
pub(super) fn is_concurrent(facts: &SiteFacts) -> bool {
    facts.after_samples >= ENOUGH_SAMPLES && users(facts) > 1
}

/// Number of nodes that make at least half of an even share of the accesses.
pub(super) fn users(facts: &SiteFacts) -> usize {
    let all: f64 = facts.from.iter().sum();
    let some = facts.from.iter().filter(|count| **count > 0.0).count().max(1) as f64;
    facts.from.iter().filter(|count| **count >= 0.5 * all / some).count()
}

#[cfg(test)]
mod tests {
    use numapilot_flows::AccessRef;

    use super::*;
    use crate::estimate::Tally;

    /// A thousand reads of ten cache lines do not say of a thousand lines that nobody writes them.
    #[test]
    fn samples_that_are_drawn_together_bound_writes_as_one() {
        let bound = |per_cluster: f64| {
            let mut all = Tally::default();
            (0..1000).for_each(|_| all.add(AccessRef { weight: 10, cluster: 10.0 * per_cluster, ..AccessRef::at(0) }));
            let writes = Tally::default().share_of(&all);
            writes_bound(&SiteFacts { after_samples: 1000, writes, ..SiteFacts::default() }).high
        };
        assert_eq!(bound(1.0), 0.003);
        assert!((bound(100.0) - 0.3).abs() < 0.001, "{}", bound(100.0));
    }
}
