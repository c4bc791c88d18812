/* provided.c: memory that a thread of the program provides to others (userfaultfd): prints on which simulated nodes its pages lie. Compiled with call-outs;
 * main runs on node 0, the k-th thread that it makes on node k % 4. By itself it says nothing. Exits with 77 where the system allows no such descriptor, with
 * 78 where no page can be moved. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 64ul
#define BYTES (PAGES * PAGE)

extern long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) __attribute__((weak));

enum way { COPY, BY_NUMBER, ZERO, MOVE, WAYS };
static const char *const names[WAYS] = {"copied", "numbered", "zeroed", "moved"};
static char *ranges[WAYS], *source;
static int fd, has_begun;
/* UFFDIO_MOVE: as struct uffdio_copy. */
#define MOVE_REQUEST _IOWR(UFFDIO, 5, struct uffdio_copy)

static void print_homes(const char *name, const char *block) {
    unsigned on[5] = {0};
    if (move_pages == NULL) return;
    for (size_t i = 0; i < PAGES; i++) {
        void *page = (void *)(uintptr_t)(block + i * PAGE);
        int status = -1;
        move_pages(0, 1, &page, NULL, &status, 0);
        on[status >= 0 && status < 4 ? status : 4]++;
    }
    printf("%s %u %u %u %u none %u\n", name, on[0], on[1], on[2], on[3], on[4]);
}

static char *map(void) {
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != MAP_FAILED ? block : (exit(3), NULL);
}

static int provide(enum way way, uintptr_t page) {
    struct uffdio_copy copy = {.dst = page, .src = (uintptr_t)source + (way == MOVE ? page - (uintptr_t)ranges[MOVE] : 0), .len = PAGE};
    struct uffdio_zeropage zero = {.range = {page, PAGE}};
    if (way == ZERO) return ioctl(fd, UFFDIO_ZEROPAGE, &zero);
    if (way == BY_NUMBER) return (int)syscall(SYS_ioctl, fd, UFFDIO_COPY, &copy);
    return ioctl(fd, way == MOVE ? MOVE_REQUEST : UFFDIO_COPY, &copy);
}

/* On node 1: answers until it is asked for what nobody has. */
static void *answer(void *unused) {
    struct uffd_msg message;
    memset(source, 7, BYTES);
    __atomic_store_n(&has_begun, 1, __ATOMIC_RELEASE);
    while (read(fd, &message, sizeof message) == sizeof message) {
        uintptr_t page = message.arg.pagefault.address & -PAGE;
        enum way way = COPY;
        while (way < WAYS && page - (uintptr_t)ranges[way] >= BYTES) way++;
        if (way == WAYS || provide(way, page) != 0) exit(way == MOVE ? 78 : 4);
    }
    return unused;
}

/* On node 2. */
static void *write_all(void *unused) {
    for (unsigned way = COPY; way < WAYS; way++)
        for (size_t i = 0; i < BYTES; i += 512) ranges[way][i] = 1;
    return unused;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fd < 0) fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) return 77;
    source = map();
    char *early = map();
    for (unsigned way = COPY; way <= WAYS; way++) {
        char *block = way < WAYS ? (ranges[way] = map()) : early;
        struct uffdio_register range = {.range = {(uintptr_t)block, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (ioctl(fd, UFFDIO_REGISTER, &range) != 0) return 5;
    }
    char *given = malloc(BYTES);
    memset(given, 1, BYTES);
    struct uffdio_copy copy = {.dst = (uintptr_t)early, .src = (uintptr_t)given, .len = BYTES};
    if (ioctl(fd, UFFDIO_COPY, &copy) != 0) return 6;
    errno = 0;
    if (ioctl(fd, UFFDIO_COPY, &copy) != -1 || errno != EEXIST) return 7; /* as without the tracker */
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, answer, NULL) != 0) return 8;
    while (!__atomic_load_n(&has_begun, __ATOMIC_ACQUIRE)) usleep(1000); /* who begins first is on node 1 */
    if (pthread_create(&threads[1], NULL, write_all, NULL) != 0) return 8;
    pthread_join(threads[1], NULL);
    for (unsigned way = COPY; way < WAYS; way++) print_homes(names[way], ranges[way]);
    print_homes("early", early);
    return 0;
}
