//! Registers by name, and sets of them.

/// A register as an operand names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) class: Class,
    /// Which of its class: that of the instruction encoding.
    pub(crate) number: u8,
    /// Width in bytes.
    pub(crate) bytes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    General,
    /// `%rip`, `%eip`.
    InstructionPointer,
    /// `xmm`, `ymm`, `zmm`.
    Vector,
    /// AVX-512 masks, MMX, x87, segments, control and debug registers.
    Other,
}

const NAMES: [&str; 16] =
    ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

impl Register {
    pub(crate) const fn general(number: u8) -> Register {
        Register { class: Class::General, number, bytes: 8 }
    }

    /// By its name with the percent sign.
    pub(crate) fn named(name: &str) -> Option<Register> {
        let name = name.strip_prefix('%')?.trim();
        if let Some((number, bytes)) = general(name) {
            return Some(Register { class: Class::General, number, bytes });
        }
        if matches!(name, "rip" | "eip") {
            return Some(Register { class: Class::InstructionPointer, number: 0, bytes: 8 });
        }
        for (prefix, bytes) in [("xmm", 16), ("ymm", 32), ("zmm", 64)] {
            if let Some(number) = name.strip_prefix(prefix) {
                return Some(Register { class: Class::Vector, number: number.parse().ok()?, bytes });
            }
        }
        let is_other = name.starts_with("st")
            || matches!(name, "cs" | "ds" | "es" | "fs" | "gs" | "ss")
            || ["mm", "k", "cr", "dr", "bnd"].iter().any(|prefix| {
                name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
            });
        is_other.then_some(Register { class: Class::Other, number: 0, bytes: 8 })
    }

    /// Its name, of a general register or the instruction pointer or a vector register.
    pub(crate) fn text(self) -> String {
        match self.class {
            Class::General => format!("%{}", self.name()),
            Class::InstructionPointer => "%rip".to_owned(),
            Class::Vector => {
                let letter = match self.bytes {
                    16 => 'x',
                    32 => 'y',
                    _ => 'z',
                };
                format!("%{letter}mm{}", self.number)
            }
            Class::Other => String::new(),
        }
    }

    fn name(self) -> String {
        let stem = NAMES[usize::from(self.number & 15)];
        match (self.number < 8, self.bytes) {
            (true, 4) => format!("e{stem}"),
            (true, _) => format!("r{stem}"),
            (false, 4) => format!("{stem}d"),
            (false, _) => stem.to_owned(),
        }
    }

    /// The name of its low four bytes.
    pub(crate) fn low(self) -> String {
        Register { bytes: 4, ..self }.text()
    }
}

/// Number and width of a general register. `%ah` and its kin count as the register that they are part of.
fn general(name: &str) -> Option<(u8, u8)> {
    let number_of = |stem: &str| NAMES.iter().position(|known| *known == stem).and_then(|at| u8::try_from(at).ok());
    if let Some(at) = ["al", "cl", "dl", "bl"].iter().position(|low| *low == name) {
        return Some((u8::try_from(at).ok()?, 1));
    }
    if let Some(at) = ["ah", "ch", "dh", "bh"].iter().position(|high| *high == name) {
        return Some((u8::try_from(at).ok()?, 1));
    }
    if let Some(number) = number_of(name) {
        return Some((number, if number < 8 { 2 } else { 8 }));
    }
    if let Some(stem) = name.strip_suffix('l').filter(|stem| stem.len() == 2) {
        return number_of(stem).map(|number| (number, 1));
    }
    let (first, rest) = name.split_at_checked(1)?;
    match first {
        "r" if number_of(rest).is_some_and(|number| number < 8) => Some((number_of(rest)?, 8)),
        "e" if number_of(rest).is_some_and(|number| number < 8) => Some((number_of(rest)?, 4)),
        "r" => {
            let (stem, width) = name.split_at_checked(name.len() - 1)?;
            let bytes = match width {
                "d" => 4,
                "w" => 2,
                "b" | "l" => 1,
                _ => return None,
            };
            number_of(stem).filter(|number| *number >= 8).map(|number| (number, bytes))
        }
        _ => None,
    }
}

/// General registers and the flags, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(pub(crate) u32);

pub(crate) const RAX: u8 = 0;
pub(crate) const RCX: u8 = 1;
pub(crate) const RDX: u8 = 2;
pub(crate) const RBX: u8 = 3;
pub(crate) const RSP: u8 = 4;
pub(crate) const RBP: u8 = 5;
pub(crate) const RSI: u8 = 6;
pub(crate) const RDI: u8 = 7;
/// Registers that calls destroy: what a call-out may use where they are dead.
pub(crate) const SCRATCH: [u8; 9] = [RCX, RDX, RSI, RDI, 8, 9, 10, 11, RAX];

impl Set {
    pub(crate) const NONE: Set = Set(0);
    pub(crate) const FLAGS: Set = Set(1 << 16);
    pub(crate) const ALL: Set = Set(0x1_ffff);
    /// Kept by functions for their callers.
    pub(crate) const KEPT: Set = Set::of(&[RBX, RSP, RBP, 12, 13, 14, 15]);
    /// What a called function may look at: arguments, the number of vector arguments, the static chain.
    pub(crate) const GIVEN: Set = Set(Set::of(&[RAX, RCX, RDX, RSI, RDI, 8, 9, 10]).0 | Set::KEPT.0);
    /// What the caller may look at when a function has returned.
    pub(crate) const RETURNED: Set = Set(Set::of(&[RAX, RDX]).0 | Set::KEPT.0);

    pub(crate) const fn of(numbers: &[u8]) -> Set {
        let (mut bits, mut at) = (0, 0);
        while at < numbers.len() {
            bits |= 1 << numbers[at];
            at += 1;
        }
        Set(bits)
    }

    pub(crate) fn has(self, number: u8) -> bool {
        self.0 >> number & 1 != 0
    }

    pub(crate) fn has_flags(self) -> bool {
        self.0 & Set::FLAGS.0 != 0
    }

    pub(crate) fn with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// With the register, where it is a general one.
    pub(crate) fn and(self, register: Register) -> Set {
        if register.class == Class::General { Set(self.0 | 1 << register.number) } else { self }
    }
}

#[cfg(test)]
mod tests {
    //! Names of all widths.

    use super::*;

    #[test]
    fn general_registers_of_every_width_are_known() {
        let known = [
            ("%rax", 0, 8),
            ("%eax", 0, 4),
            ("%ax", 0, 2),
            ("%al", 0, 1),
            ("%ah", 0, 1),
            ("%rsp", 4, 8),
            ("%bpl", 5, 1),
            ("%sil", 6, 1),
            ("%edi", 7, 4),
            ("%r8", 8, 8),
            ("%r8d", 8, 4),
            ("%r10w", 10, 2),
            ("%r15b", 15, 1),
            ("%bh", 3, 1),
            ("%dil", 7, 1),
        ];
        for (name, number, bytes) in known {
            assert_eq!(Register::named(name), Some(Register { class: Class::General, number, bytes }), "{name}");
        }
        for (name, class) in
            [("%xmm15", Class::Vector), ("%zmm31", Class::Vector), ("%k1", Class::Other), ("%st(1)", Class::Other)]
        {
            assert_eq!(Register::named(name).map(|found| found.class), Some(class), "{name}");
        }
        for name in ["rax", "%foo", "%r16", "%kk", "%"] {
            assert_eq!(Register::named(name), None, "{name}");
        }
        assert_eq!((Register::general(9).text(), Register::general(9).low()), ("%r9".to_owned(), "%r9d".to_owned()));
        assert_eq!((Register::general(3).text(), Register::general(3).low()), ("%rbx".to_owned(), "%ebx".to_owned()));
    }
}
