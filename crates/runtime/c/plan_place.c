/* plan_place.c: the requests for the placement of pages to the kernel (or to the simulated machine behind the tracker).
 *
 * mbind is found by its symbol where a library has one (libnuma; the tracker), else it is the system call. A refused call is counted with its errno;
 * the pages then stay where the program's own policy puts them.
 */
#define _GNU_SOURCE
#include "plan.h"

#include <sys/mman.h>

enum { MODE_DEFAULT, MODE_PREFERRED, MODE_BIND, MODE_INTERLEAVE, MODE_LOCAL, MODE_PREFERRED_MANY, MODE_WEIGHTED };
#define FLAG_MOVE 2u
#define MOST_STRIPES 512u
#define MASK_BITS (NP_PLAN_NODES + 1)

/* Weak, not looked up: a lookup that fails leaves a message in the program's heap, and its blocks would lie elsewhere. */
extern long mbind(void *, unsigned long, int, const unsigned long *, unsigned long, unsigned) __attribute__((weak));
static uint16_t node_of_cpu[NP_PLAN_CPU_WORDS * 64]; /* node + 1; 0: none */

void np_place_init(void) {
    for (uint32_t node = 0; node < NP_PLAN_NODES; node++)
        for (uint32_t cpu = 0; cpu < NP_PLAN_CPU_WORDS * 64; cpu++)
            if (np_plan->node_cpus[node][cpu / 64] >> (cpu % 64) & 1) node_of_cpu[cpu] = (uint16_t)(node + 1);
}

uint32_t np_place_node_of(int cpu) {
    if (cpu < 0 || cpu >= (int)(NP_PLAN_CPU_WORDS * 64) || node_of_cpu[cpu] == 0) return 0;
    return node_of_cpu[cpu] - 1u;
}

uint32_t np_place_node(void) { return np_place_node_of(sched_getcpu()); }

/* 0, or an errno value. Keeps errno. */
static int ask(uintptr_t address, uint64_t bytes, int mode, uint64_t nodes, bool move) {
    unsigned long mask[2] = {nodes, 0};
    unsigned long *given = mode == MODE_DEFAULT || mode == MODE_LOCAL ? NULL : mask;
    unsigned long bits = given != NULL ? MASK_BITS : 0;
    unsigned flags = move ? FLAG_MOVE : 0;
    if (mbind == NULL) return (int)-NP_SYS6(SYS_mbind, address, bytes, mode, given, bits, flags);
    int saved = errno;
    int error = mbind((void *)address, bytes, mode, given, bits, flags) == 0 ? 0 : errno;
    errno = saved;
    return error;
}

static bool counted(struct np_plan_rule *rule, int error) {
    if (error == 0) return true;
    np_plan_count(&rule->failures, 1);
    __atomic_store_n(&rule->last_errno, (uint64_t)error, __ATOMIC_RELAXED);
    return false;
}

static uint32_t nth_node(uint64_t nodes, uint32_t n) {
    while (n-- > 0) nodes &= nodes - 1;
    return (uint32_t)__builtin_ctzll(nodes);
}

/* Contiguous parts, one to a node, ends at whole pages. */
static int split(const struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, bool move) {
    uint32_t count = (uint32_t)__builtin_popcountll(rule->nodes);
    uint64_t pages = bytes >> NP_PAGE_SHIFT;
    int error = 0;
    for (uint32_t part = 0; part < count; part++) {
        uint64_t first = pages * part / count, end = pages * (part + 1) / count;
        if (first == end) continue;
        int now = ask(address + (first << NP_PAGE_SHIFT), (end - first) << NP_PAGE_SHIFT, MODE_PREFERRED, 1ull << nth_node(rule->nodes, part), move);
        if (now != 0) error = now;
    }
    return error;
}

/* Stripes in proportion to the weights, as short as a bound on the number of mappings allows. */
static int weighted(const struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, bool move) {
    uint64_t pages = bytes >> NP_PAGE_SHIFT, round = 0, nodes = rule->nodes;
    for (uint64_t rest = nodes; rest != 0; rest &= rest - 1) round += rule->weights[__builtin_ctzll(rest)];
    if (round == 0) return EINVAL;
    uint64_t per_round = (uint64_t)__builtin_popcountll(nodes);
    uint64_t unit = (pages * per_round + round * MOST_STRIPES - 1) / (round * MOST_STRIPES);
    if (unit == 0) unit = 1;
    int error = 0;
    uint64_t rest = nodes;
    for (uint64_t page = 0; page < pages; rest &= rest - 1) {
        if (rest == 0) rest = nodes;
        uint64_t length = rule->weights[__builtin_ctzll(rest)] * unit;
        if (length > pages - page) length = pages - page;
        int now = length == 0 ? 0
                              : ask(address + (page << NP_PAGE_SHIFT), length << NP_PAGE_SHIFT, MODE_PREFERRED, rest & -rest, move);
        if (now != 0) error = now;
        page += length;
    }
    return error;
}

bool np_place_range(struct np_plan_rule *rule, uint32_t node, uintptr_t address, uint64_t bytes, bool move) {
    int error = 0;
    if (rule->flags & (NP_PLAN_HUGE | NP_PLAN_NO_HUGE)) {
        int saved = errno;
        if (madvise((void *)address, bytes, rule->flags & NP_PLAN_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) counted(rule, errno);
        errno = saved;
    }
    switch (rule->policy) {
    case NP_PLAN_NODE: error = ask(address, bytes, rule->flags & NP_PLAN_STRICT ? MODE_BIND : MODE_PREFERRED, rule->nodes, move); break;
    case NP_PLAN_INTERLEAVE: error = ask(address, bytes, MODE_INTERLEAVE, rule->nodes, move); break;
    case NP_PLAN_WEIGHTED:
        if (rule->flags & NP_PLAN_OWN_WEIGHTS) {
            error = weighted(rule, address, bytes, move);
            break;
        }
        error = ask(address, bytes, MODE_WEIGHTED, rule->nodes, move);
        /* Before Linux 6.9 there are no weights: evenly is nearest. */
        if (error == EINVAL) error = ask(address, bytes, MODE_INTERLEAVE, rule->nodes, move);
        break;
    case NP_PLAN_LOCAL:
        error = node < NP_PLAN_NODES && (np_plan->memory_nodes >> node & 1) ? ask(address, bytes, MODE_PREFERRED, 1ull << node, move)
                                                                          : ask(address, bytes, MODE_LOCAL, 0, move);
        break;
    case NP_PLAN_SPLIT: error = split(rule, address, bytes, move); break;
    default: error = ask(address, bytes, MODE_LOCAL, 0, false); break; /* addresses that served another policy */
    }
    return counted(rule, error);
}

bool np_place_move(struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, uint32_t node) {
    if (!(np_plan->memory_nodes >> node & 1)) return false;
    return counted(rule, ask(address, bytes, MODE_PREFERRED, 1ull << node, true));
}
