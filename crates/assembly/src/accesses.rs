//! Which memory an instruction reads or writes.

use crate::effects::{extension, is_string, is_vector, stem, width};
use crate::parse::{Instruction, Memory, Operand};
use crate::registers::{Class, RBP, RSP, Register};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Read and written by one instruction.
    Update,
    /// The same, indivisibly.
    Atomic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access<'t> {
    None,
    One {
        memory: Memory<'t>,
        bytes: u8,
        kind: Kind,
        /// It lies within one line: aligned to its size, or to eight bytes at least, as the type that it has promises.
        in_line: bool,
    },
    /// `rep movs`, `rep stos`: as many elements as `%rcx` says, from `%rsi` (where `copies`) to `%rdi`.
    Block {
        element: u8,
        copies: bool,
    },
    /// Why the access is left alone.
    Left(&'static str),
}

pub(crate) const GATHER: &str = "gathers, scatters and masked vectors";
pub(crate) const OTHER: &str = "instructions that are not known";
pub(crate) const SEGMENT: &str = "segments other than %fs";
pub(crate) const USERS: &str = "the user's assembly";

/// What `frame` says of `%rbp`: whether it is the function's frame pointer.
pub(crate) fn access<'t>(instruction: &Instruction<'t>, frame: bool) -> Access<'t> {
    let mnemonic = instruction.mnemonic;
    if is_string(mnemonic) && !is_vector(instruction) && extension(mnemonic).is_none() {
        return block(instruction);
    }
    let Some(memory) = instruction.memory() else { return Access::None };
    if mnemonic.starts_with("lea")
        || mnemonic.starts_with("nop")
        || mnemonic.starts_with("prefetch")
        || mnemonic.starts_with("cl")
    {
        return Access::None;
    }
    if is_vector_register(memory.index) || instruction.has_braces || mnemonic.contains("maskmov") {
        return Access::Left(GATHER);
    }
    if is_own(&memory, frame) {
        return Access::None;
    }
    if memory.segment.is_some_and(|segment| segment != "fs") {
        return Access::Left(SEGMENT);
    }
    let found = if is_vector(instruction) { of_vector(instruction) } else { of_scalar(instruction) };
    match found {
        Some((bytes, kind, in_line)) => Access::One { memory, bytes, kind, in_line },
        None => Access::Left(OTHER),
    }
}

fn is_vector_register(register: Option<Register>) -> bool {
    register.is_some_and(|register| register.class == Class::Vector)
}

/// What the compiler made for itself: locals and spilled registers in the frame, constants, the tables of the linker, the stack's canary.
fn is_own(memory: &Memory<'_>, frame: bool) -> bool {
    let is_frame = |base: Register| base.class == Class::General && (base.number == RSP || frame && base.number == RBP);
    let is_in_frame = memory.index.is_none() && memory.segment.is_none() && memory.base.is_some_and(is_frame);
    let is_table = ["@GOTPCREL", "@gottpoff", "@GOT", "@got"].iter().any(|table| memory.symbol.contains(table));
    let is_thread =
        memory.segment == Some("fs") && memory.symbol.is_empty() && memory.base.is_none() && memory.index.is_none();
    is_in_frame || is_table || is_thread || memory.symbol.starts_with(".L")
}

fn block<'t>(instruction: &Instruction<'t>) -> Access<'t> {
    let element = width(&instruction.mnemonic[4..]).unwrap_or(1);
    match instruction.prefixes[..] {
        ["rep"] => Access::Block { element, copies: instruction.mnemonic.starts_with("movs") },
        _ => Access::Left(OTHER),
    }
}

type Found = Option<(u8, Kind, bool)>;

fn of_scalar(instruction: &Instruction<'_>) -> Found {
    let mnemonic = instruction.mnemonic;
    let is_target = matches!(instruction.operands.last(), Some(Operand::Memory(_)));
    let register = instruction.operands.iter().find_map(|operand| match operand {
        Operand::Register(register) if register.class == Class::General => Some(register.bytes),
        _ => None,
    });
    if let Some((from, _)) = extension(mnemonic) {
        return Some((from, Kind::Read, true));
    }
    if mnemonic.starts_with("cmov") {
        return Some((register?, Kind::Read, true));
    }
    if mnemonic.starts_with("set") {
        return Some((1, Kind::Write, true));
    }
    if matches!(mnemonic, "call" | "callq" | "jmp" | "jmpq") {
        return Some((8, Kind::Read, true));
    }
    if matches!(mnemonic, "cmpxchg8b" | "cmpxchg16b") {
        let bytes = if mnemonic == "cmpxchg8b" { 8 } else { 16 };
        return Some((bytes, if instruction.is_locked() { Kind::Atomic } else { Kind::Update }, true));
    }
    let (stem, suffix) = stem(mnemonic)?;
    // The register of a shift is the count.
    let is_shift = matches!(stem, "sal" | "shl" | "sar" | "shr" | "rol" | "ror" | "rcl" | "rcr");
    let bytes = suffix.or(if is_shift { None } else { register })?;
    let kind = match stem {
        "movabs" => return None,
        // An offset in bits may lead anywhere.
        "bt" | "bts" | "btr" | "btc" if register.is_some() => return None,
        "xchg" => Kind::Atomic,
        "mov" | "movbe" | "movnti" => {
            if is_target {
                Kind::Write
            } else {
                Kind::Read
            }
        }
        "push" => Kind::Read,
        "pop" => Kind::Write,
        "cmp" | "test" | "bt" | "imul" | "mul" | "div" | "idiv" => Kind::Read,
        _ if !is_target => Kind::Read,
        _ if instruction.is_locked() => Kind::Atomic,
        _ => Kind::Update,
    };
    Some((bytes, kind, true))
}

fn of_vector(instruction: &Instruction<'_>) -> Found {
    let mnemonic = instruction.mnemonic;
    if mnemonic.ends_with("mxcsr") {
        return Some((4, if mnemonic.contains("st") { Kind::Write } else { Kind::Read }, true));
    }
    if let Some(rest) = mnemonic.strip_prefix('f') {
        return x87(rest).map(|(bytes, kind)| (bytes, kind, bytes <= 8));
    }
    let (name, is_wide) = mnemonic.strip_prefix('v').map_or((mnemonic, false), |name| (name, true));
    let full = instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Register(register) if register.class == Class::Vector => Some(register.bytes),
        _ => None,
    });
    let bytes = vector_bytes(name, full.max())?;
    let is_target = matches!(instruction.operands.last(), Some(Operand::Memory(_)));
    let stores = ["mov", "extract", "pextr", "cvtps2ph"].iter().any(|stem| name.starts_with(stem));
    if is_target && !stores {
        return None;
    }
    let is_aligned = ["movaps", "movapd", "movdqa", "movnt"].iter().any(|stem| name.starts_with(stem));
    let is_unaligned = ["movup", "movdqu", "lddqu"].iter().any(|stem| name.starts_with(stem));
    let in_line = bytes <= 8 || is_aligned || !is_wide && !is_unaligned;
    Some((bytes, if is_target { Kind::Write } else { Kind::Read }, in_line))
}

/// Bytes that a vector instruction moves from or to memory; `full`: the widest of its registers.
fn vector_bytes(name: &str, full: Option<u8>) -> Option<u8> {
    let element = |letter: &str| width(if letter == "d" { "l" } else { letter });
    for stem in ["pinsr", "pextr", "pbroadcast"] {
        if let Some(letter) = name.strip_prefix(stem) {
            return element(letter);
        }
    }
    if let Some(widths) = name.strip_prefix("pmovzx").or_else(|| name.strip_prefix("pmovsx")) {
        let (from, to) = (element(widths.get(..1)?)?, element(widths.get(1..)?)?);
        return Some(full? / (to / from));
    }
    if let Some(rest) = name.strip_prefix("cvtsi2s") {
        return width(rest.get(1..).filter(|suffix| !suffix.is_empty()).unwrap_or("l"));
    }
    let (cvt, plain) =
        (name.starts_with("cvt"), name.strip_prefix("cvtt").or_else(|| name.strip_prefix("cvt")).unwrap_or(name));
    Some(match name {
        "movd" | "extractps" | "insertps" => 4,
        "movq" | "movlps" | "movhps" | "movlpd" | "movhpd" => 8,
        "movddup" if full? == 16 => 8,
        "movsldup" | "movshdup" | "movddup" => full?,
        _ if ["extractf128", "extracti128", "insertf128", "inserti128", "broadcastf128", "broadcasti128"]
            .contains(&name) =>
        {
            16
        }
        _ if name.ends_with("32x4") || name.ends_with("64x2") => 16,
        _ if name.ends_with("64x4") || name.ends_with("32x8") => 32,
        "cvtps2pd" | "cvtdq2pd" | "cvtph2ps" | "cvtps2ph" | "cvtudq2pd" => full? / 2,
        _ if cvt && plain.starts_with("ss2") => 4,
        _ if cvt && plain.starts_with("sd2") => 8,
        _ if cvt && name.ends_with('x') => 16,
        _ if cvt && name.ends_with('y') => 32,
        _ if cvt && name.ends_with('z') => 64,
        _ if !name.starts_with('p') && name.ends_with("ss") => 4,
        _ if !name.starts_with('p') && name.ends_with("sd") => 8,
        // Counts of shifts.
        _ if ["psll", "psrl", "psra"].iter().any(|stem| name.starts_with(stem)) && !name[4..].starts_with('v') => 16,
        _ => full?,
    })
}

/// Of the names behind the `f`.
fn x87(rest: &str) -> Option<(u8, Kind)> {
    let (is_integer, stem) = rest.strip_prefix('i').map_or((false, rest), |stem| (true, stem));
    if matches!(rest, "ldcw" | "nstcw" | "stcw" | "nstsw") {
        return Some((2, if rest == "ldcw" { Kind::Read } else { Kind::Write }));
    }
    let names = [
        "ldl", "lds", "ldt", "ldq", "ldll", "stl", "sts", "stpl", "stps", "stpt", "stpq", "stpll", "sttpl", "sttps",
        "sttpq", "sttpll",
    ];
    let sums = ["add", "sub", "subr", "mul", "div", "divr", "com", "comp"];
    let is_sum = stem
        .split_at_checked(stem.len().saturating_sub(1))
        .is_some_and(|(sum, width)| sums.contains(&sum) && (width == "s" || width == "l"));
    if !names.contains(&stem) && !is_sum {
        return None;
    }
    let bytes = match (is_integer, stem.chars().last()?) {
        (false, 's') | (true, 'l') if !stem.ends_with("ll") => 4,
        (true, 's') => 2,
        (false, 't') => 10,
        _ => 8,
    };
    Some((bytes, if stem.starts_with("st") { Kind::Write } else { Kind::Read }))
}

#[cfg(test)]
mod tests {
    //! Instructions as gcc and clang write them.

    use super::*;
    use crate::parse::{Item, parse};

    fn of(text: &str) -> Access<'_> {
        match &parse(text)[0].item {
            Item::Instruction(instruction) => access(instruction, true),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn found(text: &str) -> Option<(u8, Kind, bool)> {
        match of(text) {
            Access::One { bytes, kind, in_line, .. } => Some((bytes, kind, in_line)),
            _ => None,
        }
    }

    #[test]
    fn scalar_accesses_have_their_widths() {
        use Kind::{Atomic, Read, Update, Write};
        for (text, bytes, kind) in [
            ("movl (%rdi), %eax", 4, Read),
            ("movq $0, 8(%rdi)", 8, Write),
            ("movb %al, (%rdi,%rcx)", 1, Write),
            ("movzbl (%rdi), %eax", 1, Read),
            ("movslq x(%rip), %rax", 4, Read),
            ("addl $1, (%rdi)", 4, Update),
            ("addl (%rdi), %eax", 4, Read),
            ("cmpw $1, (%rdi)", 2, Read),
            ("sarl %cl, (%rdi)", 4, Update),
            ("setne (%rdi)", 1, Write),
            ("cmovle (%rdi), %rax", 8, Read),
            ("lock addl $1, (%rdi)", 4, Atomic),
            ("xchgb %al, (%rdi)", 1, Atomic),
            ("lock cmpxchg16b (%rdi)", 16, Atomic),
            ("pushq 8(%rax)", 8, Read),
            ("call *16(%rax)", 8, Read),
            ("movl %fs:x@tpoff, %eax", 4, Read),
            ("imulq 8(%rsi), %rax", 8, Read),
            ("shlx %rax, (%rdi), %rcx", 8, Read),
            ("movl -40(%rbp,%rax,4), %eax", 4, Read),
        ] {
            assert_eq!(found(text), Some((bytes, kind, true)), "{text}");
        }
    }

    #[test]
    fn vector_accesses_have_their_widths() {
        use Kind::{Read, Write};
        for (text, bytes, kind, in_line) in [
            ("movsd (%rdi), %xmm0", 8, Read, true),
            ("movss %xmm0, (%rdi)", 4, Write, true),
            ("mulsd (%rsi,%rax,8), %xmm0", 8, Read, true),
            ("movups (%rdi), %xmm0", 16, Read, false),
            ("addps (%rdi), %xmm0", 16, Read, true),
            ("vaddps (%rdi), %ymm1, %ymm0", 32, Read, false),
            ("vmovapd %ymm0, (%rdi)", 32, Write, true),
            ("vmovdqu64 %zmm0, (%rdi)", 64, Write, false),
            ("vextractf128 $1, %ymm0, (%rdi)", 16, Write, false),
            ("vinsertf128 $1, (%rdi), %ymm0, %ymm0", 16, Read, false),
            ("vbroadcastsd (%rdi), %ymm0", 8, Read, true),
            ("pmovzxbw (%rdi), %xmm0", 8, Read, true),
            ("vpmovsxbd (%rdi), %ymm0", 8, Read, true),
            ("cvtsi2sdl (%rdi), %xmm0", 4, Read, true),
            ("cvttss2si (%rdi), %eax", 4, Read, true),
            ("cvtps2pd (%rdi), %xmm0", 8, Read, true),
            ("vfmadd231sd (%rdi), %xmm1, %xmm0", 8, Read, true),
            ("vfmadd231pd (%rdi), %ymm1, %ymm0", 32, Read, false),
            ("pmaxsd (%rdi), %xmm0", 16, Read, true),
            ("movhps %xmm0, 8(%rdi)", 8, Write, true),
            ("pinsrw $1, (%rdi), %xmm0", 2, Read, true),
            ("fldt (%rdi)", 10, Read, false),
            ("fstpl (%rdi)", 8, Write, true),
            ("fildll (%rdi)", 8, Read, true),
            ("fadds (%rdi)", 4, Read, true),
        ] {
            assert_eq!(found(text), Some((bytes, kind, in_line)), "{text}");
        }
    }

    #[test]
    fn what_is_no_access_of_the_program_has_none() {
        for text in [
            "leaq 8(%rdi), %rax",
            "nopw 0(%rax,%rax)",
            "prefetcht0 (%rdi)",
            "movq %rax, -8(%rbp)",
            "movl 12(%rsp), %eax",
            "movsd .LC0(%rip), %xmm0",
            "movq x@GOTPCREL(%rip), %rax",
            "movq %fs:40, %rax",
            "call *free@GOTPCREL(%rip)",
            "jmp *.L4(,%rax,8)",
            "pushq %rbp",
            "clflush (%rdi)",
        ] {
            assert_eq!(of(text), Access::None, "{text}");
        }
    }

    #[test]
    fn what_is_left_alone_says_why() {
        for (text, why) in [
            ("vgatherdpd %ymm1, (%rax,%xmm2,8), %ymm0", GATHER),
            ("vmovups (%rdi), %zmm0{%k1}{z}", GATHER),
            ("vaddpd (%rdi){1to8}, %zmm1, %zmm0", GATHER),
            ("vmaskmovps %ymm0, %ymm1, (%rdi)", GATHER),
            ("movl %gs:16, %eax", SEGMENT),
            ("xsavec (%rdi)", OTHER),
            ("btsl %eax, (%rdi)", OTHER),
            ("movsb", OTHER),
        ] {
            assert_eq!(of(text), Access::Left(why), "{text}");
        }
        assert_eq!(of("rep stosq"), Access::Block { element: 8, copies: false });
        assert_eq!(of("rep movsb"), Access::Block { element: 1, copies: true });
    }
}
