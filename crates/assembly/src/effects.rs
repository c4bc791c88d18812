//! What an instruction does to general registers and flags, and where control goes: as much as liveness needs. What is not known uses everything.

use crate::parse::{Instruction, Operand};
use crate::registers::{Class, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Register, Set};

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow<'t> {
    Next,
    /// To the label, always or sometimes.
    Jump(&'t str),
    Branch(&'t str),
    Call,
    Return,
    /// Where is not known: computed jumps, traps.
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effects<'t> {
    /// Read before it is written.
    pub(crate) uses: Set,
    /// Written whole, so that nobody sees what was there.
    pub(crate) kills: Set,
    /// Written at all.
    pub(crate) writes: Set,
    pub(crate) flow: Flow<'t>,
    /// False: nothing is known, and all that is around it stays in place.
    pub(crate) is_known: bool,
}

const UNKNOWN: Effects<'_> =
    Effects { uses: Set::ALL, kills: Set::NONE, writes: Set::ALL, flow: Flow::Next, is_known: false };

/// Names without the suffix of the operands' width.
const STEMS: &[&str] = &[
    "mov", "movabs", "movbe", "movnti", "lea", "add", "sub", "adc", "sbb", "and", "or", "xor", "cmp", "test", "inc",
    "dec", "neg", "not", "imul", "mul", "div", "idiv", "sal", "shl", "sar", "shr", "rol", "ror", "rcl", "rcr", "shld",
    "shrd", "bt", "bts", "btr", "btc", "bsf", "bsr", "popcnt", "lzcnt", "tzcnt", "bswap", "xchg", "xadd", "cmpxchg",
    "push", "pop", "andn", "bextr", "bzhi", "blsr", "blsi", "blsmsk", "mulx", "pdep", "pext", "rorx", "sarx", "shlx",
    "shrx", "adcx", "adox", "crc32",
];

/// An instruction's name and the width in bytes that its suffix says.
pub(crate) fn stem(mnemonic: &str) -> Option<(&str, Option<u8>)> {
    if STEMS.contains(&mnemonic) {
        return Some((mnemonic, None));
    }
    let (stem, suffix) = mnemonic.split_at_checked(mnemonic.len().checked_sub(1)?)?;
    STEMS.contains(&stem).then_some(())?;
    Some((stem, Some(width(suffix)?)))
}

/// Bytes of a width's letter.
pub(crate) fn width(letter: &str) -> Option<u8> {
    Some(match letter {
        "b" => 1,
        "w" => 2,
        "l" => 4,
        "q" => 8,
        _ => return None,
    })
}

/// Widths that `movzbl`, `movslq` and their kin name: the source's and the result's.
pub(crate) fn extension(mnemonic: &str) -> Option<(u8, u8)> {
    let letters = mnemonic.strip_prefix("movz").or_else(|| mnemonic.strip_prefix("movs"))?;
    let (from, to) = letters.split_at_checked(1)?;
    let (from, to) = (width(from)?, width(to)?);
    (from < to).then_some((from, to))
}

/// How names of x87 instructions begin.
const X87: &[&str] = &[
    "fld", "fst", "fild", "fist", "fadd", "fiadd", "fsub", "fisub", "fmul", "fimul", "fdiv", "fidiv", "fcom", "fucom",
    "ficom", "fxch", "fabs", "fchs", "frndint", "fsqrt", "fscale", "fprem", "fsin", "fcos", "fptan", "fpatan", "fyl2x",
    "f2xm1", "fcmov", "ftst", "fxam", "fnst", "fnclex", "fwait", "ffree", "fxtract", "fincstp", "fdecstp",
];

pub(crate) fn is_vector(instruction: &Instruction<'_>) -> bool {
    let special =
        |operand: &Operand<'_>| matches!(operand, Operand::Register(register) if register.class != Class::General);
    instruction.operands.iter().any(special)
        || instruction.mnemonic.contains("2si")
        || X87.iter().any(|stem| instruction.mnemonic.starts_with(stem))
        || matches!(
            instruction.mnemonic,
            "vzeroupper" | "vzeroall" | "ldmxcsr" | "stmxcsr" | "vldmxcsr" | "vstmxcsr" | "emms"
        )
}

/// The registers that operands mention: in addresses, and as operands.
fn mentioned(instruction: &Instruction<'_>) -> (Set, Vec<Register>) {
    let (mut addresses, mut registers) = (Set::NONE, Vec::new());
    for operand in &instruction.operands {
        match operand {
            Operand::Register(register) => registers.push(*register),
            Operand::IndirectRegister(register) => addresses = addresses.and(*register),
            Operand::Memory(memory) | Operand::IndirectMemory(memory) => {
                for register in [memory.base, memory.index].into_iter().flatten() {
                    addresses = addresses.and(register);
                }
            }
            Operand::Immediate(_) => {}
        }
    }
    (addresses, registers)
}

pub(crate) fn effects<'t>(instruction: &Instruction<'t>) -> Effects<'t> {
    if let Some(found) = jump(instruction) {
        return found;
    }
    if let Some(found) = without_operands(instruction) {
        return found;
    }
    if is_vector(instruction) {
        return vector(instruction);
    }
    scalar(instruction).unwrap_or(UNKNOWN)
}

fn plain(uses: Set, kills: Set, writes: Set) -> Effects<'static> {
    Effects { uses, kills, writes: writes.with(kills), flow: Flow::Next, is_known: true }
}

/// Calls that keep registers which others may destroy, or take something in one that they do not: profilers' hooks, thunks of indirect calls,
/// stacks in parts.
fn is_odd_call(target: &str) -> bool {
    ["__x86_indirect", "__fentry", "mcount", "_mcount", "__morestack", "."]
        .iter()
        .any(|name| target.trim_start_matches('*').starts_with(name))
        || target.to_ascii_lowercase().contains("@tlscall")
        || target.starts_with(|c: char| c.is_ascii_digit())
}

fn jump<'t>(instruction: &Instruction<'t>) -> Option<Effects<'t>> {
    let (mnemonic, target) = (instruction.mnemonic, instruction.text);
    let (addresses, _) = mentioned(instruction);
    let known = |uses, writes, flow| Some(Effects { uses, kills: Set::NONE, writes, flow, is_known: true });
    match mnemonic {
        // Which registers a function destroys depends on its calling convention: that none is, is true of all.
        "call" | "callq" if is_odd_call(target) => Some(UNKNOWN),
        "call" | "callq" => known(Set::GIVEN.with(addresses), Set::ALL, Flow::Call),
        "ret" | "retq" => known(Set::RETURNED, Set::NONE, Flow::Return),
        "jmp" | "jmpq" if target.starts_with('*') => known(Set::ALL, Set::NONE, Flow::Elsewhere),
        "jmp" | "jmpq" if target.starts_with(".L") => known(Set::NONE, Set::NONE, Flow::Jump(target)),
        "jmp" | "jmpq" if is_odd_call(target) => known(Set::ALL, Set::NONE, Flow::Elsewhere),
        "jmp" | "jmpq" => known(Set::GIVEN.with(Set::RETURNED), Set::NONE, Flow::Return),
        "ud2" | "hlt" | "int3" => known(Set::ALL, Set::NONE, Flow::Elsewhere),
        "jrcxz" | "jecxz" | "loop" => Some(UNKNOWN),
        _ if mnemonic.starts_with('j') && target.starts_with(".L") => {
            known(Set::FLAGS, Set::NONE, Flow::Branch(target))
        }
        // A call in place of a return, on a condition.
        _ if mnemonic.starts_with('j') => known(Set::ALL, Set::NONE, Flow::Next),
        _ => None,
    }
}

fn without_operands(instruction: &Instruction<'_>) -> Option<Effects<'static>> {
    let mnemonic = instruction.mnemonic;
    if mnemonic.starts_with("nop") || matches!(mnemonic, "endbr64" | "pause" | "mfence" | "lfence" | "sfence" | "cld") {
        return Some(plain(Set::NONE, Set::NONE, Set::NONE));
    }
    if mnemonic.starts_with("prefetch") {
        return Some(plain(mentioned(instruction).0, Set::NONE, Set::NONE));
    }
    let (rax, rdx) = (Set::of(&[RAX]), Set::of(&[RDX]));
    Some(match mnemonic {
        "cltq" | "cwtl" | "cbtw" | "cdqe" | "cwde" => plain(rax, Set::NONE, rax),
        "cqto" | "cltd" | "cqo" | "cdq" => plain(rax, rdx, Set::NONE),
        "leave" | "leaveq" => plain(Set::of(&[RBP, RSP]), Set::NONE, Set::of(&[RBP, RSP])),
        "rdtsc" => plain(Set::NONE, rax.with(rdx), Set::NONE),
        "cpuid" => plain(Set::of(&[RAX, RCX]), Set::NONE, Set::of(&[RAX, RBX, RCX, RDX])),
        _ if is_string(mnemonic) && !is_vector(instruction) => {
            let all = Set::of(&[RAX, RCX, RSI, RDI]);
            plain(all, Set::NONE, all)
        }
        _ => return None,
    })
}

/// `movsq`, `stosl` and the like, which work on what `%rsi` and `%rdi` point to.
pub(crate) fn is_string(mnemonic: &str) -> bool {
    let rest = mnemonic.strip_prefix("movs").or_else(|| mnemonic.strip_prefix("stos"));
    rest.is_some_and(|letter| width(letter).is_some())
}

/// Vector and floating-point instructions have general registers as explicit operands only, but for a few.
fn vector(instruction: &Instruction<'_>) -> Effects<'static> {
    let name = instruction.mnemonic.strip_prefix('v').unwrap_or(instruction.mnemonic);
    let (addresses, registers) = mentioned(instruction);
    let mut uses = registers.iter().fold(addresses, |set, register| set.and(*register));
    let mut kills = Set::NONE;
    let writes = match instruction.operands.last() {
        Some(Operand::Register(register)) => Set::NONE.and(*register),
        _ => Set::NONE,
    };
    if name.starts_with("pcmpestr") || name.starts_with("pcmpistr") {
        return plain(uses.with(Set::of(&[RAX, RDX])), Set::FLAGS, Set::of(&[RCX]));
    }
    if name.starts_with("maskmov") {
        uses = uses.with(Set::of(&[RDI]));
    }
    if name.starts_with("fcmov") {
        uses = uses.with(Set::FLAGS);
    }
    if name.starts_with("ucomis") || name.starts_with("comis") || name == "ptest" {
        kills = Set::FLAGS;
    }
    // A number that leaves a vector register fills a general one.
    let is_result = name.starts_with("movmskp")
        || name.starts_with("pmovmskb")
        || name.starts_with("cvt")
        || matches!(name, "movd" | "movq");
    if is_result
        && let [Operand::Register(from), Operand::Register(to)] = instruction.operands[..]
        && from.class == Class::Vector
        && to.class == Class::General
        && to.bytes >= 4
    {
        uses = addresses;
        kills = kills.and(to);
    }
    plain(uses, kills, writes)
}

/// Writes the flags whole, or leaves in them what nothing may look at.
fn sets_flags(stem: &str, instruction: &Instruction<'_>) -> bool {
    match stem {
        "add" | "sub" | "and" | "or" | "xor" | "cmp" | "test" | "neg" | "imul" | "mul" | "div" | "idiv" | "popcnt"
        | "lzcnt" | "tzcnt" | "bsf" | "bsr" | "andn" | "bextr" | "bzhi" | "blsr" | "blsi" | "blsmsk" | "xadd"
        | "cmpxchg" => true,
        // By a count of zero they leave the flags.
        "sal" | "shl" | "sar" | "shr" => match instruction.operands[..] {
            [_] => true,
            [Operand::Immediate(count), _] => count.parse().is_ok_and(|count: u8| count & 63 != 0 && count & 31 != 0),
            _ => false,
        },
        _ => false,
    }
}

fn scalar(instruction: &Instruction<'_>) -> Option<Effects<'static>> {
    let mnemonic = instruction.mnemonic;
    let (addresses, registers) = mentioned(instruction);
    let used = registers.iter().fold(addresses, |set, register| set.and(*register));
    let last = match instruction.operands.last() {
        Some(Operand::Register(register)) => Some(*register),
        _ => None,
    };
    let result = last.map_or(Set::NONE, |register| Set::NONE.and(register));
    // The low half of a register takes the high one with it; narrower parts leave the rest.
    let whole = if last.is_some_and(|register| register.bytes >= 4) { result } else { Set::NONE };
    let sources = registers
        .iter()
        .take(registers.len() - usize::from(last.is_some()))
        .fold(addresses, |set, register| set.and(*register));
    if extension(mnemonic).is_some() {
        return Some(plain(sources, whole, result));
    }
    if mnemonic.starts_with("cmov") {
        return Some(plain(used.with(Set::FLAGS), Set::NONE, result));
    }
    if mnemonic.starts_with("set") {
        return Some(plain(addresses.with(Set::FLAGS), Set::NONE, result));
    }
    let (stem, _) = stem(mnemonic)?;
    let flags = if sets_flags(stem, instruction) { Set::FLAGS } else { Set::NONE };
    let ax_dx = Set::of(&[RAX, RDX]);
    Some(match (stem, &instruction.operands[..]) {
        ("xor" | "sub", [Operand::Register(left), Operand::Register(right)]) if left == right && left.bytes >= 4 => {
            plain(Set::NONE, result.with(flags), Set::NONE)
        }
        ("mov" | "movabs" | "lea" | "movbe", _) => {
            plain(if whole == Set::NONE { used } else { sources }, whole, result)
        }
        (
            "popcnt" | "lzcnt" | "tzcnt" | "andn" | "bextr" | "bzhi" | "blsr" | "blsi" | "blsmsk" | "pdep" | "pext"
            | "rorx" | "sarx" | "shlx" | "shrx",
            _,
        ) => plain(sources, whole.with(flags), result),
        ("imul", [_, _, _]) => plain(sources, whole.with(flags), result),
        ("imul" | "mul", [_]) => plain(used.with(Set::of(&[RAX])), flags, ax_dx),
        ("div" | "idiv", [_]) => plain(used.with(ax_dx), flags, ax_dx),
        ("mulx", _) => plain(used.with(Set::of(&[RDX])), Set::NONE, used),
        ("cmp" | "test" | "bt", _) => plain(used, flags, Set::NONE),
        ("push", _) => plain(used.with(Set::of(&[RSP])), Set::NONE, Set::of(&[RSP])),
        ("pop", _) => plain(addresses.with(Set::of(&[RSP])), whole, Set::of(&[RSP])),
        ("xchg" | "xadd", _) => plain(used, flags, used),
        ("cmpxchg", _) => plain(used.with(Set::of(&[RAX])), flags, used.with(Set::of(&[RAX]))),
        ("adc" | "sbb" | "rcl" | "rcr" | "adcx" | "adox", _) => plain(used.with(Set::FLAGS), Set::NONE, result),
        _ => plain(used, flags, result),
    })
}

#[cfg(test)]
mod tests {
    //! Instructions of which a wrong answer would destroy a register.

    use super::*;
    use crate::parse::{Item, parse};

    fn of(text: &str) -> Effects<'_> {
        match &parse(text)[0].item {
            Item::Instruction(instruction) => effects(instruction),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_written_whole_is_dead_before() {
        for (text, kills) in [
            ("movl (%rdi), %eax", &[RAX][..]),
            ("xorl %ecx, %ecx", &[RCX]),
            ("movzbl %al, %edx", &[RDX]),
            ("leaq 8(%rdi), %rsi", &[RSI]),
            ("imulq $3, %rdi, %rax", &[RAX]),
            ("vmovq %xmm0, %rax", &[RAX]),
            ("cvttsd2sil %xmm0, %eax", &[RAX]),
            ("popq %rdx", &[RDX]),
        ] {
            assert_eq!(of(text).kills.without(Set::FLAGS), Set::of(kills), "{text}");
        }
        for text in [
            "movb %cl, %al",
            "movw %cx, %ax",
            "addl %ecx, %eax",
            "cmovne %ecx, %eax",
            "sete %al",
            "movq %rax, (%rdi)",
            "shlq %cl, %rax",
        ] {
            assert!(!of(text).kills.has(RAX), "{text}");
        }
    }

    #[test]
    fn implicit_operands_are_used() {
        for (text, uses) in [
            ("divq %rcx", &[RAX, RDX, RCX][..]),
            ("mulq (%rdi)", &[RAX, RDI]),
            ("cmpxchgl %ecx, (%rdi)", &[RAX, RCX, RDI]),
            ("mulx %rsi, %rcx, %rbx", &[RDX]),
            ("cqto", &[RAX]),
            ("rep stosq", &[RAX, RCX, RDI]),
            ("movb %cl, %al", &[RAX, RCX]),
            ("pcmpestri $0, %xmm1, %xmm0", &[RAX, RDX]),
            ("sete (%rsi)", &[RSI]),
        ] {
            let found = of(text).uses;
            assert_eq!(found.with(Set::of(uses)), found, "{text}");
        }
        assert!(!of("xchgq %rax, (%rdi)").kills.has(RAX) && of("xchgq %rax, (%rdi)").uses.has(RAX));
    }

    #[test]
    fn flags_live_where_somebody_looks() {
        for text in [
            "jne .L3",
            "setb %al",
            "adcq %rax, %rbx",
            "cmovg %eax, %ecx",
            "lahf",
            "pushfq",
            "fcmovb %st(1), %st",
            "foo %eax",
        ] {
            assert!(of(text).uses.has_flags(), "{text}");
        }
        for text in [
            "incl %eax",
            "shlq %cl, %rax",
            "shll $0, %eax",
            "movl $1, %eax",
            "rorl $3, %eax",
            "btq %rax, %rcx",
            "notl %eax",
        ] {
            assert!(!of(text).kills.has_flags(), "{text}");
        }
        for text in ["cmpl $1, (%rdi)", "testb %al, %al", "subq $8, %rax", "shrq $6, %rax", "ucomisd (%rdi), %xmm0"] {
            assert!(of(text).kills.has_flags(), "{text}");
        }
    }

    #[test]
    fn control_goes_where_it_goes() {
        assert_eq!(of("jmp .L4").flow, Flow::Jump(".L4"));
        assert_eq!(of("ja .L4").flow, Flow::Branch(".L4"));
        assert_eq!((of("jmp free").flow, of("jmp *%rax").flow), (Flow::Return, Flow::Elsewhere));
        assert!(
            !of("call __x86_indirect_thunk_r11").is_known
                && !of("call *x@TLSCALL(%rax)").is_known
                && of("call free@PLT").is_known
        );
        assert!(of("call *%r11").uses.has(11) && of("call *8(%r11)").uses.has(11));
        assert!(!of("syscall").is_known && !of("xsavec (%rdi)").is_known);
    }
}
