/* handover.c: MemProf's example. For each object that is reached by several threads: the mean program time between two accesses to it, one after the
 * other, by different threads. An object that changes hands seldom may be worth moving to whoever has it (MemProf, USENIX ATC 2012, section 3).
 *
 * Usage: handover TRACE. A line for each object: number, hand-overs, mean in nanoseconds. */
#include <numapilot.h>

#include <inttypes.h>
#include <stdio.h>

static void of_object(numapilot_trace trace, uint32_t number) {
    numapilot_filter filter = NUMAPILOT_FILTER_ALL;
    filter.conditions = NUMAPILOT_CONDITION_OBJECT;
    filter.object = number;
    numapilot_flow oef;
    if (numapilot_flow_open(trace, &filter, &oef) != NUMAPILOT_OK) return;
    uint64_t before_ns = 0, sum_ns = 0, count = 0;
    uint32_t thread = NUMAPILOT_NONE;
    numapilot_foreach (oef, access) {
        if (thread != NUMAPILOT_NONE && access->thread != thread) {
            sum_ns += access->time_ns - before_ns;
            count++;
        }
        thread = access->thread;
        before_ns = access->time_ns;
    }
    numapilot_flow_close(oef);
    if (count > 0) printf("%" PRIu32 " %" PRIu64 " %.3f\n", number, count, (double)sum_ns / (double)count);
}

int main(int argc, char **argv) {
    numapilot_trace trace;
    numapilot_info info = {.type_size = sizeof info};
    if (argc != 2 || numapilot_trace_open(argv[1], &trace) != NUMAPILOT_OK || numapilot_trace_info(trace, &info) != NUMAPILOT_OK) {
        fprintf(stderr, "handover: %s\n", argc == 2 ? numapilot_message() : "usage: handover TRACE");
        return 1;
    }
    for (uint32_t object = 0; object < info.objects; object++) of_object(trace, object);
    return numapilot_trace_close(trace);
}
