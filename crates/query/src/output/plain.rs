//! Text that a terminal shows and does not obey: names of hosts, files and objects come from elsewhere.

/// Whether a terminal would obey this character, or draw what follows in another order: control characters and marks of direction.
pub(super) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with such characters as escapes; its own line ends and tabs stay.
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
