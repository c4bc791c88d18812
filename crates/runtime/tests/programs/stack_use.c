/* How many bytes of stack calls take that the tracker stands in, one line for each: in a coroutine, and in a thread on its own stack.
 * To be run with LD_BIND_NOW. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define PAINT 0xa5
#define STACK (256ul << 10)

static void *volatile block;
static int file;

static void allocate(void) {
    block = malloc(100);
    free(block);
}
static void reallocate(void) {
    block = realloc(malloc(100), 10000);
    free(block);
}
static void map(void) { munmap(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096); }
static void map_file(void) { munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0), 4096); }
static void remap(void) {
    void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mremap(pages, 8192, 4096, 0), 4096);
}
static const struct { const char *name; void (*call)(void); } calls[] = {
    {"malloc", allocate}, {"realloc", reallocate}, {"mmap", map}, {"mmap-file", map_file}, {"mremap", remap},
};
#define CALLS (sizeof calls / sizeof *calls)

static unsigned char *stack;
static uintptr_t top;
static size_t current;
static ucontext_t home, other;

static __attribute__((noinline)) void call_current(void) {
    top = (uintptr_t)__builtin_frame_address(0);
    calls[current].call();
}

static void print(const char *where) {
    unsigned char *at = stack;
    while (*at == PAINT) at++;
    printf("%s-%s %ld\n", calls[current].name, where, (long)(top - (uintptr_t)at));
}

static void paint(void) {
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, PAINT, STACK);
}

static void in_coroutine(const char *where) {
    paint();
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = STACK;
    other.uc_link = &home;
    makecontext(&other, call_current, 0);
    swapcontext(&home, &other);
    print(where);
}

static void *coroutines(void *where) {
    for (current = 0; current < CALLS; current++) in_coroutine(where);
    return NULL;
}

static void *once(void *unused) {
    call_current();
    return unused;
}

static void on_own_stack(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    paint();
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    if (pthread_create(&thread, &attributes, once, NULL) != 0) exit(3);
    pthread_join(thread, NULL);
    print("own");
}

int main(void) {
    pthread_t thread;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    file = open("/proc/self/exe", O_RDONLY);
    coroutines("main");
    if (pthread_create(&thread, NULL, coroutines, "thread") != 0) return 3;
    pthread_join(thread, NULL);
    for (current = 0; current < CALLS; current++) on_own_stack();
    return 0;
}
