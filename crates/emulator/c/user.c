/* user.c: the user-mode plugin's beginning: is this the emulator that it is for? */
#include "user.h"

#include <string.h>
#include <unistd.h>

/* What a QEMU that takes this plugin ends with when it is asked for nothing else (`probe=on`); crates/emulator/src/qemu.rs waits for it. */
#define PROBE_STATUS 42

NP_QEMU_EXPORT int qemu_plugin_version = NP_QEMU_PLUGIN_VERSION;

NP_QEMU_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    if (info->system_emulation || strcmp(info->target_name, "x86_64") != 0) return -1;
    for (int i = 0; i < count; i++)
        if (strcmp(arguments[i], "probe=on") == 0) _exit(PROBE_STATUS);
    qemu_plugin_register_vcpu_tb_trans_cb(id, np_on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, np_on_system_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, np_on_system_call_result);
    return 0;
}
