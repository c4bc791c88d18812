/* process.c: the emulated process's tables and each thread's slot, as the tracker in it names them; where the emulated registers are.
 *
 * This file also holds the plugin's own instances of what the runtime keeps once per process or thread (np_arena, np_tls, ...); in the tracker they are in
 * core.c and pages.c. */
#define _GNU_SOURCE
#include "user.h"
#include "memsim.h"
#include "python.h"
#include "vtime.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct np_arena *np_arena;
bool np_track_only;
bool np_tls_is_shared;
struct np_own np_own;
uint8_t **np_leaves;
struct np_marked *np_marked;
_Thread_local struct np_tls np_tls __attribute__((tls_model("initial-exec")));
_Thread_local struct np_guest np_guest __attribute__((tls_model("initial-exec")));
uintptr_t np_slot_call;

static struct np_modules modules;
static uint32_t *fork_canary; /* the tracker's; NULL: no tracker yet */
static uint64_t *fork_order;
static uint32_t own_pid;
static const struct np_sim *emulated_sim;

/* Modules that the tracker has not announced are unknown here: asking the emulated loader would take emulated code. */
const void *np_module_eh_frame(struct np_slot *slot, uintptr_t pc) {
    (void)slot;
    return np_known_eh_frame(modules, pc);
}

bool np_read_guest(void *to, uint64_t address, size_t bytes) {
    struct iovec target = {to, bytes}, source = {(void *)address, bytes};
    return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == (ssize_t)bytes;
}

static bool can_be_read(uint64_t address) {
    uint32_t word;
    return np_read_guest(&word, address, sizeof word);
}

static void answer(uint64_t address, uint32_t word) {
    struct iovec from = {&word, sizeof word}, to = {(void *)address, sizeof word};
    (void)process_vm_writev(getpid(), &from, 1, &to, 1, 0);
}

/* False where emulated addresses are not ours (guest_base is not 0), or the program made the call by itself. */
static bool copy_hello(struct np_emulator_hello *hello, uint64_t address) {
    return np_read_guest(hello, address, sizeof *hello) && hello->magic == NP_EMULATOR_MAGIC && hello->abi == NP_EMULATOR_ABI;
}

static void meet(uint64_t address) {
    struct np_emulator_hello hello;
    if (!copy_hello(&hello, address)) return;
    modules = hello.modules;
    emulated_sim = hello.sim;
    np_leaves = hello.leaves;
    np_marked = hello.marked;
    np_heap = hello.heap;
    np_vtime_process = hello.vtime;
    np_unwind_generation = hello.unwind_generation;
    np_own = hello.own;
    np_slot_call = hello.slot_call;
    fork_canary = hello.fork_canary;
    fork_order = hello.fork_order;
    np_python = hello.python;
    own_pid = (uint32_t)getpid();
    np_cycles_per_access_q8 = hello.arena->config.cycles_per_access_q8;
    np_arena = hello.arena;
    ((struct np_emulator_hello *)address)->answer = 1;
}

/* Whoever makes that system call may be the program itself. */
static bool is_slot(uint64_t address) {
    uint64_t offset = address - (uint64_t)np_arena - np_arena->slots_offset;
    return offset % np_arena->slot_bytes == 0 && offset / np_arena->slot_bytes < np_arena->slot_count;
}

/* What the tracker has seen this thread with. It is not known whether the thread holds the interpreter's lock: the kernel reads. */
uintptr_t np_python_thread(bool *is_held) {
    *is_held = false;
    return np_guest.python_state != NULL ? np_load(*np_guest.python_state) : 0;
}

/* Every read of the interpreter's memory may fail here, and says nothing about how it is laid out. */
void np_python_give_up(void) {}

/* `mark`: the tracker's np_tls.in_alloc of this thread; `python`: its np_tls.python_state. */
static void take_slot(struct np_slot *slot, uint64_t mark, uint64_t python) {
    struct np_guest *guest = &np_guest;
    guest->python_state = slot != NULL && (python & 7) == 0 && can_be_read(python) ? (const uintptr_t *)python : NULL;
    guest->in_alloc = slot != NULL && can_be_read(mark) ? (const uint32_t *)mark : NULL;
    guest->registers = guest->candidate != NULL && guest->candidate_argument == (uint64_t)slot ? guest->candidate : NULL;
    if (slot == NULL && np_tls.stacks != NULL) {
        np_pages_free(np_tls.stacks, NP_STACK_CACHE_BYTES);
        np_tls.stacks = NULL;
    }
    if (slot == NULL && guest->slot != NULL) np_toucher_ended(guest->slot);
    /* Constant but for what the beginning of a thread changes, which has just happened. */
    struct np_sim now = *emulated_sim;
    now.shares |= np_load(np_sim.shares); /* the tracker has not seen system calls that the program makes by itself */
    np_sim = now;
    guest->slot = slot;
    if (slot != NULL) np_mapping_slot(slot);
}

static bool makes_process(int64_t number) {
    return number == SYS_fork || number == SYS_vfork || number == SYS_clone || number == SYS_clone3;
}

static bool replaces_mapping(int64_t number, uint64_t flags) {
    return number == SYS_munmap || number == SYS_mremap || (number == SYS_mmap && (flags & MAP_FIXED) != 0);
}

static bool shares_memory(int64_t number, uint64_t flags) {
    return number == SYS_shmat || (number == SYS_mmap && (flags & MAP_TYPE) != MAP_PRIVATE);
}

/* The tracker's handler of forks has run, if it is to run. */
static void before_process(void) {
    np_guest.fork_order = np_order_kept();
    if (emulated_sim != NULL) np_store(np_sim.forked, np_load(emulated_sim->forked));
}

void np_on_system_call(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
                       uint64_t a6, uint64_t a7, uint64_t a8) {
    bool is_own = np_guest.own_call;
    np_guest.own_call = false;
    if (np_likely(number != NP_SYSCALL_EMULATOR)) {
        if (replaces_mapping(number, a4)) np_allocators_unmapped(a1, a2);
        if (np_guest.slot != NULL) np_kernel_asked(number, a1, a2, a3);
        if (np_arena != NULL) np_mapping_asked(is_own ? -1 : number, a1, a2, a3, a4, a5, a6);
        if (np_unlikely(makes_process(number))) before_process();
        if (shares_memory(number, a4)) np_store(np_sim.shares, 1);
        return;
    }
    if (a1 == NP_EMULATOR_HELLO) meet(a2);
    else if (a1 == NP_EMULATOR_SLOT && np_arena != NULL && (a2 == 0 || is_slot(a2))) take_slot((struct np_slot *)a2, a3, a4);
    else if (a1 == NP_EMULATOR_FOLLOWS && np_arena != NULL) answer(a3, np_allocators_follow(a2));
}

/* A forked child has no slot until its tracker says so: until then it must not write to its parent's. The tracker in it is notified, because it may have been
 * meant to share its parent's memory (vfork), and then has passed no handler. */
static void begin_child(struct np_guest *guest) {
    own_pid = (uint32_t)getpid();
    guest->slot = NULL;
    np_allocators_after_fork();
    np_python_after_fork();
    *fork_order = guest->fork_order;
    *fork_canary = 0;
}

void np_on_system_call_result(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result) {
    if (np_guest.slot != NULL) np_kernel_filled(number, result);
    if (np_arena != NULL) np_mapping_made(number, result);
    if (np_likely(result != 0) || !makes_process(number)) return;
    if (fork_canary != NULL && own_pid != (uint32_t)getpid()) begin_child(&np_guest);
}

/* QEMU's translated code keeps the address of its CPU's state, which begins with the sixteen registers, in rbp, and calls us directly: rbp is still that. In
 * memory they are as of the start of the block here, and as of the start of the instruction at every access (QEMU needs that for faults). Checked: the
 * first argument register must hold what the tracker then passes. */
void np_slot_call_begins(unsigned vcpu, void *data, const uint64_t *state);
__asm__(".text\n"
        ".globl np_on_slot_call\n.hidden np_on_slot_call\n.type np_on_slot_call, @function\n"
        "np_on_slot_call:\n"
        "  movq %rbp, %rdx\n"
        "  jmp np_slot_call_begins\n"
        ".size np_on_slot_call, .-np_on_slot_call\n");

enum { REGISTER_RDI = 7 };

void np_slot_call_begins(unsigned vcpu, void *data, const uint64_t *state) {
    np_guest.candidate = state;
    np_guest.candidate_argument = state[REGISTER_RDI];
}
