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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_or_marks_are_quoted() {
        assert_eq!(["pilot", "a:b=1,c=\"2\"", "a\r"].map(quoted), ["pilot", "\"a:b=1,c=\"\"2\"\"\"", "\"a\r\""]);
    }
}
