//! Comma-separated values (RFC 4180).

/// A field, in quotation marks where it needs them.
#[must_use]
pub fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A field with text that programs or users choose, such as a name: one that a spreadsheet would take for a formula has a `'` before it.
#[must_use]
pub fn text(field: &str) -> String {
    if field.starts_with(['=', '+', '-', '@', '\t', '\r']) { quoted(&format!("'{field}")) } else { quoted(field) }
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
    }
}
