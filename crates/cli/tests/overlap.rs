//! Sixteen threads take in program time what they would take on sixteen CPUs, however few this machine has.

use std::path::Path;

use crate::common::*;
use numapilot_trace::tables::ThreadColumns;
use numapilot_trace::tables::TraceReader;

/// Sixteen equal pieces of work on memory of their own, by as many threads as are asked for.
const PTHREADS: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { PIECES = 16, NUMBERS = 1 << 12, ROUNDS = 2000 };
static int thread_count;
static uint64_t results[PIECES * 8];
static void piece(int number) {
    uint64_t *numbers = malloc(NUMBERS * sizeof *numbers), sum = 0;
    for (int i = 0; i < NUMBERS; i++) numbers[i] = (uint64_t)i * (uint64_t)(number + 1);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < NUMBERS; i++) {
            numbers[i] = numbers[i] * 6364136223846793005u + 1442695040888963407u;
            sum += numbers[i] >> 40;
        }
    free(numbers);
    results[number * 8] = sum;
}
static void *work(void *argument) {
    for (int number = (int)(intptr_t)argument; number < PIECES; number += thread_count) piece(number);
    return NULL;
}
int main(int argc, char **argv) {
    thread_count = argc > 1 ? atoi(argv[1]) : PIECES;
    pthread_t threads[PIECES];
    for (int t = 1; t < thread_count; t++) pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t);
    work(0);
    for (int t = 1; t < thread_count; t++) pthread_join(threads[t], NULL);
    uint64_t sum = 0;
    for (int number = 0; number < PIECES; number++) sum += results[number * 8];
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
"#;

/// The same as an OpenMP loop.
const OPENMP: &str = r#"
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { PIECES = 16, NUMBERS = 1 << 12, ROUNDS = 2000 };
int main(int argc, char **argv) {
    omp_set_num_threads(argc > 1 ? atoi(argv[1]) : PIECES);
    uint64_t total = 0;
#pragma omp parallel for schedule(static, 1) reduction(+ : total)
    for (int number = 0; number < PIECES; number++) {
        uint64_t *numbers = malloc(NUMBERS * sizeof *numbers), sum = 0;
        for (int i = 0; i < NUMBERS; i++) numbers[i] = (uint64_t)i * (uint64_t)(number + 1);
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < NUMBERS; i++) {
                numbers[i] = numbers[i] * 6364136223846793005u + 1442695040888963407u;
                sum += numbers[i] >> 40;
            }
        free(numbers);
        total += sum;
    }
    printf("%llu\n", (unsigned long long)total);
    return 0;
}
"#;

struct Course {
    /// Program time from start to end, ns.
    total: f64,
    /// Start and end of each thread, ns.
    threads: Vec<(f64, f64)>,
    output: String,
}

fn course(folder: &Path, program: &Path, threads: u32) -> Course {
    let trace = folder.join(format!("{threads}.numatrace"));
    let ran = record(&trace, &["--machine", "opteron-8385"], program, &[threads.to_string()]).succeeded();
    let reader = TraceReader::open(&trace).expect("the trace opens");
    let rows: ThreadColumns = reader.read().expect("threads");
    let end = reader.meta().duration_ns;
    let threads = rows.rows().map(|row| (row.start_ns as f64, row.end_ns.unwrap_or(end) as f64)).collect();
    Course { total: end as f64, threads, output: ran.stdout }
}

/// Most pairs of runs, alone and by 16 threads.
const PAIRS: u32 = 8;

fn sixteen_at_once(name: &str, source: &str, flags: &[&str]) {
    let folder = scratch();
    let program = build(folder.path(), name, "cc", source, flags);
    // Both runs are timed by the CPU time that they take, and a host with other work is slower at one moment than at another: pairs are made until one
    // fits. Clocks that do not overlap would show in each.
    let pair = || {
        let (serial, parallel) = (course(folder.path(), &program, 1), course(folder.path(), &program, 16));
        assert_eq!(serial.output, parallel.output);
        assert_eq!(parallel.threads.len(), 16);
        let ratio = parallel.total / (serial.total / 16.0);
        let (alone, together) = (serial.total / 1e6, parallel.total / 1e6);
        eprintln!("{name}: {alone:.3} ms alone, {together:.3} ms by 16 threads: {ratio:.3} of a sixteenth");
        (ratio, parallel)
    };
    let mut ratios = Vec::new();
    let fitting = (0..PAIRS).map(|_| pair()).find_map(|(ratio, parallel)| {
        ratios.push(ratio);
        (0.85..1.15).contains(&ratio).then_some(parallel)
    });
    let Some(parallel) = fitting else { panic!("{name}: {ratios:?} of a sixteenth of the serial time") };
    let middle = parallel.total / 2.0;
    let alive = parallel.threads.iter().filter(|(start, end)| *start <= middle && *end >= middle).count();
    assert_eq!(alive, 16, "{name}: threads alive in the middle: {:?}", parallel.threads);
    let together: f64 = parallel.threads.iter().map(|(start, end)| end - start).sum::<f64>() / parallel.total;
    assert!(together > 14.0, "{name}: {together} threads at work on average");
}

#[test]
fn posix_threads_overlap() {
    sixteen_at_once("pieces", PTHREADS, &[]);
}

#[test]
fn openmp_threads_overlap() {
    sixteen_at_once("pieces-omp", OPENMP, &["-fopenmp"]);
}
