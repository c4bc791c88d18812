//! Shows the place of an error in a query: the engine's message, the line to which it refers, and a mark under that place.

use datafusion::common::{DataFusionError, Diagnostic, Span};
use unicode_width::UnicodeWidthStr;

/// The message with its place in the query; `None` if the engine gives no place.
#[must_use]
pub fn of(error: &DataFusionError, sql: &str) -> Option<String> {
    if let Some(diagnostic) = error.diagnostic() {
        return Some(from_diagnostic(diagnostic, sql));
    }
    let DataFusionError::SQL(parser, _) = error.find_root() else { return None };
    let text = parser.to_string();
    let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
    match split_place(text) {
        Some((message, line, column)) => Some(marked(message, sql, line, column, 1)),
        // The engine gives no place for text that is missing at the end.
        None if text.ends_with("EOF") => Some(marked(text, sql, 0, 0, 1)),
        None => Some(text.to_owned()),
    }
}

/// Splits `MESSAGE at Line: 2, Column: 8` into its parts.
fn split_place(text: &str) -> Option<(&str, usize, usize)> {
    let (message, place) = text.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    Some((message, digits(line)?, digits(column)?))
}

fn from_diagnostic(diagnostic: &Diagnostic, sql: &str) -> String {
    let message = &diagnostic.message;
    let message = split_place(message).map_or(message.as_str(), |(message, _, _)| message);
    let mut text = match diagnostic.span {
        Some(span) => marked(message, sql, span.start.line as usize, span.start.column as usize, width(span)),
        None => message.to_owned(),
    };
    let more =
        diagnostic.notes.iter().map(|note| &note.message).chain(diagnostic.helps.iter().map(|help| &help.message));
    for line in more {
        text.push('\n');
        text.push_str(line);
    }
    text
}

fn width(span: Span) -> usize {
    match span.start.line == span.end.line {
        true => (span.end.column.saturating_sub(span.start.column) as usize).max(1),
        false => 1,
    }
}

/// The message, the line and a mark under `characters` of it. Lines and columns count from 1; column 0 or line 0: not known.
fn marked(message: &str, sql: &str, line: usize, column: usize, characters: usize) -> String {
    // Without a place, the mark is at the end of the query.
    let at_end = line == 0 || column == 0;
    let lines: Vec<&str> = sql.lines().collect();
    let line = if at_end { lines.len() } else { line };
    let Some(text) = line.checked_sub(1).and_then(|index| lines.get(index)) else {
        return message.to_owned();
    };
    let before: String = match at_end {
        true => (*text).to_owned(),
        false => text.chars().take(column - 1).collect(),
    };
    let under: String = text.chars().skip(before.chars().count()).take(characters).collect();
    let (indent, marks) = (" ".repeat(before.replace('\t', " ").width()), "^".repeat(under.width().max(1)));
    let (text, column) = (text.replace('\t', " "), before.chars().count() + 1);
    format!("{message} (line {line}, column {column})\n  {text}\n  {indent}{marks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_split_from_its_message() {
        assert_eq!(split_place("Expected: x, found: y at Line: 12, Column: 7"), Some(("Expected: x, found: y", 12, 7)));
        assert_eq!(split_place("no place"), None);
        assert_eq!(split_place("bad at Line: x, Column: 7"), None);
    }

    #[test]
    fn marks_stand_under_the_place_also_beside_wide_characters() {
        assert_eq!(
            marked("m", "select\n  '漢字' frm x", 2, 8, 3),
            "m (line 2, column 8)\n    '漢字' frm x\n           ^^^"
        );
        assert_eq!(marked("m", "select\t1 +", 0, 0, 1), "m (line 1, column 11)\n  select 1 +\n            ^");
        assert_eq!(marked("m", "", 1, 1, 1), "m");
        assert_eq!(marked("m", "x", 9, 9, 1), "m", "no such line");
    }
}
