/* Limits its own addresses, and prints what it is told of the limit and what it can have under it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB (1ul << 20)

static int has(unsigned long mib) {
    return mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static void print(const char *what, int result, const struct rlimit *limit) {
    printf("%s %d: %lu and %lu MiB\n", what, result, (unsigned long)limit->rlim_cur / MIB, (unsigned long)limit->rlim_max / MIB);
}

int main(void) {
    struct rlimit limit = {400 * MIB, 500 * MIB}, told = {0, 0};
    int result = setrlimit(RLIMIT_AS, &limit);
    if (getrlimit(RLIMIT_AS, &told) != 0) return 3;
    print("set", result, &told);
    printf("300 MiB: %d\n", has(300));
    printf("200 MiB more: %d\n", has(200));
    limit.rlim_cur = 600 * MIB;
    result = setrlimit(RLIMIT_AS, &limit);
    if (prlimit(0, RLIMIT_AS, NULL, &told) != 0) return 3;
    print("soft above hard", result, &told);
    limit.rlim_cur = limit.rlim_max;
    result = prlimit(0, RLIMIT_AS, &limit, &told);
    print("before", result, &told);
    if (getrlimit(RLIMIT_AS, &told) != 0) return 3;
    print("raised", result, &told);
    printf("80 MiB more: %d\n", has(80));
    return 0;
}
