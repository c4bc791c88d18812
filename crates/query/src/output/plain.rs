//! Text that a terminal shows and does not obey: names of hosts, files and objects come from elsewhere.

use numapilot_text::terminal::is_unsafe;

/// The text with characters that a terminal would obey as escapes; its own line ends and tabs stay.
#[must_use]
pub fn plain(text: &str) -> String {
    let shown = |character: char| match is_unsafe(character) && !matches!(character, '\n' | '\t') {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_and_control_characters_do_not() {
        assert_eq!(plain("select\tx\n       ^"), "select\tx\n       ^");
        assert_eq!(plain("host=\u{1b}]0;x\u{7}\r\u{202e}é"), "host=\\u{1b}]0;x\\u{7}\\r\\u{202e}é");
    }
}
