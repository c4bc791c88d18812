/* allocator-only: objects that only their allocating thread accesses. Usage: allocator-only TRACE */
#include "script.h"

/* Of one object. */
typedef struct use {
    uint64_t accesses, remote, by_allocator;
    bool is_accessed, is_shared;
} use;

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    size_t places = self.info.sites + 1;
    use *uses = script_memory(self.info.objects, sizeof *uses);
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access) || access->object == NUMAPILOT_NONE) continue;
        use *of = &uses[access->object];
        of->is_accessed = true;
        of->accesses += access->weight;
        if (script_is_remote(access)) of->remote += access->weight;
        if (access->thread == self.owner_of[access->object]) of->by_allocator += access->weight;
        else of->is_shared = true;
    }
    numapilot_flow_close(flow);
    /* By site: instances, alone_instances, accesses, remote, by_allocator, alone_accesses, alone_remote. */
    uint64_t *sums[7];
    for (int i = 0; i < 7; i++) sums[i] = script_memory(places, 8);
    for (uint32_t object = 0; object < self.info.objects; object++) {
        const use *of = &uses[object];
        if (!of->is_accessed || self.owner_of[object] == NUMAPILOT_NONE) continue;
        uint64_t alone = !of->is_shared;
        const uint64_t add[7] = {1, alone, of->accesses, of->remote, of->by_allocator, alone * of->accesses, alone * of->remote};
        for (int i = 0; i < 7; i++) sums[i][self.site_of[object]] += add[i];
    }
    puts("site,kind,name,instances,alone_instances,accesses,remote_accesses,by_allocator,by_allocator_ppm,alone_accesses,alone_remote_accesses");
    uint32_t *order = script_order(sums[2], places);
    for (size_t i = 0; i < places; i++) {
        uint32_t site = order[i];
        if (sums[0][site] == 0) continue;
        script_print_site(&self, site);
        for (int column = 0; column < 5; column++) script_number(sums[column][site]);
        script_ppm(sums[4][site], sums[2][site]);
        script_number(sums[5][site]);
        script_number(sums[6][site]);
        putchar('\n');
    }
    for (int i = 0; i < 7; i++) free(sums[i]);
    free(order), free(uses);
    return script_end(&self);
}
