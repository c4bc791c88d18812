/* qemu_api.h: what QEMU 9.2 and later (version 4 of the interface) offer their TCG plugins beyond crates/emulator/c/qemu_plugin_api.h, as far as this plugin
 * calls it, and the few functions of glib, which QEMU is linked with, by which registers and memory are handed over. */
#ifndef NUMAPILOT_QEMU_API_H
#define NUMAPILOT_QEMU_API_H

#define NP_QEMU_PLUGIN_VERSION 4
#include "../../emulator/c/qemu_plugin_api.h"

#pragma GCC visibility push(default)

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
