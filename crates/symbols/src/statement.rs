//! Extracts the statement around a line from a source file.
//!
//! Comments and the contents of strings are blanked byte for byte, so that columns stay valid. A statement may span preprocessor conditionals. In a
//! conditional around the line, the branch with the line was compiled. For a conditional before the line this is unknown, so each branch is a possibility.

/// Lines before and after that are searched for the rest of a statement of C, C++ or Rust.
const LINES_BEFORE: usize = 8;
const LINES_AFTER: usize = 8;
/// Most lines of a Fortran statement (the standard allows 255 continuations).
const FORTRAN_LINES: usize = 300;
/// Most lines of one preprocessor conditional.
const CONDITIONAL_LINES: usize = 200;

/// Code around a line, on one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The text: may hold statements beside the one that is meant.
    pub text: String,
    /// Where the line in question begins in `text`.
    pub line_start: usize,
    /// Where it ends.
    pub line_end: usize,
}

/// The lines without comments and contents of strings, each as long as before.
pub(crate) fn blanked(lines: &[String], has_char_literals: bool) -> Vec<String> {
    let mut in_comment = false;
    lines.iter().map(|line| blanked_line(line, has_char_literals, &mut in_comment)).collect()
}

fn blanked_line(line: &str, has_char_literals: bool, in_comment: &mut bool) -> String {
    let mut code = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    let mut quote = None;
    let blank = |code: &mut String, c: char| code.extend(std::iter::repeat_n(' ', c.len_utf8()));
    while let Some(character) = rest.next() {
        let next = rest.peek().copied();
        if *in_comment {
            blank(&mut code, character);
            if character == '*' && next == Some('/') {
                rest.next();
                code.push(' ');
                *in_comment = false;
            }
            continue;
        }
        match (quote, character) {
            (Some(_), '\\') => {
                blank(&mut code, character);
                if let Some(escaped) = rest.next() {
                    blank(&mut code, escaped);
                }
            }
            (Some(open), close) if open == close => {
                quote = None;
                code.push(close);
            }
            (Some(_), inside) => blank(&mut code, inside),
            (None, '"') => {
                quote = Some('"');
                code.push('"');
            }
            // C++ groups digits by apostrophes: `1'000`.
            (None, '\'') if has_char_literals && !ends_in_number(&code) => {
                quote = Some('\'');
                code.push('\'');
            }
            (None, '/') if next == Some('/') => {
                blank(&mut code, character);
                rest.by_ref().for_each(|c| blank(&mut code, c));
            }
            (None, '/') if next == Some('*') => {
                rest.next();
                code.push_str("  ");
                *in_comment = true;
            }
            (None, other) => code.push(other),
        }
    }
    code
}

fn ends_in_number(code: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_'.".contains(&byte);
    let start = code.bytes().rposition(|byte| !is_part(byte)).map_or(0, |before| before + 1);
    code.as_bytes().get(start).is_some_and(u8::is_ascii_digit)
}

/// A line of the preprocessor, by what it does to conditionals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    If,
    Else,
    End,
    Other,
}

fn directive(line: &str) -> Option<Directive> {
    let word = line.trim_start().strip_prefix('#')?.trim_start();
    Some(match word {
        _ if word.starts_with("if") => Directive::If,
        _ if word.starts_with("el") => Directive::Else,
        _ if word.starts_with("endif") => Directive::End,
        _ => Directive::Other,
    })
}

/// The `#if` of the conditional that `from` (an `#else` or `#endif`) belongs to.
fn start_of_conditional(lines: &[String], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in (from.saturating_sub(CONDITIONAL_LINES)..from).rev() {
        match directive(&lines[at]) {
            Some(Directive::End) => depth += 1,
            Some(Directive::If) if depth == 0 => return Some(at),
            Some(Directive::If) => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The `#endif` of the conditional that `from` (an `#if` or `#else`) belongs to.
fn end_of_conditional(lines: &[String], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, line) in lines.iter().enumerate().skip(from + 1).take(CONDITIONAL_LINES) {
        match directive(line) {
            Some(Directive::If) => depth += 1,
            Some(Directive::End) if depth == 0 => return Some(at),
            Some(Directive::End) => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The branches of the conditional from `#if` at `first` to `#endif` at `last`: first line and end of each.
fn branches(lines: &[String], first: usize, last: usize) -> Vec<(usize, usize)> {
    let mut depth = 0_usize;
    let mut bounds = vec![first];
    for (at, line) in lines.iter().enumerate().take(last).skip(first + 1) {
        match directive(line) {
            Some(Directive::If) => depth += 1,
            Some(Directive::End) => depth = depth.saturating_sub(1),
            Some(Directive::Else) if depth == 0 => bounds.push(at),
            _ => {}
        }
    }
    bounds.push(last);
    bounds.windows(2).map(|pair| (pair[0] + 1, pair[1])).collect()
}

fn ends_statement(text: &str) -> bool {
    text.trim_end().ends_with([';', '{', '}'])
}

/// The statement that holds line `index`, in each way in which the preprocessor may have left it: without the conditionals before it first, then with each
/// branch of the nearest one.
pub(crate) fn around(lines: &[String], index: usize) -> Vec<Statement> {
    let mut before: Vec<usize> = Vec::new();
    let mut passed: Option<(usize, usize, usize)> = None;
    let mut at = index;
    while at > 0 && before.len() < LINES_BEFORE {
        at -= 1;
        match directive(&lines[at]) {
            Some(Directive::If) => continue,
            Some(Directive::Else) => match start_of_conditional(lines, at) {
                Some(start) => at = start,
                None => break,
            },
            Some(Directive::End) => match start_of_conditional(lines, at) {
                Some(start) => {
                    passed.get_or_insert((start, at, before.len()));
                    at = start;
                }
                None => break,
            },
            Some(Directive::Other) => break,
            None if ends_statement(&lines[at]) => break,
            None => before.push(at),
        }
    }
    let after = lines_after(lines, index);
    let whole = |more: &[usize], place: usize| {
        let mut order: Vec<usize> = before[..place.min(before.len())].to_vec();
        order.extend(more.iter().rev());
        order.extend(&before[place.min(before.len())..]);
        order.reverse();
        joined(lines, &order, index, &after)
    };
    let mut ways = vec![whole(&[], 0)];
    if let Some((start, end, place)) = passed {
        for (first, end) in branches(lines, start, end) {
            // What ends in the branch does not reach the line.
            let from = (first..end).rev().find(|&at| ends_statement(&lines[at])).map_or(first, |at| at + 1);
            let more: Vec<usize> = (from..end).filter(|&at| directive(&lines[at]).is_none()).collect();
            ways.push(whole(&more, place));
        }
    }
    ways
}

fn lines_after(lines: &[String], index: usize) -> Vec<usize> {
    let mut after = Vec::new();
    let mut at = index;
    let mut text = lines[index].as_str();
    while after.len() < LINES_AFTER && !text.contains(';') && !text.trim_end().ends_with(['{', '}']) {
        at += 1;
        let Some(line) = lines.get(at) else { break };
        match directive(line) {
            Some(Directive::End) => text = "",
            Some(Directive::If | Directive::Else) => match end_of_conditional(lines, at) {
                Some(end) => {
                    at = end;
                    text = "";
                }
                None => break,
            },
            Some(Directive::Other) => break,
            None => {
                after.push(at);
                text = line;
            }
        }
    }
    after
}

fn joined(lines: &[String], before: &[usize], index: usize, after: &[usize]) -> Statement {
    let mut statement = Statement::default();
    for &at in before {
        statement.text.push_str(lines[at].trim());
        statement.text.push(' ');
    }
    statement.line_start = statement.text.len();
    statement.text.push_str(&lines[index]);
    statement.line_end = statement.text.len();
    for &at in after {
        statement.text.push(' ');
        statement.text.push_str(lines[at].trim());
    }
    statement
}

/// The statement of Fortran that holds line `index` (any of its lines: compilers name the first or the last), continuations joined. `is_fixed`: the form of
/// FORTRAN 77, whose continuations have a mark in column 6.
pub(crate) fn around_fortran(lines: &[String], index: usize, is_fixed: bool) -> String {
    let has_code = |at: &usize| !is_fortran_comment(&lines[*at], is_fixed);
    let goes_on = |at: usize, next: usize| {
        if is_fixed {
            is_fixed_continuation(&lines[next])
        } else {
            without_comment(&lines[at]).trim_end().ends_with('&')
        }
    };
    let previous = |at: usize| (0..at).rev().take(FORTRAN_LINES).find(has_code);
    let mut first = index;
    while let Some(before) = previous(first).filter(|&before| goes_on(before, first) && index - before < FORTRAN_LINES)
    {
        first = before;
    }
    let mut text = String::new();
    let mut last = first;
    for at in (first..lines.len()).take(FORTRAN_LINES).filter(has_code) {
        if at > first && !goes_on(last, at) {
            break;
        }
        let line = if is_fixed { lines[at].get(6..).unwrap_or("") } else { &lines[at] };
        let line = without_comment(line);
        text.push_str(line.trim().trim_end_matches('&').trim_start_matches('&'));
        text.push(' ');
        last = at;
    }
    text
}

fn is_fortran_comment(line: &str, is_fixed: bool) -> bool {
    let trimmed = line.trim_start();
    let by_first = is_fixed && line.starts_with(['c', 'C', '*', 'd', 'D']);
    trimmed.is_empty() || trimmed.starts_with(['!', '#']) || by_first
}

fn is_fixed_continuation(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() > 5 && bytes[..5].iter().all(|&byte| byte == b' ') && !matches!(bytes[5], b' ' | b'0')
}

/// A line of Fortran up to its comment, contents of strings blanked.
fn without_comment(line: &str) -> String {
    let mut quote = None;
    let mut code = String::with_capacity(line.len());
    for c in line.chars() {
        match (quote, c) {
            (None, '!') => break,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {
                code.push(' ');
                continue;
            }
            (None, _) => {}
        }
        code.push(c);
    }
    code
}
