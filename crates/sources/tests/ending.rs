//! Threads that are alive when their process ends have their end and their exact totals in the trace all the same.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use crate::support::*;
use numapilot_trace::record::Counters;
use numapilot_trace::record::Event;
use numapilot_wrapper::Language;
use numapilot_wrapper::command;

const WORKERS: usize = 4;
const STORES: u64 = 50_000;

/// Every thread's last totals, and the threads that ended.
fn outcome(lab: &Lab) -> (BTreeMap<u32, Counters>, BTreeSet<u32>) {
    let (mut totals, mut ended) = (BTreeMap::new(), BTreeSet::new());
    let trace = lab.open();
    let mut merge = trace.merge();
    for record in merge.by_ref() {
        let record = record.expect("a readable trace");
        match record.event {
            Event::Counters(counters) => {
                assert!(!ended.contains(&record.thread.0), "totals after the end of thread {}", record.thread.0);
                totals.insert(record.thread.0, *counters);
            }
            Event::ThreadEnd { index } => {
                assert_eq!(index, record.thread);
                assert!(ended.insert(index.0), "thread {} ended twice", index.0);
            }
            _ => {}
        }
    }
    assert!(merge.problems().is_empty(), "{:?}", merge.problems());
    (totals, ended)
}

fn instrumented(lab: &Lab) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/workers.c");
    let program = lab.path("workers");
    let words: [OsString; 5] = ["-O1".into(), "-pthread".into(), "-o".into(), program.clone().into(), source.into()];
    let output = command(&Language::C.into(), &words).expect("a compiler").0.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.to_str().expect("UTF-8").to_owned()
}

#[test]
fn threads_alive_at_exit_have_their_exact_totals() {
    let stores = STORES.to_string();
    for (how, last_word) in [("returns", None), ("is killed", Some("kill"))] {
        let lab = Lab::new();
        let program = instrumented(&lab);
        let mut words = vec![program.as_str(), "4", &stores];
        words.extend(last_word);
        let output = lab.record(&["engine=instrument"], &words);
        assert_eq!(output.status.code(), Some(if last_word.is_some() { 137 } else { 0 }), "{}", lab.result());
        let (totals, ended) = outcome(&lab);
        assert_eq!(ended.len(), WORKERS + 1, "where main {how}: {ended:?}");
        assert_eq!(totals.len(), WORKERS + 1, "where main {how}: {totals:?}");
        for worker in 1..=WORKERS as u32 {
            let counters = &totals[&worker];
            assert!((STORES..STORES + STORES / 2).contains(&counters.accesses), "where main {how}: {counters:?}");
            assert!(counters.memory_accesses > 0, "where main {how}: {counters:?}");
            assert_eq!(counters.by_home.iter().sum::<u64>(), counters.memory_accesses, "where main {how}");
        }
        assert_eq!(lab.result()["quarantined"], 0);
    }
}

#[test]
fn the_images_that_exec_replaces_end_once() {
    let lab = Lab::new();
    assert_eq!(lab.record(&[], &[busy(), "exec", "3", "500"]).status.code(), Some(0));
    let (totals, ended) = outcome(&lab);
    assert_eq!((ended.len(), totals.len()), (4, 0), "{ended:?}, {totals:?}");
}
