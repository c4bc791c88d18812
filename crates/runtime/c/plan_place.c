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
static uint16_t node_of_cpu[NP_PLAN_CPU_WORDS * 64]; /* node + 1; 0: none. Other libraries' threads may be there before the constructor fills it */

static void count_mappings(void);

void np_place_init(void) {
    count_mappings();
    for (uint32_t node = 0; node < NP_PLAN_NODES; node++)
        for (uint32_t cpu = 0; cpu < NP_PLAN_CPU_WORDS * 64; cpu++)
            if (np_plan->node_cpus[node][cpu / 64] >> (cpu % 64) & 1) np_store(node_of_cpu[cpu], (uint16_t)(node + 1));
}

uint32_t np_place_node_of(int cpu) {
    uint32_t known = cpu >= 0 && cpu < (int)(NP_PLAN_CPU_WORDS * 64) ? np_load(node_of_cpu[cpu]) : 0;
    return known != 0 ? known - 1 : 0;
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

/* -- mappings: the kernel allows a process so many (vm.max_map_count), and fails its mmap, its threads and its libraries beyond. Pages of different policies
 * are different mappings. A quarter is the planner's. -- */

#define MAPPINGS_UNKNOWN 65530 /* the kernel's default */
#define TURN_SHARE 64          /* of all bytes so far, before the turn goes on */

static int64_t mappings_left;

static void count_mappings(void) {
    uint64_t most = np_number_in("/proc/sys/vm/max_map_count");
    np_store(mappings_left, (int64_t)(most != 0 ? most : MAPPINGS_UNKNOWN) / 4);
}

static bool charge(uint32_t mappings) {
    if (__atomic_sub_fetch(&mappings_left, mappings, __ATOMIC_RELAXED) >= 0) return true;
    __atomic_fetch_add(&mappings_left, mappings, __ATOMIC_RELAXED);
    return false;
}

void np_place_give_back(uintptr_t address, uint64_t bytes, uint32_t mappings) {
    if (mappings == 0) return;
    if (mappings > 1 && !np_is_confined) ask(address, bytes, MODE_DEFAULT, 0, false); /* one again */
    __atomic_fetch_add(&mappings_left, mappings, __ATOMIC_RELAXED);
}

/* -- policies that cut -- */

/* What went to each node as a whole, by rule, and whose turn it is. Each turn is a share of all so far: the number of turns grows with its logarithm only. */
static struct turns { uint64_t bytes[NP_PLAN_NODES], all, since; uint32_t node; } turns[256];
static struct np_plan_lock turns_lock;

static uint32_t weight_of(const struct np_plan_rule *rule, uint32_t node) {
    return rule->policy == NP_PLAN_WEIGHTED ? rule->weights[node] : 1;
}

void np_place_fork(int phase) {
    np_plan_lock_fork(&turns_lock, phase);
}

void np_place_left(void) { np_plan_lock_left(&turns_lock); }

/* The node whose turn it is to take these bytes; NP_PLAN_NODES: none. */
static uint32_t take_turn(const struct np_plan_rule *rule, uint64_t bytes) {
    struct turns *turn = &turns[rule - np_plan_rules()];
    if (!np_plan_lock_soon(&turns_lock)) return NP_PLAN_NODES; /* mmap in a signal handler: then it is not placed, and counted so */
    if (turn->all == 0 || turn->since >= turn->all / TURN_SHARE) {
        uint32_t next = NP_PLAN_NODES;
        for (uint64_t rest = rule->nodes; rest != 0; rest &= rest - 1) {
            uint32_t node = (uint32_t)__builtin_ctzll(rest);
            unsigned __int128 own = turn->bytes[node], least = next < NP_PLAN_NODES ? turn->bytes[next] : 0;
            if (weight_of(rule, node) == 0) continue;
            if (next == NP_PLAN_NODES || own * weight_of(rule, next) < least * weight_of(rule, node)) next = node;
        }
        turn->node = next;
        turn->since = 0;
    }
    uint32_t node = turn->node;
    if (node < NP_PLAN_NODES) turn->bytes[node] += bytes;
    turn->all += bytes;
    turn->since += bytes;
    np_plan_unlock(&turns_lock);
    return node;
}

/* The whole range to one node, so that the nodes' shares come out right over many. */
static int whole(const struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, bool move) {
    uint32_t node = take_turn(rule, bytes);
    np_plan_count(&np_plan->whole_objects, 1);
    return node < NP_PLAN_NODES ? ask(address, bytes, MODE_PREFERRED, 1ull << node, move) : EINVAL;
}

static unsigned shift_of(struct np_place place) { return (unsigned)__builtin_ctzl(place.page != 0 ? place.page : np_page_bytes()); }

/* Contiguous parts, one to a node, ends at whole pages. */
static int split(const struct np_plan_rule *rule, struct np_place place, uintptr_t address, uint64_t bytes, uint32_t *mappings) {
    uint32_t count = (uint32_t)__builtin_popcountll(rule->nodes);
    unsigned shift = shift_of(place);
    bool move = place.move;
    uint64_t pages = bytes >> shift;
    int error = 0;
    if (!charge(count)) return whole(rule, address, bytes, move);
    *mappings = count;
    for (uint32_t part = 0; part < count; part++) {
        uint64_t first = pages * part / count, end = pages * (part + 1) / count;
        if (first == end) continue;
        int now = ask(address + (first << shift), (end - first) << shift, MODE_PREFERRED, 1ull << nth_node(rule->nodes, part), move);
        if (now != 0) error = now;
    }
    return error;
}

/* Stripes in proportion to the weights, as short as a bound on the number of mappings allows. */
static int weighted(const struct np_plan_rule *rule, struct np_place place, uintptr_t address, uint64_t bytes, uint32_t *mappings) {
    unsigned shift = shift_of(place);
    bool move = place.move;
    uint64_t least = place.is_run ? NP_GRANULE >> shift : 1; /* pages */
    uint64_t pages = bytes >> shift, round = 0, nodes = rule->nodes;
    for (uint64_t rest = nodes; rest != 0; rest &= rest - 1) round += rule->weights[__builtin_ctzll(rest)];
    if (round == 0) return EINVAL;
    /* No object takes most of what is left. */
    int64_t left = __atomic_load_n(&mappings_left, __ATOMIC_RELAXED) / 8;
    uint64_t per_round = (uint64_t)__builtin_popcountll(nodes), most = left > (int64_t)MOST_STRIPES ? MOST_STRIPES : left < 0 ? 0 : (uint64_t)left;
    if (most < per_round) return whole(rule, address, bytes, move);
    uint64_t unit = (pages * per_round + round * most - 1) / (round * most);
    if (unit < least) unit = least;
    uint64_t stripes = (pages + round * unit - 1) / (round * unit) * per_round;
    if (!charge((uint32_t)stripes)) return whole(rule, address, bytes, move);
    *mappings = (uint32_t)stripes;
    int error = 0;
    uint64_t rest = nodes;
    for (uint64_t page = 0; page < pages; rest &= rest - 1) {
        if (rest == 0) rest = nodes;
        uint64_t length = rule->weights[__builtin_ctzll(rest)] * unit;
        if (length > pages - page) length = pages - page;
        int now = length == 0 ? 0
                              : ask(address + (page << shift), length << shift, MODE_PREFERRED, rest & -rest, move);
        if (now != 0) error = now;
        page += length;
    }
    return error;
}

static int local(const struct np_place *place, uintptr_t address, uint64_t bytes, uint32_t *mappings) {
    bool has_memory = place->node < NP_PLAN_NODES && (np_plan->memory_nodes >> place->node & 1);
    /* Where there is no mapping to be had for it, the thread that touches a page decides: most often the one that asks now. */
    if (has_memory && !place->joins && !charge(1)) has_memory = false;
    else if (has_memory && !place->joins) *mappings = 1;
    return has_memory ? ask(address, bytes, MODE_PREFERRED, 1ull << place->node, place->move) : ask(address, bytes, MODE_LOCAL, 0, place->move);
}

/* All of it under one policy of the rule's. */
static int uniform(const struct np_plan_rule *rule, const struct np_place *place, uintptr_t address, uint64_t bytes, uint32_t *mappings) {
    if (!place->joins && !charge(1)) return ENOMEM; /* as the kernel would say soon after, to the program */
    if (!place->joins) *mappings = 1;
    if (rule->policy == NP_PLAN_NODE)
        return ask(address, bytes, rule->flags & NP_PLAN_STRICT ? MODE_BIND : MODE_PREFERRED, rule->nodes, place->move);
    int mode = rule->policy == NP_PLAN_WEIGHTED ? MODE_WEIGHTED : MODE_INTERLEAVE, error = ask(address, bytes, mode, rule->nodes, place->move);
    /* Before Linux 6.9 there are no weights: evenly is nearest. */
    return error == EINVAL && mode == MODE_WEIGHTED ? ask(address, bytes, MODE_INTERLEAVE, rule->nodes, place->move) : error;
}

bool np_place_range(struct np_plan_rule *rule, struct np_place place, uintptr_t address, uint64_t bytes, uint32_t *mappings) {
    int error = 0;
    uint32_t unused;
    if (mappings == NULL) mappings = &unused;
    *mappings = 0;
    if (np_is_confined) return false;
    if (rule->flags & (NP_PLAN_HUGE | NP_PLAN_NO_HUGE)) {
        int saved = errno;
        if (madvise((void *)address, bytes, rule->flags & NP_PLAN_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) counted(rule, errno);
        errno = saved;
    }
    switch (rule->policy) {
    case NP_PLAN_WEIGHTED:
        if (rule->flags & NP_PLAN_OWN_WEIGHTS) {
            error = weighted(rule, place, address, bytes, mappings);
            break;
        }
        __attribute__((fallthrough));
    case NP_PLAN_NODE:
    case NP_PLAN_INTERLEAVE: error = uniform(rule, &place, address, bytes, mappings); break;
    case NP_PLAN_LOCAL: error = local(&place, address, bytes, mappings); break;
    case NP_PLAN_SPLIT: error = split(rule, place, address, bytes, mappings); break;
    default: error = ask(address, bytes, MODE_LOCAL, 0, false); break; /* addresses that served another policy */
    }
    return counted(rule, error);
}

bool np_place_move(struct np_plan_rule *rule, uintptr_t address, uint64_t bytes, uint32_t node) {
    if (np_is_confined || !(np_plan->memory_nodes >> node & 1)) return false;
    return counted(rule, ask(address, bytes, MODE_PREFERRED, 1ull << node, true));
}
