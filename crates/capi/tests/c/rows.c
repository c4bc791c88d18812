/* rows.c: everything that the API says of a trace, in lines that a test compares with the trace itself. Usage: rows TRACE */
#include <numapilot.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int code) {
    if (code == NUMAPILOT_OK) return;
    fprintf(stderr, "rows: %s: %s\n", numapilot_code_name(code), numapilot_message());
    exit(1);
}

int main(int argc, char **argv) {
    numapilot_trace trace;
    numapilot_info info = {.type_size = sizeof info};
    if (argc != 2) return 2;
    must(numapilot_trace_open(argv[1], &trace));
    must(numapilot_trace_info(trace, &info));
    printf("trace %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", info.accesses, info.objects, info.threads, info.duration_ns, info.engine);
    printf("cut short %" PRIu32 ", evidence %" PRIu32 "\n", info.is_interrupted, info.evidence);
    for (uint32_t i = 0; i < info.objects; i++) {
        numapilot_object row = {.type_size = sizeof row};
        must(numapilot_object_at(trace, i, &row));
        printf("object %u %s %" PRIu64 " %" PRIu64 " %s:%u %s %" PRIu64 "\n", row.object, row.name, row.address, row.bytes, row.file, row.line,
               row.kind_name, row.accesses);
    }
    for (uint32_t i = 0; i < info.threads; i++) {
        numapilot_thread row = {.type_size = sizeof row};
        must(numapilot_thread_at(trace, i, &row));
        printf("thread %u %u %s %s %" PRIu64 "\n", row.thread, row.tid, row.name, row.start_function, row.accesses);
    }
    uint32_t locations[64];
    for (uint32_t i = 0; i < info.stacks; i++) {
        size_t count;
        must(numapilot_stack_at(trace, i, locations, 64, &count));
        printf("stack %u", i);
        for (size_t at = 0; at < count && at < 64; at++) {
            numapilot_frame frame = {.type_size = sizeof frame};
            for (size_t depth = 0; numapilot_frame_at(trace, locations[at], depth, &frame) == NUMAPILOT_OK; depth++) printf(" %s", frame.function);
        }
        printf("\n");
    }
    numapilot_flow flow;
    must(numapilot_flow_open(trace, NULL, &flow));
    numapilot_foreach (flow, access) {
        printf("access %u %" PRIu64 " %u %" PRIx64 " %d %d %d %d %u\n", access->row, access->time_ns, access->thread, access->address, (int)access->object,
               (int16_t)access->node, (int16_t)access->home, access->flags, access->weight);
    }
    must(numapilot_flow_close(flow));
    must(numapilot_trace_close(trace));
    return 0;
}
