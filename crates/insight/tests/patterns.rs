//! Detectors against programs whose truth is known: precision and recall of each pattern over sizes and noises, and no false alarm where nothing is wrong.
//! `cargo test -p numapilot-insight --test all -- --nocapture patterns::` prints the table.

mod makers;
mod processes;
mod program;
mod sound;

use std::collections::BTreeMap;

use numapilot_flows::{Filter, ObjectKind};
use numapilot_insight::whatif::{Outlook, PlacementOverride};
use numapilot_insight::{Analysis, Finding, Findings, FixKind, Pattern, PatternKind, Unit};
use numapilot_machine::{Machine, NodeId};
use numapilot_trace::meta::Meta;

use makers::{
    MAKERS, all_remote, consumer_of, each_line_twice, one_node, serial_of, shared_pages_of_64_kib, slots_of_threads,
    tier_in_clusters,
};
use processes::{Reading, readers};
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

/// A recording of a kernel with pages of 64 KiB (arm64): by pages of 4 KiB, no page had several users, and 2 MiB are no size that it has.
#[test]
fn pages_are_shared_that_the_host_has() {
    let program = shared_pages_of_64_kib(Size { samples: 12_000, noise: 0.0, rate: 5.0, seed: 7 });
    let of_pages = |bytes: u64| {
        let host = serde_json::json!({ "page_bytes": bytes }).as_object().cloned().unwrap_or_default();
        let trace = program.trace.clone().with_meta(Meta { host, ..Meta::default() });
        let found = findings(&Program { trace, machine: program.machine.clone(), truth: vec![], unscored: vec![] });
        let is_of_it = |finding: &&Finding| finding.pattern == PatternKind::PrivateOnSharedPages;
        let finding = found.findings.iter().find(is_of_it);
        finding.map(|finding| finding.evidence.iter().map(|evidence| evidence.what.clone()).collect::<Vec<_>>())
    };
    assert_eq!(of_pages(4096), None);
    let evidence = of_pages(65_536).expect("what it is made for");
    assert!(evidence.iter().any(|what| what.contains("64 KiB pages")), "{evidence:?}");
}

/// Shares of the accesses of a whole program are no surer than its samples, however many accesses each of these stands for.
#[test]
fn evidence_is_no_surer_than_the_samples_that_it_is_from() {
    let samples = 4_000;
    for kind in [PatternKind::ThreadsMoved, PatternKind::ProcessWideSharing, PatternKind::TierMisplacement] {
        let (_, maker) = MAKERS.iter().find(|(of, _)| *of == kind).expect("a maker");
        let found = findings(&maker(Size { samples, noise: 0.05, rate: 5.0, seed: 3 }));
        let finding = found.findings.iter().find(|finding| finding.pattern == kind).expect("what it is made for");
        let shares: Vec<_> = finding.evidence.iter().filter(|evidence| evidence.unit == Unit::Share).collect();
        assert!(!shares.is_empty(), "{kind:?}");
        for evidence in shares {
            let value = evidence.value.value;
            let least = 1.9 * (value * (1.0 - value) / samples as f64).sqrt();
            assert!(evidence.value.margin() >= least, "{kind:?}: {evidence:?} of {samples} samples");
        }
    }
}

/// Ten samples that come or stay away together say as much as one.
#[test]
fn evidence_on_slow_memory_is_no_surer_than_the_clusters_that_it_is_from() {
    let share = |per_cluster: u32| {
        let size = Size { samples: 20_000, noise: 0.0, rate: 5.0, seed: 3 };
        let found = findings(&tier_in_clusters(size, per_cluster));
        let is_of_it = |finding: &&Finding| finding.pattern == PatternKind::TierMisplacement;
        let finding = found.findings.iter().find(is_of_it).expect("what it is made for");
        finding.evidence.iter().find(|evidence| evidence.unit == Unit::Share).expect("a share").value
    };
    let (alone, together) = (share(1), share(10));
    assert_eq!(alone.value, together.value);
    let ratio = together.margin() / alone.margin();
    // All of it is on one node: the margin is as the number of draws, not as its root.
    assert!((5.0..20.0).contains(&ratio), "{alone:?} and {together:?}");
}

/// Objects in slow memory could only go away from it as a whole, even where nodes with CPUs are full of accesses or of memory.
#[test]
fn of_memory_that_is_used_often_a_part_may_stay_slow() {
    let found = findings(&tier_in_clusters(Size { samples: 20_000, noise: 0.0, rate: 5.0, seed: 3 }, 1));
    let is_of_it = |finding: &&Finding| finding.pattern == PatternKind::TierMisplacement;
    let finding = found.findings.iter().find(is_of_it).expect("what it is made for");
    assert!(finding.fixes.iter().any(|fix| fix.kind == FixKind::NearTier), "{:?}", finding.fixes);
    let weights = finding.fixes.iter().find_map(|fix| match &fix.kind {
        FixKind::WeightedInterleave(weights) => Some(weights.clone()),
        _ => None,
    });
    let weights = weights.expect("bandwidths that differ");
    assert_eq!(weights.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(weights[0].1 == weights[1].1 && weights[1].1 > 2 * weights[2].1, "{weights:?}");
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

/// Their memory has bandwidth to spare, more than half of which is used: it was said to be what holds them up.
#[test]
fn cpus_at_a_limit_of_their_own_saturate_no_controller() {
    let (_, maker) = MAKERS.iter().find(|(of, _)| *of == PatternKind::SaturatedController).expect("a maker");
    let mut program = maker(Size { samples: 12_000, noise: 0.0, rate: 5.0, seed: 7 });
    let plain = numapilot_machine::builtin_text("opteron-8385").expect("a built-in model");
    // Each access keeps the port of its node busy for six times as long as the controller that serves all four nodes.
    let port = "cpus_read_gb_per_s = { value = 1.2, source = \"made up\" }\nmemory_kind";
    for (text, is_saturated) in [(plain.to_owned(), true), (plain.replace("memory_kind", port), false)] {
        program.machine = Machine::from_model_text(&text, "ports.toml").expect("a sound model");
        let found = kinds(&findings(&program));
        assert_eq!(found.contains(&PatternKind::SaturatedController), is_saturated, "{found:?}");
    }
}

/// 512 MiB with one sample in 40 pages: what is around a page tells who uses it.
#[test]
fn parts_of_large_memory_are_seen_by_few_samples() {
    let program = serial_of(Size { samples: 4_000, noise: 0.0, rate: 5.0, seed: 5 }, 8192);
    let found = findings(&program);
    let finding = found.findings.iter().find(|finding| finding.pattern == PatternKind::SerialFirstTouch);
    let finding = finding.unwrap_or_else(|| panic!("{:?}", kinds(&found)));
    assert_eq!(finding.fixes[0].kind, FixKind::ParallelFirstTouch, "{:?}", finding.fixes);
}

/// A page of memory that processes share is one page, and copies of it after a fork are several, whichever mapping shows them.
#[test]
fn pages_that_processes_share_are_used_by_all_of_them() {
    let size = Size { samples: 12_000, noise: 0.0, rate: 5.0, seed: 9 };
    let shared = [Reading::Whole, Reading::Parts].map(|reading| (ObjectKind::Shared, reading));
    let inherited = [Reading::Whole, Reading::Parts, Reading::Copies].map(|reading| (ObjectKind::Anonymous, reading));
    for (kind, reading) in shared.into_iter().chain(inherited) {
        let program = readers(size, kind, reading);
        let mut found = kinds(&findings(&program));
        found.retain(|kind| !matches!(kind, PatternKind::SaturatedController | PatternKind::SaturatedLink));
        assert_eq!(found, program.truth[..1], "{kind:?}, {reading:?}");
    }
}

/// A process that maps what another has filled has allocated nothing.
#[test]
fn who_maps_shared_memory_again_does_not_allocate_it() {
    let size = Size { samples: 4_000, noise: 0.0, rate: 5.0, seed: 9 };
    for (kind, is_known) in [(ObjectKind::Shared, false), (ObjectKind::Anonymous, true)] {
        let program = readers(size, kind, Reading::Whole);
        let analysis = Analysis::on(&program.trace, Some(&program.machine), Filter::default());
        let row = analysis.sites().into_iter().find(|row| row.name == "table").expect("the table");
        assert_eq!(row.by_allocator.is_some(), is_known, "{kind:?}");
        assert_eq!(row.pattern, Pattern::SharedRead, "{kind:?}");
    }
}

/// Lines that are only read stay in the caches of all nodes: the write that filled them moves none.
#[test]
fn words_that_are_only_read_once_they_are_filled_are_not_falsely_shared() {
    for written in [false, true] {
        let size = Size { samples: 12_000, noise: 0.0, rate: 5.0, seed: 21 };
        let found = kinds(&findings(&slots_of_threads(size, written)));
        assert_eq!(found.contains(&PatternKind::FalseSharing), written, "{found:?}");
    }
}

/// Lines of its own save a node no first access to a line: of two accesses to each, the price had both answered by caches.
#[test]
fn aligning_saves_no_first_access() {
    let program = each_line_twice();
    let analysis = Analysis::on(&program.trace, Some(&program.machine), Filter::default());
    let align = PlacementOverride::read(&program.trace, "counters=align").expect("a change");
    let answer = analysis.what_if(&program.machine, &[align]).expect("a prediction");
    let accesses = |outlook: &Outlook| outlook.total.accesses.iter().flatten().sum::<f64>();
    let left = accesses(&answer.then) / accesses(&answer.now);
    assert!((0.49..0.55).contains(&left), "{left} of the accesses are left");
}

/// A processor's samples show no waits: a thread of which there are none does not work all the time for that.
#[test]
fn a_thread_that_waits_for_all_others_holds_no_gain_back() {
    let size = Size { samples: 40_000, noise: 0.0, rate: 6.0, seed: 11 };
    let gain = |waits: bool| {
        let program = all_remote(size, waits);
        let analysis = Analysis::on(&program.trace, Some(&program.machine), Filter::default());
        let users = PlacementOverride::read(&program.trace, "*=users").expect("a change");
        analysis.what_if(&program.machine, &[users]).expect("a prediction").gain.value
    };
    let (without, with) = (gain(false), gain(true));
    assert!(without > 0.1 && (with / without - 1.0).abs() < 0.1, "{without} without the main thread, {with} with it");
}

/// A node of the machine has far less than a terabyte.
#[test]
fn nothing_is_put_where_it_does_not_fit() {
    let size = Size { samples: 12_000, noise: 0.0, rate: 5.0, seed: 5 };
    for (bytes, fits) in [(1 << 30, true), (1 << 40, false)] {
        let program = consumer_of(size, bytes);
        let found = findings(&program);
        let fixes = found.findings.iter().flat_map(|finding| &finding.fixes);
        let on_node = fixes.filter(|fix| matches!(fix.kind, FixKind::AllocateOnNode(_))).count();
        assert_eq!(on_node > 0, fits, "{bytes} bytes: {:?}", kinds(&found));
        let analysis = Analysis::on(&program.trace, Some(&program.machine), Filter::default());
        let bound = PlacementOverride::read(&program.trace, "input=bind:2").expect("a change");
        let answer = analysis.what_if(&program.machine, &[bound]).expect("a prediction");
        let says = answer.cannot_say.iter().any(|why| why.starts_with("input: bind:2 takes 1.00 TiB, of which "));
        assert_eq!(says, !fits, "{:?}", answer.cannot_say);
    }
}
