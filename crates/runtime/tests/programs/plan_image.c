/* plan_image.c: writes a plan image that takes all blocks from LEAST to MOST bytes, without frames, for tests of the planner alone.
 *
 *   plan_image FILE LEAST MOST POLICY [FLAGS [PATTERNS [NODES [RULE_NODES [RULE_FLAGS]]]]]
 *
 * One node (or more, with weights 3, 1, 1, ...), all CPUs on the first; the rule's nodes are these, or RULE_NODES (bits). What the kernel says of placement
 * is tested elsewhere; here the allocator is. */
#include "plan_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    if (count < 5) return 2;
    static union { struct np_plan plan; char bytes[sizeof(struct np_plan) + sizeof(struct np_plan_rule)]; } image;
    struct np_plan *plan = &image.plan;
    struct np_plan_rule *rule = (void *)(image.bytes + sizeof *plan);
    plan->magic = NP_PLAN_MAGIC;
    plan->version = NP_PLAN_VERSION;
    plan->bytes = sizeof image;
    plan->flags = count > 5 ? (uint32_t)strtoul(arguments[5], NULL, 0) : 0;
    unsigned nodes = count > 7 ? (unsigned)atoi(arguments[7]) : 1;
    plan->memory_nodes = (1ull << nodes) - 1;
    plan->rule_count = 1;
    plan->rules = sizeof *plan;
    plan->threads = plan->processes = plan->modules = plan->code = plan->statics = sizeof image;
    memset(plan->node_cpus[0], 0xff, sizeof plan->node_cpus[0]);
    rule->kind = NP_PLAN_DYNAMIC;
    rule->policy = (uint32_t)atoi(arguments[4]);
    rule->nodes = count > 8 ? strtoull(arguments[8], NULL, 0) : plan->memory_nodes;
    rule->patterns = count > 6 ? strtoull(arguments[6], NULL, 0) : 0;
    rule->flags = rule->policy == NP_PLAN_WEIGHTED ? NP_PLAN_OWN_WEIGHTS : 0;
    rule->flags |= count > 9 ? (uint32_t)strtoul(arguments[9], NULL, 0) : 0;
    for (unsigned node = 0; node < nodes; node++) rule->weights[node] = node == 0 ? 3 : 1;
    rule->to_pattern = NP_PLAN_NO_PATTERN;
    strcpy(rule->text, "nobody");
    plan->min_size = rule->min_size = strtoull(arguments[2], NULL, 0);
    plan->max_size = rule->max_size = strtoull(arguments[3], NULL, 0);
    FILE *file = fopen(arguments[1], "wb");
    return file != NULL && fwrite(&image, sizeof image, 1, file) == 1 && fclose(file) == 0 ? 0 : 1;
}
