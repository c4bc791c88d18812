/* Starts a program, lets a library run its threads on the CPUs of the nodes that the simulated machine has them on
   (mirror.c), and writes down on which node the kernel has each of its pages: just before they go away (munmap,
   mremap, madvise, a shrinking heap), and when the process ends. By ptrace, and a seccomp filter that stops the
   program at those calls only: nothing of it is in the program, and other calls cost nothing.

   launcher OUTPUT MIRROR PROGRAM [ARGUMENT...]

   OUTPUT gets a line per run of mapped pages: `PID ADDRESS NODES`, a character per page: the node's hexadecimal digit,
   `.` for a page that has no memory of its own (never touched, or only read: the kernel's one page of zeros). Later
   lines hold. Memory that the tracker maps for itself is left out: it may lie where the program had memory before.

   Between those, what tells why a page is where it is, in the order in which it happened:
     fault TIME PID TID CPU ADDRESS     the kernel's event of a page fault, written when the page is there (ns)
     populate TIME PID TID CPU ADDRESS  the tracker is about to have the page made for the write that follows: the kernel
                                 has no event of such a fault, but one of the call's beginning (a tracepoint)
     refused TIME PID TID        that call, or another madvise of the thread, has failed
     file PID ADDRESS PAGES      these pages are the page cache's, by /proc/PID/pagemap; said after their nodes
     gone PID ADDRESS PAGES      the pages have been given back; what was said of them so far is of an earlier life
     placed PID TID              the mirror has put this thread on its node for the first time (its faults before that
                                 were on the CPU that the kernel had chosen)
     exec PID                    the process has another program's memory; its main thread is yet to be put on its node
     begin PID ADDRESS NODES     pages that the kernel has filled for that program, on the CPU on which exec ran
     lost FAULTS                 so many faults found no room, and are not in the list */
#define _GNU_SOURCE
#include "kernel_call.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 1024, WORDS_MAX = 4096, OWN_MAX = 4096, CPUS_MAX = 64, RING_PAGES = 256, FAULTS_MAX = 1 << 18 };

/* MADV_POPULATE_WRITE, which older headers do not have. */
#define POPULATE_WRITE 23

/* Documentation/admin-guide/mm/pagemap.rst: of a file, or shared. */
#define PAGEMAP_FILE (1ull << 61)
#define PAGEMAP_PRESENT (1ull << 63)
/* More than any heap's end is above its new end. */
#define HEAP_MAX (1ull << 36)

/* The tracker maps its own memory with these flags (crates/runtime/c/memory.c), the last of which the kernel ignores. */
#define TRACKERS_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_DENYWRITE)

static FILE *output;

/* Memory of the tracker's own, by process; an entry without a process is free. */
static struct own { pid_t pid; uint64_t from, to; } own[OWN_MAX];
static unsigned own_count;

static void add_own(pid_t pid, uint64_t from, uint64_t bytes) {
    unsigned at = 0;
    while (at < own_count && own[at].pid != 0) at++;
    if (at == OWN_MAX) {
        fprintf(stderr, "launcher: the tracker has more memory areas of its own than the launcher can exclude\n");
        _exit(2);
    }
    own[at] = (struct own){pid, from, from + ((bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1))};
    if (at == own_count) own_count++;
}

/* All of a process's that lies in the range: unmapped, or of a program that is no more. */
static void remove_own(pid_t pid, uint64_t from, uint64_t to) {
    for (unsigned i = 0; i < own_count; i++)
        if (own[i].pid == pid && own[i].from >= from && own[i].to <= to) own[i].pid = 0;
}

static void inherit_own(pid_t parent, pid_t child) {
    unsigned count = own_count;
    for (unsigned i = 0; i < count; i++)
        if (own[i].pid == parent) add_own(child, own[i].from, own[i].to - own[i].from);
}

static int is_own(pid_t pid, uint64_t page) {
    for (unsigned i = 0; i < own_count; i++)
        if (own[i].pid == pid && page >= own[i].from && page < own[i].to) return 1;
    return 0;
}

/* ---- page faults, as the kernel reports them: a ring per CPU ---- */

enum kind { FAULT, POPULATE, REFUSED, KINDS };

static struct ring { struct perf_event_mmap_page *head; const char *data; enum kind kind; } rings[KINDS * CPUS_MAX];
static unsigned ring_count;

static struct fault { uint64_t time; uint32_t pid, tid, cpu; uint64_t address; enum kind kind; } faults[FAULTS_MAX];

/* The number of a tracepoint; -1: there is none. */
static long tracepoint(const char *name) {
    long id = -1;
    char path[128];
    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
    snprintf(path, sizeof path, "/sys/kernel/tracing/events/syscalls/%s/id", name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%ld", &id) != 1) id = -1;
    if (file != NULL) fclose(file);
    return id;
}

/* Of the process on one CPU, and of all that it will start. */
static int open_event(pid_t pid, int cpu, enum kind kind, long config, const char *filter) {
    if (config < 0) return 0;
    struct perf_event_attr attr = {
        .size = sizeof attr, .type = kind == FAULT ? PERF_TYPE_SOFTWARE : PERF_TYPE_TRACEPOINT, .config = (uint64_t)config, .sample_period = 1, .inherit = 1,
        .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU | (kind == POPULATE ? PERF_SAMPLE_RAW : 0),
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    void *ring = fd < 0 || (filter != NULL && ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter) != 0)
        ? MAP_FAILED : mmap(NULL, (RING_PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) return 0;
    rings[ring_count++] = (struct ring){ring, (const char *)ring + PAGE, kind};
    return 1;
}

/* Without events the output lacks their lines. */
static void open_faults(pid_t pid) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), begins = tracepoint("sys_enter_madvise"), ends = tracepoint("sys_exit_madvise");
    char populates[32];
    snprintf(populates, sizeof populates, "behavior == %d", POPULATE_WRITE);
    for (int cpu = 0; cpu < cpus && cpu < CPUS_MAX; cpu++) {
        if (!open_event(pid, cpu, FAULT, PERF_COUNT_SW_PAGE_FAULTS, NULL) || !open_event(pid, cpu, REFUSED, ends, "ret != 0")
            || !open_event(pid, cpu, POPULATE, begins, populates)) {
            fprintf(stderr, "launcher: not all page faults are recorded (%s)\n", strerror(errno));
            return;
        }
    }
}

static int earlier(const void *a, const void *b) {
    uint64_t left = ((const struct fault *)a)->time, right = ((const struct fault *)b)->time;
    return left < right ? -1 : left > right;
}

/* Bytes of a ring from `at` on, which may go round its end. */
static void take_bytes(const struct ring *ring, uint64_t at, void *to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = ring->data[(at + i) % (RING_PAGES * PAGE)];
}

/* What has come since the last time. Faults of threads that run meanwhile may come later: of one thread, and of memory that is given back in the call at
   which it is stopped, all are there. */
static void write_faults(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < ring_count; i++) {
        uint64_t head = __atomic_load_n(&rings[i].head->data_head, __ATOMIC_ACQUIRE), at = rings[i].head->data_tail;
        while (at < head && count < FAULTS_MAX) {
            struct perf_event_header header;
            struct { uint32_t pid, tid; uint64_t time, address; uint32_t cpu, reserved; } sample;
            struct __attribute__((packed)) { uint32_t bytes, common[2], nr, padding; uint64_t start; } call;
            struct { uint64_t id, lost; } lost;
            take_bytes(&rings[i], at, &header, sizeof header);
            if (header.type == PERF_RECORD_SAMPLE) {
                take_bytes(&rings[i], at + sizeof header, &sample, sizeof sample);
                if (rings[i].kind == POPULATE) take_bytes(&rings[i], at + sizeof header + sizeof sample, &call, sizeof call);
                uint64_t address = rings[i].kind == POPULATE ? call.start : sample.address;
                faults[count++] = (struct fault){sample.time, sample.pid, sample.tid, sample.cpu, address & ~(PAGE - 1ull), rings[i].kind};
            } else if (header.type == PERF_RECORD_LOST) {
                take_bytes(&rings[i], at + sizeof header, &lost, sizeof lost);
                fprintf(output, "lost %llu\n", (unsigned long long)lost.lost);
            }
            at += header.size;
        }
        __atomic_store_n(&rings[i].head->data_tail, at, __ATOMIC_RELEASE);
    }
    qsort(faults, count, sizeof *faults, earlier);
    for (unsigned i = 0; i < count; i++) {
        struct fault *it = &faults[i];
        unsigned long long time = it->time, address = it->address;
        if (it->kind == REFUSED) fprintf(output, "refused %llu %u %u\n", time, it->pid, it->tid);
        else fprintf(output, "%s %llu %u %u %u %llx\n", it->kind == FAULT ? "fault" : "populate", time, it->pid, it->tid, it->cpu, address);
    }
}

/* ---- pages ---- */

/* Those of the pages with a node that are the page cache's. */
static void write_file_pages(pid_t pid, uint64_t from, const char *text) {
    static uint64_t entries[BATCH];
    char path[64];
    size_t count = strlen(text);
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = pread(fd, entries, count * sizeof *entries, (off_t)(from / PAGE * sizeof *entries));
    close(fd);
    if (got != (ssize_t)(count * sizeof *entries)) return;
    for (size_t i = 0, run = 0; i <= count; i++) {
        if (i < count && text[i] != '.' && (entries[i] & PAGEMAP_PRESENT) && (entries[i] & PAGEMAP_FILE)) run++;
        else if (run != 0) {
            fprintf(output, "file %d %llx %zu\n", pid, (unsigned long long)(from + (i - run) * PAGE), run);
            run = 0;
        }
    }
}

/* Node of each page of the range, from the kernel; `what` comes before it in the line. */
static void write_range(pid_t pid, const char *what, uint64_t from, uint64_t to) {
    static void *pages[BATCH];
    static int nodes[BATCH];
    static char text[BATCH + 1];
    from &= ~(uint64_t)(PAGE - 1);
    while (from < to) {
        unsigned long count = (to - from + PAGE - 1) / PAGE;
        int any = 0;
        if (count > BATCH) count = BATCH;
        for (unsigned long i = 0; i < count; i++) pages[i] = (void *)(uintptr_t)(from + i * PAGE);
        if (kernel_call(SYS_move_pages, pid, (long)count, (long)pages, 0, (long)nodes, 0) != 0) return;
        for (unsigned long i = 0; i < count; i++) {
            text[i] = nodes[i] >= 0 && nodes[i] < 16 ? "0123456789abcdef"[nodes[i]] : '.';
            if (text[i] != '.' && is_own(pid, from + i * PAGE)) text[i] = '.';
            any |= text[i] != '.';
        }
        text[count] = 0;
        if (any) {
            fprintf(output, "%s%d %llx %s\n", what, pid, (unsigned long long)from, text);
            write_file_pages(pid, from, text);
        }
        from += count * PAGE;
    }
}

/* Every mapping of the process but the recorder's own and what cannot be accessed; with a name: only that one, from `from` on. */
static void write_mappings(pid_t pid, const char *what, const char *only, uint64_t from) {
    char path[64], line[WORDS_MAX];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    if (maps == NULL) return;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long long first, end;
        char rights[8];
        if (sscanf(line, "%llx-%llx %7s", &first, &end, rights) != 3 || rights[0] != 'r') continue;
        if (strstr(line, "memfd:") != NULL || strstr(line, "[v") != NULL) continue;
        if (only != NULL && strstr(line, only) == NULL) continue;
        write_range(pid, what, first > from ? first : from, end);
    }
    fclose(maps);
}

static pid_t process_of(pid_t tid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "r");
    pid_t pid = tid;
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "Tgid: %d", &pid) == 1) break;
    if (status != NULL) fclose(status);
    return pid;
}

/* What was said of these pages is of a life that ends now. */
static void write_gone(pid_t pid, uint64_t from, uint64_t bytes) {
    uint64_t first = from & ~(PAGE - 1ull), pages = (from + bytes - first + PAGE - 1) / PAGE;
    fprintf(output, "gone %d %llx %llu\n", pid, (unsigned long long)first, (unsigned long long)pages);
}

/* Stopped before a call that takes pages away, or that puts the thread on CPUs. */
static void before_call(pid_t tid) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) != 0) return;
    pid_t pid = process_of(tid);
    uint64_t from = registers.rdi, bytes = registers.rsi;
    write_faults();
    switch (registers.orig_rax) {
    case SYS_brk:
        if (from == 0) break;
        write_mappings(pid, "", "[heap]", from);
        write_gone(pid, (from + PAGE - 1) & ~(PAGE - 1ull), HEAP_MAX);
        break;
    case SYS_execve:
    case SYS_execveat: write_mappings(pid, "", NULL, 0); break;
    case SYS_sched_setaffinity: fprintf(output, "placed %d %d\n", pid, tid); break;
    case SYS_munmap:
        write_range(pid, "", from, from + bytes);
        write_gone(pid, from, bytes);
        remove_own(pid, from, from + bytes);
        break;
    default:
        write_range(pid, "", from, from + bytes);
        if (registers.orig_rax != SYS_madvise || registers.rdx != MADV_FREE) write_gone(pid, from, bytes);
    }
}

static int is_before_mmap(pid_t tid) {
    struct user_regs_struct registers;
    return ptrace(PTRACE_GETREGS, tid, NULL, &registers) == 0 && registers.orig_rax == SYS_mmap;
}

/* Stopped after the tracker mapped memory for itself. */
static void after_mmap(pid_t tid) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) != 0 || registers.orig_rax != SYS_mmap) return;
    if ((int64_t)registers.rax >= 0 || (int64_t)registers.rax < -PAGE) add_own(process_of(tid), registers.rax, registers.rsi);
}

static void install_filter(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 13, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 12, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 11, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 10, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 9, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 8, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TRACKERS_FLAGS, 4, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_FREE, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_REMOVE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    /* By calls that the tracker does not see: what starts under a filter that it sees set, it does not record, as most filters list what may be called. */
    if (kernel_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) != 0
        || kernel_call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0) != 0)
        _exit(126);
}

/* The program's first pages are touched by the kernel and the loader, before the mirror is there: on the node that the environment names. */
static void begin_on_node(void) {
    const char *node = getenv("LAB_FIRST_NODE"), *per_node = getenv("LAB_CPUS_PER_NODE");
    if (node == NULL || per_node == NULL) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < atoi(per_node); i++) CPU_SET((size_t)(atoi(node) * atoi(per_node) + i), &set);
    kernel_call(SYS_sched_setaffinity, 0, sizeof set, (long)&set, 0, 0, 0);
}

static void become(const char *mirror, char **command) {
    begin_on_node();
    static char list[WORDS_MAX];
    const char *old = getenv("LD_PRELOAD");
    snprintf(list, sizeof list, "%s%s%s", mirror, old != NULL ? ":" : "", old != NULL ? old : "");
    setenv("LD_PRELOAD", list, 1);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    install_filter();
    execvp(command[0], command);
    _exit(127);
}

int main(int argument_count, char **arguments) {
    if (argument_count < 4) return 2;
    output = fopen(arguments[1], "we");
    if (output == NULL) return 2;
    pid_t child = fork();
    if (child == 0) become(arguments[2], arguments + 3);
    int status, code = 1;
    waitpid(child, &status, 0);
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
    options |= PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, options) != 0) return 2;
    open_faults(child);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR) continue;
        if (tid < 0) break;
        if (tid == child && WIFEXITED(status)) code = WEXITSTATUS(status);
        if (tid == child && WIFSIGNALED(status)) code = 128 + WTERMSIG(status);
        if (!WIFSTOPPED(status)) continue;
        int event = status >> 16, signal = WSTOPSIG(status), wants_result = 0;
        unsigned long message = 0;
        if (event == PTRACE_EVENT_SECCOMP && is_before_mmap(tid)) wants_result = 1;
        else if (event == PTRACE_EVENT_SECCOMP) before_call(tid);
        if (signal == (SIGTRAP | 0x80)) {
            after_mmap(tid);
            signal = 0;
        }
        if ((event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_CLONE) && ptrace(PTRACE_GETEVENTMSG, tid, NULL, &message) == 0
            && process_of((pid_t)message) == (pid_t)message)
            inherit_own(process_of(tid), (pid_t)message);
        if (event == PTRACE_EVENT_EXEC) {
            write_faults();
            fprintf(output, "exec %d\n", tid);
            remove_own(tid, 0, UINT64_MAX);
            write_mappings(tid, "begin ", NULL, 0);
        }
        if (event == PTRACE_EVENT_EXIT && process_of(tid) == tid) {
            write_faults();
            write_mappings(tid, "", NULL, 0);
        }
        /* A new thread's first stop, and events, are no signals of the program's. */
        if (event != 0 || signal == SIGSTOP || signal == SIGTRAP) signal = 0;
        ptrace(wants_result ? PTRACE_SYSCALL : PTRACE_CONT, tid, NULL, (void *)(intptr_t)signal);
    }
    fclose(output);
    return code;
}
