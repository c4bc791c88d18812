//! Reads assembly as compilers write it (AT&T syntax, x86-64), line by line. What it does not understand becomes `Opaque`, and stays as it is.

use crate::registers::Register;

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory<'t> {
    /// `fs` or `gs`, where the operand names one.
    pub(crate) segment: Option<&'t str>,
    /// What stands before the number in the displacement: `table`, `x@tpoff`. Empty: none.
    pub(crate) symbol: &'t str,
    pub(crate) displacement: i64,
    pub(crate) base: Option<Register>,
    pub(crate) index: Option<Register>,
    pub(crate) scale: u8,
}

impl Memory<'_> {
    /// The operand's text without its segment, moved by some bytes.
    pub(crate) fn at(&self, displacement: i64) -> String {
        let mut text = self.symbol.to_owned();
        match displacement {
            0 if !text.is_empty() || self.base.is_some() || self.index.is_some() => {}
            n if n < 0 || text.is_empty() => text.push_str(&n.to_string()),
            n => text.push_str(&format!("+{n}")),
        }
        match (self.base, self.index) {
            (None, None) => {}
            (base, None) => text.push_str(&format!("({})", base.map_or_else(String::new, |base| base.text()))),
            (base, Some(index)) => {
                let base = base.map_or_else(String::new, |base| base.text());
                text.push_str(&format!("({base},{},{})", index.text(), self.scale));
            }
        }
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand<'t> {
    Register(Register),
    Memory(Memory<'t>),
    Immediate(&'t str),
    /// `*%rax`, `*8(%rdi)`: the target of a jump is what lies there.
    IndirectRegister(Register),
    IndirectMemory(Memory<'t>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instruction<'t> {
    /// `lock`, `rep`, `repz`, `notrack`, ...
    pub(crate) prefixes: Vec<&'t str>,
    pub(crate) mnemonic: &'t str,
    pub(crate) operands: Vec<Operand<'t>>,
    /// The operands as written.
    pub(crate) text: &'t str,
    /// Masks and broadcasts of AVX-512.
    pub(crate) has_braces: bool,
}

impl<'t> Instruction<'t> {
    pub(crate) fn is_locked(&self) -> bool {
        self.prefixes.contains(&"lock")
    }

    pub(crate) fn memory(&self) -> Option<Memory<'t>> {
        self.operands.iter().find_map(|operand| match operand {
            Operand::Memory(memory) | Operand::IndirectMemory(memory) => Some(*memory),
            _ => None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'t> {
    Label(&'t str),
    /// Name with its dot, and the rest of the line.
    Directive(&'t str, &'t str),
    Instruction(Instruction<'t>),
    /// The user's assembly, or what this module does not understand.
    Opaque(&'t str),
}

/// An item and the number of the line on which it begins, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed<'t> {
    pub(crate) line: usize,
    pub(crate) item: Item<'t>,
}

const PREFIXES: &[&str] = &[
    "lock", "rep", "repe", "repz", "repne", "repnz", "notrack", "bnd", "data16", "addr32", "rex64", "xacquire",
    "xrelease", "cs", "ds", "es", "ss", "fs", "gs",
];

/// How compilers mark what they did not write themselves: its begin and its end, as comments.
const ASSEMBLY_BEGINS: &[&str] = &["#APP", "# Start of file scope inline assembly"];
const ASSEMBLY_ENDS: &[&str] = &["#NO_APP", "# End of file scope inline assembly"];

pub(crate) fn parse(text: &str) -> Vec<Placed<'_>> {
    let mut items = Vec::new();
    let mut is_user_assembly = false;
    let mut prefixes: Vec<&str> = Vec::new();
    let mut prefix_line = 0;
    for (line, raw) in text.lines().enumerate() {
        let trimmed = raw.trim();
        if ASSEMBLY_BEGINS.iter().any(|mark| trimmed.starts_with(mark)) {
            is_user_assembly = true;
        } else if ASSEMBLY_ENDS.iter().any(|mark| trimmed.starts_with(mark)) {
            is_user_assembly = false;
        }
        let code = without_comment(trimmed);
        if code.is_empty() {
            continue;
        }
        if is_user_assembly {
            items.push(Placed { line, item: Item::Opaque(code) });
            continue;
        }
        for item in line_items(code) {
            match item {
                // `lock` and `rep` may stand on lines of their own, or before a semicolon.
                Item::Instruction(found) if PREFIXES.contains(&found.mnemonic) && found.text.is_empty() => {
                    if prefixes.is_empty() {
                        prefix_line = line;
                    }
                    prefixes.push(found.mnemonic);
                }
                Item::Instruction(mut found) => {
                    let line = if prefixes.is_empty() { line } else { prefix_line };
                    found.prefixes.splice(0..0, prefixes.drain(..));
                    items.push(Placed { line, item: Item::Instruction(found) });
                }
                other => items.push(Placed { line, item: other }),
            }
        }
    }
    items
}

/// The text before a `#` outside of quotes.
fn without_comment(text: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return text[..at].trim_end(),
            _ => {}
        }
    }
    text
}

fn line_items(code: &str) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    let mut rest = code;
    while let Some((label, behind)) = label(rest) {
        items.push(Item::Label(label));
        rest = behind;
    }
    if rest.is_empty() {
        return items;
    }
    if rest.starts_with('.') {
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        items.push(Item::Directive(name, arguments.trim()));
        return items;
    }
    let statements: Vec<&str> = rest.split(';').map(str::trim).filter(|statement| !statement.is_empty()).collect();
    let (last, before) = statements.split_last().map_or(("", &[][..]), |(last, before)| (*last, before));
    if before.iter().all(|word| PREFIXES.contains(word)) {
        items.extend(before.iter().chain([&last]).map(|statement| instruction(statement)));
    } else {
        items.push(Item::Opaque(rest));
    }
    items
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_.$@".contains(c))
}

fn label(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once(':')?;
    let is_quoted =
        name.len() > 2 && name.starts_with('"') && name.ends_with('"') && !name[1..name.len() - 1].contains('"');
    (is_name(name) || is_quoted).then(|| (name, rest.trim_start()))
}

fn instruction(statement: &str) -> Item<'_> {
    let mut prefixes = Vec::new();
    let mut rest = statement;
    loop {
        let (mnemonic, text) =
            rest.split_once(char::is_whitespace).map_or((rest, ""), |(word, text)| (word, text.trim()));
        if PREFIXES.contains(&mnemonic) && !text.is_empty() {
            prefixes.push(mnemonic);
            rest = text;
            continue;
        }
        if !mnemonic.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Item::Opaque(statement);
        }
        let is_jump = mnemonic.starts_with('j') || mnemonic.starts_with("call") || mnemonic.starts_with("loop");
        // Where direct jumps go is kept as text.
        let operands = if is_jump && !text.starts_with('*') { Some(Vec::new()) } else { operands(text) };
        return match operands {
            Some(operands) => {
                Item::Instruction(Instruction { prefixes, mnemonic, operands, text, has_braces: text.contains('{') })
            }
            None => Item::Opaque(statement),
        };
    }
}

fn operands(text: &str) -> Option<Vec<Operand<'_>>> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                found.push(operand(text[start..at].trim())?);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        found.push(operand(text[start..].trim())?);
    }
    (depth == 0).then_some(found)
}

fn operand(text: &str) -> Option<Operand<'_>> {
    // A mask, broadcast or rounding of AVX-512: `%zmm0{%k1}{z}`, `{rn-sae}`.
    let plain = text.split('{').next().unwrap_or(text).trim_end();
    if let Some(target) = plain.strip_prefix('*') {
        return Some(match operand(target)? {
            Operand::Register(register) => Operand::IndirectRegister(register),
            Operand::Memory(memory) => Operand::IndirectMemory(memory),
            _ => return None,
        });
    }
    if plain.is_empty() || plain.starts_with('$') {
        return Some(Operand::Immediate(plain.trim_start_matches('$')));
    }
    if plain.starts_with('%') && !plain.contains(':') {
        return Register::named(plain).map(Operand::Register);
    }
    memory(plain).map(Operand::Memory)
}

fn memory(text: &str) -> Option<Memory<'_>> {
    let (segment, rest) = match text.strip_prefix('%') {
        Some(rest) => rest.split_once(':').map(|(segment, rest)| (Some(segment), rest))?,
        None => (None, text),
    };
    let (outside, inside) = match rest.strip_suffix(')') {
        Some(rest) => rest.rsplit_once('(').map(|(outside, inside)| (outside, Some(inside)))?,
        None => (rest, None),
    };
    let (symbol, displacement) = displacement(outside.trim())?;
    let mut parts = inside.unwrap_or("").split(',').map(str::trim);
    let register = |part: Option<&str>| match part.unwrap_or("") {
        "" => Some(None),
        name => Register::named(name).map(Some),
    };
    let (base, index) = (register(parts.next())?, register(parts.next())?);
    let scale = parts.next().map_or(Some(1), |scale| scale.parse().ok())?;
    (parts.next().is_none()).then_some(Memory { segment, symbol, displacement, base, index, scale })
}

/// `table+8` is the symbol `table` and 8.
fn displacement(text: &str) -> Option<(&str, i64)> {
    if text.is_empty() {
        return Some(("", 0));
    }
    if let Some(number) = number(text) {
        return Some(("", number));
    }
    let at = text.rfind(['+', '-']).filter(|at| *at > 0);
    let (symbol, displacement) = match at.map(|at| (at, number(text[at..].trim_start_matches('+')))) {
        Some((at, Some(number))) => (&text[..at], number),
        _ => (text, 0),
    };
    is_plain(symbol).then_some((symbol, displacement))
}

/// A symbol, or a sum that the assembler works out (`x@tpoff+8`, `-4+x`).
fn is_plain(symbol: &str) -> bool {
    symbol.chars().all(|c| c.is_alphanumeric() || "_.$@+-\"".contains(c))
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    //! Lines as gcc and clang write them.

    use super::*;

    fn one(text: &str) -> Instruction<'_> {
        match &parse(text)[..] {
            [Placed { item: Item::Instruction(found), .. }] => found.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn operands_are_taken_apart_and_written_again() {
        for operand in [
            "8(%rdi)",
            "(%rax,%rcx,8)",
            "-16(%rbp)",
            "table(,%rax,4)",
            "x+8(%rip)",
            "x@tpoff-4(%rax)",
            "x",
            "64",
            "(%rsp)",
        ] {
            let text = format!("\tmovq\t{operand}, %rdx\t# comment");
            let memory = one(&text).memory().expect(operand);
            assert_eq!(memory.at(memory.displacement), operand);
        }
        let memory = one("movl %fs:x@tpoff, %eax").memory().expect("memory");
        assert_eq!((memory.segment, memory.symbol), (Some("fs"), "x@tpoff"));
        assert_eq!(memory.at(12), "x@tpoff+12");
    }

    #[test]
    fn prefixes_belong_to_the_next_instruction() {
        for text in
            ["lock addl $1, (%rdi)", "lock; addl $1, (%rdi)", "lock\n\taddl $1, (%rdi)", "\tlock\t\taddl\t$1, (%rdi)"]
        {
            let found = one(text);
            assert!(found.is_locked() && found.mnemonic == "addl" && parse(text)[0].line == 0, "{text}: {found:?}");
        }
        assert_eq!(one("rep;stosq %al, %es:(%rdi)").prefixes, ["rep"]);
    }

    #[test]
    fn users_assembly_is_opaque() {
        let text = "#APP\n# 3 \"a.c\" 1\n\tmovl (%rax), %ebx\n# 0 \"\" 2\n#NO_APP\n\tret\n";
        let items = parse(text);
        assert!(matches!(items[0].item, Item::Opaque("movl (%rax), %ebx")) && items[0].line == 2, "{items:?}");
        assert!(matches!(&items[1].item, Item::Instruction(found) if found.mnemonic == "ret"));
    }

    #[test]
    fn labels_directives_and_strings_are_told_apart() {
        let items = parse("f:\n.LFB0:\t.cfi_startproc\n\t.string \"a # b: c\"\n\tjmp .L2\n\tcall *8(%rax)\n");
        let kinds: Vec<_> = items.iter().map(|placed| &placed.item).collect();
        assert!(
            matches!(kinds[..3], [Item::Label("f"), Item::Label(".LFB0"), Item::Directive(".cfi_startproc", "")]),
            "{kinds:?}"
        );
        assert_eq!(kinds[3], &Item::Directive(".string", "\"a # b: c\""));
        assert!(matches!(kinds[4], Item::Instruction(jump) if jump.text == ".L2" && jump.operands.is_empty()));
        assert!(
            matches!(kinds[5], Item::Instruction(call) if matches!(call.operands[..], [Operand::IndirectMemory(_)]))
        );
    }

    proptest::proptest! {
        /// Whatever a file holds, it is read to its end.
        #[test]
        fn any_text_is_read(text in "[ -~\\n\\t]{0,200}") {
            let lines = text.lines().count();
            proptest::prop_assert!(parse(&text).iter().all(|placed| placed.line < lines));
        }
    }
}
