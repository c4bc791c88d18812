//! `move` on real kernels with four nodes (the lab): every page of a program moves to its target node, small ones and huge ones, and each one's outcome is
//! reported.

use std::process::Command;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/moves.c");

/// JSON values in a text, one after the other.
fn values(text: &str) -> Vec<Value> {
    let start = text.find('{').expect("JSON");
    serde_json::Deserializer::from_str(&text[start..]).into_iter().map_while(Result::ok).collect()
}

#[test]
fn every_page_is_moved_or_its_reason_told() {
    if !numapilot_lab::wanted("move") {
        return;
    }
    let folder = scratch();
    let program = build_plain(folder.path(), "moves", SOURCE, &[]);
    // The programs last until they are told to end: on a busy host it takes seconds only to read the binary, which is done before anything is timed.
    let script = format!(
        "cd /tmp; n={BINARY}; cat $n > /dev/null; {p} sleep 4 1000000 > out 2> err & pid=$!; until grep -q ready err; do sleep 0.05; done; \
         $n move $pid --from 0 --to 2 --dry-run --json; $n move $pid --from 0 --to 2 --json; echo status $? >&2; \
         $n move $pid --from 2 --to 1,3 --json; $n move $pid --from 0,2 --to 1 --json --rate 4M; \
         $n move $pid --from 0 --to 9; echo status $? >&2; $n move $pid --from nonsense --to 1; echo status $? >&2; \
         kill -USR1 $pid; wait $pid; cat out; \
         MOVES_HUGE=1 {p} sleep 64 1000000 > out 2> err & pid=$!; until grep -q ready err; do sleep 0.05; done; \
         $n move $pid --from 0 --to 3 --json --rate 16M; kill -USR1 $pid; wait $pid; cat out",
        p = program.display()
    );
    for kernel in [Kernel::V6_12, Kernel::V6_1] {
        let lab = Lab::new(Topology::symmetric(4)).kernel(kernel).icount(true);
        let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
        eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
        let told = values(&outcome.stdout);
        let [dry, first, second, third, ..] = &told[..] else { panic!("{}", outcome.stdout) };
        let count = |value: &Value, name: &str| value["pages"][name].as_u64().expect("a count");
        let wanted = |value: &Value| -> u64 {
            value["wanted"].as_array().expect("a list").iter().map(|row| row["pages"].as_u64().expect("pages")).sum()
        };
        assert_eq!((dry["dry_run"].as_bool(), count(dry, "moved")), (Some(true), 0));
        assert!(wanted(dry) >= 1024 && wanted(first).abs_diff(wanted(dry)) <= 8, "{}", outcome.how);
        for run in [first, second, third] {
            let pages = run["pages"].as_object().expect("counts");
            let sum: u64 = pages.values().map(|count| count.as_u64().expect("a count")).sum();
            assert_eq!(sum, wanted(run), "every page has a fate: {run}");
        }
        assert!(count(first, "moved") >= 1024, "{first}");
        let dealt: Vec<u64> =
            second["wanted"].as_array().unwrap().iter().map(|row| row["pages"].as_u64().unwrap()).collect();
        assert!(dealt.len() == 2 && dealt[0].abs_diff(dealt[1]) <= 1, "{second}");
        // Half of its pages were dealt to node 3 and none came back to 0 or 2.
        assert!(third["took_s"].as_f64().unwrap() < 4.0);
        let ends: Vec<&Value> = told.iter().filter(|value| value["at"].as_f64().is_some_and(|at| at > 0.0)).collect();
        assert_eq!(ends[0]["on"], serde_json::json!([0, 512, 0, 512]), "{}", outcome.stdout);
        // Huge pages count as what they are: after the first 16 MiB the rate holds back the other 48.
        let huge = values(outcome.stdout.split_once("checksum").expect("the end of the first program").1);
        let rated = huge.iter().rfind(|value| value["took_s"].is_number()).expect("the last move");
        assert!(count(rated, "moved") >= 16_384 && rated["took_s"].as_f64().unwrap() >= 2.9, "{rated}");
        assert_eq!(huge.last().expect("an end")["on"], serde_json::json!([0, 0, 0, 16_384]), "{}", outcome.stdout);
        assert!(
            outcome.stderr.contains("there is no node 9 with memory here; nodes with memory: 0-3"),
            "{}",
            outcome.stderr
        );
        assert_eq!(outcome.stderr.matches("status 1").count(), 2, "{}", outcome.stderr);
    }
}
