//! Which call-outs a file needs, and where: one for all accesses of a block to one line, as far as the operands show that.

use std::collections::HashMap;

use crate::accesses::{Access, Kind, OTHER, USERS, access};
use crate::effects::Flow;
use crate::flow::{Facts, Function, changes_section, facts, functions};
use crate::parse::{Item, Memory, Placed};
use crate::registers::{RAX, RCX, RDI, RSI, Set};
use crate::strides::{LINE, Loop, loop_at, mentions};

/// Most accesses that one call-out counts: twelve bits (callouts_after.c).
const COUNT_MAX: u32 = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<'t> {
    /// Bytes from `low` to `high` of the displacement.
    Span {
        memory: Memory<'t>,
        low: i64,
        high: i64,
        is_write: bool,
        in_line: bool,
    },
    Atomic {
        memory: Memory<'t>,
        bytes: u8,
    },
    Block {
        element: u8,
        is_write: bool,
    },
}

/// A call-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check<'t> {
    /// Item before which it stands.
    pub(crate) at: usize,
    pub(crate) what: What<'t>,
    /// Accesses to count here.
    pub(crate) count: u32,
    /// What must be as it was behind it.
    pub(crate) live: Set,
    /// Registers in its operand.
    operands: Set,
    /// Item of its first access.
    pub(crate) access: usize,
    /// In a loop, where it keeps the line that it looked for last: a number, from 0.
    pub(crate) memo: Option<u8>,
}

/// Accesses of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// With call-outs.
    pub seen: u64,
    /// Left alone, by reason.
    pub left: std::collections::BTreeMap<&'static str, u64>,
}

pub(crate) struct Plan<'t> {
    pub(crate) checks: Vec<Check<'t>>,
    /// Items before which lines that were looked for are forgotten, and how many.
    pub(crate) forgets: Vec<(usize, u8)>,
    pub(crate) counts: Counts,
}

/// A check that later accesses of the block may join: as long as its registers have the same versions.
struct Open {
    check: usize,
    versions: [u32; 2],
}

struct Planner<'i, 't> {
    items: &'i [Placed<'t>],
    facts: Facts<'t>,
    plan: Plan<'t>,
    versions: [u32; 16],
    open: Vec<Open>,
    /// First item of the run without jumps and calls in which this is, and the check in it that counts.
    begin: usize,
    counting: Option<usize>,
    /// The loop in which this is, and the lines that it keeps so far.
    turning: Option<(Loop, u8)>,
}

/// Most lines that a loop keeps: as many as have room below the stack pointer (emit.rs).
pub(crate) const MEMOS: u8 = 6;

pub(crate) fn plan<'t>(items: &[Placed<'t>]) -> Plan<'t> {
    let functions = functions(items);
    let plan = Plan { checks: Vec::new(), forgets: Vec::new(), counts: Counts::default() };
    let mentions = mentions(items);
    let mut planner = Planner {
        items,
        facts: facts(items),
        plan,
        versions: [0; 16],
        open: Vec::new(),
        begin: 0,
        counting: None,
        turning: None,
    };
    for function in &functions {
        planner.function(function, &mentions);
    }
    planner.settle();
    planner.plan
}

impl<'t> Planner<'_, 't> {
    fn function(&mut self, function: &Function, mentions: &HashMap<&str, usize>) {
        self.close(function.first);
        for at in function.first..function.end {
            match &self.items[at].item {
                Item::Label(_) if self.facts.is_entered[at] => {
                    self.close(at);
                    self.turning = loop_at(self.items, &self.facts, at, mentions).map(|found| (found, 0));
                }
                Item::Label(_) => {}
                Item::Directive(name, _) if changes_section(name) => self.close(at + 1),
                Item::Directive(_, _) => {}
                Item::Opaque(text) => {
                    if text.contains('(') {
                        *self.plan.counts.left.entry(USERS).or_default() += 1;
                    }
                    self.close(at + 1);
                }
                Item::Instruction(instruction) => {
                    let found = access(instruction, function.has_frame);
                    match (found, function.is_left) {
                        (Access::None, _) => {}
                        (Access::Left(why), _) | (_, Some(why)) => *self.plan.counts.left.entry(why).or_default() += 1,
                        (found, None) => self.access(at, found),
                    }
                    self.after(at);
                    self.leave_loop(at);
                }
            }
        }
    }

    /// Behind a loop's last item: what its call-outs keep is to be forgotten when it is entered.
    fn leave_loop(&mut self, at: usize) {
        if let Some((found, memos)) = self.turning.take_if(|(found, _)| found.end == at)
            && memos > 0
        {
            self.plan.forgets.push((found.label, memos));
        }
    }

    /// A place to keep a line in, where the access advances in a loop.
    fn memo(&mut self, memory: &Memory<'_>) -> Option<u8> {
        let (found, memos) = self.turning.as_mut()?;
        if *memos == MEMOS || !found.advances(memory) {
            return None;
        }
        *memos += 1;
        Some(*memos - 1)
    }

    /// Nothing joins what was before.
    fn close(&mut self, begin: usize) {
        self.open.clear();
        self.begin = begin;
        self.counting = None;
    }

    fn after(&mut self, at: usize) {
        let Some(effects) = self.facts.effects[at] else { return };
        for number in 0..16_u8 {
            self.versions[usize::from(number)] += u32::from(effects.writes.has(number));
        }
        let is_fence =
            matches!(&self.items[at].item, Item::Instruction(i) if i.is_locked() || i.mnemonic.ends_with("fence"));
        if effects.flow != Flow::Next || !effects.is_known || is_fence || effects.uses == Set::ALL {
            self.close(at + 1);
        }
    }

    fn versions_of(&self, memory: &Memory<'_>) -> [u32; 2] {
        let version = |register: Option<crate::registers::Register>| {
            register.filter(|r| Set::NONE.and(*r) != Set::NONE).map_or(0, |r| self.versions[usize::from(r.number)])
        };
        [version(memory.base), version(memory.index)]
    }

    fn access(&mut self, at: usize, found: Access<'t>) {
        self.plan.counts.seen += 1;
        match found {
            Access::One { memory, bytes, kind: Kind::Atomic, .. } => {
                self.close(at);
                let operands = registers(&memory);
                self.add(Check {
                    at,
                    what: What::Atomic { memory, bytes },
                    count: 1,
                    live: Set::ALL,
                    operands,
                    access: at,
                    memo: None,
                });
            }
            Access::One { memory, bytes, kind, in_line } => {
                let count = if kind == Kind::Update { 2 } else { 1 } + u32::from(bytes > 32);
                self.span(at, memory, i64::from(bytes), kind != Kind::Read, in_line, count);
            }
            Access::Block { element, copies } => {
                let operands = Set::of(&[RAX, RCX, RSI, RDI]);
                for is_write in [false, true].into_iter().filter(|is_write| *is_write || copies) {
                    self.add(Check {
                        at,
                        what: What::Block { element, is_write },
                        count: 0,
                        live: Set::ALL,
                        operands,
                        access: at,
                        memo: None,
                    });
                }
                self.close(at);
            }
            Access::None | Access::Left(_) => *self.plan.counts.left.entry(OTHER).or_default() += 1,
        }
    }

    fn span(&mut self, at: usize, memory: Memory<'t>, bytes: i64, is_write: bool, in_line: bool, count: u32) {
        let versions = self.versions_of(&memory);
        let (from, to) = (memory.displacement, memory.displacement + bytes);
        let same = |other: &Memory<'_>| {
            (other.segment, other.symbol, other.base, other.index, other.scale)
                == (memory.segment, memory.symbol, memory.base, memory.index, memory.scale)
        };
        if let Some(counting) = self.counting {
            self.plan.checks[counting].count += count;
            if self.plan.checks[counting].count > COUNT_MAX {
                self.close(at);
            }
        }
        for open in self.open.iter().filter(|open| open.versions == versions) {
            let What::Span { memory: other, low, high, is_write: writes, in_line: whole } =
                &mut self.plan.checks[open.check].what
            else {
                continue;
            };
            let (least, most) = (from.min(*low), to.max(*high));
            if *writes == is_write && same(other) && most - least <= LINE {
                // Two neighbours may lie in two lines, whichever alignment each has.
                *whole = *whole && in_line && [(*low, *high), (from, to)].contains(&(least, most));
                (*low, *high) = (least, most);
                return;
            }
        }
        let counted = if self.counting.is_some() { 0 } else { count };
        let what = What::Span { memory, low: from, high: to, is_write, in_line };
        let memo = self.memo(&memory);
        let check = self.add(Check {
            at,
            what,
            count: counted,
            live: Set::ALL,
            operands: registers(&memory),
            access: at,
            memo,
        });
        self.counting.get_or_insert(check);
        self.open.push(Open { check, versions });
    }

    fn add(&mut self, mut check: Check<'t>) -> usize {
        if matches!(check.what, What::Span { .. }) {
            check.at = self.without_flags(check.at, check.operands);
        }
        check.live = self.facts.live[check.at];
        self.plan.checks.push(check);
        self.plan.checks.len() - 1
    }

    /// The nearest place at or before an access of the same run where no flags are live, and the operand's registers have their values: the check
    /// needs the flags. The access's own place where there is none.
    fn without_flags(&self, access: usize, operands: Set) -> usize {
        let mut at = access;
        while self.facts.live[at].has_flags() {
            let Some(before) = (self.begin..at).rev().find(|before| self.facts.effects[*before].is_some()) else {
                return access;
            };
            if self.facts.effects[before].is_none_or(|effects| effects.writes.0 & operands.0 != 0) {
                return access;
            }
            at = before;
        }
        at
    }

    fn settle(&mut self) {
        // Checks that moved ahead of others stand in the order of their places.
        self.plan.checks.sort_by_key(|check| check.at);
    }
}

fn registers(memory: &Memory<'_>) -> Set {
    [memory.base, memory.index].into_iter().flatten().fold(Set::NONE, Set::and)
}

impl Check<'_> {
    /// Registers of its operand, which it must find as they are.
    pub(crate) fn operands(&self) -> Set {
        self.operands
    }
}
