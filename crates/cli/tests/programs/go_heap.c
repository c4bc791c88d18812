/* A program that allocates as Go's compiler lets programs do: runtime.mallocgc has its arguments and its result in registers, runtime.makeslice calls it, on a
 * stack that is no thread's, with frame pointers, and nobody gives blocks back: a later block comes to lie where the first two were.
 *
 * TABLE: with a table of functions as Go's linker writes it since 1.20. 1: it has the address of the code; 2: that is in the runtime's description of the
 * program, as since 1.26. The order of functions is that of this file (-fno-toplevel-reorder). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (1ul << 20)
#define STACK_BYTES (256ul << 10)

static char *heap, *next;

/* Called by the assembly below. */
__attribute__((used)) static void *carve(size_t bytes) {
    char *block = next;
    next += bytes;
    return block;
}
void mallocgc(void) __asm__("runtime.mallocgc");
__asm__(".text\n"
        "go_text:\n"
        ".globl runtime.goexit.abi0\n.type runtime.goexit.abi0, @function\n"
        "runtime.goexit.abi0: ret\n"
        ".size runtime.goexit.abi0, .-runtime.goexit.abi0\n"
        ".globl runtime.mallocgc\n.type runtime.mallocgc, @function\n"
        "runtime.mallocgc:\n"
        "  pushq %rbp\n  movq %rsp, %rbp\n  andq $-16, %rsp\n"
        "  movq %rax, %rdi\n  call carve\n"
        "  movq %rbp, %rsp\n  popq %rbp\n  ret\n"
        ".size runtime.mallocgc, .-runtime.mallocgc\n");

void *makeslice(size_t bytes) __asm__("runtime.makeslice");
__attribute__((noinline)) void *makeslice(size_t bytes) {
    void *block;
    __asm__ volatile("call runtime.mallocgc"
                     : "=a"(block)
                     : "0"(bytes)
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
    return block;
}

static void work(void) {
    char *first = makeslice(BYTES); /* LINE first */
    memset(first, 1, BYTES);
    char *second = makeslice(BYTES); /* LINE second */
    memset(second, 2, BYTES);
    next = heap; /* swept */
    char *third = makeslice(2 * BYTES); /* LINE third */
    memset(third, 3, 2 * BYTES);
    dprintf(1, "%d\n", third[0] + third[2 * BYTES - 1]);
}

#ifdef TABLE
#if TABLE == 1
#define TEXT "go_text"
#else
#define TEXT "0"
#endif
/* A function's record: where it begins, its name, and the tables of its file and its line, which are the same for all. */
#define FUNCTION(name, label) label ": .long 0, " name " - names, 0, 0, 0, 5, 1, 0, 0\n"
__asm__(".text\n"
        "go_end:\n"
        ".section .gopclntab, \"a\", @progbits\n"
        ".balign 8\n"
        "table: .long 0xfffffff1\n .byte 0, 0, 1, 8\n"
        " .quad 4, 1, " TEXT ", names - table, units - table, files - table, values - table, index - table\n"
        "names: .byte 0\n"
        "name0: .asciz \"runtime.goexit\"\n"
        "name1: .asciz \"runtime.mallocgc\"\n"
        "name2: .asciz \"runtime.makeslice\"\n"
        "name3: .asciz \"main.work\"\n"
        ".balign 4\n"
        "units: .long 0\n"
        "files: .asciz \"/nowhere/main.go\"\n"
        /* Line 12, and file 0, of 16,383 bytes of code. */
        "values: .byte 0, 26, 0xff, 0x7f, 0, 2, 0xff, 0x7f, 0\n"
        ".balign 4\n"
        "index: .long runtime.goexit.abi0 - go_text, function0 - index\n"
        " .long runtime.mallocgc - go_text, function1 - index\n"
        " .long runtime.makeslice - go_text, function2 - index\n"
        " .long work - go_text, function3 - index\n"
        " .long go_end - go_text\n"
        FUNCTION("name0", "function0") FUNCTION("name1", "function1") FUNCTION("name2", "function2") FUNCTION("name3", "function3")
        ".section .go.module, \"aw\", @progbits\n"
        " .quad table\n .zero 152\n .quad go_text, go_end, go_text\n"
        ".text\n");
#endif

/* On another stack, as goroutines run. */
__attribute__((noinline)) static void run_on(char *stack, void (*function)(void)) {
    __asm__ volatile("movq %%rsp, %%r12\n movq %0, %%rsp\n call *%1\n movq %%r12, %%rsp"
                     :
                     : "r"(stack), "r"(function)
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}

int main(void) {
    heap = next = mmap(NULL, 4 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    run_on(stack + STACK_BYTES, work);
    return 0;
}
