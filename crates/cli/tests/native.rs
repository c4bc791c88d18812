//! `record --native`: the program's own work from a run without call-outs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::Value;

/// Reads 32 MiB that the main thread filled, in two threads; `WORK` times a number is divided between two accesses, of which the clock's charge knows nothing.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    enum { COUNT = 4 << 20 };
    static double *data;
    static void *sum(void *out) {
        double total = 0, x = 1.5;
        for (long i = 0; i < COUNT; i += 8) {
            total += data[i];
            for (int k = 0; k < WORK; k++) x = 3.0 / x + 0.25;
        }
        *(double *)out = total + x;
        return 0;
    }
    int main(int argc, char **argv) {
        if (argc > 1) { fprintf(stderr, "no such mode\n"); return 7; }
        data = malloc(COUNT * sizeof *data);
        for (long i = 0; i < COUNT; i++) data[i] = i;
        pthread_t threads[2];
        double sums[2];
        for (int t = 0; t < 2; t++) pthread_create(&threads[t], 0, sum, &sums[t]);
        for (int t = 0; t < 2; t++) pthread_join(threads[t], 0);
        printf("%g\n", sums[0] + sums[1]);
        return 0;
    }
"#;

/// The program with and without call-outs.
fn both(folder: &Path, work: &str) -> (PathBuf, PathBuf) {
    (build(folder, "app", "cc", PROGRAM, &[work]), build_plain(folder, "plain", PROGRAM, &[work]))
}

fn own_work(answer: &Value) -> (f64, f64, f64) {
    let sources = answer["uncertainty"]["sources"].as_array().expect("sources");
    let source = sources.iter().find(|source| source["place"] == "program.own_work").expect("own work is one");
    let at = |index: usize| source["range"][index].as_f64().expect("a number");
    (at(0), at(1), at(2))
}

#[test]
fn a_program_that_computes_is_priced_as_one() {
    let folder = scratch();
    let path = folder.path();
    let (instrumented, plain) = both(path, "-DWORK=20");
    let (charged, anchored) = (path.join("charged.numatrace"), path.join("anchored.numatrace"));
    record::<&str>(&charged, &["--machine", "opteron-8385"], &instrumented, &[]).succeeded();
    let native = plain.display().to_string();
    let mut command = numapilot(&["record", "--machine", "opteron-8385", "--native", &native, "-o"]);
    let ran = finish(command.arg(&anchored).arg("--").arg(&instrumented)).succeeded();
    assert_eq!(ran.stdout.lines().count(), 1, "only the recorded run is heard: {}", ran.stdout);
    assert!(ran.stderr.contains("of processor time at") && ran.stderr.contains("calibrates"), "{}", ran.stderr);
    let meta: Value = serde_json::from_slice(&fs::read(anchored.join("meta.json")).expect("meta")).expect("JSON");
    assert_eq!(meta["native"]["program"].as_str(), Some(native.as_str()));
    let runs = meta["native"]["runs"].as_array().expect("runs");
    assert!(!runs.is_empty() && runs.iter().all(|run| run["user_ns"].as_u64() > Some(0)), "{runs:?}");

    let price = |trace| {
        let ran = finish(numapilot(&["whatif", "--json", "--set", "*=interleave"]).arg(trace)).succeeded();
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")
    };
    let (before, after) = (price(&charged), price(&anchored));
    assert_eq!(own_work(&before), (1.0, 0.5, 2.0), "as charged");
    // The number of dependent accesses was recorded; how far cores overlap them is uncertain. The model describes its cores.
    let sources = before["uncertainty"]["sources"].as_array().expect("sources");
    let is_open = |place: &str| sources.iter().any(|source| source["place"] == place);
    assert!(is_open("program.overlap") && is_open("program.streamed_outstanding"), "{sources:?}");
    for known in ["core.window_instructions", "core.outstanding_misses", "program.scattered_outstanding"] {
        assert!(!is_open(known), "{known}: {sources:?}");
    }
    let (taken, low, high) = own_work(&after);
    // Twenty divisions of a dozen cycles or more for each access, where two cycles are charged.
    assert!(low > 2.0 && low < taken && taken < high, "{taken} of {low} to {high}");
    let gain = |answer: &Value| number(answer, "/gain");
    assert!(gain(&after) < gain(&before) / 2.0, "less of it waits for memory: {} and {}", gain(&before), gain(&after));
}

#[test]
fn what_is_no_native_run_is_refused_before_anything_is_recorded() {
    let folder = scratch();
    let path = folder.path();
    let (instrumented, plain) = both(path, "-DWORK=1");
    let trace = path.join("none.numatrace");
    let refused = |native: &str, arguments: &[&str]| {
        let ran = record(&trace, &["--machine", "opteron-8385", "--native", native], &instrumented, arguments);
        assert_ne!(ran.code, 0);
        assert!(!trace.exists(), "nothing is recorded");
        ran.stderr
    };
    let said = refused(&instrumented.display().to_string(), &[]);
    assert!(said.contains("--native") && said.contains("instrumented by numapilot"), "{said}");
    let said = refused(&plain.display().to_string(), &["x"]);
    assert!(said.contains("ended with status 7 (`no such mode`)"), "{said}");
    let said = refused("/no/such/program", &[]);
    assert!(said.contains("/no/such/program"), "{said}");
}
