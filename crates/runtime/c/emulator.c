/* emulator.c: the tracker's side of emulator.h: registers with the plugin, and passes it each thread's slot. */
#include "emulator.h"
#include "memsim.h"

static bool has_plugin;

void np_emulator_meet(void) {
    if (np_track_only) return;
    struct np_emulator_hello hello = {
        .magic = NP_EMULATOR_MAGIC,
        .abi = NP_EMULATOR_ABI,
        .arena = np_arena,
        .sim = &np_sim,
        .leaves = np_leaves,
        .marked = np_marked,
        .heap = np_heap,
        .vtime = np_vtime_process,
        .modules = np_modules(),
        .unwind_generation = np_unwind_generation,
        .own = np_own,
        .fork_canary = np_fork_canary,
        .fork_order = &np_raw_fork_order,
        .python = np_python,
        .slot_call = (uintptr_t)np_emulator_slot,
    };
    NP_SYS2(NP_SYSCALL_EMULATOR, NP_EMULATOR_HELLO, &hello);
    has_plugin = *(volatile uint32_t *)&hello.answer == 1;
}

/* A function of its own with the slot in the first argument register: the plugin finds the emulated registers by it. */
__attribute__((noinline)) void np_emulator_slot(struct np_slot *slot) {
    if (has_plugin) NP_SYS4(NP_SYSCALL_EMULATOR, NP_EMULATOR_SLOT, slot, &np_tls.in_alloc, &np_tls.python_state);
}

bool np_emulator_follows(uintptr_t function) {
    uint32_t answer = 0;
    if (has_plugin) NP_SYS3(NP_SYSCALL_EMULATOR, NP_EMULATOR_FOLLOWS, function, &answer);
    return *(volatile uint32_t *)&answer == 1;
}
