//! One table of a plan file while it is parsed. A key that the parser does not read is an error; each error has its line.

use std::cell::RefCell;
use std::ops::Range;

use numapilot_text::quantity;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::PlanError;

/// The text of a plan file, for line numbers and messages.
pub(crate) struct Source<'t> {
    pub file: &'t str,
    pub text: &'t str,
}

impl Source<'_> {
    /// Line of a byte position, from 1.
    pub fn line(&self, position: usize) -> usize {
        self.text.as_bytes()[..position.min(self.text.len())].iter().filter(|&&b| b == b'\n').count() + 1
    }

    pub fn error(&self, span: &Range<usize>, what: impl Into<String>, remedy: impl Into<String>) -> PlanError {
        let line = self.line(span.start);
        PlanError::Invalid { file: self.file.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }

    /// The comment lines that begin in the line after `line`, without their `#`.
    pub fn comments_after(&self, line: usize) -> Vec<String> {
        self.text.lines().skip(line).map_while(comment).collect()
    }
}

/// The text of a comment line, without its `#`; `None` if the line is not a comment.
fn comment(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix('#')?;
    Some(rest.strip_prefix(' ').unwrap_or(rest).trim_end().to_owned())
}

/// A table being read.
pub(crate) struct Table<'t> {
    source: &'t Source<'t>,
    table: &'t DeTable<'t>,
    /// The table's name in messages: `[[object]]`.
    title: &'static str,
    span: Range<usize>,
    known: RefCell<Vec<&'static str>>,
}

impl<'t> Table<'t> {
    pub fn new(source: &'t Source<'t>, table: &'t DeTable<'t>, title: &'static str, span: Range<usize>) -> Table<'t> {
        Table { source, table, title, span, known: RefCell::new(Vec::new()) }
    }

    pub fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    pub fn comments(&self) -> Vec<String> {
        self.source.comments_after(self.line())
    }

    /// An error about the whole table.
    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> PlanError {
        self.source.error(&self.span, format!("{}: {}", self.title, what.into()), remedy)
    }

    /// An error about one key's value.
    pub fn error_at(&self, key: &str, what: impl Into<String>, remedy: impl Into<String>) -> PlanError {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        self.source.error(&span, format!("{key}: {}", what.into()), remedy)
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn get(&self, key: &'static str) -> Option<&'t DeValue<'t>> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        self.table.get(key).map(Spanned::get_ref)
    }

    fn wrong_type(&self, key: &str, found: &DeValue<'_>, wanted: &str) -> PlanError {
        self.error_at(key, format!("expected {wanted}, found type {}", found.type_str()), "see docs/plan-format.md")
    }

    pub fn string(&self, key: &'static str) -> Result<Option<String>, PlanError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.wrong_type(key, value, "a text"))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(self.error_at(
                key,
                "the text is empty or has control characters",
                "give a name, or leave the key out",
            ));
        }
        if text.len() > TEXT_MAX {
            let what = format!("longer than {TEXT_MAX} bytes");
            return Err(self.error_at(key, what, "shorten it, with `*` for the omitted part"));
        }
        Ok(Some(text.to_owned()))
    }

    pub fn boolean(&self, key: &'static str) -> Result<Option<bool>, PlanError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong_type(key, value, "true or false"))
    }

    pub fn integer(&self, key: &'static str, most: u64) -> Result<Option<u64>, PlanError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let integer = value.as_integer().ok_or_else(|| self.wrong_type(key, value, "a number"))?;
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|number| *number <= most);
        number.map(Some).ok_or_else(|| {
            self.error_at(key, format!("{} is out of range", integer.as_str()), format!("use 0 to {most}"))
        })
    }

    /// A size: a number of bytes, or a text such as "64 KiB".
    pub fn size(&self, key: &'static str) -> Result<Option<u64>, PlanError> {
        match self.get(key) {
            Some(DeValue::String(text)) => quantity::whole_bytes(text).map(Some).map_err(|_| {
                self.error_at(
                    key,
                    format!("{text:?} is not a size"),
                    "write a number of bytes, or \"64 KiB\" or \"1 MiB\"",
                )
            }),
            _ => self.integer(key, i64::MAX as u64),
        }
    }

    /// Numbers such as 3, "3", "0-3,7": ascending ranges that do not touch. Empty: the key is not there.
    pub fn ranges(&self, key: &'static str) -> Result<Vec<(u64, u64)>, PlanError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(DeValue::String(text)) => parse_ranges(text).ok_or_else(|| {
                let remedy = "write a number or a list such as \"0-3,7\", with at most eight parts";
                self.error_at(key, format!("{text:?} is not a list of numbers"), remedy)
            }),
            Some(_) => Ok(self.integer(key, u64::from(u32::MAX))?.map(|n| (n, n)).into_iter().collect()),
        }
    }

    /// The tables of an array.
    pub fn tables(&self, key: &'static str, title: &'static str) -> Result<Vec<Table<'t>>, PlanError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let array = value.as_array().ok_or_else(|| self.wrong_type(key, value, "a list of tables"))?;
        let table = |item: &'t Spanned<DeValue<'t>>| {
            let table = item.get_ref().as_table().ok_or_else(|| self.wrong_type(key, item.get_ref(), "a table"))?;
            Ok(Table::new(self.source, table, title, item.span()))
        };
        array.iter().map(table).collect()
    }

    /// Fails if the table has a key that was not read. Call it after all keys are read.
    pub fn finish(&self) -> Result<(), PlanError> {
        let known = self.known.borrow();
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let close = known.iter().filter(|k| near(k, name)).map(|k| format!("`{k}`")).next();
            let remedy = match close {
                Some(close) => format!("did you mean {close}?"),
                None => format!("{} knows {}", self.title, known.join(", ")),
            };
            return Err(self.source.error(&key.span(), format!("{}: unknown key `{name}`", self.title), remedy));
        }
        Ok(())
    }
}

/// Most bytes of a text: the planner in the program keeps as many, and a zero byte (`NP_PLAN_TEXT`).
const TEXT_MAX: usize = 511;

/// Most ranges of numbers that one rule may have: the planner in the program keeps as many (`NP_PLAN_RANGES`).
pub const RANGES_MAX: usize = 8;

fn parse_ranges(text: &str) -> Option<Vec<(u64, u64)>> {
    let number = |s: &str| s.trim().parse::<u32>().ok().map(u64::from);
    let mut ranges = Vec::new();
    for piece in text.split(',') {
        ranges.push(match piece.split_once('-') {
            Some((a, b)) => (number(a)?, number(b)?),
            None => (number(piece)?, number(piece)?),
        });
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        if last < first {
            return None;
        }
        match joined.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    (joined.len() <= RANGES_MAX).then_some(joined)
}

/// Whether the Damerau-Levenshtein distance is at most one: one letter inserted, deleted or replaced, or two adjacent ones swapped.
fn near(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    match (rest_a.len(), rest_b.len()) {
        (0..=1, 0..=1) => true,
        (2, 2) => rest_a[0] == rest_b[1] && rest_a[1] == rest_b[0],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_and_joined() {
        assert_eq!(parse_ranges("7, 0-3,4"), Some(vec![(0, 4), (7, 7)]));
        for bad in ["", "a", "3-1", "1-", "0,2,4,6,8,10,12,14,16"] {
            assert_eq!(parse_ranges(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_with_one_slip_are_near() {
        assert!(near("policy", "polcy") && near("policy", "poilcy") && near("line", "lime") && near("node", "nodes"));
        assert!(!near("policy", "symbol"));
    }
}
