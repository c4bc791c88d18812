//! Loops of one block whose accesses advance by less than a line a turn: there, a call-out need not look again while its line is the one of the turn before.

use std::collections::HashMap;

use crate::effects::{Flow, stem};
use crate::flow::{Facts, changes_section};
use crate::parse::{Instruction, Item, Memory, Operand, Placed};
use crate::registers::{Class, RSP, Register, Set};

/// Bytes of a line (NP_LINE_SHIFT in wire.h).
pub(crate) const LINE: i64 = 64;

/// A loop: from its label to the jump back, which alone leads to the label, so that control enters from above.
pub(crate) struct Loop {
    pub(crate) label: usize,
    pub(crate) end: usize,
    /// Bytes by which registers advance in a turn, of those that are written, and by which item; 0: not by a constant.
    steps: HashMap<u8, (i64, usize)>,
}

impl Loop {
    /// By how many bytes an operand advances in each turn, if that is less than a line: a place that stays is not one, since others may take its line away
    /// meanwhile.
    pub(crate) fn advance(&self, memory: &Memory<'_>) -> Option<i64> {
        let steps = registers(memory).map(|(register, scale)| match self.steps.get(&register.number) {
            Some((0, _)) => None,
            Some((step, _)) if register.bytes == 8 => step.checked_mul(scale),
            Some(_) => None,
            None => Some(0),
        });
        let sum = steps.sum::<Option<i64>>()?;
        (sum != 0 && sum.abs() < LINE).then_some(sum)
    }

    /// How far the place of an operand at the item `at` is from what the operand names at the loop's label, in the same turn: its registers may have
    /// advanced in between.
    pub(crate) fn since_label(&self, memory: &Memory<'_>, at: usize) -> i64 {
        let before = registers(memory).filter_map(|(register, scale)| {
            self.steps.get(&register.number).filter(|(_, place)| *place < at).map(|(step, _)| step * scale)
        });
        before.sum()
    }
}

/// General registers of an operand, each with what it is multiplied by.
fn registers(memory: &Memory<'_>) -> impl Iterator<Item = (Register, i64)> {
    let both = [(memory.base, 1), (memory.index, i64::from(memory.scale))];
    both.into_iter().filter_map(|(register, scale)| {
        register.filter(|register| register.class == Class::General).map(|register| (register, scale))
    })
}

/// How often each local label is mentioned by code and data.
pub(crate) fn mentions<'t>(items: &[Placed<'t>]) -> HashMap<&'t str, usize> {
    let mut found = HashMap::new();
    for placed in items {
        let text = match &placed.item {
            Item::Instruction(instruction) => instruction.text,
            Item::Directive(name, rest) if !name.starts_with(".loc") => rest,
            Item::Opaque(text) => text,
            _ => continue,
        };
        let names = text.split(|c: char| !(c.is_alphanumeric() || "._$".contains(c)));
        for name in names.filter(|name| name.starts_with(".L")) {
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

/// The loop that begins with the label at `label`, if it is one of this kind.
pub(crate) fn loop_at(
    items: &[Placed<'_>],
    facts: &Facts<'_>,
    label: usize,
    mentions: &HashMap<&str, usize>,
) -> Option<Loop> {
    let Item::Label(name) = items[label].item else { return None };
    // Debug information that names it, too, makes it look entered from elsewhere, which costs the loop its shorter way and nothing else.
    if mentions.get(name) != Some(&1) {
        return None;
    }
    let mut writes = Set::NONE;
    let mut steps = HashMap::new();
    for (at, placed) in items.iter().enumerate().skip(label + 1) {
        match &placed.item {
            Item::Label(_) if facts.is_entered[at] => return None,
            Item::Opaque(_) => return None,
            Item::Directive(name, _) if changes_section(name) => return None,
            Item::Instruction(instruction) => {
                let effects = facts.effects[at].filter(|effects| effects.is_known && !instruction.is_locked())?;
                // Lines are kept at distances from the stack pointer, which has to stay.
                if effects.writes.has(RSP) {
                    return None;
                }
                if effects.flow == Flow::Branch(name) {
                    return Some(Loop { label, end: at, steps });
                }
                if effects.flow != Flow::Next {
                    return None;
                }
                for number in (0..16).filter(|number| effects.writes.has(*number)) {
                    let step = if writes.has(number) { 0 } else { step(instruction, number) };
                    steps.insert(number, (step, at));
                }
                writes = writes.with(effects.writes);
            }
            _ => {}
        }
    }
    None
}

/// By how much an instruction advances a register; 0: not by a constant.
fn step(instruction: &Instruction<'_>, number: u8) -> i64 {
    let is_register = |operand: &Operand<'_>| matches!(operand, Operand::Register(r) if r.number == number && r.class == Class::General && r.bytes == 8);
    match (stem(instruction.mnemonic).map_or("", |(stem, _)| stem), &instruction.operands[..]) {
        ("add", [Operand::Immediate(step), to]) if is_register(to) => step.parse().unwrap_or(0),
        ("sub", [Operand::Immediate(step), to]) if is_register(to) => step.parse().map_or(0, |step: i64| -step),
        ("inc", [to]) if is_register(to) => 1,
        ("dec", [to]) if is_register(to) => -1,
        ("lea", [Operand::Memory(from), to])
            if is_register(to)
                && from.index.is_none()
                && from.symbol.is_empty()
                && from.base.is_some_and(|base| is_register(&Operand::Register(base))) =>
        {
            from.displacement
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    //! Which accesses of which loops advance.

    use super::*;
    use crate::flow::facts;
    use crate::parse::parse;

    fn advancing(body: &str, head: &str) -> Option<Vec<bool>> {
        let text = format!("f:\n{head}.L2:\n{body}\tjne .L2\n\tret\n");
        let items = parse(&text);
        let label = items.iter().position(|placed| placed.item == Item::Label(".L2")).expect("the label");
        let found = loop_at(&items, &facts(&items), label, &mentions(&items))?;
        let memories = items.iter().filter_map(|placed| match &placed.item {
            Item::Instruction(instruction) => instruction.memory(),
            _ => None,
        });
        Some(memories.map(|memory| found.advance(&memory).is_some()).collect())
    }

    #[test]
    fn accesses_advance_by_constants() {
        let body = "\tmovl (%rdi,%rax,4), %ecx\n\tmovsd (%rsi,%rcx,8), %xmm0\n\tmovsd (%rdx), %xmm1\n\taddq $1, %rax\n\tcmpq %rax, %r8\n";
        assert_eq!(advancing(body, ""), Some(vec![true, false, false]));
        assert_eq!(advancing("\tmovups (%rdi), %xmm0\n\taddq $16, %rdi\n\tcmpq %rdi, %rsi\n", ""), Some(vec![true]));
        assert_eq!(
            advancing("\tmovups (%rdi), %xmm0\n\taddq $64, %rdi\n\tcmpq %rdi, %rsi\n", ""),
            Some(vec![false]),
            "a line a turn"
        );
        assert_eq!(
            advancing("\tmovl (%rdi), %eax\n\tmovq 8(%rdi), %rdi\n\ttestq %rdi, %rdi\n", ""),
            Some(vec![false, false]),
            "a list"
        );
    }

    #[test]
    fn loops_are_of_one_block_and_entered_from_above() {
        let body = "\tmovl (%rdi), %eax\n\taddq $4, %rdi\n\tcmpq %rdi, %rsi\n";
        assert!(advancing(body, "").is_some() && advancing(body, "\tje .L2\n").is_none());
        for between in [
            "\tcall g\n",
            "\tpushq %rax\n",
            ".L3:\n\tjmp .L3\n",
            "\tlock addl $1, (%rsi)\n",
            "#APP\n\tnop\n#NO_APP\n",
            "\tfoo %eax\n",
        ] {
            assert!(advancing(&format!("{between}{body}"), "").is_none(), "{between}");
        }
    }
}
