//! Which call-outs a file needs, and where: one for all accesses of a block to one line, as far as the operands show that.

use std::collections::HashMap;

use crate::accesses::{Access, Kind, OTHER, USERS, access};
use crate::effects::Flow;
use crate::flow::{Facts, Function, changes_section, facts, functions};
use crate::parse::{Item, Memory, Placed};
use crate::registers::{RAX, RCX, RDI, RSI, SCRATCH, Set};
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

impl<'t> What<'t> {
    /// Takes another one's bytes in, if they are of the same kind, by the same registers, and as near as a line is long.
    fn take_in(&mut self, other: &What<'t>) -> bool {
        let (
            What::Span { memory, low, high, is_write, in_line },
            What::Span { memory: its, low: from, high: to, is_write: writes, in_line: is_whole },
        ) = (self, other)
        else {
            return false;
        };
        let place = |m: &Memory<'t>| (m.segment, m.symbol, m.base, m.index, m.scale);
        let (least, most) = ((*low).min(*from), (*high).max(*to));
        if is_write != writes || place(memory) != place(its) || most - least > LINE {
            return false;
        }
        // Two neighbours may lie in two lines, whichever alignment each has.
        *in_line = *in_line && *is_whole && [(*low, *high), (*from, *to)].contains(&(least, most));
        (*low, *high) = (least, most);
        true
    }

    /// The same with its bytes elsewhere.
    fn moved(self, by: i64) -> What<'t> {
        match self {
            What::Span { memory, low, high, is_write, in_line } => What::Span {
                memory: Memory { displacement: memory.displacement + by, ..memory },
                low: low + by,
                high: high + by,
                is_write,
                in_line,
            },
            other => other,
        }
    }
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

/// A loop whose call-outs stand together at its label, and are passed over in turns in which none of their accesses comes to another line (turns.rs).
pub(crate) struct Turns<'t> {
    pub(crate) label: usize,
    pub(crate) end: usize,
    /// What advances, with operands as at the label, and bytes a turn.
    pub(crate) streams: Vec<(Check<'t>, i64)>,
    /// Accesses of a turn, those of other call-outs of the loop included.
    pub(crate) count: u32,
    /// What must be as it was behind the loop.
    pub(crate) live_behind: Set,
}

impl Turns<'_> {
    /// Registers in operands of its streams.
    pub(crate) fn operands(&self) -> Set {
        self.streams.iter().fold(Set::NONE, |all, (check, _)| all.with(check.operands()))
    }

    /// Whether another operand leaves registers for the look.
    fn has_room(&self, operands: Set) -> bool {
        let all = self.operands().with(operands);
        SCRATCH.iter().filter(|number| !all.has(**number)).count() >= LOOK_REGISTERS
    }
}

pub(crate) struct Plan<'t> {
    pub(crate) checks: Vec<Check<'t>>,
    pub(crate) turns: Vec<Turns<'t>>,
    /// Items before which lines that were looked for are forgotten, and how many.
    pub(crate) forgets: Vec<(usize, u8)>,
    pub(crate) counts: Counts,
}

/// A check that later accesses of the block may join: as long as its registers have the same versions.
struct Open {
    check: Place,
    versions: [u32; 2],
}

#[derive(Clone, Copy)]
enum Place {
    Check(usize),
    /// Of the loop's streams.
    Stream(usize),
}

/// The loop in which the planner is.
struct Turning<'t> {
    found: Loop,
    /// Lines that it keeps so far.
    memos: u8,
    /// Where its call-outs can stand together.
    turns: Option<Turns<'t>>,
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
    turning: Option<Turning<'t>>,
}

/// Registers that a look needs.
pub(crate) const LOOK_REGISTERS: usize = 4;
/// Most lines that a loop keeps: as many as have room below the stack pointer (emit.rs).
pub(crate) const MEMOS: u8 = 6;

pub(crate) fn plan<'t>(items: &[Placed<'t>]) -> Plan<'t> {
    let functions = functions(items);
    let plan = Plan { checks: Vec::new(), turns: Vec::new(), forgets: Vec::new(), counts: Counts::default() };
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
                    self.turning = loop_at(self.items, &self.facts, at, mentions).map(|found| {
                        let turns = self.turns(&found, function);
                        Turning { found, memos: 0, turns }
                    });
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

    /// A loop's call-outs can stand together at its label where no flags live there and behind the loop, and something advances.
    fn turns(&self, found: &Loop, function: &Function) -> Option<Turns<'t>> {
        let (label, end) = (found.label, found.end);
        let live_behind = self.facts.live.get(end + 1).copied().unwrap_or(Set::ALL);
        if function.is_left.is_some() || self.facts.live[label].has_flags() || live_behind.has_flags() {
            return None;
        }
        // Text goes between the label and what follows, and behind the jump.
        let ends_line = |at: usize| self.items.get(at + 1).is_none_or(|next| next.line > self.items[at].line);
        if !ends_line(label) || !ends_line(end) {
            return None;
        }
        let is_stream = |item: &Placed<'t>| match &item.item {
            Item::Instruction(instruction) => match access(instruction, function.has_frame) {
                Access::One { memory, kind, .. } => kind != Kind::Atomic && is_stream(found, &memory),
                _ => false,
            },
            _ => false,
        };
        let turns = Turns { label, end, streams: Vec::new(), count: 0, live_behind };
        self.items[label..end].iter().any(is_stream).then_some(turns)
    }

    /// Behind a loop's last item: what its call-outs keep is to be forgotten when it is entered.
    fn leave_loop(&mut self, at: usize) {
        let Some(turning) = self.turning.take_if(|turning| turning.found.end == at) else { return };
        if turning.memos > 0 {
            self.plan.forgets.push((turning.found.label, turning.memos));
        }
        self.plan.turns.extend(turning.turns);
    }

    /// A place to keep a line in, where the access advances in a loop.
    fn memo(&mut self, memory: &Memory<'_>) -> Option<u8> {
        let turning = self.turning.as_mut()?;
        if turning.memos == MEMOS {
            return None;
        }
        turning.found.advance(memory)?;
        turning.memos += 1;
        Some(turning.memos - 1)
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
        let counted = self.count(at, count);
        let stream = self.turning.as_ref().filter(|turning| turning.turns.is_some()).and_then(|turning| {
            let advance = turning.found.advance(&memory).filter(|_| is_stream(&turning.found, &memory))?;
            Some((advance, turning.found.since_label(&memory, at)))
        });
        let what =
            What::Span { memory, low: memory.displacement, high: memory.displacement + bytes, is_write, in_line };
        let at_label = what.moved(stream.map_or(0, |(_, since)| since));
        if self.joins(&what, &at_label, versions) {
            return;
        }
        let memo = self.memo(&memory);
        let check = Check { at, what, count: counted, live: Set::ALL, operands: registers(&memory), access: at, memo };
        let place = match (stream, memo, self.turning.as_mut().and_then(|turning| turning.turns.as_mut())) {
            (Some((advance, _)), Some(_), Some(turns)) if turns.has_room(check.operands) => {
                let live = self.facts.live[turns.label];
                turns.streams.push((Check { at: turns.label, what: at_label, live, ..check }, advance));
                Place::Stream(turns.streams.len() - 1)
            }
            // As in any other block, from where it is.
            _ => Place::Check(self.add(check)),
        };
        if let Place::Check(check) = place
            && counted > 0
        {
            self.counting.get_or_insert(check);
        }
        self.open.push(Open { check: place, versions });
    }

    /// Counts accesses where those before it in the block are counted; what is left to count at their own call-out.
    fn count(&mut self, at: usize, count: u32) -> u32 {
        if let Some(turns) = self.turning.as_mut().and_then(|turning| turning.turns.as_mut()) {
            turns.count += count;
            return 0;
        }
        let Some(counting) = self.counting else { return count };
        self.plan.checks[counting].count += count;
        if self.plan.checks[counting].count > COUNT_MAX {
            self.close(at);
        }
        0
    }

    /// Whether an earlier call-out of the block looks for these bytes, too, where they are or as they are at the loop's label.
    fn joins(&mut self, here: &What<'t>, at_label: &What<'t>, versions: [u32; 2]) -> bool {
        for open in self.open.iter().filter(|open| open.versions == versions) {
            let (check, what) = match open.check {
                Place::Check(check) => (self.plan.checks.get_mut(check), here),
                Place::Stream(stream) => {
                    let turns = self.turning.as_mut().and_then(|turning| turning.turns.as_mut());
                    (turns.and_then(|turns| turns.streams.get_mut(stream)).map(|(check, _)| check), at_label)
                }
            };
            if check.is_some_and(|check| check.what.take_in(what)) {
                return true;
            }
        }
        false
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

/// Whether a loop's accesses by this operand can be looked for at its label. Thread-local addresses take a sum that the loop has no room for.
fn is_stream(found: &Loop, memory: &Memory<'_>) -> bool {
    memory.segment.is_none() && found.advance(memory).is_some()
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
