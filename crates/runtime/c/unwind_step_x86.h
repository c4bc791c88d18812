/* unwind_step_x86.h: one step of unwind.c's walk on x86-64, from a rule's frame, a signal's frame, or the frame pointer alone. Part of unwind.c. */

/* kind 3 bits, frame-pointer rule 2, frame offset 24, frame-pointer offset 24. */
static inline uint64_t pack(struct np_rule rule) {
    return rule.kind | (uint64_t)rule.fp_rule << 3 | ((uint64_t)(uint32_t)rule.cfa & 0xffffff) << 8 | ((uint64_t)(uint32_t)rule.fp & 0xffffff) << 32;
}

static uint64_t packed_rule(struct np_slot *slot, uintptr_t pc, bool at_instruction) {
    pc -= !at_instruction;
    return pack(np_cfi_rule(np_module_eh_frame(slot, pc), pc));
}

/* Below a signal frame's return address lies the kernel's ucontext: registers from offset 40 on, in the order of <sys/ucontext.h>. */
static NP_COLD enum step step_signal(struct walk *walk) {
    uintptr_t registers = walk->sp + 40;
    walk->memo->may_interrupt = true;
    if (!inside(walk, registers + 16 * 8)) return STEP_FAIL;
    uintptr_t sp = load(walk, registers + 15 * 8);
    walk->fp = load(walk, registers + 10 * 8);
    walk->pc = load(walk, registers + 16 * 8);
    walk->at_instruction = true;
    /* Interrupted on another stack than the handler ran on: only the thread's own is known to be readable. */
    if (sp < walk->sp || sp >= walk->high) return STEP_FAIL;
    walk->sp = walk->low = sp;
    return STEP_ON;
}
/* Code without unwinding data: if it keeps frame pointers, the chain goes on through them. */
static NP_COLD enum step step_guess(struct walk *walk) {
    if (walk->fp < walk->sp || !inside(walk, walk->fp) || !inside(walk, walk->fp + 8)) return STEP_FAIL;
    walk->pc = load(walk, walk->fp + 8);
    walk->sp = walk->fp + 16;
    walk->fp = load(walk, walk->fp);
    return walk->pc < 4096 || walk->pc >= NP_ADDRESS_END ? STEP_FAIL : STEP_ON;
}

static inline enum step step_frame(struct walk *walk, uint64_t rule, uintptr_t frame, bool interrupted) {
    (void)interrupted;
    if (np_unlikely(frame <= walk->sp || !inside(walk, frame - 8))) return STEP_FAIL;
    walk->pc = load(walk, frame - 8);
    if (fp_rule_of(rule) != NP_FP_SAME) {
        uintptr_t at = (fp_rule_of(rule) == NP_FP_AT_CFA ? frame : walk->fp) + (uintptr_t)fp_of(rule);
        if (np_unlikely(fp_rule_of(rule) == NP_FP_LOST)) walk->fp = 0;
        else if (np_unlikely(!inside(walk, at))) return STEP_FAIL;
        else walk->fp = load(walk, at);
    }
    walk->sp = frame;
    return STEP_ON;
}
