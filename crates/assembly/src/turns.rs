//! The text of a loop's call-outs that stand together at its label: most turns only count down how many come without another line.
//!
//! Kept below the stack pointer, as in emit.rs: how many turns come before the next look, and how many were promised by the last one, of which the turns
//! that were made are counted at the next look, or behind the loop. So the count of accesses lags by a few turns and is exact in the end; it never goes back.
//!
//! Each stream keeps the end of the line that it looked for last. On the way there from one element to the next it is looked for only once.

use std::fmt::Write as _;

use crate::emit::{Scratch, WRITE, call_for, look_of_stream, memo_at, slot_of_thread};
use crate::plan::{Turns, What};
use crate::registers::{Register, Set};
use crate::strides::LINE;

/// Turns that are left, and those promised, four bytes each.
const LEFT: i32 = -16;
const PROMISED: i32 = -12;
/// Most turns without a look: of an access that advances by a byte. As many without a recorder.
const TURNS_MAX: i64 = LINE - 1;

/// Before the loop: its first turn looks. Keeps the flags.
pub(crate) fn enter() -> String {
    format!("\tmovq\t$0, {LEFT}(%rsp)\n")
}

/// At its label. `number` is its own, and as many behind it as it has streams; `places` are their lines in the source (`.loc`), and the label's behind them.
pub(crate) fn at_label(turns: &Turns<'_>, number: usize, stub: &str, places: &[Option<&str>]) -> String {
    let mut text = format!("\tsubl\t$1, {LEFT}(%rsp)\n\tjns\t.Lnp_turn{number}\n");
    let Some((first, _)) = turns.streams.first() else { return String::new() };
    let scratch = Scratch::outside(turns.operands(), first.live, 4);
    let ([key, slot, sum, page], What::Span { memory, low, is_write, .. }) = (&scratch.registers[..], first.what)
    else {
        return String::new();
    };
    let (key, slot, sum, page) = (*key, *slot, *sum, *page);
    let place = |text: &mut String, number: usize| {
        if let Some(Some(place)) = places.get(number) {
            let _ = writeln!(text, "\t.loc\t{place}");
        }
    };
    scratch.save(&mut text);
    slot_of_thread(&mut text, slot);
    let _ = writeln!(text, "\tjne\t.Lnp_slot{number}");
    place(&mut text, 0);
    call_for(&mut text, &memory.at(low), 1 | if is_write { WRITE } else { 0 }, key, stub);
    let _ = writeln!(text, "\tmovl\t${TURNS_MAX}, {LEFT}(%rsp)");
    slot_of_thread(&mut text, slot);
    let _ = writeln!(text, "\tje\t.Lnp_looked{number}\n.Lnp_slot{number}:");
    let _ = writeln!(text, "\tmovl\t${TURNS_MAX}, {LEFT}(%rsp)");
    add_turns(&mut text, &format!("\tmovl\t{PROMISED}(%rsp), {}\n", sum.low()), turns.count, sum, slot);
    for (own, (check, advance)) in turns.streams.iter().enumerate() {
        place(&mut text, own);
        let stream = Stream {
            memory: memory_at_edge(&check.what, *advance),
            advance: *advance,
            memo: memo_at(check.memo.unwrap_or(0)),
            number: number + own,
        };
        stream.skip(&mut text, key);
        look_of_stream(&mut text, check, [key, slot, sum, page], (number + own, stub));
        stream.keep(&mut text, key);
        stream.turns_left(&mut text, [key, sum]);
    }
    place(&mut text, turns.streams.len());
    let low = key.low();
    let _ = writeln!(
        text,
        ".Lnp_looked{number}:\n\tmovl\t{LEFT}(%rsp), {low}\n\taddl\t$1, {low}\n\tmovl\t{low}, {PROMISED}(%rsp)"
    );
    scratch.restore(&mut text);
    let _ = writeln!(text, ".Lnp_turn{number}:");
    text
}

/// Behind the loop: counts the turns since the last look.
pub(crate) fn leave(turns: &Turns<'_>, number: usize) -> String {
    let scratch = Scratch::outside(Set::NONE, turns.live_behind, 2);
    let mut text = String::new();
    let [count, slot] = scratch.registers[..] else { return text };
    scratch.save(&mut text);
    slot_of_thread(&mut text, slot);
    let _ = writeln!(text, "\tje\t.Lnp_left{number}");
    let since = format!("\tmovl\t{PROMISED}(%rsp), {low}\n\tsubl\t{LEFT}(%rsp), {low}\n", low = count.low());
    add_turns(&mut text, &since, turns.count, count, slot);
    let _ = writeln!(text, ".Lnp_left{number}:");
    scratch.restore(&mut text);
    text
}

fn add_turns(text: &mut String, turns: &str, accesses: u32, register: Register, slot: Register) {
    text.push_str(turns);
    if accesses > 1 {
        let _ = writeln!(text, "\timull\t${accesses}, {low}, {low}", low = register.low());
    }
    let _ = writeln!(text, "\taddq\t{}, ({})", register.text(), slot.text());
}

/// Its first byte in the direction in which it goes.
fn memory_at_edge(what: &What<'_>, advance: i64) -> String {
    match what {
        What::Span { memory, low, high, .. } => memory.at(if advance > 0 { high - 1 } else { *low }),
        _ => String::new(),
    }
}

/// An access that advances. At `memo` below the stack pointer is the address behind which its next look is, if it goes forward, and before which, if it goes
/// backward; -1 at first, which both are behind.
struct Stream {
    /// The operand of its edge.
    memory: String,
    advance: i64,
    memo: i32,
    number: usize,
}

impl Stream {
    fn is_forward(&self) -> bool {
        self.advance > 0
    }

    /// Past the look where there is nothing to look for.
    fn skip(&self, text: &mut String, key: Register) {
        let (name, memo, number) = (key.text(), self.memo, self.number);
        let beyond = if self.is_forward() { "jg" } else { "jbe" };
        let _ = writeln!(
            text,
            "\tleaq\t{}, {name}\n\tcmpq\t{name}, {memo}(%rsp)\n\t{beyond}\t.Lnp_near{number}",
            self.memory
        );
    }

    /// After a look: where the next one is.
    fn keep(&self, text: &mut String, key: Register) {
        let (name, number) = (key.text(), self.number);
        let _ = writeln!(text, "\tleaq\t{}, {name}", self.memory);
        if self.is_forward() {
            let _ = writeln!(text, "\taddq\t${LINE}, {name}");
        }
        let _ = writeln!(text, "\tandq\t$-{LINE}, {name}\n\tmovq\t{name}, {}(%rsp)\n.Lnp_near{number}:", self.memo);
    }

    /// Lowers the turns that are left to those before its next look.
    fn turns_left(&self, text: &mut String, [key, sum]: [Register; 2]) {
        let (name, low, other, memo, number) = (key.text(), key.low(), sum.text(), self.memo, self.number);
        let _ = writeln!(text, "\tleaq\t{}, {name}", self.memory);
        if self.is_forward() {
            let _ = writeln!(text, "\tnotq\t{name}\n\taddq\t{memo}(%rsp), {name}");
        } else {
            let _ = writeln!(text, "\tsubq\t{memo}(%rsp), {name}");
        }
        let step = self.advance.unsigned_abs();
        if step.is_power_of_two() {
            if step > 1 {
                let _ = writeln!(text, "\tshrl\t${}, {low}", step.trailing_zeros());
            }
        } else {
            let _ = writeln!(
                text,
                "\tmovl\t${}, {}\n\timulq\t{other}, {name}\n\tshrq\t$32, {name}",
                reciprocal(step),
                sum.low()
            );
        }
        let _ = writeln!(
            text,
            "\tcmpl\t{low}, {LEFT}(%rsp)\n\tjle\t.Lnp_least{number}\n\tmovl\t{low}, {LEFT}(%rsp)\n.Lnp_least{number}:"
        );
    }
}

/// What a number of a line's bytes is multiplied by, and 2^32 divided by, instead of a division by `step`.
fn reciprocal(step: u64) -> u64 {
    (1_u64 << 32).div_ceil(step)
}

#[cfg(test)]
mod tests {
    use super::reciprocal;

    #[test]
    fn reciprocals_divide() {
        for step in 1..64 {
            for bytes in 0..64 {
                assert_eq!((bytes * reciprocal(step)) >> 32, bytes / step, "{bytes} / {step}");
            }
        }
    }
}
