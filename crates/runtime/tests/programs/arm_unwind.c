/* arm_unwind.c: walks of unwind.c through functions whose return addresses are known, compiled by the test in each way that moves frames about: through the
 * first thread, through a signal's frame that interrupted a leaf function, and by tables that were damaged (their copy: every address in them is relative).
 * Prints what was wrong, or "ok WALKS RULES". Unlike truth.h's programs it needs no tracker.
 */
#define _GNU_SOURCE
#include "track.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone))
#define DEPTH 5

struct np_own np_own;
static struct np_slot slot;
static struct np_memo memo;
static uintptr_t frames[128];
static uintptr_t chain[DEPTH + 1];
static volatile uint64_t sink;
static unsigned walks, wrong;

struct wanted { uintptr_t pc; const void *table; };
static int find_table(struct dl_phdr_info *module, size_t bytes, void *context) {
    struct wanted *wanted = context;
    const void *table = NULL;
    bool here = false;
    (void)bytes;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        uintptr_t lo = module->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && wanted->pc >= lo && wanted->pc < lo + segment->p_memsz) here = true;
        if (segment->p_type == PT_GNU_EH_FRAME) table = (const void *)lo;
    }
    if (here) wanted->table = table;
    return here;
}

const void *np_module_eh_frame(struct np_slot *of, uintptr_t pc) {
    struct wanted wanted = {pc, NULL};
    (void)of;
    dl_iterate_phdr(find_table, &wanted);
    return wanted.table;
}

/* The program's own frames, from the `skip`-th on, are those of `chain`; the walk ends where the thread does. */
static void compare(const char *what, unsigned count, uint32_t flags, unsigned skip) {
    bool same = count > skip + DEPTH && memcmp(frames + skip, chain, sizeof chain) == 0 && flags == 0;
    walks++;
    if (same) return;
    wrong++;
    printf("%s: flags %u\n", what, flags);
    for (unsigned i = 0; i < count; i++) printf("  %lx%s", frames[i], i + 1 == count ? "\n" : "");
    for (unsigned i = 0; i <= DEPTH; i++) printf("  %lx%s", chain[i], i == DEPTH ? " wanted\n" : "");
}

/* As a hook stands: with a frame pointer. The first frame is `caller`. */
static NOINLINE __attribute__((optimize("no-omit-frame-pointer"))) unsigned walk(uint32_t *flags) {
    uint64_t hash;
    memo.regs = NP_CALLER_REGS();
    return np_unwind(&slot, &memo, frames, 128, flags, &hash);
}

static NOINLINE void look(void) {
    uint32_t flags;
    chain[0] = (uintptr_t)__builtin_return_address(0);
    unsigned count = walk(&flags);
    compare("call", count, flags, 1);
    sink++;
}

/* Without a return address of its own in memory: what it interrupted is found by the link register. */
static volatile sig_atomic_t handled;
static uintptr_t interrupted;
static void handler(int number, siginfo_t *info, void *context) {
    uint32_t flags;
    (void)number, (void)info;
    interrupted = ((ucontext_t *)context)->uc_mcontext.pc;
    unsigned count = walk(&flags), at = 0;
    while (at < count && frames[at] != interrupted) at++;
    handled = 1;
    compare("signal", count, flags, at + 1);
    ((ucontext_t *)context)->uc_mcontext.pc += 4; /* behind the undefined instruction */
}
static NOINLINE uint64_t leaf(uint64_t value) {
    chain[0] = (uintptr_t)__builtin_return_address(0);
    __asm__ volatile(".inst 0" ::: "memory");
    return value * 3;
}

#if defined(VARIABLE)
#define LOCALS volatile char *room = __builtin_alloca((size_t)(16 + how * 8)); room[how] = 1; sink += room[how];
#elif defined(WIDE)
#define LOCALS volatile char room[96] __attribute__((aligned(64))); room[how] = 1; sink += room[how];
#elif defined(LARGE)
#define LOCALS volatile char room[70000]; room[how] = 1; sink += room[how];
#else
#define LOCALS volatile char room[40]; room[how] = 1; sink += room[how];
#endif
#define LEVEL(n, call)                                        \
    static NOINLINE void level##n(int how) {                  \
        LOCALS                                                \
        chain[n] = (uintptr_t)__builtin_return_address(0);    \
        call;                                                 \
        sink++;                                               \
    }
static NOINLINE void lowest(int how) {
    chain[1] = (uintptr_t)__builtin_return_address(0);
    if (how == 1) look();
    else sink += leaf(sink);
    sink++;
}
#if defined(SCALABLE)
/* Its frame keeps scalable registers: the tables compute where it is from the length of a vector. */
#include <arm_sve.h>
static NOINLINE svfloat64_t level2(svfloat64_t value, int how) {
    LOCALS
    chain[2] = (uintptr_t)__builtin_return_address(0);
    __asm__ volatile("" ::: "z8", "z9", "z10");
    lowest(how);
    sink++;
    return value;
}
#define level2(how) svst1_f64(svptrue_b64(), vector, level2(svld1_f64(svptrue_b64(), vector), how))
static double vector[256 / 8];
#else
LEVEL(2, lowest(how))
#endif
LEVEL(3, level2(how))
LEVEL(4, level3(how))
LEVEL(5, level4(how))

/* -- damaged tables -- */

static uint64_t seed = 1;
static uint64_t draw(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static bool is_same(struct np_rule a, struct np_rule b) {
    return a.kind == b.kind && a.fp_rule == b.fp_rule && a.cfa == b.cfa && a.fp == b.fp && a.ra_words == b.ra_words && a.ra_in_register == b.ra_in_register;
}

/* The header and what follows it, copied between pages that cannot be read: the same rules for code as far from it; and with damage, any rule, but no fault. */
static unsigned damage(void) {
    const int32_t *header = np_module_eh_frame(&slot, (uintptr_t)damage);
    uint32_t entries = (uint32_t)header[2];
    size_t head = 12 + 8ul * entries, bytes = head, room;
    for (uint32_t i = 0; i < entries; i++) {
        size_t at = (size_t)header[4 + 2 * i], end = at + 4 + *(const uint32_t *)((const char *)header + at);
        if (end > bytes) bytes = end;
    }
    room = (bytes + 8191) & ~4095ul;
    char *all = mmap(NULL, room + (2ul << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *copy = all + (1 << 20);
    if (all == MAP_FAILED || mprotect(copy, room, PROT_READ | PROT_WRITE) != 0) return 0;
    unsigned rules = 0;
    uintptr_t moved = (uintptr_t)copy - (uintptr_t)header;
    for (unsigned round = 0; round < 60; round++) {
        memcpy(copy, header, bytes);
        for (unsigned i = 0; i < round * 40; i++) copy[head + draw() % (bytes - head)] = (char)draw();
        for (uint32_t i = 0; i < entries; i += 7) {
            uintptr_t pc = (uintptr_t)header + (uintptr_t)(intptr_t)header[3 + 2 * i] + (draw() % 16) * 4;
            struct np_rule rule = np_cfi_rule(copy, pc + moved);
            if (round == 0 && !is_same(rule, np_cfi_rule(header, pc))) wrong++, printf("copied table: another rule at %lx\n", pc);
            rules += rule.kind != NP_RULE_GUESS;
        }
    }
    return rules;
}

int main(void) {
    pthread_attr_t attr;
    void *low;
    size_t bytes;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (pthread_getattr_np(pthread_self(), &attr) != 0 || pthread_attr_getstack(&attr, &low, &bytes) != 0) return 1;
    slot.stack_lo = (uintptr_t)low;
    slot.stack_hi = (uintptr_t)low + bytes;
    if (sigaction(SIGILL, &action, NULL) != 0) return 1;
    for (int how = 1; how <= 2; how++) level5(how);
    unsigned rules = damage();
    if (!handled) return 1;
    if (wrong == 0) printf("ok %u %u\n", walks, rules);
    return wrong != 0;
}
