//! Comma-separated values (RFC 4180).

/// A field, in quotation marks where it needs them.
#[must_use]
pub fn quoted(field: &str) -> String {
    let mut line = String::new();
    append(&mut line, field);
    line
}

/// A field with text that programs or users choose, such as a name: one that a spreadsheet would take for a formula has a `'` before it.
#[must_use]
pub fn text(field: &str) -> String {
    let mut line = String::new();
    append_text(&mut line, field);
    line
}

/// Adds [`quoted`] to a line.
pub fn append(line: &mut String, field: &str) {
    append_marked(line, "", field);
}

/// Adds [`text`] to a line.
pub fn append_text(line: &mut String, field: &str) {
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    append_marked(line, if is_formula { "'" } else { "" }, field);
}

fn append_marked(line: &mut String, mark: &str, field: &str) {
    if field.contains(['"', ',', '\n', '\r']) {
        line.extend(["\"", mark, &field.replace('"', "\"\""), "\""]);
    } else {
        line.extend([mark, field]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_or_marks_are_quoted() {
        assert_eq!(["pilot", "a:b=1,c=\"2\"", "a\r"].map(quoted), ["pilot", "\"a:b=1,c=\"\"2\"\"\"", "\"a\r\""]);
    }

    #[test]
    fn names_are_no_formulas() {
        let names = ["postgres: a, b", "=HYPERLINK(\"x\")", "+1", "-bash", "@sum", "\ta", "a=b"];
        let fields = ["\"postgres: a, b\"", "\"'=HYPERLINK(\"\"x\"\")\"", "'+1", "'-bash", "'@sum", "'\ta", "a=b"];
        assert_eq!(names.map(text), fields);
        let mut line = String::from("1,");
        append_text(&mut line, "=1,2");
        append(&mut line, "");
        assert_eq!(line, "1,\"'=1,2\"");
    }
}
