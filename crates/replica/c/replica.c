/* replica.c: the objects of numapilot_replica.h: editions, drafts, who writes, what waits to be freed; fork.
 *
 * An edition says, for each node, where its threads read; `current` names the one in force (protocol.h). Publishing makes two: one with the new
 * content in a single copy (collapse), and, once the others are filled, one of the same version with a copy on every node. Neighbouring
 * editions share buffers, so each knows which it owns. Editions are made before anything is published: from then on nothing can fail. */
#define _GNU_SOURCE
#include "numapilot_replica.h"

#include "nodes.h"
#include "readers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define PENDING_DEFAULT 4u
enum { KNOWN_FLAGS = NUMAPILOT_REPLICA_UNPROTECTED | NUMAPILOT_REPLICA_COLLAPSED };

struct copy {
    void *start;     /* what the node's threads read */
    int32_t home;    /* the node that it was made for */
    int32_t refusal; /* why the node has none of its own */
    bool is_owned;   /* freed with this edition, and not with another one */
};

struct edition {
    uint64_t version;
    uint32_t buffers;      /* different ones */
    bool is_same;          /* one buffer serves all nodes */
    npr_word tag;          /* see npr_replace() */
    struct edition *later; /* in the list of those that wait */
    struct copy copies[];  /* by node, `span` of them */
};

struct numapilot_replica {
    npr_word current; /* struct edition * */
    size_t bytes;
    uint32_t flags, pending_max;
    npr_word is_collapsed;
    pthread_mutex_t writer; /* held from the beginning of a write to its end */
    npr_word owner;         /* pthread_t of the holder, 0: none */
    void *draft;
    struct edition *first, *second; /* for the draft: collapsed, replicated */
    /* Below: under npr_lock(). */
    struct edition *pending;
    uint64_t pending_versions, pending_bytes;
    struct numapilot_replica *next, **link;
};

static struct numapilot_replica *replicas; /* under npr_lock() */
static npr_word waiting_for_readers;       /* writers, of whatever replica */

/* ---- editions ---- */

static struct edition *new_edition(void) {
    uint32_t span = npr_nodes()->span;
    return calloc(1, sizeof(struct edition) + span * sizeof(struct copy));
}

static void point_all_to(struct edition *edition, void *start, int32_t home) {
    for (uint32_t node = 0; node < npr_nodes()->span; node++) edition->copies[node] = (struct copy){.start = start, .home = home};
    edition->buffers = 1;
    edition->is_same = true;
}

static uint64_t owned_bytes(const numapilot_replica *replica, const struct edition *edition) {
    uint64_t bytes = 0;
    for (uint32_t node = 0; node < npr_nodes()->span; node++) bytes += edition->copies[node].is_owned ? npr_whole_pages(replica->bytes) : 0;
    return bytes;
}

static void free_edition(const numapilot_replica *replica, struct edition *edition) {
    for (uint32_t node = 0; edition && node < npr_nodes()->span; node++) {
        if (edition->copies[node].is_owned) munmap(edition->copies[node].start, npr_whole_pages(replica->bytes));
    }
    free(edition);
}

/* `to` serves with buffers of `from`, which is to be replaced by it: whoever goes last frees them. */
static void hand_over(struct edition *from, struct edition *to, const void *start) {
    for (uint32_t node = 0; node < npr_nodes()->span; node++) {
        if (from->copies[node].start != start || !from->copies[node].is_owned) continue;
        from->copies[node].is_owned = false;
        to->copies[node].is_owned = true;
    }
}

static void protect(const numapilot_replica *replica, void *start) {
    /* Best effort: a refusal leaves it writable. */
    if (!(replica->flags & NUMAPILOT_REPLICA_UNPROTECTED)) mprotect(start, npr_whole_pages(replica->bytes), PROT_READ);
}

static struct edition *current_edition(const numapilot_replica *replica) { return (struct edition *)npr_load(&replica->current); }

/* ---- what waits for readers ---- */

static void put_in_force(numapilot_replica *replica, struct edition *edition) {
    npr_word tag;
    struct edition *replaced = (struct edition *)npr_replace(npr_domain(), &replica->current, (npr_word)edition, &tag);
    replaced->tag = tag;
    npr_lock();
    replaced->later = replica->pending;
    replica->pending = replaced;
    uint64_t bytes = owned_bytes(replica, replaced);
    replica->pending_versions += bytes > 0;
    replica->pending_bytes += bytes;
    npr_unlock();
}

static void reclaim(numapilot_replica *replica) {
    npr_word oldest = npr_oldest(npr_domain());
    struct edition *free_list = NULL;
    npr_lock();
    for (struct edition **link = &replica->pending; *link;) {
        struct edition *edition = *link;
        if (edition->tag > oldest) {
            link = &edition->later;
            continue;
        }
        uint64_t bytes = owned_bytes(replica, edition);
        replica->pending_versions -= bytes > 0;
        replica->pending_bytes -= bytes;
        *link = edition->later;
        edition->later = free_list;
        free_list = edition;
    }
    npr_unlock();
    while (free_list) {
        struct edition *next = free_list->later;
        free_edition(replica, free_list);
        free_list = next;
    }
}

static bool has_room(numapilot_replica *replica, uint64_t limit) {
    npr_lock();
    bool has = limit > 0 ? replica->pending_versions < limit : replica->pending == NULL;
    npr_unlock();
    return has;
}

/* Whether there can be no room before this thread leaves its section. Others are only waited for if they entered theirs before: no two wait for each other. */
static bool waits_for_self(numapilot_replica *replica, uint64_t limit) {
    npr_word since = npr_inside_since();
    uint64_t held = 0;
    npr_lock();
    for (const struct edition *edition = replica->pending; since != 0 && edition; edition = edition->later) {
        held += edition->tag > since && owned_bytes(replica, edition) > 0;
    }
    npr_unlock();
    return held >= limit && held > 0;
}

/* Waits until fewer than `limit` versions wait for readers; 0: until nothing does. -EDEADLK: they wait for this thread. */
static int make_room(numapilot_replica *replica, uint64_t limit) {
    long pause_ns = 20000;
    while (!has_room(replica, limit)) {
        reclaim(replica);
        if (has_room(replica, limit)) break;
        if (waits_for_self(replica, limit)) return -EDEADLK;
        npr_add(&waiting_for_readers, 1);
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        npr_add(&waiting_for_readers, (npr_word)-1);
        if (pause_ns < 1000000) pause_ns *= 2;
    }
    return 0;
}

/* ---- who writes ---- */

static bool is_writing(const numapilot_replica *replica) { return npr_load(&replica->owner) == (npr_word)pthread_self(); }

static int take_turn(numapilot_replica *replica) {
    if (is_writing(replica)) return -EDEADLK;
    /* A thread that has a record is noticed when it ends. */
    npr_enter();
    npr_leave();
    /* From inside of a section, the turn is not waited for while a writer, perhaps this one, waits for readers. */
    while (npr_inside_since() != 0 && pthread_mutex_trylock(&replica->writer) != 0) {
        if (npr_load(&waiting_for_readers) != 0) return -EDEADLK;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    if (npr_inside_since() == 0) pthread_mutex_lock(&replica->writer);
    npr_store(&replica->owner, (npr_word)pthread_self());
    return 0;
}

static void end_turn(numapilot_replica *replica) {
    npr_store(&replica->owner, 0);
    pthread_mutex_unlock(&replica->writer);
}

static void drop_draft(numapilot_replica *replica) {
    if (replica->draft) munmap(replica->draft, npr_whole_pages(replica->bytes));
    free_edition(replica, replica->first);
    free_edition(replica, replica->second);
    replica->draft = NULL;
    replica->first = replica->second = NULL;
}

static int make_draft(numapilot_replica *replica) {
    replica->first = new_edition();
    replica->second = new_edition();
    replica->draft = npr_map_on(replica->bytes, (int)npr_node_here());
    /* The own node may be full or not allowed to us: then anywhere. */
    for (uint32_t i = 0; !replica->draft && i < npr_nodes()->count; i++) replica->draft = npr_map_on(replica->bytes, npr_nodes()->id[i]);
    if (replica->first && replica->second && replica->draft) return 0;
    drop_draft(replica);
    return -ENOMEM;
}

/* ---- copies on every node ---- */

/* A copy of `from` on the node. NULL: no memory there. */
static void *copy_on(const numapilot_replica *replica, const void *from, int node) {
    void *start = npr_map_on(replica->bytes, node);
    if (!start) return NULL;
    memcpy(start, from, replica->bytes);
    if (npr_misplaced(start, npr_whole_pages(replica->bytes), node) > 0) {
        munmap(start, npr_whole_pages(replica->bytes));
        return NULL;
    }
    protect(replica, start);
    return start;
}

/* The nearest node that has a copy of its own. */
static int nearest_with_copy(const struct edition *edition, int node) {
    const struct npr_nodes *nodes = npr_nodes();
    int best = -1;
    uint32_t best_distance = UINT32_MAX;
    for (uint32_t i = 0; i < nodes->count; i++) {
        int other = nodes->id[i];
        if (!edition->copies[other].start || edition->copies[other].home != other) continue;
        uint32_t distance = npr_distance(node, other);
        if (distance < best_distance) {
            best_distance = distance;
            best = other;
        }
    }
    return best;
}

/* Fills `second` from the edition in force, whose copies it keeps where they are well placed. */
static void spread(numapilot_replica *replica, struct edition *from, struct edition *second) {
    const struct npr_nodes *nodes = npr_nodes();
    second->version = from->version;
    void *base = from->copies[nodes->id[0]].start;
    for (uint32_t i = 0; i < nodes->count; i++) {
        int node = nodes->id[i];
        struct copy *copy = &second->copies[node];
        const struct copy *old = &from->copies[node];
        bool is_kept = old->home == node && npr_misplaced(old->start, npr_whole_pages(replica->bytes), node) == 0;
        void *start = is_kept ? old->start : copy_on(replica, base, node);
        *copy = (struct copy){.start = start, .home = node, .refusal = start ? 0 : -ENOMEM, .is_owned = start && !is_kept};
        second->buffers += start != NULL;
    }
    if (second->buffers == 0) {
        /* Not one node took a copy: what there is stays. */
        for (uint32_t i = 0; i < nodes->count; i++) {
            second->copies[nodes->id[i]] = from->copies[nodes->id[i]];
            second->copies[nodes->id[i]].refusal = -ENOMEM;
            second->copies[nodes->id[i]].is_owned = false;
        }
        second->buffers = from->buffers;
    }
    for (uint32_t node = 0; node < nodes->span; node++) {
        struct copy *copy = &second->copies[node];
        if (copy->start) continue;
        int near = nearest_with_copy(second, (int)node);
        const struct copy *other = &second->copies[near >= 0 ? near : nodes->id[0]];
        copy->start = other->start;
        copy->home = other->home;
    }
    second->is_same = second->buffers == 1;
}

/* Copies for the edition in force, in `second`, which is used up. */
static void replicate_current(numapilot_replica *replica, struct edition *second) {
    struct edition *from = current_edition(replica);
    spread(replica, from, second);
    for (uint32_t node = 0; node < npr_nodes()->span; node++) hand_over(from, second, second->copies[node].start);
    put_in_force(replica, second);
}

/* ---- publishing ---- */

static bool wants_copies(const numapilot_replica *replica) { return npr_nodes()->count > 1 && npr_load(&replica->is_collapsed) == 0; }

/* The draft becomes the next version. Only making room can fail, and then nothing has happened. */
static int commit(numapilot_replica *replica) {
    int error = make_room(replica, replica->pending_max);
    if (error) return error;
    struct edition *first = replica->first, *second = replica->second;
    uint32_t node = npr_node_here();
    if (node >= npr_nodes()->span) node = npr_nodes()->id[0];
    protect(replica, replica->draft);
    point_all_to(first, replica->draft, (int32_t)node);
    first->copies[node].is_owned = true;
    first->version = current_edition(replica)->version + 1;
    replica->draft = NULL;
    replica->first = NULL;
    put_in_force(replica, first);
    if (wants_copies(replica)) {
        replica->second = NULL;
        replicate_current(replica, second);
    }
    drop_draft(replica);
    reclaim(replica);
    return 0;
}

EXPORT int numapilot_replica_write_begin(numapilot_replica *replica, void **draft) {
    int error = take_turn(replica);
    if (error) return error;
    error = make_draft(replica);
    if (error) {
        end_turn(replica);
        return error;
    }
    /* Of the editions in force only a writer replaces one, and that is us: no section needed. */
    memcpy(replica->draft, current_edition(replica)->copies[npr_nodes()->id[0]].start, replica->bytes);
    *draft = replica->draft;
    return 0;
}

EXPORT int numapilot_replica_write_commit(numapilot_replica *replica) {
    if (!is_writing(replica)) return -EPERM;
    int error = commit(replica);
    if (error == 0) end_turn(replica);
    return error;
}

EXPORT int numapilot_replica_write_abort(numapilot_replica *replica) {
    if (!is_writing(replica)) return -EPERM;
    drop_draft(replica);
    end_turn(replica);
    return 0;
}

EXPORT int numapilot_replica_publish(numapilot_replica *replica, const void *content) {
    int error = take_turn(replica);
    if (error) return error;
    error = make_draft(replica);
    if (error == 0) {
        memcpy(replica->draft, content, replica->bytes);
        error = commit(replica);
        if (error) drop_draft(replica);
    }
    end_turn(replica);
    return error;
}

EXPORT int numapilot_replica_collapse(numapilot_replica *replica) {
    int error = take_turn(replica);
    if (error) return error;
    struct edition *one = new_edition();
    error = one ? make_room(replica, replica->pending_max) : -ENOMEM;
    if (error == 0) {
        struct edition *from = current_edition(replica);
        struct copy kept = from->copies[npr_nodes()->id[0]];
        npr_store(&replica->is_collapsed, 1);
        point_all_to(one, kept.start, kept.home);
        one->version = from->version;
        hand_over(from, one, kept.start);
        put_in_force(replica, one);
        reclaim(replica);
        one = NULL;
    }
    free(one);
    end_turn(replica);
    return error;
}

EXPORT int numapilot_replica_replicate(numapilot_replica *replica) {
    int error = take_turn(replica);
    if (error) return error;
    struct edition *all = new_edition();
    error = all ? make_room(replica, replica->pending_max) : -ENOMEM;
    if (error == 0) {
        npr_store(&replica->is_collapsed, 0);
        if (wants_copies(replica)) {
            replicate_current(replica, all);
            reclaim(replica);
            all = NULL;
        }
    }
    free(all);
    end_turn(replica);
    return error;
}

/* ---- reading ---- */

EXPORT const void *numapilot_replica_enter(const numapilot_replica *replica, uint64_t *version) {
    npr_enter();
    const struct edition *edition = current_edition(replica);
    if (version) *version = edition->version;
    uint32_t node = edition->is_same ? 0 : npr_node_here();
    return edition->copies[__builtin_expect(node < npr_span, 1) ? node : 0].start;
}

EXPORT void numapilot_replica_leave(const numapilot_replica *replica) {
    (void)replica;
    npr_leave();
}

/* ---- life ---- */

/* In the child of a fork. Threads that wrote are not here: their drafts go, and their turn is over. */
static void after_fork(void) {
    for (numapilot_replica *replica = replicas; replica; replica = replica->next) {
        if (is_writing(replica)) continue;
        drop_draft(replica);
        npr_store(&replica->owner, 0);
        pthread_mutex_init(&replica->writer, NULL);
    }
    npr_store(&waiting_for_readers, 0);
}

/* A thread ends, perhaps in the middle of writing. */
static void at_thread_end(void) {
    for (numapilot_replica *replica = replicas; replica; replica = replica->next) {
        if (!is_writing(replica)) continue;
        drop_draft(replica);
        end_turn(replica);
    }
}

EXPORT int numapilot_replica_create(size_t bytes, const struct numapilot_replica_options *options, numapilot_replica **replica) {
    struct numapilot_replica_options wanted = {.type_size = sizeof wanted};
    if (options) {
        if (options->type_size < sizeof wanted) return -EINVAL;
        wanted = *options;
    }
    if (bytes == 0 || npr_whole_pages(bytes) < bytes || (wanted.flags & ~(uint32_t)KNOWN_FLAGS)) return -EINVAL;
    npr_start(after_fork, at_thread_end);
    numapilot_replica *made = calloc(1, sizeof *made);
    struct edition *zero = new_edition();
    size_t length = npr_whole_pages(bytes);
    /* Not made in advance: version 0 may never be read. */
    void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!made || !zero || start == MAP_FAILED) {
        if (start != MAP_FAILED) munmap(start, length);
        free(zero);
        free(made);
        return -ENOMEM;
    }
    uint32_t node = npr_nodes()->id[0];
    point_all_to(zero, start, (int32_t)node);
    zero->copies[node].is_owned = true;
    made->current = (npr_word)zero;
    made->bytes = bytes;
    made->flags = wanted.flags;
    made->is_collapsed = (wanted.flags & NUMAPILOT_REPLICA_COLLAPSED) != 0;
    made->pending_max = wanted.pending_max ? wanted.pending_max : PENDING_DEFAULT;
    pthread_mutex_init(&made->writer, NULL);
    protect(made, start);
    npr_lock();
    made->next = replicas;
    made->link = &replicas;
    if (replicas) replicas->link = &made->next;
    replicas = made;
    npr_unlock();
    *replica = made;
    return 0;
}

EXPORT int numapilot_replica_destroy(numapilot_replica *replica) {
    if (npr_inside_since() != 0) return -EDEADLK;
    int error = take_turn(replica);
    if (error) return error;
    struct edition *none = new_edition();
    if (!none) {
        end_turn(replica);
        return -ENOMEM;
    }
    put_in_force(replica, none);
    make_room(replica, 0);
    npr_lock();
    *replica->link = replica->next;
    if (replica->next) replica->next->link = replica->link;
    npr_unlock();
    free(none);
    end_turn(replica);
    pthread_mutex_destroy(&replica->writer);
    free(replica);
    return 0;
}

/* ---- information ---- */

EXPORT int numapilot_replica_info(numapilot_replica *replica, struct numapilot_replica_info *info) {
    if (info->type_size < sizeof *info) return -EINVAL;
    struct numapilot_replica_info found = {.type_size = sizeof found, .bytes = replica->bytes, .nodes = npr_nodes()->count};
    found.is_collapsed = npr_load(&replica->is_collapsed) != 0;
    npr_enter();
    const struct edition *edition = current_edition(replica);
    found.version = edition->version;
    found.copies = edition->buffers;
    for (uint32_t i = 0; i < npr_nodes()->count; i++) found.refused += edition->copies[npr_nodes()->id[i]].refusal != 0;
    npr_leave();
    npr_lock();
    found.pending_versions = replica->pending_versions;
    found.pending_bytes = replica->pending_bytes;
    npr_unlock();
    *info = found;
    return 0;
}

EXPORT int numapilot_replica_copy_of(numapilot_replica *replica, int node, struct numapilot_replica_copy *copy) {
    if (copy->type_size < sizeof *copy) return -EINVAL;
    if (node < 0 || (uint32_t)node >= npr_nodes()->span) return -ENODEV;
    npr_enter();
    const struct copy *found = &current_edition(replica)->copies[node];
    *copy = (struct numapilot_replica_copy){sizeof *copy, found->start, found->home, found->refusal, {0}};
    npr_leave();
    return 0;
}
