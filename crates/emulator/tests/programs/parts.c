/* Parts of the plugin without an emulator, called as it calls them: a fork and the writes after it (process.c and the runtime's pages_common.c), and repeated
 * copies (access.c). What they call in turn is here, and notes what it was called for. Ends with the number of wrong answers. */
#define _GNU_SOURCE
#include "user.h"
#include "pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { WRITER = 2, OTHER = 1, THIRD = 3 };
#define PAGE 0x7000123ull
#define SLOT_BYTES (64u << 10)

static int wrong;
static void is(const char *what, uint64_t found, uint64_t expected) {
    if (found == expected) return;
    printf("%s: %llu, not %llu\n", what, (unsigned long long)found, (unsigned long long)expected);
    wrong++;
}

/* ---- what the parts call ---- */
struct np_sim np_sim;
struct np_heap *np_heap;
struct np_vtime_process *np_vtime_process;
const struct np_python_known *np_python;
uint64_t *np_unwind_generation;
uint32_t np_cycles_per_access_q8;

static uint32_t expected_node = WRITER, placed, placed_node, placed_cause, misses, write_misses;
static enum np_backing backing = NP_BACKING_PAGE;
static bool is_readable = true;

uint32_t np_backings(uint64_t page, uint32_t pages, enum np_backing *backings) {
    *backings = backing;
    return is_readable ? pages : 0;
}
uint32_t np_page_choose(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page, uint32_t policy, uint32_t *cause) {
    *cause = NP_PLACED_FIRST_TOUCH;
    return toucher->node;
}
uint32_t np_page_expected(struct np_slot *slot, const struct np_toucher *toucher, uint64_t page) { return expected_node; }
void np_page_placed(struct np_slot *slot, uint64_t page, uint32_t node, uint32_t cause) {
    placed++;
    placed_node = node;
    placed_cause = cause;
}
uint8_t np_page_policy(uint64_t page) { return 0; }
bool np_page_populate(uint64_t page, enum next next) { return true; }
uint32_t np_page_overtaken(struct np_slot *slot, uint64_t page, uint8_t *byte, uint32_t node, uint8_t policy) { return node; }
uintptr_t np_page_bytes(void) { return 4096; }
void *np_pages_new(size_t bytes) { return calloc(1, bytes); }
void np_pages_free(void *pages, size_t bytes) { free(pages); }

void np_allocators_after_fork(void) {}
bool np_allocators_follow(uint64_t function) { return false; }
void np_allocators_unmapped(uint64_t address, uint64_t bytes) {}
void np_kernel_asked(int64_t number, uint64_t first, uint64_t second, uint64_t third) {}
void np_kernel_filled(int64_t number, int64_t result) {}
void np_mapping_asked(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6) {}
void np_mapping_made(int64_t number, int64_t result) {}
void np_mapping_slot(struct np_slot *slot) {}
void np_python_after_fork(void) {}
void np_toucher_ended(const struct np_slot *slot) {}

void np_clock_advance(struct np_slot *slot, uint64_t cycles) {}
void np_throttle(struct np_slot *slot) {}
/* As the simulated caches do, the first stage holds the line from now on. */
void np_access_miss(struct np_slot *slot, uintptr_t address, uint32_t bits, struct np_regs caller) {
    uint64_t key = np_key_of(address, slot->line_mask, slot->line_pick);
    uint64_t *entries = (uint64_t *)(void *)((char *)slot + NP_FILTER_OFFSET);
    misses++;
    write_misses += (bits & NP_ACC_WRITE) != 0;
    entries[key & slot->l1_mask] = key << 1 | ((bits & NP_ACC_WRITE) != 0);
}

/* ---- a process and its tracker ---- */
static struct np_sim trackers;
static struct np_arena *arena;
static struct np_slot *slot;
static uint32_t canary = 1;
static uint64_t order;
static struct np_marked marked = {UINT64_MAX, 0};

static void call(int64_t number, uint64_t a1, uint64_t a2) { np_on_system_call(0, 0, number, a1, a2, 0, 0, 0, 0, 0, 0); }

static void begin(void) {
    size_t head = (sizeof *arena + 4095) & -(size_t)4096;
    arena = aligned_alloc(4096, head + SLOT_BYTES);
    memset(arena, 0, head + SLOT_BYTES);
    arena->slots_offset = head;
    arena->slot_bytes = SLOT_BYTES;
    arena->slot_count = 1;
    slot = (struct np_slot *)(void *)((char *)arena + head);
    slot->node = WRITER;
    slot->l1_mask = 255;
    struct np_emulator_hello hello = {
        .magic = NP_EMULATOR_MAGIC, .abi = NP_EMULATOR_ABI, .arena = arena, .sim = &trackers, .marked = &marked, .fork_canary = &canary, .fork_order = &order,
        .leaves = calloc(NP_LEAVES, sizeof(uint8_t *)),
    };
    call(NP_SYSCALL_EMULATOR, NP_EMULATOR_HELLO, (uint64_t)&hello);
    is("the plugin takes part", hello.answer, 1);
    call(NP_SYSCALL_EMULATOR, NP_EMULATOR_SLOT, (uint64_t)slot);
    is("the thread has its slot", np_guest.slot == slot, 1);
}

/* Where a page of OTHER comes to lie that the thread on WRITER writes. */
static uint8_t written(uint8_t byte) {
    *byte_of(PAGE, true) = byte;
    placed = 0;
    placed_node = placed_cause = UINT32_MAX;
    np_page_mark(PAGE);
    is("marks are looked for", np_may_be_marked(PAGE << NP_PAGE_SHIFT), 1);
    np_page_written(slot, PAGE << NP_PAGE_SHIFT);
    return *byte_of(PAGE, true);
}

static void files(void) {
    is("a file's page is copied for the writer", written(marked_byte(OTHER)), WRITER + BYTE_HOME);
    is("which is told", placed, 1);
    is("of its node", placed_node, WRITER);
    is("as a first touch", placed_cause, NP_PLACED_FIRST_TOUCH);
    backing = NP_BACKING_FILE;
    is("shared memory stays", written(marked_byte(OTHER)), OTHER + BYTE_HOME);
    is("and nothing is told", placed, 0);
    backing = NP_BACKING_PAGE;
}

static void forks(void) {
    trackers.forked = 1; /* by the tracker's handler, before the call */
    call(SYS_fork, 0, 0);
    is("the parent knows that it forks", np_sim.forked, 1);
    is("and its stamp", np_guest.fork_order != 0, 1);
    pid_t child = fork();
    np_on_system_call_result(0, 0, SYS_fork, child);
    if (child == 0) {
        is("the child writes nothing to its parent's slot", np_guest.slot == NULL, 1);
        is("the tracker in it is told", canary, 0);
        is("with the stamp before the fork", order, np_guest.fork_order);
        is("and it knows that it was forked", np_sim.forked, 1);
        fflush(stdout);
        _exit(wrong);
    }
    int status;
    waitpid(child, &status, 0);
    is("the child ends as expected", (uint64_t)status, 0);
    is("the parent keeps its slot", np_guest.slot == slot && canary == 1, 1);
}

static void copies(void) {
    is("a copy would lie elsewhere", written(marked_byte(OTHER)), BYTE_UNKNOWN);
    is("which is told", placed, 1);
    is("as unknown", placed_cause, NP_PLACED_UNKNOWN);
    is("a copy would lie where the page did", written(marked_byte(WRITER)), WRITER + BYTE_HOME);
    is("so nothing is told", placed, 0);
    expected_node = THIRD;
    is("the thread's policy says where", written(marked_byte(THIRD)), THIRD + BYTE_HOME);
    expected_node = NP_NONE16;
    is("it places pages by turns", written(marked_byte(WRITER)), BYTE_UNKNOWN);
    expected_node = WRITER;
    is_readable = false;
    is("the kernel does not answer", written(marked_byte(OTHER)), BYTE_UNKNOWN);
    is_readable = true;
    is("the process's own page stays", written(OTHER + BYTE_HOME), OTHER + BYTE_HOME);
    is("and nothing is told", placed, 0);
}

/* From 8 bytes into a line on, `bytes` of them. */
static void repeats(unsigned step, uint64_t bytes, bool goes_down) {
    uint64_t from = 0x10000008, lines = (from + bytes - 1) / 64 - from / 64 + 1;
    memset((char *)slot + NP_FILTER_OFFSET, 0, SLOT_BYTES - NP_FILTER_OFFSET);
    slot->accesses = slot->stall_cycles = 0;
    misses = write_misses = 0;
    for (uint64_t at = 0; at < bytes; at += step)
        np_on_repeated(0, np_store_bit, from + (goes_down ? bytes - step - at : at), (void *)((uint64_t)step << NP_SITE_CHARGE_SHIFT | 0x401000));
    is("every line is looked up", misses, lines);
    is("for writing", write_misses, lines);
    uint64_t blocks = (from + bytes - 1) / 32 - (from + 31) / 32 + 1;
    is("an access for every 32 bytes", slot->accesses, blocks);
    is("and a cycle", slot->stall_cycles, blocks);
}

int main(void) {
    np_store_bit = 1u << 17;
    begin();
    files();
    forks();
    copies();
    for (unsigned step = 1; step <= 8; step *= 2) {
        repeats(step, 4096, false);
        repeats(step, 4096, true);
        repeats(step, 96, false);
    }
    return wrong;
}
