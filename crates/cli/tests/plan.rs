//! Plans and numactl's options as people and scripts use them: on this machine, whatever its nodes, and on a simulated one. `plan_lab.rs` asks a kernel
//! with several nodes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;
use serde_json::Value;

/// Allocates in several places, answers with what it was asked for.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) char *make_big(void) { char *p = malloc(3 << 20); memset(p, 1, 3 << 20); return p; }
__attribute__((noinline)) char *make_small(void) { char *p = malloc(100); memset(p, 1, 100); return p; }
int main(int count, char **arguments) {
    char *big[3];
    for (int i = 0; i < 3; i++) big[i] = make_big();
    char *small[50];
    for (int i = 0; i < 50; i++) small[i] = make_small();
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += big[i][12345];
    for (int i = 0; i < 50; i++) sum += small[i][99];
    if (count > 2) for (int c; (c = getchar()) != EOF;) putchar(c);
    printf("sum %d\n", sum);
    for (int i = 0; i < 3; i++) free(big[i]);
    fflush(stdout);
    if (count > 1 && strcmp(arguments[1], "abort") == 0) abort();
    return count > 1 ? atoi(arguments[1]) : 0;
}
"#;

const PLAN: &str = "version = 1\n[[object]]\nfunction = \"make_big\"\ninstances = \"0,2\"\npolicy = \"interleave\"\n\
    [[object]]\nfile = \"allocates.c\"\nline = 6\npolicy = \"node\"\nnode = 0\n\
    [[object]]\nfunction = \"no_such_function\"\npolicy = \"local\"\n[[object]]\nsymbol = \"nothing\"\npolicy = \"replicate\"\n\
    [[thread]]\norder = \"0\"\nnodes = \"0\"\n";

fn with_plan(folder: &Path, plan: &str) -> std::path::PathBuf {
    let file = folder.join("plan.toml");
    fs::write(&file, plan).expect("written");
    file
}

#[test]
fn a_plan_is_applied_rule_by_rule_and_told() {
    let folder = scratch();
    let program = build_plain(folder.path(), "allocates", PROGRAM, &["-fno-builtin"]);
    let (plan, json) = (with_plan(folder.path(), PLAN), folder.path().join("done.json"));
    let ran =
        finish(numapilot(&["run", "--fold", "--plan"]).arg(&plan).arg("--json").arg(&json).arg("--").arg(&program))
            .succeeded();
    assert_eq!(ran.stdout, "sum 53\n");
    assert!(
        ran.stderr.contains("make_big: interleave over") && ran.stderr.contains("2 objects, 6.00 MiB"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("rule no_such_function matches nothing: the program and the libraries that it is linked with have no function no_such_function; "),
        "{}",
        ran.stderr
    );
    let done: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the file")).expect("JSON");
    let objects = done["objects"].as_array().expect("objects");
    let placed: Vec<u64> = objects.iter().map(|rule| rule["placed"].as_u64().expect("a count")).collect();
    assert_eq!(placed, [2, 50, 0, 0], "{done}");
    assert_eq!(objects[1]["placed_bytes"], 5000);
    assert!(objects.iter().all(|rule| rule["failures"] == 0), "{done}");
    assert_eq!((&done["places"][0]["placed"], &done["processes"]), (&Value::from(1), &Value::from(1)));
}

#[test]
fn status_signals_and_streams_are_the_programs_own() {
    let folder = scratch();
    let program = build_plain(folder.path(), "allocates", PROGRAM, &["-fno-builtin"]);
    let plan = with_plan(folder.path(), PLAN);
    let run = |arguments: &[&str]| {
        finish(
            numapilot(&["run", "--quiet", "--fold", "--plan"])
                .arg(&plan)
                .arg("--")
                .arg(&program)
                .args(arguments)
                .stdin(Stdio::null()),
        )
    };
    let ran = run(&["41"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (41, "sum 53\n", ""));
    assert_eq!(run(&["abort"]).code, 128 + 6);
    let mut child = numapilot(&["run", "--quiet", "--fold", "--plan"]);
    let mut child = child
        .arg(&plan)
        .arg("--")
        .arg(&program)
        .args(["0", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("its input"), b"through\n").expect("written");
    let output = child.wait_with_output().expect("its output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "through\nsum 53\n");
}

#[test]
fn mistakes_are_named_before_anything_runs() {
    let folder = scratch();
    let plan = with_plan(folder.path(), "version = 1\n[[object]]\npolicy = \"node\"\nnode = 63\n");
    let ran = finish(numapilot(&["plan", "--machine", "opteron-8385"]).arg(&plan));
    assert!(
        ran.code == 1
            && ran.stdout.is_empty()
            && ran.stderr.contains("plan.toml:2: it names node 63")
            && ran.stderr.contains("--fold"),
        "{ran:?}"
    );
    let plan = with_plan(folder.path(), "version = 1\n[[object]]\npolcy = \"node\"\n");
    let ran = finish(numapilot(&["plan"]).arg(&plan));
    assert!(ran.code == 1 && ran.stderr.contains("plan.toml:2") && ran.stderr.contains("no `policy`"), "{ran:?}");
    assert_eq!(run(&["run", "--", "no-such-program-anywhere"]).code, 127);
    assert_eq!(run(&["run"]).code, 2);
    let plan = with_plan(folder.path(), PLAN);
    let program = build_plain(folder.path(), "allocates", PROGRAM, &["-fno-builtin"]);
    let ran = finish(numapilot(&["plan"]).arg(&plan).args(["--machine", "opteron-8385", "--"]).arg(&program));
    assert!(ran.code == 1 && ran.stdout.contains("object make_big: interleave over 0-3"), "{ran:?}");
    assert!(ran.stderr.contains("no_such_function") && ran.stderr.contains("no such symbol"), "{ran:?}");
}

#[test]
fn on_one_node_it_says_so_and_runs_the_program() {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.trim() != "0" {
        numapilot_not_run::not_run!(OneNode, "this machine has nodes {nodes}");
        return;
    }
    let folder = scratch();
    let plan = with_plan(folder.path(), "version = 1\n[[object]]\npolicy = \"node\"\nnode = 3\n");
    let ran = finish(numapilot(&["run", "--plan"]).arg(&plan).args(["--", "sh", "-c", "echo $NUMAPILOT_PLAN; exit 5"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (5, "\n"));
    assert!(ran.stderr.contains("one node") && ran.stderr.contains("no effect"), "{ran:?}");
    let told =
        finish(numapilot(&["run", "--quiet", "--json", "-", "--plan"]).arg(&plan).args(["--", "true"])).succeeded();
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert!(told["notes"][0].as_str().is_some_and(|note| note.contains("no effect")), "{told}");
}

#[test]
fn copies_of_mappings_change_nothing_that_a_program_does_and_go_with_it() {
    let folder = scratch();
    let program = build_plain(folder.path(), "allocates", PROGRAM, &["-fno-builtin"]);
    let plan = with_plan(folder.path(), PLAN);
    for more in [&["--replicate-mappings"][..], &["--replicate-mappings=*.index", "--fold", "--plan"]] {
        let with_plan = more.len() > 1;
        let ran =
            finish(numapilot(&["run"]).args(more).args(with_plan.then_some(&plan)).arg("--").arg(&program).arg("41"));
        assert_eq!((ran.code, ran.stdout.as_str()), (41, "sum 53\n"), "{ran:?}");
        assert!(ran.stderr.contains("numapilot: mappings: "), "{ran:?}");
        assert_eq!(ran.stderr.contains("2 objects, 6.00 MiB"), with_plan, "{ran:?}");
    }
    let look = "echo $NUMAPILOT_REPLICATE_PATTERN; ls $NUMAPILOT_REPLICATE_FOLDER/*.so; cat /proc/self/maps; exit 3";
    let ran = finish(&mut numapilot(&["run", "--quiet", "--replicate-mappings=*.index", "--", "sh", "-c", look]));
    let mut lines = ran.stdout.lines();
    assert_eq!((ran.code, ran.stderr.as_str(), lines.next()), (3, "", Some("*.index")), "{ran:?}");
    let library = lines.next().expect("the library's path");
    assert!(lines.any(|line| line.ends_with(library)), "loaded: {ran:?}");
    assert!(!Path::new(library).parent().expect("its folder").exists(), "{library} is left behind");
}

/// Every form that this machine allows: what numactl does to a program, and what we do, seen by numactl itself.
#[test]
fn numactls_options_do_what_numactl_does() {
    let forms: [&[&str]; 12] = [
        &["--interleave=all"],
        &["-i", "0"],
        &["--membind=0"],
        &["-m", "all"],
        &["--preferred=0"],
        &["--localalloc"],
        &["-l", "--physcpubind=+0"],
        &["--cpunodebind=0"],
        &["-N", "0", "-m", "0"],
        &["-C", "0"],
        &["--interleave=!0"],
        &["--all", "-C", "all", "-i", "all"],
    ];
    let output = |command: &mut Command| command.output().expect("numactl (tools/setup test installs it)");
    for form in forms {
        for seen in [&["numactl", "--show"][..], &["cat", "/proc/self/numa_maps"]] {
            let theirs = output(Command::new("numactl").args(form).args(seen));
            let ours = output(numapilot(&["run"]).args(form).arg("--").args(seen));
            assert!(
                theirs.status.success() && ours.status.success(),
                "{form:?}: {}",
                String::from_utf8_lossy(&ours.stderr)
            );
            let words = |bytes: &[u8]| -> Vec<String> {
                let text = String::from_utf8_lossy(bytes).into_owned();
                if seen[0] == "numactl" {
                    // Where interleaving goes on next depends on how many pages were touched until somebody looks.
                    return vec![
                        text.lines()
                            .filter(|line| !line.contains("interleave next") && !line.contains("interleavenode"))
                            .collect(),
                    ];
                }
                text.lines().filter_map(|line| line.split(' ').nth(1).map(str::to_owned)).collect()
            };
            let (theirs, ours) = (words(&theirs.stdout), words(&ours.stdout));
            assert_eq!(ours.first(), theirs.first(), "{form:?} {seen:?}");
            assert!(!ours.is_empty());
        }
    }
    let show = run(&["run", "--show"]).succeeded().stdout;
    assert_eq!(show, String::from_utf8_lossy(&output(Command::new("numactl").arg("--show")).stdout));
    let show = run(&["run", "--interleave=all", "--show"]).succeeded().stdout;
    let theirs = output(Command::new("numactl").args(["--interleave=all", "numactl", "--show"]));
    assert_eq!(show, String::from_utf8_lossy(&theirs.stdout));
}

/// One thread writes a table, four read it: on the simulated machine the plan decides where it is.
const SHARED: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define COUNT (4u << 20)
static double *table;
__attribute__((noinline)) static double *make_table(void) { return malloc(COUNT * sizeof(double)); }
static void *reader(void *number) {
    double sum = 0;
    for (size_t i = (size_t)number; i < COUNT; i += 8) sum += table[i];
    return sum > 0 ? number : NULL;
}
int main(void) {
    table = make_table();
    for (size_t i = 0; i < COUNT; i += 8) table[i] = 1;
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, reader, (void *)(i % 2 * 8));
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("read");
    return 0;
}
"#;

#[test]
fn on_the_simulated_machine_the_plan_decides_homes_and_nodes() {
    let folder = scratch();
    let program = build(folder.path(), "shared", "cc", SHARED, &[]);
    let trace = folder.path().join("t.numatrace");
    // Remote accesses in percent, and the table's accesses by home node.
    let record_with = |plan: &str| -> (f64, Vec<f64>) {
        let file = with_plan(folder.path(), plan);
        let text = file.display().to_string();
        let options = ["--machine", "opteron-8385", "--lines", "1", "--plan", &text];
        let options = if plan.is_empty() { &options[..4] } else { &options[..] };
        let ran = record(&trace, options, &program, &[] as &[&str]).succeeded();
        assert_eq!(ran.stdout, "read\n");
        let report = report_json(&trace, &[]);
        let homes = report["headline"]["top"]["on_node"].as_array().expect("homes of the object with most accesses");
        let homes = homes.iter().map(|share| number(share, "/value")).collect();
        (100.0 * number(&report, "/headline/totals/remote_share/value"), homes)
    };
    let (remote, homes) = record_with("");
    assert!(remote > 50.0 && homes[0] > 0.99, "the naive program is remote: {remote} %, {homes:?}");
    let table = "version = 1\n[[object]]\nfunction = \"make_table\"\n";
    let (remote, homes) = record_with(&format!("{table}policy = \"node\"\nnode = 2\n[[thread]]\nnodes = \"2\"\n"));
    assert!(remote < 1.0 && homes[2] > 0.99, "table and threads on node 2: {remote} %, {homes:?}");
    let (remote, homes) = record_with(&format!("{table}policy = \"interleave\"\n"));
    // Of some hundred samples.
    let is_even = homes.iter().all(|share| (0.15..0.35).contains(share));
    assert!((70.0..80.0).contains(&remote) && is_even, "interleaved over four nodes: {remote} %, {homes:?}");
}
