//! kill -9 at seeded random moments, a hundred times, of the program and of the recorder by turns: every trace opens and holds every
//! whole chunk, and a program whose recorder dies runs on as if nothing had been there.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::common::*;
use numapilot_random::Random;
use numapilot_trace::chunk::Damage;
use numapilot_trace::chunk::RawTrace;

const ROUNDS: u64 = 100;
/// Shards of the rounds: tests run side by side.
const SHARDS: u64 = 2;
/// Findings are computed in four of so many rounds, one of each kind in each shard: their prices would take most of the time, and are not what a kill changes.
const FINDINGS_EVERY: u64 = 20;

/// Three threads allocate, write, read and free; how long depends on `rounds`. The output depends on nothing else.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static long rounds;
static void *churn(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument + 1, sum = 0;
    for (long i = 0; i < rounds; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t count = 8 + (seed >> 33) % 4000;
        uint64_t *block = malloc(count * sizeof *block);
        for (size_t k = 0; k < count; k += 8) block[k] = seed + k;
        for (size_t k = 0; k < count; k += 8) sum += block[k];
        free(block);
    }
    return (void *)(uintptr_t)sum;
}
int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 1;
    puts("ready");
    fflush(stdout);
    for (int part = 0; part < 4; part++) {
        pthread_t threads[3];
        uint64_t sum = 0;
        for (long t = 0; t < 3; t++) pthread_create(&threads[t], NULL, churn, (void *)(t * 17 + part));
        for (int t = 0; t < 3; t++) {
            void *result;
            pthread_join(threads[t], &result);
            sum += (uint64_t)(uintptr_t)result;
        }
        printf("part %d: %llx\n", part, (unsigned long long)sum);
        fflush(stdout);
    }
    return 7;
}
"#;

fn start(trace: &Path, program: &Path, rounds: &str) -> Child {
    let mut command =
        numapilot(&["record", "-q", "--force", "--keep-raw", "--period", "64", "--machine", "opteron-8385", "-o"]);
    command.arg(trace).arg("--").arg(program).arg(rounds);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the recorder starts")
}

/// Reads the program's first line, which says that it runs.
fn wait_until_ready(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the first line");
    assert_eq!(line, "ready\n");
    output
}

fn kill(pid: u32) {
    // SAFETY: kill has no memory effects; the process is our child or our child's, and not reaped yet.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

fn only_child_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Opens the trace with `report`, then holds the tables to the raw chunks: nothing whole is missing, and nothing but a torn end is lost.
#[track_caller]
fn opens_with_every_whole_chunk(trace: &Path, seed: u64, context: &str) -> usize {
    let raw = RawTrace::open(trace).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(raw.missing_chunks(), 0, "{context}");
    for problem in raw.problems() {
        assert!(matches!(problem.damage, Damage::TornTail), "{context}: {problem:?}");
    }
    let mut merge = raw.merge();
    let records = merge.by_ref().inspect(|record| assert!(record.is_ok(), "{context}: {record:?}")).count();
    assert!(merge.problems().is_empty(), "{context}: {:?}", merge.problems());
    let with_findings = seed % FINDINGS_EVERY < 4;
    let ran = finish(numapilot(&["report", "--json"]).args((!with_findings).then_some("--matrix")).arg(trace));
    assert_eq!(ran.code, 0, "{context}: {}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(report["findings"].is_null(), !with_findings, "{context}");
    assert_eq!(report["format"], "numapilot-report", "{context}");
    let meta = numapilot_trace::meta::Meta::read(trace).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!((meta.losses.damaged_chunks, meta.losses.missing_chunks), (0, 0), "{context}");
    records
}

fn kill_the_program(folder: &Path, program: &Path, seed: u64) {
    let trace = folder.join(format!("program-{seed}.numatrace"));
    let mut child = start(&trace, program, "100000");
    let mut output = wait_until_ready(&mut child);
    sleep(Duration::from_micros(Random::new(seed).remainder(200_000)));
    let victim = only_child_of(child.id()).expect("the program runs");
    kill(victim);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("UTF-8");
    let mut errors = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("UTF-8");
    assert_eq!(child.wait().expect("the recorder ends").code(), Some(137), "seed {seed}: {errors}");
    let records = opens_with_every_whole_chunk(&trace, seed, &format!("program killed, seed {seed}"));
    assert!(records > 0, "program killed, seed {seed}: no record at all");
    std::fs::remove_dir_all(&trace).expect("the trace goes away");
}

fn kill_the_recorder(folder: &Path, program: &Path, expected: &str, seed: u64) {
    let trace = folder.join(format!("recorder-{seed}.numatrace"));
    let mut child = start(&trace, program, "2000");
    let mut output = wait_until_ready(&mut child);
    sleep(Duration::from_micros(Random::new(seed).remainder(200_000)));
    kill(child.id());
    child.wait().expect("the recorder is dead");
    // The program holds the other end of the pipe until it is done.
    let mut rest = String::from("ready\n");
    output.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, expected, "seed {seed}: the program's output changed");
    opens_with_every_whole_chunk(&trace, seed, &format!("recorder killed, seed {seed}"));
    std::fs::remove_dir_all(&trace).expect("the trace goes away");
}

fn shard(number: u64) {
    let folder = scratch();
    let program: PathBuf = build(folder.path(), "churn", "cc", PROGRAM, &[]);
    let alone = finish(Command::new(&program).arg("2000"));
    assert_eq!(alone.code, 7);
    for round in (number..ROUNDS).step_by(SHARDS as usize) {
        if (round / SHARDS).is_multiple_of(2) {
            kill_the_program(folder.path(), &program, round);
        } else {
            kill_the_recorder(folder.path(), &program, &alone.stdout, round);
        }
    }
}

#[test]
fn every_trace_opens_after_a_kill_even_rounds() {
    shard(0);
}

#[test]
fn every_trace_opens_after_a_kill_odd_rounds() {
    shard(1);
}

/// Also before anything was written: either there is a trace that opens, or a message that says that there is none.
#[test]
fn a_recorder_killed_while_it_starts_leaves_no_riddle() {
    let folder = scratch();
    let program = build(folder.path(), "churn", "cc", PROGRAM, &[]);
    for seed in 0..20 {
        let trace = folder.path().join(format!("{seed}.numatrace"));
        let mut child = start(&trace, &program, "1");
        sleep(Duration::from_micros(Random::new(1_000 + seed).remainder(60_000)));
        kill(child.id());
        child.wait().expect("the recorder is dead");
        let ran = finish(numapilot(&["report"]).arg(&trace));
        assert!(ran.code == 0 || ran.code == 1, "seed {seed}: {}\n{}", ran.code, ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "seed {seed}: {}", ran.stderr);
        assert!(ran.code == 0 || ran.stderr.starts_with("numapilot: "), "seed {seed}: {}", ran.stderr);
    }
}
