//! Finds the variable that a line of Python assigns to.

/// Lines that a statement may have before the one in question.
const LINES_MAX: usize = 30;

/// Statements that may have another one behind their colon.
const BLOCKS: [&str; 10] = ["if", "elif", "else", "for", "while", "try", "except", "finally", "with", "async"];

/// The target of the statement that `lines[index]` belongs to: one that begins on an earlier line has a bracket open there.
pub(crate) fn assigned(lines: &[String], index: usize) -> Option<&str> {
    if let Some(own) = target(lines.get(index)?) {
        // `shape=(3, 4)` on a line of its own is an argument.
        let begins = start_of(lines, index);
        return if begins == index { Some(own) } else { target(&lines[begins]) };
    }
    target(&lines[start_of(lines, index)])
}

/// The line on which the statement begins that goes on at `index`.
fn start_of(lines: &[String], index: usize) -> usize {
    let (mut start, mut open) = (index, 0_i64);
    for at in (index.saturating_sub(LINES_MAX)..index).rev() {
        open += brackets(&lines[at]);
        if open > 0 {
            (start, open) = (at, 0);
        }
    }
    start
}

/// Brackets that a line opens, less those that it closes.
fn brackets(line: &str) -> i64 {
    let mut open = 0;
    scan(line, |byte, _| match byte {
        b'(' | b'[' | b'{' => open += 1,
        b')' | b']' | b'}' => open -= 1,
        _ => {}
    });
    open
}

/// The target of the assignment on `line`, such as `a`, `self.cells`, `grid[i]` or `u, v`; `None` where the line assigns nothing.
pub(crate) fn target(line: &str) -> Option<&str> {
    let code = statement(line.trim());
    let equals = assignment(code)?;
    let left = code[..equals].trim_end_matches(['+', '-', '*', '/', '%', '@', '&', '|', '^', '<', '>']);
    // `rows: list[int] = []`
    let left = left[..outside(left, |byte, _| byte == b':').unwrap_or(left.len())].trim();
    let begins_name = |c: char| c.is_alphabetic() || c == '_' || c == '(' || c == '[' || c == '*';
    let is_target = |c: char| c.is_alphanumeric() || "_.[]()'\", *:-+".contains(c);
    (left.starts_with(begins_name) && left.chars().all(is_target)).then_some(left)
}

/// What stands behind the colon of a block's first line, if anything does; else the line itself.
fn statement(line: &str) -> &str {
    let word = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
    if !BLOCKS.contains(&word) {
        return line;
    }
    outside(line, |byte, _| byte == b':').map_or(line, |colon| line[colon + 1..].trim())
}

/// Position of the first `=` that assigns.
fn assignment(code: &str) -> Option<usize> {
    let bytes = code.as_bytes();
    outside(code, |byte, at| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let two_before = at.checked_sub(2).map_or(b' ', |before| bytes[before]);
        // `<=` and `>=` compare, `<<=` and `>>=` assign.
        let compares = matches!(before, b'=' | b'!' | b':') || (matches!(before, b'<' | b'>') && two_before != before);
        byte == b'=' && bytes.get(at + 1) != Some(&b'=') && !compares
    })
}

/// Position of the first byte outside of brackets, strings and comments for which `is_wanted` holds.
fn outside(code: &str, is_wanted: impl Fn(u8, usize) -> bool) -> Option<usize> {
    let (mut depth, mut found) = (0_usize, None);
    scan(code, |byte, at| match byte {
        b'(' | b'[' | b'{' => depth += 1,
        b')' | b']' | b'}' => depth = depth.saturating_sub(1),
        _ if depth == 0 && found.is_none() && is_wanted(byte, at) => found = Some(at),
        _ => {}
    });
    found
}

/// Shows each byte that is in no string or comment. Strings of several lines are not followed.
fn scan(code: &str, mut show: impl FnMut(u8, usize)) {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, byte) in code.bytes().enumerate() {
        if let Some(end) = quote {
            if !is_escaped && byte == end {
                quote = None;
            }
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'#' => return,
            b'\'' | b'"' => quote = Some(byte),
            _ => show(byte, at),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_of_assignments() {
        for (line, wanted) in [
            ("    a = np.zeros(n)", "a"),
            ("self.cells = [0] * n  # all = none", "self.cells"),
            ("grid[i, 'x'] = row", "grid[i, 'x']"),
            ("u, v = np.ones(3), np.ones(4)", "u, v"),
            ("rows: list[int] = []", "rows"),
            ("total += np.ones(n)", "total"),
            ("bits <<= 3", "bits"),
            ("first = second = bytearray(9)", "first"),
            ("if n == 3: b = make(n=4)", "b"),
            ("for i in range(3): c[i] = i", "c[i]"),
            ("été = 1", "été"),
        ] {
            assert_eq!(target(line), Some(wanted), "{line}");
        }
        for line in [
            "",
            "return np.zeros(shape=(3, 4))",
            "append(np.zeros(n))",
            "if a == b:",
            "if a <= b:",
            "print('a = b')",
            "# a = b",
            "while (x := read()):",
            "x != y",
            "= 3",
        ] {
            assert_eq!(target(line), None, "{line}");
        }
    }

    #[test]
    fn a_statement_may_go_on_over_lines() {
        let source = "a = 1\nnames = array.array(\n    'd',  # (\n    bytes(8 * n),\n    shape=(3,\n        4),\n)\nprint(a,\n    b)\nc = [0] * n";
        let lines: Vec<String> = source.lines().map(str::to_owned).collect();
        let found: Vec<Option<&str>> = (0..lines.len()).map(|index| assigned(&lines, index)).collect();
        let names = Some("names");
        assert_eq!(found, [Some("a"), names, names, names, names, names, names, None, None, Some("c")]);
        assert_eq!(assigned(&lines, 99), None);
    }

    proptest! {
        #[test]
        fn any_line_is_borne(lines in proptest::collection::vec(".{0,80}", 1..5)) {
            for index in 0..lines.len() {
                let _ = assigned(&lines, index);
            }
        }
    }
}
