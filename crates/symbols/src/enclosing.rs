//! Where the function (or lambda) around a line of C or C++ begins and ends: its blocks are counted, on lines without comments and contents of strings.
//!
//! Conditionals of the preprocessor may open a block twice. Then the end is found too late: at the latest at the next line that begins with a bracket.

/// Lines before and after that are searched.
const LINES_MAX: usize = 100;
/// Lines that the head of a block may have before its bracket.
const HEAD_LINES_MAX: usize = 8;
/// What a block, or a list in brackets, begins with that is a part of a function.
const INNER: [&str; 11] = ["if", "else", "for", "while", "do", "switch", "try", "catch", "case", "default", "return"];
/// Blocks around a line where its function was not found: more than can end within the lines that are searched.
const UNKNOWN_LEVELS: usize = 1 << 24;

/// A function's extent, as far as it is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enclosing {
    /// The first line of its head.
    pub first: usize,
    /// The line on which it ends.
    pub last: usize,
    /// Bytes of that line that belong to it.
    pub column: usize,
}

impl Enclosing {
    /// The function around byte `column` of line `index`.
    pub(crate) fn find(lines: &[String], index: usize, column: usize) -> Enclosing {
        let (first, levels) = begin_of(lines, index, column);
        let (last, column) = end_of(lines, (index, column), levels);
        Enclosing { first, last, column }
    }

    /// Its lines from line `from` on.
    pub(crate) fn lines(self, lines: &[String], from: usize) -> impl Iterator<Item = &str> {
        let own = lines.iter().enumerate().take(self.last.saturating_add(1)).skip(from);
        own.map(move |(at, line)| if at == self.last { line.get(..self.column).unwrap_or(line) } else { line.as_str() })
    }
}

fn is_directive(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The first line of the function's head, and how many blocks there are from there to the place.
fn begin_of(lines: &[String], index: usize, column: usize) -> (usize, usize) {
    let earliest = index.saturating_sub(LINES_MAX);
    let (mut closed, mut levels) = (0_usize, 0_usize);
    for at in (earliest..=index).rev() {
        let Some(line) = lines.get(at).filter(|line| !is_directive(line)) else { continue };
        let part = if at == index { line.get(..column).unwrap_or("") } else { line.as_str() };
        for (place, byte) in part.bytes().enumerate().rev() {
            match byte {
                b'}' => closed += 1,
                b'{' if closed > 0 => closed -= 1,
                b'{' => {
                    levels += 1;
                    if let Some(first) = function_head(lines, at, place) {
                        return (first, levels);
                    }
                }
                _ => {}
            }
        }
    }
    let before = (earliest..index).rev().find(|&at| lines.get(at).is_some_and(|line| line == "}"));
    (before.map_or(earliest, |at| at + 1), UNKNOWN_LEVELS)
}

/// Where so many blocks have ended.
fn end_of(lines: &[String], (index, column): (usize, usize), levels: usize) -> (usize, usize) {
    let end = lines.len().min(index.saturating_add(LINES_MAX));
    let mut open = levels;
    for (at, line) in lines.iter().enumerate().take(end).skip(index).filter(|(_, line)| !is_directive(line)) {
        if at > index && line.starts_with('}') {
            return (at, 0);
        }
        let begins = if at == index { column } else { 0 };
        for (place, byte) in line.bytes().enumerate().skip(begins) {
            match byte {
                b'{' => open += 1,
                b'}' if open <= 1 => return (at, place),
                b'}' => open -= 1,
                _ => {}
            }
        }
    }
    (end.saturating_sub(1), usize::MAX)
}

/// The first line of the head of a block whose bracket is at `place` of line `at`, if that is a function's.
fn function_head(lines: &[String], at: usize, place: usize) -> Option<usize> {
    let line = lines.get(at)?.get(..place)?;
    let mut first = at;
    let mut head = line.rsplit(['{', '}']).next().unwrap_or(line).trim_end().to_owned();
    if head.trim().is_empty() {
        let earliest = at.saturating_sub(HEAD_LINES_MAX);
        first = (earliest..at).rev().find(|&line| !lines[line].trim().is_empty())?;
        head = lines[first].trim_end().to_owned();
    }
    // Parameters, or a condition, on several lines.
    while head.matches(')').count() > head.matches('(').count() && first > 0 && at - first < HEAD_LINES_MAX {
        first -= 1;
        head = format!("{} {head}", lines[first].trim_end());
    }
    is_function(&head).then_some(first)
}

/// Whether what stands before a block is the head of a function. An indented call of one word (`list_for_each(item, list) {`) is a loop that a macro makes.
fn is_function(head: &str) -> bool {
    if head.contains("](") {
        return true;
    }
    let Some((before, _)) = head.split_once('(') else { return false };
    let mut words = before.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let Some(word) = words.next() else { return false };
    let has_type = words.next().is_some() || before.contains(['*', '&', '~']) || before.contains("::");
    let is_at_margin = !head.starts_with(char::is_whitespace);
    !INNER.contains(&word) && !before.contains('=') && (has_type || is_at_margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function around the only `HERE`: its first and last line.
    fn around(text: &str) -> (String, String) {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let index = lines.iter().position(|line| line.contains("HERE")).unwrap();
        let column = lines[index].find("HERE").unwrap();
        let found = Enclosing::find(&lines, index, column);
        let text: Vec<&str> = found.lines(&lines, found.first).collect();
        (text.first().unwrap().trim().to_owned(), text.last().unwrap().trim().to_owned())
    }

    #[test]
    fn functions_begin_with_their_heads_and_end_with_their_blocks() {
        let pair = |first: &str, last: &str| (first.to_owned(), last.to_owned());
        let c = "int a(void) {\n}\nvoid *f(int n)\n{\n  if (n) {\n    HERE\n  } else {\n  }\n  last;\n}\nint b;\n";
        assert_eq!(around(c), pair("void *f(int n)", ""));
        let gnu = "static void *\nf (int n,\n   int m)\n{\n  for (;;)\n    {\n      HERE\n    }\n  last;\n}\n";
        assert_eq!(around(gnu).0, "f (int n,");
        let method = "class A {\n  void f(int n) {\n    HERE\n    last;\n  }\n  int g() {\n    return 1;\n  }\n};\n";
        assert_eq!(around(method), pair("void f(int n) {", ""));
        let line = "namespace x {\n  char *f(int n) { if (n) { HERE } last; } char *g() { return 0; }\n}\n";
        assert_eq!(around(line).1, "char *f(int n) { if (n) { HERE } last;");
        let lambda = "void f() {\n  auto g = [&](int n) {\n    HERE\n  };\n  last;\n}\n";
        assert_eq!(around(lambda), pair("auto g = [&](int n) {", ""));
        let loops = "void *f(int n) {\n  list_for_each(a, b) {\n    while (a &&\n           b) {\n      HERE\n    }\n  }\n  last;\n}\n";
        assert_eq!(around(loops), pair("void *f(int n) {", ""));
        let list = "A f(int n) {\n  return make_a({\n    HERE\n  });\n}\n";
        assert_eq!(around(list), pair("A f(int n) {", ""));
    }

    #[test]
    fn what_is_no_function_ends_at_the_margin() {
        assert_eq!(around("int a;\n}\nb;\nHERE\nc;\n}\nd;\n"), ("b;".to_owned(), String::new()));
        let split =
            "void *f(int n) {\n#if A\n  if (n) {\n#else\n  if (!n) {\n#endif\n    HERE\n  }\n  last;\n}\nint b;\n";
        assert_eq!(around(split), ("void *f(int n) {".to_owned(), String::new()));
        for text in ["HERE", "{HERE", "}}}HERE{{{", "é{HEREé}", "((({\n)))) {\nHERE", "#{\n HERE }"] {
            let _ = around(text);
        }
    }
}
