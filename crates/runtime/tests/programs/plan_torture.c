/* plan_torture.c: many threads allocate, grow, align, hand blocks to each other, free, and fork, and check every byte and every alignment.
 *
 *   plan_torture THREADS ROUNDS SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 4096u
#define MINE 64u

struct block { unsigned char *at; size_t bytes; unsigned char fill; };
static struct block shared[SLOTS];
static pthread_mutex_t locks[SLOTS];
static unsigned rounds, seed;

static void fail(const char *what, const struct block *block) {
    fprintf(stderr, "%s: block %p of %zu bytes (seed %u)\n", what, (void *)block->at, block->bytes, seed);
    abort();
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static size_t some_size(uint64_t *state) {
    uint64_t kind = next(state) % 100, value = next(state);
    if (kind < 60) return value % 256;
    if (kind < 85) return value % 4096;
    if (kind < 97) return value % 40000;
    return value % 1000000;
}

static void fill(struct block *block, uint64_t *state) {
    block->fill = (unsigned char)next(state);
    memset(block->at, block->fill, block->bytes);
}

static void check(const struct block *block, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i += bytes > 4096 && i > 64 && i + 128 < bytes ? 61 : 1)
        if (block->at[i] != block->fill) fail(what, block);
    if (block->at != NULL && malloc_usable_size(block->at) < block->bytes) fail("usable size", block);
}

static struct block make(uint64_t *state) {
    struct block block = {.bytes = some_size(state)};
    size_t alignment = 16;
    errno = 77;
    switch (next(state) % 8) {
    case 0:
        block.at = calloc(1 + block.bytes % 3, block.bytes / 3);
        block.bytes = (1 + block.bytes % 3) * (block.bytes / 3);
        for (size_t i = 0; i < block.bytes; i++)
            if (block.at[i] != 0) fail("calloc", &block);
        break;
    case 1:
        alignment = 16ul << next(state) % 9;
        block.at = memalign(alignment, block.bytes);
        break;
    case 2:
        alignment = 8ul << next(state) % 15;
        void *at = NULL;
        if (posix_memalign(&at, alignment, block.bytes) != 0) fail("posix_memalign", &block);
        block.at = at;
        break;
    default: block.at = malloc(block.bytes); break;
    }
    if (block.at == NULL && block.bytes != 0) fail("no memory", &block);
    if (errno != 77) fail("errno", &block);
    if ((uintptr_t)block.at % alignment != 0) fail("alignment", &block);
    fill(&block, state);
    return block;
}

static void regrow(struct block *block, uint64_t *state) {
    size_t bytes = some_size(state) + 1, kept = bytes < block->bytes ? bytes : block->bytes;
    unsigned char *at = realloc(block->at, bytes);
    if (at == NULL) fail("realloc", block);
    block->at = at;
    block->bytes = bytes;
    check(block, kept, "realloc's bytes");
    fill(block, state);
}

static void fork_once(uint64_t *state) {
    pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
        struct block blocks[MINE];
        for (unsigned i = 0; i < MINE; i++) blocks[i] = make(state);
        for (unsigned i = 0; i < MINE; i++) {
            check(&blocks[i], blocks[i].bytes, "in the child");
            free(blocks[i].at);
        }
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        fprintf(stderr, "a forked child ended with status %x (seed %u)\n", status, seed);
        abort();
    }
}

static void *work(void *number) {
    uint64_t state = (seed + (uintptr_t)number + 1) * 0x9e3779b97f4a7c15ull | 1;
    struct block mine[MINE] = {0};
    for (unsigned round = 0; round < rounds; round++) {
        struct block *block = &mine[next(&state) % MINE];
        uint64_t what = next(&state) % 16;
        if (block->at == NULL) *block = make(&state);
        else if (what < 3) regrow(block, &state);
        else if (what < 9) {
            /* Into other hands: what was there is taken and freed here. */
            unsigned slot = (unsigned)(next(&state) % SLOTS);
            pthread_mutex_lock(&locks[slot]);
            struct block other = shared[slot];
            shared[slot] = *block;
            pthread_mutex_unlock(&locks[slot]);
            *block = (struct block){0};
            if (other.at != NULL) {
                check(&other, other.bytes, "handed over");
                free(other.at);
            }
        } else {
            check(block, block->bytes, "own");
            free(block->at);
            *block = (struct block){0};
        }
        if (next(&state) % 20000 == 0) fork_once(&state);
    }
    for (unsigned i = 0; i < MINE; i++) free(mine[i].at);
    return NULL;
}

int main(int count, char **arguments) {
    unsigned threads = count > 1 ? (unsigned)atoi(arguments[1]) : 4;
    rounds = count > 2 ? (unsigned)atoi(arguments[2]) : 20000;
    seed = count > 3 ? (unsigned)atoi(arguments[3]) : 1;
    for (unsigned i = 0; i < SLOTS; i++) pthread_mutex_init(&locks[i], NULL);
    pthread_t ids[64];
    for (unsigned generation = 0; generation < 2; generation++) {
        for (uintptr_t i = 0; i < threads && i < 64; i++)
            if (pthread_create(&ids[i], NULL, work, (void *)(i + generation * 100)) != 0) return 1;
        for (unsigned i = 0; i < threads && i < 64; i++) pthread_join(ids[i], NULL);
    }
    for (unsigned i = 0; i < SLOTS; i++) free(shared[i].at);
    puts("torture ok");
    return 0;
}
