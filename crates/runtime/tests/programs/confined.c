/* A program that gives up all system calls but those that it makes itself, as sandboxed children of servers do, and is killed for any other.
 * Arguments: how it asks for that (prctl, number: prctl by its number, seccomp) and how it ends (return, _exit, exec: by becoming the program that the third
 * argument names).
 * With -DSTILL, static and without a C library: a program that makes no call but its last. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef STILL
__attribute__((noreturn)) void _start(void) {
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(SYS_exit_group), "D"(0));
#else
    register long number __asm__("x8") = SYS_exit_group, status __asm__("x0") = 0;
    __asm__ volatile("svc 0" : : "r"(number), "r"(status));
#endif
    __builtin_unreachable();
}
#else
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_mprotect), ALLOW(SYS_munmap), ALLOW(SYS_mremap), ALLOW(SYS_madvise), ALLOW(SYS_write), ALLOW(SYS_exit),
    ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_wait4), ALLOW(SYS_execve),
#ifdef SYS_clone
    ALLOW(SYS_clone),
#endif
    ALLOW(435 /* clone3 */), ALLOW(SYS_futex), ALLOW(SYS_set_robust_list), ALLOW(334 /* rseq */), ALLOW(293 /* rseq on Arm */),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static int may_begin[2];

static void *work(void *argument) {
    while (argument != NULL && !__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE)) {}
    for (int i = 0; i < 1000; i++) free(malloc(1000 + (size_t)i));
    void *block = malloc(8 << 20);
    block = realloc(block, 16 << 20);
    free(block);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    pthread_t early, late;
    char *held = malloc(1 << 20);
    if (held == NULL) return 3;
    memset(held, 7, 1 << 20);
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (pthread_create(&early, NULL, work, &may_begin[0]) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 3;
    if (strcmp(arguments[1], "prctl") == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 4;
    /* To the kernel the option is an int, of which a register may hold more. */
    long option = PR_SET_SECCOMP | 1l << 32;
    if (strcmp(arguments[1], "number") == 0 && syscall(SYS_prctl, option, SECCOMP_MODE_FILTER, &program) != 0) return 4;
    if (strcmp(arguments[1], "seccomp") == 0
        && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) return 5;
    __atomic_store_n(&may_begin[0], 1, __ATOMIC_RELEASE);
    pthread_join(early, NULL);
    if (pthread_create(&late, NULL, work, NULL) != 0) return 6;
    pthread_join(late, NULL);
    work(NULL);
    held = realloc(held, 8 << 20); /* made before, other since */
    if (held == NULL || held[0] != 7 || held[(1 << 20) - 1] != 7) return 9;
    free(held);
    pid_t child = fork();
    if (child == 0) {
        work(NULL);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 8;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    if (write(1, "done\n", 5) != 5) return 7;
    if (strcmp(arguments[2], "_exit") == 0) _exit(0);
    if (strcmp(arguments[2], "exec") == 0 && count == 4) execl(arguments[3], arguments[3], (char *)NULL);
    return count == 3 ? 0 : 10;
}
#endif
