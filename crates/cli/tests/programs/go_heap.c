/* A program that allocates as Go's compiler lets programs do: runtime.mallocgc has its arguments and its result in registers, runtime.makeslice calls it, on a
 * stack that is no thread's, with frame pointers, and nobody gives blocks back: a later block comes to lie where the first two were. */
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
