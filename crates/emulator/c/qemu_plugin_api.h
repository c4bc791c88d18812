/* qemu_plugin_api.h: what QEMU offers its TCG plugins, as far as this project calls it. Declared by hand from the documented interface: distributions ship no
 * header for it.
 *
 * Versions of the interface, and the releases of QEMU that speak them:
 *
 *     1   4.2 to 8.2   inline counters are shared by all vCPUs; an instruction's bytes are given as a pointer
 *     2   9.0          scoreboards: one value per vCPU; qemu_plugin_n_vcpus is gone, qemu_plugin_num_vcpus came; registers can be read
 *     3   9.1          an instruction's bytes are copied out; conditional call-backs; inline stores
 *     4   9.2, 10.x    memory of the guest can be read; values of accesses
 *
 * QEMU takes a plugin whose `qemu_plugin_version` lies between its own oldest and newest: a plugin of version 1 is refused by 9.0 and later. So a plugin is
 * compiled for a version, by NP_QEMU_PLUGIN_VERSION (default 1: what Debian 12's qemu-user takes). */
#ifndef NUMAPILOT_QEMU_PLUGIN_API_H
#define NUMAPILOT_QEMU_PLUGIN_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef NP_QEMU_PLUGIN_VERSION
#define NP_QEMU_PLUGIN_VERSION 1
#endif

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

/* ---- exported by a plugin ---- */
extern int qemu_plugin_version;
/* 0, or anything else to refuse. `info` lives during the call only, `arguments` ("name=value") for ever. */
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments);

/* ---- call-backs ---- */
typedef void (*qemu_plugin_udata_cb_t)(qemu_plugin_id_t id, void *data);
typedef void (*qemu_plugin_vcpu_simple_cb_t)(qemu_plugin_id_t id, unsigned vcpu);
typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned vcpu, void *data);
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
typedef void (*qemu_plugin_vcpu_syscall_cb_t)(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                                              uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8);
typedef void (*qemu_plugin_vcpu_syscall_ret_cb_t)(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result);

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_CB_R_REGS = 1, QEMU_PLUGIN_CB_RW_REGS = 2 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W = 2, QEMU_PLUGIN_MEM_RW = 3 };
enum qemu_plugin_op {
    QEMU_PLUGIN_INLINE_ADD_U64 = 0,
#if NP_QEMU_PLUGIN_VERSION >= 3
    QEMU_PLUGIN_INLINE_STORE_U64 = 1,
#endif
};

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t call);
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t call);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t call);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_syscall_cb_t call);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_syscall_ret_cb_t call);
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
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
#if NP_QEMU_PLUGIN_VERSION >= 3
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *bytes, size_t room);
#else
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#endif

/* ---- questions about an access, in its call-back ---- */
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
/* NULL in user mode. The handle is good during the call-back only. */
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *where);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *where);

/* ---- vCPUs and values of theirs ---- */
#if NP_QEMU_PLUGIN_VERSION >= 2
int qemu_plugin_num_vcpus(void);
struct qemu_plugin_scoreboard;
typedef struct {
    struct qemu_plugin_scoreboard *score;
    size_t offset;
} qemu_plugin_u64;
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t bytes_per_vcpu);
void qemu_plugin_scoreboard_free(struct qemu_plugin_scoreboard *score);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned vcpu);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, enum qemu_plugin_op op, qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, enum qemu_plugin_op op, qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_mem_inline_per_vcpu(struct qemu_plugin_insn *insn, enum qemu_plugin_mem_rw kind, enum qemu_plugin_op op,
                                                   qemu_plugin_u64 entry, uint64_t value);
#else
int qemu_plugin_n_vcpus(void); /* -1 in user mode */
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, enum qemu_plugin_op op, void *where, uint64_t value);
#endif

/* Text to QEMU's log (`-d plugin`). */
void qemu_plugin_outs(const char *text);

#pragma GCC visibility pop
#endif
