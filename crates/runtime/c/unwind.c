/* unwind.c: from a caller's registers to its chain of return addresses.
 *
 * No lock, no allocation, safe in signal handlers. Each address needs its rule found once (unwind_cfi.c); after that a frame costs a look-up in a
 * fixed table and two loads. Code without unwinding data is followed by frame pointers. Nothing is read outside the thread's own stack (in an emulator:
 * the one that it is on); a chain that leaves it ends there and is counted, unless it has reached its outermost frame.
 */
#define _GNU_SOURCE
#include "track.h"

#include <sys/resource.h>
#include <sys/uio.h>

#define RULES_LOG2 15
#define RULES (1u << RULES_LOG2)
#define AT_INSTRUCTION (1ull << 63) /* in a key: pc itself counts, it is no return address */
#define GENERATION_SHIFT 48
#define GENERATION_MASK 0x7fffull
_Static_assert(NP_ADDRESS_BITS <= GENERATION_SHIFT, "an address fits below the generation");

/* key is stored xored with the rule, so that a torn entry matches no key. */
struct entry { uint64_t key, rule; };
static struct entry rules[RULES];
static uint64_t own_generation = 1;
uint64_t *np_unwind_generation = &own_generation;

void np_unwind_modules_changed(void) {
    __atomic_fetch_add(np_unwind_generation, 1, __ATOMIC_ACQ_REL);
}

/* A rule in one word; each processor has its own fields beside these (pack). */
static inline unsigned kind_of(uint64_t rule) { return rule & 7; }
static inline unsigned fp_rule_of(uint64_t rule) { return rule >> 3 & 3; }
static inline int64_t cfa_of(uint64_t rule) { return (int64_t)(rule << 32) >> 40; }
static inline int64_t fp_of(uint64_t rule) { return (int64_t)(rule << 8) >> 40; }

/* -- the walk -- */

struct walk {
    uintptr_t pc, sp, fp, low, high;
    struct np_memo *memo;
    bool at_instruction;
#if defined(__aarch64__)
    bool sp_is_known;
    uintptr_t lr; /* at an interrupted instruction */
#endif
};

static inline bool inside(const struct walk *walk, uintptr_t address) {
    return address >= walk->low && address <= walk->high - 8 && (address & 7) == 0;
}

static inline uintptr_t load(struct walk *walk, uintptr_t address) {
    uintptr_t value = *(const uintptr_t *)address;
    struct np_memo *memo = walk->memo;
    if (np_likely(memo->loads < NP_MEMO_LOADS)) {
        memo->load[memo->loads].address = address;
        memo->load[memo->loads].value = value;
    }
    memo->loads++;
    return value;
}

enum step { STEP_ON, STEP_END, STEP_FAIL };

#if defined(__x86_64__)
#include "unwind_step_x86.h"
#else
#include "unwind_step_arm64.h"
#endif

static NP_COLD uint64_t find_rule(struct np_slot *slot, uint64_t key, struct entry *entry) {
    uintptr_t pc = key & ((1ull << GENERATION_SHIFT) - 1);
    uint64_t rule = packed_rule(slot, pc, (key & AT_INSTRUCTION) != 0);
    __atomic_store_n(&entry->rule, rule, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->key, key ^ rule, __ATOMIC_RELAXED);
    return rule;
}

static inline uint64_t rule_at(struct np_slot *slot, uint64_t key) {
    struct entry *entry = &rules[key * NP_HASH_FACTOR >> (64 - RULES_LOG2)];
    uint64_t rule = __atomic_load_n(&entry->rule, __ATOMIC_RELAXED), stored = __atomic_load_n(&entry->key, __ATOMIC_RELAXED);
    return np_likely((stored ^ rule) == key) ? rule : find_rule(slot, key, entry);
}

static inline enum step step(struct np_slot *slot, struct walk *walk, uint64_t generation) {
    uint64_t rule = rule_at(slot, walk->pc | (walk->at_instruction ? AT_INSTRUCTION : 0) | generation << GENERATION_SHIFT);
    bool interrupted = walk->at_instruction;
    walk->at_instruction = false;
    uintptr_t frame;
    switch (kind_of(rule)) {
    case NP_RULE_SP: frame = walk->sp + (uintptr_t)cfa_of(rule); break;
    case NP_RULE_FP: frame = walk->fp + (uintptr_t)cfa_of(rule); break;
    case NP_RULE_FP_INDIRECT:
        if (!inside(walk, walk->fp + (uintptr_t)cfa_of(rule))) return STEP_FAIL;
        frame = load(walk, walk->fp + (uintptr_t)cfa_of(rule));
        break;
    case NP_RULE_END: return STEP_END;
    case NP_RULE_SIGNAL: return step_signal(walk);
    case NP_RULE_GUESS: return step_guess(walk);
    default: return STEP_FAIL;
    }
    return step_frame(walk, rule, frame, interrupted);
}

/* -- the stack that grows -- */

#ifdef NP_PLUGIN
/* An emulator maps the whole of its guest's. */
static bool has_grown(const struct np_slot *slot, uintptr_t sp) {
    (void)slot, (void)sp;
    return false;
}

/* Another stack than the thread's own, a coroutine's or a signal handler's: as far as pages can be read from its top on. The kernel tells, at the price of a
 * system call for each of these walks, which the tracker cannot afford. */
#define OTHER_PAGES 64u
static uintptr_t other_end(uintptr_t sp) {
    uintptr_t page = sp & ~4095ul;
    char bytes[OTHER_PAGES];
    struct iovec to = {bytes, sizeof bytes}, from[OTHER_PAGES];
    for (unsigned i = 0; i < OTHER_PAGES; i++) from[i] = (struct iovec){(void *)(page + i * 4096ul), 1};
    long pages = NP_SYS6(SYS_process_vm_readv, NP_SYS0(SYS_getpid), &to, 1, from, OTHER_PAGES, 0);
    return pages > 0 ? page + (uintptr_t)pages * 4096 : 0;
}
#else
/* The kernel keeps other mappings at least this far from the top of the process's first stack, whatever its limit (mmap_base, arch/x86/mm/mmap.c, MIN_GAP;
 * arm64: mm/util.c), and this far from the lowest page that it has grown to (stack_guard_gap, mm/mmap.c). */
#define STACK_ROOM (128ull << 20)
#define STACK_GUARD (256ull << 12)

/* Where the stack of this process's first thread ends, if that is the one that the kernel lets grow; 0: another (a child forked by another thread). */
static uintptr_t growing_hi;
/* A mapping that this thread was on, and that is not that stack: a coroutine's. */
static uintptr_t other_lo, other_hi;

static uint64_t stack_limit(void) {
    struct rlimit limit;
    return NP_SYS2(SYS_getrlimit, RLIMIT_STACK, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

/* What the limit allows belongs to the stack from the start, as a further thread's does: other threads may be given what lies in a frame before this thread
 * is ever seen that deep. At most the room that is free in any case: what lies beyond belongs to it once this thread was seen there (stack.c). */
void np_stack_growing(struct np_slot *slot, bool grows, uintptr_t below) {
    growing_hi = grows ? slot->stack_hi : 0;
    other_lo = other_hi = 0;
    if (!grows) return;
    uint64_t limit = stack_limit(), room = limit < STACK_ROOM ? limit : STACK_ROOM;
    uintptr_t low = slot->stack_hi > room ? (slot->stack_hi - room) & ~4095ull : 4096;
    if (below != 0 && low < below + STACK_GUARD) low = below + STACK_GUARD;
    if (low < slot->stack_lo) slot->stack_lo = low;
}

static bool is_other(const struct np_maps_line *line, void *context) {
    uintptr_t sp = *(const uintptr_t *)context;
    if (sp >= line->hi) return true;
    if (sp < line->lo || line->hi == growing_hi) return false;
    other_lo = line->lo;
    other_hi = line->hi;
    return false;
}

/* Below what was known: by a large limit, one that was raised, or none. Then this is the mapping that ends where the stack does: the kernel says. */
static NP_COLD bool has_grown(struct np_slot *slot, uintptr_t sp) {
    if (np_is_confined || slot->pid != slot->tid || growing_hi == 0 || slot->stack_hi != growing_hi || sp >= slot->stack_hi) return false;
    if (slot->stack_hi - sp > stack_limit() || (sp >= other_lo && sp < other_hi)) return false;
    other_hi = 0;
    np_maps_each(is_other, &sp);
    if (other_hi != 0) return false;
    slot->stack_lo = sp & ~4095ull;
    return true;
}
#endif

static inline bool on_own_stack(struct np_slot *slot, uintptr_t sp) {
    return np_likely(sp >= slot->stack_lo && sp < slot->stack_hi) || has_grown(slot, sp);
}

static bool is_trampoline(uintptr_t pc) {
    return pc >= np_own.trampolines_lo && pc < np_own.trampolines_hi;
}

unsigned np_unwind(struct np_slot *slot, struct np_memo *memo, uintptr_t *frames, unsigned max, uint32_t *flags, uint64_t *hash) {
    uint64_t generation = __atomic_load_n(np_unwind_generation, __ATOMIC_ACQUIRE);
    struct np_regs regs = memo->regs;
    struct walk walk = {.pc = regs.pc, .sp = regs.sp, .fp = regs.fp, .low = regs.sp, .high = slot->stack_hi, .memo = memo};
#if defined(__aarch64__)
    walk.sp_is_known = true;
#endif
    unsigned count = 0;
    uint64_t sum = np_hash_step(NP_HASH_FACTOR, generation);
    enum step result = STEP_ON;
    bool known = on_own_stack(slot, regs.sp);
    *flags = 0;
    memo->loads = 0;
    memo->may_interrupt = !known;
#ifdef NP_PLUGIN
    if (!known && (walk.high = other_end(regs.sp)) != 0) known = true;
#endif
    memo->generation = generation;
    generation &= GENERATION_MASK;
    while (result == STEP_ON) {
        if (np_unlikely(walk.pc - np_own.lo < np_own.hi - np_own.lo)) {
            if (is_trampoline(walk.pc)) break;
        } else {
            if (np_unlikely(count == max)) {
                *flags |= 1;
                break;
            }
            if (np_unlikely(walk.pc == 0 || walk.pc >= NP_ADDRESS_END)) break;
            frames[count++] = walk.pc;
            sum = np_hash_step(sum, walk.pc);
        }
        result = known ? step(slot, &walk, generation) : STEP_FAIL;
    }
    if (np_unlikely(result == STEP_FAIL)) *flags |= 2;
    *hash = np_hash_step(sum, *flags);
    return count;
}
