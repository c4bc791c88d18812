/* Copies by order: two workers map a file and only read it; their parent gives the orders as `numapilot balance` does, and has them tell where their pages
 * are after each. All of them run with the preload library; usage: ordered FOLDER FILE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, NODES = 4, PAGES_MAX = 1024 };

static const char *folder, *path;
static struct stat status;
static char *memory;
static int questions[WORKERS][2], answers[2];
static pid_t workers[WORKERS];

static uint64_t sum(void) {
    uint64_t all = 0;
    for (off_t i = 0; i < status.st_size; i++) all = all * 31 + (unsigned char)memory[i];
    return all;
}

static void tell(const char *when, int worker) {
    static void *pages[PAGES_MAX];
    static int on[PAGES_MAX];
    int count = (int)(status.st_size / 4096), at[NODES] = {0};
    uint64_t all = sum(); /* touches every page */
    for (int i = 0; i < count; i++) pages[i] = memory + i * 4096;
    if (syscall(SYS_move_pages, 0, count, pages, NULL, on, 0) != 0) exit(7);
    for (int i = 0; i < count; i++)
        if (on[i] >= 0 && on[i] < NODES) at[on[i]]++;
    printf("%s worker %d on %d %d %d %d sum %lx\n", when, worker, at[0], at[1], at[2], at[3], all);
    fflush(stdout);
}

static void work(int worker) {
    char when[16];
    for (ssize_t got; (got = read(questions[worker][0], when, sizeof when - 1)) > 0;) {
        when[got] = 0;
        tell(when, worker);
        if (write(answers[1], "x", 1) != 1) exit(8);
    }
    _exit(0);
}

static void ring(void) {
    char name[256];
    snprintf(name, sizeof name, "%s/bell", folder);
    int file = open(name, O_RDWR);
    uint32_t *bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || bell == MAP_FAILED) exit(9);
    __atomic_fetch_add(bell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, bell, FUTEX_WAKE, 1 << 30);
    munmap(bell, 4096);
    close(file);
}

static int lines_of_log(void) {
    char name[256];
    int lines = 0;
    snprintf(name, sizeof name, "%s/log", folder);
    FILE *log = fopen(name, "r");
    for (int c; log && (c = getc(log)) != EOF;) lines += c == '\n';
    if (log) fclose(log);
    return lines;
}

/* Worker `i` is to show the copy of node nodes[i]; -1: none. Waits for so many answers. */
static void order(const char *when, const int *nodes, int expected) {
    static int heard;
    char name[256], fresh[256];
    snprintf(name, sizeof name, "%s/orders", folder);
    snprintf(fresh, sizeof fresh, "%s/.orders", folder);
    FILE *file = fopen(fresh, "w");
    for (int i = 0; i < WORKERS; i++)
        if (nodes[i] >= 0) fprintf(file, "%d %d %lu %s\n", workers[i], nodes[i], (unsigned long)status.st_ino, path);
    fclose(file);
    if (rename(fresh, name) != 0) exit(10);
    ring();
    heard += expected;
    for (int tries = 0; lines_of_log() < heard && tries < 2000; tries++) usleep(10000);
    for (int i = 0; i < WORKERS; i++) {
        char answer;
        if (write(questions[i][1], when, strlen(when)) < 0 || read(answers[0], &answer, 1) != 1) exit(11);
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    folder = words[1], path = words[2];
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0 || pipe(answers) != 0) return 3;
    memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) return 4;
    for (int i = 0; i < WORKERS; i++) {
        if (pipe(questions[i]) != 0) return 5;
        workers[i] = fork();
        if (workers[i] == 0) work(i);
    }
    order("before", (int[]){-1, -1}, 0);
    order("both", (int[]){2, 3}, 2);
    order("one", (int[]){1, -1}, 2);
    order("none", (int[]){-1, -1}, 1);
    for (int i = 0; i < WORKERS; i++) {
        int end;
        close(questions[i][1]);
        kill(workers[i], 15);
        waitpid(workers[i], &end, 0);
    }
    return 0;
}
