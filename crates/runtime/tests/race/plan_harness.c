/* plan_harness.c: drives the planner's hooks from many threads, in one program that a thread sanitizer watches; built as harness.c is, from the planner's
 * files. `plan_harness IMAGE ROUNDS FLAGS` writes a plan with a rule of each kind to IMAGE and executes itself under it.
 *
 * Some threads are there before the planner's constructor runs, as those of other preloaded libraries are: they allocate and map while the plan is mapped
 * and its words are set. */
#define _GNU_SOURCE
#include "plan.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 6
#define EARLY 3
#define RULES 6

extern int hook_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument);
extern int hook_pthread_setname_np(pthread_t thread, const char *name);
extern void *hook_dlsym(void *handle, const char *name);
extern void *hook_malloc(size_t bytes);
extern void *hook_calloc(size_t count, size_t each);
extern void hook_free(void *block);
extern void *hook_realloc(void *block, size_t bytes);
extern void *hook_memalign(size_t alignment, size_t bytes);
extern size_t hook_malloc_usable_size(void *block);
extern void *hook__Znwm(size_t bytes);
extern void hook__ZdlPv(void *block);
extern void *hook_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

static void *mailboxes[THREADS];
static unsigned rounds;
static bool is_started; /* main runs: the early threads end */
static pthread_t early[EARLY];

/* -- the plan -- */

static const struct { uint32_t kind, policy; uint64_t least, most, patterns; } wanted[RULES] = {
    {NP_PLAN_FILE, NP_PLAN_NODE, 0, UINT64_MAX, 0},
    {NP_PLAN_DYNAMIC, NP_PLAN_LOCAL, 100, 2000, 0},
    {NP_PLAN_DYNAMIC, NP_PLAN_HAND_OVER, 2001, 16000, 0},
    {NP_PLAN_DYNAMIC, NP_PLAN_NODE, 16001, 40000, 1}, /* never found: stacks are walked for it */
    {NP_PLAN_DYNAMIC, NP_PLAN_WEIGHTED, 16001, 200000, 0},
    {NP_PLAN_DYNAMIC, NP_PLAN_SPLIT, 200001, 1 << 22, 0},
};

static union {
    struct np_plan plan;
    char bytes[sizeof(struct np_plan) + RULES * sizeof(struct np_plan_rule) + sizeof(struct np_plan_place)];
} image;

static int write_plan(const char *path, uint32_t flags) {
    struct np_plan *plan = &image.plan;
    struct np_plan_rule *rules = (void *)(image.bytes + sizeof *plan);
    struct np_plan_place *place = (void *)(rules + RULES);
    *plan = (struct np_plan){.magic = NP_PLAN_MAGIC, .version = NP_PLAN_VERSION, .bytes = sizeof image, .flags = flags, .memory_nodes = 1,
                             .rule_count = RULES, .thread_count = 1, .rules = sizeof *plan, .min_size = 100, .max_size = 1 << 22};
    plan->threads = sizeof *plan + RULES * sizeof *rules;
    plan->processes = plan->modules = plan->code = plan->statics = sizeof image;
    memset(plan->node_cpus[0], 0xff, sizeof plan->node_cpus[0]);
    for (unsigned i = 0; i < RULES; i++) {
        rules[i] = (struct np_plan_rule){.kind = wanted[i].kind, .policy = wanted[i].policy, .nodes = 1, .min_size = wanted[i].least,
                                         .max_size = wanted[i].most, .patterns = wanted[i].patterns, .to_pattern = NP_PLAN_NO_PATTERN};
        rules[i].weights[0] = 1;
        rules[i].flags = wanted[i].policy == NP_PLAN_WEIGHTED ? NP_PLAN_OWN_WEIGHTS : 0;
        strcpy(rules[i].text, wanted[i].kind == NP_PLAN_FILE ? "/*" : "even*");
    }
    *place = (struct np_plan_place){.name = "odd*", .start_pattern = NP_PLAN_NO_PATTERN};
    memset(place->cpus, 0xff, sizeof place->cpus);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    bool is_written = fd >= 0 && write(fd, &image, sizeof image) == (ssize_t)sizeof image;
    return is_written && close(fd) == 0 ? 0 : 1;
}

/* -- the threads -- */

static void map_something(int fd) {
    void *pages = hook_mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) munmap(pages, 1 << 16);
    void *file = hook_mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) munmap(file, 4096);
}

static void allocate(unsigned index, unsigned i) {
    static const size_t sizes[] = {24, 300, 1500, 5000, 20000, 70000, 300000};
    size_t bytes = sizes[(index + i) % 7];
    char *block = i % 3 == 0 ? hook_calloc(1, bytes) : i % 3 == 1 ? hook_memalign(64, bytes) : hook_malloc(bytes);
    block[0] = block[bytes - 1] = 1;
    if (hook_malloc_usable_size(block) < bytes) abort();
    block = hook_realloc(block, bytes + bytes / 2 + i % 100);
    hook_free(__atomic_exchange_n(&mailboxes[(index + i) % THREADS], block, __ATOMIC_ACQ_REL));
    hook__ZdlPv(hook__Znwm(bytes));
}

static void *begin_early(void *argument) {
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; !__atomic_load_n(&is_started, __ATOMIC_ACQUIRE) || i < 10; i++) {
        allocate((unsigned)(uintptr_t)argument, i);
        map_something(fd);
    }
    close(fd);
    np_plan_tls.ended = 3; /* the thread's state goes in the first round of key destructors: the sanitizer is gone in the last */
    return NULL;
}

__attribute__((constructor(101))) static void start_early(void) {
    if (getenv("NUMAPILOT_PLAN") == NULL) return;
    for (uintptr_t i = 0; i < EARLY; i++)
        if (pthread_create(&early[i], NULL, begin_early, (void *)i) != 0) abort();
    usleep(20000);
}

static void *work(void *argument) {
    unsigned index = (unsigned)(uintptr_t)argument;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; i < rounds; i++) {
        allocate(index, i);
        map_something(fd);
        if (i % 8 == 1) hook_dlsym(NULL, "strlen");
        if (i % 8 == 2) hook_pthread_setname_np(pthread_self(), i % 16 == 2 ? "even" : "odd");
        if (i % 16 == 3) np_plan_all_counted();
        if (i % 16 == 5 && index == 0) np_match_modules_changed();
    }
    close(fd);
    np_plan_tls.ended = 3;
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    if (getenv("NUMAPILOT_PLAN") == NULL) {
        if (write_plan(arguments[1], (uint32_t)atoi(arguments[3])) != 0 || setenv("NUMAPILOT_PLAN", arguments[1], 1) != 0) return 3;
        execv("/proc/self/exe", arguments);
        return 4;
    }
    if (np_plan == NULL) return 5;
    rounds = (unsigned)atoi(arguments[2]);
    for (int life = 0; life < 2; life++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            if (hook_pthread_create(&threads[i], NULL, work, (void *)i) != 0) return 6;
        if (life == 0) np_region_limit(); /* as setrlimit does: unused addresses go while others allocate */
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        __atomic_store_n(&is_started, true, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < EARLY; i++) pthread_join(early[i], NULL);
    for (int i = 0; i < THREADS; i++) hook_free(mailboxes[i]);
    np_plan_all_counted();
    const struct np_plan_rule *rules = np_plan_rules();
    for (unsigned i = 0; i < RULES; i++)
        if (wanted[i].patterns == 0 && rules[i].placed + rules[i].passed == 0) return 10 + (int)i;
    puts("done");
    return 0;
}
