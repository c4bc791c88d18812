/* overlap.c: how many of a thread's scattered memory accesses a core keeps outstanding at a time. (Streams, which the hardware prefetches, are filter.c's.)
 *
 * A core that runs out of order goes on past a load that missed until its window of instructions is full, and begins the misses that it finds on the
 * way, up to as many as it has registers for (interval analysis: Karkhanis and Smith, A First-Order Superscalar Processor Model, ISCA 2004; Eyerman et al., A
 * Mechanistic Performance Model for Superscalar Out-of-Order Processors, ACM TOCS 27(2), 2009). A load whose address comes from one that is outstanding cannot
 * begin. So the N = 1 + window / gap misses within reach form chains, in which each waits for the one before, and which go on side by side. Each chain has
 * one end, a miss that no other waits for:
 *
 *     outstanding = (1 - dependent) * N, at least 1, at most the registers.
 *
 * Both are measured while the program runs:
 *
 *  - the *gap*: accesses (of any kind) from one scattered miss to the next, a moving average over 16 of them. Of simulated lines, so the true gap is
 *    this over line_sampling.
 *  - the share of *dependent* ones: misses that another waits for. Now and then a scattered load that missed becomes a *leader*: for as many accesses as a
 *    window holds, every access of its thread, simulated line or not, is compared with the words that it has loaded from the leader's line. One that lies at
 *    most 4 KiB behind such a word came by a pointer there, and waits. It counts in so far as such accesses miss, which those among them tell whose lines are
 *    simulated.
 *
 * Addresses made from an index that was just loaded (a[next[i]]) look independent: which words are indices, and of what, is unknown. Stores need nothing
 * outstanding to retire, and are taken as independent.
 *
 * The leader's line is read by process_vm_readv, which fails where a plain load would kill the program: another thread may have unmapped it meanwhile.
 * Where that call is refused (seccomp), nothing is known of dependences, and each miss costs its whole latency. */
#include "memsim.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* Of scattered loads that missed, one in so many leads; at a thread's start, until a few have, one in fewer. */
#define LEADER_SHARE 64
#define FIRST_SHARE 4
#define FIRST_LEADERS 16
/* Leaders after which what was seen counts half. */
#define FORGET 256
/* Fewer leaders say nothing. */
#define ENOUGH 4
#define OBJECT_BYTES 4096u
#define ALL_Q8 256u

static uint32_t refused; /* process_vm_readv is */

static void end_lead(struct np_overlap *overlap) {
    overlap->line = 0;
    if (overlap->leaders < FORGET) return;
    overlap->leaders /= 2;
    overlap->pointed /= 2;
    overlap->looked /= 2;
    overlap->missed /= 2;
}

/* The words of the leader's line. */
static bool read_line(struct np_slot *slot, struct np_overlap *overlap) {
    struct iovec here = {overlap->words, sizeof overlap->words};
    struct iovec there = {(void *)(overlap->line << NP_LINE_SHIFT), sizeof overlap->words};
    long got = np_sys(SYS_process_vm_readv, (long)slot->pid, (long)&here, 1, (long)&there, 1, 0);
    if (got == -EPERM || got == -ENOSYS) np_store(refused, 1);
    return got == (long)sizeof overlap->words;
}

static bool comes_from(const struct np_overlap *overlap, uintptr_t address) {
    for (uint32_t i = 0; i < sizeof overlap->words / sizeof *overlap->words; i++) {
        uintptr_t pointer = overlap->words[i] & ~(uintptr_t)7; /* low bits may be tags */
        if ((overlap->loaded >> i & 1) && pointer >= OBJECT_BYTES && address - pointer < OBJECT_BYTES) return true;
    }
    return false;
}

static uint16_t word_bit(uintptr_t address) { return (uint16_t)(1u << (address / sizeof(uint64_t) % 8)); }

static void begin_lead(struct np_slot *slot, struct np_overlap *overlap, uintptr_t address) {
    overlap->line = address >> NP_LINE_SHIFT;
    overlap->loaded = word_bit(address);
    overlap->until = slot->accesses + np_sim.core_window;
    overlap->is_read = 0;
    overlap->last = 0;
    overlap->leaders++;
    /* As np_filter_poke: nearly every look-up of the first stage misses from here on. */
    np_store(*np_stage_one(slot, 0), 0);
    np_store(slot->l1_mask, 0);
}

bool np_overlap_follows(struct np_slot *slot, uintptr_t address, uint32_t bits) {
    struct np_overlap *overlap = &np_ss(slot)->overlap;
    uintptr_t line = address >> NP_LINE_SHIFT;
    if (slot->accesses > overlap->until) {
        end_lead(overlap);
        return false;
    }
    if (bits & NP_ACC_WRITE) return false;
    if (line == overlap->line) overlap->loaded |= word_bit(address);
    if (line == overlap->line || line == overlap->last) return false;
    if (!overlap->is_read) {
        if (!read_line(slot, overlap)) {
            overlap->leaders -= overlap->leaders != 0;
            end_lead(overlap);
            return false;
        }
        overlap->is_read = 1;
    }
    if (!comes_from(overlap, address)) return false;
    overlap->pointed = (uint16_t)(overlap->pointed + (overlap->last == 0));
    overlap->last = line;
    return true;
}

void np_overlap_followed(struct np_slot *slot, bool missed) {
    struct np_overlap *overlap = &np_ss(slot)->overlap;
    overlap->looked++;
    overlap->missed = (uint16_t)(overlap->missed + missed);
}

/* Of scattered misses, those that another waits for, in 1/256. */
static uint32_t dependent_q8(const struct np_overlap *overlap) {
    if (overlap->leaders < ENOUGH || np_load(refused)) return ALL_Q8;
    uint32_t pointed_q8 = overlap->pointed * ALL_Q8 / overlap->leaders;
    uint32_t share_q8 = overlap->looked == 0 ? pointed_q8 : pointed_q8 * overlap->missed / overlap->looked;
    return share_q8 < ALL_Q8 ? share_q8 : ALL_Q8;
}

uint32_t np_overlap_charge(struct np_slot *slot, uintptr_t address, uint32_t bits, uint32_t latency) {
    struct np_overlap *overlap = &np_ss(slot)->overlap;
    bool write = bits & NP_ACC_WRITE;
    uint64_t gap_q4 = (slot->accesses - overlap->at) << 4;
    overlap->at = slot->accesses;
    if (gap_q4 > UINT32_MAX / 2) gap_q4 = UINT32_MAX / 2;
    if (overlap->gap_q4 == 0) overlap->gap_q4 = (uint32_t)gap_q4;
    else overlap->gap_q4 = (uint32_t)((int64_t)overlap->gap_q4 + ((int64_t)gap_q4 - (int64_t)overlap->gap_q4) / 16);
    uint32_t dependent = write ? 0 : dependent_q8(overlap);
    slot->memory_dependent += np_random_below(slot, ALL_Q8) < dependent;
    /* N in 1/256; a gap below one access is one line of a block. */
    uint64_t gap = overlap->gap_q4 > 0 ? overlap->gap_q4 : 1;
    uint64_t reach_q8 = 256 + (uint64_t)np_sim.core_window * np_sim.line_sampling * 16 * 256 / gap;
    uint64_t outstanding_q8 = (ALL_Q8 - dependent) * reach_q8 / ALL_Q8;
    uint64_t most_q8 = (uint64_t)np_sim.core_misses * 256;
    if (outstanding_q8 > most_q8) outstanding_q8 = most_q8;
    if (outstanding_q8 < 256) outstanding_q8 = 256;
    uint32_t share = overlap->leaders < FIRST_LEADERS ? FIRST_SHARE : LEADER_SHARE;
    bool may_lead = !(bits & (NP_ACC_WRITE | NP_ACC_RANGE)) && overlap->line == 0 && np_sim.core_window != 0 && !np_load(refused);
    if (may_lead && np_random_below(slot, share) == 0) begin_lead(slot, overlap, address);
    return (uint32_t)((uint64_t)latency * 256 / outstanding_q8);
}
