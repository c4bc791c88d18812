/* false-sharing: pages that hold objects of several threads, each used by one thread only. Usage: false-sharing TRACE */
#include "script.h"

/* Of an object that several threads accessed. */
#define SHARED (NUMAPILOT_NONE - 1)

typedef struct sample {
    uint64_t page;
    uint32_t process, object, thread, weight;
    uint16_t node;
    bool is_remote;
} sample;

/* A page's row. */
typedef struct meeting {
    uint64_t page, samples, accesses, remote_accesses, objects, threads, nodes;
    uint32_t process;
} meeting;

static int compare_samples(const void *left, const void *right) {
    const sample *a = left, *b = right;
    if (a->process != b->process) return a->process < b->process ? -1 : 1;
    return a->page < b->page ? -1 : a->page > b->page;
}

static int compare_meetings(const void *left, const void *right) {
    const meeting *a = left, *b = right;
    if (a->accesses != b->accesses) return a->accesses < b->accesses ? 1 : -1;
    if (a->process != b->process) return a->process < b->process ? -1 : 1;
    return a->page < b->page ? -1 : a->page > b->page;
}

static int compare_numbers(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* How many different numbers there are, `none` left out. */
static uint64_t different(uint32_t *numbers, size_t count, uint32_t none) {
    uint64_t found = 0;
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    for (size_t i = 0; i < count; i++) found += numbers[i] != none && (i == 0 || numbers[i] != numbers[i - 1]);
    return found;
}

static meeting meeting_of(const sample *first, size_t count, uint32_t *numbers) {
    meeting row = {.page = first->page, .process = first->process, .samples = count};
    for (size_t i = 0; i < count; i++) {
        row.accesses += first[i].weight;
        row.remote_accesses += first[i].is_remote ? first[i].weight : 0;
    }
    for (size_t i = 0; i < count; i++) numbers[i] = first[i].object;
    row.objects = different(numbers, count, NUMAPILOT_NONE);
    for (size_t i = 0; i < count; i++) numbers[i] = first[i].thread;
    row.threads = different(numbers, count, NUMAPILOT_NONE);
    for (size_t i = 0; i < count; i++) numbers[i] = first[i].node;
    row.nodes = different(numbers, count, NUMAPILOT_NO_NODE);
    return row;
}

/* The one thread of each object; SHARED, or NUMAPILOT_NONE where there was no access. */
static uint32_t *users_of(const script *self) {
    uint32_t *users = script_memory(self->info.objects, sizeof *users);
    for (size_t object = 0; object < self->info.objects; object++) users[object] = NUMAPILOT_NONE;
    numapilot_flow flow = script_flow(self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access) || access->object == NUMAPILOT_NONE) continue;
        uint32_t *user = &users[access->object];
        *user = *user == NUMAPILOT_NONE || *user == access->thread ? access->thread : SHARED;
    }
    numapilot_flow_close(flow);
    return users;
}

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    uint32_t *users = users_of(&self);
    sample *samples = script_memory(self.info.accesses, sizeof *samples);
    size_t count = 0, pages = 0;
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access) || access->object == NUMAPILOT_NONE || users[access->object] == SHARED) continue;
        samples[count++] = (sample){access->address / 4096 * 4096, self.process_of[access->thread], access->object, access->thread,
                                    access->weight,                access->node,                    script_is_remote(access)};
    }
    numapilot_flow_close(flow);
    qsort(samples, count, sizeof *samples, compare_samples);
    meeting *meetings = script_memory(count, sizeof *meetings);
    uint32_t *numbers = script_memory(count, sizeof *numbers);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && compare_samples(&samples[first], &samples[end]) == 0;) end++;
        meeting row = meeting_of(samples + first, end - first, numbers);
        if (row.threads >= 2 && row.nodes >= 2) meetings[pages++] = row;
    }
    qsort(meetings, pages, sizeof *meetings, compare_meetings);
    puts("process,page,objects,threads,nodes,samples,accesses,remote_accesses");
    for (const meeting *row = meetings; row < meetings + pages; row++) {
        printf("%" PRIu32, row->process);
        const uint64_t cells[] = {row->page, row->objects, row->threads, row->nodes, row->samples, row->accesses, row->remote_accesses};
        for (size_t cell = 0; cell < sizeof cells / sizeof *cells; cell++) script_number(cells[cell]);
        putchar('\n');
    }
    free(users), free(samples), free(meetings), free(numbers);
    return script_end(&self);
}
