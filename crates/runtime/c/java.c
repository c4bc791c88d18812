/* java.c: the objects of a Java virtual machine, as the agent in it (java/agent.c) reports them: each class is a pool (pool.c), each object a block of it, and
 * the frames of its allocation are methods, recorded like those of a Python interpreter (python.c).
 *
 * What is called here may be called in a pause of the collector, in which no thread may wait for the virtual machine: nothing here does.
 */
#define _GNU_SOURCE
#include "java.h"
#include "pool.h"
#include "track.h"

#include <string.h>

#define NAME_BYTES_MAX 512u
#define TEXT_BYTES_MAX 400u
/* At most this long for each byte: page faults of a guest, whose host has to find memory, included. */
#define CLEARING_NS 100u

static int begin(void) {
    if (np_load(np_arena) == NULL) return 0;
    __atomic_fetch_add(&np_arena->java_machines, 1, __ATOMIC_RELAXED);
    return 1;
}

static void trouble(enum np_java_trouble what, const char *text) {
    if (np_load(np_arena) == NULL) return;
    __atomic_fetch_or(&np_arena->java_troubles, what, __ATOMIC_RELAXED);
    int saved = errno;
    struct np_slot *slot = np_slot_here();
    if (slot != NULL && np_enter(slot)) {
        np_put_mark(slot, text, strnlen(text, TEXT_BYTES_MAX));
        np_leave(slot);
    }
    errno = saved;
}

static void dropped(uint64_t objects) {
    if (np_load(np_arena) != NULL) __atomic_fetch_add(&np_arena->java_dropped, objects, __ATOMIC_RELAXED);
}

static uint32_t write_method(struct np_slot *slot, const char *name, const char *file, const struct np_java_line *lines, size_t count) {
    size_t name_bytes = strnlen(name, NAME_BYTES_MAX), file_bytes = strnlen(file, NAME_BYTES_MAX), table_bytes = count * sizeof *lines;
    if (table_bytes > np_arena->ring_bytes / 8) table_bytes = 0;
    uint32_t id = __atomic_fetch_add(&np_arena->next_code_id, 1, __ATOMIC_RELAXED);
    if (id >= NP_CODE_IDS) return 0;
    unsigned name_words = np_words_for(name_bytes), file_words = np_words_for(file_bytes), words_used = 5 + name_words + file_words + np_words_for(table_bytes);
    uint64_t *words = np_begin(slot, NP_REC_CODE, id, words_used, np_order());
    if (words == NULL) return 0;
    words[2] = name_bytes | (uint64_t)file_bytes << 32;
    words[3] = table_bytes;
    words[4] = NP_CODE_JAVA;
    np_put_bytes(words + 5, name, name_bytes);
    np_put_bytes(words + 5 + name_words, file, file_bytes);
    np_put_bytes(words + 5 + name_words + file_words, (const char *)lines, table_bytes);
    np_commit(slot, words_used);
    return id;
}

static uint32_t method(const char *name, const char *file, const struct np_java_line *lines, size_t count) {
    int saved = errno;
    uint32_t id = 0;
    struct np_slot *slot = np_load(np_arena) != NULL ? np_slot_here() : NULL;
    if (slot != NULL && np_enter(slot)) {
        id = write_method(slot, name, file, lines, count);
        np_leave(slot);
    }
    errno = saved;
    return id;
}

static uint32_t stack(const uint64_t *frames, unsigned count, int is_cut) {
    int saved = errno;
    uint32_t id = 0;
    struct np_slot *slot = np_load(np_arena) != NULL ? np_slot_here() : NULL;
    if (count > 0 && slot != NULL && np_enter(slot)) {
        unsigned depth = np_arena->config.max_stack_depth, most = count < depth ? count : depth;
        id = np_stack_of(slot, frames, most, is_cut || most < count);
        np_leave(slot);
    }
    errno = saved;
    return id;
}

static uint32_t thread(void) {
    const struct np_slot *slot = np_load(np_arena) != NULL ? np_slot_here() : NULL;
    return slot != NULL ? slot->thread_index : NP_NONE32;
}

static uint64_t mapped(uint64_t earliest) {
    uint64_t last = np_load(np_arena) != NULL ? np_load(np_arena->last_map_order) : 0;
    return earliest > last ? earliest : last + 1;
}

static uint64_t cleared(uint64_t earliest, size_t bytes) {
    uint64_t now = np_order(), order = mapped(earliest);
    /* Where stamps are times, an object is not much older than it is. */
    if (np_load(np_arena) != NULL && np_track_only && np_arena->order_source != NP_ORDER_SEQUENCE) {
        uint64_t clearing = (uint64_t)bytes * CLEARING_NS / 1000 * np_arena->config.clock_khz / 1000;
        if (clearing < now && now - clearing > order) order = now - clearing;
    }
    return order < now ? order : now;
}

static void thread_name(const char *name) {
    int saved = errno;
    if (np_load(np_arena) != NULL) np_thread_called(name);
    errno = saved;
}

NP_EXPORT const struct np_java_functions numapilot_java = {
    NP_JAVA_VERSION, 0,      begin,  trouble, dropped,         np_order,     np_pool_named, method,
    stack,           thread, mapped, cleared, np_pool_made_at, np_pool_gone, thread_name,
};
