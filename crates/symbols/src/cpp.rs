//! Bits of C and C++ syntax that tell which part of a line makes an object: blocks that begin on it, members in a constructor's initialisers.

/// Types that hold no memory of their own: what is allocated while one is computed belongs to something else.
const SCALARS: [&str; 14] = [
    "unsigned",
    "signed",
    "int",
    "long",
    "short",
    "char",
    "bool",
    "float",
    "double",
    "size_t",
    "ssize_t",
    "std::size_t",
    "ptrdiff_t",
    "std::ptrdiff_t",
];
const QUALIFIERS: [&str; 5] = ["const", "static", "volatile", "register", "constexpr"];
/// Their brackets hold statements or conditions, no arguments.
const HEADS: [&str; 5] = ["for", "if", "while", "switch", "catch"];

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where the statement that reaches up to `limit` begins in `text`: after the last block that opened before it (`int main() { T v(n)`), after a block
/// that ended, within the brackets of `for (T v(n)` or behind them.
pub(crate) fn statement_start(text: &str, limit: usize) -> usize {
    let bytes = text.as_bytes();
    let mut start = 0;
    let mut open: Vec<(u8, usize)> = Vec::new();
    for at in 0..limit.min(bytes.len()) {
        match bytes[at] {
            b'(' => {
                let head = is_head(&text[..at]);
                if head {
                    start = at + 1;
                }
                open.push((if head { b'h' } else { b'(' }, at));
            }
            b'{' if opens_block(&text[start..at], open.is_empty()) => {
                start = at + 1;
                open.clear();
            }
            b'{' => open.push((b'{', at)),
            b')' => {
                if let Some((b'h', _)) = open.pop() {
                    start = at + 1;
                }
            }
            // The end of a block that this text does not open; else of a list.
            b'}' if open.pop().is_none() => start = at + 1,
            _ => {}
        }
    }
    start
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let start = text.bytes().rposition(|byte| !is_name(byte)).map_or(0, |at| at + 1);
    text.get(start..).unwrap_or("")
}

fn is_head(before: &str) -> bool {
    HEADS.contains(&last_word(before))
}

/// Whether a `{` behind this opens a block: behind a parameter list or a condition, a keyword, or nothing; a member's initialiser stands behind its name.
fn opens_block(before: &str, is_outside_brackets: bool) -> bool {
    let before = before.trim_end();
    let is_keyword = ["else", "do", "try", "const", "noexcept", "override", "final"].contains(&last_word(before));
    let first = before.trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
    let is_type =
        ["struct", "class", "namespace", "union", "extern", "template"].contains(&first) && !before.contains('=');
    let ends_list = before.ends_with([')', '}']) && initialisers(before).is_some_and(|list| list.ends_with([')', '}']));
    is_outside_brackets
        && (before.is_empty()
            || is_keyword
            || is_type
            || ends_list
            || before.ends_with([')', ';']) && !before.contains('='))
}

/// The part behind the `:` of a constructor (`Grid(int n) : data_(n), raw_(new T[n])`).
fn initialisers(statement: &str) -> Option<&str> {
    let bytes = statement.as_bytes();
    let mut depth = 0_usize;
    for at in 0..bytes.len() {
        match bytes[at] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            // Assignments, conditions and blocks hold no such list.
            b'?' | b'=' if depth == 0 => return None,
            b':' if depth == 0 && bytes.get(at + 1) != Some(&b':') && (at == 0 || bytes[at - 1] != b':') => {
                let head = statement[..at].trim_end();
                let head = head.strip_suffix("noexcept").unwrap_or(head).trim_end();
                let is_constructor = head.ends_with(')') && !head.trim_start().starts_with("case");
                return is_constructor.then(|| &statement[at + 1..]);
            }
            _ => {}
        }
    }
    None
}

/// The members that a constructor's initialisers in `statement` make, each with its first and last byte: `data_` of `Grid(int n) : data_(n)`. Bases with
/// template arguments have no plain name, and end the list.
pub(crate) fn members(statement: &str) -> Vec<(&str, usize, usize)> {
    let Some(list) = initialisers(statement) else { return Vec::new() };
    let bytes = statement.as_bytes();
    let mut at = statement.len() - list.len();
    let mut found = Vec::new();
    loop {
        while bytes.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b',') {
            at += 1;
        }
        let start = at;
        while bytes.get(at).is_some_and(|&byte| is_name(byte)) {
            at += 1;
        }
        let name = &statement[start..at];
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if name.is_empty() || !matches!(bytes.get(at), Some(b'(' | b'{')) {
            return found;
        }
        let mut depth = 0_usize;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'(' | b'{' | b'[' => depth += 1,
                b')' | b'}' | b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            at += 1;
        }
        found.push((name, start, at));
        at += 1;
        if at >= bytes.len() {
            return found;
        }
    }
}

/// Whether `declared`, the text before `=`, declares a number (`double sum`, `const size_t n`), no pointer and no array.
pub(crate) fn declares_scalar(declared: &str) -> bool {
    let words: Vec<&str> = declared.split_whitespace().collect();
    let [types @ .., name] = words.as_slice() else { return false };
    let is_fixed = |word: &str| {
        word.trim_start_matches("std::").trim_start_matches('u').starts_with("int") && word.ends_with("_t")
    };
    let is_scalar = |word: &&str| SCALARS.contains(word) || is_fixed(word) && !word.contains("ptr");
    name.bytes().all(is_name)
        && types.iter().any(is_scalar)
        && types.iter().all(|word| is_scalar(word) || QUALIFIERS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_begin_behind_blocks() {
        for (text, word, expected) in [
            ("int main() { T v(n)", "v(n", " T v(n)"),
            ("if (n) { T v(n)", "v(n", " T v(n)"),
            ("for (T v(n)", "v(n", "T v(n)"),
            ("while (x) T v(n)", "v(n", " T v(n)"),
            ("} else { T v(n)", "v(n", " T v(n)"),
            ("T v{f(n), g(n)}", "g(n", "T v{f(n), g(n)}"),
            ("T v = {f(n), {g(n)}}", "g(n", "T v = {f(n), {g(n)}}"),
            ("struct M { M(int n) : cells(n)", "cells(n", " M(int n) : cells(n)"),
            ("G(int n) : a{n}, b(n) { T v(n)", "v(n", " T v(n)"),
            ("f([] { T v(n)", "v(n", "f([] { T v(n)"),
        ] {
            assert_eq!(&text[statement_start(text, text.find(word).unwrap())..], expected, "{text}");
        }
        let _ = statement_start(")))}}}({{{", 100);
    }

    #[test]
    fn members_of_initialiser_lists() {
        let names = |text| members(text).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
        assert_eq!(names("Grid(int n) : data_(n), raw_{new T[f(n)]} , x_ (1)"), ["data_", "raw_", "x_"]);
        assert_eq!(names("Grid::Grid(int n) noexcept : a(n"), ["a"]);
        assert_eq!(names("Grid(int n) : std::vector<int>(n), a(n)"), [""; 0]);
        for none in
            ["x = (a) ? b : c(n)", "case f(1): g(n)", "public: a(n)", "a::b(n)", "f(x ? y : z(n))", "(a) ? f(b) : c(n)"]
        {
            assert_eq!(names(none), [""; 0], "{none}");
        }
    }

    #[test]
    fn numbers_hold_no_memory() {
        for number in ["double t", "const unsigned long n", "std::size_t count", "uint64_t h"] {
            assert!(declares_scalar(number), "{number}");
        }
        for other in ["double *t", "t", "std::vector<int> v", "uintptr_t p", "char b[]", "auto x", "int &r"] {
            assert!(!declares_scalar(other), "{other}");
        }
    }
}
