//! The programs of the known classes, at small sizes: each records and verifies itself; and those whose memory behaviour is published show it.
//! What the default sizes show: `workloads/README.md`.

use std::process::Command;

use crate::common::*;
use serde_json::Value;

/// Sixteen threads on the four-node machine; the report, after the program's own verification passed.
#[track_caller]
fn recorded(program: &str, arguments: &[&str], lines: &str) -> Value {
    let folder = scratch();
    let trace = folder.path().join(format!("{program}.numatrace"));
    let options = ["--machine", "opteron-8385", "--rate", "40000", "--lines", lines];
    let ran = record(&trace, &options, &workload(program), arguments).succeeded();
    assert!(ran.stdout.starts_with(&format!("{program} ok ")), "{}", ran.stdout);
    figures_json(&trace, &[])
}

/// Share of remote accesses, of all or of a site's.
fn remote(report: &Value) -> f64 {
    number(report, "/headline/totals/remote_share/value")
}

fn imbalance(report: &Value) -> f64 {
    number(report, "/headline/totals/imbalance/population/value")
}

/// Recording changes nothing that a program works out, whichever of its variants runs.
#[test]
fn programs_print_the_same_recorded_and_alone() {
    for program in ["is", "mg", "bt", "pca", "phases", "bfs", "swaptions", "webserver"] {
        let arguments = ["--size", "test"];
        let alone =
            finish(Command::new(workload(program)).args(arguments).env("OMP_WAIT_POLICY", "passive")).succeeded();
        let folder = scratch();
        let trace = folder.path().join("t.numatrace");
        let recorded =
            record(&trace, &["--machine", "opteron-8385", "--lines", "1"], &workload(program), &arguments).succeeded();
        assert_eq!(recorded.stdout, alone.stdout);
        let threads = number(&report_json(&trace, &[]), "/recording/thread_count");
        assert!(threads >= 16.0, "{program}: {threads} threads");
    }
}

/// Dashti et al., ASPLOS 2013: PCA's local share is a third, falls to a quarter under interleaving, and its load becomes even.
#[test]
fn interleaving_makes_pca_less_local_and_even() {
    let arguments = |variant| ["--rows", "128", "--columns", "32768", "--variant", variant];
    let (naive, spread) = (recorded("pca", &arguments("naive"), "8"), recorded("pca", &arguments("interleaved"), "8"));
    let (before, after) = (remote(&naive), remote(&spread));
    assert!((0.55..0.75).contains(&before) && (0.68..0.82).contains(&after) && before < after, "{before}, {after}");
    assert!(imbalance(&naive) > 1.5 && imbalance(&spread) < 0.2, "{}, {}", imbalance(&naive), imbalance(&spread));
    assert_eq!(naive["sites"][0]["name"], "matrix");
}

/// Lachaize, Lepers, Quéma, USENIX ATC 2012: Apache's remote share falls from 75 to 10 % when each process keeps to one node.
#[test]
fn pinning_each_process_makes_the_webserver_local() {
    let arguments = |variant| ["--requests", "12", "--variant", variant];
    // Which of a process's threads takes a connection hangs on whom the host lets run: beside other work it may be one for nearly all, in one run or another.
    let recording = || recorded("webserver", &arguments("naive"), "8");
    let naive = (0..11).map(|_| recording()).find(|report| remote(report) > 0.45).unwrap_or_else(recording);
    let pinned = recorded("webserver", &arguments("pinned"), "8");
    assert!(remote(&naive) > 0.45 && remote(&pinned) < 0.2, "{} and {}", remote(&naive), remote(&pinned));
    let pools = &naive["sites"][0];
    assert_eq!(pools["name"], "pool_memory");
    assert!(number(pools, "/share/value") > 0.7, "{pools}");
    // Nothing that spreading the load could mend.
    assert!(imbalance(&naive) < 0.5, "imbalance {}", imbalance(&naive));
}

/// One of the programs that interleaving hurts: nearly local as it is, and remote at one node if one thread sets it up.
#[test]
fn first_touch_serves_multigrid_well() {
    let arguments = |variant| ["--cycles", "4", "--variant", variant];
    let (parallel, serial) =
        (recorded("mg", &arguments("parallel"), "8"), recorded("mg", &arguments("serial-init"), "8"));
    assert!(remote(&parallel) < 0.2 && imbalance(&parallel) < 0.3, "{}, {}", remote(&parallel), imbalance(&parallel));
    assert!(remote(&serial) > 0.6 && imbalance(&serial) > 1.5, "{}, {}", remote(&serial), imbalance(&serial));
}

/// Its arrays lie on one node, and interleaving evens the load out.
#[test]
fn the_integer_sort_loads_one_node() {
    let arguments = |variant| ["--keys-log2", "22", "--rankings", "4", "--variant", variant];
    let (serial, spread) = (recorded("is", &arguments("serial"), "8"), recorded("is", &arguments("interleaved"), "8"));
    assert!(remote(&serial) > 0.5 && imbalance(&serial) > 1.5, "{}, {}", remote(&serial), imbalance(&serial));
    assert!(imbalance(&spread) < 0.3, "imbalance {}", imbalance(&spread));
}

/// The halves are local to the group that forecasts and remote to the one that corrects; without groups they are local to all.
#[test]
fn alternating_groups_reach_across_nodes() {
    let arguments = |variant| ["--phases", "4", "--phase-ms", "22", "--variant", variant];
    let (groups, local) = (recorded("phases", &arguments("naive"), "8"), recorded("phases", &arguments("local"), "8"));
    assert!((0.2..0.6).contains(&remote(&groups)), "remote share {}", remote(&groups));
    assert!(remote(&local) < 0.1, "remote share {}", remote(&local));
}

/// Small private data: there is hardly an access to place.
#[test]
fn swaptions_hardly_use_memory() {
    let report = recorded("swaptions", &["--paths", "4096"], "1");
    let totals = &report["headline"]["totals"];
    let missing = number(totals, "/accesses/value") / number(totals, "/program_accesses");
    assert!(missing < 1e-3, "{missing} of all accesses reach memory");
}
