/* numapilot_replica.h: per-node copies of read-mostly data. C11 and C++11. Link with -lnumapilot_replica (pkg-config: numapilot-replica).
 *
 * A replica is a block of bytes that many threads read and few write. Each node with CPUs holds a copy in its own memory, and a reader gets the
 * copy of the node that it runs on. Copies change by whole versions:
 *
 *     numapilot_replica *table;
 *     numapilot_replica_create(bytes, NULL, &table);
 *     numapilot_replica_publish(table, initial);                    // one version, a copy on every node
 *
 *     const struct row *rows = numapilot_replica_enter(table, NULL); // any thread: the copy of this node
 *     ... read ...
 *     numapilot_replica_leave(table);
 *
 *     void *draft;
 *     numapilot_replica_write_begin(table, &draft);                 // the present content, to be changed in private
 *     ... write ...
 *     numapilot_replica_write_commit(table);                        // collapse to the new content, then copy it to every node
 *
 * What is promised (docs/replication.md has the argument and the tests):
 *   - Linearizable. Publishing and committing take effect at one instant between call and return. A read section takes its version at one instant
 *     within numapilot_replica_enter(): it is the one that was current then. Versions count up from 0 (all bytes zero).
 *   - Whole. What a section sees does not change until it leaves, whatever is published and wherever its thread goes meanwhile.
 *   - In order. No thread sees versions run backwards, also when it moves between nodes; nor do two threads that synchronise with each other.
 *   - Writers take turns. Readers never wait.
 *   - Memory of versions that no section can still see is returned; a reader that stays inside delays that. With `pending_max` versions waiting,
 *     writers wait for readers. A thread that ends inside a section has left it.
 *   - After fork() the child has the current version and its own life; drafts of threads that it does not have are dropped.
 *   - Where a node has no memory for its copy, its threads share another node's, and numapilot_replica_copy_of() says so.
 *   - On a machine with one node: one copy, the same rules.
 *
 * Functions return 0 or a negative errno value. Sections nest, and may be entered in signal handlers if their thread has been in one before. */
#ifndef NUMAPILOT_REPLICA_H
#define NUMAPILOT_REPLICA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct numapilot_replica numapilot_replica;

enum {
    /* Copies stay writable memory. By default the system holds published copies read-only: a stray write faults instead of letting them drift apart. */
    NUMAPILOT_REPLICA_UNPROTECTED = 1,
    /* One copy until numapilot_replica_replicate() is called. */
    NUMAPILOT_REPLICA_COLLAPSED = 2
};

/* Set type_size to sizeof(struct ...) and everything not wanted to 0: later versions of the library may know more fields. */
struct numapilot_replica_options {
    size_t type_size;
    uint32_t flags;       /* NUMAPILOT_REPLICA_... */
    uint32_t pending_max; /* versions that may wait for readers before writers do, 0: 4 */
    uint64_t reserved[4];
};

struct numapilot_replica_info {
    size_t type_size;
    uint64_t version;          /* the current one */
    uint64_t bytes;            /* of the content */
    uint32_t nodes;            /* that have a copy when all goes well; 1 on a machine with one node */
    uint32_t copies;           /* that the current version has now */
    uint32_t refused;          /* nodes whose copy could not be made at the last try */
    uint32_t is_collapsed;     /* 1: one copy is wanted */
    uint64_t pending_versions; /* replaced, and not yet returned as a reader may be inside */
    uint64_t pending_bytes;
    uint64_t reserved[4];
};

struct numapilot_replica_copy {
    size_t type_size;
    const void *address; /* what readers on this node get */
    int32_t home_node;   /* for which the copy was made: the node itself, or the one that it shares a copy with */
    int32_t refusal;     /* why the node has none of its own: 0 or a negative errno value (-ENOMEM: no free memory there) */
    uint64_t reserved[4];
};

/* Makes a replica of `bytes` zero bytes: version 0, in one copy. -EINVAL: no bytes, or options of an unknown kind. -ENOMEM. */
int numapilot_replica_create(size_t bytes, const struct numapilot_replica_options *options, numapilot_replica **replica);

/* Returns all memory. Waits for sections that are open; later use is an error of the caller. -EDEADLK: this thread is inside one, or writing. */
int numapilot_replica_destroy(numapilot_replica *replica);

/* Begins a read section: the content, as this node's copy. `version` may be NULL. Never fails and never waits; a
 * thread's first section makes its record. */
const void *numapilot_replica_enter(const numapilot_replica *replica, uint64_t *version);

/* Ends the section that this thread entered last. */
void numapilot_replica_leave(const numapilot_replica *replica);

/* Replaces the whole content by the bytes at `content`. -ENOMEM: not even one copy could be made, the old version is current still.
 * -EDEADLK: this thread is writing this replica, or is in a section that the wait for readers would wait for. */
int numapilot_replica_publish(numapilot_replica *replica, const void *content);

/* Waits for its turn to write and gives a private draft that holds the current content. Errors as in numapilot_replica_publish(). */
int numapilot_replica_write_begin(numapilot_replica *replica, void **draft);

/* Makes the draft the next version: first as the only copy (collapse), then on every node. -EPERM: this thread is not writing.
 * -EDEADLK: see numapilot_replica_publish(); the draft is kept, commit again outside of the section. */
int numapilot_replica_write_commit(numapilot_replica *replica);

/* Forgets the draft. -EPERM: this thread is not writing. */
int numapilot_replica_write_abort(numapilot_replica *replica);

/* Keeps one copy from now on, for times of many writes or little memory; back to one on each node. The version stays. Replicating also tries
 * again where a copy was refused. Errors as in numapilot_replica_publish(). */
int numapilot_replica_collapse(numapilot_replica *replica);
int numapilot_replica_replicate(numapilot_replica *replica);

/* Set type_size first. -EINVAL: a size that is too small. */
int numapilot_replica_info(numapilot_replica *replica, struct numapilot_replica_info *info);

/* The copy that readers on a node get; for tools and tests: the address may be gone as soon as something is published. -ENODEV: no such node. */
int numapilot_replica_copy_of(numapilot_replica *replica, int node, struct numapilot_replica_copy *copy);

#ifdef __cplusplus
}
#endif
#endif
