//! Whole recordings of real programs: what arrives, and that the program never notices.

use std::fs;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::support::*;
use numapilot_scratch::write_program;
use numapilot_trace::record::Event;

fn allocations(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Alloc { .. })).count()
}

#[test]
fn a_simple_program_is_recorded_whole_and_unchanged() {
    let lab = Lab::new();
    let output = lab.record(&[], &[busy(), "pairs", "20000", "3"]);
    assert_eq!((String::from_utf8(output.stdout).unwrap(), output.status.code()), alone(&["pairs", "20000", "3"]));
    assert_eq!(output.stderr, b"");
    let result = lab.result();
    assert_eq!((result["engine"].as_str(), result["lost"].as_u64()), (Some("track"), Some(0)), "{result}");
    assert!(result["refusals"][0].as_str().unwrap().contains("numapilot cc"), "{result}");
    let events = lab.events();
    assert!(allocations(&events) >= 20_000);
    assert_eq!(result["progress_records"], result["records"], "the last word of the progress is the outcome");
    let trace = lab.open();
    assert_eq!(trace.end().unwrap().wait_status, Some(3 << 8));
    assert_eq!(trace.start().command[1..], ["pairs", "20000", "3"]);
    assert_eq!(trace.start().machine["name"], "opteron-8385");
}

#[test]
fn threads_small_rings_and_few_slots() {
    let lab = Lab::new();
    let output = lab.record(&["ring=65536"], &[busy(), "threads", "8", "20000"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), alone(&["threads", "8", "20000"]).0);
    let result = lab.result();
    assert_eq!((result["threads"].as_u64(), result["lost"].as_u64()), (Some(9), Some(0)), "{result}");
    assert!(allocations(&lab.events()) >= 160_000);
    let lab = Lab::new();
    let output = lab.record(&["slots=3"], &[busy(), "threads", "8", "2000"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), alone(&["threads", "8", "2000"]).0);
    let result = lab.result();
    assert!(result["lost"].as_u64() > Some(0) && result["notes"].to_string().contains("--max-threads"), "{result}");
}

/// Make sure that what a thread frees after its own end is kept: the C library takes the storage of detached threads down in them, last of all.
#[test]
fn short_detached_threads_lose_nothing() {
    for (count, threads) in [("160", 161), ("2000", 2001)] {
        let lab = Lab::new();
        let output = lab.record(&["slots=4096"], &[busy(), "detached", count, "50"]);
        assert_eq!(output.status.code(), Some(0));
        let result = lab.result();
        assert_eq!((result["threads"].as_u64(), result["lost"].as_u64()), (Some(threads), Some(0)), "{result}");
        let events = lab.events();
        let number = |pick: fn(&Event) -> bool| events.iter().filter(|event| pick(event)).count() as u64;
        assert_eq!(number(|event| matches!(event, Event::ThreadEnd { .. })), threads);
        let orphans = number(|event| matches!(event, Event::ThreadStart { parent: None, .. }));
        assert_eq!(orphans, 1, "{count}: only the first thread has no creator");
    }
}

/// Make sure that a machine whose counters do not agree is recorded as exactly as any, and that the trace says how.
#[test]
fn a_sequence_in_memory_orders_events_too() {
    let lab = Lab::new();
    let mut command = lab.command(&[], &[busy(), "threads", "8", "20000"]);
    let output = command.env("NUMAPILOT_ORDER", "sequence").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), alone(&["threads", "8", "20000"]).0);
    let result = lab.result();
    assert_eq!((result["threads"].as_u64(), result["lost"].as_u64()), (Some(9), Some(0)), "{result}");
    assert!(result["notes"].to_string().contains("shared counter"), "{result}");
    let trace = lab.open();
    let (start, end) = (trace.start(), trace.end().unwrap());
    assert_eq!((start.config["order"].as_str(), start.start_order, start.order_khz), (Some("sequence"), 0, 0));
    assert_eq!(start.clock_khz, 1_000_000, "nanoseconds");
    assert!(end.more["order_khz"].is_null(), "a sequence has no rate: {end:?}");
    let mut live = std::collections::HashMap::new();
    let (mut seen, mut freed) = (std::collections::HashSet::new(), 0);
    for record in trace.merge() {
        let record = record.expect("a readable trace");
        let span = end.end_monotonic_ns - start.start_monotonic_ns;
        assert!(record.stamp.time.0 <= span, "{record:?} is after the end, {span} ns");
        match record.event {
            Event::Alloc { address, .. } => {
                assert!(live.insert(address, record.thread).is_none(), "{record:?} was made while it lived");
            }
            Event::Free { address } => {
                freed += 1;
                assert!(live.remove(&address).is_some(), "{record:?} was freed unknown");
            }
            _ => continue,
        }
        assert!(seen.insert(record.stamp.order), "a stamp was given twice: {record:?}");
    }
    assert!(freed >= 160_000, "{freed}");
    let summary = numapilot_flows::finalise(&lab.trace()).expect("tables");
    let losses = &summary.losses;
    assert_eq!(
        (losses.unmatched_frees, losses.inconsistent_records, losses.records_lost()),
        (0, 0, false),
        "{losses:?}"
    );
    let meta: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(lab.trace().join("meta.json")).unwrap()).unwrap();
    assert_eq!((&meta["clock"]["source"], &meta["clock"]["khz"]), (&"monotonic".into(), &1_000_000.into()), "{meta}");
    assert!(meta["notes"].to_string().contains("shared counter"), "{meta}");
}

#[test]
fn forked_and_executed_processes_are_recorded_too() {
    let lab = Lab::new();
    assert_eq!(lab.record(&[], &[busy(), "tree", "3", "500"]).status.code(), Some(0));
    let events = lab.events();
    let processes = events.iter().filter(|event| matches!(event, Event::ProcessStart { .. })).count();
    assert_eq!(processes, 15, "a tree of depth 3");
    assert!(allocations(&events) >= 15 * 500);
    let lab = Lab::new();
    let output = lab.record(&[], &[busy(), "exec", "4", "500"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), alone(&["exec", "4", "500"]).0);
    let events = lab.events();
    let images = events.iter().filter(|event| matches!(event, Event::ProcessStart { by_exec: true, .. })).count();
    assert_eq!(images, 4, "four images after the first");
    assert!(allocations(&events) >= 5 * 500);
}

#[test]
fn a_crash_loses_nothing_that_was_written() {
    let lab = Lab::new();
    let output = lab.record(&[], &[busy(), "crash", "3000"]);
    assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV));
    assert_eq!(lab.result()["exit"], format!("Signal({})", libc::SIGSEGV));
    let events = lab.events();
    let last = events.iter().any(|event| matches!(event, Event::Alloc { bytes: 123_457, .. }));
    assert!(last, "the block before the crash is missing among {} events", events.len());
}

#[test]
fn streams_belong_to_the_program() {
    let lab = Lab::new();
    let mut child = lab.command(&[], &["cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..64 {
            std::io::Write::write_all(&mut stdin, &[b'x'; 1 << 20]).unwrap();
        }
    });
    let text = rest(&mut child);
    writer.join().unwrap();
    assert_eq!(text.len(), 64 << 20);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn scripts_are_recorded_through_their_interpreter() {
    let lab = Lab::new();
    let script = lab.path("script");
    write_program(&script, &format!("#!/bin/sh\n{} pairs 3000 || exit 1\nexit 9\n", busy()));
    assert_eq!(lab.record(&[], &[script.to_str().unwrap()]).status.code(), Some(9));
    assert!(lab.result()["notes"].to_string().contains("is a script"));
    assert!(allocations(&lab.events()) >= 3000);
}

#[test]
fn what_cannot_be_recorded_says_why_and_leaves_nothing_behind() {
    let cases: &[(&[&str], &[&str], i32, &str)] = &[
        (&[], &["/no/such/program"], 127, "not found"),
        (&[], &["no-such-program"], 127, "PATH"),
        (&[], &[], 2, "no program given"),
        (&[], &["/etc/passwd"], 126, "chmod +x"),
        (&[], &[busy_static(), "pairs", "1"], 1, "without -static"),
        (&["engine=instrument"], &[busy(), "pairs", "1"], 1, "CMake and configure); if only libraries"),
        (&["engine=import"], &[busy()], 2, "not available in this version"),
        (&["engine=magic"], &[busy()], 2, "unknown engine `magic`"),
        (&["ring=1000"], &[busy()], 2, "power of two"),
        (&["depth=0"], &[busy()], 2, "1 to 128"),
        (&["slots=0"], &[busy()], 2, "1 to 4096"),
    ];
    for (options, program, code, words) in cases {
        let lab = Lab::new();
        let output = lab.record(options, program);
        let result = lab.result();
        assert_eq!(output.status.code(), Some(*code), "{program:?}: {result}");
        assert!(result["error"].as_str().is_some_and(|e| e.contains(words)), "{program:?}: {result}");
        assert!(!lab.trace().exists(), "{program:?} left an empty trace");
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn an_interrupt_reaches_the_program_and_the_trace_is_finished() {
    let lab = Lab::new();
    let mut child = lab.command(&[], &[busy(), "catch"]).spawn().unwrap();
    assert_eq!(first_line(&mut child), "ready");
    kill(&child, libc::SIGINT);
    assert_eq!(rest(&mut child), "caught\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(lab.open().end().is_some());
}

/// As under `nohup`, or in the background of a script.
#[test]
fn an_interrupt_that_the_caller_ignores_stays_ignored() {
    let lab = Lab::new();
    let mut child = lab.command_with(libc::SIG_IGN, &[], &[busy(), "for", "200"]).spawn().unwrap();
    assert_eq!(first_line(&mut child), "ready");
    kill(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(lab.open().end().is_some());
}

#[test]
fn background_jobs_are_waited_for_and_daemons_within_their_grace() {
    let lab = Lab::new();
    let job = format!("(sleep 0.3; {} pairs 4000) & exit 4", busy());
    let output = lab.record(&[], &["sh", "-c", &job]);
    assert_eq!(output.status.code(), Some(4));
    assert!(allocations(&lab.events()) >= 4000, "the job's allocations are missing");
    let lab = Lab::new();
    let begin = Instant::now();
    assert_eq!(lab.record(&["grace-ms=300"], &[busy(), "daemon"]).status.code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(40), "waited for the daemon");
    assert_eq!(lab.result()["stopped"], "MainEnded");
    assert!(lab.open().end().is_some());
}

#[test]
fn limits_stop_the_recording_and_not_the_program() {
    let expected = alone(&["for", "1"]).0;
    for (option, name) in [("limit-bytes=20000", "BytesLimit"), ("limit-ms=250", "TimeLimit")] {
        // Where no CPU is free, a program of 0.6 s has written too little by then, or its recorder looks too seldom: then it goes on for longer.
        let is_stopped = ["600", "3000", "15000"].into_iter().any(|milliseconds| {
            let lab = Lab::new();
            let output = lab.record(&[option], &[busy(), "for", milliseconds]);
            assert_eq!(output.status.code(), Some(5));
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
            assert!(!lab.events().is_empty());
            let result = lab.result();
            eprintln!("{result}");
            // Progress is told ten times a second.
            result["stopped"] == name && result["updates"].as_u64() >= Some(4)
        });
        assert!(is_stopped, "{option}: {name}, with four updates");
    }
}
