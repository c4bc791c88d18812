/* misuse.c: what nobody should do, and what then happens: a code and a message, never a crash. Usage: misuse TRACE */
#include <numapilot.h>
/* Headers of a program may each include it. */
#include <numapilot.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(code, call)                                                                                             \
    do {                                                                                                               \
        int got = (call);                                                                                              \
        if (got != (code) || (got != NUMAPILOT_OK && !*numapilot_message())) {                                         \
            fprintf(stderr, "misuse: line %d: %s, not " #code ": %s\n", __LINE__, numapilot_code_name(got), numapilot_message()); \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static numapilot_trace trace;
static numapilot_flow shared;
static atomic_ulong walked, busy;
static atomic_bool is_over;

static void *walk_own(void *unused) {
    (void)unused;
    for (int round = 0; round < 20; round++) {
        numapilot_flow flow;
        EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, NULL, &flow));
        unsigned long count = 0;
        numapilot_foreach (flow, access) count += access->weight > 0;
        atomic_fetch_add(&walked, count);
        EXPECT(NUMAPILOT_OK, numapilot_flow_close(flow));
    }
    return NULL;
}

static void *walk_shared(void *unused) {
    (void)unused;
    numapilot_access rows[16];
    while (!atomic_load(&is_over)) {
        size_t count;
        int code = numapilot_flow_next(shared, rows, 16, sizeof rows[0], &count);
        if (code == NUMAPILOT_BUSY) atomic_fetch_add(&busy, 1);
        else if (code != NUMAPILOT_OK) exit(3);
        if (code == NUMAPILOT_OK && count == 0) numapilot_flow_rewind(shared);
    }
    return NULL;
}

static void in_threads_and_children(void) {
    pthread_t threads[6];
    EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, NULL, &shared));
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, i < 3 ? walk_own : walk_shared, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            numapilot_flow flow;
            numapilot_access rows[16];
            size_t count = 0, all = 0;
            EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, NULL, &flow));
            do {
                EXPECT(NUMAPILOT_OK, numapilot_flow_next(flow, rows, 16, sizeof rows[0], &count));
                all += count;
            } while (count > 0);
            EXPECT(NUMAPILOT_OK, numapilot_flow_close(flow));
            EXPECT(NUMAPILOT_OK, numapilot_trace_close(trace));
            _exit(all > 0 ? 0 : 4);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) exit(5);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    atomic_store(&is_over, true);
    for (int i = 3; i < 6; i++) pthread_join(threads[i], NULL);
    EXPECT(NUMAPILOT_OK, numapilot_flow_close(shared));
}

static void wrong_arguments(void) {
    numapilot_trace none = {0}, other;
    numapilot_flow flow, no_flow = {0};
    numapilot_object object = {.type_size = sizeof object};
    numapilot_access rows[2];
    size_t count;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_trace_open(NULL, &other));
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_trace_open("x", NULL));
    EXPECT(NUMAPILOT_IO, numapilot_trace_open("/nowhere/at.all", &other));
    EXPECT(NUMAPILOT_BAD_TRACE, numapilot_trace_open("/", &other));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_trace_close(none));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_trace_close((numapilot_trace){~0ull}));
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_object_at(trace, 0, NULL));
    EXPECT(NUMAPILOT_NOT_FOUND, numapilot_object_at(trace, 4000000000u, &object));
    /* A program that was built before numapilot_info grew. */
    numapilot_info info = {.type_size = offsetof(numapilot_info, is_interrupted), .is_interrupted = 77};
    EXPECT(NUMAPILOT_OK, numapilot_trace_info(trace, &info));
    if (info.is_interrupted != 77) abort();
    object.type_size = 0;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_object_at(trace, 0, &object));
    object.type_size = (size_t)-1;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_object_at(trace, 0, &object));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_flow_next(no_flow, rows, 2, sizeof rows[0], &count));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_flow_next((numapilot_flow){trace.handle}, rows, 2, sizeof rows[0], &count));
    EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, NULL, &flow));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_trace_close((numapilot_trace){flow.handle}));
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_flow_next(flow, rows, 2, 12, &count));
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_flow_next(flow, NULL, 2, sizeof rows[0], &count));
    EXPECT(NUMAPILOT_OK, numapilot_flow_next(flow, rows, 0, sizeof rows[0], &count));
    numapilot_filter filter = NUMAPILOT_FILTER_ALL;
    filter.conditions = 1u << 30;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_flow_open(trace, &filter, &no_flow));
    filter.conditions = NUMAPILOT_CONDITION_THREAD;
    filter.thread = 4000000000u;
    EXPECT(NUMAPILOT_NOT_FOUND, numapilot_flow_open(trace, &filter, &no_flow));
    filter.conditions = 0;
    filter.from_ns = 5;
    filter.to_ns = 5;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_flow_open(trace, &filter, &no_flow));
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_export_accesses(trace, NULL, NULL));
    EXPECT(NUMAPILOT_OK, numapilot_flow_close(flow));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_flow_close(flow));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_flow_rewind(flow));
}

/* A caller of a later version: its struct is larger, and what we do not know must be zero. */
static void structs_of_other_versions(void) {
    struct {
        numapilot_filter filter;
        uint64_t more;
    } later = {.filter = {.type_size = sizeof later}};
    numapilot_flow flow;
    EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, &later.filter, &flow));
    EXPECT(NUMAPILOT_OK, numapilot_flow_close(flow));
    later.more = 1;
    EXPECT(NUMAPILOT_BAD_ARGUMENT, numapilot_flow_open(trace, &later.filter, &flow));
    struct {
        numapilot_info info;
        uint64_t more;
    } newer = {.info = {.type_size = sizeof newer}, .more = 77};
    EXPECT(NUMAPILOT_OK, numapilot_trace_info(trace, &newer.info));
    if (newer.info.accesses == 0 || newer.more != 0) exit(7);
}

/* What outlives its trace's handle. */
static void late_use(void) {
    numapilot_flow flow;
    numapilot_object object = {.type_size = sizeof object};
    struct ArrowArrayStream stream;
    struct ArrowArray array;
    EXPECT(NUMAPILOT_OK, numapilot_flow_open(trace, NULL, &flow));
    EXPECT(NUMAPILOT_OK, numapilot_export_accesses(trace, NULL, &stream));
    EXPECT(NUMAPILOT_OK, numapilot_trace_close(trace));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_trace_close(trace));
    EXPECT(NUMAPILOT_BAD_HANDLE, numapilot_object_at(trace, 0, &object));
    unsigned long flowed = 0, streamed = 0;
    numapilot_foreach (flow, access) flowed += access->weight;
    while (stream.get_next(&stream, &array) == 0 && array.release) {
        const struct ArrowArray *weight = array.children[array.n_children - 1];
        for (int64_t i = 0; i < array.length; i++) streamed += ((const uint32_t *)weight->buffers[1])[i];
        array.release(&array);
    }
    stream.release(&stream);
    EXPECT(NUMAPILOT_OK, numapilot_flow_close(flow));
    if (flowed == 0 || flowed != streamed) exit(6);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    EXPECT(NUMAPILOT_OK, numapilot_trace_open(argv[1], &trace));
    wrong_arguments();
    structs_of_other_versions();
    in_threads_and_children();
    late_use();
    printf("misuse ok walked %lu\n", (unsigned long)walked);
    return 0;
}
