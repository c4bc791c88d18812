/* Leaves its launcher as daemons do: forks, makes a session of its own, forks again. The daemon writes its process id to the file that is named, and
 * allocates and touches blocks for so many milliseconds; then it writes how many to a second file (".blocks"). The launcher exits with status 3 as soon
 * as the first file is there. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((noinline)) static char *late_block(void) {
    char *block = malloc(64 << 10);
    if (block) memset(block, 1, 64 << 10);
    return block;
}

int main(int argc, char **argv) {
    if (argc != 3) return 1;
    long length_ms = atol(argv[2]);
    pid_t first = fork();
    if (first == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        char name[4096];
        snprintf(name, sizeof name, "%s.part", argv[1]);
        FILE *file = fopen(name, "w");
        if (!file) _exit(1);
        fprintf(file, "%d\n", getpid());
        fclose(file);
        rename(name, argv[1]);
        for (int out = 0; out < 3; out++) close(out);
        open("/dev/null", O_RDWR);
        long blocks = 0;
        for (long end = now_ms() + length_ms; now_ms() < end; usleep(20000), blocks++) {
            char *block = late_block();
            volatile char sum = block ? block[100] : 0;
            (void)sum;
            free(block);
        }
        snprintf(name, sizeof name, "%s.blocks", argv[1]);
        file = fopen(name, "w");
        if (!file || fprintf(file, "%ld\n", blocks) < 0 || fclose(file)) _exit(1);
        _exit(0);
    }
    waitpid(first, NULL, 0);
    while (access(argv[1], R_OK)) usleep(1000);
    return 3;
}
