//! Strings of TOML files.

use std::fmt::Write;

use crate::terminal::is_unsafe;

/// The text as a TOML string of one line, from which a reader gets the same text. What a terminal would obey is escaped: people read these files there.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other if is_unsafe(other) => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(quoted: &str) -> Option<String> {
        let table: ::toml::Table = ::toml::from_str(&format!("key = {quoted}\n")).ok()?;
        table.get("key")?.as_str().map(str::to_owned)
    }

    #[test]
    fn what_would_end_the_string_or_steer_a_terminal_is_escaped() {
        assert_eq!(
            ["", "a b", "a\"b\\c\n", "\u{1b}[2J\r", "\u{202e}x", "日本", "it's"].map(quoted),
            [r#""""#, r#""a b""#, r#""a\"b\\c\n""#, r#""\u001b[2J\u000d""#, r#""\u202ex""#, "\"日本\"", "\"it's\""]
        );
    }

    #[test]
    fn hostile_text_is_read_as_it_was_written() {
        for text in [
            "",
            "\"",
            "\\",
            "\"\"\"",
            "'''",
            "\n\n",
            "\r\n",
            "\0\u{7f}\u{85}\u{feff}\u{2028}",
            "a = \"b\"\n[c]",
            "# no comment",
        ] {
            assert_eq!(read(&quoted(text)).as_deref(), Some(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was_written(text in any::<String>()) {
            prop_assert!(!quoted(&text).contains(is_unsafe));
            prop_assert_eq!(read(&quoted(&text)), Some(text));
        }
    }
}
