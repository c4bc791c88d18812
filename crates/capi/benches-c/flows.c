/* flows.c: how fast flows are walked from C, by numapilot_foreach: all accesses as one flow, then every thread's flow, then every object's.
 *
 * Usage: flows TRACE ROUNDS. A line of JSON for each kind of flow and round: accesses walked, seconds, and the sum of their weights. */
#define _GNU_SOURCE
#include <numapilot.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct walked {
    uint64_t accesses, weight, remote_weight;
};

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fail(void) {
    fprintf(stderr, "flows: %s\n", numapilot_message());
    exit(1);
}

static void walk(numapilot_trace trace, const numapilot_filter *filter, struct walked *sum) {
    numapilot_flow flow;
    if (numapilot_flow_open(trace, filter, &flow) != NUMAPILOT_OK) fail();
    numapilot_foreach (flow, access) {
        sum->accesses++;
        sum->weight += access->weight;
        if (access->flags & NUMAPILOT_ACCESS_FLAG_REMOTE) sum->remote_weight += access->weight;
    }
    numapilot_flow_close(flow);
}

static void measure(numapilot_trace trace, const char *kind, uint32_t condition, uint32_t flows) {
    struct walked sum = {0, 0, 0};
    const double start_s = now_s();
    for (uint32_t number = 0; number < flows; number++) {
        numapilot_filter filter = NUMAPILOT_FILTER_ALL;
        filter.conditions = condition;
        if (condition == NUMAPILOT_CONDITION_THREAD) filter.thread = number;
        if (condition == NUMAPILOT_CONDITION_OBJECT) filter.object = number;
        walk(trace, &filter, &sum);
    }
    const double seconds = now_s() - start_s;
    printf("{\"flows\": \"%s\", \"count\": %" PRIu32 ", \"accesses\": %" PRIu64 ", \"seconds\": %.6f, ", kind, flows, sum.accesses, seconds);
    printf("\"weight\": %" PRIu64 ", \"remote_weight\": %" PRIu64 "}\n", sum.weight, sum.remote_weight);
}

int main(int argc, char **argv) {
    numapilot_trace trace;
    numapilot_info info = {.type_size = sizeof info};
    if (argc != 3) {
        fprintf(stderr, "usage: flows TRACE ROUNDS\n");
        return 2;
    }
    if (numapilot_trace_open(argv[1], &trace) != NUMAPILOT_OK || numapilot_trace_info(trace, &info) != NUMAPILOT_OK) fail();
    for (int round = atoi(argv[2]); round > 0; round--) {
        measure(trace, "all", 0, 1);
        measure(trace, "thread", NUMAPILOT_CONDITION_THREAD, (uint32_t)info.threads);
        measure(trace, "object", NUMAPILOT_CONDITION_OBJECT, (uint32_t)info.objects);
    }
    return numapilot_trace_close(trace);
}
