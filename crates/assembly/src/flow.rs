//! Functions, blocks, and which registers are live before each instruction.

use std::collections::{HashMap, HashSet};

use crate::effects::{Effects, Flow, effects};
use crate::parse::{Instruction, Item, Operand, Placed};
use crate::registers::{Class, RBP, RSP, Set};

/// A function's items: from its label to the next function's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// `%rbp` is its frame pointer.
    pub(crate) has_frame: bool,
    /// Why nothing is put into it.
    pub(crate) is_left: Option<&'static str>,
}

pub(crate) const RED_ZONE: &str = "functions that keep data below the stack pointer";
pub(crate) const CONVENTION: &str = "functions of another calling convention";
pub(crate) const RESOLVER: &str = "functions that run while the program is loaded";

/// What each item does, and what is live before it.
pub(crate) struct Facts<'t> {
    pub(crate) effects: Vec<Option<Effects<'t>>>,
    pub(crate) live: Vec<Set>,
    /// Control may come here from elsewhere.
    pub(crate) is_entered: Vec<bool>,
}

/// Whether a directive changes the section, so that what follows does not follow in memory.
pub(crate) fn changes_section(name: &str) -> bool {
    matches!(
        name,
        ".section" | ".pushsection" | ".popsection" | ".previous" | ".text" | ".data" | ".bss" | ".subsection"
    )
}

/// Labels that something may jump to: those of functions, and those that code or data mention. Debug information mentions many more.
fn entered<'t>(items: &[Placed<'t>]) -> HashSet<&'t str> {
    let mut found = HashSet::new();
    let mut is_debug = false;
    for placed in items {
        let text = match &placed.item {
            Item::Directive(name, rest) => {
                if changes_section(name) {
                    is_debug = rest.starts_with(".debug") || rest.starts_with(".eh_frame");
                }
                let is_mark = name.starts_with(".loc")
                    || name.starts_with(".cfi")
                    || matches!(*name, ".size" | ".type" | ".file");
                if is_debug || is_mark { "" } else { rest }
            }
            Item::Instruction(instruction) => instruction.text,
            Item::Opaque(text) => text,
            Item::Label(_) => "",
        };
        let names = text.split(|c: char| !(c.is_alphanumeric() || "._$".contains(c)));
        found.extend(names.filter(|name| name.starts_with(".L")));
    }
    found
}

pub(crate) fn facts<'t>(items: &[Placed<'t>]) -> Facts<'t> {
    let entered = entered(items);
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut is_entered = vec![false; items.len()];
    for (at, placed) in items.iter().enumerate() {
        if let Item::Label(name) = placed.item {
            places.insert(name, at);
            is_entered[at] = !name.starts_with(".L") || entered.contains(name);
        }
    }
    let effects: Vec<Option<Effects<'t>>> = items
        .iter()
        .map(|placed| match &placed.item {
            Item::Instruction(instruction) => Some(effects(instruction)),
            _ => None,
        })
        .collect();
    let mut live = vec![Set::NONE; items.len() + 1];
    live[items.len()] = Set::ALL;
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for at in (0..items.len()).rev() {
            let now = before(&items[at].item, effects[at].as_ref(), live[at + 1], &places, &live);
            // Labels that a pass has not reached yet count as dead at first: sets only grow.
            has_changed |= now != live[at];
            live[at] = now;
        }
    }
    live.truncate(items.len());
    Facts { effects, live, is_entered }
}

fn before(
    item: &Item<'_>,
    effects: Option<&Effects<'_>>,
    next: Set,
    places: &HashMap<&str, usize>,
    live: &[Set],
) -> Set {
    let Some(effects) = effects else {
        return match item {
            Item::Opaque(_) => Set::ALL,
            // What follows lies elsewhere.
            Item::Directive(name, _) if changes_section(name) => Set::ALL,
            _ => next,
        };
    };
    let target = |label: &str| places.get(label.trim()).map_or(Set::ALL, |place| live[*place]);
    let after = match effects.flow {
        Flow::Next | Flow::Call => next,
        Flow::Jump(label) => target(label),
        Flow::Branch(label) => next.with(target(label)),
        Flow::Return => Set::NONE,
        Flow::Elsewhere => Set::ALL,
    };
    after.without(effects.kills).with(effects.uses)
}

pub(crate) fn functions(items: &[Placed<'_>]) -> Vec<Function> {
    let types = items.iter().filter_map(|placed| match placed.item {
        Item::Directive(".type", rest) => {
            rest.split_once(',').filter(|(_, kind)| kind.contains("function")).map(|(name, _)| name.trim())
        }
        _ => None,
    });
    let names: HashSet<&str> = types.collect();
    let begins: Vec<(usize, &str)> = items
        .iter()
        .enumerate()
        .filter_map(|(at, placed)| match placed.item {
            Item::Label(name) if names.contains(name) => Some((at, name)),
            _ => None,
        })
        .collect();
    let mut framed = HashSet::new();
    let mut found: Vec<Function> = Vec::new();
    for (number, (first, name)) in begins.iter().enumerate() {
        let end = begins.get(number + 1).map_or(items.len(), |(next, _)| *next);
        // What a function rarely needs lies apart, and has the frame of the rest.
        let whole = name.split(".cold").next().unwrap_or(name);
        let body = || instructions(&items[*first..end]);
        if body().any(makes_frame) {
            framed.insert(whole);
        }
        found.push(Function { first: *first, end, has_frame: false, is_left: reason(name, body) });
    }
    for (function, (_, name)) in found.iter_mut().zip(&begins) {
        function.has_frame = framed.contains(name.split(".cold").next().unwrap_or(name));
    }
    found
}

fn instructions<'i, 't>(items: &'i [Placed<'t>]) -> impl Iterator<Item = &'i Instruction<'t>> {
    items.iter().filter_map(|placed| match &placed.item {
        Item::Instruction(instruction) => Some(instruction),
        _ => None,
    })
}

fn makes_frame(instruction: &Instruction<'_>) -> bool {
    instruction.mnemonic.starts_with("mov")
        && is_general(instruction.operands.first(), RSP)
        && is_general(instruction.operands.get(1), RBP)
}

fn is_general(operand: Option<&Operand<'_>>, number: u8) -> bool {
    matches!(operand, Some(Operand::Register(register)) if register.class == Class::General && register.number == number)
}

/// Why nothing can be put into a function. Call-outs destroy registers that callers do not expect to be kept, and use the memory below the stack
/// pointer, which functions of the wrapper's own compilation (`-mno-red-zone`) leave alone.
fn reason<'i, 't: 'i, I: Iterator<Item = &'i Instruction<'t>>>(
    name: &str,
    body: impl Fn() -> I,
) -> Option<&'static str> {
    if name.ends_with(".resolver") {
        return Some(RESOLVER);
    }
    // They give back what others destroy: rdi, rsi, r8, r9, r11.
    let gives_back = |instruction: &Instruction<'_>| {
        matches!(instruction.mnemonic, "pop" | "popq")
            && [7, 6, 8, 9, 11].iter().any(|number| is_general(instruction.operands.first(), *number))
    };
    if body().any(|instruction| gives_back(instruction) || instruction.mnemonic.starts_with("iret")) {
        return Some(CONVENTION);
    }
    let (mut depth, mut deepest, mut has_frame, mut calls) = (0_i64, 0_i64, false, false);
    for instruction in body() {
        calls |= instruction.mnemonic.starts_with("call");
        has_frame |= makes_frame(instruction);
        let moves_stack = is_general(instruction.operands.get(1), RSP);
        depth += match (instruction.mnemonic, instruction.operands.first()) {
            ("push" | "pushq", _) if has_frame => 8,
            ("sub" | "subq", Some(Operand::Immediate(bytes))) if moves_stack => bytes.parse().unwrap_or(i64::MAX / 2),
            ("sub" | "subq" | "and" | "andq" | "lea" | "leaq" | "mov" | "movq", _) if moves_stack => {
                i64::from(u32::MAX)
            }
            _ => 0,
        };
        let Some(memory) = instruction.memory().filter(|memory| memory.segment.is_none()) else { continue };
        let base = memory.base.filter(|base| base.class == Class::General).map(|base| base.number);
        if base == Some(RSP)
            && memory.index.is_none()
            && memory.displacement < 0
            && !instruction.mnemonic.starts_with("lea")
        {
            return Some(RED_ZONE);
        }
        if base == Some(RBP) {
            deepest = deepest.max(-memory.displacement);
        }
    }
    (has_frame && !calls && deepest > depth).then_some(RED_ZONE)
}

#[cfg(test)]
mod tests {
    //! Liveness on small functions.

    use super::*;
    use crate::parse::parse;
    use crate::registers::{RAX, RCX, RDX, RSI};

    const LOOP: &str = "\t.type f, @function\nf:\n\txorl %eax, %eax\n.L2:\n\taddq (%rdi), %rax\n.LVL3:\n\taddq $8, %rdi\n\tcmpq %rdi, %rsi\n\tjne .L2\n\tret\n";

    #[test]
    fn registers_live_as_far_as_somebody_reads_them() {
        let items = parse(LOOP);
        let facts = facts(&items);
        let at = |line: usize| items.iter().position(|placed| placed.line == line).expect("the line");
        assert!(
            facts.live[at(4)].has(RAX)
                && facts.live[at(4)].has(RSI)
                && !facts.live[at(4)].has(RCX)
                && !facts.live[at(4)].has_flags()
        );
        // The loop's own comparison sets the flags that its jump reads.
        assert!(facts.live[at(8)].has_flags() && !facts.live[at(7)].has_flags());
        assert!(facts.live[at(9)].has(RDX) && !facts.live[at(2)].has(RAX), "rdx is returned, rax is made");
        assert!(facts.is_entered[at(3)] && !facts.is_entered[at(5)], "debug information alone names .LVL3");
    }

    #[test]
    fn all_lives_where_control_goes_nobody_knows_where() {
        for text in
            ["f:\n\tjmp *%rcx\n", "#APP\n\tfoo\n#NO_APP\n", "\tfoo %eax\n\tret\n", "\tjne .L9\n\tret\n", "\tud2\n"]
        {
            assert_eq!(facts(&parse(text)).live[0], Set::ALL, "{text}");
        }
    }

    #[test]
    fn functions_of_other_habits_are_left_alone() {
        let left = |body: &str| {
            let text = format!("\t.type f, @function\nf:\n{body}\tret\n");
            functions(&parse(&text))[0].is_left
        };
        assert_eq!(left("\tmovq %rdi, -8(%rsp)\n"), Some(RED_ZONE));
        assert_eq!(left("\tpushq %rbp\n\tmovq %rsp, %rbp\n\tmovl %edi, -4(%rbp)\n"), Some(RED_ZONE));
        assert_eq!(left("\tpushq %rbp\n\tmovq %rsp, %rbp\n\tsubq $16, %rsp\n\tmovl %edi, -4(%rbp)\n\tleave\n"), None);
        assert_eq!(left("\tpushq %rdi\n\tcall g\n\tpopq %rdi\n"), Some(CONVENTION));
        assert_eq!(left("\tpushq %rax\n\tcall g\n\tpopq %rcx\n"), None);
        assert_eq!(left("\tpopcntq %rdi, %rax\n"), None);
        let both = functions(&parse(
            "\t.type f, @function\nf:\n\tmovq %rsp, %rbp\n\tcall g\n\t.type f.cold, @function\nf.cold:\n\tret\n",
        ));
        assert!(
            both[0].has_frame && both[1].has_frame && both[0].end == both[1].first - 1
                || both[0].has_frame && both[1].has_frame
        );
    }
}
