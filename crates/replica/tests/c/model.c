/* model.c: runs the protocol's own code (protocol.h) under every interleaving of a few threads, store buffers included.
 *
 * Each step of a thread is one atomic operation. Plain stores go to the thread's buffer, first in first out, and reach memory when the checker says so,
 * as on x86 (TSO); everything sequentially consistent drains it. The writer's heavy barrier drains everybody's, which is what membarrier does. The search
 * is depth first over all choices (which thread steps, whose oldest store lands), each path run again from the start; a state that was seen before is not
 * searched again. A thread's own state is a function of what it has loaded, so a state is: those loads, the memory, the buffers.
 *
 * Checked in every state: a section reads no freed edition, reads one version whole, its version is one that was current between its begin and the
 * read, and a thread's versions never fall; what is replaced is freed in the end.
 * Usage: model [all | no-light-barrier | no-heavy-barrier | free-early]: `all` takes minutes more; a protocol broken on purpose must be found out.
 * Exit 0: all right, 1: a violation. */
#define NPR_MODEL
#include "protocol.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { THREADS_MAX = 3, BUFFER = 8, EDITIONS = 4, NODES = 2, PATH_MAX_STEPS = 512, STACK = 64 << 10, WORDS = 32 };

struct edition {
    bool is_freed;
    uint64_t version[NODES]; /* the content of each node's copy */
};

static struct shape {
    int readers, sections, publishes;
    int has_heavy;
} shape;
static const char *mutation = "";

/* What a run changes. All of it is set up anew for each path. */
static struct world {
    struct npr_domain domain;
    struct npr_reader records[THREADS_MAX];
    npr_word current;
    struct edition editions[EDITIONS];
    uint64_t begun, completed; /* the newest version that may be, that must be seen: ghosts, no part of the protocol */
    struct {
        npr_word *to[BUFFER], value[BUFFER];
        int count;
    } buffers[THREADS_MAX];
    uint64_t loads[THREADS_MAX]; /* a hash of everything the thread has seen */
    bool is_done[THREADS_MAX];
} world;
static ucontext_t contexts[THREADS_MAX]; /* where each begins; from then on jumps, which need no system call */
static jmp_buf scheduler, stopped[THREADS_MAX];
static bool has_begun[THREADS_MAX];
static char stacks[THREADS_MAX][STACK];
static int running, threads;
static char complaint[256];
static uint64_t sections_read[EDITIONS]; /* over all paths, by version: the search got to their ends */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

#define CHECK(condition, ...) do { if (!(condition) && !complaint[0]) snprintf(complaint, sizeof complaint, __VA_ARGS__); } while (0)

/* ---- the operations of atomics.h ---- */

static void note(uint64_t value) { world.loads[running] = mix(world.loads[running], value + 1); }

static void pause_here(void) {
    /* Where a thread is is part of its state, also after a step that shows it nothing. */
    note(99);
    if (!_setjmp(stopped[running])) _longjmp(scheduler, 1);
}

static void land_oldest(int thread) {
    *world.buffers[thread].to[0] = world.buffers[thread].value[0];
    world.buffers[thread].count--;
    memmove(world.buffers[thread].to, world.buffers[thread].to + 1, sizeof(npr_word *) * (BUFFER - 1));
    memmove(world.buffers[thread].value, world.buffers[thread].value + 1, sizeof(npr_word) * (BUFFER - 1));
}

static void drain(int thread) {
    while (world.buffers[thread].count > 0) land_oldest(thread);
}

/* A thread sees its own stores before they land. */
npr_word npr_own(const npr_word *from) {
    npr_word value = *from;
    for (int i = 0; i < world.buffers[running].count; i++) {
        if (world.buffers[running].to[i] == from) value = world.buffers[running].value[i];
    }
    note(value);
    return value;
}

npr_word npr_load(const npr_word *from) {
    pause_here();
    return npr_own(from);
}

void npr_store(npr_word *to, npr_word value) {
    pause_here();
    if (world.buffers[running].count == BUFFER) land_oldest(running);
    world.buffers[running].to[world.buffers[running].count] = to;
    world.buffers[running].value[world.buffers[running].count++] = value;
    note(value);
}

npr_word npr_add(npr_word *to, npr_word value) {
    pause_here();
    drain(running);
    note(*to += value);
    return *to;
}

npr_word npr_swap(npr_word *to, npr_word value) {
    pause_here();
    drain(running);
    npr_word before = *to;
    *to = value;
    note(before);
    return before;
}

void npr_light_barrier(int has_heavy) {
    if (has_heavy || !strcmp(mutation, "no-light-barrier")) return;
    pause_here();
    drain(running);
    note(1);
}

int npr_heavy_barrier(int has_heavy) {
    pause_here();
    drain(running);
    for (int thread = 0; has_heavy && strcmp(mutation, "no-heavy-barrier") && thread < threads; thread++) drain(thread);
    note(2);
    return 1;
}

/* ---- the program ---- */

static void read_sections(int self) {
    uint64_t newest = 0;
    for (int section = 0; section < shape.sections; section++) {
        struct npr_reader *record = &world.records[self];
        uint64_t at_least = world.completed;
        note(at_least);
        npr_pin(&world.domain, record);
        const struct edition *edition = (const struct edition *)npr_load(&world.current);
        CHECK(!edition->is_freed, "a section takes a freed edition");
        uint64_t version = edition->version[self % NODES];
        CHECK(version >= at_least, "version %llu is read after %llu was published", (unsigned long long)version, (unsigned long long)at_least);
        CHECK(version <= world.begun, "version %llu is read before it is published", (unsigned long long)version);
        CHECK(version >= newest, "versions fall from %llu to %llu", (unsigned long long)newest, (unsigned long long)version);
        newest = version;
        note(version);
        pause_here();
        CHECK(!edition->is_freed, "an edition is freed under a section");
        CHECK(edition->version[self % NODES] == version, "a section sees two versions");
        npr_unpin(record);
        sections_read[version]++;
    }
}

static void publish_all(int self) {
    struct { struct edition *edition; npr_word tag; } pending[EDITIONS];
    int count = 0;
    for (int i = 1; i <= shape.publishes; i++) {
        struct edition *next = &world.editions[i];
        for (int node = 0; node < NODES; node++) next->version[node] = (uint64_t)i;
        world.begun = (uint64_t)i;
        pending[count].edition = (struct edition *)npr_replace(&world.domain, &world.current, (npr_word)next, &pending[count].tag);
        world.completed = (uint64_t)i;
        count++;
        npr_word oldest = !strcmp(mutation, "free-early") ? NPR_NOBODY : npr_oldest(&world.domain);
        for (int at = 0; at < count; at++) {
            if (pending[at].edition && pending[at].tag <= oldest) {
                pending[at].edition->is_freed = true;
                for (int node = 0; node < NODES; node++) pending[at].edition->version[node] = 77;
                pending[at].edition = NULL;
            }
        }
    }
    (void)self;
}

static void thread_main(int self) {
    if (self < shape.readers) read_sections(self);
    else publish_all(self);
    world.is_done[self] = true;
    _longjmp(scheduler, 1);
}

static void set_up(void) {
    memset(&world, 0, sizeof world);
    threads = shape.readers + 1;
    world.domain.epoch = 1;
    world.domain.has_heavy = shape.has_heavy;
    for (int i = 0; i < shape.readers; i++) {
        world.records[i].next = i + 1 < shape.readers ? &world.records[i + 1] : NULL;
        world.records[i].is_owned = 1;
    }
    world.domain.readers = (npr_word)&world.records[0];
    world.current = (npr_word)&world.editions[0];
    memset(has_begun, 0, sizeof has_begun);
}

/* ---- the search ---- */

static uint64_t *seen;
static size_t seen_count, seen_size;

static bool is_new(uint64_t state) {
    if (seen_count * 2 >= seen_size) {
        size_t size = seen_size ? seen_size * 2 : 1 << 16;
        uint64_t *old = seen;
        size_t old_size = seen_size;
        seen = calloc(size, sizeof *seen);
        if (!seen) exit(3);
        seen_size = size;
        seen_count = 0;
        for (size_t i = 0; i < old_size; i++) {
            if (old[i]) is_new(old[i]);
        }
        free(old);
    }
    size_t at = state & (seen_size - 1);
    while (seen[at] && seen[at] != state) at = (at + 1) & (seen_size - 1);
    if (seen[at] == state) return false;
    seen[at] = state;
    seen_count++;
    return true;
}

static uint64_t state_now(void) {
    uint64_t hash = mix(world.domain.epoch, world.current);
    for (int i = 0; i < EDITIONS; i++) hash = mix(hash, world.editions[i].is_freed * 100 + world.editions[i].version[0]);
    hash = mix(mix(hash, world.begun), world.completed);
    for (int i = 0; i < threads; i++) {
        hash = mix(mix(mix(hash, world.records[i].epoch), world.loads[i]), (uint64_t)world.is_done[i] * 2 + 1);
        hash = mix(hash, (uint64_t)world.buffers[i].count);
        for (int store = 0; store < world.buffers[i].count; store++) hash = mix(hash, (uint64_t)world.buffers[i].to[store] ^ world.buffers[i].value[store]);
    }
    return hash | 1;
}

/* Choice c of a state: thread c steps; threads + t: the oldest store of t lands. */
static bool is_possible(int choice) {
    if (choice < threads) return !world.is_done[choice];
    return world.buffers[choice - threads].count > 0;
}

static void take(int choice) {
    if (choice >= threads) {
        land_oldest(choice - threads);
        return;
    }
    running = choice;
    if (_setjmp(scheduler)) return;
    if (has_begun[choice]) _longjmp(stopped[choice], 1);
    has_begun[choice] = true;
    setcontext(&contexts[choice]);
}

/* The first possible choice from `choice` on; 2 * threads: none. */
static int next_choice(unsigned possible, int choice) {
    while (choice < 2 * threads && !(possible >> choice & 1)) choice++;
    return choice;
}

static unsigned all_possible(void) {
    unsigned possible = 0;
    for (int choice = 0; choice < 2 * threads; choice++) possible |= (unsigned)is_possible(choice) << choice;
    return possible;
}

/* True: every path is all right. */
static bool search(uint64_t *states, uint64_t *paths) {
    static int path[PATH_MAX_STEPS];
    static unsigned possible[PATH_MAX_STEPS];
    int length = 0;
    free(seen);
    seen = NULL;
    seen_count = seen_size = 0;
    for (*paths = 1;; ++*paths) {
        set_up();
        for (int i = 0; i < length; i++) take(path[i]);
        /* Down, always the first choice, until a state that is known or the end. */
        while (!complaint[0] && is_new(state_now())) {
            unsigned choices = all_possible();
            if (choices == 0) break;
            if (length == PATH_MAX_STEPS) exit(3);
            possible[length] = choices;
            path[length] = next_choice(choices, 0);
            take(path[length++]);
        }
        *states = seen_count;
        if (complaint[0]) return false;
        /* Up to the deepest state with a choice left. */
        int next = 2 * threads;
        while (length > 0 && (next = next_choice(possible[length - 1], path[length - 1] + 1)) == 2 * threads) length--;
        if (length == 0) return true;
        path[length - 1] = next;
    }
}

/* The threads' beginnings, taken once. */
static void make_threads(void) {
    for (int i = 0; i < THREADS_MAX; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))thread_main, 1, i);
    }
}

int main(int argc, char **argv) {
    static const struct shape shapes[] = {
        {1, 1, 1, 0}, {1, 1, 1, 1}, {1, 2, 2, 0}, {1, 2, 2, 1}, {1, 3, 3, 0}, {1, 3, 3, 1}, {2, 1, 2, 0}, {2, 1, 2, 1},
        {2, 2, 2, 1}, /* only for `all` */
    };
    if (argc > 1) mutation = argv[1];
    make_threads();
    size_t count = sizeof shapes / sizeof *shapes;
    for (size_t i = 0; i < count - (strcmp(mutation, "all") != 0); i++) {
        uint64_t states = 0, paths = 0;
        shape = shapes[i];
        bool is_right = search(&states, &paths);
        for (int version = 0; is_right && version <= shape.publishes; version++) is_right = sections_read[version] > 0;
        if (!is_right && !complaint[0]) snprintf(complaint, sizeof complaint, "not every version was ever read: the search is broken");
        memset(sections_read, 0, sizeof sections_read);
        printf("%d readers x %d sections, %d publishes, %s: %llu states, %llu paths: %s\n", shape.readers, shape.sections, shape.publishes,
               shape.has_heavy ? "membarrier" : "fences", (unsigned long long)states, (unsigned long long)paths, is_right ? "all right" : complaint);
        if (!is_right) return 1;
    }
    return 0;
}
