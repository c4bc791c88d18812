/* Processes that share anonymous memory. Says `ready`, waits for a line, and then each page is touched by one process after the other:
 *   `before`, made and partly touched before: 8 pages that were in memory, 16 that were not; by the first child, then by the second;
 *   `made`, made then: 16 pages; by a third child, then by the parent. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, THERE = 8, BEFORE = 24, MADE = 16 };

static volatile char *shared(int pages) {
    void *memory = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    return memory;
}

static void touch(volatile char *memory, int pages) {
    for (int page = 0; page < pages; page++) memory[page * PAGE] = 1;
}

/* A child that waits for a word, touches, and ends. */
static pid_t child(volatile char *memory, int pages, int word[2]) {
    if (pipe(word) != 0) exit(2);
    pid_t pid = fork();
    if (pid != 0) return pid;
    char letter;
    if (read(word[0], &letter, 1) != 1) _exit(3);
    touch(memory, pages);
    _exit(0);
}

static void tell(pid_t pid, int word[2]) {
    int status;
    if (write(word[1], "x", 1) != 1 || waitpid(pid, &status, 0) != pid || status != 0) exit(4);
}

int main(void) {
    char line[16];
    int words[3][2];
    volatile char *before = shared(BEFORE);
    touch(before, THERE);
    pid_t first = child(before, BEFORE, words[0]), second = child(before, BEFORE, words[1]);
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 5;
    tell(first, words[0]);
    tell(second, words[1]);
    volatile char *made = shared(MADE);
    pid_t third = child(made, MADE, words[2]);
    tell(third, words[2]);
    touch(made, MADE);
    return 0;
}
