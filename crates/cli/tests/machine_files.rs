//! What recorded programs find of the simulated machine in /sys and /proc, by every way in which programs look: the same as libnuma's own functions say.

use crate::common::*;

/// Prints what it finds, one line each.
const LOOKS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void show(const char *what, int fd) {
    char text[256];
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    printf("%s=%s\n", what, fd >= 0 ? text : "none");
}

static void stream(const char *what, const char *path, const char *begin) {
    char line[512];
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, begin, strlen(begin)) == 0) {
            line[strcspn(line, "\n")] = 0;
            printf("%s=%s\n", what, line + strlen(begin));
            break;
        }
    if (file != NULL) fclose(file);
}

static int chosen(const struct dirent *entry) { return strncmp(entry->d_name, "cpu", 3) == 0 && entry->d_name[3] >= '0' && entry->d_name[3] <= '9'; }

static void files(void) {
    show("online nodes", open("/sys/devices/system/node/online", O_RDONLY));
    stream("CPUs of node 2", "/sys/devices/system/node/node2/cpulist", "");
    stream("distances of node 1", "/sys/devices/system/node/node1/distance", "");
    stream("memory of node 3", "/sys/devices/system/node/node3/meminfo", "Node 3 MemTotal:");
    int folder = open("/sys/devices/system/node/", O_RDONLY | O_DIRECTORY);
    show("mask of node 3", openat(folder, "node3/cpumap", O_RDONLY));
    int root = open("/", O_RDONLY | O_DIRECTORY);
    show("online CPUs", openat(root, "sys/devices/system/cpu/online", O_RDONLY));
    show("in /proc", openat(open("/proc", O_RDONLY | O_DIRECTORY), "cpuinfo", O_RDONLY));
    show("package of CPU 5", open("/sys/bus/cpu/devices/cpu5/topology/physical_package_id", O_RDONLY));
    show("node 9", open("/sys/devices/system/node/node9/cpulist", O_RDONLY));
    int count = 0;
    DIR *nodes = opendir("/sys/devices/system/node");
    for (struct dirent *entry; (entry = readdir(nodes)) != NULL;) count += strncmp(entry->d_name, "node", 4) == 0;
    closedir(nodes);
    struct dirent **names;
    struct stat status;
    printf("nodes listed=%d\nCPUs scanned=%d\n", count, scandir("/sys/devices/system/cpu", &names, chosen, alphasort));
    printf("access=%d stat=%d\n", access("/sys/devices/system/node/node3", F_OK), stat("/sys/devices/system/cpu/cpu15/cache/index0/size", &status));
    stream("CPUs in cpuinfo", "/proc/cpuinfo", "siblings\t: ");
    stream("CPUs allowed", "/proc/self/status", "Cpus_allowed_list:\t");
    stream("nodes allowed", "/proc/self/status", "Mems_allowed_list:\t");
}

/* Pages of a mapping by node, as numa_maps has them. */
static void pages(void) {
    char *at = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), begin[32], path[64];
    for (int page = 0; page < 8; page++) at[page * 4096] = 1;
    void *first = at;
    int status = -1, to = 2;
    syscall(SYS_move_pages, 0, 1L, &first, &to, &status, 2);
    printf("moved to=%d\n", status);
    snprintf(path, sizeof path, "/proc/%d/numa_maps", getpid());
    FILE *file = fopen(path, "r");
    char line[1024];
    long on_two = 0, here = 0, value;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        for (char *part = strtok(line, " "); part != NULL; part = strtok(NULL, " ")) {
            if (sscanf(part, "N2=%ld", &value) == 1) on_two += value;
            else if (sscanf(part, "N0=%ld", &value) == 1) here += value;
        }
    if (file != NULL) fclose(file);
    printf("pages on node 2=%ld\npages on node 0: %s\n", on_two, here >= 7 ? "at least the other seven" : "too few");
}

/* As programs do that take libnuma where it is there. */
static void library(void) {
    void *numa = dlopen("libnuma.so.1", RTLD_NOW);
    if (numa == NULL) {
        printf("no libnuma\n");
        return;
    }
    int (*available)(void) = (int (*)(void))dlsym(numa, "numa_available");
    int (*highest)(void) = (int (*)(void))dlsym(numa, "numa_max_node");
    int (*cpus)(void) = (int (*)(void))dlsym(numa, "numa_num_configured_cpus");
    int (*node_of)(int) = (int (*)(int))dlsym(numa, "numa_node_of_cpu");
    int (*distance)(int, int) = (int (*)(int, int))dlsym(numa, "numa_distance");
    long long (*size)(int, long long *) = (long long (*)(int, long long *))dlsym(numa, "numa_node_size64");
    int (*run_on)(int) = (int (*)(int))dlsym(numa, "numa_run_on_node");
    printf("libnuma=%d %d %d %d %d %lld\n", available(), highest(), cpus(), node_of(13), distance(0, 3), size(1, NULL) >> 20);
    int failed = run_on(3);
    printf("ran on node 3=%d %d\n", failed, sched_getcpu() / 4);
}

int main(void) {
    files();
    pages();
    library();
    errno = 0;
    printf("bad pointer=%d", access((const char *)8, F_OK));
    printf(" %d\n", errno == EFAULT);
    printf("cannot write=%d\n", open("/sys/devices/system/cpu/present", O_WRONLY | O_CREAT | O_EXCL, 0600));
    return 0;
}
"#;

const EXPECTED: &str = "online nodes=0-3
CPUs of node 2=8-11
distances of node 1=11 10 13 11
memory of node 3=       16777216 kB
mask of node 3=f000
online CPUs=0-15
in /proc=processor\t: 0
package of CPU 5=1
node 9=none
nodes listed=4
CPUs scanned=16
access=0 stat=0
CPUs in cpuinfo=4
CPUs allowed=0-15
nodes allowed=0-3
moved to=2
pages on node 2=1
pages on node 0: at least the other seven
libnuma=0 3 16 3 13 16384
ran on node 3=0 3
bad pointer=-1 1
cannot write=-1
";

#[test]
fn a_program_finds_the_simulated_machine_in_its_files() {
    let folder = scratch();
    let program = build(folder.path(), "looks", "cc", LOOKS, &["-ldl"]);
    let ran = record(&folder.path().join("t.numatrace"), &["--machine", "opteron-8385"], &program, &[] as &[&str]);
    assert_eq!(ran.succeeded().stdout, EXPECTED);
}

#[test]
fn an_emulated_program_finds_it_too() {
    let folder = scratch();
    let program = build_plain(folder.path(), "looks", LOOKS, &["-ldl"]);
    let options = ["--engine", "emulate", "--machine", "opteron-8385"];
    let ran = record(&folder.path().join("t.numatrace"), &options, &program, &[] as &[&str]);
    if has_no_emulator(&ran) {
        return;
    }
    assert_eq!(ran.succeeded().stdout, EXPECTED);
}

/// Commands of the system, as a shell script calls them.
#[test]
fn lscpu_and_cat_find_it_too() {
    let folder = scratch();
    let source = r#"
#include <stdlib.h>
int main(void) { return system("cat /sys/devices/system/node/has_memory && lscpu | grep -E '^(NUMA|Socket|CPU.s.:)'") != 0; }
"#;
    let program = build(folder.path(), "asks", "cc", source, &[]);
    let ran = record(&folder.path().join("t.numatrace"), &["--machine", "opteron-8385"], &program, &[] as &[&str])
        .succeeded();
    for line in ["0-3\n", "NUMA node(s):", "NUMA node3 CPU(s):", "12-15"] {
        assert!(ran.stdout.contains(line), "{line:?} is missing in\n{}", ran.stdout);
    }
}

/// What they find about themselves is written into a file in memory. Sandboxes forbid files to grow, and a signal ends who lets one.
#[test]
fn a_program_whose_files_may_not_grow_finds_the_systems_own() {
    let folder = scratch();
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
int main(void) {
    struct rlimit none = {0, 0};
    char line[512];
    int found = 0;
    setrlimit(RLIMIT_FSIZE, &none);
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) found |= strncmp(line, "Cpus_allowed_list:", 18) == 0;
    printf("found %d\n", found);
    return 0;
}
"#;
    let program = build(folder.path(), "asks", "cc", source, &[]);
    let ran = record(&folder.path().join("t.numatrace"), &["--machine", "opteron-8385"], &program, &[] as &[&str]);
    assert_eq!(ran.succeeded().stdout, "found 1\n");
}

/// Engine `track` simulates no machine: its programs find this one.
#[test]
fn tracked_programs_find_the_real_machine() {
    let folder = scratch();
    let source = r#"
#include <stdio.h>
int main(void) {
    char text[256] = "";
    FILE *file = fopen("/sys/devices/system/cpu/online", "r");
    if (file != NULL && fgets(text, sizeof text, file) == NULL) return 3;
    printf("%s", text);
    return 0;
}
"#;
    let program = build_plain(folder.path(), "asks", source, &[]);
    let trace = folder.path().join("t.numatrace");
    let ran = record(&trace, &["--engine", "track", "--machine", "opteron-8385"], &program, &[] as &[&str]).succeeded();
    assert_eq!(ran.stdout, std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default());
}
