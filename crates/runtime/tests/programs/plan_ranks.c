/* plan_ranks.c: which CPU each of four children is given, by a rule that spreads all processes over two CPUs.
 *
 *   plan_ranks image FILE   writes the plan image; fails with 77 where there are fewer than two CPUs
 *   plan_ranks              forks and executes itself four times in turn; prints each one's first CPU as the number among those that the rule names
 *   plan_ranks child        one of them */
#define _GNU_SOURCE
#include "plan_wire.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_image(const char *path) {
    static struct { struct np_plan plan; struct np_plan_place place; struct np_plan_numbered numbered[NP_PLAN_NUMBERED]; } image;
    struct np_plan *plan = &image.plan;
    plan->magic = NP_PLAN_MAGIC;
    plan->version = NP_PLAN_VERSION;
    plan->bytes = sizeof *plan + sizeof image.place;
    plan->memory_nodes = 1;
    plan->process_count = 1;
    plan->processes = sizeof *plan;
    plan->rules = plan->threads = plan->modules = plan->code = plan->statics = plan->bytes;
    plan->min_size = UINT64_MAX;
    image.place.layout = NP_PLAN_SPREAD;
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    int found = 0;
    for (int cpu = 0; cpu < 1024 && found < 2; cpu++) {
        if (!CPU_ISSET(cpu, &own)) continue;
        image.place.cpus[cpu / 64] |= 1ull << (cpu % 64);
        found++;
    }
    if (found < 2) return 77;
    FILE *file = fopen(path, "wb");
    return file != NULL && fwrite(&image, sizeof image, 1, file) == 1 && fclose(file) == 0 ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count == 3) return write_image(arguments[2]);
    if (count == 2) {
        printf("%d ", sched_getcpu());
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", arguments[0], "child", NULL);
            _exit(3);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) return 4;
    }
    return 0;
}
