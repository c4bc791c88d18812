/* remote: how many accesses are remote, and which share. Usage: remote TRACE */
#include "script.h"

int main(int argc, char **argv) {
    script self = script_start(argc, argv);
    uint64_t samples[3] = {0}, accesses[3] = {0}; /* all, known, remote */
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access)) continue;
        bool counts[3] = {true, script_is_remote(access) || script_is_local(access), script_is_remote(access)};
        for (int i = 0; i < 3; i++) {
            if (!counts[i]) continue;
            samples[i]++;
            accesses[i] += access->weight;
        }
    }
    numapilot_flow_close(flow);
    printf("samples,accesses,known_samples,known_accesses,remote_samples,remote_accesses,remote_ppm\n%" PRIu64, samples[0]);
    script_number(accesses[0]);
    for (int i = 1; i < 3; i++) {
        script_number(samples[i]);
        script_number(accesses[i]);
    }
    script_ppm(accesses[2], accesses[1]);
    putchar('\n');
    return script_end(&self);
}
