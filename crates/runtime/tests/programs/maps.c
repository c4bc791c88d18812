/* Mappings of every kind, and what they should look like. */
#define _GNU_SOURCE
#include "truth.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

/* Of pages that hugetlb has, where the kernel has it: it maps whole ones, and unmaps no part of one. Nothing of them is touched, so none need be there. */
NOINLINE static void map_huge(void) {
    char text[8192] = {0}, *size;
    int fd = open("/proc/meminfo", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    if ((size = strstr(text, "Hugepagesize:")) == NULL) return;
    size_t huge = strtoul(size + 13, NULL, 10) << 10;
    char *pages = mmap(NULL, huge / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return;
    truth("map %lx %zu %d -", (unsigned long)pages, huge, 9 | 128);
    CHECK(munmap(pages, huge / 2) == -1);
    CHECK(munmap(pages, huge) == 0);
    truth("unmap %lx %zu", (unsigned long)pages, huge);
    int memory = memfd_create("np-huge", MFD_HUGETLB);
    if (memory < 0) return;
    pages = mmap(NULL, huge / 2, PROT_READ, MAP_SHARED | MAP_NORESERVE, memory, 0);
    if (pages == MAP_FAILED) return;
    truth("map %lx %zu 2 /memfd:np-huge (deleted)", (unsigned long)pages, huge);
    close(memory);
}

/* As programs do that want no library's function between. */
NOINLINE static void map_by_number(size_t page) {
    char *room = (char *)syscall(SYS_mmap, NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    truth("map %lx %zu 9 -", (unsigned long)room, 4 * page);
    CHECK(syscall(SYS_munmap, room + 2 * page, 2 * page) == 0);
    truth("unmap %lx %zu", (unsigned long)room + 2 * page, 2 * page);
    char *moved = (char *)syscall(SYS_mremap, room, 2 * page, 64 * page, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    truth("unmap %lx %zu", (unsigned long)room, 2 * page);
    truth("map %lx %zu 9 -", (unsigned long)moved, 64 * page);
    char *end = (char *)syscall(SYS_brk, 0);
    CHECK((char *)syscall(SYS_brk, end + 3 * page) == end + 3 * page);
    truth("map %lx %zu 265 -", (unsigned long)end, 3 * page);
    CHECK((char *)syscall(SYS_brk, end) == end);
    truth("unmap %lx %zu", (unsigned long)end, 3 * page);
    CHECK(syscall(SYS_mmap, NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1 && errno == EINVAL);
}

int main(void) {
    size_t page = 4096;
    char *a = mmap(NULL, 10 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    truth("map %lx %zu 9 -", (unsigned long)a, 10 * page);
    CHECK(munmap(a + 8 * page, 2 * page) == 0);
    truth("unmap %lx %zu", (unsigned long)a + 8 * page, 2 * page);
    CHECK(madvise(a, page, MADV_DONTNEED) == 0);
    char *b = mremap(a, 8 * page, 64 * page, MREMAP_MAYMOVE);
    CHECK(b != MAP_FAILED);
    truth("unmap %lx %zu", (unsigned long)a, 8 * page);
    truth("map %lx %zu 9 -", (unsigned long)b, 64 * page);
    char *fixed = mmap(b + page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(fixed == b + page);
    truth("unmap %lx %zu", (unsigned long)fixed, page);
    truth("map %lx %zu 1 -", (unsigned long)fixed, page);
    /* Of this process alone: another run of the tests may be under way, or have been killed before it removed its own. */
    char name[64];
    snprintf(name, sizeof name, "/np-test-maps-%d", (int)getpid());
    int fd = shm_open(name, O_CREAT | O_RDWR | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
    char *shared = mmap64(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off64_t)page);
    CHECK(shared != MAP_FAILED);
    truth("map %lx %zu 10 /dev/shm%s", (unsigned long)shared, 2 * page, name);
    shm_unlink(name);
    CHECK(munmap(shared, 2 * page) == 0);
    truth("unmap %lx %zu", (unsigned long)shared, 2 * page);
    int id = shmget(IPC_PRIVATE, 5000, IPC_CREAT | 0600);
    char *segment = shmat(id, NULL, 0);
    CHECK(segment != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    truth("map %lx %d 522 /SYSV id %d", (unsigned long)segment, 8192, id);
    CHECK(shmdt(segment) == 0);
    truth("unmap %lx %d", (unsigned long)segment, 8192);
    char *end = sbrk(0);
    CHECK(sbrk(3 * (intptr_t)page) == end);
    truth("map %lx %zu 265 -", (unsigned long)end, 3 * page);
    CHECK(brk(end + page) == 0);
    truth("unmap %lx %zu", (unsigned long)end + page, 2 * page);
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    CHECK(munmap((void *)1, page) == -1);
    map_by_number(page);
    map_huge();
    CHECK(munmap(b, 1ul << 47) == -1); /* beyond the end of what programs have */
    truth_write();
    return 0;
}
