//! The ready-made queries, byte for byte against a straight computation over the raw tables, on traces of every kind.

#[path = "common/straight.rs"]
mod straight;

use std::path::Path;

use crate::common::{Raw, answer, scratch, text, trace};
use numapilot_fixtures::Kind;

/// A script's answer on a trace must be the straight one.
fn agree(kind: Kind, accesses: u64, objects: u32, seed: u64) {
    let folder = scratch();
    let path = folder.path().join("made.numatrace");
    trace(kind, accesses, objects, seed, &path);
    let raw = Raw::read(&path);
    for (name, straight) in straight::ALL {
        let found = answer(&[text(&path), "--run", name, "--format", "csv"]);
        let expected = straight(&raw);
        let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        assert!(found == expected, "{name} on {} (seed {seed}): {differs:#?}", kind.word());
    }
}

#[test]
fn on_traces_with_losses_and_unknown_objects() {
    agree(Kind::Losses, 6000, 300, 7);
}

#[test]
fn on_traces_with_measured_latencies_and_cache_hits() {
    agree(Kind::Latency, 6000, 200, 11);
}

#[test]
fn on_traces_with_names_that_need_quotes() {
    agree(Kind::HostileNames, 4000, 400, 5);
}

#[test]
fn on_traces_with_next_to_nothing() {
    agree(Kind::Empty, 0, 0, 1);
    agree(Kind::OneAccess, 1, 1, 1);
    agree(Kind::OneThread, 500, 50, 3);
}

/// What the scripts in C print, and those in Python, on recordings of real programs.
#[test]
fn on_recordings_as_in_every_other_language() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["psearchy", "webserver"] {
        let recording = root.join(format!("testdata/traces/{name}.numatrace"));
        let raw = Raw::read(&recording);
        for (script, straight) in straight::ALL {
            let kept = root.join(format!("scripts/golden/{name}-{script}.csv"));
            let kept = std::fs::read_to_string(kept).expect("kept");
            let found = answer(&[text(&recording), "--run", script, "--format", "csv"]);
            assert!(found == kept, "{script} on {name} in SQL");
            assert!(straight(&raw) == kept, "{script} on {name}, computed straight");
        }
    }
}

/// An hour of a large server: a million times the sum does not fit in 64 bits, and the engine does not complain.
#[test]
fn shares_of_many_accesses_are_exact() {
    let folder = scratch();
    let path = folder.path().join("made.numatrace");
    trace(Kind::Latency, 6000, 200, 11, &path);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/remote.sql");
    let script = std::fs::read_to_string(script).expect("the script");
    for (part, ppm) in [("true", 1_000_000), ("place % 3 = 0", 333_333)] {
        let rows = "select row_number() over () as place from accesses limit 3000";
        let tef = format!(
            "with tef as (select {part} as is_remote, true as is_memory_access, 4294967295 as weight from ({rows}) x), sums"
        );
        let sql = script.replacen("with sums", &tef, 1);
        // What begins with two dashes is taken for an option.
        let sql = &sql[sql.find("with tef").expect("the query")..];
        let found = answer(&[text(&path), sql, "--format", "csv"]);
        assert!(found.trim_end().ends_with(&format!(",{ppm}")), "{part}: {found}");
    }
}

#[test]
fn pattern_takes_a_site_or_an_instance() {
    let folder = scratch();
    let path = folder.path().join("made.numatrace");
    trace(Kind::Losses, 3000, 100, 9, &path);
    let raw = Raw::read(&path);
    let all = answer(&[text(&path), "--run", "pattern", "--format", "csv"]);
    let object = raw.accesses.object.iter().flatten().next().copied().expect("an access to a known object");
    let site = raw.objects.site[object as usize];
    let of_site = answer(&[text(&path), "--run", "pattern", "--set", &format!("site=S{site}"), "--format", "csv"]);
    let mine = format!("{site},");
    let expected: Vec<&str> = all.lines().filter(|line| line.starts_with("site,") || line.starts_with(&mine)).collect();
    assert_eq!(of_site.lines().collect::<Vec<_>>(), expected);
    let of_object = answer(&[text(&path), "--run", "pattern", "--set", &format!("object={object}"), "--format", "csv"]);
    let samples: u64 = of_object
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(5).expect("samples").parse::<u64>().expect("a number"))
        .sum();
    let is_counted =
        |row: usize| raw.accesses.object[row] == Some(object) && !matches!(raw.accesses.level[row], 1 | 2 | 3 | 6);
    assert_eq!(samples, (0..raw.accesses.object.len()).filter(|&row| is_counted(row)).count() as u64);
}
