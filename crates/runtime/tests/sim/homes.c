/* homes.c: pages that get their second life where nobody looks: `homes CASE` prints on which simulated nodes the pages of its subject lie, as the program's own
 * move_pages answers. ../homes.rs has what must come out. Compiled with call-outs; main runs on node 0, the k-th thread that it makes on node k % 4. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096ul
#define BIG (16ul << 20)

extern long get_mempolicy(int *mode, unsigned long *mask, unsigned long bits, void *address, unsigned flags) __attribute__((weak));
extern long move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) __attribute__((weak));

static void print_homes(const char *name, const volatile char *block, size_t bytes) {
    size_t pages = bytes / PAGE;
    unsigned on[5] = {0};
    for (size_t i = 0; i < pages; i++) {
        void *page = (void *)(((uintptr_t)block & ~(PAGE - 1)) + i * PAGE);
        int status = -1;
        move_pages(0, 1, &page, NULL, &status, 0);
        on[status >= 0 && status < 4 ? status : 4]++;
    }
    printf("%s %u %u %u %u none %u\n", name, on[0], on[1], on[2], on[3], on[4]);
}

struct range { volatile char *from; size_t bytes; };

static void *write_range(void *argument) {
    struct range *range = argument;
    for (size_t i = 0; i < range->bytes; i += 512) range->from[i] = 1;
    return NULL;
}

static void run(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) exit(3);
    pthread_join(thread, NULL);
}

static void write_in_thread(void *from, size_t bytes) {
    struct range range = {from, bytes};
    run(write_range, &range);
}

static void same(const volatile void *before, const volatile void *now) {
    if (before == now) return;
    printf("elsewhere %p %p\n", (void *)before, (void *)now);
    exit(4);
}

static char *map_at(char *at);

/* The C library unmaps inside free, also for blocks that are aligned; the program itself does so by the break, and by mappings that shrink. */
static void freed(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* fixed: it would grow with the first block that is given back */
    char *block = malloc(BIG), *first = block;
    write_in_thread(block, BIG);
    free(block);
    block = malloc(BIG);
    same(first, block);
    for (int i = 0; i < 3; i++) write_in_thread(block + i * (BIG / 4), BIG / 4);
    struct range rest = {block + 3 * (BIG / 4), BIG / 4};
    write_range(&rest);
    print_homes("homes", block, BIG);
    free(block);
    block = aligned_alloc(BIG / 256, BIG);
    write_in_thread(block, BIG);
    print_homes("aligned", block, BIG);
    char *top = sbrk(BIG);
    write_in_thread(top, BIG);
    if (sbrk(-(intptr_t)BIG / 2) == (void *)-1 || sbrk(BIG / 2) == (void *)-1) exit(4);
    write_in_thread(top, BIG);
    print_homes("break", top, BIG);
    top = map_at(NULL);
    write_in_thread(top, BIG);
    same(top, mremap(top, BIG, BIG / 2, 0));
    same(top, mremap(top, BIG / 2, BIG, 0));
    write_in_thread(top, BIG);
    print_homes("grown", top, BIG);
}

/* mremap inside realloc takes the pages along. */
static void moved(void) {
    char *block = malloc(BIG), *old = block;
    write_in_thread(block, BIG);
    char *wall = mmap(block + BIG + PAGE - 16, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    (void)wall; /* whatever lies behind it, it cannot grow */
    block = realloc(block, 4 * BIG);
    if (block == old) exit(4);
    print_homes("homes", block, BIG);
    print_homes("rest", block + BIG + PAGE, 3 * BIG - PAGE);
    free(block);
    block = malloc(4 * BIG);
    write_in_thread(block, BIG);
    print_homes("again", block, BIG);
}

#define SMALL 2000ul /* too large for a thread's cache of blocks */
#define BLOCKS 4096
static char *blocks[BLOCKS];

static void *make_blocks(void *unused) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(SMALL);
    return unused;
}

static void *write_blocks(void *unused) {
    for (int i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < SMALL; k += 100) *(volatile char *)&blocks[i][k] = 1;
    return unused;
}

static void *free_blocks(void *unused) {
    for (int i = BLOCKS; i-- > 0;) free(blocks[i]);
    return unused;
}

/* The heap's end goes back to the kernel by the break, inside free. */
static void heap(void) {
    write_in_thread(malloc(PAGE), PAGE); /* nothing of a thread's comes to lie behind the blocks */
    make_blocks(NULL);
    char *first = blocks[0];
    run(write_blocks, NULL);
    free_blocks(NULL);
    make_blocks(NULL);
    same(first, blocks[0]);
    run(write_blocks, NULL);
    print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
}

/* The heap's middle goes back by advice, inside malloc_trim. */
static void trim(void) {
    make_blocks(NULL);
    char *first = blocks[0], *pin = malloc(SMALL);
    run(write_blocks, NULL);
    free_blocks(NULL);
    malloc_trim(0);
    make_blocks(NULL);
    same(first, blocks[0]);
    run(write_blocks, NULL);
    print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
    free(pin);
}

static void *life(void *unused) {
    make_blocks(NULL);
    write_blocks(NULL);
    if (unused != NULL) print_homes("homes", blocks[16], (size_t)(blocks[BLOCKS - 16] - blocks[16]));
    else free_blocks(NULL);
    return NULL;
}

/* A thread's own heap: the next thread gets it. */
static void arena(void) {
    char *first;
    run(life, NULL);
    first = blocks[0];
    run(life, &first);
    same(first, blocks[0]);
}

#define FRAME (4ul << 20)
static volatile char *frames[2];
static void *deep(void *which) {
    volatile char room[FRAME];
    frames[(size_t)which] = room;
    for (size_t i = 0; i < FRAME; i += 512) room[i] = 1;
    if (which != NULL) print_homes("homes", room, FRAME - 16 * PAGE);
    return NULL;
}

/* The C library keeps the stack, and gives its pages back. */
static void stack(void) {
    run(deep, NULL);
    run(deep, (void *)1);
    same(frames[0], frames[1]);
}

static char *library_room(void **library, const char *path) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) exit(5);
    return dlsym(*library, "room");
}

static void library(const char *path) {
    void *handle;
    write_in_thread(malloc(PAGE), PAGE); /* what threads take for themselves is taken now */
    char *room = library_room(&handle, path), *first = room;
    write_in_thread(room, BIG);
    dlclose(handle);
    room = library_room(&handle, path);
    same(first, room);
    write_in_thread(room, BIG);
    print_homes("homes", room + PAGE, BIG - 2 * PAGE);
}

/* Allocators give pages back by advice: at once, or when memory is short, which it is not here. */
static void advised(void) {
    char *block = mmap(NULL, 4 * BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *locked = block + 2 * BIG, *other = block + 3 * BIG;
    write_in_thread(block, 4 * BIG);
    madvise(block, BIG, MADV_DONTNEED);
    madvise(block + BIG, BIG, MADV_FREE);
    /* By the process's own descriptor from Linux 6.13 on. */
    struct iovec part = {other, BIG};
    int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (process_madvise(own, &part, 1, MADV_DONTNEED, 0) != (ssize_t)BIG) madvise(other, BIG, MADV_DONTNEED);
    /* Linux before 5.18 does not know it. */
    if (madvise(locked, BIG, 24 /* MADV_DONTNEED_LOCKED */) != 0) madvise(locked, BIG, MADV_DONTNEED);
    write_in_thread(block, 4 * BIG);
    print_homes("homes", block, BIG);
    print_homes("lazy", block + BIG, BIG);
    print_homes("locked", locked, BIG);
    print_homes("process", other, BIG);
}

static long sum_of(const volatile char *block, size_t bytes) {
    long sum = 0;
    for (size_t i = 0; i < bytes; i += 64) sum += block[i];
    return sum;
}

/* Reads of what nobody has written get the zero page; who writes gets a page of his own. Shared memory has none such. */
static void zero(void) {
    char *block = calloc(BIG, 1);
    char *common = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long sum = sum_of(block + PAGE, BIG - PAGE) + sum_of(common, BIG);
    print_homes("read", block + PAGE, BIG - PAGE);
    write_in_thread(block + PAGE, BIG / 2);
    write_in_thread(common, BIG);
    print_homes("homes", block + PAGE, BIG - PAGE);
    print_homes("shared", common, BIG);
    printf("sum %ld\n", sum);
}

static char *map_at(char *at) {
    char *block = mmap(at, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != NULL) same(at, block);
    return block;
}

static char *map_shared(void) {
    char *block = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) exit(7);
    return block;
}

/* Private memory where shared memory was: by unmapping that, and by mapping over it. */
static void replaced(void) {
    char *block = map_shared();
    long sum = sum_of(block, BIG);
    munmap(block, BIG);
    map_at(block);
    sum += sum_of(block, BIG);
    print_homes("read", block, BIG);
    char *over = map_shared();
    sum += sum_of(over, BIG);
    if (mmap(over, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != over) exit(7);
    sum += sum_of(over, BIG);
    print_homes("over", over, BIG);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
    printf("sum %ld\n", sum);
}

static void bind_to(char *block, int mode, unsigned long nodes) {
    if (syscall(SYS_mbind, block, BIG, mode, &nodes, 65, 0) != 0) exit(3);
}

/* A policy is the mapping's: pages that are discarded come back by it, those of the next mapping do not. */
static void policy(void) {
    char *block = map_at(NULL), *late = map_at(NULL);
    bind_to(block, 3 /* MPOL_INTERLEAVE */, 15);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
    madvise(block, BIG, MADV_DONTNEED);
    write_in_thread(block, BIG);
    print_homes("again", block, BIG);
    char *moved = mremap(block, BIG, BIG, MREMAP_MAYMOVE | MREMAP_FIXED, late + 4 * BIG);
    if (moved == MAP_FAILED) exit(3);
    madvise(moved, BIG, MADV_DONTNEED);
    write_in_thread(moved, BIG);
    print_homes("moved", moved, BIG);
    munmap(moved, BIG);
    map_at(moved);
    write_in_thread(moved, BIG);
    print_homes("anew", moved, BIG);
    write_in_thread(late, BIG);
    bind_to(late, 2 /* MPOL_BIND */, 8);
    print_homes("kept", late, BIG);
    madvise(late, BIG, MADV_DONTNEED);
    write_in_thread(late, BIG);
    print_homes("late", late, BIG);
}

/* Masks that programs pass, on a machine with nodes 0 to 3. */
static void masks(void) {
    char *block = map_at(NULL);
    unsigned long beyond = 0xf0, none = 0, node = 2;
    bind_to(block, 3, ~0ul);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
    char *relative = map_at(NULL);
    bind_to(relative, 2 | 1 << 14 /* MPOL_F_RELATIVE_NODES */, 1ul << 7);
    write_in_thread(relative, BIG);
    print_homes("relative", relative, BIG);
    long of_beyond = syscall(SYS_mbind, block, BIG, 3, &beyond, 65, 0), of_none = syscall(SYS_mbind, block, BIG, 3, &none, 65, 0);
    long of_local = syscall(SYS_mbind, block, BIG, 4 /* MPOL_LOCAL */, &node, 65, 0);
    printf("refused beyond %d empty %d local %d\n", of_beyond != 0, of_none != 0, of_local != 0);
    unsigned long all = ~0ul, now = 0;
    long result = syscall(SYS_set_mempolicy, 3, &all, 65);
    syscall(SYS_get_mempolicy, NULL, &now, 64, NULL, 0);
    printf("threads result %ld nodes %lu beyond %d\n", result, now, syscall(SYS_set_mempolicy, 3, &beyond, 65) != 0);
}

/* Code without call-outs: the C library's own, called by its address. */
static void *unseen_fill(void *argument) {
    struct range *range = argument;
    void *(*volatile fill)(void *, int, size_t) = dlsym(RTLD_DEFAULT, "memset");
    fill((void *)range->from, 1, range->bytes);
    return NULL;
}

/* By main alone, and then by one of two threads: an access later on finds both there. */
static void unseen(void) {
    struct range early = {malloc(BIG), BIG}, late = {malloc(BIG), BIG};
    unseen_fill(&early);
    run(unseen_fill, &late);
    long sum = sum_of(early.from, BIG) + sum_of(late.from, BIG);
    print_homes("homes", early.from, BIG);
    print_homes("late", late.from + PAGE, BIG - PAGE);
    int node = -1;
    long known = get_mempolicy(&node, NULL, 0, (void *)(early.from + BIG / 2), 3 /* MPOL_F_NODE | MPOL_F_ADDR */);
    printf("known result %ld node %d\n", known, node);
    node = -1;
    long unknown = get_mempolicy(&node, NULL, 0, (void *)(late.from + BIG / 2), 3);
    printf("unknown refused %d untouched %d\n", unknown == -1, node == -1);
    printf("sum %ld\n", sum);
}

/* Half of a block is there, touched by code that nobody saw, when the kernel fills all of it for main. */
static char *half_touched(void) {
    struct range half = {map_at(NULL), BIG / 2};
    run(unseen_fill, &half);
    return (char *)half.from;
}

#include "fills.h"

static void filled(void) {
    FILE *file = tmpfile();
    char *block = half_touched(), *populated = half_touched(), *parts = half_touched(), *sent = half_touched();
    if (file == NULL || ftruncate(fileno(file), BIG) != 0 || read(fileno(file), block, BIG) != (ssize_t)BIG) exit(7);
    print_homes("homes", block, BIG);
    if (madvise(populated, BIG, 23 /* MADV_POPULATE_WRITE */) != 0) exit(7);
    print_homes("populated", populated, BIG);
    struct iovec each[2] = {{parts, BIG / 4}, {parts + BIG / 4, 3 * BIG / 4}};
    if (lseek(fileno(file), 0, SEEK_SET) != 0 || readv(fileno(file), each, 2) != (ssize_t)BIG) exit(7);
    print_homes("parts", parts, BIG);
    char *fetched = half_touched(), *stored = half_touched(), *placed = half_touched();
    each[0].iov_base = placed;
    each[1].iov_base = placed + BIG / 4;
    if (preadv(fileno(file), each, 2, 0) != (ssize_t)BIG || pwritev(fileno(file), each, 2, 0) != (ssize_t)BIG) exit(7);
    print_homes("offset", placed, BIG);
    struct iovec whole = {block, BIG}, to = {fetched, BIG};
    if (process_vm_readv(getpid(), &to, 1, &whole, 1, 0) != (ssize_t)BIG) exit(7);
    print_homes("fetched", fetched, BIG);
    to.iov_base = stored;
    if (process_vm_writev(getpid(), &whole, 1, &to, 1, 0) != (ssize_t)BIG) exit(7);
    print_homes("stored", stored, BIG);
    filled_by_rarer_calls(fileno(file));
    int ends[2];
    struct iovec middle = {sent + BIG / 2 - PAGE, 2 * PAGE};
    struct msghdr message = {.msg_iov = &middle, .msg_iovlen = 1};
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0 || write(ends[0], block, 2 * PAGE) != (ssize_t)(2 * PAGE)) exit(7);
    if (recvmsg(ends[1], &message, 0) != (ssize_t)(2 * PAGE)) exit(7);
    print_homes("message", middle.iov_base, 2 * PAGE);
    struct iovec *nowhere = (struct iovec *)8; /* the kernel's error, not a fault of ours */
    printf("bad parts %d message %d\n", readv(fileno(file), nowhere, 2) == -1, recvmsg(ends[1], (struct msghdr *)nowhere, MSG_DONTWAIT) == -1);
}

void __tsan_write8(void *);

#define TOLD 4ul /* a page that nobody touched; the zero page; of a file, unwritten; one that may not be accessed */

/* The call-outs of writes whose accesses come later, as in a thread that waits in between. */
static void *tell(void *block) {
    for (size_t i = 0; i < TOLD; i++) __tsan_write8((char *)block + i * PAGE);
    return NULL;
}

static long own_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* Faults of the calling thread at its writes to all but the last. */
__attribute__((no_sanitize_thread)) static long faults_of_writes(volatile char *block) {
    long before = own_faults();
    for (size_t i = 0; i + 1 < TOLD; i++) block[i * PAGE + 512] = 1;
    return own_faults() - before;
}

/* A thread says that it is about to write, and main writes before it does. */
static void told(void) {
    char *block = mmap(NULL, TOLD * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *file = tmpfile();
    if (file == NULL || ftruncate(fileno(file), PAGE) != 0) exit(7);
    mmap(block + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fileno(file), 0);
    mprotect(block + 3 * PAGE, PAGE, PROT_NONE);
    volatile char *read = block;
    long sum = read[PAGE] + read[2 * PAGE] + own_faults();
    run(tell, block);
    printf("told faults %ld sum %ld\n", faults_of_writes(block), sum);
    print_homes("homes", block, (TOLD - 1) * PAGE);
}

/* Who gets the page that two threads touch: 1: the first one asks the kernel for it; 2: the other one has written to it; 3: nobody asked. */
static int contest;
static char *contested;

/* In the first thread, in the middle of its call-out, instead of the kernel's work: the other one is faster. */
__attribute__((no_sanitize_thread)) static void on_populate(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    __atomic_store_n(&contest, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&contest, __ATOMIC_ACQUIRE) != 2) sched_yield();
#if defined(__x86_64__)
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 0;
#else
    ((ucontext_t *)context)->uc_mcontext.regs[0] = 0;
#endif
}

__attribute__((no_sanitize_thread)) static void *write_between(void *unused) {
    int now;
    while ((now = __atomic_load_n(&contest, __ATOMIC_ACQUIRE)) == 0) sched_yield();
    if (now == 1) *(volatile char *)contested = 1;
    __atomic_store_n(&contest, 2, __ATOMIC_RELEASE);
    return unused;
}

/* Not by the C library's prctl: the tracker would take care to make no such call in a thread that a filter holds. */
static long raw_prctl(long option, long a, long b) {
#if defined(__x86_64__)
    long result = SYS_prctl;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall" : "+a"(result) : "D"(option), "S"(a), "d"(b), "r"(r10) : "rcx", "r11", "memory");
    return result;
#else
    register long number __asm__("x8") = SYS_prctl, result __asm__("x0") = option;
    register long x1 __asm__("x1") = a, x2 __asm__("x2") = b, x3 __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(number), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return result;
#endif
}

static void *ask_first(void *unused) {
    static char room[1 << 16];
    memset(room, 1, sizeof room); /* the handler itself must have no page fault, as these are counted */
    stack_t alternate = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_sigaction = on_populate, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23 /* MADV_POPULATE_WRITE */, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    sched_yield(); /* bound now */
    sigaltstack(&alternate, NULL);
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || raw_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program) != 0) exit(8);
    __tsan_write8(contested + 8);
    int nobody = 0;
    __atomic_compare_exchange_n(&contest, &nobody, 3, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return unused;
}

/* The first thread says that it is about to write, the second writes while the first is asking for the page. */
static void overtaken(void) {
    pthread_t threads[2];
    contested = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&threads[0], NULL, ask_first, NULL);
    pthread_create(&threads[1], NULL, write_between, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    print_homes("homes", contested, PAGE);
}

/* ---- several processes ---- */

static void write_bytes(volatile char *from, size_t bytes) {
    struct range range = {from, bytes};
    write_range(&range);
}

static void ended(pid_t child) {
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) exit(6);
}

static void pass(int end) {
    if (write(end, "", 1) != 1) exit(6);
}

static void await(int end) {
    char byte;
    if (read(end, &byte, 1) != 1) exit(6);
}

/* Pages that a fork made common: who writes one first gets a copy, as long as the other has the page. The child is on node 1. */
static void forked(void) {
    enum { QUARTER = BIG / 4 };
    int done[2], go[2];
    char *block = map_at(NULL);
    write_bytes(block, BIG);
    if (pipe(done) != 0 || pipe(go) != 0) exit(6);
    pid_t child = fork();
    if (child == 0) {
        if (sum_of(block, BIG) == 0) _exit(7);
        write_bytes(block, QUARTER);
        print_homes("child", block, BIG);
        pass(done[1]);
        await(go[0]);
        _exit(0);
    }
    await(done[0]);
    write_bytes(block, QUARTER); /* the child has copies by now, and this process the pages */
    write_in_thread(block + QUARTER, QUARTER);
    pass(go[1]);
    ended(child);
    write_in_thread(block + 2 * QUARTER, QUARTER); /* no copies; but code that is not recorded might have had some made before */
    long sum = sum_of(block + 3 * QUARTER, QUARTER);
    print_homes("parent", block, BIG);
    printf("sum %ld\n", sum);
}

/* A child that has gone leaves its parent's pages where they are, who writes them as before. */
static void alone(void) {
    char *block = map_at(NULL);
    write_bytes(block, BIG);
    pid_t child = fork();
    if (child == 0) _exit(0);
    ended(child);
    write_bytes(block, BIG);
    print_homes("homes", block, BIG);
}

static int memory_file(void) {
    int file = memfd_create("common", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, BIG) != 0) exit(7);
    return file;
}

static char *map_file(int file) {
    char *block = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (block == MAP_FAILED) exit(7);
    return block;
}

/* The child, on node 1, touches half of shared memory first: its parent finds that half, and does not know whose it is. The recorder's join does. */
static void common(const char *kind) {
    char *block = strcmp(kind, "file") == 0 ? map_file(memory_file()) : mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        long sum = sum_of(block, BIG / 4);
        write_bytes(block + BIG / 4, BIG / 4);
        print_homes("child", block, BIG);
        _exit(sum != 0);
    }
    ended(child);
    write_bytes(block, BIG);
    print_homes("parent", block, BIG);
}

/* A file that may only be read, half of which is in the page cache when it is mapped. */
static void cached(void) {
    static char half[BIG / 2];
    int file = memory_file();
    if (pwrite(file, half, sizeof half, 0) != (ssize_t)sizeof half) exit(7);
    char *block = mmap(NULL, BIG, PROT_READ, MAP_PRIVATE, file, 0);
    if (block == MAP_FAILED || sum_of(block, BIG) != 0) exit(7);
    print_homes("homes", block, BIG);
}

/* Copies of a file's pages are discarded; the file's own stay. */
static void dropped(void) {
    char *block = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory_file(), 0);
    if (block == MAP_FAILED || sum_of(block, BIG) != 0) exit(7);
    write_in_thread(block, BIG);
    if (madvise(block, BIG / 2, MADV_DONTNEED) != 0) exit(7);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
}

static char *mapped_by_number(char *at) {
    return (char *)syscall(SYS_mmap, at, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* What the C library's functions do, by syscall(): unmapped and mapped anew, emptied, moved, and the break down and up. */
static void numbered(void) {
    char *block = map_at(NULL), *top = (char *)syscall(SYS_brk, 0);
    write_in_thread(block, BIG);
    if (syscall(SYS_munmap, block, BIG) != 0 || mapped_by_number(block) != block) exit(4);
    write_in_thread(block, BIG / 2);
    if (syscall(SYS_madvise, block, BIG / 4, MADV_DONTNEED) != 0) exit(4);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
    char *moved = (char *)syscall(SYS_mremap, block, BIG, BIG, MREMAP_MAYMOVE | MREMAP_FIXED, block + 8 * BIG);
    if (moved != block + 8 * BIG) exit(4);
    print_homes("moved", moved, BIG);
    if ((char *)syscall(SYS_brk, top + BIG) != top + BIG) exit(4);
    write_in_thread(top, BIG);
    if ((char *)syscall(SYS_brk, top + BIG / 2) != top + BIG / 2 || (char *)syscall(SYS_brk, top + BIG) != top + BIG) exit(4);
    write_in_thread(top, BIG);
    print_homes("break", top, BIG);
}

struct filling { int file; struct range range; };

static void *fill_from(void *argument) {
    struct filling *filling = argument;
    if (pread(filling->file, (void *)filling->range.from, filling->range.bytes, 0) != (ssize_t)filling->range.bytes) exit(7);
    return NULL;
}

/* A private mapping of a file, as initialised data are, read by main: whoever writes a page first gets a copy. In order of the quarters: a thread that is seen,
 * one that nobody sees, one by way of the kernel, nobody. A file's own pages, in another mapping, stay where they are. */
static void copied(void) {
    enum { QUARTER = BIG / 4 };
    int file = memory_file();
    char *block = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), *shared = map_file(memory_file());
    if (block == MAP_FAILED) exit(7);
    long sum = sum_of(block, BIG) + sum_of(shared, BIG);
    print_homes("read", block, BIG);
    write_in_thread(block, QUARTER);
    struct range unseen = {block + QUARTER, QUARTER};
    run(unseen_fill, &unseen);
    write_bytes(block + QUARTER, QUARTER);
    struct filling filling = {file, {block + 2 * QUARTER, QUARTER}};
    run(fill_from, &filling);
    sum += sum_of(block, BIG);
    write_in_thread(shared, BIG);
    print_homes("homes", block, BIG);
    print_homes("shared", shared, BIG);
    printf("sum %ld\n", sum);
}

/* Memory that a file was given before it is mapped; by whom, the mapping does not say. */
static void given(void) {
    int file = memory_file();
    if (posix_fallocate(file, 0, BIG) != 0) exit(7);
    char *block = map_file(file);
    write_bytes(block, BIG);
    print_homes("homes", block, BIG);
}

/* As above, to what of the file was not written before. The position in the file stays. */
static void partly_given(void) {
    static char quarter[BIG / 4];
    int file = memory_file();
    for (int part = 1; part < 4; part += 2)
        if (pwrite(file, quarter, sizeof quarter, part * (BIG / 4)) != (long)sizeof quarter) exit(7);
    if (lseek(file, 12345, SEEK_SET) != 12345 || posix_fallocate(file, 0, BIG) != 0) exit(7);
    if (lseek(file, 0, SEEK_CUR) != 12345) exit(8);
}

/* A file's mapping stays: the first quarter becomes a hole, the second half is cut off and given back. */
static void taken(void) {
    int file = memory_file();
    char *block = map_file(file);
    write_in_thread(block, BIG);
    if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BIG / 4) != 0) exit(7);
    if (ftruncate(file, BIG / 2) != 0 || ftruncate(file, BIG) != 0) exit(7);
    write_in_thread(block, BIG);
    print_homes("homes", block, BIG);
}

/* The same by its path, by opening it, and by number. Each time it gets its size back. */
enum { CUTS = 6, CUT_BYTES = BIG / 8 };

static bool cut(int way, const char *path) {
    int file = -1;
    FILE *stream = NULL;
    switch (way) {
    case 0: return truncate(path, 0) == 0;
    case 1: file = open(path, O_RDWR | O_TRUNC); break;
    case 2: stream = fopen(path, "w"); break;
    case 3: file = creat(path, 0600); break;
    case 4: return syscall(SYS_truncate, path, 0l) == 0;
    default: file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_TRUNC, 0); break;
    }
    return stream != NULL ? fclose(stream) == 0 : file >= 0 && close(file) == 0;
}

static void emptied(void) {
    int file = memory_file();
    char *block = map_file(file), path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    write_in_thread(block, CUTS * CUT_BYTES);
    for (int way = 0; way < CUTS; way++) {
        if (!cut(way, path) || ftruncate(file, BIG) != 0) exit(7);
        write_in_thread(block, CUT_BYTES);
        char name[8] = {'w', 'a', 'y', (char)('0' + way), 0};
        print_homes(name, block, CUT_BYTES);
    }
}

/* Other pages of a file at the same addresses: the first half shows the second one's. */
static void remapped(void) {
    char *block = map_file(memory_file()), *numbered = map_file(memory_file());
    for (int half = 0; half < 2; half++) {
        write_in_thread(block + half * (BIG / 2), BIG / 2);
        write_in_thread(numbered + half * (BIG / 2), BIG / 2);
    }
    if (remap_file_pages(block, BIG / 2, 0, BIG / 2 / PAGE, 0) != 0) exit(7);
    if (syscall(SYS_remap_file_pages, numbered, BIG / 2, 0l, BIG / 2 / PAGE, 0l) != 0) exit(7);
    write_in_thread(block, BIG);
    write_in_thread(numbered, BIG);
    print_homes("homes", block, BIG);
    print_homes("numbered", numbered, BIG);
}

/* mremap takes the pages and leaves the mapping: what is written there next is new. */
static void left_mapped(void) {
    char *block = map_at(NULL);
    write_in_thread(block, BIG);
    char *moved = mremap(block, BIG, BIG, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */);
    if (moved == MAP_FAILED || moved == block) exit(7);
    write_in_thread(block, BIG);
    write_in_thread(moved, BIG);
    print_homes("moved", moved, BIG);
    print_homes("homes", block, BIG);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "freed") == 0) freed();
    else if (strcmp(name, "moved") == 0) moved();
    else if (strcmp(name, "heap") == 0) heap();
    else if (strcmp(name, "trim") == 0) trim();
    else if (strcmp(name, "arena") == 0) arena();
    else if (strcmp(name, "stack") == 0) stack();
    else if (strcmp(name, "library") == 0) library(argv[2]);
    else if (strcmp(name, "advised") == 0) advised();
    else if (strcmp(name, "zero") == 0) zero();
    else if (strcmp(name, "replaced") == 0) replaced();
    else if (strcmp(name, "policy") == 0) policy();
    else if (strcmp(name, "masks") == 0) masks();
    else if (strcmp(name, "unseen") == 0) unseen();
    else if (strcmp(name, "filled") == 0) filled();
    else if (strcmp(name, "told") == 0) told();
    else if (strcmp(name, "overtaken") == 0) overtaken();
    else if (strcmp(name, "forked") == 0) forked();
    else if (strcmp(name, "alone") == 0) alone();
    else if (strcmp(name, "common") == 0) common(argv[2]);
    else if (strcmp(name, "given") == 0) given();
    else if (strcmp(name, "partly") == 0) partly_given();
    else if (strcmp(name, "taken") == 0) taken();
    else if (strcmp(name, "emptied") == 0) emptied();
    else if (strcmp(name, "remapped") == 0) remapped();
    else if (strcmp(name, "left mapped") == 0) left_mapped();
    else if (strcmp(name, "copied") == 0) copied();
    else if (strcmp(name, "numbered") == 0) numbered();
    else if (strcmp(name, "dropped") == 0) dropped();
    else if (strcmp(name, "cached") == 0) cached();
    else return 2;
    return 0;
}
