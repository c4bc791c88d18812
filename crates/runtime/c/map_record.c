/* map_record.c: the records of mappings, for the hooks (map.c) and for an emulator's plugin, which sees the system calls themselves. */
#define _GNU_SOURCE
#include "track.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

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

#define TMPFS 0x01021994     /* TMPFS_MAGIC of <linux/magic.h> */
#define HUGETLBFS 0x958458f6 /* HUGETLBFS_MAGIC */

__attribute__((noinline)) /* its room on the stack, which may be small, is given back first */
bool np_file_of_fd(int fd, struct np_file *file) {
    struct statfs system;
    struct statx status;
    unsigned wanted = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BLOCKS | STATX_BTIME;
    if (np_is_confined || fd < 0 || NP_SYS2(SYS_fstatfs, fd, &system) != 0) return false;
    if (np_sys(SYS_statx, fd, (long)"", AT_EMPTY_PATH, wanted, (long)&status, 0) != 0 || !(status.stx_mask & STATX_INO)) return false;
    if (!S_ISREG(status.stx_mode)) return false; /* what a device shows at each opening is its own affair */
    bool is_memory = (unsigned long)system.f_type == TMPFS || (unsigned long)system.f_type == HUGETLBFS;
    *file = (struct np_file){
        .device = (uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor,
        .inode = status.stx_ino,
        .born = status.stx_mask & STATX_BTIME ? (uint64_t)status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec : 0,
        .is_memory = is_memory,
        /* On a disk, blocks are no pages in memory. */
        .is_full = is_memory && (status.stx_mask & STATX_BLOCKS) && status.stx_size != 0 && status.stx_blocks * 512 >= np_whole_pages(status.stx_size),
    };
    return is_memory || file->born != 0; /* a disk gives the number of a file that is gone to another */
}

void np_put_file(struct np_slot *slot, const struct np_file *file, uintptr_t address, uint64_t order) {
    uint64_t *words = np_begin(slot, NP_REC_FILE, address, 8, order);
    if (words == NULL) return;
    words[2] = file->device;
    words[3] = file->inode;
    words[4] = file->born;
    words[5] = file->offset;
    words[6] = file->bytes;
    words[7] = file->bytes != 0 ? file->node : NP_NONE16;
    np_commit(slot, 8);
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
