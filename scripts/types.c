/* types: which object types (sites) are accessed most. Usage: types TRACE */
#include "script.h"

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    size_t places = self.info.sites + 1;
    uint64_t *instances = script_memory(places, 8), *bytes = script_memory(places, 8), *samples = script_memory(places, 8);
    uint64_t *accesses = script_memory(places, 8), *known = script_memory(places, 8), *remote = script_memory(places, 8);
    bool *is_accessed = script_memory(self.info.objects, sizeof *is_accessed);
    uint64_t all = 0, all_remote = 0;
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access)) continue;
        uint32_t place = script_site(&self, access);
        samples[place]++;
        accesses[place] += access->weight;
        all += access->weight;
        if (script_is_remote(access) || script_is_local(access)) known[place] += access->weight;
        if (script_is_remote(access)) remote[place] += access->weight, all_remote += access->weight;
        if (access->object != NUMAPILOT_NONE) is_accessed[access->object] = true;
    }
    numapilot_flow_close(flow);
    for (uint32_t number = 0; number < self.info.objects; number++) {
        if (!is_accessed[number]) continue;
        numapilot_object object = {.type_size = sizeof object};
        script_must(numapilot_object_at(self.trace, number, &object));
        instances[object.site]++;
        bytes[object.site] += object.bytes;
    }
    puts("site,kind,name,file,line,instances,bytes,samples,accesses,share_ppm,remote_accesses,remote_ppm,remote_share_ppm");
    uint32_t *order = script_order(accesses, places);
    for (size_t i = 0; i < places; i++) {
        uint32_t place = order[i];
        if (samples[place] == 0) continue;
        script_print_site(&self, place);
        putchar(',');
        if (place < self.info.sites) {
            numapilot_site site = {.type_size = sizeof site};
            script_must(numapilot_site_at(self.trace, place, &site));
            script_text(site.file);
            script_number(site.line);
        } else {
            putchar(',');
        }
        script_number(instances[place]);
        script_number(bytes[place]);
        script_number(samples[place]);
        script_number(accesses[place]);
        script_ppm(accesses[place], all);
        script_number(remote[place]);
        script_ppm(remote[place], known[place]);
        script_ppm(remote[place], all_remote);
        putchar('\n');
    }
    free(order), free(instances), free(bytes), free(samples), free(accesses), free(known), free(remote), free(is_accessed);
    return script_end(&self);
}
