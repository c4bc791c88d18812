/* Pages that two processes have: on which nodes they lie, as the machine under the program says, a real kernel's or a simulated one. A line per case: the nodes
 * of four pages; -2: the page is not there, or its home is not known. The child is on node 1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4, BYTES = PAGES * PAGE };

static void check(int is_done, const char *what) {
    if (is_done) return;
    perror(what);
    exit(2);
}

/* To the first CPU of the node. */
static void go(int node) {
    char path[64];
    int cpu = -1;
    cpu_set_t set;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *list = fopen(path, "r");
    check(list != NULL && fscanf(list, "%d", &cpu) == 1, path);
    fclose(list);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

static void say(const char *name, volatile char *block) {
    void *pages[PAGES];
    int nodes[PAGES];
    for (int i = 0; i < PAGES; i++) pages[i] = (void *)(block + i * PAGE);
    check(syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, NULL, nodes, 0) == 0, "move_pages");
    printf("%s %d %d %d %d\n", name, nodes[0], nodes[1], nodes[2], nodes[3]);
    fflush(stdout);
}

static int sum;
static void read_page(volatile char *block, int page) { sum += block[page * PAGE]; }
static void write_page(volatile char *block, int page) { block[page * PAGE] = (char)(page + 1); }

static void pass(int end) { check(write(end, "", 1) == 1, "write"); }
static void await(int end) {
    char byte;
    check(read(end, &byte, 1) == 1, "read");
}

/* Private memory: copied for who writes it first, as long as the other has it. */
static void inherited(void) {
    int done[2], on[2];
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(block != MAP_FAILED && pipe(done) == 0 && pipe(on) == 0, "memory");
    for (int page = 0; page < PAGES; page++) write_page(block, page);
    pid_t child = fork();
    close(child == 0 ? done[0] : done[1]); /* who fails leaves nobody waiting */
    close(child == 0 ? on[1] : on[0]);
    if (child == 0) {
        go(1);
        write_page(block, 0);
        read_page(block, 1);
        say("child-wrote-first", block);
        pass(done[1]);
        await(on[0]);
        say("child-afterwards", block);
        _exit(0);
    }
    await(done[0]);
    go(2);
    write_page(block, 1);
    say("parent-wrote-second", block);
    pass(on[1]);
    check(waitpid(child, NULL, 0) == child, "waitpid");
    go(0);
    write_page(block, 2); /* its own by now */
    say("parent-is-left", block);
}

/* A file in memory: each page lies where the first of both touched it. */
static void shared(void) {
    int file = memfd_create("common", MFD_CLOEXEC);
    check(file >= 0 && ftruncate(file, BYTES) == 0, "memfd");
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(block != MAP_FAILED, "mmap");
    pid_t child = fork();
    if (child == 0) {
        go(1);
        write_page(block, 0);
        read_page(block, 1);
        say("child-touched-first", block);
        _exit(0);
    }
    check(waitpid(child, NULL, 0) == child, "waitpid");
    go(2);
    for (int page = 0; page < 3; page++) write_page(block, page);
    say("parent-touched-second", block);
    /* Another life of the pages. */
    check(ftruncate(file, 0) == 0 && ftruncate(file, BYTES) == 0, "ftruncate");
    go(3);
    char *again = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(again != MAP_FAILED, "mmap");
    for (int page = 0; page < PAGES; page++) write_page(again, page);
    say("cut-and-touched-anew", again);
}

/* Memory that the file has before anybody touches it is its giver's. */
static void given(void) {
    int file = memfd_create("given", MFD_CLOEXEC);
    check(file >= 0, "memfd");
    go(1);
    check(posix_fallocate(file, 0, BYTES) == 0, "posix_fallocate");
    go(2);
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(block != MAP_FAILED, "mmap");
    for (int page = 0; page < PAGES; page++) write_page(block, page);
    say("given-before", block);
}

int main(void) {
    go(0);
    inherited();
    shared();
    given();
    return sum < 0;
}
