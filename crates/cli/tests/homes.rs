//! Home nodes as the kernel assigns them, from a compiled program to the report's figures: a block's second life at an address, and first touches by code that
//! is not instrumented, with page-fault events and without.

use std::path::Path;
use std::path::PathBuf;

use crate::common::*;
use serde_json::Value;

const MACHINE: [&str; 4] = ["--machine", "opteron-8385", "--period", "50"];
/// Without page-fault events, as on a system that refuses them (crates/sources/src/faulted.rs).
const REFUSED: &str = "NUMAPILOT_NO_FAULT_EVENTS";

/// What all programs begin with: `table` of 16 MiB, and threads that each read all of it or write their quarter.
const COMMON: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#define BYTES (16ul << 20)
static char *table;
static volatile long total;
static void *write_part(void *which) {
    size_t begin = BYTES / 4 * (size_t)which, end = begin + BYTES / 4;
    for (int round = 0; round < 4; round++)
        for (size_t i = begin; i < end; i += 64) table[i]++;
    return NULL;
}
static void *read_all(void *unused) {
    long sum = 0;
    for (size_t i = 0; i < BYTES; i += 64) sum += table[i];
    total += sum;
    return unused;
}
static void in_threads(void *(*body)(void *)) {
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, body, (void *)i);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
static void in_one_thread(void *(*body)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
}
static FILE *input(void) {
    FILE *file = tmpfile();
    char block[4096];
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)(i % 64 == 63 ? '\n' : 'a');
    for (size_t i = 0; i < BYTES; i += sizeof block) fwrite(block, 1, sizeof block, file);
    rewind(file);
    return file;
}
"#;

fn built(folder: &Path, name: &str, source: &str) -> PathBuf {
    build(folder, name, "cc", &format!("{COMMON}{source}"), &["-ldl"])
}

/// The report of a recording of this program; `refused`: without page-fault events.
fn reported(folder: &Path, name: &str, source: &str, refused: bool) -> Value {
    let program = built(folder, name, source);
    let trace = folder.join(format!("{name}.numatrace"));
    let mut command = numapilot(&["record", "--quiet", "--force", "-o"]);
    command.arg(&trace).args(MACHINE).arg("--").arg(&program);
    if refused {
        command.env(REFUSED, "1");
    }
    finish(&mut command).succeeded();
    report_json(&trace, &[])
}

/// Share of the site's accesses on each node.
fn on(report: &Value, name: &str) -> [f64; 4] {
    let row = site(report, name);
    std::array::from_fn(|node| number(row, &format!("/on_node/{node}/value")))
}

/// Whether this system lets the recorder see every page fault, the kernel's on the program's behalf among them.
fn sees_faults() -> bool {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    // SAFETY: geteuid has no conditions and cannot fail.
    let sees = unsafe { libc::geteuid() } == 0 || paranoid.trim().parse::<i32>().is_ok_and(|level| level <= 1);
    if !sees {
        numapilot_not_run::not_run!(PageFaultEvents, "kernel.perf_event_paranoid is {}", paranoid.trim());
    }
    sees
}

#[test]
fn a_block_at_a_freed_ones_address_has_homes_of_its_own() {
    let folder = scratch();
    let reused = "
static void *fill(void *unused) { for (size_t i = 0; i < BYTES; i += 64) table[i] = 1; return unused; }
int main(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    char *first = table = malloc(BYTES);
    in_one_thread(fill);
    free(first);
    char *second = malloc(BYTES);
    if (second != table) return 3;
    in_threads(write_part);
    return 0;
}";
    let report = reported(folder.path(), "reused", reused, false);
    let second = site(&report, "second");
    // One page of 4096 has malloc's own words in it, and lies on main's node.
    assert!(number(second, "/remote/value") < 0.01, "{second}");
    // Each quarter lies on the node of the thread that uses it. (The quarters draw unequally: L3 tags of the first block are still there.)
    for (node, share) in on(&report, "second").iter().enumerate() {
        let from = number(second, &format!("/from_node/{node}/value"));
        assert!(*share > 0.05 && (share - from).abs() < 0.01, "node {node}: {second}");
    }
}

/// Fills `table` unseen in one thread, and reads it in four: all of it lies on the first's node.
fn filled_unseen(name: &str, fill: &str) {
    let folder = scratch();
    let source = format!(
        "{fill}\nint main(void) {{ char *filled = malloc(BYTES); table = filled; in_one_thread(fill); in_threads(read_all); return 0; }}"
    );
    if sees_faults() {
        let report = reported(folder.path(), name, &source, false);
        let on = on(&report, "filled");
        assert!(on[1] > 0.98, "{name}: {on:?}");
    }
    let report = reported(folder.path(), &format!("{name}-refused"), &source, true);
    let said = report["findings"]["cannot_say"].to_string();
    assert!(said.contains("first toucher") && said.contains("filled"), "{name}: {said}");
    assert!(report["findings"]["nothing"].is_null(), "{name}: {}", report["findings"]);
}

#[test]
fn what_fread_fills_lies_on_its_threads_node() {
    filled_unseen(
        "fread",
        "static void *fill(void *unused) { FILE *file = input(); if (fread(table, 1, BYTES, file) != BYTES) exit(4); return unused; }",
    );
}

#[test]
fn what_a_library_copies_lies_on_its_threads_node() {
    let fill = "#include <dlfcn.h>
static void *fill(void *unused) {
    void *(*volatile set)(void *, int, size_t) = dlsym(RTLD_DEFAULT, \"memset\");
    set(table, 1, BYTES);
    return unused;
}";
    filled_unseen("library", fill);
}

#[test]
fn what_main_reads_in_before_there_are_threads_needs_no_events() {
    let folder = scratch();
    let source = "
int main(void) {
    FILE *file = input();
    char *filled = malloc(BYTES);
    table = filled;
    if (fread(filled, 1, BYTES, file) != BYTES) return 4;
    in_threads(read_all);
    return 0;
}";
    for refused in [true, false] {
        let report = reported(folder.path(), if refused { "alone-refused" } else { "alone" }, source, refused);
        let filled = site(&report, "filled");
        assert!(on(&report, "filled")[0] > 0.98, "{filled}");
        // Three of four readers are elsewhere; the fourth shares main's node.
        assert!(number(filled, "/remote/value") > 0.6, "{filled}");
    }
}

/// Calls that the tracker knows by name: exact with and without events.
fn filled_by_call(name: &str, fill: &str) {
    let folder = scratch();
    let source = format!(
        "{fill}\nint main(void) {{ char *filled = malloc(BYTES); table = filled; in_one_thread(fill); in_threads(read_all); return 0; }}"
    );
    let report = reported(folder.path(), name, &source, true);
    assert!(on(&report, "filled")[1] > 0.98, "{name}: {}", site(&report, "filled"));
}

#[test]
fn what_readv_fills_lies_on_its_threads_node() {
    let fill = "
static void *fill(void *unused) {
    struct iovec parts[2] = {{table, BYTES / 2}, {table + BYTES / 2, BYTES / 2}};
    if (readv(fileno(input()), parts, 2) != (ssize_t)BYTES) exit(4);
    return unused;
}";
    filled_by_call("readv", fill);
}

#[test]
fn a_read_of_untouched_memory_places_nothing() {
    let folder = scratch();
    let source = "
int main(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    char *zeroed = calloc(BYTES, 1);
    table = zeroed;
    read_all(NULL);
    in_threads(write_part);
    return 0;
}";
    let report = reported(folder.path(), "zero", source, false);
    assert!(number(site(&report, "zeroed"), "/remote/value") < 0.01, "{}", site(&report, "zeroed"));
}

/// A child on another node fills shared memory first and writes private memory that it has from its parent: the one is there for its parent, too, the other are
/// copies of its own.
#[test]
fn pages_of_several_processes_lie_where_the_kernel_has_them() {
    let folder = scratch();
    let source = "
#include <sys/mman.h>
#include <sys/wait.h>
static void write_all(char *to) {
    for (size_t i = 0; i < BYTES; i += 64) to[i] = 1;
}
static char *map_file(int file) {
    char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) exit(3);
    return shared;
}
int main(void) {
    char *own = malloc(BYTES);
    int file = memfd_create(\"common\", 0);
    if (file < 0 || ftruncate(file, BYTES) != 0) return 3;
    table = map_file(file);
    write_all(own);
    pid_t child = fork();
    if (child == 0) {
        write_all(map_file(file));
        write_all(own);
        _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) return 4;
    in_threads(read_all);
    return 0;
}";
    for refused in [true, false] {
        let report = reported(folder.path(), if refused { "several-refused" } else { "several" }, source, refused);
        let (common, own) = (site(&report, "memfd common"), site(&report, "own"));
        // The child wrote it, and four threads of its parent read it, one of them on the same node.
        assert!(on(&report, "memfd common")[1] > 0.98, "{common}");
        assert!(number(common, "/remote/value") > 0.5, "{common}");
        // Each process wrote its own pages.
        let [first, second, ..] = on(&report, "own");
        assert!(first > 0.4 && second > 0.4, "{own}");
        assert!(number(own, "/remote/value") < 0.02, "{own}");
    }
}
