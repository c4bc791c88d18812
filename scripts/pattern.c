/* pattern: the accesses to an object type, or to one instance, by thread, accessing node, home node and time, as reads and writes.
 * Usage: pattern TRACE [S3|17] */
#include "script.h"

#include <errno.h>

/* What a row is of, in the order of rows. Unknown sites, nodes and homes are the greatest numbers, so they come last. */
typedef struct key {
    uint32_t site, thread;
    uint16_t node, home;
    uint32_t slice;
} key;

typedef struct sample {
    key of;
    bool is_write;
    uint32_t weight;
    uint64_t time_ns;
} sample;

static int compare_keys(const key *a, const key *b) {
    if (a->site != b->site) return a->site < b->site ? -1 : 1;
    if (a->thread != b->thread) return a->thread < b->thread ? -1 : 1;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    if (a->home != b->home) return a->home < b->home ? -1 : 1;
    return a->slice < b->slice ? -1 : a->slice > b->slice;
}

static int compare(const void *left, const void *right) {
    const sample *a = left, *b = right;
    int by_key = compare_keys(&a->of, &b->of);
    if (by_key != 0) return by_key;
    return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void print_group(const sample *first, const sample *end) {
    uint64_t reads = 0, writes = 0;
    for (const sample *at = first; at < end; at++) *(at->is_write ? &writes : &reads) += at->weight;
    if (first->of.site != NUMAPILOT_NONE) printf("%" PRIu32, first->of.site);
    script_number(first->of.thread);
    script_known(first->of.node, NUMAPILOT_NO_NODE);
    script_known(first->of.home, NUMAPILOT_NO_NODE);
    script_number(first->of.slice);
    script_number((uint64_t)(end - first));
    script_number(reads);
    script_number(writes);
    script_number(first->time_ns);
    script_number(end[-1].time_ns);
    putchar('\n');
}

/* The filter of S3, a site, or 17, an instance. */
static numapilot_filter filter_of(const char *name) {
    numapilot_filter filter = NUMAPILOT_FILTER_ALL;
    bool is_site = name[0] == 'S' || name[0] == 's';
    char *end;
    errno = 0;
    unsigned long number = strtoul(name + is_site, &end, 10);
    if (end == name + is_site || *end != 0 || errno != 0 || number >= NUMAPILOT_NONE) script_die("name a site (S3) or an instance (17)");
    filter.conditions = is_site ? NUMAPILOT_CONDITION_SITE : NUMAPILOT_CONDITION_OBJECT;
    *(is_site ? &filter.site : &filter.object) = (uint32_t)number;
    return filter;
}

int main(int argc, char **argv) {
    script_name = argv[0];
    if (argc < 2 || argc > 3) script_die("give one trace, and a site (S3) or an instance (17) if you like");
    script self = script_open(argv[1]);
    numapilot_filter filter = NUMAPILOT_FILTER_ALL;
    if (argc == 3) filter = filter_of(argv[2]);
    sample *samples = script_memory(self.info.accesses, sizeof *samples);
    size_t count = 0;
    uint64_t last_ns = 0;
    numapilot_flow flow = script_flow(&self);
    numapilot_foreach (flow, any) last_ns = any->time_ns;
    numapilot_flow_close(flow);
    script_must(numapilot_flow_open(self.trace, &filter, &flow));
    numapilot_foreach (flow, access) {
        if (!script_is_memory_access(access)) continue;
        uint32_t site = access->object == NUMAPILOT_NONE ? NUMAPILOT_NONE : self.site_of[access->object];
        uint32_t slice = (uint32_t)((unsigned __int128)10 * access->time_ns / ((unsigned __int128)last_ns + 1));
        key of = {site, access->thread, access->node, access->home, slice};
        samples[count++] = (sample){of, script_is_write(access), access->weight, access->time_ns};
    }
    numapilot_flow_close(flow);
    qsort(samples, count, sizeof *samples, compare);
    puts("site,thread,node,home,slice,samples,reads,writes,first_ns,last_ns");
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && compare_keys(&samples[first].of, &samples[end].of) == 0;) end++;
        print_group(samples + first, samples + end);
    }
    free(samples);
    return script_end(&self);
}
