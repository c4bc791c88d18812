/* guest.c: the guest's processor as the plugin sees it: registers by name, memory, and the running task.
 *
 * The running task is found as the kernel itself finds it: the base of a CPU's own data is in a register (while user code runs, in k_gs_base), and at a known
 * offset in it lies the pointer to the task. The offsets come from inside the guest (NP_MARK_KERNEL); until then tasks are unknown.
 * This needs the kernel's memory in the program's page tables, so a kernel without page-table isolation (mitigations=off). */
#define _GNU_SOURCE
#include "system.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { GENERAL_REGISTERS = 16 };
static const char *const general_names[GENERAL_REGISTERS] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                                             "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
static const char *const other_names[] = {"cr3", "k_gs_base", "rip"};
enum { OTHER_REGISTERS = sizeof other_names / sizeof *other_names };

struct processor {
    struct qemu_plugin_register *general[GENERAL_REGISTERS];
    struct qemu_plugin_register *other[OTHER_REGISTERS];
    np_bytes *bytes;
    const void *object; /* QEMU's own */
};
static struct processor processors[NP_MAX_CPUS];

/* ---- which processor ----
 *
 * QEMU 9 and later give call-backs the number of the vCPU for which the code was *translated* when one host thread runs all vCPUs in turn (icount): blocks
 * are shared, and the number is a constant in them. The vCPU that really runs is in QEMU's thread-local `current_cpu`, which its executable exports for
 * its modules. */

static _Thread_local const void *const *current_cpu;
static _Thread_local const void *last_object;
static _Thread_local unsigned last_cpu;

static const void *running_object(void) {
    if (current_cpu == NULL) current_cpu = dlsym(RTLD_DEFAULT, "current_cpu");
    return current_cpu == NULL ? NULL : *current_cpu;
}

bool np_guest_tells_cpus(void) { return dlsym(RTLD_DEFAULT, "current_cpu") != NULL; }

unsigned np_running_cpu(unsigned said) {
    const void *object = running_object();
    if (object == NULL) return said;
    if (object == last_object) return last_cpu;
    for (unsigned i = 0; i < np_cpu_count; i++) {
        if (processors[i].object != object) continue;
        last_object = object;
        last_cpu = i;
        return i;
    }
    return said;
}

struct np_space np_spaces[NP_MAX_SPACES];
atomic_uint np_space_count = 1;
static pthread_mutex_t spaces_lock = PTHREAD_MUTEX_INITIALIZER;
static struct np_mark_kernel kernel;
static atomic_bool kernel_known;

static void keep(const qemu_plugin_reg_descriptor *found, const char *const *names, struct qemu_plugin_register **into, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(found->name, names[i]) == 0) into[i] = found->handle;
}

void np_guest_cpu_start(unsigned vcpu) {
    struct processor *p = &processors[vcpu];
    if (p->bytes != NULL) return;
    p->bytes = g_byte_array_new();
    p->object = running_object();
    np_array *found = qemu_plugin_get_registers();
    const qemu_plugin_reg_descriptor *descriptors = (const void *)found->data;
    for (unsigned i = 0; i < found->length; i++) {
        keep(&descriptors[i], general_names, p->general, GENERAL_REGISTERS);
        keep(&descriptors[i], other_names, p->other, OTHER_REGISTERS);
    }
}

static uint64_t read_register(struct processor *p, struct qemu_plugin_register *handle) {
    uint64_t value = 0;
    if (handle == NULL || p->bytes == NULL) return 0;
    g_byte_array_set_size(p->bytes, 0);
    int bytes = qemu_plugin_read_register(handle, p->bytes);
    if (bytes > 0) memcpy(&value, p->bytes->data, (size_t)bytes < sizeof value ? (size_t)bytes : sizeof value);
    return value;
}

uint64_t np_register(unsigned vcpu, const char *name) {
    for (size_t i = 0; i < OTHER_REGISTERS; i++)
        if (strcmp(name, other_names[i]) == 0) return read_register(&processors[vcpu], processors[vcpu].other[i]);
    return 0;
}

uint64_t np_general_register(unsigned vcpu, unsigned number) {
    return read_register(&processors[vcpu], processors[vcpu].general[number % GENERAL_REGISTERS]);
}

bool np_guest_memory(unsigned vcpu, uint64_t address, void *into, size_t bytes) {
    struct processor *p = &processors[vcpu];
    if (!qemu_plugin_read_memory_vaddr(address, p->bytes, bytes) || p->bytes->length != bytes) return false;
    memcpy(into, p->bytes->data, bytes);
    return true;
}

void np_guest_kernel(unsigned vcpu, uint64_t address) {
    struct np_mark_kernel told;
    if (!np_guest_memory(vcpu, address, &told, sizeof told)) {
        np_complain("cannot read the description of the guest's kernel");
        return;
    }
    kernel = told;
    atomic_store(&kernel_known, true);
}

struct np_task np_running_task(unsigned vcpu) {
    struct np_task task = {0, 0};
    uint64_t pointer;
    if (!atomic_load(&kernel_known)) return task;
    uint64_t own_data = np_register(vcpu, "k_gs_base");
    if (!np_guest_memory(vcpu, own_data + kernel.current, &pointer, sizeof pointer)) return task;
    if (!np_guest_memory(vcpu, pointer + kernel.pid, &task.pid, sizeof task.pid)) task.pid = 0;
    if (!np_guest_memory(vcpu, pointer + kernel.tid, &task.tid, sizeof task.tid)) task.tid = 0;
    return task;
}

/* Without the low bits, which are no part of the address (caching, process-context identifier, the user half under isolation). */
uint64_t np_root_of(uint64_t cr3) { return cr3 & 0x000fffffffffe000ull; }

static unsigned find_space(uint64_t root) {
    unsigned count = atomic_load_explicit(&np_space_count, memory_order_acquire);
    /* From the end: a page table may be used again by a later process, which is another space then. */
    for (unsigned i = count; i-- > 1;)
        if (atomic_load_explicit(&np_spaces[i].root, memory_order_relaxed) == root) return i;
    return 0;
}

unsigned np_running_space(unsigned vcpu) {
    uint64_t root = np_root_of(np_register(vcpu, "cr3"));
    struct np_task task = np_running_task(vcpu);
    pthread_mutex_lock(&spaces_lock);
    unsigned space = find_space(root), count = atomic_load(&np_space_count);
    if (space != 0 && np_spaces[space].pid == 0) np_spaces[space].pid = task.pid;
    if ((space == 0 || np_spaces[space].pid != task.pid) && count < NP_MAX_SPACES) {
        space = count;
        np_spaces[space].root = root;
        np_spaces[space].pid = task.pid;
        atomic_store_explicit(&np_space_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&spaces_lock);
    return space;
}
