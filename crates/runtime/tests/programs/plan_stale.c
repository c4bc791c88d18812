/* plan_stale.c: a library goes unseen, and code that the program itself made takes its addresses, as just-in-time compilers map what is free.
 *
 *   plan_stale LIBRARY
 *
 * LIBRARY is this file with -DLIBRARY. It is closed by the C library's own dlclose, past the planner's, as the C library closes its own plug-ins. The new code
 * calls malloc from addresses where the library was; its table for unwinding is not mapped any more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef LIBRARY
void *make(size_t bytes) {
    void *block = malloc(bytes);
    __asm__ volatile("" : "+r"(block)); /* not a tail call */
    return block;
}
#else
#if defined(__x86_64__)
/* sub $8,%rsp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; add $8,%rsp; ret */
static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};
#elif defined(__aarch64__)
/* stp x29,x30,[sp,#-16]!; mov x2,x0; mov x0,x1; blr x2; ldp x29,x30,[sp],#16; ret */
static const uint32_t code[] = {0xa9bf7bfd, 0xaa0003e2, 0xaa0103e0, 0xd63f0040, 0xa8c17bfd, 0xd65f03c0};
#else
#error "this program knows the code of x86-64 and aarch64 only"
#endif

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *(*make)(size_t) = library != NULL ? (void *(*)(size_t))dlsym(library, "make") : NULL;
    if (make == NULL) return 2;
    free(make(3000)); /* now the library is known */
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    int (*close_unseen)(void *) = libc != NULL ? (int (*)(void *))dlsym(libc, "dlclose") : NULL;
    if (close_unseen == NULL || close_unseen(library) != 0) return 3;
    void *page = (void *)((uintptr_t)make & -4096ul);
    if (mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) return 4;
    memcpy(page, code, sizeof code);
    __builtin___clear_cache((char *)page, (char *)page + sizeof code);
    void *(*call)(void *(*function)(size_t), size_t bytes) = (void *(*)(void *(*)(size_t), size_t))page;
    void *block = call(malloc, 3000);
    if (block == NULL) return 5;
    free(block);
    puts("stale ok");
    return 0;
}
#endif
