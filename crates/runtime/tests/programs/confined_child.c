/* A program whose vfork child, which runs in its memory, puts itself under a filter that only lets it go: by _exit, or by becoming the program that the
 * argument names. What the program itself does afterwards: it maps its own file, and makes blocks. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};

int main(int count, char **arguments) {
    pid_t child = vfork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
        if (count > 2) execl(arguments[2], arguments[2], (char *)NULL);
        if (count > 1) execl(arguments[1], arguments[1], (char *)NULL);
        _exit(0);
    }
    int status = 1, file = open("/proc/self/exe", O_RDONLY);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 3;
    for (int i = 0; i < 100; i++) {
        char *block = malloc(1000);
        if (block == NULL) return 4;
        memset(block, i, 1000);
    }
    return file >= 0 && mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED ? 0 : 5;
}
