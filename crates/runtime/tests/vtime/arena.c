/* arena.c: makes an arena for tests: `arena FILE WINDOW CPUS BIND MODE RECORDER_PID`. */
#define _GNU_SOURCE
#include "wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t up(uint64_t value) { return (value + 4095) / 4096 * 4096; }

static void configure(struct np_config *config, char **argv) {
    config->mode = (uint32_t)atoi(argv[5]);
    config->bind = (uint32_t)atoi(argv[4]);
    config->node_count = 4;
    config->cpu_count = (uint32_t)atoi(argv[3]);
    config->clock_khz = 2500000;
    config->seed = 1;
    config->sample_rate_hz = 10000;
    config->window_cycles = (uint32_t)atoi(argv[2]);
    config->cycles_per_access_q8 = 256;
    config->l1_lines = 256;
    config->l2_sets = 512;
    config->l2_ways = 8;
    config->l3_sets = 1024;
    config->l3_ways = 16;
    config->l3_count = 4;
    config->l2_cycles = 14;
    config->l3_cycles = 40;
    config->dir_entries_log2 = 14;
    config->max_stack_depth = 16;
    for (int from = 0; from < 4; from++) {
        config->node_has_memory[from] = 1;
        for (int to = 0; to < 4; to++) {
            config->memory_latency_cycles[from][to] = from == to ? 200 : 300;
            config->node_order[from][to] = (uint8_t)((from + to) % 4);
        }
    }
    for (uint32_t cpu = 0; cpu < NP_MAX_CPUS; cpu++) {
        config->cpu_order[cpu] = (uint16_t)cpu;
        config->cpu_node[cpu] = config->cpu_l3[cpu] = (uint16_t)(cpu % 4);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    static struct np_arena arena;
    configure(&arena.config, argv);
    arena.magic = NP_ARENA_MAGIC;
    arena.version = NP_ARENA_VERSION;
    arena.header_bytes = (uint32_t)up(sizeof arena);
    arena.slots_offset = arena.header_bytes;
    arena.slot_count = 128;
    arena.filter_offset = (uint32_t)up(sizeof(struct np_slot));
    arena.filter_bytes = (uint32_t)up(256 * 8 + 512 * 8 * 4);
    arena.ring_offset = arena.filter_offset + arena.filter_bytes;
    arena.ring_bytes = 1 << 18;
    arena.slot_bytes = arena.ring_offset + arena.ring_bytes;
    arena.l3_offset = arena.slots_offset + (uint64_t)arena.slot_count * arena.slot_bytes;
    arena.dir_offset = up(arena.l3_offset + 4ull * 1024 * 16 * 4);
    arena.sync_offset = up(arena.dir_offset + (8ull << 14));
    arena.arena_bytes = up(arena.sync_offset + (16ull << 16));
    arena.recorder_pid = (uint32_t)atoi(argv[6]);
    arena.state = NP_STATE_RUN;
    arena.next_module_id = arena.next_stack_id = arena.next_code_id = 1;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)arena.arena_bytes) != 0) return 1;
    return write(fd, &arena, sizeof arena) == (ssize_t)sizeof arena ? 0 : 1;
}
