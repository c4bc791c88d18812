/* main.c: the entry point of the system-mode plugin: its arguments, and what each translated block calls.
 *
 * Arguments: output=FILE, range=FIRST-END:NODE (guest-physical addresses, hexadecimal; as many as needed), cache=SETSxWAYS,
 * samples=FILE, period=ACCESSES, seed=NUMBER, cpus=FIRST-LAST:NODE and latency=FROM-TO:CYCLES (for samples; see sampler.c),
 * one-thread=on (all vCPUs run in one host thread, as with -icount). */
#include "system.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NP_QEMU_EXPORT int qemu_plugin_version = NP_QEMU_PLUGIN_VERSION;

struct np_options np_options;
unsigned np_cpu_count, np_node_count;

void np_complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("numapilot plugin: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

int np_node_of(uint64_t physical) {
    for (unsigned i = 0; i < np_options.range_count; i++)
        if (physical - np_options.ranges[i].first < np_options.ranges[i].end - np_options.ranges[i].first) return (int)np_options.ranges[i].node;
    return -1;
}

/* ---- call-backs of translated code ---- */

static void on_access(unsigned said, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    unsigned vcpu = np_running_cpu(said);
    if (!np_truth_counts(vcpu)) return;
    const struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, address);
    uint64_t physical = 0;
    int node = -1;
    if (where != NULL && !qemu_plugin_hwaddr_is_io(where)) {
        physical = qemu_plugin_hwaddr_phys_addr(where);
        node = np_node_of(physical);
    }
    np_truth_access(vcpu, (uint64_t)data, address, physical, node, qemu_plugin_mem_is_store(info));
}

static void on_block(unsigned said, void *data) { np_truth_block(np_running_cpu(said), (uint64_t)data); }

/* The register is written after this. */
static void on_page_table(unsigned said, void *data) { np_truth_switched(np_running_cpu(said)); }

enum { RAX = 0, RCX = 1, RBX = 3 };

static void on_cpuid(unsigned said, void *data) {
    unsigned vcpu = np_running_cpu(said);
    if ((uint32_t)np_general_register(vcpu, RAX) != NP_MARK) return;
    uint32_t command = (uint32_t)np_general_register(vcpu, RCX);
    switch (command) {
    case NP_MARK_BEGIN: np_truth_begin(); break;
    case NP_MARK_END: np_truth_end(); break;
    case NP_MARK_ONLY_ME: np_truth_only(vcpu); break;
    case NP_MARK_NOT_ME: np_truth_not(vcpu); break;
    case NP_MARK_KERNEL: np_guest_kernel(vcpu, np_general_register(vcpu, RBX)); break;
    default: np_complain("a mark of unknown kind: %" PRIu32, command);
    }
    /* The rest of this block counts already. */
    np_truth_block(vcpu, 0);
}

/* ---- translation ---- */

static bool is_user_code(uint64_t address) { return address >> 47 == 0; }

/* 0f a2 */
static bool is_cpuid(const uint8_t *bytes, size_t size) { return size >= 2 && bytes[size - 2] == 0x0f && bytes[size - 1] == 0xa2; }

/* 0f 22 /3, perhaps behind a prefix: a register is moved to cr3. */
static bool sets_page_table(const uint8_t *bytes, size_t size) {
    return size >= 3 && bytes[size - 3] == 0x0f && bytes[size - 2] == 0x22 && (bytes[size - 1] >> 3 & 7) == 3;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    /* Samples name the running task, which takes registers. */
    enum qemu_plugin_cb_flags flags = np_options.samples != NULL ? QEMU_PLUGIN_CB_R_REGS : QEMU_PLUGIN_CB_NO_REGS;
    bool user = is_user_code(qemu_plugin_tb_vaddr(tb));
    if (user) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_R_REGS, (void *)count);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint8_t bytes[16];
        size_t size = qemu_plugin_insn_data(insn, bytes, sizeof bytes);
        if (user) {
            qemu_plugin_register_vcpu_mem_cb(insn, on_access, flags, QEMU_PLUGIN_MEM_RW, (void *)qemu_plugin_insn_vaddr(insn));
            if (is_cpuid(bytes, size)) qemu_plugin_register_vcpu_insn_exec_cb(insn, on_cpuid, QEMU_PLUGIN_CB_R_REGS, NULL);
        } else if (sets_page_table(bytes, size)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_page_table, QEMU_PLUGIN_CB_NO_REGS, NULL);
        }
    }
}

/* ---- set-up ---- */

static void on_cpu_start(qemu_plugin_id_t id, unsigned vcpu) {
    if (vcpu < np_cpu_count) np_guest_cpu_start(vcpu);
}

static void on_end(qemu_plugin_id_t id, void *data) { np_truth_end(); }

static bool is_power_of_two(unsigned value) { return value != 0 && (value & (value - 1)) == 0; }

static bool take_range(const char *text) {
    struct np_range range;
    if (np_options.range_count == NP_MAX_RANGES) return false;
    if (sscanf(text, "%" SCNx64 "-%" SCNx64 ":%" SCNu32, &range.first, &range.end, &range.node) != 3) return false;
    if (range.node >= NP_MAX_NODES || range.end <= range.first) return false;
    if (range.node >= np_node_count) np_node_count = range.node + 1;
    np_options.ranges[np_options.range_count++] = range;
    return true;
}

static bool take_cpus(const char *text) {
    unsigned first, last, node;
    if (sscanf(text, "%u-%u:%u", &first, &last, &node) != 3 || first > last || last >= NP_MAX_CPUS || node >= NP_MAX_NODES) return false;
    for (unsigned cpu = first; cpu <= last; cpu++) np_options.node_of_cpu[cpu] = (int)node;
    return true;
}

static bool take_latency(const char *text) {
    unsigned from, to;
    uint64_t cycles;
    if (sscanf(text, "%u-%u:%" SCNu64, &from, &to, &cycles) != 3 || from >= NP_MAX_NODES || to >= NP_MAX_NODES) return false;
    np_options.latency[from][to] = cycles;
    return true;
}

static bool take_argument(const char *text) {
    if (strncmp(text, "output=", 7) == 0) {
        np_options.output = text + 7;
        return true;
    }
    if (strncmp(text, "range=", 6) == 0) return take_range(text + 6);
    if (strncmp(text, "samples=", 8) == 0) {
        np_options.samples = text + 8;
        return true;
    }
    if (strncmp(text, "period=", 7) == 0) return sscanf(text + 7, "%" SCNu64, &np_options.period) == 1 && np_options.period > 0;
    if (strncmp(text, "seed=", 5) == 0) return sscanf(text + 5, "%" SCNu64, &np_options.seed) == 1;
    if (strncmp(text, "cpus=", 5) == 0) return take_cpus(text + 5);
    if (strncmp(text, "latency=", 8) == 0) return take_latency(text + 8);
    if (strcmp(text, "one-thread=on") == 0) {
        np_options.one_thread = true;
        return true;
    }
    if (strncmp(text, "cache=", 6) != 0 || sscanf(text + 6, "%ux%u", &np_options.cache_sets, &np_options.cache_ways) != 2) return false;
    bool none = np_options.cache_sets == 0;
    return none || (is_power_of_two(np_options.cache_sets) && np_options.cache_ways >= 1 && np_options.cache_ways <= 64 && np_options.cache_sets <= 1u << 20);
}

NP_QEMU_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    if (!info->system_emulation || strcmp(info->target_name, "x86_64") != 0) {
        np_complain("this plugin needs QEMU's full-system emulation of x86-64");
        return -1;
    }
    for (int i = 0; i < count; i++) {
        if (take_argument(arguments[i])) continue;
        np_complain("cannot understand %s", arguments[i]);
        return -1;
    }
    np_cpu_count = (unsigned)info->system.max_vcpus;
    if (np_cpu_count > NP_MAX_CPUS || np_options.range_count == 0) {
        np_complain("it takes 1 to %d processors and at least one range of memory", NP_MAX_CPUS);
        return -1;
    }
    if (np_options.one_thread && np_cpu_count > 1 && !np_guest_tells_cpus()) {
        np_complain("this QEMU does not report which processor runs when one thread emulates all of them: leave out -icount");
        return -1;
    }
    if (!np_cache_start() || !np_truth_start() || !np_sampler_start()) {
        np_complain("no memory for the counts of %u processors, or no file for samples", np_cpu_count);
        return -1;
    }
    qemu_plugin_register_vcpu_init_cb(id, on_cpu_start);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
