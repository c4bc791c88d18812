//! Puts call-outs into assembly that a compiler has written, before the instructions that read or write memory: after all optimisation, so that loops
//! keep their vectors. The wrapper (`numapilot cc --after-optimisation`) runs the assembler on the result. `docs/instrument.md` has the rules.
//!
//! Pure: from text to text. Assumes x86-64, AT&T syntax, and what the wrapper's options promise: nothing is kept below the stack pointer, and every
//! function may destroy the registers that its calling convention lets it destroy. What it does not understand stays as it is, and is counted.

mod accesses;
mod effects;
mod emit;
mod flow;
mod parse;
mod plan;
mod registers;
mod strides;
mod turns;

use std::collections::BTreeMap;
use std::fmt::Write as _;

pub use emit::{FILTER, HASH, L1_MASK, LINE_MASK, LINE_PICK, PAGE_BIT};
use parse::{Item, Placed, parse};
pub use plan::Counts;

/// Section of the object in which it says what was left alone, in words. Linkers join them; nothing loads them.
pub const SECTION: &str = "numapilot_accesses";

/// Assembly with call-outs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instrumented {
    /// The assembly.
    pub text: String,
    /// Its accesses: instructions, not executions.
    pub counts: Counts,
}

/// Whether gcc or clang has written this: their mark is in it. Assembly of other origin keeps no rules that are known here.
#[must_use]
pub fn is_compiled(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with(".ident") && (line.contains("\"GCC: ") || line.contains("clang version"))
    })
}

/// The assembly with call-outs.
#[must_use]
pub fn instrument(text: &str) -> Instrumented {
    let items = parse(text);
    let plan = plan::plan(&items);
    // What a call has to save of the vector registers: where nothing in the file was made for wide ones, their low halves.
    let stub = match items.iter().map(width).max() {
        Some(Width::Wide) => "np_after_wide",
        Some(Width::Narrow) => "np_after_narrow",
        _ => "np_after_few",
    };
    let locations = locations(&items);
    let files = files(&items);
    // Not one of a file that the assembler has not been told of yet: compilers tell it where they first need it.
    let place_of = |access: usize, at: usize| {
        locations[access].filter(|place| {
            place.split_whitespace().next().and_then(|file| files.get(file)).is_none_or(|declared| *declared < at)
        })
    };
    let mut inserted: BTreeMap<usize, String> = BTreeMap::new();
    let mut numbers = plan.checks.len();
    for turns in &plan.turns {
        let accesses = turns.streams.iter().map(|(check, _)| check.access);
        let places: Vec<Option<&str>> = accesses.chain([turns.label]).map(|at| place_of(at, turns.label)).collect();
        let label = items[turns.label].line;
        // Behind the loop comes before what the next loop does at its beginning.
        inserted.entry(items[turns.end].line + 1).or_default().insert_str(0, &turns::leave(turns, numbers));
        inserted.entry(label).or_default().push_str(&turns::enter());
        inserted.entry(label + 1).or_default().push_str(&turns::at_label(turns, numbers, stub, &places));
        numbers += turns.streams.len();
    }
    for (at, memos) in &plan.forgets {
        inserted.entry(items[*at].line).or_default().push_str(&emit::forget(*memos));
    }
    for (number, check) in plan.checks.iter().enumerate() {
        let block = inserted.entry(items[check.at].line).or_default();
        let (here, there) = (locations[check.at], place_of(check.access, check.at));
        // A call-out has the line of its access, also where it stands before another one's.
        if here != there
            && let Some(there) = there
        {
            let _ = writeln!(block, "\t.loc\t{there}");
        }
        block.push_str(&emit::emit(check, number, stub));
        if here != there
            && let Some(here) = here
        {
            let _ = writeln!(block, "\t.loc\t{here}");
        }
    }
    let mut result = String::with_capacity(text.len() + inserted.values().map(String::len).sum::<usize>() + 1024);
    if !plan.checks.is_empty() || !plan.turns.is_empty() {
        let _ = writeln!(result, "\t.hidden\t{stub}");
    }
    for (line, code) in text.lines().enumerate() {
        if let Some(block) = inserted.get(&line) {
            result.push_str(block);
        }
        result.push_str(code);
        result.push('\n');
    }
    result.push_str(&note(&plan.counts));
    Instrumented { text: result, counts: plan.counts }
}

/// Which vector registers an item may leave something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    /// The first eight, their low halves.
    Few,
    /// All sixteen of them.
    Narrow,
    Wide,
}

fn width(placed: &Placed<'_>) -> Width {
    let (mnemonic, text) = match &placed.item {
        Item::Instruction(instruction) => (instruction.mnemonic, instruction.text),
        Item::Opaque(text) => ("", *text),
        _ => return Width::Few,
    };
    if mnemonic.starts_with('v') || ["%ymm", "%zmm", "%k", "vzero", "vmov"].iter().any(|name| text.contains(name)) {
        return Width::Wide;
    }
    let is_high = |rest: &str| {
        !rest.starts_with(|c: char| ('0'..='7').contains(&c)) || rest[1..].starts_with(|c: char| c.is_ascii_digit())
    };
    if text.split("xmm").skip(1).any(is_high) { Width::Narrow } else { Width::Few }
}

/// The `.loc` in force at each item: file, line and column.
fn locations<'t>(items: &[Placed<'t>]) -> Vec<Option<&'t str>> {
    let mut now = None;
    let all = items.iter().map(|placed| {
        if let Item::Directive(".loc", rest) = placed.item {
            // Options behind the numbers name this place, and no other.
            now = Some(rest.find(|c: char| c.is_alphabetic()).map_or(rest, |at| rest[..at].trim_end()));
        }
        now
    });
    all.collect()
}

/// Where the assembler is told of each file, by its number.
fn files<'t>(items: &[Placed<'t>]) -> BTreeMap<&'t str, usize> {
    let told = items.iter().enumerate().filter_map(|(at, placed)| match placed.item {
        Item::Directive(".file", rest) => rest.split_whitespace().next().map(|number| (number, at)),
        _ => None,
    });
    told.collect()
}

fn note(counts: &Counts) -> String {
    let mut words = format!("{} with call-outs", counts.seen);
    for (why, count) in &counts.left {
        let _ = write!(words, "; left alone, {why}: {count}");
    }
    format!("\t.pushsection\t{SECTION},\"\",@progbits\n\t.asciz\t\"{words}\"\n\t.popsection\n")
}

#[cfg(test)]
mod tests;
