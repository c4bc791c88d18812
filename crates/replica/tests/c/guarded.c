/* guarded.c: processes that share a file by mappings, one of which writes at last. Nobody may read an old word after the write is known.
 *
 * Usage: guarded FILE PROCESSES write|mprotect|none [pin]. Each process is a program of its own (it executes itself), maps FILE shared and
 * writable, and reads it over and over. The parent then writes, in the given way, to its own mapping, and only after that says so in a page
 * that nobody replaces; a reader who has seen that must see the write. With `pin`, process N goes to node N first. Prints "guarded ok read SUM", and
 * for each process where its mapping is before the write and after: "place PROCESS before|after LINE" of numa_maps.
 *
 * All the while the program's own handlers must work: each process dereferences a bad pointer and expects its own SIGSEGV handler. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, WORDS = BYTES / 8, PROCESSES_MAX = 16 };

struct board { /* anonymous shared memory by way of an inherited file */
    uint64_t written, ready, is_over;
};

static sigjmp_buf before_fault;
static volatile int *volatile bad_pointer = (volatile int *)8;
static void on_segv(int number) { siglongjmp(before_fault, number); }

/* True: the program's own handler saw its own fault. */
static int own_handler_works(void) {
    struct sigaction own = {.sa_handler = on_segv}, now;
    sigaction(SIGSEGV, &own, NULL);
    sigaction(SIGSEGV, NULL, &now);
    if (now.sa_handler != on_segv) return 0;
    if (sigsetjmp(before_fault, 1) == 0) {
        *bad_pointer = 1;
        return 0;
    }
    return 1;
}

static void pin(int node) {
    char path[96];
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < 64; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%d", node, cpu);
        if (access(path, F_OK) == 0) CPU_SET(cpu, &set);
    }
    sched_setaffinity(0, sizeof set, &set);
}

static void tell_place(int process, const char *when, const void *address) {
    char line[1024], start[32];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    snprintf(start, sizeof start, "%lx ", (unsigned long)address);
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strncmp(line, start, strlen(start))) printf("place %d %s %s", process, when, line);
    }
    if (maps) fclose(maps);
    fflush(stdout);
}

static uint64_t *map(const char *path) {
    int file = open(path, O_RDWR);
    uint64_t *words = file < 0 ? MAP_FAILED : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (words == MAP_FAILED) exit(2);
    return words;
}

static int read_until_written(const char *path, int process, struct board *board) {
    /* Programs block signals in threads that shall not handle them. */
    sigset_t all;
    sigfillset(&all);
    const volatile uint64_t *words = map(path);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    uint64_t sum = 0;
    for (int i = 0; i < WORDS; i++) sum += words[i];
    tell_place(process, "before", (const void *)words);
    __atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    bool is_over;
    do {
        is_over = __atomic_load_n(&board->is_over, __ATOMIC_ACQUIRE);
        uint64_t known = __atomic_load_n(&board->written, __ATOMIC_ACQUIRE);
        for (int i = 0; i < WORDS; i += 4096) {
            uint64_t value = words[i];
            if (value < known) {
                fprintf(stderr, "guarded: process %d reads %lu after %lu was written\n", process, (unsigned long)value, (unsigned long)known);
                return 1;
            }
        }
    } while (!is_over);
    tell_place(process, "after", (const void *)words);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    if (!own_handler_works()) return 3;
    return sum == 0 ? 0 : 4;
}

static struct board *board_of(int file) {
    struct board *board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (board == MAP_FAILED) exit(2);
    return board;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    if (!strcmp(argv[1], "reader")) {
        if (argc > 5) pin(atoi(argv[3]));
        return read_until_written(argv[2], atoi(argv[3]), board_of(atoi(argv[4])));
    }
    int processes = atoi(argv[2]), file = memfd_create("board", 0), status, failed = 0;
    char number[16], board_number[16];
    if (processes > PROCESSES_MAX || ftruncate(file, 4096) != 0) return 2;
    struct board *board = board_of(file);
    for (int i = 0; i < processes; i++) {
        if (fork() != 0) continue;
        snprintf(number, sizeof number, "%d", i);
        snprintf(board_number, sizeof board_number, "%d", file);
        execl("/proc/self/exe", argv[0], "reader", argv[1], number, board_number, argc > 4 ? "pin" : NULL, (char *)NULL);
        _exit(5);
    }
    if (argc > 4) pin(0);
    if (!own_handler_works()) return 3;
    volatile uint64_t *words = map(argv[1]);
    uint64_t sum = 0;
    for (int i = 0; i < WORDS; i++) sum += words[i];
    for (int wait_ms = 0; __atomic_load_n(&board->ready, __ATOMIC_SEQ_CST) < (uint64_t)processes && wait_ms < 60000; wait_ms++) usleep(1000);
    tell_place(99, "before", (const void *)words);
    if (!strcmp(argv[3], "mprotect") && mprotect((void *)words, BYTES, PROT_READ | PROT_WRITE) != 0) return 6;
    bool writes = strcmp(argv[3], "none") != 0;
    for (int i = 0; writes && i < WORDS; i++) words[i] = 1;
    __atomic_store_n(&board->written, writes, __ATOMIC_RELEASE);
    __atomic_store_n(&board->is_over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < processes; i++) {
        if (wait(&status) < 0 || status != 0) failed = 1;
    }
    uint64_t in_file = 9;
    int again = open(argv[1], O_RDONLY);
    if (pread(again, &in_file, sizeof in_file, BYTES - 8) != sizeof in_file || in_file != writes) failed = 1;
    if (!own_handler_works()) failed = 1;
    printf("guarded %s read %lu\n", failed ? "WRONG" : "ok", (unsigned long)sum);
    return failed;
}
