//! Colours (only on request), wrapping, and escaping of text that could control the terminal.

use anstyle::{AnsiColor, Style};

use crate::terminal::is_unsafe;

/// The width and colours of rendered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Largest width of a line, in terminal columns.
    pub width: usize,
    /// Whether to write colour sequences.
    pub colour: bool,
}

impl Default for Look {
    fn default() -> Look {
        Look { width: 100, colour: false }
    }
}

impl Look {
    fn paint(self, style: Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Paints a heading.
    #[must_use]
    pub fn heading(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Paints the most important words.
    #[must_use]
    pub fn strong(self, text: &str) -> String {
        self.paint(Style::new().bold().fg_color(Some(AnsiColor::Yellow.into())), text)
    }

    /// Paints secondary text.
    #[must_use]
    pub fn faint(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    /// Paints a warning: something that limits the figures.
    #[must_use]
    pub fn warning(self, text: &str) -> String {
        self.paint(Style::new().fg_color(Some(AnsiColor::Red.into())), text)
    }
}

/// The text with control characters, bidirectional overrides and line breaks of every sort shown as escapes: names come from programs and may
/// be hostile to terminals.
#[must_use]
pub fn clean(text: &str) -> String {
    if !text.contains(is_unsafe) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_unsafe(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// Columns that the text takes on a terminal: characters of Chinese, Japanese or Korean take two, marks on letters none.
#[must_use]
pub fn columns(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// At most `width` columns, the middle left out where it is longer: the ends of paths and template names distinguish them.
#[must_use]
pub fn shorten(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let take = |chars: &mut dyn Iterator<Item = char>, columns: usize| {
        let mut used = 0;
        let mut taken = Vec::new();
        for c in chars {
            used += c.width().unwrap_or(0);
            if used > columns {
                break;
            }
            taken.push(c);
        }
        taken
    };
    let head = take(&mut text.chars(), (width - 1).div_ceil(2));
    let mut tail = take(&mut text.chars().rev(), (width - 1) / 2);
    tail.reverse();
    head.into_iter().chain(['…']).chain(tail).collect()
}

/// The line under a table of the first `shown` of `all` rows that says how to see the others; empty where there are none.
#[must_use]
pub fn more_rows(all: usize, shown: usize, look: Look) -> String {
    let more = all.saturating_sub(shown);
    if more == 0 { String::new() } else { look.faint(&format!("    {more} more; `-n {all}` shows them\n")) }
}

/// What a table's columns are, under it.
#[must_use]
pub fn legend(text: &str, look: Look) -> String {
    wrap(text, look.width.saturating_sub(2)).iter().map(|line| look.faint(&format!("  {line}\n"))).collect()
}

/// Breaks text between words into lines of at most `width` columns; a longer word is shortened.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    use unicode_width::UnicodeWidthStr;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let word = shorten(word, width);
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn hostile_names_are_only_text() {
        assert_eq!(clean("\u{1b}[2Jx\n"), "\\u{1b}[2Jx\\u{a}");
        assert_eq!(clean("std::vector<int>"), "std::vector<int>");
        assert_eq!(clean("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn shortening_keeps_both_ends_and_the_width() {
        assert_eq!(shorten("streamcluster.cpp:412", 30), "streamcluster.cpp:412");
        let short = shorten("a_very_long_function_name_that_goes_on", 15);
        assert_eq!(short.width(), 15);
        assert!(short.starts_with("a_very") && short.ends_with("goes_on"), "{short}");
        assert!(shorten("日本語日本語日本語", 7).width() <= 7);
        assert_eq!(shorten("abc", 0), "");
        assert_eq!(["", "abc", "日本", "e\u{301}"].map(columns), [0, 3, 4, 1]);
    }

    #[test]
    fn wrapping_breaks_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), Vec::<String>::new());
        assert!(wrap("a_word_that_is_too_long", 7)[0].contains('…'));
    }

    #[test]
    fn no_colour_unless_asked() {
        assert_eq!(Look::default().strong("x"), "x");
        assert!(Look { colour: true, ..Look::default() }.strong("x").contains('\u{1b}'));
    }
}
