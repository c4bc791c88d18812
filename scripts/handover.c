/* handover: how long one thread uses an object before another one accesses it (the example of MemProf's paper, USENIX ATC 2012).
 * Accesses of every level count, those that a cache of the accessing core or node answered too: README.md, "handover". Usage: handover TRACE */
#include "script.h"

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    uint64_t *handovers = script_memory(self.info.objects, 8), *sum_ns = script_memory(self.info.objects, 8);
    for (uint32_t object = 0; object < self.info.objects; object++) {
        numapilot_filter filter = NUMAPILOT_FILTER_ALL;
        filter.conditions = NUMAPILOT_CONDITION_OBJECT;
        filter.object = object;
        numapilot_flow oef; /* Object Event Flow */
        script_must(numapilot_flow_open(self.trace, &filter, &oef));
        uint64_t before_ns = 0;
        uint32_t thread = NUMAPILOT_NONE;
        numapilot_foreach (oef, access) {
            if (thread != NUMAPILOT_NONE && access->thread != thread) {
                sum_ns[object] += access->time_ns - before_ns;
                handovers[object]++;
            }
            thread = access->thread;
            before_ns = access->time_ns;
        }
        numapilot_flow_close(oef);
    }
    puts("object,site,name,handovers,sum_ns,mean_ns");
    uint32_t *order = script_order(handovers, self.info.objects);
    for (size_t i = 0; i < self.info.objects && handovers[order[i]] > 0; i++) {
        numapilot_object object = {.type_size = sizeof object};
        script_must(numapilot_object_at(self.trace, order[i], &object));
        printf("%" PRIu32 ",%" PRIu32 ",", order[i], object.site);
        script_text(object.name);
        script_number(handovers[order[i]]);
        script_number(sum_ns[order[i]]);
        script_number(sum_ns[order[i]] / handovers[order[i]]);
        putchar('\n');
    }
    free(order), free(handovers), free(sum_ns);
    return script_end(&self);
}
