/* Starts a program, lets a library run its threads on the CPUs of the nodes that the simulated machine has them on
   (mirror.c), and writes down on which node the kernel has each of its pages: just before they go away (munmap,
   mremap, madvise, a shrinking heap), and when the process ends. By ptrace, and a seccomp filter that stops the
   program at those calls only: nothing of it is in the program, and other calls cost nothing.

   launcher OUTPUT MIRROR PROGRAM [ARGUMENT...]

   OUTPUT gets a line per run of mapped pages: `PID ADDRESS NODES`, a character per page: the node's hexadecimal digit,
   `.` for a page that has no memory of its own (never touched, or only read: the kernel's one page of zeros). Later
   lines hold. Memory that the tracker maps for itself is left out: it may lie where the program had memory before. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 1024, WORDS_MAX = 4096, OWN_MAX = 4096 };

/* The tracker maps its own memory with this descriptor (crates/runtime/c/memory.c), which the kernel ignores. */
#define TRACKERS_DESCRIPTOR (-2)

static FILE *output;

/* Memory of the tracker's own, by process; an entry without a process is free. */
static struct own { pid_t pid; uint64_t from, to; } own[OWN_MAX];
static unsigned own_count;

static void add_own(pid_t pid, uint64_t from, uint64_t bytes) {
    unsigned at = 0;
    while (at < own_count && own[at].pid != 0) at++;
    if (at == OWN_MAX) {
        fprintf(stderr, "launcher: the tracker has more memory of its own than can be told apart\n");
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

/* Node of each page of the range, from the kernel. */
static void write_range(pid_t pid, uint64_t from, uint64_t to) {
    static void *pages[BATCH];
    static int nodes[BATCH];
    static char text[BATCH + 1];
    from &= ~(uint64_t)(PAGE - 1);
    while (from < to) {
        unsigned long count = (to - from + PAGE - 1) / PAGE;
        int any = 0;
        if (count > BATCH) count = BATCH;
        for (unsigned long i = 0; i < count; i++) pages[i] = (void *)(uintptr_t)(from + i * PAGE);
        if (syscall(SYS_move_pages, pid, count, pages, NULL, nodes, 0) != 0) return;
        for (unsigned long i = 0; i < count; i++) {
            text[i] = nodes[i] >= 0 && nodes[i] < 16 ? "0123456789abcdef"[nodes[i]] : '.';
            if (text[i] != '.' && is_own(pid, from + i * PAGE)) text[i] = '.';
            any |= text[i] != '.';
        }
        text[count] = 0;
        if (any) fprintf(output, "%d %llx %s\n", pid, (unsigned long long)from, text);
        from += count * PAGE;
    }
}

/* Every mapping of the process but the recorder's own and what cannot be accessed; with a name: only that one, from `from` on. */
static void write_mappings(pid_t pid, const char *only, uint64_t from) {
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
        write_range(pid, first > from ? first : from, end);
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

/* Stopped before a call that takes pages away. */
static void before_call(pid_t tid) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) != 0) return;
    pid_t pid = process_of(tid);
    switch (registers.orig_rax) {
    case SYS_brk:
        if (registers.rdi != 0) write_mappings(pid, "[heap]", registers.rdi);
        break;
    case SYS_madvise:
        if (registers.rdx == MADV_DONTNEED || registers.rdx == MADV_FREE || registers.rdx == MADV_REMOVE)
            write_range(pid, registers.rdi, registers.rdi + registers.rsi);
        break;
    case SYS_munmap:
        write_range(pid, registers.rdi, registers.rdi + registers.rsi);
        remove_own(pid, registers.rdi, registers.rdi + registers.rsi);
        break;
    default: write_range(pid, registers.rdi, registers.rdi + registers.rsi);
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
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)TRACKERS_DESCRIPTOR, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(126);
}

/* The program's first pages are touched by the kernel and the loader, before the mirror is there: on the node that the environment names. */
static void begin_on_node(void) {
    const char *node = getenv("LAB_FIRST_NODE"), *per_node = getenv("LAB_CPUS_PER_NODE");
    if (node == NULL || per_node == NULL) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < atoi(per_node); i++) CPU_SET((size_t)(atoi(node) * atoi(per_node) + i), &set);
    syscall(SYS_sched_setaffinity, 0, sizeof set, &set);
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
        if (event == PTRACE_EVENT_EXEC) remove_own(tid, 0, UINT64_MAX);
        if (event == PTRACE_EVENT_EXIT && process_of(tid) == tid) write_mappings(tid, NULL, 0);
        /* A new thread's first stop, and events, are no signals of the program's. */
        if (event != 0 || signal == SIGSTOP || signal == SIGTRAP) signal = 0;
        ptrace(wants_result ? PTRACE_SYSCALL : PTRACE_CONT, tid, NULL, (void *)(intptr_t)signal);
    }
    fclose(output);
    return code;
}
