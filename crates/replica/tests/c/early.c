/* early.c: loads a library whose constructor waits for a thread that is the first to call what the preload library stands before. With -DLIBRARY: that library.
 * Ends by SIGALRM if it takes for ever. Argument: the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef LIBRARY
static void *work(void *nothing) {
    cpu_set_t cpus;
    sigset_t set;
    char *pages = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, 8192, PROT_READ | PROT_WRITE) != 0) abort();
    pages = mremap(pages, 8192, 4096, MREMAP_MAYMOVE);
    if (pages == MAP_FAILED || munmap(pages, 4096) != 0) abort();
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || sched_setaffinity(0, sizeof cpus, &cpus) != 0) abort();
    sigemptyset(&set);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || sigprocmask(SIG_BLOCK, &set, NULL) != 0) abort();
    struct sigaction action = {.sa_handler = SIG_DFL};
    if (sigaction(SIGUSR2, &action, NULL) != 0 || signal(SIGUSR2, SIG_DFL) == SIG_ERR) abort();
    return nothing;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) abort();
    pthread_join(thread, NULL);
}
#else
int main(int count, char **arguments) {
    if (count != 2) return 2;
    alarm(60);
    if (dlopen(arguments[1], RTLD_NOW) == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
    puts("loaded");
    return 0;
}
#endif
