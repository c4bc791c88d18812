/* harness.c: a recorder in little, for tests of the simulated memory system: `harness TRACKER PERIOD PLACEMENT PROGRAM ARGS...`
 *
 * Makes an arena for a machine of four nodes with four CPUs each, runs the program under the tracker, drains the rings while it runs, and prints
 * one `name value...` line per thread and in total, of the exact counters and of the weighted samples. SEED, CPUS, WINDOW and BIND come from the
 * environment. Exits with the program's status. */
#define _GNU_SOURCE
#include "wire.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 80u
#define RING (1u << 20)
#define L1 1024u
#define SETS 1024u
#define WAYS 9u
#define L3_SETS 8192u
#define L3_WAYS 12u
#define DIRECTORY_LOG2 20u

static struct np_arena *arena;
static uint64_t weights[4], weights_written, weights_peer, samples, placed_pages[4], moved_pages, places, records, cpu_changes;
static uint64_t given_runs, given_pages;
static uint64_t counted[10], counted_home[4];

static uint64_t up(uint64_t value) { return (value + 4095) / 4096 * 4096; }
static uint32_t setting(const char *name, uint32_t value) { return getenv(name) ? (uint32_t)strtoul(getenv(name), NULL, 0) : value; }

static void configure(struct np_config *config, char **argv) {
    config->mode = NP_MODE_INSTRUMENT;
    config->bind = setting("BIND", NP_BIND_SPREAD);
    config->placement = (uint32_t)atoi(argv[3]);
    config->node_count = 4;
    config->cpu_count = setting("CPUS", 16);
    config->clock_khz = 2300000;
    config->seed = setting("SEED", 1);
    config->sample_period = strtoull(argv[2], NULL, 0);
    config->sample_rate_hz = 10000;
    config->window_cycles = setting("WINDOW", 230000);
    config->cycles_per_access_q8 = 256;
    config->l1_lines = L1;
    config->line_sampling = setting("LINES", 0);
    uint32_t sampled = config->line_sampling ? config->line_sampling : 1;
    config->core_window = setting("LOOKAHEAD", 0);
    config->core_misses = 10;
    config->l2_sets = SETS / sampled;
    config->l2_ways = WAYS;
    config->l3_sets = L3_SETS / sampled;
    config->l3_ways = L3_WAYS;
    config->l3_count = 4;
    config->l2_cycles = 16;
    config->l3_cycles = 56;
    config->dir_entries_log2 = DIRECTORY_LOG2;
    config->max_stack_depth = 32;
    for (uint32_t from = 0; from < 4; from++) {
        config->node_has_memory[from] = !(setting("MEMORYLESS", 99) == from);
        for (uint32_t to = 0; to < 4; to++) {
            config->memory_latency_cycles[from][to] = from == to ? 230 : 300;
            config->node_order[from][to] = (uint8_t)((from + to) % 4);
        }
    }
    for (uint32_t cpu = 0; cpu < 16; cpu++) {
        config->cpu_order[cpu] = (uint16_t)((cpu % 4) * 4 + cpu / 4);
        config->cpu_node[cpu] = config->cpu_l3[cpu] = (uint16_t)(cpu / 4);
    }
}

static int make_arena(char **argv) {
    struct np_arena header = {.magic = NP_ARENA_MAGIC, .version = NP_ARENA_VERSION};
    configure(&header.config, argv);
    header.header_bytes = (uint32_t)up(sizeof header);
    header.sync_offset = header.header_bytes;
    header.dir_offset = up(header.sync_offset + (16ull << 16));
    header.l3_offset = up(header.dir_offset + (8ull << DIRECTORY_LOG2));
    header.slots_offset = up(header.l3_offset + 4ull * L3_SETS * L3_WAYS * 4);
    header.slot_count = SLOTS;
    header.filter_offset = NP_FILTER_OFFSET;
    header.filter_bytes = (uint32_t)up(L1 * 8 + SETS * WAYS * 4);
    header.ring_offset = header.filter_offset + header.filter_bytes;
    header.ring_bytes = RING;
    header.slot_bytes = header.ring_offset + RING;
    header.arena_bytes = up(header.slots_offset + (uint64_t)SLOTS * header.slot_bytes);
    header.recorder_pid = (uint32_t)getpid();
    header.state = NP_STATE_RUN;
    header.next_stack_id = header.next_module_id = header.next_code_id = 1;
    int fd = memfd_create("arena", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)header.arena_bytes) != 0) return -1;
    arena = mmap(NULL, header.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (arena == MAP_FAILED) return -1;
    memcpy(arena, &header, sizeof header);
    return fd;
}

static void take_access(const uint64_t *w) {
    uint64_t weight = w[3] >> 32, home = w[4] & 0xffff;
    samples++;
    if (home < 4) weights[home] += weight;
    if (w[2] & NP_ACCESS_WRITE) weights_written += weight;
    if ((w[2] >> NP_ACCESS_LEVEL_SHIFT & 15) == NP_LEVEL_PEER_CACHE) weights_peer += weight;
    if (getenv("DUMP")) printf("sample %" PRIx64 " ip %" PRIx64 " weight %" PRIu64 " home %" PRIu64 " cpu %" PRIu64 "\n",
           w[0] >> 16, w[2] >> 16, weight, home, w[4] >> 16 & 0xffff);
}

static uint64_t counted_cycles, counted_streamed, counted_dependent;

static void take_counters(const uint64_t *w, bool print) {
    if (!print) return;
    printf("thread %" PRIu64 " accesses %" PRIu64 " l2 %" PRIu64 " l3 %" PRIu64 " memory %" PRIu64 " peer %" PRIu64 " written %" PRIu64
           " home %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
           w[0] >> 16, w[2], w[3], w[4], w[5], w[6], w[7], w[10], w[11], w[12], w[13]);
    for (int i = 2; i < 9; i++) counted[i] += w[i];
    for (int i = 0; i < 4; i++) counted_home[i] += w[10 + i];
    counted_cycles += w[14];
    counted_streamed += w[15];
    counted_dependent += w[16];
}

/* The last counters of each slot's current thread: printed when the thread ends. */
static uint64_t last_counters[SLOTS][17];
static bool has_counters[SLOTS];

static void take(uint32_t index, const uint64_t *w) {
    records++;
    switch ((enum np_record)(w[0] & 0xff)) {
    case NP_REC_ACCESS: take_access(w); break;
    case NP_REC_CPU: cpu_changes++; break;
    case NP_REC_COUNTERS:
        memcpy(last_counters[index], w, sizeof last_counters[index]);
        has_counters[index] = true;
        break;
    case NP_REC_PLACE:
        places++;
        if (w[2] >> 48 == NP_PLACED_MOVED) moved_pages += w[2] & 0xffffffff;
        else placed_pages[w[2] >> 32 & 3] += w[2] & 0xffffffff;
        break;
    case NP_REC_FILE:
        given_runs += w[6] != 0;
        given_pages += w[6] / 4096;
        break;
    case NP_REC_THREAD_START: has_counters[index] = false; break;
    case NP_REC_THREAD_END:
        if (has_counters[index]) take_counters(last_counters[index], true);
        has_counters[index] = false;
        break;
    default: break;
    }
}

static uint64_t words_of(const uint64_t *w) {
    uint64_t words = w[0] >> 8 & 0xff;
    if (words != 0) return words;
    return 0;
}

static bool drain(void) {
    bool any = false;
    for (uint32_t index = 0; index < arena->slots_high && index < SLOTS; index++) {
        struct np_slot *slot = (struct np_slot *)((char *)arena + arena->slots_offset + (uint64_t)index * arena->slot_bytes);
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE), tail = slot->tail;
        const char *ring = (char *)slot + arena->ring_offset;
        while (tail < head) {
            const uint64_t *w = (const uint64_t *)(ring + tail % RING);
            any = true;
            uint64_t words = words_of(w);
            if ((w[0] & 0xff) == NP_REC_PAD) {
                tail += w[0] >> 16;
            } else if (words == 0) {
                tail = head; /* a long record (names): not for these tests */
            } else {
                take(index, w);
                tail += words * 8;
            }
        }
        __atomic_store_n(&slot->tail, tail, __ATOMIC_RELEASE);
        if (state == NP_SLOT_CLOSED && head == __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE)) __atomic_store_n(&slot->state, NP_SLOT_FREE, __ATOMIC_RELEASE);
    }
    return any;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int fd = make_arena(argv);
    if (fd < 0) return 2;
    char named[64];
    snprintf(named, sizeof named, "/proc/%d/fd/%d", (int)getpid(), fd);
    pid_t child = fork();
    if (child == 0) {
        setenv("NUMAPILOT_ARENA", named, 1);
        setenv("LD_PRELOAD", argv[1], 1);
        execv(argv[4], argv + 4);
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (!drain()) usleep(2000);
    }
    for (int rounds = 0; rounds < 20 && (drain() || rounds < 3); rounds++) usleep(1000);
    for (uint32_t index = 0; index < SLOTS; index++)
        if (has_counters[index]) take_counters(last_counters[index], true);
    printf("total accesses %" PRIu64 " l2 %" PRIu64 " l3 %" PRIu64 " memory %" PRIu64 " peer %" PRIu64 " written %" PRIu64 " cycles %" PRIu64
           " streamed %" PRIu64 " dependent %" PRIu64 "\n",
           counted[2], counted[3], counted[4], counted[5], counted[6], counted[7], counted_cycles, counted_streamed, counted_dependent);
    printf("home %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", counted_home[0], counted_home[1], counted_home[2], counted_home[3]);
    printf("samples %" PRIu64 " weight %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " written %" PRIu64 " peer %" PRIu64 "\n",
           samples, weights[0], weights[1], weights[2], weights[3], weights_written, weights_peer);
    printf("placed %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " moved %" PRIu64 " places %" PRIu64 "\n",
           placed_pages[0], placed_pages[1], placed_pages[2], placed_pages[3], moved_pages, places);
    printf("given %" PRIu64 " runs %" PRIu64 "\n", given_pages, given_runs);
    printf("cpus %" PRIu64 " records %" PRIu64 " lost %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
           cpu_changes, records, arena->lost_no_slot, arena->lost_full, arena->lost_stopped);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
