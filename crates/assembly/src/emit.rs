//! The text of a call-out: the first stage of the filter, as in callouts.h, and the call where it misses (callouts_after.c).
//!
//! Nothing is pushed: what has to be kept lies below the stack pointer, which compiled code leaves alone (`-mno-red-zone`) and signal handlers keep
//! off (128 bytes, by the ABI). So the unwinding information stays right.

use std::fmt::Write as _;

use crate::plan::{Check, What};
use crate::registers::{Register, SCRATCH, Set};

/// Offsets of `np_slot` and constants of `np_key_of` (wire.h); a test of the runtime holds them to the C sources.
pub const L1_MASK: u32 = 16;
/// Offset of `line_mask`.
pub const LINE_MASK: u32 = 56;
/// Offset of `line_pick`.
pub const LINE_PICK: u32 = 60;
/// `NP_FILTER_OFFSET`.
pub const FILTER: u32 = 4096;
/// `NP_LINE_HASH`.
pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bit of `NP_PAGE_KEY`.
pub const PAGE_BIT: u32 = 44;

/// In the description that the call gets: its bits (callouts_after.c).
const LOOKED: u32 = 1 << 15;
pub(crate) const WRITE: u32 = 1 << 16;
const ATOMIC: u32 = 1 << 17;
const BLOCK: u32 = 1 << 18;
/// The accesses are counted by the call, and were not before.
const COUNTS: u32 = 1 << 19;
const COUNT_SHIFT: u32 = 20;

/// Below the stack pointer: the first saved register, and what the call gets.
const SAVED: i32 = -120;
const ADDRESS: i32 = -24;
const DESCRIPTION: i32 = -32;
const BYTES: i32 = -40;
/// Lines that call-outs of a loop looked for last.
const MEMO: i32 = -88;

pub(crate) struct Scratch {
    pub(crate) registers: Vec<Register>,
    saved: Vec<Register>,
}

impl Scratch {
    /// So many registers outside of the operand, dead ones first. The others are to be saved.
    fn take(check: &Check<'_>, wanted: usize) -> Scratch {
        Scratch::outside(check.operands(), check.live, wanted)
    }

    /// The same outside of a set; fewer where there are no more.
    pub(crate) fn outside(operands: Set, live: Set, wanted: usize) -> Scratch {
        let free = SCRATCH.iter().filter(|number| !operands.has(**number));
        let (living, dead): (Vec<u8>, Vec<u8>) = free.partition(|number| live.has(**number));
        let registers: Vec<Register> = dead.into_iter().chain(living).take(wanted).map(Register::general).collect();
        let saved = registers.iter().copied().filter(|register| live.has(register.number)).collect();
        Scratch { registers, saved }
    }

    pub(crate) fn save(&self, text: &mut String) {
        for (number, register) in self.saved.iter().enumerate() {
            let _ = writeln!(text, "\tmovq\t{}, {}(%rsp)", register.text(), SAVED + 8 * number as i32);
        }
    }

    pub(crate) fn restore(&self, text: &mut String) {
        for (number, register) in self.saved.iter().enumerate() {
            let _ = writeln!(text, "\tmovq\t{}(%rsp), {}", SAVED + 8 * number as i32, register.text());
        }
    }
}

/// Before a loop: no call-out of it has looked for a line. Keeps the flags.
pub(crate) fn forget(memos: u8) -> String {
    (0..memos).map(|memo| format!("\tmovq\t$-1, {}(%rsp)\n", memo_at(memo))).collect()
}

pub(crate) fn memo_at(memo: u8) -> i32 {
    MEMO + 8 * i32::from(memo)
}

/// The text of a check; `number` makes its labels its own, `stub` is what it calls.
pub(crate) fn emit(check: &Check<'_>, number: usize, stub: &str) -> String {
    let mut text = String::new();
    match check.what {
        What::Span { memory, low, high, is_write, in_line } => {
            let bits = if is_write { WRITE } else { 0 };
            let span = Span { first: memory.at(low), last: memory.at(high - 1), is_thread: memory.segment.is_some() };
            let bytes = u32::try_from(high - low).unwrap_or(64);
            if check.live.has_flags() {
                always(&mut text, check, &span, bits | bytes | COUNTS | check.count << COUNT_SHIFT, stub);
            } else {
                filtered(
                    &mut text,
                    check,
                    &span,
                    bits | bytes | LOOKED | check.count << COUNT_SHIFT,
                    in_line,
                    (number, stub),
                );
            }
        }
        What::Atomic { memory, bytes } => {
            let span = Span {
                first: memory.at(memory.displacement),
                last: String::new(),
                is_thread: memory.segment.is_some(),
            };
            always(
                &mut text,
                check,
                &span,
                u32::from(bytes) | WRITE | ATOMIC | COUNTS | check.count << COUNT_SHIFT,
                stub,
            );
        }
        What::Block { element, is_write } => {
            let scratch = Scratch::take(check, 1);
            let bytes = scratch.registers[0].text();
            scratch.save(&mut text);
            let _ = writeln!(text, "\tmovq\t{}, {ADDRESS}(%rsp)", if is_write { "%rdi" } else { "%rsi" });
            let _ = writeln!(text, "\tleaq\t(,%rcx,{element}), {bytes}\n\tmovq\t{bytes}, {BYTES}(%rsp)");
            call(&mut text, BLOCK | if is_write { WRITE } else { 0 }, stub);
            scratch.restore(&mut text);
        }
    }
    text
}

/// Operands of the first and the last byte; of thread-local memory, their offsets from `%fs:0`.
struct Span {
    first: String,
    last: String,
    is_thread: bool,
}

fn address(text: &mut String, operand: &str, is_thread: bool, register: Register) {
    let name = register.text();
    // Not by an addition, which would destroy the flags.
    if is_thread && let Some((symbol, "")) = operand.split_once('(').map_or(Some((operand, "")), |_| None) {
        let _ = writeln!(text, "\tmovq\t%fs:0, {name}\n\tleaq\t{symbol}({name}), {name}");
        return;
    }
    let _ = writeln!(text, "\tleaq\t{operand}, {name}");
    if is_thread {
        let _ = writeln!(text, "\taddq\t%fs:0, {name}");
    }
}

fn call(text: &mut String, description: u32, stub: &str) {
    let _ = writeln!(text, "\tmovl\t${description}, {DESCRIPTION}(%rsp)\n\tcall\t{stub}");
}

/// Without a first stage: where the flags are live, and for atomic accesses. The call keeps everything.
fn always(text: &mut String, check: &Check<'_>, span: &Span, description: u32, stub: &str) {
    let scratch = Scratch::take(check, 1);
    let register = scratch.registers[0];
    scratch.save(text);
    let has_sum = span.is_thread && span.first.contains('(');
    if has_sum && check.live.has_flags() {
        // The sum without an addition.
        let other = Scratch::take(check, 2);
        let base = other.registers[1];
        let _ = writeln!(text, "\tleaq\t{}, {}", span.first, register.text());
        let _ = writeln!(text, "\tmovq\t{}, {}(%rsp)\n\tmovq\t%fs:0, {}", base.text(), SAVED + 16, base.text());
        let _ = writeln!(text, "\tleaq\t({},{}), {}", register.text(), base.text(), register.text());
        let _ = writeln!(text, "\tmovq\t{}(%rsp), {}", SAVED + 16, base.text());
    } else {
        address(text, &span.first, span.is_thread, register);
    }
    let _ = writeln!(text, "\tmovq\t{}, {ADDRESS}(%rsp)", register.text());
    call(text, description, stub);
    scratch.restore(text);
}

fn filtered(
    text: &mut String,
    check: &Check<'_>,
    span: &Span,
    description: u32,
    in_line: bool,
    (number, stub): (usize, &str),
) {
    let scratch = Scratch::take(check, 4);
    let [key, slot, sum, page] = scratch.registers[..] else { return };
    scratch.save(text);
    // The count holds for all of the block, whether or not there is anything to look for here.
    if check.count > 0 {
        load_slot(text, slot, number);
    }
    match check.count {
        0 => {}
        1 => drop(writeln!(text, "\tincq\t({})", slot.text())),
        count => drop(writeln!(text, "\taddq\t${count}, ({})", slot.text())),
    }
    if let Some(memo) = check.memo {
        skip_same_line(text, span, in_line, [key, sum], memo, number);
    }
    if check.count == 0 {
        load_slot(text, slot, number);
    }
    look(text, span, description, in_line, [key, slot, sum, page], (number, stub));
    scratch.restore(text);
}

/// The look into the first stage with the slot in its register, and the call where it misses.
fn look(
    text: &mut String,
    span: &Span,
    description: u32,
    in_line: bool,
    [key, slot, sum, page]: [Register; 4],
    (number, stub): (usize, &str),
) {
    address(text, &span.first, span.is_thread, key);
    let is_write = description & WRITE != 0;
    look_up(text, [key, slot, sum, page], is_write);
    if !in_line {
        let _ = writeln!(text, "\tjne\t.Lnp_miss{number}");
        address(text, &span.first, span.is_thread, sum);
        address(text, &span.last, span.is_thread, key);
        let _ = writeln!(
            text,
            "\txorq\t{}, {sum}\n\tshrq\t$6, {sum}\n\tje\t.Lnp_hit{number}",
            key.text(),
            sum = sum.text()
        );
        look_up(text, [key, slot, sum, page], is_write);
    }
    let _ = writeln!(text, "\tje\t.Lnp_hit{number}\n.Lnp_miss{number}:");
    address(text, &span.first, span.is_thread, key);
    let _ = writeln!(text, "\tmovq\t{}, {ADDRESS}(%rsp)", key.text());
    call(text, description, stub);
    let _ = writeln!(text, ".Lnp_hit{number}:");
}

/// The look of one of a loop's streams, whose slot is in its register.
pub(crate) fn look_of_stream(text: &mut String, check: &Check<'_>, registers: [Register; 4], names: (usize, &str)) {
    let What::Span { memory, low, high, is_write, in_line } = check.what else { return };
    let span = Span { first: memory.at(low), last: memory.at(high - 1), is_thread: false };
    let bytes = u32::try_from(high - low).unwrap_or(64);
    look(text, &span, bytes | if is_write { WRITE } else { 0 } | LOOKED, in_line, registers, names);
}

/// The thread's slot: 0 without a recorder, and before the thread's first access.
pub(crate) fn slot_of_thread(text: &mut String, slot: Register) {
    let name = slot.text();
    let _ = writeln!(
        text,
        "\tmovq\tnumapilot_callouts_slot@gottpoff(%rip), {name}\n\tmovq\t%fs:({name}), {name}\n\ttestq\t{name}, {name}"
    );
}

/// A call for an operand that was looked for nowhere yet: it attaches the thread.
pub(crate) fn call_for(text: &mut String, operand: &str, bits: u32, register: Register, stub: &str) {
    address(text, operand, false, register);
    let _ = writeln!(text, "\tmovq\t{}, {ADDRESS}(%rsp)", register.text());
    call(text, bits, stub);
}

fn load_slot(text: &mut String, slot: Register, number: usize) {
    slot_of_thread(text, slot);
    let _ = writeln!(text, "\tje\t.Lnp_miss{number}");
}

/// In a loop: no look where the access lies in the line of the turn before. Else that is its line from now on, whatever the look finds.
fn skip_same_line(
    text: &mut String,
    span: &Span,
    in_line: bool,
    [line, other]: [Register; 2],
    memo: u8,
    number: usize,
) {
    let (name, at) = (line.text(), memo_at(memo));
    address(text, if in_line { &span.first } else { &span.last }, span.is_thread, line);
    let _ = writeln!(text, "\tshrq\t$6, {name}");
    if !in_line {
        address(text, &span.first, span.is_thread, other);
        let _ = writeln!(
            text,
            "\tshrq\t$6, {other}\n\tcmpq\t{name}, {other}\n\tjne\t.Lnp_look{number}",
            other = other.text()
        );
    }
    let _ = writeln!(
        text,
        "\tcmpq\t{name}, {at}(%rsp)\n\tje\t.Lnp_hit{number}\n.Lnp_look{number}:\n\tmovq\t{name}, {at}(%rsp)"
    );
}

/// Leaves "equal" where the first stage holds the line of the address in `key`, or the page where the line is not simulated. `np_key_of`, `np_hits_read`
/// and `np_hits_write` in C.
fn look_up(text: &mut String, [key, slot, sum, page]: [Register; 4], is_write: bool) {
    let (k, s, t, p) = (key.text(), slot.text(), sum.text(), page.text());
    let _ = writeln!(text, "\tshrq\t$6, {k}\n\tmovabsq\t${HASH:#x}, {t}\n\timulq\t{k}, {t}\n\tmovq\t{k}, {p}");
    let _ = writeln!(text, "\tshrq\t$6, {p}\n\tbtsq\t${PAGE_BIT}, {p}\n\tshrq\t$40, {t}");
    let _ = writeln!(
        text,
        "\tandl\t{LINE_MASK}({s}), {}\n\tcmpl\t{LINE_PICK}({s}), {}\n\tcmovneq\t{p}, {k}",
        sum.low(),
        sum.low()
    );
    let _ = writeln!(text, "\tmovl\t{L1_MASK}({s}), {}\n\tandl\t{}, {}", sum.low(), key.low(), sum.low());
    if is_write {
        let _ = writeln!(text, "\tleaq\t1({k},{k}), {k}\n\tcmpq\t{FILTER}({s},{t},8), {k}");
    } else {
        let _ = writeln!(text, "\tmovq\t{FILTER}({s},{t},8), {t}\n\tshrq\t{t}\n\tcmpq\t{t}, {k}");
    }
}
