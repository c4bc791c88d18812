//! Characters that a terminal obeys instead of showing them: names of programs, files and objects come from elsewhere.

/// Whether a terminal would obey this character, or draw what follows in another order: control characters, marks of direction, and line breaks of every sort.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
