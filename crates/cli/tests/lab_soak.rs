//! A daemon that manages a whole guest of the lab for a long time, with programs that start and end and clients that control it: its memory, descriptors and
//! threads must not grow, and no program's output may change. A minute by default; `NUMAPILOT_SOAK_MINUTES=60` or `tools/soak` for longer ones.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Lab, Topology};

/// The daemon's size in a quiet moment.
#[derive(Clone, Copy, Debug)]
struct Size {
    at_s: u64,
    resident_kib: u64,
    anonymous_kib: u64,
    /// File descriptors, but the process descriptors (pidfd) of processes that live or have just ended.
    descriptors: u64,
    threads: u64,
    ran_ms: u64,
}

fn size(line: &str) -> Option<Size> {
    let numbers: Vec<u64> =
        line.strip_prefix("SIZE ")?.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [at_s, resident_kib, anonymous_kib, descriptors, threads, ran_ms] = numbers[..] else { return None };
    Some(Size { at_s, resident_kib, anonymous_kib, descriptors, threads, ran_ms })
}

/// Least number of quiet moments at which quarters of the run are compared, not halves.
const LONG: usize = 16;

/// What grew. Of a long run between the second quarter (the first is for warming up) and the last: medians, since a quiet moment may have a straggler. Of a
/// short one between its halves, where all moments of the second one must be above all of the first.
fn growth(sizes: &[Size]) -> Vec<String> {
    let is_long = sizes.len() >= LONG;
    let part = if is_long { sizes.len() / 4 } else { sizes.len() / 2 };
    let (early, late) = (if is_long { &sizes[part..2 * part] } else { &sizes[..part] }, &sizes[sizes.len() - part..]);
    let at = |of: fn(&Size) -> u64, sizes: &[Size], place: fn(usize) -> usize| {
        let mut all: Vec<u64> = sizes.iter().map(of).collect();
        all.sort_unstable();
        all[place(all.len())]
    };
    // Memory is given out in pieces, and the table of pages fills up to what there is to remember: a sixteenth more, or 1 MiB. A short run is all warming
    // up: a quarter more. Descriptors and threads: none.
    let of_memory = if is_long { 16 } else { 4 };
    type Figure = (&'static str, fn(&Size) -> u64, u64);
    let figures: [Figure; 3] = [
        ("anonymous KiB", |size| size.anonymous_kib, 1024),
        ("descriptors", |size| size.descriptors, 0),
        ("threads", |size| size.threads, 0),
    ];
    let mut grew = Vec::new();
    for (name, of, room) in figures {
        let (early, late) = match is_long {
            true => (at(of, early, |count| count / 2), at(of, late, |count| count / 2)),
            false => (at(of, early, |count| count - 1), at(of, late, |_| 0)),
        };
        let allowed = early + room.max(if room > 0 { early / of_memory } else { 0 });
        if late > allowed {
            grew.push(format!("{name}: {early} early on, {late} at the end"));
        }
    }
    grew
}

#[test]
fn a_daemon_does_not_grow_and_changes_no_output() {
    if !numapilot_lab::wanted("the soak") {
        return;
    }
    let minutes: f64 = std::env::var("NUMAPILOT_SOAK_MINUTES").map_or(1.0, |text| text.parse().expect("minutes"));
    let folder = scratch();
    let moves = build_plain(folder.path(), "moves", include_str!("programs/moves.c"), &[]);
    let seconds = (minutes * 60.0) as u64;
    let script = format!(
        "seconds={seconds} length={} moves={} numapilot={BINARY}\n{}",
        if minutes > 5.0 { 12 } else { 4 },
        moves.display(),
        include_str!("programs/soak.sh")
    );
    // Emulated time runs slower than this clock where the host is busy.
    let lab = Lab::new(Topology::symmetric(4)).time_limit(Duration::from_secs(900 + 9 * seconds)).stream(minutes > 5.0);
    let lab = lab.icount(minutes <= 5.0);
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    let failures: Vec<&str> = outcome.stdout.lines().filter(|line| line.contains("FAILED")).collect();
    assert!(failures.is_empty(), "{failures:?}");
    let mut sums: Vec<&str> =
        outcome.stdout.lines().filter(|line| line.starts_with("SUM ") && !line.contains("churn")).collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 3, "every run of a program has the same checksum: {sums:?}");
    let sizes: Vec<Size> = outcome.stdout.lines().filter_map(size).collect();
    assert!(sizes.len() >= 4, "{} quiet moments", sizes.len());
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let share = 0.1 * (last.ran_ms - first.ran_ms) as f64 / (last.at_s - first.at_s).max(1) as f64;
    eprintln!(
        "{} rounds in {} s: {} to {} KiB resident, {} to {} descriptors, {} to {} threads, {share:.2} % of a (emulated) CPU",
        sizes.len(),
        last.at_s,
        first.resident_kib,
        last.resident_kib,
        first.descriptors,
        last.descriptors,
        first.threads,
        last.threads
    );
    let grew = growth(&sizes);
    assert!(grew.is_empty(), "the daemon grew: {grew:?}\n{sizes:?}");
}

#[test]
fn growth_is_seen() {
    let size = |at_s: u64, anonymous_kib, descriptors| Size {
        at_s,
        resident_kib: 0,
        anonymous_kib,
        descriptors,
        threads: 3,
        ran_ms: 0,
    };
    let steady: Vec<Size> = (0..40).map(|at| size(at, 5000 + at % 7, 20)).collect();
    assert!(growth(&steady).is_empty());
    let leaking: Vec<Size> = (0..40).map(|at| size(at, 5000 + at * 60, 20 + at / 20)).collect();
    assert_eq!(growth(&leaking).len(), 2, "{:?}", growth(&leaking));
    // A minute of it: moments that differ by a straggler are no growth, one more descriptor with every round is.
    let straggling: Vec<Size> = [34, 31, 33, 32, 32, 32, 34].iter().map(|count| size(0, 5000, *count)).collect();
    assert!(growth(&straggling).is_empty());
    let leaking: Vec<Size> = (0..7).map(|at| size(at, 5000 + at * 1200, 20 + at)).collect();
    assert_eq!(growth(&leaking).len(), 2, "{:?}", growth(&leaking));
}
