/* feeder.c: plays the kernel's part of a sampling PMU inside a guest. The plugin's sampler writes its samples to a file that the guest sees; here they go
 * on into rings laid out as an event's memory (`struct perf_event_mmap_page`), one for each CPU, around their ends, stamped with this moment, and counted as
 * lost where a ring has no room: what a recorder maps and reads as the kernel's own.
 *
 * feeder SAMPLES FOLDER CPUS PAGES PERIOD NAME: makes FOLDER/ring.N and FOLDER/event, then FOLDER/ready; ends when NAME.done is there and all samples are
 * handed over, which NAME.drained says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_CPUS = 64, BATCH = 4096 };
#define EVENT_ID 0x6e70ull
/* Fields after the identifier as plugin/sampler.c writes them. */
#define FIELDS                                                                                                                              \
    (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_WEIGHT | \
     PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_PHYS_ADDR)

/* A record of the plugin. */
struct given {
    struct perf_event_header header;
    uint64_t ip;
    uint32_t pid, tid;
    uint64_t time, address;
    uint32_t cpu, zero;
    uint64_t period, weight, data_source, physical;
};

/* The same as an event with an identifier would have it. */
struct sample {
    struct perf_event_header header;
    uint64_t identifier, ip;
    uint32_t pid, tid;
    uint64_t time, address;
    uint32_t cpu, zero;
    uint64_t period, weight, data_source, physical;
};

struct loss {
    struct perf_event_header header;
    uint64_t id, count;
    /* The trailer that sample_id_all asks for. */
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, zero;
    uint64_t identifier;
};

struct ring {
    struct perf_event_mmap_page *control;
    char *data;
    uint64_t lost;
};
static struct ring rings[MAX_CPUS];
static uint64_t data_bytes;

static void fail(const char *what) {
    perror(what);
    exit(5);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int create(const char *folder, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail(path);
    return fd;
}

static void make_ring(const char *folder, int cpu) {
    char name[32];
    snprintf(name, sizeof name, "ring.%d", cpu);
    int fd = create(folder, name);
    if (ftruncate(fd, (off_t)(PAGE + data_bytes)) != 0) fail("ring");
    char *memory = mmap(NULL, PAGE + data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("ring");
    rings[cpu].control = (void *)memory;
    rings[cpu].data = memory + PAGE;
    rings[cpu].control->data_offset = PAGE;
    rings[cpu].control->data_size = data_bytes;
    /* Near the end, so that even a few records go around it. */
    rings[cpu].control->data_head = rings[cpu].control->data_tail = data_bytes - 200;
    close(fd);
}

static void describe(const char *folder, uint64_t period) {
    struct {
        struct perf_event_attr attr;
        char rest[136 - sizeof(struct perf_event_attr) > 0 ? 136 - sizeof(struct perf_event_attr) : 1];
    } event;
    uint64_t id = EVENT_ID;
    memset(&event, 0, sizeof event);
    event.attr.type = 0x6e70; /* no kernel gives this number */
    event.attr.size = 136;
    event.attr.sample_period = period;
    event.attr.sample_type = PERF_SAMPLE_IDENTIFIER | FIELDS;
    event.attr.sample_id_all = 1;
    int fd = create(folder, "event");
    if (write(fd, &event, 136) != 136 || write(fd, &id, sizeof id) != sizeof id) fail("event");
    close(fd);
}

static void put(struct ring *ring, uint64_t at, const void *bytes, size_t count) {
    uint64_t start = at & (data_bytes - 1);
    size_t first = count < data_bytes - start ? count : data_bytes - start;
    memcpy(ring->data + start, bytes, first);
    memcpy(ring->data, (const char *)bytes + first, count - first);
}

/* As perf_output_begin and perf_output_end do. */
static void emit(struct ring *ring, unsigned cpu, const struct sample *sample) {
    uint64_t tail = __atomic_load_n(&ring->control->data_tail, __ATOMIC_ACQUIRE), head = ring->control->data_head;
    struct loss loss = {
        .header = {PERF_RECORD_LOST, 0, sizeof loss}, .id = EVENT_ID, .count = ring->lost, .time = sample->time, .cpu = cpu, .identifier = EVENT_ID};
    size_t before = ring->lost > 0 ? sizeof loss : 0;
    if (head + before + sizeof *sample - tail > data_bytes) {
        ring->lost++;
        return;
    }
    if (before > 0) put(ring, head, &loss, before);
    put(ring, head + before, sample, sizeof *sample);
    ring->lost = 0;
    __atomic_store_n(&ring->control->data_head, head + before + sizeof *sample, __ATOMIC_RELEASE);
}

/* Hands over what the file has by now; how many samples. */
static size_t hand_over(int samples, off_t *at, unsigned cpus) {
    static struct given batch[BATCH];
    ssize_t read = pread(samples, batch, sizeof batch, *at);
    if (read < 0) fail("samples");
    size_t count = (size_t)read / sizeof batch[0];
    for (size_t i = 0; i < count; i++) {
        const struct given *g = &batch[i];
        if (g->cpu >= cpus) continue;
        struct sample sample = {.header = {g->header.type, g->header.misc, sizeof sample}, .identifier = EVENT_ID, .ip = g->ip, .pid = g->pid, .tid = g->tid,
                                .time = now(), .address = g->address, .cpu = g->cpu, .period = g->period, .weight = g->weight,
                                .data_source = g->data_source, .physical = g->physical};
        emit(&rings[g->cpu], g->cpu, &sample);
    }
    *at += (off_t)(count * sizeof batch[0]);
    return count;
}

int main(int count, char **arguments) {
    if (count != 7) return 2;
    unsigned cpus = (unsigned)atoi(arguments[3]);
    data_bytes = (uint64_t)atoi(arguments[4]) * PAGE;
    if (cpus > MAX_CPUS) return 2;
    for (unsigned cpu = 0; cpu < cpus; cpu++) make_ring(arguments[2], (int)cpu);
    describe(arguments[2], strtoull(arguments[5], NULL, 10));
    int samples = open(arguments[1], O_RDONLY | O_CLOEXEC);
    if (samples < 0) fail(arguments[1]);
    close(create(arguments[2], "ready"));
    char done[256], drained[256];
    snprintf(done, sizeof done, "%s.done", arguments[6]);
    snprintf(drained, sizeof drained, "%s.drained", arguments[6]);
    off_t at = 0;
    size_t total = 0;
    for (;;) {
        int is_end = access(done, F_OK) == 0;
        size_t handed = hand_over(samples, &at, cpus);
        total += handed;
        if (handed == 0 && is_end) break;
        if (handed == 0) usleep(1000);
    }
    /* The last ones' stamps lie in the past. */
    usleep(2000);
    close(create("/", drained + 1));
    fprintf(stderr, "feeder: %zu samples\n", total);
    return 0;
}
