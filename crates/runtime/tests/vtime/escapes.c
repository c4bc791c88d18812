/* escapes.c: threads that leave waits by cancellation or by a jump out of a signal handler, forks while locks are held, threads
 * made by clone(), and more threads than the virtual machine has CPUs. `escapes CASE`; a case that goes wrong hangs or fails. */
#define _GNU_SOURCE
#include "sys.h"
#include "wire.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N 4
#define ROUNDS 500
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, often = PTHREAD_COND_INITIALIZER;
static sem_t empty;
static int pipes[2];
static _Atomic int ready, finished, cleaned, stop;

static void clean(void *argument) {
    (void)argument;
    pthread_mutex_unlock(&mutex);
    cleaned++;
}

static void *workers(void *argument) {
    for (int i = 0; i < 200; i++) {
        work(50000);
        pthread_mutex_lock(&mutex);
        pthread_cond_broadcast(&often);
        pthread_mutex_unlock(&mutex);
    }
    finished++;
    return argument;
}

static void *waits(void *argument) {
    char byte;
    ready++;
    switch ((long)argument % 4) {
    case 0:
        pthread_mutex_lock(&mutex);
        pthread_cleanup_push(clean, NULL);
        for (;;) pthread_cond_wait(&never, &mutex);
        pthread_cleanup_pop(1);
        break;
    case 1: sem_wait(&empty); break;
    case 2: if (read(pipes[0], &byte, 1) == 1) abort(); break;
    default: for (;;) usleep(1000000);
    }
    return NULL;
}

static void cancelled(void) {
    pthread_t waiting[N * 2], working[N];
    void *value;
    for (long i = 0; i < N * 2; i++) pthread_create(&waiting[i], NULL, waits, (void *)i);
    for (long i = 0; i < N; i++) pthread_create(&working[i], NULL, workers, NULL);
    while (ready < N * 2) usleep(1000);
    usleep(5000);
    for (int i = 0; i < N * 2; i++) pthread_cancel(waiting[i]);
    for (int i = 0; i < N * 2; i++)
        if (pthread_join(waiting[i], &value) != 0 || value != PTHREAD_CANCELED) abort();
    for (int i = 0; i < N; i++) pthread_join(working[i], NULL);
    printf("finished %d cleaned %d trylock %d\n", finished, cleaned, pthread_mutex_trylock(&mutex));
}

/* ---- jumps out of a signal handler ---- */

enum { JUMPS = 5 };
static _Atomic int jumps_of[N];
static _Thread_local sigjmp_buf home;
static void jump(int number) { siglongjmp(home, number); }

static void *jumps(void *argument) {
    volatile int rounds = 0;
    volatile uint64_t before = 0;
    char byte;
    signal(SIGUSR1, jump);
    if (sigsetjmp(home, 1) == 0) ready++;
    else jumps_of[(long)argument] = ++rounds;
    work(10000);
    if (clock_now() < before) abort();
    before = clock_now();
    if (rounds >= JUMPS) {
        /* Back from the waits: must count as running and be able to wait for others again. */
        pthread_mutex_lock(&mutex);
        work(100000);
        pthread_mutex_unlock(&mutex);
        finished++;
        return argument;
    }
    switch ((long)argument % 3) {
    case 0: sem_wait(&empty); break;
    case 1: if (read(pipes[0], &byte, 1) == 1) abort(); break;
    default: for (;;) nanosleep(&(struct timespec){10, 0}, NULL);
    }
    abort();
}

static void jumped(void) {
    pthread_t jumping[N], working[N];
    for (long i = 0; i < N; i++) pthread_create(&jumping[i], NULL, jumps, (void *)i);
    while (ready < N) usleep(1000);
    for (long i = 0; i < N; i++) pthread_create(&working[i], NULL, workers, NULL);
    for (int round = 0; round < JUMPS; round++) {
        usleep(100000);
        for (int i = 0; i < N; i++) pthread_kill(jumping[i], SIGUSR1);
        /* Two signals that wait for a thread are one, and on a busy machine it may wait for a CPU for longer than this thread sleeps. */
        for (int i = 0; i < N; i++)
            while (jumps_of[i] <= round) usleep(1000);
    }
    for (int i = 0; i < N; i++) pthread_join(jumping[i], NULL);
    for (int i = 0; i < N; i++) pthread_join(working[i], NULL);
    printf("finished %d\n", finished);
}

/* ---- forks ---- */

static void *holds(void *argument) {
    while (!stop) {
        pthread_mutex_lock(&mutex);
        work(3000);
        pthread_mutex_unlock(&mutex);
        work(1000);
    }
    return argument;
}

static void forked(void) {
    pthread_t holding[N];
    int failed = 0, passed = 0;
    for (long i = 0; i < N; i++) pthread_create(&holding[i], NULL, holds, NULL);
    for (int i = 0; i < 10; i++) {
        work(20000);
        pid_t pid = fork();
        if (pid == 0) { /* only what a child of a threaded program may do, and then locks of its own */
            pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&own);
            work(200000);
            pthread_mutex_unlock(&own);
            _exit(numapilot_clock != NULL && clock_now() == 0);
        }
        int status = -1;
        if (waitpid(pid, &status, 0) != pid || status != 0) failed++;
        else passed++;
    }
    stop = 1;
    for (int i = 0; i < N; i++) pthread_join(holding[i], NULL);
    printf("passed %d failed %d\n", passed, failed);
}

/* Threads that write to a new pipe at the same moment, each later in program time than the one before: what is read is no earlier than the last of them. */
static pthread_barrier_t together;
static int new_pipe[2];

static void *write_together(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&together); /* clocks are equal */
        work(1000 * (uint64_t)(1 + ((uintptr_t)argument + (uintptr_t)round) % N));
        uint64_t now = clock_now();
        if (write(new_pipe[1], &now, sizeof now) != sizeof now) abort();
        pthread_barrier_wait(&together);
    }
    return NULL;
}

static void first_writers(void) {
    pthread_t threads[N];
    uint64_t early = 0;
    pthread_barrier_init(&together, NULL, N + 1);
    for (uintptr_t i = 0; i < N; i++) pthread_create(&threads[i], NULL, write_together, (void *)i);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t latest = 0, sent;
        if (pipe(new_pipe) != 0) abort();
        pthread_barrier_wait(&together);
        for (int i = 0; i < N; i++) {
            if (read(new_pipe[0], &sent, sizeof sent) != sizeof sent) abort();
            if (sent > latest) latest = sent;
        }
        early += clock_now() < latest;
        pthread_barrier_wait(&together);
        close(new_pipe[0]);
        close(new_pipe[1]);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    printf("early %lu\n", early);
}

/* Workers that get their tasks by a pipe and answer by another: the answer is no earlier than the task's end. */
static void pool(void) {
    int tasks[2], answers[2];
    if (pipe(tasks) != 0 || pipe(answers) != 0) abort();
    for (int i = 0; i < N; i++) {
        if (fork() != 0) continue;
        uint64_t sent;
        while (read(tasks[0], &sent, sizeof sent) == sizeof sent && sent != UINT64_MAX) {
            uint64_t early = clock_now() < sent;
            work(1000000);
            uint64_t answer[2] = {clock_now(), early};
            if (write(answers[1], answer, sizeof answer) != sizeof answer) _exit(1);
        }
        _exit(0);
    }
    uint64_t early = 0, answer[2];
    for (int i = 0; i < 20; i++) {
        uint64_t now = clock_now();
        if (write(tasks[1], &now, sizeof now) != sizeof now) abort();
    }
    uint64_t begin = clock_now();
    for (int i = 0; i < 20; i++) {
        if (read(answers[0], answer, sizeof answer) != sizeof answer) abort();
        early += answer[1] + (clock_now() < answer[0]);
    }
    uint64_t elapsed = clock_now() - begin, end = UINT64_MAX;
    int failed = 0, status;
    for (int i = 0; i < N; i++)
        if (write(tasks[1], &end, sizeof end) != sizeof end) abort();
    while (wait(&status) > 0) failed += status != 0;
    printf("elapsed %lu early %lu failed %d\n", elapsed, early, failed);
}

/* ---- threads of other kinds, and many of them ---- */

static _Atomic int cloned_done;
static int cloned(void *argument) {
    for (int i = 0; i < 50; i++) work(10000);
    cloned_done++;
    return (int)(long)argument;
}

static void clones(void) {
    pthread_t working;
    pthread_create(&working, NULL, workers, NULL);
    for (int i = 0; i < 3; i++) {
        char *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (clone(cloned, stack + (1 << 18), CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL) < 0) abort();
        while (cloned_done <= i) usleep(1000);
    }
    usleep(20000); /* until the last has really left its stack */
    pthread_join(working, NULL);
    printf("cloned %d finished %d\n", cloned_done, finished);
}

static void *one_of_many(void *argument) {
    for (int i = 0; i < 10; i++) work(10000);
    pthread_mutex_lock(&mutex);
    work(100);
    pthread_mutex_unlock(&mutex);
    finished++;
    return argument;
}

static void many(void) {
    static pthread_t threads[300];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    for (int i = 0; i < 300; i++)
        if (pthread_create(&threads[i], &small, one_of_many, NULL) != 0) abort();
    for (int i = 0; i < 300; i++) pthread_join(threads[i], NULL);
    printf("finished %d\n", finished);
}

/* ---- threads that end without a word ---- */

static pthread_barrier_t begun;
static int work_rounds = 100;
static void *equal_work(void *argument) {
    pthread_barrier_wait(&begun);
    uint64_t begin = clock_now();
    for (int i = 0; i < work_rounds; i++) work(10000);
    *(uint64_t *)argument = clock_now() - begin;
    return NULL;
}

/* Sixteen threads with a million cycles of work each; main, which waits, has a CPU as well. */
static void equals(void) {
    pthread_t threads[16];
    uint64_t took[16], most = 0;
    pthread_barrier_init(&begun, NULL, 17);
    for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, equal_work, &took[i]);
    pthread_barrier_wait(&begun);
    for (int i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        if (took[i] > most) most = took[i];
    }
    printf("elapsed %lu\n", most);
}

/* Equal work, while main, whose CPU is one worker's too, waits for its end: by a system call that no hook sees, or for a signal. */
static void *last_tells(void *argument) {
    equal_work(argument);
    if (atomic_fetch_add(&finished, 1) + 1 == 16) kill(getpid(), SIGUSR1);
    return NULL;
}

static void asleep(bool unseen) {
    pthread_t threads[16];
    uint64_t took[16], most = 0;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    work_rounds = 800;
    pthread_barrier_init(&begun, NULL, 17);
    for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, last_tells, &took[i]);
    pthread_barrier_wait(&begun);
    int number = 0;
    if (unseen) syscall(SYS_rt_sigtimedwait, &signals, NULL, NULL, 8);
    else if (sigwait(&signals, &number) != 0 || number != SIGUSR1) abort();
    for (int i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        if (took[i] > most) most = took[i];
    }
    printf("elapsed %lu\n", most);
}

static void *for_ever(void *argument) {
    ready++;
    for (;;) work(1000);
    return argument;
}

/* What this program is recorded to; NULL: it is not. */
static struct np_arena *map_arena(size_t *bytes) {
    const char *file = getenv("NUMAPILOT_ARENA");
    int fd = file != NULL ? open(file, O_RDWR) : -1;
    struct stat state;
    if (fd < 0) return NULL;
    struct np_arena *arena = fstat(fd, &state) == 0 ? mmap(NULL, (size_t)state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (arena == MAP_FAILED) abort();
    *bytes = (size_t)state.st_size;
    close(fd);
    return arena;
}

static struct np_slot *slot_at(struct np_arena *arena, uint64_t index) {
    return (struct np_slot *)((char *)arena + arena->slots_offset + index * arena->slot_bytes);
}

/* A child whose threads run, or sleep for the window, when it ends. */
static void ends_with_threads(bool killed) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        for (int i = 0; i < 6; i++) pthread_create(&thread, NULL, for_ever, NULL);
        while (ready < 6) work(1000);
        if (killed) kill(getpid(), SIGKILL);
        exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    size_t bytes;
    struct np_arena *arena = killed ? map_arena(&bytes) : NULL;
    if (arena == NULL) return;
    /* As the recorder does when it finds the owners of slots gone. */
    for (uint64_t i = 0; i < arena->slots_high; i++) {
        struct np_slot *slot = slot_at(arena, i);
        if (slot->pid == (uint32_t)child) __atomic_store_n(&slot->state, NP_SLOT_FREE, __ATOMIC_RELEASE);
    }
    munmap(arena, bytes);
}

/* ---- locks of files ---- */

static int other_file;
static _Atomic pid_t waiter;

static void *wait_for_file(void *argument) {
    struct flock lock = {.l_type = F_WRLCK};
    waiter = (pid_t)syscall(SYS_gettid);
    if (fcntl(other_file, F_OFD_SETLKW, &lock) != 0) abort();
    return argument;
}

/* Whether a thread that waits for a file's lock is known to wait, for ten seconds at most. */
static void file_lock(void) {
    size_t bytes;
    struct np_arena *arena = map_arena(&bytes);
    struct flock lock = {.l_type = F_WRLCK};
    char path[64];
    pthread_t thread;
    int file = memfd_create("locked", 0), is_known = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    other_file = open(path, O_RDWR); /* another description of it: these locks are theirs */
    if (arena == NULL || other_file < 0 || fcntl(file, F_OFD_SETLKW, &lock) != 0) abort();
    pthread_create(&thread, NULL, wait_for_file, NULL);
    for (int tries = 0; tries < 10000 && !is_known; tries++) {
        usleep(1000);
        for (uint64_t i = 0; i < arena->slots_high; i++) {
            const struct np_slot *slot = slot_at(arena, i);
            is_known |= waiter != 0 && slot->tid == (uint32_t)waiter && __atomic_load_n(&slot->run_state, __ATOMIC_ACQUIRE) == NP_RUN_BLOCKED;
        }
    }
    lock.l_type = F_UNLCK;
    if (fcntl(file, F_OFD_SETLKW, &lock) != 0) abort();
    pthread_join(thread, NULL);
    munmap(arena, bytes);
    printf("known %d\n", is_known);
}

/* ---- a wait whose time-out passes while nobody is behind ---- */

/* It asks for no handlers of signals: 64 system calls would be most of what it costs. */
static void idle_poll(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    struct pollfd fd = {pipes[0], POLLIN, 0};
    /* By no hook: the tracker keeps within a filter that it sees come. */
    if (NP_SYS6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) != 0) abort();
    if (NP_SYS3(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) abort();
    printf("over %d\n", poll(&fd, 1, 20) == 0);
}

/* ---- attributes, as most programs use them: on the stack, and never destroyed ---- */

static void *where(void *cpu) {
    *(int *)cpu = sched_getcpu();
    return NULL;
}

static __attribute__((noinline)) int cpu_of_thread(int wanted) {
    pthread_attr_t attributes;
    pthread_t thread;
    int cpu = -1;
    pthread_attr_init(&attributes);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(wanted >= 0 ? wanted : 0, &cpus);
    if (wanted >= 0) pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    if (pthread_create(&thread, &attributes, where, &cpu) != 0) abort();
    pthread_join(thread, NULL);
    return cpu;
}

static void attributes(void) {
    int first = cpu_of_thread(13), others = 0;
    for (int i = 0; i < 8; i++) others += cpu_of_thread(-1) == 13;
    printf("first %d others %d\n", first, others);
}

/* ---- more threads than there are slots ---- */

static void *until_stopped(void *argument) {
    while (!stop) work(1000);
    return argument;
}

static void *nothing(void *argument) { return argument; }

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* 128 slots, which nobody frees here: what 40 threads take in host time that get one, and 40 that do not, while both others have much to do. */
static void without_slots(void) {
    pthread_t spinner, thread;
    uint64_t began = 0, took[5] = {0};
    pthread_create(&spinner, NULL, until_stopped, NULL);
    for (int i = 0; i < 200; i++) {
        if (i % 40 == 0) began = now_us();
        if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
        work(300000);
        took[i / 40] = now_us() - began;
    }
    stop = 1;
    pthread_join(spinner, NULL);
    printf("with %lu without %lu\n", took[0], took[4]);
}

/* ---- programs that start programs ---- */

static int start_by(int way, const char *name) {
    char *arguments[] = {"escapes", (char *)name, NULL};
    pid_t child = 0;
    if (way == 0 && (child = fork()) == 0) _exit(execv("/proc/self/exe", arguments));
    if (way == 1 && (child = vfork()) == 0) _exit(execv("/proc/self/exe", arguments));
    if (way == 2 && posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0) abort();
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

/* One after the other, so their times add up. */
static void starts(void) {
    int failed = 0;
    for (int way = 0; way < 3; way++) {
        uint64_t begin = clock_now();
        failed += start_by(way, "a-million");
        printf("way%d %lu ", way, clock_now() - begin);
    }
    printf("failed %d\n", failed);
}

/* As numactl and taskset: memory policy and affinity are set for the program that comes in this one's place. */
static void bound(void) {
    unsigned long nodes = 5;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(5, &cpus);
    if (syscall(SYS_set_mempolicy, 3, &nodes, 65) != 0 || sched_setaffinity(0, sizeof cpus, &cpus) != 0) abort();
    work(1000000);
    execl("/proc/self/exe", "escapes", "is-bound", (char *)NULL);
}

static void is_bound(void) {
    uint64_t begin = clock_now();
    unsigned long nodes = 0;
    int mode = 0;
    cpu_set_t cpus;
    if (syscall(SYS_get_mempolicy, &mode, &nodes, 64, NULL, 0) != 0 || sched_getaffinity(0, sizeof cpus, &cpus) != 0) abort();
    printf("mode %d nodes %lu cpus %d cpu %d begin %lu\n", mode, nodes, CPU_COUNT(&cpus), sched_getcpu(), begin);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    sem_init(&empty, 0, 0);
    if (pipe(pipes) != 0) return 1;
    if (!strcmp(name, "cancelled")) cancelled();
    else if (!strcmp(name, "jumped")) jumped();
    else if (!strcmp(name, "forked")) forked();
    else if (!strcmp(name, "pool")) pool();
    else if (!strcmp(name, "first-writers")) first_writers();
    else if (!strcmp(name, "clones")) clones();
    else if (!strcmp(name, "many")) many();
    else if (!strcmp(name, "equals")) equals();
    else if (!strcmp(name, "attributes")) attributes();
    else if (!strcmp(name, "asleep")) asleep(true);
    else if (!strcmp(name, "sigwait")) asleep(false);
    else if (!strcmp(name, "file-lock")) file_lock();
    else if (!strcmp(name, "idle-poll")) idle_poll();
    else if (!strcmp(name, "without-slots")) without_slots();
    else if (!strcmp(name, "starts")) starts();
    else if (!strcmp(name, "a-million")) work(1000000);
    else if (!strcmp(name, "bound")) bound();
    else if (!strcmp(name, "is-bound")) is_bound();
    else if (!strcmp(name, "replaced")) return execl("/proc/self/exe", "escapes", "equals", (char *)NULL);
    else if (!strcmp(name, "exited")) {
        ends_with_threads(false);
        equals();
    } else if (!strcmp(name, "killed")) {
        ends_with_threads(true);
        equals();
    }
    else return 2;
    return 0;
}
