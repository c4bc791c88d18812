/* homes.c: pages that get their second life where nobody looks: `homes CASE` prints on which simulated nodes the pages of its subject lie, as the program's own
 * move_pages answers. ../homes.rs has what must come out. Compiled with call-outs; main runs on node 0, the k-th thread that it makes on node k % 4. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define BIG (16ul << 20)

extern long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) __attribute__((weak));

static void print_homes(const char *name, const volatile char *block, size_t bytes) {
    size_t pages = bytes / PAGE;
    unsigned on[5] = {0};
    for (size_t i = 0; i < pages; i++) {
        void *page = (void *)(((uintptr_t)block & ~(PAGE - 1)) + i * PAGE);
        int status = -1;
        move_pages(0, 1, &page, NULL, &status, 0);
        on[status >= 0 && status < 4 ? status : 4]++;
    }
    printf("%s %u %u %u %u none %u\n", name, on[0], on[1], on[2], on[3], on[4]);
}

struct range { volatile char *from; size_t bytes; };

static void *write_range(void *argument) {
    struct range *range = argument;
    for (size_t i = 0; i < range->bytes; i += 512) range->from[i] = 1;
    return NULL;
}

static void run(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) exit(3);
    pthread_join(thread, NULL);
}

static void write_in_thread(void *from, size_t bytes) {
    struct range range = {from, bytes};
    run(write_range, &range);
}

static void same(const volatile void *before, const volatile void *now) {
    if (before == now) return;
    printf("elsewhere %p %p\n", (void *)before, (void *)now);
    exit(4);
}

/* The C library unmaps inside free. */
static void freed(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* fixed: it would grow with the first block that is given back */
    char *block = malloc(BIG), *first = block;
    write_in_thread(block, BIG);
    free(block);
    block = malloc(BIG);
    same(first, block);
    for (int i = 0; i < 3; i++) write_in_thread(block + i * (BIG / 4), BIG / 4);
    struct range rest = {block + 3 * (BIG / 4), BIG / 4};
    write_range(&rest);
    print_homes("homes", block, BIG);
}

/* mremap inside realloc takes the pages along. */
static void moved(void) {
    char *block = malloc(BIG), *old = block;
    write_in_thread(block, BIG);
    char *wall = mmap(block + BIG + PAGE - 16, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    (void)wall; /* whatever lies behind it, it cannot grow */
    block = realloc(block, 4 * BIG);
    if (block == old) exit(4);
    print_homes("homes", block, BIG);
    print_homes("rest", block + BIG + PAGE, 3 * BIG - PAGE);
    free(block);
    block = malloc(4 * BIG);
    write_in_thread(block, BIG);
    print_homes("again", block, BIG);
}

#define SMALL 2000ul /* too large for a thread's cache of blocks */
#define BLOCKS 4096
static char *blocks[BLOCKS];

static void *make_blocks(void *unused) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(SMALL);
    return unused;
}

static void *write_blocks(void *unused) {
    for (int i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < SMALL; k += 100) *(volatile char *)&blocks[i][k] = 1;
    return unused;
}

static void *free_blocks(void *unused) {
    for (int i = BLOCKS; i-- > 0;) free(blocks[i]);
    return unused;
}

/* The heap's end goes back to the kernel by the break, inside free. */
static void heap(void) {
    write_in_thread(malloc(PAGE), PAGE); /* nothing of a thread's comes to lie behind the blocks */
    make_blocks(NULL);
    char *first = blocks[0];
    run(write_blocks, NULL);
    free_blocks(NULL);
    make_blocks(NULL);
    same(first, blocks[0]);
    run(write_blocks, NULL);
    print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
}

/* The heap's middle goes back by advice, inside malloc_trim. */
static void trim(void) {
    make_blocks(NULL);
    char *first = blocks[0], *pin = malloc(SMALL);
    run(write_blocks, NULL);
    free_blocks(NULL);
    malloc_trim(0);
    make_blocks(NULL);
    same(first, blocks[0]);
    run(write_blocks, NULL);
    print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
    free(pin);
}

static void *life(void *unused) {
    make_blocks(NULL);
    write_blocks(NULL);
    if (unused != NULL) print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
    else free_blocks(NULL);
    return NULL;
}

/* A thread's own heap: the next thread gets it. */
static void arena(void) {
    char *first;
    run(life, NULL);
    first = blocks[0];
    run(life, &first);
    same(first, blocks[0]);
}

#define FRAME (4ul << 20)
static volatile char *frames[2];
static void *deep(void *which) {
    volatile char room[FRAME];
    frames[(size_t)which] = room;
    for (size_t i = 0; i < FRAME; i += 512) room[i] = 1;
    if (which != NULL) print_homes("homes", room, FRAME - 16 * PAGE);
    return NULL;
}

/* The C library keeps the stack, and gives its pages back. */
static void stack(void) {
    run(deep, NULL);
    run(deep, (void *)1);
    same(frames[0], frames[1]);
}

static char *library_room(void **library, const char *path) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) exit(5);
    return dlsym(*library, "room");
}

static void library(const char *path) {
    void *handle;
    write_in_thread(malloc(PAGE), PAGE); /* what threads take for themselves is taken now */
    char *room = library_room(&handle, path), *first = room;
    write_in_thread(room, BIG);
    dlclose(handle);
    room = library_room(&handle, path);
    same(first, room);
    write_in_thread(room, BIG);
    print_homes("homes", room + PAGE, BIG - 2 * PAGE);
}

/* Allocators give pages back by advice: at once, or when memory is short, which it is not here. */
static void advised(void) {
    char *block = mmap(NULL, 2 * BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    write_in_thread(block, 2 * BIG);
    madvise(block, BIG, MADV_DONTNEED);
    madvise(block + BIG, BIG, MADV_FREE);
    write_in_thread(block, 2 * BIG);
    print_homes("homes", block, BIG);
    print_homes("lazy", block + BIG, BIG);
}

static long sum_of(const volatile char *block, size_t bytes) {
    long sum = 0;
    for (size_t i = 0; i < bytes; i += 64) sum += block[i];
    return sum;
}

/* Reads of what nobody has written get the zero page; who writes gets a page of his own. Shared memory has none such. */
static void zero(void) {
    char *block = calloc(BIG, 1);
    char *common = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long sum = sum_of(block + PAGE, BIG - PAGE) + sum_of(common, BIG);
    print_homes("read", block + PAGE, BIG - PAGE);
    write_in_thread(block + PAGE, BIG / 2);
    write_in_thread(common, BIG);
    print_homes("homes", block + PAGE, BIG - PAGE);
    print_homes("shared", common, BIG);
    printf("sum %ld\n", sum);
}

/* Code without call-outs: the C library's own, called by its address. */
static void *unseen_fill(void *argument) {
    struct range *range = argument;
    void *(*volatile fill)(void *, int, size_t) = dlsym(RTLD_DEFAULT, "memset");
    fill((void *)range->from, 1, range->bytes);
    return NULL;
}

/* By main alone, and then by one of two threads: an access later on finds both there. */
static void unseen(void) {
    struct range early = {malloc(BIG), BIG}, late = {malloc(BIG), BIG};
    unseen_fill(&early);
    run(unseen_fill, &late);
    long sum = sum_of(early.from, BIG) + sum_of(late.from, BIG);
    print_homes("homes", early.from, BIG);
    print_homes("late", late.from + PAGE, BIG - PAGE);
    printf("sum %ld\n", sum);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "freed") == 0) freed();
    else if (strcmp(name, "moved") == 0) moved();
    else if (strcmp(name, "heap") == 0) heap();
    else if (strcmp(name, "trim") == 0) trim();
    else if (strcmp(name, "arena") == 0) arena();
    else if (strcmp(name, "stack") == 0) stack();
    else if (strcmp(name, "library") == 0) library(argv[2]);
    else if (strcmp(name, "advised") == 0) advised();
    else if (strcmp(name, "zero") == 0) zero();
    else if (strcmp(name, "unseen") == 0) unseen();
    else return 2;
    return 0;
}
