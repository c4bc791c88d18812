/* unwind_step_arm64.h: one step of unwind.c's walk on 64-bit Arm, from a rule's frame, a signal's frame, or the frame pointer alone. Part of unwind.c. */

#define NO_FP 1u /* what was in the frame pointer is not known: no address of a record, and not the chain's end */

/* kind 3 bits, frame-pointer rule 2, the return address's 1 and 1, frame offset 24, frame-pointer offset 24, words from there to the return address 8. */
static inline uint64_t pack(struct np_rule rule) {
    return rule.kind | (uint64_t)rule.fp_rule << 3 | (uint64_t)rule.ra_in_register << 5 | (uint64_t)rule.ra_is_signed << 6 |
           ((uint64_t)(uint32_t)rule.cfa & 0xffffff) << 8 | ((uint64_t)(uint32_t)rule.fp & 0xffffff) << 32 | (uint64_t)(uint8_t)rule.ra_words << 56;
}

static inline bool ra_is_in_register(uint64_t rule) { return rule >> 5 & 1; }
static inline bool ra_is_signed(uint64_t rule) { return rule >> 6 & 1; }
static inline int64_t ra_of(uint64_t rule) { return fp_of(rule) + ((int64_t)rule >> 56) * 8; }

/* A handler returns to the trampoline's first instruction: the byte before it may belong to any function. */
static uint64_t packed_rule(struct np_slot *slot, uintptr_t pc, bool at_instruction) {
    if (!at_instruction && np_cfi_is_signal_trampoline(pc)) return pack((struct np_rule){.kind = NP_RULE_SIGNAL});
    pc -= !at_instruction;
    return pack(np_cfi_rule(np_module_eh_frame(slot, pc), pc));
}

/* Without the bits that pointer authentication has put above the address (xpaclri; a no-operation where the processor has none, and then nothing was put). */
static inline uintptr_t stripped(uintptr_t pc) {
    __asm__("mov x30, %0\n\thint #7\n\tmov %0, x30" : "+r"(pc) : : "x30");
    return pc;
}

/* A handler's frame lies on the kernel's struct rt_sigframe (arch/arm64/kernel/signal.c): 128 bytes of siginfo, then the ucontext, whose registers begin at
 * its byte 184 (asm/ucontext.h, asm/sigcontext.h): x0 to x30, sp, pc. */
static NP_COLD enum step step_signal(struct walk *walk) {
    uintptr_t registers = walk->sp + 128 + 184;
    walk->memo->may_interrupt = true;
    if (!walk->sp_is_known || !inside(walk, registers) || !inside(walk, registers + 32 * 8)) return STEP_FAIL;
    uintptr_t sp = load(walk, registers + 31 * 8);
    walk->fp = load(walk, registers + 29 * 8);
    walk->lr = load(walk, registers + 30 * 8);
    walk->pc = load(walk, registers + 32 * 8);
    walk->at_instruction = true;
    /* Interrupted on another stack than the handler ran on: only the thread's own is known to be readable. */
    if (sp <= walk->sp || sp >= walk->high) return STEP_FAIL;
    walk->sp = walk->low = sp;
    return STEP_ON;
}

/* Code without unwinding data: if it keeps frame pointers, the chain goes on through them. A record lies anywhere in its frame, so that the caller's stack
 * pointer is not known, only that it is above. */
static NP_COLD enum step step_guess(struct walk *walk) {
    /* The chain of frame records ends with a frame pointer of zero (AAPCS64, "The Frame Pointer"): a program's _start and a thread's clone set it. */
    if (walk->fp == 0) return STEP_END;
    if (walk->fp < walk->sp || !inside(walk, walk->fp) || !inside(walk, walk->fp + 8)) return STEP_FAIL;
    walk->pc = stripped(load(walk, walk->fp + 8));
    walk->sp = walk->fp + 16;
    walk->sp_is_known = false;
    walk->fp = load(walk, walk->fp);
    return walk->pc < 4096 || walk->pc >= NP_ADDRESS_END ? STEP_FAIL : STEP_ON;
}

/* Called from code without unwinding data: where the function has made a record, its frame pointer tells where the frame is. */
static NP_COLD enum step place_by_record(const struct walk *walk, uint64_t rule, uintptr_t *frame) {
    if (fp_rule_of(rule) != NP_FP_AT_CFA || ra_of(rule) != fp_of(rule) + 8) return walk->fp == 0 ? STEP_END : STEP_FAIL;
    *frame = walk->fp - (uintptr_t)fp_of(rule);
    return STEP_ON;
}

static inline enum step step_frame(struct walk *walk, uint64_t rule, uintptr_t frame, bool interrupted) {
    if (np_unlikely(!walk->sp_is_known) && kind_of(rule) == NP_RULE_SP) {
        enum step placed = place_by_record(walk, rule, &frame);
        if (placed != STEP_ON) return placed;
    }
    if (np_unlikely(frame < walk->sp || frame > walk->high || (frame & 7) != 0)) return STEP_FAIL;
    if (np_unlikely(ra_is_in_register(rule))) {
        /* Only an interrupted function has it there; one that called another has lost it, or never had one (the outermost frame). */
        if (!interrupted) return walk->fp == 0 ? STEP_END : STEP_FAIL;
        walk->pc = walk->lr;
    } else {
        uintptr_t at = frame + (uintptr_t)ra_of(rule);
        if (np_unlikely(frame == walk->sp || !inside(walk, at))) return STEP_FAIL;
        walk->pc = load(walk, at);
    }
    if (ra_is_signed(rule)) walk->pc = stripped(walk->pc);
    if (fp_rule_of(rule) == NP_FP_AT_CFA) {
        uintptr_t at = frame + (uintptr_t)fp_of(rule);
        if (np_unlikely(!inside(walk, at))) return STEP_FAIL;
        walk->fp = load(walk, at);
    } else if (np_unlikely(fp_rule_of(rule) != NP_FP_SAME)) walk->fp = NO_FP;
    walk->sp = frame;
    walk->sp_is_known = true;
    return STEP_ON;
}
