/* translate.c: what each translated block calls: one call-back per access that matters, and once per block the number of its instructions.
 *
 * Not looked at: the tracker's own code, and accesses at the top of the stack or at a constant distance from rsp, which hit a core's first cache as good
 * as always (docs/emulate.md). Instructions are charged at the first access of the block that surely happens once, as QEMU
 * 7.2 has no counter per thread that translated code could add to by itself; a block without such an access calls back at its start. */
#include "user.h"

#include "decode.h"

struct special { bool is_system_call, is_return; unsigned step; };

static struct special special_of(const uint8_t *bytes, size_t size) {
    /* Returns may have a prefix (rep, bnd). */
    const uint8_t *opcode = size > 1 && (bytes[0] == 0xf2 || bytes[0] == 0xf3) ? bytes + 1 : bytes;
    return (struct special){
        .is_system_call = size == 2 && bytes[0] == 0x0f && bytes[1] == 0x05,
        .is_return = size != 0 && (*opcode == 0xc3 || *opcode == 0xc2),
        .step = np_decode_step(bytes, size),
    };
}

static enum np_shape shape_of(const struct qemu_plugin_insn *insn, struct special *special) {
#if NP_QEMU_PLUGIN_VERSION >= 3
    uint8_t bytes[16];
    size_t size = qemu_plugin_insn_data(insn, bytes, sizeof bytes);
#else
    const uint8_t *bytes = qemu_plugin_insn_data(insn);
    size_t size = qemu_plugin_insn_size(insn);
#endif
    *special = special_of(bytes, size);
    return np_decode(bytes, size);
}

static void watch(struct qemu_plugin_insn *insn, enum np_shape shape, uint64_t charge, unsigned step) {
    uint64_t next = qemu_plugin_insn_vaddr(insn) + qemu_plugin_insn_size(insn);
    void *data = (void *)((next & NP_SITE_PC) | (step != 0 ? step : charge) << NP_SITE_CHARGE_SHIFT);
    if (shape == NP_SHAPE_NONE || shape == NP_SHAPE_STACK) return;
    qemu_plugin_vcpu_mem_cb_t call = shape == NP_SHAPE_LOCKED ? np_on_atomic : shape == NP_SHAPE_UPDATE ? np_on_update : np_on_access;
    qemu_plugin_register_vcpu_mem_cb(insn, step != 0 ? np_on_repeated : call, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, data);
}

static void ignore(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {}

/* The tracker's own code. QEMU 7.2 forgets to switch an instruction's call-backs off where that ends its block by a jump through memory; they then hear of
 * what QEMU's helpers do for later instructions (atomics, above all) that have none of their own. So ours get one, which does nothing. */
static void pass_over(struct qemu_plugin_tb *tb, uint64_t start) {
    if (start == np_slot_call) qemu_plugin_register_vcpu_tb_exec_cb(tb, np_on_slot_call, QEMU_PLUGIN_CB_NO_REGS, NULL);
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        struct special special;
        enum np_shape shape = shape_of(insn, &special);
        if (special.is_system_call) qemu_plugin_register_vcpu_insn_exec_cb(insn, np_on_own_system_call, QEMU_PLUGIN_CB_NO_REGS, NULL);
        if (shape == NP_SHAPE_LOCKED || shape == NP_SHAPE_ANY)
            qemu_plugin_register_vcpu_mem_cb(insn, ignore, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    }
}

void np_on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    uint64_t start = qemu_plugin_tb_vaddr(tb);
    if (start - np_own.lo < np_own.hi - np_own.lo) {
        pass_over(tb, start);
        return;
    }
    struct np_allocator_block block = np_allocator_block(start);
    if (block.may_be_returned_to) qemu_plugin_register_vcpu_tb_exec_cb(tb, np_on_returned, QEMU_PLUGIN_CB_NO_REGS, (void *)start);
    if (block.function != NULL) qemu_plugin_register_vcpu_tb_exec_cb(tb, np_on_allocator, QEMU_PLUGIN_CB_NO_REGS, np_allocator_data(block));
    size_t count = qemu_plugin_tb_n_insns(tb);
    uint64_t charge = count < NP_SITE_CHARGE_MAX ? count : NP_SITE_CHARGE_MAX;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        struct special special;
        enum np_shape shape = shape_of(insn, &special);
        if (special.is_return && block.is_allocators)
            qemu_plugin_register_vcpu_mem_cb(insn, np_on_return, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
        bool once = shape == NP_SHAPE_ONE || shape == NP_SHAPE_UPDATE;
        watch(insn, shape, once ? charge : 0, special.step);
        /* Each further step is a block of its own. */
        if (once || (special.step != 0 && count == 1)) charge = 0;
    }
    if (charge != 0) qemu_plugin_register_vcpu_tb_exec_cb(tb, np_on_block, QEMU_PLUGIN_CB_NO_REGS, (void *)charge);
}
