/* Generates code while it runs, as a just-in-time compiler does, and writes down its names for perf: `map`, `dump`, or `none`; with `again`, memory of
 * code is used twice, and with `replaced`, too, of which a dump has the times. One generated function allocates a block, another touches its pages. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 300

#if defined(__x86_64__)
/* push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
static const unsigned char make_code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
/* 1: mov byte [rdi], 1; add rdi, 4096; dec rsi; jnz 1b; ret */
static const unsigned char fill_code[] = {0xc6, 0x07, 0x01, 0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, 0x48, 0xff, 0xce, 0x75, 0xf1, 0xc3};
#define MACHINE 62
#elif defined(__aarch64__)
/* stp x29, x30, [sp, -16]!; mov x29, sp; mov x2, x0; mov x0, x1; blr x2; ldp x29, x30, [sp], 16; ret */
static const uint32_t make_code[] = {0xa9bf7bfd, 0x910003fd, 0xaa0003e2, 0xaa0103e0, 0xd63f0040, 0xa8c17bfd, 0xd65f03c0};
/* mov w2, 1; 1: strb w2, [x0]; add x0, x0, 4096; subs x1, x1, 1; b.ne 1b; ret */
static const uint32_t fill_code[] = {0x52800022, 0x39000002, 0x91400400, 0xf1000421, 0x54ffffa1, 0xd65f03c0};
#define MACHINE 183
#else
#error "no code for this processor"
#endif

static void *keep(char *at, const void *code, size_t bytes) {
    memcpy(at, code, bytes);
    __builtin___clear_cache(at, at + bytes);
    return at;
}

static void put(FILE *file, uint64_t value, size_t bytes) {
    fwrite(&value, bytes, 1, file);
}

/* Time of the records that follow; 0: they have none. */
static uint64_t moment;

static void set_moment(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    moment = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void record(FILE *file, uint32_t kind, size_t bytes) {
    put(file, kind, 4);
    put(file, 16 + bytes, 4);
    put(file, moment, 8);
}

/* What perf's jitdump specification calls JIT_CODE_DEBUG_INFO and JIT_CODE_LOAD. */
static void load(FILE *file, void *code, size_t bytes, uint64_t index, const char *name, const char *source, uint32_t line) {
    uint64_t at = (uintptr_t)code;
    record(file, 2, 16 + 16 + strlen(source) + 1);
    put(file, at, 8), put(file, 1, 8);
    put(file, at, 8), put(file, line, 4), put(file, 0, 4);
    fwrite(source, strlen(source) + 1, 1, file);
    record(file, 0, 40 + strlen(name) + 1 + bytes);
    put(file, getpid(), 4), put(file, getpid(), 4);
    put(file, at, 8), put(file, at, 8), put(file, bytes, 8), put(file, index, 8);
    fwrite(name, strlen(name) + 1, 1, file);
    fwrite(code, bytes, 1, file);
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "none";
    char *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return perror("code"), 77;
    void *(*make)(void *(*)(size_t), size_t) = (void *(*)(void *(*)(size_t), size_t))keep(code, make_code, sizeof make_code);
    void (*fill)(char *, long) = (void (*)(char *, long))keep(code + 512, fill_code, sizeof fill_code);
    char path[64];
    FILE *dump = NULL;
    if (!strcmp(mode, "map") || !strcmp(mode, "again")) {
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *file = fopen(path, "w");
        if (!file) return perror(path), 1;
        fprintf(file, "%lx %zx JS:*makeBlock /srv/made.js:3:9\n", (long)make, sizeof make_code);
        fprintf(file, "%lx %zx void App.fillPages(byte[], int)\n", (long)fill, sizeof fill_code);
        if (!strcmp(mode, "again")) fprintf(file, "%lx 40 later\n", (long)fill);
        fclose(file);
    } else if (!strcmp(mode, "dump") || !strcmp(mode, "replaced")) {
        snprintf(path, sizeof path, "jit-%d.dump", getpid());
        FILE *file = dump = fopen(path, "w+");
        if (!file) return perror(path), 1;
        if (!strcmp(mode, "replaced")) set_moment();
        put(file, 0x4a695444, 4), put(file, 1, 4), put(file, 40, 4), put(file, MACHINE, 4);
        put(file, 0, 4), put(file, getpid(), 4), put(file, 0, 8), put(file, 0, 8);
        load(file, (void *)make, sizeof make_code, 1, "makeBlock", "/srv/made.js", 4);
        load(file, (void *)fill, sizeof fill_code, 2, "fillPages", "/srv/made.js", 17);
        fflush(file);
        if (mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED) return perror("marker"), 1;
    }
    char *block = make(malloc, PAGES * PAGE);
    fill(block, PAGES);
    if (!strcmp(mode, "replaced")) {
        usleep(300000);
        set_moment();
        load(dump, (void *)fill, sizeof fill_code, 3, "later", "/srv/later.js", 1);
        fflush(dump);
    }
    printf("%d %d\n", getpid(), block[PAGE]);
    return 0;
}
