/* emulator.h: the seam between the tracker inside an emulated program and the plugin inside its emulator (crates/emulator/c).
 *
 * Both are in one process and see the same addresses: the plugin asks for that. The tracker follows objects, threads and synchronisation, as in every recorded
 * program; the plugin is called at every access, and runs the same simulated memory system (filter.c and what it needs, compiled once more, natively) on
 * the same state: the arena, and what the tracker names here.
 *
 * The tracker speaks through a system call that does not exist: the plugin sees it, the emulator and a kernel answer ENOSYS. */
#ifndef NUMAPILOT_EMULATOR_H
#define NUMAPILOT_EMULATOR_H

#include "python.h"
#include "track.h"
#include "vtime.h"

#define NP_SYSCALL_EMULATOR 0x4e500001
#define NP_EMULATOR_MAGIC 0x524f54414c554d45ull
#define NP_EMULATOR_ABI 6u

enum np_emulator_call {
    NP_EMULATOR_HELLO = 1, /* second argument: struct np_emulator_hello *, once per process image, before any slot */
    NP_EMULATOR_SLOT = 2,  /* second argument: this thread's slot from now on, NULL when it ends; third: its np_tls.in_alloc; fourth: its
                            * np_tls.python_state */
    NP_EMULATOR_FOLLOWS = 3, /* second argument: a function; third: uint32_t *, which becomes 1 if the plugin records its blocks */
};

struct np_emulator_hello {
    uint64_t magic;
    uint32_t abi;
    uint32_t answer; /* the plugin's: 1, it is there and takes part */
    struct np_arena *arena;
    const struct np_sim *sim; /* its words change only when a thread begins */
    uint8_t **leaves;
    struct np_marked *marked;
    struct np_heap *heap;
    struct np_vtime_process *vtime;
    struct np_modules modules;
    uint64_t *unwind_generation;
    struct np_own own;
    uint32_t *fork_canary; /* in a forked child: 0 from the plugin, for emulators that do not wipe the page and for vfork, which is a fork to them */
    uint64_t *fork_order;  /* and the stamp before the fork */
    const struct np_python_known *python; /* filled in when a library with an interpreter is met */
    uintptr_t slot_call; /* first instruction of np_emulator_slot, where the first argument register holds the slot */
};

#pragma GCC visibility push(hidden)
/* By the tracker, once attached; does nothing outside of an emulator. */
void np_emulator_meet(void);
void np_emulator_slot(struct np_slot *slot);
/* The emulator's plugin records the blocks of this allocation function, which the program carries itself (crates/emulator/c/allocators.c). */
bool np_emulator_follows(uintptr_t function);

/* ---- emulator_exec.c: programs that are started ---- */
struct np_emulated_program {
    const char *binary, *script; /* script: NULL for a binary */
    char *option;                /* of its "#!" line */
    char line[256];
    char own[1024];              /* the path of the program that asks, where it names itself by /proc */
};
/* `value`: of NUMAPILOT_EMULATOR in the environment that this program was given; NULL: none. */
void np_emulator_init(const char *value);
extern char np_emulator_env[]; /* NUMAPILOT_EMULATOR=..., empty: programs run natively */
/* Whether the emulator shall run the program at `path`. */
bool np_emulator_takes(const char *path, struct np_emulated_program *program);
/* Gives `run` the emulator's path, arguments and environment. `preload`: "LD_PRELOAD=..." of the program inside. */
typedef int (*np_runner)(const void *context, const char *path, char *const arguments[], char *const environment[]);
int np_emulator_run(const struct np_emulated_program *program, char *const arguments[], char *const environment[], const char *preload,
                    np_runner run, const void *context);
#pragma GCC visibility pop

#endif
