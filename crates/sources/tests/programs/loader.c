/* A dynamic loader that is not glibc's: prints what it should load before the program, and ends, as musl's does where it cannot load it. No C library. */
static long call(long number, long a, long b, long c) {
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return number;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

#if defined(__x86_64__)
enum { WRITE = 1, EXIT = 60 };
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#else
enum { WRITE = 64, EXIT = 93 };
__asm__(".globl _start\n_start: mov x0, sp\n bl begin\n");
#endif

static unsigned long length(const char *text) {
    unsigned long bytes = 0;
    while (text[bytes] != 0) bytes++;
    return bytes;
}

void begin(char **words) {
    static const char name[] = "LD_PRELOAD=";
    char **variable = words + 1;
    while (*variable != 0) variable++;
    for (variable++; *variable != 0; variable++) {
        unsigned i = 0;
        while (name[i] != 0 && (*variable)[i] == name[i]) i++;
        if (name[i] != 0) continue;
        call(WRITE, 1, (long)*variable, (long)length(*variable));
        call(WRITE, 1, (long)"\n", 1);
    }
    call(WRITE, 1, (long)"loaded\n", 7);
    call(EXIT, 0, 0, 0);
}
