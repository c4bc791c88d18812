/* core.c: attachment to the arena, each thread's slot, and the real functions behind the hooks.
 *
 * Attaching happens once, at the first hook or in the constructor, whichever comes first: C++'s library allocates before
 * our constructor runs. It uses nothing but system calls and the loader's tables. Whatever is wrong (no arena, a wrong one, no
 * access), np_arena stays NULL and every hook passes straight through.
 */
#define _GNU_SOURCE
#include "emulator.h"
#include "exec_target.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct np_arena *np_arena;
_Thread_local struct np_tls np_tls __attribute__((tls_model("initial-exec")));
uint32_t np_pid_namespace;
bool np_track_only;
bool np_tls_is_shared;
uint32_t np_process_index = NP_NONE32;
char np_arena_env[256];

/* Until the page exists (or where the kernel has no MADV_WIPEONFORK) the canary is an ordinary word. */
static uint32_t canary_word = 1;
uint32_t *np_fork_canary = &canary_word;

enum { ATTACH_NOT_YET, ATTACH_TRYING, ATTACH_DONE };
static uint32_t attach_state;
static struct np_callouts_abi *callouts;

/* -- the arena -- */

static bool sound(const struct np_arena *arena, uint64_t bytes) {
    if (arena->magic != NP_ARENA_MAGIC || arena->version != NP_ARENA_VERSION) return false;
    if (arena->header_bytes < sizeof(struct np_arena) || arena->header_bytes > bytes || arena->arena_bytes > bytes) return false;
    uint32_t ring = arena->ring_bytes;
    if (ring < 4096 || (ring & (ring - 1)) != 0 || (uint64_t)arena->ring_offset + ring > arena->slot_bytes) return false;
    if (arena->ring_offset < sizeof(struct np_slot) || (arena->ring_offset | arena->slot_bytes | arena->slots_offset) % 64 != 0) return false;
    if ((uint64_t)arena->filter_offset + arena->filter_bytes > arena->ring_offset) return false;
    if (arena->slots_offset < arena->header_bytes || arena->slots_offset > bytes || arena->slot_count == 0) return false;
    if ((bytes - arena->slots_offset) / arena->slot_bytes < arena->slot_count) return false;
    return arena->config.mode == NP_MODE_TRACK || arena->config.mode == NP_MODE_INSTRUMENT;
}

/* A limit on addresses counts the arena: a process that could be left with too few (`ulimit -v` in a script, after the recorder chose the size) is not
 * recorded, and counted. */
#define LIMITED_SHARE 4
static bool has_room(long fd, uint64_t bytes) {
    struct rlimit limit;
    if (NP_SYS2(SYS_getrlimit, RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur / LIMITED_SHARE) return true;
    long at = NP_SYS6(SYS_mmap, 0, sizeof(struct np_arena), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at < 0 && at > -4096) return false;
    struct np_arena *arena = (struct np_arena *)at;
    if (arena->magic == NP_ARENA_MAGIC && arena->version == NP_ARENA_VERSION) __atomic_fetch_add(&arena->limited_processes, 1, __ATOMIC_RELAXED);
    NP_SYS2(SYS_munmap, at, sizeof(struct np_arena));
    return false;
}

static struct np_arena *map_arena(const char *path) {
    long fd = NP_SYS4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) return NULL;
    struct np_arena *arena = NULL;
    struct stat status;
    if (NP_SYS4(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) == 0 && S_ISREG(status.st_mode)
        && (uint64_t)status.st_size >= sizeof(struct np_arena) && has_room(fd, (uint64_t)status.st_size)) {
        uint64_t bytes = (uint64_t)status.st_size;
        long at = NP_SYS6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at > 0 || at < -4095) {
            arena = (struct np_arena *)at;
            if (!sound(arena, bytes)) {
                NP_SYS2(SYS_munmap, at, bytes);
                arena = NULL;
            }
            if (arena != NULL) np_own_range_add((uintptr_t)at, (uintptr_t)at + bytes);
            /* What the program leaves in a core file is its own, and the file may be limited (`ulimit -c`). */
            if (arena != NULL) NP_SYS3(SYS_madvise, at, bytes, MADV_DONTDUMP);
        }
    }
    NP_SYS1(SYS_close, fd);
    return arena;
}

static void make_fork_canary(void) {
    uint32_t *page = np_pages_new(4096);
    if (page == NULL) return;
    if (NP_SYS3(SYS_madvise, page, 4096, MADV_WIPEONFORK) != 0) {
        np_pages_free(page, 4096);
        return;
    }
    *page = 1;
    np_fork_canary = page;
}

static struct np_slot *attach_for_callouts(void) {
    return np_self();
}

NP_EXPORT struct np_callouts_abi numapilot_tracker_callouts = {.version = NP_CALLOUTS_ABI};

static void fill_in(struct np_callouts_abi *table) {
    table->miss = np_access_miss;
    table->range = np_access_range;
    table->acquire = np_acquire;
    table->release = np_release;
    table->rmw = np_rmw;
    __atomic_store_n(&table->attach, attach_for_callouts, __ATOMIC_RELEASE); /* last, with the acquire in np_is_tracked (callouts.h) */
}

static void meet_callouts(void) {
    fill_in(&numapilot_tracker_callouts);
    struct np_callouts_abi *found = dlsym(RTLD_DEFAULT, NP_CALLOUTS_SYMBOL);
    if (found == NULL || found->version != NP_CALLOUTS_ABI || found->slot_location == NULL) return;
    fill_in(found);
    callouts = found;
}

static struct np_planner_abi *planner;

static void find_planner(void) {
    struct np_planner_abi *found = dlsym(RTLD_DEFAULT, "numapilot_planner");
    if (found != NULL && found->version == NP_PLANNER_ABI) np_store(planner, found);
}

static void meet_planner(void) {
    if (planner == NULL) find_planner();
    if (planner == NULL) return;
    planner->is_tracked = 1;
    np_thread_meet_planner(planner);
    np_other_ranges = planner->ranges;
}

void np_planner_thread_began(uintptr_t start) {
    if (planner != NULL) planner->thread_began(start);
}

void np_planner_before_lookup(void) {
    struct np_planner_abi *found = np_load(planner);
    if (np_unlikely(found != NULL)) found->before_lookup();
}

void np_planner_mapped(void *address, size_t bytes, int protection, int flags, int fd, struct np_regs caller) {
    struct np_planner_abi *found = np_load(planner);
    if (np_unlikely(found != NULL)) found->mapped(address, bytes, protection, flags, fd, caller);
}

bool np_planner_gives_way(void) {
    struct np_planner_abi *found = np_load(planner);
    return found != NULL && found->gives_way();
}

void np_planner_ends(void) {
    struct np_planner_abi *found = np_load(planner);
    if (found != NULL) found->ends();
}

void np_planner_needs(struct np_exec_needs *needs) {
    const struct np_planner_abi *found = np_load(planner);
    if (found == NULL || found->path[0] == 0 || found->environment[0] == 0) return;
    needs->libraries[1] = found->path;
    needs->variables[2] = found->environment;
}

void np_tell_callouts(struct np_slot *slot) {
    struct np_slot **location = callouts != NULL ? callouts->slot_location() : NULL;
    if (location != NULL) *location = slot;
}

void np_set_callouts_slot(struct np_slot *slot) {
    np_emulator_slot(slot);
    np_tell_callouts(slot);
}

/* A malloc and free of the program's own that wrap the next ones look for these at their first call. That must not be where the loader frees the message of a
 * lookup of ours that failed: looking up begins with freeing that message, and so without end. */
static void before_failing_lookups(void) { free(malloc(1)); }

static void attach(void) {
    np_find_ourselves();
    if (np_initial_environment("NUMAPILOT_PLAN=") != NULL) { /* the planner places, and we stand before it, also where nothing can be recorded */
        before_failing_lookups();
        find_planner();
    }
    const char *path = np_initial_environment("NUMAPILOT_ARENA=");
    if (path == NULL || strlen(path) + sizeof "NUMAPILOT_ARENA=" > sizeof np_arena_env) return;
    struct np_arena *arena = map_arena(path);
    if (arena == NULL) return;
    before_failing_lookups();
    memcpy(np_arena_env, "NUMAPILOT_ARENA=", 16);
    memcpy(np_arena_env + 16, path, strlen(path) + 1);
    make_fork_canary();
    np_find_pid_namespace();
    np_store(np_track_only, arena->config.mode == NP_MODE_TRACK);
    np_emulator_init(np_initial_environment("NUMAPILOT_EMULATOR="));
    np_tls.phase = NP_PHASE_BUSY;
    np_process_index = __atomic_fetch_add(&arena->next_process_index, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&np_arena, arena, __ATOMIC_RELEASE);
    np_thread_init();
    /* The emulator's plugin sees the accesses by itself. */
    if (np_arena->emulated) np_emulator_meet();
    else meet_callouts();
    meet_planner();
    np_tls.phase = NP_PHASE_NEW;
    struct np_birth birth = {.parent_thread = NP_NONE32};
    np_process_heritage(&birth);
    struct np_slot *slot = np_thread_begin(&birth);
    if (slot == NULL) return;
    slot->in_hook = 1;
    np_process_begin_image(slot);
    np_modules_init(slot);
    np_maps_init(slot);
    np_alloc_init(slot);
    slot->in_hook = 0;
}

void np_attach_process(void) {
    uint32_t expected = ATTACH_NOT_YET;
    if (!__atomic_compare_exchange_n(&attach_state, &expected, ATTACH_TRYING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    int saved = errno;
    uint32_t in_alloc = np_tls.in_alloc, nested = np_tls.nested;
    np_tls.alloc_frame = 0;
    np_tls.in_alloc = 1; /* looking up what is not there makes the loader allocate a message: ours, not the program's */
    attach();
    if (np_load(np_arena) != NULL) {
        dlerror();
        dlerror(); /* and gives it back */
    }
    np_tls.in_alloc = in_alloc;
    np_tls.nested = nested;
    errno = saved;
    __atomic_store_n(&attach_state, ATTACH_DONE, __ATOMIC_RELEASE);
}

bool np_reals_are_found;

/* What the loader allocates meanwhile, and the message that a lookup leaves which fails, are not the program's. */
void np_look_up(bool (*find)(void)) {
    int saved = errno;
    struct np_slot *slot = np_self_if_live();
    bool entered = slot != NULL && np_enter(slot);
    uint32_t in_alloc = np_tls.in_alloc, nested = np_tls.nested;
    np_tls.alloc_frame = 0;
    np_tls.in_alloc = 1; /* as in np_attach_process */
    if (!find()) {
        dlerror();
        dlerror();
    }
    np_tls.in_alloc = in_alloc;
    np_tls.nested = nested;
    if (entered) np_leave(slot);
    errno = saved;
}

NP_COLD void np_find_reals(void) {
    if (!__atomic_exchange_n(&np_reals_are_found, true, __ATOMIC_RELAXED)) np_look_up(np_reals_find);
}

/* Another library's thread may be attaching: what hangs on that, as the handlers of forks, is this constructor's. Not without end: it may be the child of a
 * fork in the midst of that. */
#define ATTACH_YIELDS 20000u
static bool is_attached(void) {
    for (unsigned tries = 0; tries < ATTACH_YIELDS && __atomic_load_n(&attach_state, __ATOMIC_ACQUIRE) == ATTACH_TRYING; tries++) NP_SYS0(SYS_sched_yield);
    return __atomic_load_n(&attach_state, __ATOMIC_ACQUIRE) == ATTACH_DONE && np_load(np_arena) != NULL;
}

__attribute__((constructor(101))) static void construct(void) {
    np_attach_process();
    bool attached = is_attached();
    np_exec_init();
    if (attached) np_process_init();
}

/* -- slots -- */

/* Others may look at a slot at any time, also at one that they knew under its last owner: by words, and all but its state. */
static void clear_slot(struct np_slot *slot) {
    typedef uint64_t __attribute__((may_alias)) word;
    word *words = (word *)(void *)slot;
    _Static_assert(offsetof(struct np_slot, state) % 8 == 0 && offsetof(struct np_slot, run_state) % 8 == 4, "state begins its word");
    for (size_t i = 0; i < sizeof *slot / 8; i++)
        if (i != offsetof(struct np_slot, state) / 8) np_store(words[i], 0);
    np_store(slot->run_state, 0);
}

/* A free slot, zeroed but for its generation, in state CLAIMED. NULL (counted by the caller) when all are taken. */
struct np_slot *np_slot_claim(void) {
    uint32_t count = np_arena->slot_count;
    for (uint32_t index = 0; index < count; index++) {
        struct np_slot *slot = np_slot_at(index);
        uint32_t expected = NP_SLOT_FREE;
        if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) != NP_SLOT_FREE) continue;
        if (!__atomic_compare_exchange_n(&slot->state, &expected, NP_SLOT_CLAIMED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        uint64_t generation = slot->generation + 1;
        np_vtime_abandoned(slot); /* its last owner, if that was killed */
        clear_slot(slot);
        np_store(slot->generation, generation);
        uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_RELAXED);
        while (high <= index
               && !__atomic_compare_exchange_n(&np_arena->slots_high, &high, index + 1, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
        return slot;
    }
    return NULL;
}

/* Threads that share their creator's thread-local storage are distinguished by number. */
static struct np_slot *slot_by_tid(struct np_tls *tls) {
    uint32_t tid = (uint32_t)NP_SYS0(SYS_gettid);
    if (tls->slot != NULL && tls->slot->tid == tid) return tls->slot;
    uint64_t high = __atomic_load_n(&np_arena->slots_high, __ATOMIC_ACQUIRE);
    for (uint64_t index = 0; index < high; index++) {
        struct np_slot *slot = np_slot_at(index);
        if (np_load(slot->tid) == tid && np_load(slot->process_index) == np_process_index
            && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == NP_SLOT_LIVE) return slot;
    }
    return NULL;
}

NP_COLD struct np_slot *np_self_slow(void) {
    struct np_tls *tls = &np_tls;
    /* With the release in np_attach_process: a thread that comes while another one attaches is not recorded until all that attaching sets up is there. */
    uint32_t attached = __atomic_load_n(&attach_state, __ATOMIC_ACQUIRE);
    if (np_unlikely(attached == ATTACH_NOT_YET)) {
        np_attach_process();
        return tls->slot;
    }
    if (np_unlikely(attached == ATTACH_TRYING || np_load(np_arena) == NULL)) return NULL;
    if (tls->phase == NP_PHASE_BUSY) return NULL;
    if (!*np_fork_canary) np_process_after_fork();
    if (np_load(np_tls_is_shared)) return slot_by_tid(tls);
    if (tls->slot != NULL) return tls->slot;
    if (tls->phase != NP_PHASE_NEW) {
        np_count_lost(tls->phase == NP_PHASE_ENDED ? NP_LOST_AFTER_END : NP_LOST_NO_SLOT, 1);
        return NULL;
    }
    struct np_birth birth = {.parent_thread = NP_NONE32};
    return np_thread_begin(&birth);
}

struct np_slot *np_self(void) {
    struct np_slot *slot = np_slot_here();
    return slot != NULL && !np_is_guarded(slot) ? slot : NULL;
}

struct np_slot *np_self_if_live(void) {
    struct np_slot *slot = np_tls.slot;
    if (slot == NULL || !*np_fork_canary) return NULL;
    if (np_unlikely(np_load(np_tls_is_shared))) slot = slot_by_tid(&np_tls);
    return slot;
}
