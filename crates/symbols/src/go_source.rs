//! Finds the variable that a line of Go assigns to.
//!
//! A statement of Go ends with its line unless a bracket is open, and the compiler names the line on which the allocation stands: that line alone is read.

/// What may stand before a statement on its line.
const BEFORE: [&str; 6] = ["} ", "else ", "if ", "for ", "switch ", "case "];
/// What looks like a call of a function, and is made by the line itself.
const BUILT_IN: [&str; 5] = ["make", "new", "append", "string", "func"];

/// The target of the assignment on `line`, which is without comments and contents of strings: `rows` of `rows := make([]int, n)`, `t.rows[i]`, or the field of
/// a composite literal (`Rows: make([]int, n),`). `None` where the line assigns nothing, several variables, what a loop ranges over, or what a function
/// returns: what the line itself allocates then are arguments of the call (`sum := total(make([]int, n))`).
pub(crate) fn assigned(line: &str) -> Option<&str> {
    let Some(equals) = assignment(line) else { return field(line.trim()) };
    let value = line[equals + 1..].trim_start();
    if value.starts_with("range ") || is_call(value) {
        return None;
    }
    let left = line[..equals].trim_end_matches([':', '+', '-', '*', '/', '%', '&', '|', '^']);
    let mut left = left.rsplit(['{', ';']).next().unwrap_or(left).trim();
    while let Some(rest) = BEFORE.iter().find_map(|word| left.strip_prefix(word)) {
        left = rest.trim_start();
    }
    let left = left.strip_prefix("var ").map_or(left, |declared| declared.split_whitespace().next().unwrap_or(""));
    let is_target = |c: char| c.is_alphanumeric() || "_.[]()*+- \"'".contains(c);
    let begins = |c: char| c.is_alphabetic() || c == '_' || c == '*' || c == '(';
    (left.starts_with(begins) && left.chars().all(is_target)).then_some(left)
}

/// Whether a value begins with the call of a function.
fn is_call(value: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let name = &value[..value.find(|c: char| !is_name(c)).unwrap_or(value.len())];
    !name.is_empty() && value[name.len()..].starts_with('(') && !BUILT_IN.contains(&name)
}

/// The first `=` outside of round and square brackets that assigns.
fn assignment(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let mut depth = 0_i32;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'=' if depth <= 0 => {
                let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
                if bytes.get(at + 1) != Some(&b'=') && !b"=!<>".contains(&before) {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// `Rows` of `Rows: make([]int, n),`. A label has nothing behind its colon.
fn field(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(": ")?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let is_field = name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name.chars().all(is_name);
    (is_field && name != "default" && !value.trim().is_empty() && !is_call(value.trim())).then_some(name)
}

#[cfg(test)]
mod tests {
    //! Forms of assignments.

    use super::assigned;

    #[test]
    fn the_variable_that_a_line_assigns() {
        for (line, name) in [
            ("\trows := make([]int, n)", "rows"),
            ("\tt.rows[i + 1] = append(t.rows[i], 3)", "t.rows[i + 1]"),
            ("var table []int = make([]int, 3)", "table"),
            ("\tif cells := new(grid); cells.n > 0 {", "cells"),
            ("\t} else if other := &grid{n: 3}; ok {", "other"),
            ("\tgo func() { block = make([]byte, 1<<20) }()", "block"),
            ("\t\tRows: make([]int, n),", "Rows"),
            ("\ttext += more", "text"),
            ("\t*target = make([]int, n)", "*target"),
            ("\tbytes := []byte(text)", "bytes"),
            ("\tgrid := &Grid{cells: total(3)}", "grid"),
            ("\tname = string(bytes) + more(3)", "name"),
            ("\tlater := func() int { return n }", "later"),
        ] {
            assert_eq!(assigned(line), Some(name), "{line}");
        }
    }

    #[test]
    fn what_assigns_nothing_or_several_has_no_name() {
        for line in [
            "\treturn make([]int, n)",
            "\ta, b := make([]int, n), make([]int, n)",
            "\tfor i := range make([]int, n) {",
            "\tif len(make([]int, n)) == 3 {",
            "\tfill(&grid{n: 3})",
            "again:",
            "\tdefault: fill(new(grid))",
            "\tsum := total(make([]int, n))",
            "\ttext = fmt.Sprint(first, second)",
            "\t\tRows: fmt.Sprint(first),",
        ] {
            assert_eq!(assigned(line), None, "{line}");
        }
    }
}
