//! Names of code that a program generated while it ran (a just-in-time compiler's), from what its runtime wrote down for `perf`: a map
//! (`/tmp/perf-PID.map`) or a dump (`jit-PID.dump`). Functions of interpreters have no addresses; they are treated as if they had some.
//!
//! Memory of code is used again. A dump has times, so that an address has the function that was there at the moment that is asked for
//! ([`GeneratedCode::find_within`]). A map has none: where several functions were at an address, any of them may be the one that ran, and the name says so.

mod java;
mod jitdump;
mod names;
mod perf_map;
mod python;

pub use java::java_method;
pub use jitdump::read_jitdump;
pub use perf_map::read_perf_map;
pub use python::{PythonCode, python_function};

use std::sync::Arc;

use numapilot_host::VirtAddr;

use crate::demangle::tidy;
use crate::resolver::ResolvedFrame;

/// Entries that one look-up visits at most: what covers an address begins shortly before it, except in hostile input.
const VISITED_MAX: usize = 4096;
/// Functions that a name lists, where several were at an address.
const LISTED_MAX: usize = 2;

/// A function that was generated at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedFunction {
    /// Address of its first instruction.
    pub address: VirtAddr,
    /// Its length; at least 1, and it does not wrap around.
    pub bytes: u64,
    /// Its name, as the runtime wrote it; the function's name alone where `file` is known.
    pub name: String,
    /// Its source file, where that is known apart from the name.
    pub file: Option<Arc<str>>,
    /// Source lines, in ascending order of their addresses: each is valid up to the next one. Empty where the runtime wrote none.
    pub lines: Vec<GeneratedLine>,
    /// The moment from which on it was there, in order stamps; as it was read from a dump, by the dump's clock. `None`: not known.
    pub since: Option<u64>,
}

/// Where the code from an address on comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedLine {
    /// First address.
    pub address: VirtAddr,
    /// Source file.
    pub file: Arc<str>,
    /// Line in it, from 1.
    pub line: u32,
}

/// What was read from a map or a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Functions in the order in which they were generated.
    pub functions: Vec<GeneratedFunction>,
    /// Lines or records that could not be read, and were left out.
    pub damaged: u64,
    /// Whether the functions' times are ticks of the processor's counter. Otherwise they are nanoseconds, of CLOCK_MONOTONIC by the agents of `perf`.
    pub counts_ticks: bool,
}

/// A span of a recording, in order stamps; both ends are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeSpan {
    /// Its first moment.
    pub from: u64,
    /// Its last one, not before the first.
    pub to: u64,
}

impl CodeSpan {
    /// All of a recording, and what was before.
    pub const ALL: CodeSpan = CodeSpan { from: 0, to: u64::MAX };

    /// One moment.
    #[must_use]
    pub fn at(order: u64) -> CodeSpan {
        CodeSpan { from: order, to: order }
    }

    /// The same span as far as `order`; that moment alone where it begins later.
    #[must_use]
    pub fn until(self, order: u64) -> CodeSpan {
        CodeSpan { from: self.from.min(order), to: self.to.min(order) }
    }
}

/// The generated code of one process, by address.
#[derive(Debug, Default)]
pub struct GeneratedCode {
    /// In ascending order of addresses; of equal ones the latest comes last.
    functions: Vec<GeneratedFunction>,
    /// By function: the highest end among it and those before it.
    ends: Vec<VirtAddr>,
    /// Ticks by which a function may have run before the moment that was written down for it.
    slack: u64,
}

impl GeneratedCode {
    /// An index of functions that are given in the order in which they were generated.
    #[must_use]
    pub fn new(mut functions: Vec<GeneratedFunction>) -> GeneratedCode {
        functions.retain(|function| function.bytes > 0 && function.address.0.checked_add(function.bytes).is_some());
        functions.sort_by_key(|function| function.address);
        let mut highest = VirtAddr(0);
        let end = |function: &GeneratedFunction| {
            highest = highest.max(VirtAddr(function.address.0 + function.bytes));
            highest
        };
        let ends = functions.iter().map(end).collect();
        GeneratedCode { functions, ends, slack: 0 }
    }

    /// The same functions, each of which may have run by so many ticks before the moment that was written down for it: some runtimes tell of a function once
    /// it runs already.
    #[must_use]
    pub fn with_slack(self, slack: u64) -> GeneratedCode {
        GeneratedCode { slack, ..self }
    }

    /// Whether there is no function at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether a function was generated at `address`.
    #[must_use]
    pub fn covers(&self, address: VirtAddr) -> bool {
        self.at(address).next().is_some()
    }

    /// The function at `address`; `None` where none was generated. If several were there one after the other, the name lists them, and there is no line; of
    /// several with one name, file and line are those that they have in common.
    #[must_use]
    pub fn find(&self, address: VirtAddr) -> Option<ResolvedFrame> {
        self.find_within(address, CodeSpan::ALL)
    }

    /// The same of a span: only functions that were there in it are listed, where it is known of each since when it was there. Before all of them it is the
    /// first.
    #[must_use]
    pub fn find_within(&self, address: VirtAddr, span: CodeSpan) -> Option<ResolvedFrame> {
        let mut found: Vec<ResolvedFrame> = Vec::new();
        for function in self.there(address, span) {
            let frame = function.frame(address);
            match found.iter_mut().find(|known| known.function == frame.function) {
                Some(known) => keep_common(known, &frame),
                None => found.push(frame),
            }
        }
        if found.len() < 2 {
            return found.pop();
        }
        let listed: Vec<&str> = found.iter().take(LISTED_MAX).map(|frame| &*frame.function).collect();
        let others = found.len() - listed.len();
        let more = if others > 0 { format!(" or one of {others} more") } else { String::new() };
        Some(ResolvedFrame { function: format!("{}{more}", listed.join(" or ")), ..ResolvedFrame::default() })
    }

    /// A span in which the same functions were at `address` as in this one and shortly after it, and which is the same for all spans of which that is true.
    /// [`CodeSpan::ALL`] where these are all that ever were there.
    #[must_use]
    pub fn narrowed(&self, address: VirtAddr, span: CodeSpan) -> CodeSpan {
        let count = self.at(address).count();
        if count < 2 {
            return CodeSpan::ALL;
        }
        let there = self.there(address, CodeSpan { to: span.to.saturating_add(self.slack), ..span });
        let times = || there.iter().filter_map(|function| function.since);
        match times().min().zip(times().max()) {
            Some((from, to)) if there.len() < count => CodeSpan { from, to },
            _ => CodeSpan::ALL,
        }
    }

    /// Functions that were at `address` at some moment of a span, those that begin nearest to it first. What is not known to have been there at another time
    /// only may have been there. A function stays until another one is written over it.
    fn there(&self, address: VirtAddr, span: CodeSpan) -> Vec<&GeneratedFunction> {
        let mut found: Vec<&GeneratedFunction> = self.at(address).collect();
        let times: Option<Vec<u64>> = found.iter().map(|function| function.since).collect();
        let Some(times) = times.filter(|times| times.len() > 1) else { return found };
        let before = times.iter().filter(|&&since| since <= span.from).max();
        let first = before.or_else(|| times.iter().min()).copied().unwrap_or(0);
        let last = span.to.max(first);
        found.retain(|function| function.since.is_some_and(|since| (first..=last).contains(&since)));
        found
    }

    /// Functions that cover `address`, those that begin nearest to it first.
    fn at(&self, address: VirtAddr) -> impl Iterator<Item = &GeneratedFunction> {
        let below = self.functions.partition_point(|function| function.address <= address);
        let reaches = move |index: &usize| self.ends[*index] > address;
        let before = (0..below).rev().take(VISITED_MAX).take_while(reaches).map(|index| &self.functions[index]);
        before.filter(move |function| address.0 - function.address.0 < function.bytes)
    }
}

/// Leaves what is the same in another version of a function, or in another function of the same name.
fn keep_common(known: &mut ResolvedFrame, other: &ResolvedFrame) {
    if known.file != other.file {
        known.file.clear();
    }
    if known.file.is_empty() || known.line != other.line {
        known.line = 0;
    }
}

impl GeneratedFunction {
    fn frame(&self, address: VirtAddr) -> ResolvedFrame {
        let mut frame = match &self.file {
            Some(file) => ResolvedFrame { function: tidy(&self.name), file: tidy(file), ..ResolvedFrame::default() },
            None => names::parse(&self.name),
        };
        let next = self.lines.partition_point(|line| line.address <= address);
        if let Some(line) = next.checked_sub(1).and_then(|index| self.lines.get(index)) {
            frame.file = tidy(&line.file);
            frame.line = line.line;
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(address: u64, bytes: u64, name: &str) -> GeneratedFunction {
        GeneratedFunction { address: VirtAddr(address), bytes, name: name.to_owned(), ..GeneratedFunction::default() }
    }

    fn name(code: &GeneratedCode, address: u64) -> Option<String> {
        code.find(VirtAddr(address)).map(|frame| frame.function)
    }

    #[test]
    fn each_address_has_the_function_that_covers_it() {
        let code = GeneratedCode::new(vec![function(0x2000, 0x10, "b"), function(0x1000, 0x100, "a")]);
        assert_eq!(name(&code, 0xfff), None);
        assert_eq!(name(&code, 0x1000).as_deref(), Some("a"));
        assert_eq!(name(&code, 0x10ff).as_deref(), Some("a"));
        assert_eq!(name(&code, 0x1100), None);
        assert_eq!(name(&code, 0x200f).as_deref(), Some("b"));
        assert_eq!(name(&code, u64::MAX), None);
        assert!(code.covers(VirtAddr(0x1000)) && !code.covers(VirtAddr(0x1100)));
    }

    #[test]
    fn memory_that_held_several_functions_names_them_all() {
        let twice = vec![function(0x1000, 0x100, "old"), function(0x1000, 0x80, "new"), function(0x1040, 0x10, "new")];
        let code = GeneratedCode::new(twice);
        assert_eq!(name(&code, 0x1044).as_deref(), Some("new or old"));
        assert_eq!(name(&code, 0x1090).as_deref(), Some("old"));
        let many = (0..5).map(|n| function(0x1000, 8, &format!("f{n}"))).collect();
        assert_eq!(name(&GeneratedCode::new(many), 0x1004).as_deref(), Some("f4 or f3 or one of 3 more"));
    }

    /// Functions of memory that was used again were all named, although the dump says when each of them was there.
    #[test]
    fn a_moment_has_the_function_that_was_there_then() {
        let at = |since, address, bytes, name: &str| GeneratedFunction { since, ..function(address, bytes, name) };
        let functions = vec![
            at(Some(1000), 0x1000, 0x100, "old"),
            at(Some(5000), 0x1040, 0x20, "other"),
            at(Some(9000), 0x1000, 0x80, "new"),
        ];
        let code = GeneratedCode::new(functions.clone()).with_slack(10);
        let named = |code: &GeneratedCode, address, span| {
            let narrowed = code.narrowed(VirtAddr(address), span);
            assert_eq!(code.narrowed(VirtAddr(address), narrowed).from, narrowed.from);
            code.find_within(VirtAddr(address), narrowed).map(|frame| frame.function)
        };
        let names = |address, orders: &[u64]| -> Vec<String> {
            orders.iter().filter_map(|&order| named(&code, address, CodeSpan::at(order))).collect()
        };
        // It stays up to what is written over it, which may run a little before it is told.
        assert_eq!(names(0x1004, &[2000, 8989, 8990, 9000, 20_000]), ["old", "old", "new or old", "new", "new"]);
        assert_eq!(names(0x1044, &[1, 1000, 4999, 5000, 9001]), ["old", "old", "other or old", "other", "new"]);
        assert_eq!(names(0x1090, &[1, 20_000]), ["old", "old"], "nothing else was there");
        // A span lists what was there in it; all spans with the same functions are one.
        assert_eq!(named(&code, 0x1004, CodeSpan { from: 2000, to: u64::MAX }).as_deref(), Some("new or old"));
        assert_eq!(named(&code, 0x1044, CodeSpan { from: 6000, to: 10_000 }).as_deref(), Some("other or new"));
        let at_moment = |address, order| code.narrowed(VirtAddr(address), CodeSpan::at(order));
        assert_eq!(at_moment(0x1044, 6000), at_moment(0x1044, 7000));
        assert_eq!(code.narrowed(VirtAddr(0x1004), CodeSpan { from: 2000, to: 9000 }), CodeSpan::ALL);
        assert_eq!(at_moment(0x1090, 1), CodeSpan::ALL);
        // Where one of them has no time, it may have been any.
        let mixed = GeneratedCode::new([functions, vec![function(0x1000, 0x10, "undated")]].concat());
        assert_eq!(named(&mixed, 0x1004, CodeSpan::at(2000)).as_deref(), Some("undated or new or one of 1 more"));
        assert_eq!(CodeSpan { from: 5, to: 9 }.until(7), CodeSpan { from: 5, to: 7 });
        assert_eq!(CodeSpan { from: 5, to: 9 }.until(3), CodeSpan::at(3));
    }

    /// The latest one's line was shown, whichever had run.
    #[test]
    fn versions_of_one_function_have_what_they_share() {
        let version = |file: &str, line| {
            let lines = vec![GeneratedLine { address: VirtAddr(0x1000), file: file.into(), line }];
            GeneratedFunction { lines, ..function(0x1000, 0x20, "f") }
        };
        let at = |versions: Vec<GeneratedFunction>| {
            let frame = GeneratedCode::new(versions).find(VirtAddr(0x1008)).expect("a function");
            (frame.function, frame.file, frame.line)
        };
        let found = |file: &str, line| ("f".to_owned(), file.to_owned(), line);
        assert_eq!(at(vec![version("a.js", 3), version("a.js", 3)]), found("a.js", 3));
        assert_eq!(at(vec![version("a.js", 3), version("a.js", 7)]), found("a.js", 0));
        assert_eq!(at(vec![version("a.js", 3), version("b.js", 3)]), found("", 0));
        assert_eq!(at(vec![version("a.js", 3), version("b.js", 3), version("b.js", 3)]), found("", 0));
    }

    #[test]
    fn lines_hold_up_to_the_next_one() {
        let line = |address, line| GeneratedLine { address: VirtAddr(address), file: "a.js".into(), line };
        let lines = vec![line(0x1008, 3), line(0x1010, 4)];
        let code = GeneratedCode::new(vec![GeneratedFunction { lines, ..function(0x1000, 0x20, "f") }]);
        let at = |address| code.find(VirtAddr(address)).map(|frame| (frame.file, frame.line));
        assert_eq!(at(0x1004), Some((String::new(), 0)));
        assert_eq!(at(0x100f), Some(("a.js".to_owned(), 3)));
        assert_eq!(at(0x101f), Some(("a.js".to_owned(), 4)));
    }

    #[test]
    fn functions_beyond_the_end_of_addresses_are_left_out() {
        let code = GeneratedCode::new(vec![function(u64::MAX - 1, 8, "a"), function(5, 0, "b")]);
        assert!(code.is_empty());
        assert_eq!(code.find(VirtAddr(u64::MAX)), None);
    }
}
