/* protocol.h: who may still see what. Epoch-based reclamation, after Fraser ("Practical lock-freedom", 2004, section 5.2.3) and user-space RCU
 * (Desnoyers et al., IEEE TPDS 2012), whose asymmetric barriers it uses.
 *
 * One word, `current`, says which edition of an object is to be read. Whoever replaces it is ordered by it: that makes reads and writes linearizable and
 * versions monotone per thread. The rest is about when a replaced edition may be freed:
 *
 *   reader: R1 note the epoch in the own record;  R2 barrier;  R3 load `current`;  ...read...;  R4 clear the record
 *   writer: W1 swap `current`;  W2 E = epoch + 1;  W3 barrier;  W4 read all records;  free what was replaced if none is below E
 *
 * Let a reader hold the edition that W1 replaced: its R3 came before W1, so the epoch that it noted in R1 is below E. Of R2 and W3 one comes first. If R2,
 * W4 sees R1 and does not free. If W3, R3 comes after W1 and sees the new edition: a contradiction. If the record is clear or later, R4 was a release that W4
 * acquires, so all of the section's reads are over. */
#ifndef NPR_PROTOCOL_H
#define NPR_PROTOCOL_H

#include "atomics.h"

#define NPR_NOBODY UINT64_MAX

/* One per thread that reads, never freed, passed on when its thread ends. Alone on its pair of cache lines. */
struct npr_reader {
    npr_word epoch; /* noted on entry, 0: outside */
    uint64_t depth; /* of nested sections; only its thread's business */
    npr_word is_owned;
    struct npr_reader *next; /* fixed once it is in the list */
} __attribute__((aligned(128)));

struct npr_domain {
    npr_word epoch;   /* begins at 1 */
    npr_word readers; /* struct npr_reader *: grows only */
    npr_word strays;  /* sections of threads that could not get a record */
    int has_heavy;    /* the writer's barrier works on readers; fixed before the first section */
};

/* A signal handler may come between any two steps and have sections of its own: it leaves the depth as it was, and an epoch that is noted already
 * (perhaps an older one than would be noted now, which is safe) serves it too. Hence first the depth, then the epoch, and the reverse on leaving. */
static inline void npr_pin(struct npr_domain *domain, struct npr_reader *self) {
    self->depth++;
    npr_compiler_barrier();
    if (npr_own(&self->epoch) == 0) npr_store(&self->epoch, npr_load(&domain->epoch));
    npr_light_barrier(domain->has_heavy);
}

static inline void npr_unpin(struct npr_reader *self) {
    npr_compiler_barrier();
    if (--self->depth == 0) {
        npr_compiler_barrier();
        npr_store(&self->epoch, 0);
    }
}

/* Replaces the edition in `current`; `tag` receives what npr_oldest() must reach before the returned one may be freed. */
static inline npr_word npr_replace(struct npr_domain *domain, npr_word *current, npr_word edition, npr_word *tag) {
    npr_word replaced = npr_swap(current, edition);
    *tag = npr_add(&domain->epoch, 1);
    return replaced;
}

/* Whatever was replaced with a tag up to this one can no longer be read. 0: not known. */
static inline npr_word npr_oldest(struct npr_domain *domain) {
    npr_word oldest = NPR_NOBODY;
    if (!npr_heavy_barrier(domain->has_heavy) || npr_load(&domain->strays) != 0) return 0;
    for (struct npr_reader *reader = (struct npr_reader *)npr_load(&domain->readers); reader; reader = reader->next) {
        npr_word epoch = npr_load(&reader->epoch);
        if (epoch != 0 && epoch < oldest) oldest = epoch;
    }
    return oldest;
}

#endif
