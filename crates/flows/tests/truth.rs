//! Attribution against generated recordings whose truth is known: every access must get the right instance.

use crate::common;
use numapilot_flows::{ObjectKind, Trace, finalise};

/// All accesses of the trace against `expected`; the number compared.
fn compare(trace: &Trace, expected: &[common::Expected]) -> usize {
    assert_eq!(trace.accesses().len(), expected.len());
    let mut known = 0;
    for (access, expected) in trace.accesses().zip(expected) {
        assert_eq!(access.time.0, expected.time);
        let birth = access.object.and_then(|object| trace.object(object)).map(|object| object.birth.0);
        assert_eq!(birth, expected.birth, "access at {} ns to {:#x}", access.time.0, access.address.0);
        known += usize::from(birth.is_some());
    }
    known
}

fn check(seed: u64, threads: usize, allocations: u64, accesses_each: usize) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("generated.numatrace");
    let expected = common::generate(&dir, seed, threads, allocations, accesses_each);
    let summary = finalise(&dir).expect("the recording can be joined");
    assert_eq!(summary.samples as usize, expected.len(), "seed {seed}");
    let trace = Trace::open(&dir).expect("the tables can be opened");
    let known = compare(&trace, &expected);
    assert!(known * 100 > expected.len() * 95, "most accesses reach a block");
    assert_eq!(trace.losses().inconsistent_records, 0, "seed {seed}");
    let heap = trace.objects().iter().filter(|object| trace.kind_of(Some(object.id)) == ObjectKind::Heap).count();
    assert!(heap as u64 >= allocations);
    for thread in trace.threads() {
        let flow: Vec<_> = trace.tef(thread.index).collect();
        assert!(flow.is_sorted_by_key(|access| access.row) && flow.iter().all(|access| access.thread == thread.index));
    }
}

#[test]
fn a_million_allocations_by_64_threads_with_reuse_realloc_and_forks() {
    check(1, 64, 1_000_000, 1);
}

#[test]
fn small_programs_of_many_seeds() {
    for seed in 2..42 {
        check(seed, 1 + seed as usize % 7, 300, 5);
    }
}

#[test]
fn a_killed_recording_is_rebuilt_at_opening_and_other_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("killed.numatrace");
    let expected = common::generate(&dir, 7, 8, 2000, 2);
    let trace = Trace::open(&dir).expect("raw/ alone is enough");
    assert!(trace.was_rebuilt());
    compare(&trace, &expected);
    assert!(!Trace::open(&dir).unwrap().was_rebuilt(), "the tables are there now");
    let error = Trace::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("is not a trace") && error.contains("numapilot record"), "{error}");
    let error = Trace::open(&folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("does not exist") && error.contains("numapilot record"), "{error}");
    std::fs::write(dir.join("objects.parquet"), b"foreign").unwrap();
    let error = Trace::open(&dir).unwrap_err().to_string();
    assert!(error.contains("objects.parquet") && error.contains("raw/"), "{error}");
}

#[test]
fn a_torn_recording_keeps_its_whole_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("torn.numatrace");
    let expected = common::generate(&dir, 9, 4, 20_000, 2);
    let raw = dir.join("raw");
    let file = std::fs::read_dir(&raw).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    for keep in [bytes.len() / 2, bytes.len() - 3, bytes.len() / 3 + 1] {
        std::fs::write(&file, &bytes[..keep]).unwrap();
        let summary = finalise(&dir).expect("what is left can be joined");
        assert!(summary.interrupted && summary.samples > 0);
        // Only the end of the session was cut off the second time.
        assert_eq!(summary.samples as usize == expected.len(), keep == bytes.len() - 3);
        assert!(summary.losses.torn_chunks > 0 || summary.losses.damaged_chunks > 0, "{:?}", summary.losses);
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.accesses().len() as u64, summary.samples);
        assert!(trace.losses().records_lost());
    }
}
