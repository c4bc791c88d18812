//! Detectors against programs whose truth is known: precision and recall of each pattern over sizes and noises, and no false alarm where nothing is wrong.
//! `cargo test -p numapilot-insight --test all -- --nocapture patterns::` prints the table.

mod makers;
mod program;
mod sound;

use std::collections::BTreeMap;

use numapilot_flows::Filter;
use numapilot_insight::{Analysis, Findings, PatternKind};
use numapilot_machine::NodeId;

use makers::{MAKERS, one_node};
use program::{Program, Size};

/// What each detector must reach.
const REQUIRED: f64 = 0.95;
const SAMPLES: [u64; 3] = [4_000, 12_000, 40_000];
const NOISES: [f64; 3] = [0.0, 0.02, 0.05];
const SOUND: u64 = 100;

fn findings(program: &Program) -> Findings {
    let nodes: Vec<NodeId> = program.machine.nodes().iter().map(|node| node.id).collect();
    let memory: Vec<NodeId> = program.machine.nodes().iter().filter(|n| n.has_memory()).map(|n| n.id).collect();
    Analysis::new(&program.trace, &nodes, &memory, Filter::default()).findings(Some(&program.machine))
}

/// The patterns found, each once.
fn kinds(found: &Findings) -> Vec<PatternKind> {
    let mut kinds: Vec<PatternKind> = found.findings.iter().map(|finding| finding.pattern).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[derive(Clone, Copy, Default)]
struct Score {
    right: u32,
    wrong: u32,
    missed: u32,
}

#[test]
fn every_pattern_is_found_and_no_other() {
    let mut scores: BTreeMap<PatternKind, Score> = BTreeMap::new();
    let mut told = String::new();
    for (index, (_, maker)) in MAKERS.iter().enumerate() {
        for (step, samples) in SAMPLES.into_iter().enumerate() {
            for (row, noise) in NOISES.into_iter().enumerate() {
                let seed = (index * 100 + step * 10 + row) as u64;
                let size = Size { samples, noise, rate: [4.0, 5.0, 6.0][(step + row) % 3], seed };
                let program = maker(size);
                let found = kinds(&findings(&program));
                for kind in PatternKind::ALL.into_iter().filter(|kind| !program.unscored.contains(kind)) {
                    let score = scores.entry(kind).or_default();
                    match (program.truth.contains(&kind), found.contains(&kind)) {
                        (true, true) => score.right += 1,
                        (false, true) => score.wrong += 1,
                        (true, false) => score.missed += 1,
                        (false, false) => continue,
                    }
                }
                let known = |kind: &&PatternKind| program.truth.contains(kind) || program.unscored.contains(kind);
                if !found.iter().all(|kind| known(&kind)) || program.truth.iter().any(|kind| !found.contains(kind)) {
                    told += &format!("maker {index}, {size:?}: is {:?}, found {found:?}\n", program.truth);
                }
            }
        }
    }
    eprintln!(
        "{told}\n{:<34} {:>5} {:>5} {:>6} {:>9} {:>7}",
        "PATTERN", "right", "wrong", "missed", "precision", "recall"
    );
    for (kind, Score { right, wrong, missed }) in &scores {
        let (precision, recall) = (share(*right, right + wrong), share(*right, right + missed));
        eprintln!("{:<34} {right:>5} {wrong:>5} {missed:>6} {precision:>9.3} {recall:>7.3}", kind.name());
    }
    for (kind, Score { right, wrong, missed }) in scores {
        assert!(share(right, right + wrong) >= REQUIRED, "precision of {}:\n{told}", kind.name());
        assert!(share(right, right + missed) >= REQUIRED, "recall of {}:\n{told}", kind.name());
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

#[test]
fn no_false_alarm_where_nothing_is_wrong() {
    let mut alarms = String::new();
    for index in 0..SOUND {
        let at = index as usize;
        let size = Size { samples: SAMPLES[at / 5 % 3], noise: NOISES[at / 15 % 3], rate: 4.0, seed: 1000 + index };
        let found = findings(&sound::sound(index, size));
        if found.nothing.is_none() {
            alarms += &format!("program {index}, {size:?}: {:?}\n", kinds(&found));
        }
    }
    let count = alarms.lines().count();
    eprintln!("{count} false alarms in {SOUND} programs without a problem\n{alarms}");
    assert_eq!(count, 0, "{alarms}");
}

/// Local accesses that queue at one controller are no remote ones, and what one node's threads alone use is not shared by several.
#[test]
fn one_node_that_uses_its_own_memory_shares_none() {
    for is_allocator_known in [false, true] {
        let size = Size { samples: 12_000, noise: 0.0, rate: 8.5, seed: 7 };
        let program = one_node(size, is_allocator_known);
        assert_eq!(kinds(&findings(&program)), program.truth, "the allocator is known: {is_allocator_known}");
    }
}
