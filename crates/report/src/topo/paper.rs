//! The text canvas on which a machine is drawn: its width in columns, its colours, its box-drawing lines.

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

/// The text canvas: width in columns, and whether it has colours.
#[derive(Clone, Copy)]
pub struct Paper {
    pub width: usize,
    pub colour: bool,
}

impl Paper {
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    pub fn in_colour(self, colour: AnsiColor, text: &str) -> String {
        self.paint(Style::new().fg_color(Some(colour.into())), text)
    }
}

/// Text in lines of at most `width`; the first begins with `head`, the others are indented to it.
pub fn wrap(head: &str, text: &str, width: usize) -> String {
    let indent = head.trim_start_matches('\n').width().min(width / 3);
    let mut out = head.to_owned();
    let mut column = head.trim_start_matches('\n').width();
    let mut first = true;
    for word in text.split(' ') {
        if !first && column + 1 + word.width() > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.width();
        first = false;
    }
    out.push('\n');
    out
}
