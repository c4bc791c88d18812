/* map_record.c: the records of mappings, for the hooks (map.c) and for an emulator's plugin, which sees the system calls themselves. */
#define _GNU_SOURCE
#include "track.h"

#include <fcntl.h>

void np_put_map(struct np_slot *slot, const struct np_mapping *map, uint64_t order) {
    size_t limit = np_arena->ring_bytes / 8, path_bytes = map->path_bytes < limit ? map->path_bytes : limit;
    unsigned count = 6 + np_words_for(path_bytes);
    uint64_t *words = np_begin(slot, NP_REC_MAP, map->address, count, order);
    if (words == NULL) return;
    words[2] = map->stack | (uint64_t)map->flags << 32;
    words[3] = map->bytes;
    words[4] = map->offset;
    words[5] = path_bytes;
    np_put_bytes(words + 6, map->path, path_bytes);
    np_commit(slot, count);
    uint64_t last = np_load(np_arena->last_map_order);
    while (last < order && !__atomic_compare_exchange_n(&np_arena->last_map_order, &last, order, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
}

void np_put_unmap(struct np_slot *slot, uintptr_t address, uint64_t bytes, uint64_t order) {
    uint64_t *words = np_begin(slot, NP_REC_UNMAP, address, 3, order);
    if (words == NULL) return;
    words[2] = bytes;
    np_commit(slot, 3);
}

size_t np_path_of_fd(int fd, char *path) {
    char link[32] = "/proc/self/fd/", digits[12];
    size_t at = 14, count = 0;
    if (fd < 0 || np_is_confined) return 0;
    for (unsigned value = (unsigned)fd; count == 0 || value != 0; value /= 10) digits[count++] = (char)('0' + value % 10);
    while (count > 0) link[at++] = digits[--count];
    link[at] = 0;
    long got = NP_SYS4(SYS_readlinkat, AT_FDCWD, link, path, NP_MAP_PATH_BYTES);
    return got > 0 ? (size_t)got : 0;
}

void np_map_of_allocator(struct np_slot *slot, uintptr_t address, uint64_t bytes, uint32_t flags) {
    struct np_mapping map = {.address = address, .bytes = bytes, .flags = NP_MAP_ANONYMOUS | NP_MAP_WRITE | NP_MAP_ALLOCATOR | flags};
    np_put_map(slot, &map, np_order());
}
