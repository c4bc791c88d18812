/* Homes of pages on Arm, where addresses have 48 bits, and the kernel's pages may have 64 KiB: pages.c, with what it needs of the other files made up here. */
#define NP_ADDRESS_BITS 48
#include "pages.c"
#include "pages_common.c"

#include <stdio.h>
#include <stdlib.h>

struct np_arena *np_arena;
struct np_sim np_sim;
_Thread_local struct np_tls np_tls __attribute__((tls_model("initial-exec")));
bool np_confined;
uint32_t np_cycles_per_access_q8;
static uint32_t canary = 1;
uint32_t *np_fork_canary = &canary;
bool np_track_only, np_tls_is_shared;
static uintptr_t page_bytes = 4096;

uintptr_t np_page_bytes(void) { return page_bytes; }
void *np_pages_new(size_t bytes) { return calloc(1, bytes); }
void np_pages_free(void *pages, size_t bytes) { (void)bytes, free(pages); }
uint64_t *np_begin(struct np_slot *slot, enum np_record type, uint64_t value48, unsigned words, uint64_t order) {
    (void)slot, (void)type, (void)value48, (void)words, (void)order;
    return NULL;
}
void np_commit(struct np_slot *slot, unsigned words) { (void)slot, (void)words; }
long np_resident(uint64_t page, uint64_t pages, uint8_t *vector) { return (void)page, (void)pages, (void)vector, -EPERM; }
enum np_backing np_backing(uint64_t page) { return (void)page, NP_BACKING_NONE; }
uint32_t np_backings(uint64_t page, uint32_t pages, enum np_backing *backings) { return (void)page, (void)pages, (void)backings, 0; }
enum np_mapping_kind np_mapping_kind(struct np_slot *slot, uintptr_t address) { return (void)slot, (void)address, NP_KIND_OTHER; }
uint32_t np_write_effects(uint64_t page, uint32_t pages, enum np_write_effect *effects) {
    (void)page;
    for (uint32_t i = 0; i < pages; i++) effects[i] = NP_WRITE_COPIES;
    return pages;
}
bool np_toucher_of(struct np_slot *slot, uint64_t page, struct np_toucher *toucher) { return (void)slot, (void)page, (void)toucher, false; }
bool np_toucher_is_nobody(const struct np_slot *slot, uint64_t page) { return (void)slot, (void)page, false; }
void np_maps_each(bool (*visit)(const struct np_maps_line *line, void *context), void *context) { (void)visit, (void)context; }
struct np_slot *np_self_if_live(void) { return NULL; }
void np_filter_drop_range(struct np_slot *owner, uintptr_t address, size_t bytes) { (void)owner, (void)address, (void)bytes; }
void np_filter_hold_for_reading(struct np_slot *slot) { (void)slot; }

#define HIGH 0xffff90000000ull
#define LOW 0x7f0000000000ull

int main(void) {
    static struct np_slot first, second;
    np_arena = calloc(1, sizeof *np_arena);
    np_arena->config.node_count = 2;
    for (int node = 0; node < 2; node++) {
        np_arena->config.node_has_memory[node] = 1;
        np_sim.memory_node[node] = (uint8_t)node;
    }
    np_sim.memory_nodes = 2;
    np_sim.ready = 1;
    second.node = 1;
    uint32_t touched = np_page_home(&second, HIGH, 1), again = np_page_home(&first, HIGH, 1);
    uint32_t other = np_page_home(&first, HIGH - (1ull << 47), 1), beyond = np_page_home(&first, HIGH + (1ull << 48), 1);
    np_pages_forget(HIGH, 4096);
    printf("%u %u %u %u %d\n", touched, again, other, beyond, np_page_query(HIGH));
    /* The fourth of sixteen in one of the kernel's pages: the first and the last of them, and those before and behind. */
    np_page_home(&second, LOW + 0x13000, 1);
    printf("%d %d", np_page_query(LOW + 0x10000), np_page_query(LOW + 0x1f000));
    np_pages_forget(LOW, 0x30000);
    page_bytes = 65536;
    np_page_home(&second, LOW + 0x13000, 1);
    printf(" %d %d %d %d\n", np_page_query(LOW + 0x10000), np_page_query(LOW + 0x1f000), np_page_query(LOW + 0xf000), np_page_query(LOW + 0x20000));
    /* After a fork the first to write any of them has all of them copied. */
    np_pages_forked();
    np_pages_inherited();
    np_page_written(&first, LOW + 0x15000);
    printf("%d %d %d\n", np_page_query(LOW + 0x10000), np_page_query(LOW + 0x15000), np_page_query(LOW + 0x1f000));
    return 0;
}
