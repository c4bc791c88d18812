/* user.c: the entry point of the user-mode plugin, which checks that it runs in a supported emulator. */
#include "user.h"

#include <string.h>
#include <unistd.h>

/* What a QEMU that takes this plugin ends with when it is asked for nothing else (`probe=on`); crates/emulator/src/qemu.rs waits for it. */
#define PROBE_STATUS 42

NP_QEMU_EXPORT int qemu_plugin_version = NP_QEMU_PLUGIN_VERSION;

/* Asked once, instead of at every access: the one bit that makes an access a store. 0: this QEMU describes accesses in some other way. */
static qemu_plugin_meminfo_t find_store_bit(void) {
    qemu_plugin_meminfo_t found = 0;
    for (unsigned bit = 0; bit < 32; bit++)
        if (qemu_plugin_mem_is_store((qemu_plugin_meminfo_t)1 << bit)) found |= (qemu_plugin_meminfo_t)1 << bit;
    return !qemu_plugin_mem_is_store(0) && __builtin_popcount(found) == 1 ? found : 0;
}

NP_QEMU_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    if (info->system_emulation || strcmp(info->target_name, "x86_64") != 0) return -1;
    np_store_bit = find_store_bit();
    if (np_store_bit == 0) return -1;
    for (int i = 0; i < count; i++)
        if (strcmp(arguments[i], "probe=on") == 0) _exit(PROBE_STATUS);
    qemu_plugin_register_vcpu_tb_trans_cb(id, np_on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, np_on_system_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, np_on_system_call_result);
    return 0;
}
