//! Threads of a recording run on the CPUs of the simulated machine that the program asks for.

use crate::common::*;

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

/// Four threads take the CPUs of one node as their set, one after another, while the others wait, as the threads of a server that pins itself do: each
/// finds the node idle.
const WAITING: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
enum { THREADS = 4, LINES = 4096 };
static int ran_on[THREADS], turn;
static volatile int memory[THREADS][LINES * 16];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t next = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static void *work(void *argument) {
    int me = (int)(long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < 4; cpu++) CPU_SET(cpu, &set);
    pthread_mutex_lock(&mutex);
    while (turn != me) pthread_cond_wait(&next, &mutex);
    if (sched_setaffinity(0, sizeof set, &set) != 0) _Exit(3);
    turn++;
    pthread_cond_broadcast(&next);
    pthread_mutex_unlock(&mutex);
    pthread_barrier_wait(&all);
    for (int pass = 0; pass < 20; pass++)
        for (int line = 0; line < LINES; line++) memory[me][line * 16]++;
    ran_on[me] = sched_getcpu();
    pthread_barrier_wait(&all);
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) return 4;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) printf("%d ", ran_on[i]);
    return 0;
}
"#;

#[test]
fn threads_with_a_set_of_cpus_share_none_while_another_of_the_set_is_idle() {
    let folder = scratch();
    let program = build(folder.path(), "waiting", "cc", WAITING, &["-pthread"]);
    let trace = folder.path().join("t.numatrace");
    let ran = record(&trace, &["--machine", "opteron-8385"], &program, &[] as &[&str]).succeeded();
    let mut cpus: Vec<_> = ran.stdout.split_whitespace().collect();
    cpus.sort_unstable();
    assert_eq!(cpus, ["0", "1", "2", "3"]);
}
