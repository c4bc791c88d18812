/* numa_memory.c: the simulated machine as programs see it, memory: the system calls' policies (mbind, set_mempolicy, get_mempolicy, move_pages), as
 * libnuma exports them, and as calls by number (syscall.c). Each acts on the simulated pages (pages.c) and leaves the real ones alone; where no machine is
 * simulated, each passes through.
 *
 * Moving a page costs the calling thread MOVE_MICROSECONDS of program time: the order of what the kernel takes for 4 KiB. */
#define _GNU_SOURCE
#include "memsim.h"
#include "syscalls.h"
#include "vtime.h"

#include <errno.h>
#include <string.h>

#define MOVE_MICROSECONDS 3
#define MODE_MASK 0xff /* above it: MPOL_F_STATIC_NODES, _RELATIVE_NODES, _NUMA_BALANCING */
#define MODE_RELATIVE (1 << 14)
enum { MODE_DEFAULT, MODE_PREFERRED, MODE_BIND, MODE_INTERLEAVE, MODE_LOCAL, MODE_PREFERRED_MANY, MODE_WEIGHTED, MODES };
enum { FLAG_NODE = 1, FLAG_ADDRESS = 2, FLAG_ALLOWED = 4 }; /* get_mempolicy */
enum { MF_STRICT = 1, MF_MOVE = 2, MF_MOVE_ALL = 4 };       /* mbind, move_pages */

static int fail(int error) {
    errno = error;
    return -1;
}

/* What libnuma's function of the call's name does; that one is not asked. Not every program that calls one has libnuma: it may ask by a weak symbol, and find
 * ours. And to look for it takes the loader's lock, at every call where it is not there, which a thread must not wait for that a library's constructor waits
 * for (startup.c). On a simulated machine the real one has no answer. */
#define ASK_KERNEL(number, a, b, c, d, e, f) \
    (np_is_simulated() ? fail(ENOSYS) : answer(np_sys(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))))
static long answer(long result) { return result >= 0 ? result : fail((int)-result); }

static uint64_t all_nodes(void) {
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < np_sim.memory_nodes; i++) nodes |= 1ull << np_sim.memory_node[i];
    return nodes;
}

uint64_t np_numa_nodes(void) { return all_nodes(); }

/* The mask's first 64 nodes. The kernel's maxnode is one more than the number of bits. */
static uint64_t take_mask(const unsigned long *mask, unsigned long bits) {
    if (mask == NULL || bits <= 1) return 0;
    return bits - 1 >= 64 ? mask[0] : mask[0] & ((1ull << (bits - 1)) - 1);
}

/* Node numbers that count the nodes of `all`, modulo their number (mpol_relative_nodemask of mm/mempolicy.c). */
static uint64_t relative_nodes(uint64_t given, uint64_t all) {
    uint64_t result = 0;
    for (; given != 0; given &= given - 1) {
        uint64_t rest = all;
        for (uint32_t skip = (uint32_t)__builtin_ctzll(given) % (uint32_t)__builtin_popcountll(all); skip > 0; skip--) rest &= rest - 1;
        result |= rest & -rest;
    }
    return result;
}

/* Takes the flags out of the mode, and out of the mask the nodes that are not there or have no memory (mpol_set_nodemask of mm/mempolicy.c): programs pass
 * masks of all ones. False (EINVAL): what the kernel would not take either, a mask of which nothing is left among it. */
static bool take_policy(int *mode, uint64_t *nodes) {
    bool is_relative = *mode & MODE_RELATIVE;
    uint64_t given = *nodes, all = all_nodes();
    *mode &= MODE_MASK;
    if (*mode >= MODES || all == 0) return false;
    if (*mode == MODE_DEFAULT || *mode == MODE_LOCAL) return given == 0;
    if (given == 0) return *mode == MODE_PREFERRED;
    *nodes = is_relative ? relative_nodes(given, all) : given & all;
    return *nodes != 0;
}

static void charge_moves(struct np_slot *slot, uint64_t pages) {
    np_clock_advance(slot, pages * np_arena->config.clock_khz * MOVE_MICROSECONDS / 1000);
}

/* Pages of the range that are on a node outside the mask go to its nodes in turn. */
static void move_range(struct np_slot *slot, uintptr_t address, size_t bytes, int mode, uint64_t nodes) {
    uint64_t moved = 0, turn = 0;
    if (nodes == 0) nodes = 1ull << (slot->node % 64);
    for (uintptr_t page = address; page < address + bytes; page += 1ul << NP_PAGE_SHIFT, turn++) {
        uint64_t rest = nodes;
        if (mode == MODE_INTERLEAVE || mode == MODE_WEIGHTED)
            for (uint64_t skip = turn % (uint32_t)__builtin_popcountll(nodes); skip > 0; skip--) rest &= rest - 1;
        int now = np_page_query(page), to = __builtin_ctzll(rest);
        bool fits = mode == MODE_INTERLEAVE || mode == MODE_WEIGHTED ? now == to : now >= 0 && (nodes >> now & 1);
        if (now >= 0 && !fits) moved += np_page_move(slot, page, (uint32_t)to);
    }
    np_place_flush(slot);
    charge_moves(slot, moved);
}

NP_EXPORT long mbind(void *start, unsigned long bytes, int mode, const unsigned long *mask, unsigned long bits, unsigned flags) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return ASK_KERNEL(SYS_mbind, start, bytes, mode, mask, bits, flags);
    uint64_t nodes = take_mask(mask, bits);
    if (!take_policy(&mode, &nodes) || (uintptr_t)start % (1u << NP_PAGE_SHIFT) != 0) return fail(EINVAL);
    if (!np_enter(slot)) return 0;
    np_pages_policy((uintptr_t)start, bytes, mode, &nodes, 1);
    if ((flags & (MF_MOVE | MF_MOVE_ALL)) && mode != MODE_DEFAULT) move_range(slot, (uintptr_t)start, bytes, mode, nodes);
    np_leave(slot);
    return 0;
}

NP_EXPORT long set_mempolicy(int mode, const unsigned long *mask, unsigned long bits) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return ASK_KERNEL(SYS_set_mempolicy, mode, mask, bits, 0, 0, 0);
    uint64_t nodes = take_mask(mask, bits);
    if (!take_policy(&mode, &nodes)) return fail(EINVAL);
    np_thread_policy(slot, mode, &nodes, 1);
    return 0;
}

NP_EXPORT long get_mempolicy(int *mode, unsigned long *mask, unsigned long bits, void *address, unsigned flags) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL) return ASK_KERNEL(SYS_get_mempolicy, mode, mask, bits, address, flags, 0);
    const struct np_sim_slot *sim = np_ss(slot);
    uint64_t nodes = flags & FLAG_ALLOWED ? all_nodes() : sim->policy_nodes;
    if (mask != NULL) {
        memset(mask, 0, bits / 8);
        if (bits >= 64) mask[0] = nodes;
    }
    if (mode == NULL || (flags & FLAG_ALLOWED)) return 0;
    if ((flags & (FLAG_NODE | FLAG_ADDRESS)) != (FLAG_NODE | FLAG_ADDRESS)) {
        *mode = (int)sim->policy_mode;
        return 0;
    }
    if (!np_enter(slot)) return fail(EFAULT);
    uint32_t home = np_page_home(slot, (uintptr_t)address, 1); /* the kernel, too, faults the page in for this */
    np_leave(slot);
    /* A program uses the answer as an index: an error of the call's own is better than a node that does not exist, or one that is made up. */
    if (home >= np_arena->config.node_count) return fail(EFAULT);
    *mode = (int)home;
    return 0;
}

NP_EXPORT long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) {
    struct np_slot *slot = np_is_simulated() ? np_self() : NULL;
    if (slot == NULL || (pid != 0 && (uint32_t)pid != slot->pid)) return ASK_KERNEL(SYS_move_pages, pid, count, pages, nodes, status, flags);
    if (!np_enter(slot)) return 0;
    uint64_t moved = 0;
    for (unsigned long i = 0; i < count; i++) {
        uintptr_t address = (uintptr_t)pages[i];
        int now = np_page_query(address);
        if (nodes != NULL && now >= 0) {
            bool exists = nodes[i] >= 0 && nodes[i] < 64 && (all_nodes() >> nodes[i] & 1);
            if (!exists) {
                if (status != NULL) status[i] = -ENODEV;
                continue;
            }
            if (now != nodes[i] && np_page_move(slot, address, (uint32_t)nodes[i])) moved++;
            now = np_page_query(address);
        }
        if (status != NULL) status[i] = now >= 0 ? now : -ENOENT;
    }
    np_place_flush(slot);
    charge_moves(slot, moved);
    np_leave(slot);
    return 0;
}

NP_OWN(mbind);
NP_OWN(set_mempolicy);
NP_OWN(get_mempolicy);
NP_OWN(move_pages);
