//! Which variable a source line assigns an allocation to.
//!
//! No compiler front end: the statement around the line is cut out ([`crate::statement`]), and the target of the assignment (or declaration, method
//! call, field) that holds the allocation is read off. What does not look like one of the known forms gives no name. Of several allocations in a line, the
//! column tells which is meant, where the compiler wrote columns. Sources are untrusted: files over 8 MiB, lines over 4096 bytes and anything that is no
//! regular file are left alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::cpp::{declares_scalar, members, statement_start};
use crate::demangle::tidy;
use crate::fortran::allocated;
use crate::go_source;
use crate::python;
use crate::statement::{Statement, around, around_fortran, blanked};
use crate::wrappers;

const FILE_BYTES_MAX: u64 = 8 << 20;
const LINE_BYTES_MAX: usize = 4096;
const NAME_CHARS_MAX: usize = 60;
/// Words that allocate, in C, C++ and Rust. A statement's assignment counts when one of them (or the named callee) follows it.
const ALLOCATING: [&str; 20] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "alloc",
    "valloc",
    "strdup",
    "mmap",
    "new",
    "make_unique",
    "make_shared",
    "vec!",
    "with_capacity",
    "collect",
    "to_vec",
    "clone",
    "Box::new",
    "Vec::from",
    "sbrk",
    "shmat",
];
/// Methods that make a container allocate: the container is the object.
const GROWING: [&str; 14] = [
    ".resize",
    ".reserve",
    ".push_back",
    ".emplace_back",
    ".assign",
    ".insert",
    ".emplace",
    ".push",
    ".extend",
    ".append",
    ".push_str",
    ".reset",
    ".emplace_hint",
    ".try_emplace",
];
/// Functions that allocate, and return a status or a number: the block is their first argument's.
const STORING: [&str; 5] = ["posix_memalign", "getline", "getdelim", "asprintf", "vasprintf"];
/// Functions that allocate for themselves (stacks, buffers of files), and return something else.
const KEEPING: [&str; 24] = [
    "pthread_create",
    "thrd_create",
    "getaddrinfo",
    "regcomp",
    "setenv",
    "putenv",
    "atexit",
    "printf",
    "fprintf",
    "vprintf",
    "vfprintf",
    "puts",
    "fputs",
    "fputc",
    "putc",
    "putchar",
    "fwrite",
    "fread",
    "fgets",
    "fgetc",
    "getc",
    "getchar",
    "fscanf",
    "scanf",
];

/// What a line of the source assigns its allocations to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// The possible targets; `None` for an allocation whose target has no name. A single entry is certain.
    pub names: Vec<Option<String>>,
    /// Whether there is one target for each call of the line, in the order of the calls: the call's position then selects the target.
    pub is_in_call_order: bool,
}

impl Assigned {
    fn one(name: Option<String>) -> Assigned {
        Assigned { names: vec![name], is_in_call_order: false }
    }
}

/// Where a call stands in the source.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallPlace<'a> {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1; 0 where the compiler wrote none.
    pub column: u32,
    /// The function called there, if known.
    pub callee: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    FreeFortran,
    FixedFortran,
    Rust,
    Python,
    Go,
    Other,
}

fn language(path: &str) -> Language {
    match path.rsplit('.').next().unwrap_or("").to_ascii_lowercase().as_str() {
        "f90" | "f95" | "f03" | "f08" => Language::FreeFortran,
        "f" | "f77" | "for" | "ftn" => Language::FixedFortran,
        "rs" => Language::Rust,
        "py" | "pyw" => Language::Python,
        "go" => Language::Go,
        _ => Language::Other,
    }
}

/// A file's lines: of Fortran and Python as they are, of other languages without comments and contents of strings.
type Lines = Arc<Vec<String>>;

/// Source files that were read, by path.
///
/// A file tells what a binary's line holds only if it is the one that was compiled: a relative path names none (the compiler's folder is not known, and this
/// process's is another), and a file that was changed after the binary was made may be another by now.
#[derive(Debug, Default)]
pub struct SourceCache {
    files: HashMap<String, Option<Lines>>,
    /// When binaries were made, by path; `None` where they are not there.
    binaries: HashMap<String, Option<SystemTime>>,
    /// Files that were changed after a binary that was compiled from them.
    changed: BTreeSet<String>,
    /// By file, line, column and called name: whether the function there passes on what it allocates.
    passing_on: HashMap<(String, u32, u32, Option<String>), bool>,
}

impl SourceCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> SourceCache {
        SourceCache::default()
    }

    /// Files that were left alone because they were changed after a binary that was compiled from them.
    #[must_use]
    pub fn changed(&self) -> &BTreeSet<String> {
        &self.changed
    }

    /// Whether the file at `path` may be what `binary` was compiled from. What an interpreter reads is compiled when it runs.
    fn is_source_of(&mut self, path: &str, binary: &str) -> bool {
        if !Path::new(path).is_absolute() {
            return false;
        }
        if language(path) == Language::Python {
            return true;
        }
        let made = *self.binaries.entry(binary.to_owned()).or_insert_with(|| modified(binary));
        let is_newer = made.zip(modified(path)).is_some_and(|(made, changed)| changed > made);
        if is_newer {
            self.changed.insert(path.to_owned());
        }
        !is_newer
    }

    fn lines(&mut self, path: &str, binary: &str) -> Option<Lines> {
        if !self.is_source_of(path, binary) {
            return None;
        }
        if let Some(lines) = self.files.get(path) {
            return lines.clone();
        }
        let lines = read_lines(path).map(|lines| Arc::new(code_of(lines, language(path))));
        self.files.insert(path.to_owned(), lines.clone());
        lines
    }

    /// The variables, members or elements that may take the allocation made at `place` of the file at `path`, of which `binary` was compiled. `None` where the
    /// file cannot be read, may be another than the compiled one, or has no such line.
    pub fn assigned(&mut self, path: &str, binary: &str, place: &CallPlace<'_>) -> Option<Assigned> {
        let lines = self.lines(path, binary)?;
        let index = (place.line as usize).checked_sub(1).filter(|&index| index < lines.len())?;
        Some(assigned_in(&lines, index, language(path), place))
    }

    /// Whether the function around `place` of the file at `path` passes on to its callers what is allocated there. Asked once for each of the call stacks
    /// through a place, so answers are kept.
    pub fn passes_on(&mut self, path: &str, binary: &str, place: &CallPlace<'_>) -> bool {
        let key = (path.to_owned(), place.line, place.column, place.callee.map(str::to_owned));
        if let Some(&known) = self.passing_on.get(&key) {
            return known;
        }
        let lines = self.lines(path, binary).filter(|_| language(path) == Language::Other);
        let index = (place.line as usize).checked_sub(1);
        let at = lines.zip(index).filter(|(lines, index)| *index < lines.len());
        let answer = at.is_some_and(|(lines, index)| passes_on_in(&lines, index, place));
        self.passing_on.insert(key, answer);
        answer
    }
}

fn passes_on_in(lines: &[String], index: usize, place: &CallPlace<'_>) -> bool {
    let ways = around(lines, index);
    let [statement] = ways.as_slice() else { return false };
    let on_line = |at: &usize| (statement.line_start..statement.line_end).contains(at);
    let positions = allocation_positions(&statement.text, place.callee);
    let here: Vec<usize> = positions.iter().copied().filter(on_line).collect();
    let (([allocation], _) | (_, [allocation])) = (here.as_slice(), positions.as_slice()) else { return false };
    let target = name_in_part(&statement.text, (*allocation, false), Some(*allocation), Language::Other);
    wrappers::passes_on(lines, index, statement, *allocation, target.as_deref())
}

fn code_of(lines: Vec<String>, language: Language) -> Vec<String> {
    match language {
        Language::FreeFortran | Language::FixedFortran | Language::Python => lines,
        // In Rust, an apostrophe also begins a lifetime.
        Language::Rust => blanked(&lines, false),
        Language::Go | Language::Other => blanked(&lines, true),
    }
}

fn assigned_in(lines: &[String], index: usize, language: Language, place: &CallPlace<'_>) -> Assigned {
    if matches!(language, Language::FreeFortran | Language::FixedFortran) {
        let names = allocated(&around_fortran(lines, index, language == Language::FixedFortran));
        return Assigned { names: names.into_iter().map(|name| shown(&name)).collect(), is_in_call_order: true };
    }
    if language == Language::Python {
        return Assigned::one(python::assigned(lines, index).and_then(shown));
    }
    if language == Language::Go {
        return Assigned::one(lines.get(index).and_then(|line| go_source::assigned(line)).and_then(shown));
    }
    let mut ways = around(lines, index).into_iter().map(|way| assigned_by(&way, language, place));
    let plain = ways.next().unwrap_or_default();
    if plain.names.iter().any(Option::is_some) {
        return plain;
    }
    let mut names: Vec<Option<String>> = ways.flat_map(|way| way.names).filter(Option::is_some).collect();
    names.dedup();
    if names.is_empty() { plain } else { Assigned { names, is_in_call_order: false } }
}

fn assigned_by(statement: &Statement, language: Language, place: &CallPlace<'_>) -> Assigned {
    let text = statement.text.as_str();
    let name = |at: usize, is_placed, allocation| name_in_part(text, (at, is_placed), allocation, language);
    let mut allocations = allocation_positions(text, place.callee);
    let position = (statement.line_start + place.column as usize).checked_sub(1);
    if let Some(at) = position.filter(|&at| place.column > 0 && at < statement.line_end) {
        let (start, end) = part_around(text, at);
        allocations.retain(|word| (start..end).contains(word));
        // Compilers name the beginning of the called name, or its brackets.
        let meant = allocations.iter().rfind(|&&word| word <= at).or(allocations.first()).copied();
        return Assigned::one(name(at, true, meant));
    }
    let on_line = |word: &&usize| (statement.line_start..statement.line_end).contains(*word);
    if allocations.iter().any(|word| on_line(&word)) {
        allocations.retain(|word| on_line(&word));
    }
    match allocations.as_slice() {
        [] => {
            let first = text.len() - text.trim_start_matches([' ', ';']).len();
            Assigned::one(name(first, false, None))
        }
        [only] => Assigned::one(name(*only, false, Some(*only))),
        several => {
            let names = several.iter().map(|&word| name(word, false, Some(word))).collect();
            Assigned { names, is_in_call_order: true }
        }
    }
}

/// Of several statements in `text`, where the one at `at` begins and ends.
fn part_around(text: &str, at: usize) -> (usize, usize) {
    let at = at.min(text.len());
    let is_end = |byte: &u8| *byte == b';';
    let start = text.as_bytes()[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = text.as_bytes()[at..].iter().position(is_end).map_or(text.len(), |end| at + end);
    (start, end)
}

/// The target in the statement at `at`, whose allocation is at `allocation`. `is_placed`: the compiler named the column, else the line alone.
fn name_in_part(
    text: &str,
    (at, is_placed): (usize, bool),
    allocation: Option<usize>,
    language: Language,
) -> Option<String> {
    let (start, end) = part_around(text, at);
    let start = match language {
        Language::Rust => start,
        _ => {
            // Where only the line is known, its last block's statement is meant.
            let part = text.get(start..end)?;
            let code = part.trim_end_matches([' ', '\t', '{', '}']).len();
            let limit = if is_placed || allocation.is_some() { at.saturating_sub(start) } else { code };
            start + statement_start(part, limit)
        }
    };
    let part = text.get(start..end)?;
    let start = start + (part.len() - part.trim_start().len());
    let part = part.trim();
    let allocation = allocation.and_then(|at| at.checked_sub(start)).filter(|&at| at <= part.len());
    let name = match language {
        Language::Rust => rust_name(part, allocation),
        _ => match members(part).as_slice() {
            [] => at.checked_sub(start).and_then(|at| declared_at(part, at)).or_else(|| c_name(part, allocation)),
            list => member_at(list, at.checked_sub(start).filter(|_| is_placed || allocation.is_some())),
        },
    }?;
    shown(&name)
}

/// The member whose initialiser stands at `at`; where that is not known, the only one.
fn member_at(list: &[(&str, usize, usize)], at: Option<usize>) -> Option<String> {
    match (at, list) {
        (Some(at), list) => list.iter().find(|(_, first, last)| (*first..=*last).contains(&at)),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
    .map(|(name, ..)| (*name).to_owned())
}

fn shown(name: &str) -> Option<String> {
    let name = tidy(name.trim());
    let shown = !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && name.chars().any(char::is_alphabetic);
    shown.then_some(name)
}

/// When a file's content was last changed.
fn modified(path: &str) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

fn read_lines(path: &str) -> Option<Vec<String>> {
    let metadata = std::fs::metadata(Path::new(path)).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(|line| if line.len() > LINE_BYTES_MAX { String::new() } else { line.to_owned() }).collect())
}

/// Position of `word` as a word (or the end of a longer name, as in `xmalloc`).
fn position_of(text: &str, word: &str) -> Option<usize> {
    positions_of(text, word).next()
}

fn positions_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let whole_word = ["new", "clone", "let"].contains(&word);
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let after = bytes.get(at + word.len()).is_none_or(|&byte| !is_name(byte));
        let before = at == 0 || !is_name(bytes[at - 1]);
        after && (before || !whole_word)
    })
}

/// Where calls of `callee` stand, or else words that allocate: each word once, at its beginning.
fn allocation_positions(text: &str, callee: Option<&str>) -> Vec<usize> {
    let callee = callee.map(|name| name.rsplit("::").next().unwrap_or(name)).filter(|name| !name.is_empty());
    let by_callee: Vec<usize> = callee.map(|name| positions_of(text, name).collect()).unwrap_or_default();
    if !by_callee.is_empty() {
        return by_callee;
    }
    // By their ends: `alloc` is the end of `malloc`.
    let mut words: BTreeMap<usize, usize> = BTreeMap::new();
    for word in ALLOCATING {
        for at in positions_of(text, word) {
            let start = words.entry(at + word.len()).or_insert(at);
            *start = at.min(*start);
        }
    }
    words.into_values().collect()
}

/// The last plain `=` before `limit`.
fn assignment_before(statement: &str, limit: usize) -> Option<usize> {
    let bytes = statement.as_bytes();
    (0..limit.min(bytes.len())).rev().find(|&at| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        // `=>` separates the arms of Rust's `match`.
        bytes[at] == b'=' && !b"=>".contains(&after) && !b"=!<>+-*/%&|^".contains(&before)
    })
}

/// The variable declared at `at` of a declaration: `q` at the second name of `std::vector<int> p(3), q(4)`.
fn declared_at(statement: &str, at: usize) -> Option<String> {
    let rest = statement.get(at..)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let end = rest.bytes().position(|byte| !is_name(byte)).unwrap_or(rest.len());
    let begins =
        at == 0 || !statement.as_bytes().get(at - 1).is_some_and(|&before| is_name(before) || b".:>".contains(&before));
    let is_list = statement[..at].trim_end().ends_with(',') && rest[end..].trim_start().starts_with(['(', '{']);
    (begins && is_list && end > 0 && declared_name(statement).is_some()).then(|| rest[..end].to_owned())
}

/// The word of which a part begins at `at`.
fn word_at(text: &str, at: usize) -> &str {
    let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    let bytes = text.as_bytes();
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(is_end).map_or(text.len(), |behind| at + behind);
    text.get(start..end).unwrap_or("")
}

/// Which of these functions the statement calls, at `allocation` of it where that is known.
fn called_of(functions: &[&'static str], statement: &str, allocation: Option<usize>) -> Option<&'static str> {
    let is_called = |name: &&str| match allocation {
        Some(at) => word_at(statement, at) == *name,
        None => positions_of(statement, name).any(|at| word_at(statement, at) == *name),
    };
    functions.iter().copied().find(is_called)
}

fn c_name(statement: &str, allocation: Option<usize>) -> Option<String> {
    if let Some(function) = called_of(&STORING, statement, allocation) {
        return stored_target(statement, function);
    }
    if called_of(&KEEPING, statement, allocation).is_some() {
        return None;
    }
    if let Some(equals) = assignment_before(statement, allocation.unwrap_or(statement.len())) {
        let declared = &statement[..equals];
        // `auto &node = nodes.emplace_back(n)`: the container grows.
        if let Some(at) = growing(statement, equals).filter(|_| allocation.is_none()) {
            return target_before(&statement[..at]);
        }
        // What a call allocates on the way to a number is not the number.
        return target_before(declared).filter(|_| allocation.is_some() || !declares_scalar(declared));
    }
    if statement.trim_start().starts_with("return") {
        return None;
    }
    if let Some(at) = growing(statement, 0) {
        return target_before(&statement[..at]);
    }
    declared_name(statement)
}

/// Where the first method that makes its container allocate stands, from `from` on.
fn growing(statement: &str, from: usize) -> Option<usize> {
    GROWING.iter().filter_map(|method| positions_of(statement, method).find(|&at| at >= from)).min()
}

/// `posix_memalign((void **)&block, ...)`: its first argument is the target.
fn stored_target(statement: &str, function: &str) -> Option<String> {
    let arguments = &statement[position_of(statement, function)? + function.len()..];
    let first = arguments.split(',').next()?;
    let target = first.rsplit('&').next().filter(|_| first.contains('&'))?;
    target_before(target.trim_end_matches(')'))
}

/// The postfix expression at the end of `text`: `float *block ` gives `block`, `p->coord[i] ` the whole.
fn target_before(text: &str) -> Option<String> {
    let text = text.trim_end();
    let bytes = text.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut start = text.len();
    while start > 0 {
        let byte = bytes[start - 1];
        let arrow = start >= 2 && &bytes[start - 2..start] == b"->";
        let scope = start >= 2 && &bytes[start - 2..start] == b"::";
        if byte == b']' {
            start = matching_open(bytes, start - 1)?;
        } else if is_name(byte) || byte == b'.' {
            start -= 1;
        } else if arrow || scope {
            start -= 2;
        } else {
            break;
        }
    }
    let name = &text[start..];
    let pointed_to = text[..start].trim_end();
    let before = pointed_to.trim_end_matches('*').trim_end();
    // After a comma, `*y` is declared like the first name of the list.
    let begins = before.is_empty()
        || before.ends_with([';', '{', '}', '('])
        || (before.ends_with(',') && text.trim_start().starts_with('*'));
    let is_dereference = pointed_to.ends_with('*') && begins;
    Some(if is_dereference && !name.is_empty() { format!("*{name}") } else { name.to_owned() })
        .filter(|n| !n.is_empty())
}

fn matching_open(bytes: &[u8], close: usize) -> Option<usize> {
    let mut depth = 0usize;
    for at in (0..=close).rev() {
        match bytes[at] {
            b']' => depth += 1,
            b'[' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// `std::vector<Point> points(n)`, `Matrix a{n, m}`: a declaration has a type right before the name.
fn declared_name(statement: &str) -> Option<String> {
    let end = bracket_after_templates(statement).unwrap_or(statement.len());
    let head = statement[..end].trim_end();
    let name = target_before(head)?;
    let before = head[..head.len() - name.len()].trim_end();
    let has_type = before.ends_with(['>', '*', '&'])
        || before.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_');
    let keyword = ["return", "new", "delete", "throw", "else", "case", "goto"];
    let is_plain = !name.contains(['.', '[', '>', ':']);
    let last_word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    (has_type && !keyword.contains(&last_word) && is_plain).then_some(name)
}

/// The first `(` or `{` outside `<...>`.
fn bracket_after_templates(statement: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (index, byte) in statement.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b'(' | b'{' if depth <= 0 => return Some(index),
            _ => {}
        }
    }
    None
}

fn rust_name(statement: &str, allocation: Option<usize>) -> Option<String> {
    if let Some(at) = position_of(statement, "let").filter(|_| statement.contains('=')) {
        if let Some(at) = growing(statement, at).filter(|_| allocation.is_none()) {
            return target_before(&statement[..at]);
        }
        let pattern = statement[at + 3..].split('=').next()?.split(':').next()?;
        let name = pattern.trim().trim_start_matches("mut ").trim();
        return name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then(|| name.to_owned());
    }
    if let Some(equals) = assignment_before(statement, allocation.unwrap_or(statement.len())) {
        return target_before(&statement[..equals]);
    }
    if let Some(at) = growing(statement, 0) {
        return target_before(&statement[..at]);
    }
    // A field of a literal: `data: vec![0; n],`.
    let before = statement[..allocation?].trim_end();
    let field = before.strip_suffix(':').filter(|field| !field.ends_with(':'))?;
    target_before(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(text: &str, extension: &str, place: &CallPlace<'_>) -> Vec<Option<String>> {
        let language = language(&format!("x.{extension}"));
        let lines = code_of(text.lines().map(str::to_owned).collect(), language);
        let index = if place.line > 0 { place.line as usize - 1 } else { lines.len().saturating_sub(1) };
        if lines.is_empty() { Vec::new() } else { assigned_in(&lines, index, language, place).names }
    }

    fn name(statement: &str, extension: &str) -> Option<String> {
        assigned(statement, extension, &CallPlace::default()).into_iter().next().flatten()
    }

    fn names(text: &str, extension: &str, line: u32, column: u32) -> Vec<String> {
        let place = CallPlace { line, column, callee: None };
        assigned(text, extension, &place).into_iter().map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn columns_tell_allocations_of_one_line_apart() {
        let line = "  double *x = malloc(10), *y = (double *)malloc(20); z = new T[3];";
        for (word, expected) in [("malloc(10", "x"), ("malloc(20", "y"), ("new T", "z")] {
            let column = line.find(word).unwrap() as u32 + 1;
            assert_eq!(names(line, "cpp", 1, column), [expected]);
        }
        assert_eq!(names(line, "cpp", 1, 0), ["x", "y", "z"], "without columns: each, in the order of the calls");
        let declared = "  std::vector<int> p(3), q(4);";
        assert_eq!(names(declared, "cpp", 1, declared.find("q(4").unwrap() as u32 + 1), ["q"]);
        assert_eq!(names(declared, "cpp", 1, declared.find("p(3").unwrap() as u32 + 1), ["p"]);
    }

    #[test]
    fn digit_separators_begin_no_character() {
        let lines =
            "  a = new double[1'000];\n  std::vector<double> v(n);\n  b = new T[0x1'0000'0000]; c = new T['a'];\n";
        assert_eq!(names(lines, "cpp", 2, 23), ["v"]);
        assert_eq!(names(lines, "cpp", 1, 0), ["a"]);
        assert_eq!(names(lines, "cpp", 3, 0), ["b", "c"]);
    }

    #[test]
    fn an_assignment_goes_on_over_lines_of_the_preprocessor() {
        let split = "  f();\n  a =\n#ifdef X\n    malloc(800);\n#else\n    calloc(100, 8);\n#endif\n  g();\n";
        assert_eq!(names(split, "c", 4, 0), ["a"]);
        assert_eq!(names(split, "c", 6, 5), ["a"]);
        let nested = "  a = // the grid\n#if A\n#if B\n  1;\n#endif\n#elif C\n  /* here */\n  malloc(8);\n#endif\n";
        assert_eq!(names(nested, "c", 8, 3), ["a"]);
        let tail = "  double *a\n#ifdef ALIGNED\n    __attribute__((aligned(64)))\n#endif\n    = malloc(n);\n";
        assert_eq!(names(tail, "c", 5, 7), ["a"]);
        // Which branch was compiled is not known: both are told.
        let either = "#ifdef X\n  a =\n#else\n  b =\n#endif\n    malloc(n);\n";
        assert_eq!(names(either, "c", 6, 5), ["a", "b"]);
        let ended = "#ifdef X\n  a = 1;\n#endif\n    f(malloc(n));\n";
        assert_eq!(names(ended, "c", 4, 7), [""]);
    }

    #[test]
    fn every_line_of_a_continued_statement_of_fortran_names_its_objects() {
        let free = "x = 1\nallocate ( &\n  &  u(n), & ! here, and\n! a comment\n  & v(n), r(n), stat=ios)\ny = 2\n";
        for line in [2, 3, 5] {
            assert_eq!(names(free, "f90", line, 0), ["u", "v", "r"], "line {line}");
        }
        let fixed = "      x = 1\n      allocate (u(n),\nc     w(n),\n     >          v(n))\n      y = 2\n";
        assert_eq!(names(fixed, "f", 2, 0), ["u", "v"]);
        assert_eq!(names(fixed, "f", 4, 0), ["u", "v"]);
        assert!(names(fixed, "f", 5, 0).is_empty());
    }

    #[test]
    fn c_and_cpp_assignments() {
        for (statement, expected) in [
            ("block = (float*)malloc( chunksize*dim*sizeof(float) );", "block"),
            ("float *block = (float *) malloc(n * sizeof(float)); // = x", "block"),
            ("p->coord[i] = new double[n];", "p->coord[i]"),
            ("points.p[a[i]].coord = &block[i]; q = new T;", "q"),
            ("auto x = std::make_unique<T>(1);", "x"),
            ("if ((buffer = malloc(10)) == NULL) {", "buffer"),
            ("*out = calloc(n, 1);", "*out"),
            ("this->data_ = static_cast<T*>(operator new(n));", "this->data_"),
            ("double *a = xmalloc(n), *b = NULL;", "a"),
            ("std::vector<Point, my<int>> points(n);", "points"),
            ("Matrix a{n, m};", "a"),
            ("table[h].entries.push_back(e);", "table[h].entries"),
            ("auto &node = nodes.emplace_back(a, b);", "nodes"),
            ("auto [at, is_new] = table[h].emplace(key, value);", "table[h]"),
            ("it = set.insert(key).first;", "set"),
            ("posix_memalign((void **)&grid, 64, n);", "grid"),
            ("int rc = posix_memalign((void **)&grid, 64, n);", "grid"),
            ("if ((rc = posix_memalign((void **)&g->cells, 64, n)) != 0) {", "g->cells"),
            ("read = getline(&line, &bytes, file);", "line"),
            ("static int *counts\n    = (int *)\n    calloc(n, 4);", "counts"),
            ("char *s = strdup(\"a = b; c\");", "s"),
        ] {
            assert_eq!(name(statement, "cpp").as_deref(), Some(expected), "{statement}");
        }
    }

    /// The place is where compilers put a constructor: at the variable's or the member's name.
    #[test]
    fn cpp_objects_are_named_wherever_they_are_made() {
        for (text, place, expected) in [
            ("int main() { std::vector<double> v(n);", "v(n", "v"),
            ("int main() { std::vector<double> v(n);", "", "v"),
            ("int main() { int n = f(); std::vector<double> v(n), w(n); }", "w(n", "w"),
            ("if (n) { std::vector<int> inner(n); t += inner[0]; }", "inner(", "inner"),
            ("for (std::vector<int> loop(n); t < 0; )", "loop(", "loop"),
            ("auto x = std::vector<double>(n);", "std", "x"),
            ("int main() { auto m = std::make_unique<T[]>(n);", "std::make", "m"),
            ("Grid(int n) : data_(n), raw_(new double[n]) {", "data_", "data_"),
            ("Grid(int n) : data_(n), raw_(new double[n]) {", "new", "raw_"),
            ("Grid(int n) : plain_{(double*)malloc(n)} {}", "malloc", "plain_"),
            ("Grid(int n) : cells(n * n) {}", "", "cells"),
            ("struct M { std::vector<T> cells; explicit M(int n) : cells(n * n) {} };", "cells(n *", "cells"),
            ("double t = sum(v);", "sum", ""),
            ("sum(std::vector<double>(n));", "std", ""),
            ("if (sum(std::vector<double>(n)) > 1) {", "std", ""),
            ("VECTOR(hidden, n);", "VECTOR", ""),
            ("Grid(int n) : Base<int>(n), data_(n) {", "Base", ""),
            ("int main() { return sum(v); }", "sum", ""),
        ] {
            let column = if place.is_empty() { 0 } else { text.find(place).unwrap() as u32 + 1 };
            assert_eq!(names(text, "cpp", 1, column), [expected], "{text} at {place:?}");
        }
        let lines = "struct Grid {\n  Grid(int n)\n    : data_(n),\n      raw_(new double[n]) {\n";
        assert_eq!(names(lines, "cpp", 3, 7), ["data_"]);
        assert_eq!(names(lines, "cpp", 4, 12), ["raw_"]);
    }

    #[test]
    fn statements_of_no_known_form_have_no_name() {
        for statement in [
            "return new double[n];",
            "return malloc(n);",
            "f(malloc(10));",
            "rc = pthread_create(&thread, NULL, work, NULL);",
            "done += n = fprintf(log, \"%d\", n);",
            "rc = posix_memalign(out, 64, n);",
            "x == y",
            "",
            "= = = [",
            "]]]] = malloc(1)",
        ] {
            assert_eq!(name(&format!(" {statement}"), "cpp"), None, "{statement}");
        }
    }

    #[test]
    fn rust_and_fortran() {
        assert_eq!(name("let mut v: Vec<f64> = vec![0.0; n];", "rs").as_deref(), Some("v"));
        assert_eq!(name("self.rows = Vec::with_capacity(n);", "rs").as_deref(), Some("self.rows"));
        assert_eq!(name("Grid {\n    cells: vec![0; n],", "rs").as_deref(), Some("cells"));
        assert_eq!(name("let old = self.map.insert(key, value);", "rs").as_deref(), Some("self.map"));
        assert_eq!(name("Kind::Full => vec![0; n],", "rs"), None, "a pattern takes nothing");
        assert_eq!(name("Kind::Full => self.rows = Vec::with_capacity(n),", "rs").as_deref(), Some("self.rows"));
        assert_eq!(name("outlet = Vec::with_capacity(n);", "rs").as_deref(), Some("outlet"));
        assert_eq!(name("allocate(a(n), stat=ierr)", "f90").as_deref(), Some("a"));
        assert_eq!(name("ALLOCATE ( grid%cells(n,m) )", "F90").as_deref(), Some("grid%cells"));
    }

    #[test]
    fn sources_that_may_be_others_than_the_compiled_ones_name_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (source, program) = (path("grid.c"), path("program"));
        std::fs::write(&source, "grid = malloc(n);\n").unwrap();
        let place = CallPlace { line: 1, ..CallPlace::default() };
        let name =
            |cache: &mut SourceCache, source: &str| cache.assigned(source, &program, &place).map(|found| found.names);
        let grid = Some(vec![Some("grid".to_owned())]);
        assert_eq!(name(&mut SourceCache::new(), &source), grid, "of the binary's age nothing is known");
        std::fs::write(&program, "").unwrap();
        let at = |path: &str, seconds| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        at(&program, 2000);
        at(&source, 1000);
        let mut cache = SourceCache::new();
        assert_eq!(name(&mut cache, &source), grid);
        assert!(cache.changed().is_empty());
        at(&source, 2001);
        let mut cache = SourceCache::new();
        assert_eq!(name(&mut cache, &source), None, "it was changed after the program was built");
        assert!(!cache.passes_on(&source, &program, &place));
        assert_eq!(cache.changed().iter().collect::<Vec<_>>(), [&source]);
        for source in ["src/source.rs", "../../tools/test_packages.py"] {
            assert!(Path::new(source).is_file(), "{source}");
            assert_eq!(name(&mut cache, source), None, "relative to a folder that is not known");
        }
    }

    #[test]
    fn hostile_sources_are_left_alone() {
        let (mut cache, place) = (SourceCache::new(), CallPlace { line: 1, ..CallPlace::default() });
        for path in ["/dev/zero", "/proc/self/mem", "/nonexistent/x.c"] {
            assert_eq!(cache.assigned(path, "/nonexistent/program", &place), None);
        }
        let long = format!("{} = malloc(1);", "a".repeat(100_000));
        assert_eq!(name(&long, "c"), None);
    }
}
