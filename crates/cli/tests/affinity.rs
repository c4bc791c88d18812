//! Threads of a recording run on the CPUs of the simulated machine that the program asks for.

mod common;

use common::*;

/// One set of attributes, changed for each thread, as OpenMP libraries use them: a thread has what they said when it was made.
const ATTRIBUTES: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
enum { THREADS = 8 };
static int ran_on[THREADS];
static pthread_barrier_t all;
static void *work(void *argument) {
    pthread_barrier_wait(&all);
    *(int *)argument = sched_getcpu();
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(15 - 2 * i, &set);
        if (pthread_attr_setaffinity_np(&attributes, sizeof set, &set) != 0) return 3;
        if (pthread_create(&threads[i], &attributes, work, &ran_on[i]) != 0) return 4;
    }
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) printf("%d ", ran_on[i]);
    return 0;
}
"#;

#[test]
fn a_thread_has_the_affinity_that_its_attributes_said_when_it_was_made() {
    let folder = scratch();
    let program = build(folder.path(), "attributes", "cc", ATTRIBUTES, &["-pthread"]);
    let trace = folder.path().join("t.numatrace");
    let ran = record(&trace, &["--machine", "opteron-8385"], &program, &[] as &[&str]).succeeded();
    assert_eq!(ran.stdout.split_whitespace().collect::<Vec<_>>(), ["15", "13", "11", "9", "7", "5", "3", "1"]);
}
