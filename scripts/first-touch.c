/* first-touch: which thread accessed each object first, and which threads later. Usage: first-touch TRACE */
#include "script.h"

typedef struct first {
    bool is_accessed, is_shared;
    uint16_t node;
    uint32_t thread;
} first;

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    size_t places = self.info.sites + 1;
    uint64_t *instances = script_memory(places, 8), *by_allocator = script_memory(places, 8), *shared = script_memory(places, 8);
    uint64_t *accesses = script_memory(places, 8), *by_thread = script_memory(places, 8), *by_node = script_memory(places, 8);
    first *firsts = script_memory(self.info.objects, sizeof *firsts);
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access) || access->object == NUMAPILOT_NONE) continue;
        first *of = &firsts[access->object];
        uint32_t site = self.site_of[access->object];
        if (!of->is_accessed) {
            *of = (first){true, false, access->node, access->thread};
            instances[site]++;
            by_allocator[site] += self.owner_of[access->object] == access->thread;
        }
        accesses[site] += access->weight;
        if (of->thread == access->thread) {
            by_thread[site] += access->weight;
        } else if (!of->is_shared) {
            of->is_shared = true;
            shared[site]++;
        }
        if (of->node != NUMAPILOT_NO_NODE && of->node == access->node) by_node[site] += access->weight;
    }
    numapilot_flow_close(flow);
    puts("site,kind,name,instances,first_by_allocator,shared_instances,accesses,by_first_thread,by_first_node,later_ppm");
    uint32_t *order = script_order(accesses, places);
    for (size_t i = 0; i < places; i++) {
        uint32_t site = order[i];
        if (instances[site] == 0) continue;
        script_print_site(&self, site);
        script_number(instances[site]);
        script_number(by_allocator[site]);
        script_number(shared[site]);
        script_number(accesses[site]);
        script_number(by_thread[site]);
        script_number(by_node[site]);
        script_ppm(accesses[site] - by_thread[site], accesses[site]);
        putchar('\n');
    }
    free(order), free(instances), free(by_allocator), free(shared), free(accesses), free(by_thread), free(by_node), free(firsts);
    return script_end(&self);
}
