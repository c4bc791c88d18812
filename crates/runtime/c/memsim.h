/* memsim.h: what the files of the simulated memory system share (filter.c, directory.c, l3.c, pages.c, sample.c, numa_*.c).
 *
 * docs/instrument.md states the model: what is simulated, what is not, and how wrong it can be.
 *
 * Concurrency: a slot's private filter is written by its thread; other threads only take lines out of it, or its writable bits, by
 * compare-and-swap. A thread puts a line into its filter first and into the directory second (a locked operation, thus a full fence), so that whoever
 * finds it in the directory also finds it in the filter. The L3 tags and the counters are plain words: a race there misplaces one line. */
#ifndef NUMAPILOT_MEMSIM_H
#define NUMAPILOT_MEMSIM_H

#include "np.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#pragma GCC visibility push(hidden)

/* Constant while the process runs, but for `concurrent`; copied from np_config so that the miss path reads two cache lines. */
struct np_sim {
    uint32_t l1_mask;
    uint32_t l2_set_mask;
    uint32_t l2_set_bits;
    uint32_t l2_ways;
    uint32_t l2_offset;      /* of the tags, from the slot's start */
    uint32_t l3_set_mask;
    uint32_t l3_ways;        /* 0: the machine has no L3 */
    uint32_t l3_stride;      /* tags per L3 */
    uint32_t *l3;
    uint64_t *directory;
    uint64_t directory_mask;
    uint32_t directory_bits;
    uint32_t process_tag;    /* 1 to 15 */
    uint32_t process_index;
    uint32_t concurrent;     /* this process has had more than one thread */
    uint64_t counters_cycles; /* NP_REC_COUNTERS this often */
    uint32_t l2_cycles;
    uint32_t l3_cycles;
    uint32_t line_sampling;   /* counts, weights and stalls of simulated lines stand for this many */
    uint32_t stream_reach;    /* lines: the next one of a stream is at most this far */
    uint32_t core_window;     /* accesses that a core looks ahead while it waits */
    uint32_t core_misses;     /* that it keeps outstanding, at most */
    uint32_t ready;
    uint32_t forked;         /* this process has forked, or was: pages may be shared with another */
    uint32_t shares;         /* this process has, or had, memory that others may have mapped, too */
    uint32_t memory_nodes;   /* nodes with memory, listed in memory_node */
    uint8_t memory_node[NP_MAX_NODES];
};
extern struct np_sim np_sim;

#define NP_STREAMS 8

/* overlap.c's: what is known of how a thread's scattered misses hang together. */
struct np_overlap {
    uint64_t at;       /* slot->accesses at the last one */
    uint64_t line;     /* of the leader; 0: none */
    uint64_t until;    /* slot->accesses up to which it is followed */
    uint64_t last;     /* line of the last access that came by a pointer of it; 0: none yet */
    uint64_t words[8]; /* the leader's line, once is_read */
    uint32_t gap_q4;   /* accesses from one scattered miss of a simulated line to the next, mean, in 1/16 */
    uint16_t leaders;  /* so far, older ones for half */
    uint16_t pointed;  /* of these, from which accesses to other lines came */
    uint16_t looked;   /* such accesses, to simulated lines */
    uint16_t missed;   /* of these, to memory */
    uint16_t is_read;
    uint16_t loaded;   /* words of the leader's line that the thread has loaded, one bit each */
};

/* This module's part of np_slot.scratch, the owner's alone. */
struct np_sim_slot {
    uint32_t slot_index;
    uint32_t sharer_bit;       /* in the directory */
    uint32_t stream_line[NP_STREAMS]; /* the last line of each stream */
    uint8_t stream_run[NP_STREAMS];   /* lines in a row so far, up to 255 */
    uint32_t stream_next;      /* replaced next */
    uint32_t policy_mode;      /* set_mempolicy: MPOL_* */
    uint64_t policy_nodes;     /* and its nodes */
    uint64_t policy_turn;      /* interleaving: pages placed so far */
    uint64_t sample_rest;      /* accesses after the sampled one in the current block */
    uint64_t sample_period;    /* of the next block */
    uint64_t tune_clock;       /* when the period was last adapted */
    uint32_t tune_samples;     /* samples since */
    uint32_t place_pages;      /* the run of placed pages that is not written yet */
    uint64_t place_page;
    uint64_t place_order;
    uint32_t place_node;
    uint32_t place_cause;
    uint32_t place_toucher;    /* thread index */
    uint64_t counted_accesses; /* in the last NP_REC_COUNTERS */
    uint32_t moved_to_cpu;     /* model CPU + 1 to which another thread sent this one; taken at the next miss (written by others) */
    uint32_t has_affinity;     /* `affinity` was set, or inherited */
    uint64_t affinity[NP_MAX_CPUS / 64]; /* other threads may set it: np_set_affinity, np_get_affinity */
    uint64_t kind_low, kind_high; /* the mapping that np_mapping_kind looked at last */
    uint32_t kind;             /* enum np_mapping_kind */
    uint32_t kind_generation;
    struct np_overlap overlap;
};
_Static_assert(sizeof(struct np_sim_slot) <= NP_SCRATCH_TRACKER - NP_SCRATCH_MEMORY, "fits its part of scratch");
_Static_assert(NP_SCRATCH_MEMORY % 8 == 0, "aligned");

static inline struct np_sim_slot *np_ss(struct np_slot *slot) {
    return (struct np_sim_slot *)(void *)(slot->scratch + NP_SCRATCH_MEMORY);
}

/* A reader may see a set half old, half new: it then runs on a CPU of either, until the move that follows a new set. */
static inline void np_set_affinity(struct np_sim_slot *sim, const uint64_t *set) {
    for (uint32_t word = 0; word < NP_MAX_CPUS / 64; word++) np_store(sim->affinity[word], set[word]);
    __atomic_store_n(&sim->has_affinity, 1, __ATOMIC_RELEASE); /* pairs with the acquire below: who sees it sees a set */
}

/* False: the thread may run anywhere, and `set` is as it was. */
static inline bool np_get_affinity(const struct np_sim_slot *sim, uint64_t *set) {
    if (!__atomic_load_n(&sim->has_affinity, __ATOMIC_ACQUIRE)) return false;
    for (uint32_t word = 0; word < NP_MAX_CPUS / 64; word++) set[word] = np_load(sim->affinity[word]);
    return true;
}

static inline uint64_t np_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* xorshift64*: state never 0. */
static inline uint64_t np_random(struct np_slot *slot) {
    uint64_t x = slot->rng;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    slot->rng = x;
    return x * 0x2545f4914f6cdd1dull;
}

/* Uniform in [0, n), n below 2^32; the bias is below n / 2^32. */
static inline uint32_t np_random_below(struct np_slot *slot, uint32_t n) {
    return (uint32_t)(((np_random(slot) >> 32) * n) >> 32);
}

/* Positions among a set's tags, one bit per way. */
struct np_ways {
    uint32_t found;
    uint32_t empty;
};

/* Where `want` is, the bits of `ignore` aside, and which ways are empty (0). Reads 16 words whatever the number of ways: what follows the tags in the
 * arena is mapped (a slot's ring follows its filter, the slots follow the L3 tags). */
static inline struct np_ways np_find_ways(const uint32_t *tags, uint32_t ways, uint32_t want, uint32_t ignore) {
    struct np_ways result = {0, 0};
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
    /* C has no atomic vector; the processor reads each aligned word of one whole. What was found is only a hint: filter.c takes it by compare-and-swap,
     * and in an L3 it may be gone. Under a thread sanitizer the loop below does the same in C's terms. */
    const __m128i mask = _mm_set1_epi32((int)ignore), key = _mm_set1_epi32((int)(want | ignore)), zero = _mm_setzero_si128();
    const __m128i *words = (const __m128i *)(const void *)tags;
    __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1), c = _mm_loadu_si128(words + 2), d = _mm_loadu_si128(words + 3);
    __m128i ab = _mm_packs_epi32(_mm_cmpeq_epi32(a, zero), _mm_cmpeq_epi32(b, zero));
    __m128i cd = _mm_packs_epi32(_mm_cmpeq_epi32(c, zero), _mm_cmpeq_epi32(d, zero));
    result.empty = (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(ab, cd)) & ((1u << ways) - 1);
    ab = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_or_si128(a, mask), key), _mm_cmpeq_epi32(_mm_or_si128(b, mask), key));
    cd = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_or_si128(c, mask), key), _mm_cmpeq_epi32(_mm_or_si128(d, mask), key));
    result.found = (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(ab, cd)) & ((1u << ways) - 1);
#else
    for (uint32_t way = 0; way < ways; way++) {
        uint32_t tag = np_load(tags[way]);
        result.found |= (uint32_t)((tag | ignore) == (want | ignore)) << way;
        result.empty |= (uint32_t)(tag == 0) << way;
    }
#endif
    return result;
}

static inline uint32_t np_find_tag(const uint32_t *tags, uint32_t ways, uint32_t want, uint32_t ignore) {
    return np_find_ways(tags, ways, want, ignore).found;
}

/* ---- private filter: geometry ---- */

/* A private tag: bit 0 writable, bits 1-31 the line's bits above the set number. A set has NP_ADDRESS_BITS - 6 - l2_set_bits such bits; where that is
 * more than 31, the surplus top bits are folded in, and two lines 2^(37 + l2_set_bits) bytes apart can be taken for one another. 0: empty. */
#define NP_TAG_BITS 31
#define NP_TAG_MASK 0x7fffffffu
static inline uint32_t np_tag_fold(uint64_t high) { return (uint32_t)(high >> NP_TAG_BITS << 22) & NP_TAG_MASK; }
static inline uint32_t np_private_tag(uintptr_t line) {
    uint64_t high = line >> np_sim.l2_set_bits;
    uint32_t tag = ((uint32_t)high ^ np_tag_fold(high)) & NP_TAG_MASK;
    return (tag + !tag) << 1;
}

static inline uint32_t *np_private_set(struct np_slot *slot, uintptr_t line) {
    uint32_t *tags = (uint32_t *)(void *)((char *)slot + np_sim.l2_offset);
    return tags + (uint32_t)(line & np_sim.l2_set_mask) * np_sim.l2_ways;
}

/* `key`: of np_key_of, or a line that is simulated. */
static inline uint64_t *np_stage_one(struct np_slot *slot, uint64_t key) {
    return (uint64_t *)(void *)((char *)slot + NP_FILTER_OFFSET) + (key & np_sim.l1_mask);
}

/* ---- filter.c ---- */
/* Takes the line out of another thread's filter / takes its writable bit away. True: it was there. */
bool np_filter_drop(struct np_slot *owner, uintptr_t line);
bool np_filter_downgrade(struct np_slot *owner, uintptr_t line);
/* Takes every line of the range out of the filter. */
void np_filter_drop_range(struct np_slot *owner, uintptr_t address, size_t bytes);

/* ---- overlap.c ---- */
/* A leader is followed: this access comes from it. To be asked before the access is looked up. */
bool np_overlap_follows(struct np_slot *slot, uintptr_t address, uint32_t bits);
/* Such an access, to a simulated line: whether it went to memory. */
void np_overlap_followed(struct np_slot *slot, bool missed);
/* What a scattered memory access costs its thread, of its latency. */
uint32_t np_overlap_charge(struct np_slot *slot, uintptr_t address, uint32_t bits, uint32_t latency);

/* ---- l3.c ---- */
/* Real L3s are indexed by physical address, in which neighbouring virtual pages are scattered: the set is the line's place in its page and a hash
 * of the page and the process; the rest of the hash is the tag. */
struct np_l3_place {
    uint32_t *set;
    uint32_t tag;
};
static inline struct np_l3_place np_l3_place(uint32_t l3_index, uintptr_t line) {
    uint64_t page = line >> (NP_PAGE_SHIFT - NP_LINE_SHIFT);
    uint64_t hash = (page ^ ((uint64_t)np_sim.process_index + 1) << 40) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
    uint32_t set = ((uint32_t)line ^ (uint32_t)hash << (NP_PAGE_SHIFT - NP_LINE_SHIFT)) & np_sim.l3_set_mask;
    uint32_t tag = (uint32_t)(hash >> 32) ^ (uint32_t)line << 26;
    return (struct np_l3_place){np_sim.l3 + (uint64_t)l3_index * np_sim.l3_stride + (uint64_t)set * np_sim.l3_ways, tag + !tag};
}
/* True: the line was in this L3. False: it is now. `random` chooses the way. */
static inline bool np_l3_access(struct np_l3_place place, uint32_t random) {
    struct np_ways ways = np_find_ways(place.set, np_sim.l3_ways, place.tag, 0);
    if (ways.found != 0) return true;
    uint32_t way = np_unlikely(ways.empty != 0) ? (uint32_t)__builtin_ctz(ways.empty) : (uint32_t)((uint64_t)random * np_sim.l3_ways >> 32);
    np_store(place.set[way], place.tag);
    return false;
}
void np_l3_drop(uint32_t l3_index, uintptr_t line);

/* ---- pages.c ---- */
#define NP_LEAF_BITS 18
#define NP_LEAVES (1ull << (NP_ADDRESS_BITS - NP_PAGE_SHIFT - NP_LEAF_BITS))
/* A page's byte: 0 no home yet; 1 to 64 home + 1; above: no home yet, but a policy, or reads of the zero page, or a home until it is written (pages.c). */
#define NP_PAGE_HOME 1
/* No home: no thread has written the page, and reads of it find the kernel's shared zero page. */
#define NP_HOME_NONE UINT32_MAX
/* Code that is not recorded touched the page first: its home is unknown, and not guessed. */
#define NP_HOME_UNKNOWN NP_NONE16
#define NP_PAGE_POLICY 65
/* Pages that this process's first write must be seen to, as it may get the writer a copy, lie in here: from `first` to before `end`. */
struct np_marked { uint64_t first, end; };
#ifdef NP_PLUGIN
extern uint8_t **np_leaves; /* of the emulated process */
extern struct np_marked *np_marked;
#else
extern uint8_t *np_leaves[NP_LEAVES];
extern struct np_marked np_marked[1];
#endif
static inline bool np_may_be_marked(uintptr_t address) {
    uint64_t page = address >> NP_PAGE_SHIFT;
    return page >= np_load(np_marked->first) && page < np_load(np_marked->end);
}
uint32_t np_page_home_slow(struct np_slot *slot, uintptr_t address, uint32_t write);
/* Home node of the page, given now if it has none. NP_HOME_NONE: only for reads (`write` 0). */
static inline uint32_t np_page_home(struct np_slot *slot, uintptr_t address, uint32_t write) {
    uint64_t page = address >> NP_PAGE_SHIFT;
    const uint8_t *leaf = np_likely(page >> NP_LEAF_BITS < NP_LEAVES) ? __atomic_load_n(&np_leaves[page >> NP_LEAF_BITS], __ATOMIC_ACQUIRE) : NULL;
    if (np_likely(leaf != NULL)) {
        uint32_t home = (uint32_t)__atomic_load_n(&leaf[page & ((1ull << NP_LEAF_BITS) - 1)], __ATOMIC_RELAXED) - NP_PAGE_HOME;
        if (np_likely(home < NP_PAGE_POLICY - NP_PAGE_HOME)) return home;
    }
    return np_page_home_slow(slot, address, write);
}
/* The same without giving one: -1, none yet. */
int np_page_query(uintptr_t address);
/* The thread is about to write to the page, which may be marked (under an emulator: has just written): if another process has it, too, or a file, the kernel
 * makes the writer a copy, which has a home of its own. */
void np_page_written(struct np_slot *slot, uintptr_t address);
/* Whether another process may have the page, too, or a file, so that its first write must be seen. */
bool np_page_is_marked(uintptr_t address);
/* Moves a page that has a home; returns false when it has none. Writes the NP_REC_PLACE. */
bool np_page_move(struct np_slot *slot, uintptr_t address, uint32_t node);
void np_place_flush(struct np_slot *slot);

/* ---- residency.c ---- */
enum np_backing {
    NP_BACKING_NONE, /* nothing yet: the next touch is the first */
    NP_BACKING_ZERO, /* the shared zero page: read, and never written */
    NP_BACKING_FILE, /* a page of a file or of shared memory */
    NP_BACKING_PAGE, /* memory that was written */
};
#define NP_BACKINGS_MAX 256u
/* mincore: 0, and bit 0 of each byte says whether there is a page; -ENOMEM: not all is mapped. */
long np_resident(uint64_t page, uint64_t pages, uint8_t *vector);
/* Before the access that is asked for. Where /proc is not to be read, resident memory counts as written. */
enum np_backing np_backing(uint64_t page);
/* What is mapped at up to NP_BACKINGS_MAX pages from `page` on; returns for how many it is known. */
uint32_t np_backings(uint64_t page, uint32_t pages, enum np_backing *backings);
/* What a write to a page of private memory does that was there when the process forked, or was forked, or that was a file's when it was read. */
enum np_write_effect {
    NP_WRITE_KEEPS,   /* neither another process nor a file has the page any more: the writer goes on with it */
    NP_WRITE_COPIES,  /* the writer gets another page */
    NP_WRITE_UNKNOWN, /* where /proc is not to be read */
};
/* Before the writes: of up to NP_BACKINGS_MAX pages from `page` on; returns for how many it is known. */
uint32_t np_write_effects(uint64_t page, uint32_t pages, enum np_write_effect *effects);
enum np_mapping_kind {
    NP_KIND_OTHER,  /* private, of a file, and not to be written; or none is known */
    NP_KIND_COPIED, /* private, of a file: whoever writes a page of it first gets a copy */
    NP_KIND_FRESH,  /* private and anonymous: a read of a page with nothing behind it finds the zero page */
    NP_KIND_COMMON, /* shared, of a file or a segment: any process may have touched its pages */
    NP_KIND_FAMILY, /* shared and anonymous: this process may have, or those that it was forked from, or has forked */
};
enum np_mapping_kind np_mapping_kind(struct np_slot *slot, uintptr_t address);
/* A mapping was made that is not private and anonymous: what is remembered of mappings is not to be trusted. */
void np_mappings_changed(void);
/* A mapping ended: what is remembered of mappings that are not private and anonymous is not to be trusted, as memory that is may lie there next. */
void np_mappings_ended(void);

/* ---- toucher.c ---- */
struct np_toucher {
    struct np_slot *slot;  /* NULL: it has ended */
    uint32_t thread_index;
    uint32_t node;
    uint32_t pages;        /* from the page asked for on, that it touched */
};
/* The first toucher of a page that code which is not recorded touched, from the kernel's page faults as the recorder read them. False: unknown. */
bool np_toucher_of(struct np_slot *slot, uint64_t page, struct np_toucher *toucher);
/* It is unknown because no thread of this process has had a fault on the page: that was the answer to this thread's last question. */
bool np_toucher_is_nobody(const struct np_slot *slot, uint64_t page);

/* The real function behind an interposer, for functions that no header here declares. NULL: no library has it. */
#define NP_REAL_AS(type, name)                                                    \
    ({                                                                            \
        static void *real_##name;                                                 \
        NP_REAL_LISTED(real_##name, #name, np_real);                              \
        (__typeof__(type))NP_KEPT(real_##name, np_real(#name));                   \
    })
/* Of a library that the program may not have: not looked for before its first call. */
#define NP_REAL_OF_LIBRARY(type, name)                                            \
    ({                                                                            \
        static void *real_##name;                                                 \
        (__typeof__(type))NP_KEPT(real_##name, np_real(#name));                   \
    })

/* ---- numa_cpus.c ---- */
/* True: this process runs on a simulated machine, and asks it instead of the real one. */
bool np_is_simulated(void);
/* Goes to the CPU that moved_to_cpu names. */
void np_numa_move(struct np_slot *slot);
/* Affinity to the CPUs of a node or of a set of nodes. False: they have none. */
bool np_numa_run_on(struct np_slot *slot, uint64_t nodes);
/* CPUs that this thread may run on. */
void np_numa_allowed_cpus(uint64_t cpus[NP_MAX_CPUS / 64]);
/* CPUs that threads may run on. */
void np_numa_every_cpu(uint64_t cpus[NP_MAX_CPUS / 64]);
/* As the system call: bytes of the kernel's mask, or -errno. */
long np_numa_get_affinity(int pid, size_t bytes, void *set);

/* ---- numa_memory.c ---- */
/* Nodes that have memory. */
uint64_t np_numa_nodes(void);

/* ---- sample.c ---- */
void np_sample_start(struct np_slot *slot);
void np_sample(struct np_slot *slot, uintptr_t address, uint32_t bits, enum np_level level, uint32_t home, const struct np_regs *caller);

#pragma GCC visibility pop
#endif
