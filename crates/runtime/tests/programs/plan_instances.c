/* plan_instances.c: blocks of 1 MiB under a rule for the second one of each process.
 *
 *   plan_instances image FILE   writes the plan image
 *   plan_instances              allocates three, and a child that it forks then two more */
#include "plan_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1ul << 20)

static int write_image(const char *path) {
    static struct { struct np_plan plan; struct np_plan_rule rule; } image;
    struct np_plan *plan = &image.plan;
    plan->magic = NP_PLAN_MAGIC;
    plan->version = NP_PLAN_VERSION;
    plan->bytes = sizeof image;
    plan->memory_nodes = 1;
    plan->rule_count = 1;
    plan->rules = sizeof *plan;
    plan->threads = plan->processes = plan->modules = plan->code = plan->statics = sizeof image;
    plan->min_size = plan->max_size = image.rule.min_size = image.rule.max_size = BYTES;
    image.rule.kind = NP_PLAN_DYNAMIC;
    image.rule.policy = NP_PLAN_NODE;
    image.rule.nodes = 1;
    image.rule.to_pattern = NP_PLAN_NO_PATTERN;
    image.rule.range_count = 1;
    image.rule.instances[0] = (struct np_plan_range){1, 1};
    FILE *file = fopen(path, "wb");
    return file != NULL && fwrite(&image, sizeof image, 1, file) == 1 && fclose(file) == 0 ? 0 : 1;
}

static int make(int count) {
    for (int i = 0; i < count; i++)
        if (malloc(BYTES) == NULL) return 3;
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3) return write_image(arguments[2]);
    if (make(3) != 0) return 4;
    pid_t child = fork();
    if (child == 0) exit(make(2));
    int status;
    return child > 0 && waitpid(child, &status, 0) == child ? status != 0 : 5;
}
