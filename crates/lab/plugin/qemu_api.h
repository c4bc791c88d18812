/* qemu_api.h: what QEMU 9.2 and later (version 4 of the interface) offer their TCG plugins, as far as this plugin calls it, and the few functions of glib,
 * which QEMU is linked with, by which registers and memory are handed over. Declared by hand from the documented interface: distributions ship no header. */
#ifndef NUMAPILOT_QEMU_API_H
#define NUMAPILOT_QEMU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_QEMU_PLUGIN_VERSION 4
#define NP_QEMU_EXPORT __attribute__((visibility("default")))

/* QEMU's own functions stay visible where the plugin is compiled with everything hidden. */
#pragma GCC visibility push(default)

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;

typedef struct qemu_info_t {
    const char *target_name; /* "x86_64" */
    struct {
        int min, cur; /* versions of the interface that this QEMU takes */
    } version;
    bool system_emulation;
    union {
        struct {
            int smp_vcpus, max_vcpus;
        } system;
    };
} qemu_info_t;

/* ---- exported by the plugin ---- */
extern int qemu_plugin_version;
/* 0, or anything else to refuse. `info` lives during the call only, `arguments` ("name=value") for ever. */
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments);

/* ---- call-backs ---- */
typedef void (*qemu_plugin_udata_cb_t)(qemu_plugin_id_t id, void *data);
typedef void (*qemu_plugin_vcpu_simple_cb_t)(qemu_plugin_id_t id, unsigned vcpu);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned vcpu, void *data);
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_CB_R_REGS = 1, QEMU_PLUGIN_CB_RW_REGS = 2 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W = 2, QEMU_PLUGIN_MEM_RW = 3 };

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t call);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t call);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_udata_cb_t call, void *data);
/* Only from a translation call-back, for the block that is being translated: */
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_plugin_vcpu_udata_cb_t call, enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_udata_cb_t call, enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_vcpu_mem_cb_t call, enum qemu_plugin_cb_flags flags,
                                      enum qemu_plugin_mem_rw kind, void *data);

/* ---- questions about what is being translated ---- */
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
/* Copies the instruction's bytes; how many. */
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *bytes, size_t room);

/* ---- questions about an access, in its call-back ---- */
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
/* The handle is good during the call-back only. */
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *where);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *where);

/* ---- registers and memory of the vCPU whose call-back this is ---- */
typedef struct {
    uint8_t *data;
    unsigned length;
} np_bytes; /* GByteArray */
typedef struct {
    char *data;
    unsigned length;
} np_array; /* GArray */
np_bytes *g_byte_array_new(void);
np_bytes *g_byte_array_set_size(np_bytes *bytes, unsigned length);

struct qemu_plugin_register;
typedef struct {
    struct qemu_plugin_register *handle;
    const char *name;
    const char *feature;
} qemu_plugin_reg_descriptor;
/* An array of descriptors. */
np_array *qemu_plugin_get_registers(void);
/* Appends the value; bytes, or less than 0. In call-backs that were registered to read registers. */
int qemu_plugin_read_register(struct qemu_plugin_register *handle, np_bytes *into);
/* Through this vCPU's page tables. */
bool qemu_plugin_read_memory_vaddr(uint64_t address, np_bytes *into, size_t bytes);

#pragma GCC visibility pop
#endif
