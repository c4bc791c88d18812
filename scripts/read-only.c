/* read-only: which share of the accesses to each object type writes; where no write was sampled, the upper bound of this share (95 %).
 * Usage: read-only TRACE */
#include "script.h"

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    size_t places = self.info.sites + 1;
    uint64_t *samples = script_memory(places, 8), *accesses = script_memory(places, 8);
    uint64_t *write_samples = script_memory(places, 8), *writes = script_memory(places, 8);
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access)) continue;
        uint32_t place = script_site(&self, access);
        samples[place]++;
        accesses[place] += access->weight;
        if (!script_is_write(access)) continue;
        write_samples[place]++;
        writes[place] += access->weight;
    }
    numapilot_flow_close(flow);
    puts("site,kind,name,samples,accesses,write_samples,write_accesses,write_ppm,bound_ppm");
    uint32_t *order = script_order(accesses, places);
    for (size_t i = 0; i < places; i++) {
        uint32_t place = order[i];
        if (samples[place] == 0) continue;
        script_print_site(&self, place);
        script_number(samples[place]);
        script_number(accesses[place]);
        script_number(write_samples[place]);
        script_number(writes[place]);
        script_ppm(writes[place], accesses[place]);
        uint64_t bound = (3000000 + samples[place] - 1) / samples[place];
        script_known(write_samples[place] > 0 ? UINT64_MAX : bound < 1000000 ? bound : 1000000, UINT64_MAX);
        putchar('\n');
    }
    free(order), free(samples), free(accesses), free(write_samples), free(writes);
    return script_end(&self);
}
