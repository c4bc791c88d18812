/* plan_files.c: mappings of files under a rule that takes all of them.
 *
 *   plan_files image FILE   writes the plan image
 *   plan_files              maps a regular file for reading, the same with copies on write, and shared memory; prints how many of the three the kernel
 *                           places by the policy of the mapping */
#define _GNU_SOURCE
#include "plan_wire.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

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
    plan->min_size = UINT64_MAX;
    image.rule.kind = NP_PLAN_FILE;
    image.rule.policy = NP_PLAN_NODE;
    image.rule.nodes = 1;
    image.rule.max_size = UINT64_MAX;
    image.rule.to_pattern = NP_PLAN_NO_PATTERN;
    strcpy(image.rule.text, "*");
    FILE *file = fopen(path, "wb");
    return file != NULL && fwrite(&image, sizeof image, 1, file) == 1 && fclose(file) == 0 ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count == 3) return write_image(arguments[2]);
    int file = open("/bin/sh", O_RDONLY), memory = memfd_create("pool", 0);
    struct statfs system;
    if (file < 0 || memory < 0 || ftruncate(memory, 65536) != 0 || fstatfs(file, &system) != 0) return 2;
    if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED) return 3;
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) == MAP_FAILED) return 4;
    if (mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED) return 5;
    printf("%d\n", system.f_type == TMPFS_MAGIC ? 3 : 2); /* a system whose files are all in memory */
    return 0;
}
