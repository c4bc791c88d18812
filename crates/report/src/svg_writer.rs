//! Writes SVG elements: escaped text, numbers with one decimal, so that equal machines make equal files.

use std::fmt::Write;

use numapilot_text::markup::escaped_line;
use numapilot_text::style::shorten;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::topo::layout::Point;

/// Fonts that every system has.
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/// Colour of text and axes.
pub const INK: &str = "#20262e";
/// Colour of secondary text.
pub const FAINT: &str = "#66707c";

/// Writes one SVG document.
pub struct SvgWriter {
    out: String,
}

/// How much wider bold type is.
pub const BOLD: f64 = 1.125;

/// How a piece of text is set.
#[derive(Clone, Copy)]
pub struct Type {
    pub size: f64,
    pub colour: &'static str,
    pub bold: bool,
    /// `start`, `middle` or `end`.
    pub anchor: &'static str,
}

impl Type {
    pub const fn new(size: f64, colour: &'static str) -> Self {
        Self { size, colour, bold: false, anchor: "start" }
    }

    pub const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    pub const fn anchored(mut self, anchor: &'static str) -> Self {
        self.anchor = anchor;
        self
    }
}

impl SvgWriter {
    /// Begins a document of this size on a light ground.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut out = String::new();
        let _ = writeln!(
            out,
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0}" height="{1:.0}" viewBox="0 0 {0:.0} {1:.0}""#,
                r#" font-family="{2}" role="img">"#
            ),
            width, height, FONT
        );
        let _ = writeln!(out, "<title>{}</title>", escaped_line(title));
        let _ = writeln!(out, r##"<rect width="100%" height="100%" fill="#fbfbf9"/>"##);
        Self { out }
    }

    pub fn rect(&mut self, at: Point, size: Point, radius: f64, style: &str) {
        let ((x, y), (w, h)) = (at, size);
        let _ = writeln!(
            self.out,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" rx="{radius:.1}" {style}/>"#
        );
    }

    pub fn line(&mut self, from: Point, to: Point, style: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.out, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#);
    }

    /// A box that tells more under the pointer.
    pub fn titled_rect(&mut self, at: Point, size: Point, style: &str, story: &str) {
        let ((x, y), (w, h)) = (at, size);
        let _ = writeln!(
            self.out,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" {style}><title>{}</title></rect>"#,
            escaped_line(story)
        );
    }

    pub fn polygon(&mut self, corners: &[Point], style: &str) {
        let _ = writeln!(self.out, r#"<polygon points="{}" {style}/>"#, points(corners));
    }

    pub fn polyline(&mut self, corners: &[Point], style: &str) {
        let _ = writeln!(self.out, r#"<polyline points="{}" fill="none" {style}/>"#, points(corners));
    }

    pub fn triangle(&mut self, corners: [Point; 3], colour: &str) {
        self.polygon(&corners, &format!(r#"fill="{colour}""#));
    }

    /// Text that is all or a part of `whole`: where it is a part, the whole is told under the pointer.
    pub fn brief(&mut self, at: Point, kind: Type, words: &str, whole: &str) {
        let story = if words == whole { String::new() } else { format!("<title>{}</title>", escaped_line(whole)) };
        self.element(at, kind, &(story + &escaped_line(words)));
    }

    pub fn text(&mut self, at: Point, kind: Type, words: &str) {
        self.element(at, kind, &escaped_line(words));
    }

    /// Lines of text, each so far below the one before.
    pub fn lines(&mut self, at: Point, step: f64, kind: Type, lines: &[String]) {
        let mut y = at.1;
        for line in lines {
            self.text((at.0, y), kind, line);
            y += step;
        }
    }

    fn element(&mut self, at: Point, kind: Type, content: &str) {
        let weight = if kind.bold { r#" font-weight="600""# } else { "" };
        let anchor = if kind.anchor == "start" { String::new() } else { format!(r#" text-anchor="{}""#, kind.anchor) };
        let (x, y) = at;
        let (size, colour) = (kind.size, kind.colour);
        let _ = writeln!(
            self.out,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}"{weight}{anchor}>{content}</text>"#
        );
    }

    /// Ends the document and returns it.
    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

fn points(corners: &[Point]) -> String {
    let points: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// About how wide a text comes out, by its columns in a terminal; fonts differ, so this errs on the wide side.
pub fn text_width(text: &str, size: f64) -> f64 {
    text.width() as f64 * size * 0.58
}

/// How wide a text comes out at most, by its characters in the widest of the fonts (DejaVu Sans).
pub fn greatest_width(text: &str, size: f64) -> f64 {
    let ems = |c: char| match c {
        _ if c.width().unwrap_or(0) > 1 => 1.0,
        'M' | 'W' | 'm' | 'w' | '@' | '%' | '+' | '…' => 1.0,
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | '-' | '·' | '(' | ')' | '/' => 0.42,
        'A'..='Z' => 0.79,
        c if c.is_ascii() => 0.64,
        _ => 0.8,
    };
    text.chars().map(ems).sum::<f64>() * size
}

/// About as many columns of text as fit.
pub fn columns(width: f64, size: f64) -> usize {
    (width / (size * 0.56)).max(0.0) as usize
}

/// A text on one line where it has room on as many columns, else on two: broken behind a part that ends at a dot where the rest has room then, else between
/// words. The middle of what is too long even so is left out.
pub fn two_lines(text: &str, columns: usize) -> Vec<String> {
    let has_room = |text: &str| text.width() <= columns;
    let rest = |at: usize| text[at..].trim_start_matches([' ', '·']);
    if has_room(text) {
        return vec![text.to_owned()];
    }
    let last = |mark: &str| text.rmatch_indices(mark).map(|(at, _)| at).find(|&at| at > 0 && has_room(&text[..at]));
    match last(" · ").filter(|&at| has_room(rest(at))).or_else(|| last(" ")) {
        Some(at) => vec![text[..at].trim_end_matches([' ', '·']).to_owned(), shorten(rest(at), columns)],
        None => vec![shorten(text, columns)],
    }
}

/// As much of a text as has room, its middle left out.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    // No character is narrower than a quarter of its height: more are not worth a look.
    let mut columns = (room / size * 4.0).max(0.0) as usize;
    loop {
        let brief = shorten(text, columns);
        if columns == 0 || greatest_width(&brief, size) <= room {
            return brief;
        }
        columns -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_for_a_line_takes_two() {
        assert_eq!(two_lines("", 9), [""]);
        assert_eq!(two_lines("one · two", 9), ["one · two"]);
        assert_eq!(two_lines("one · two · three", 11), ["one · two", "three"]);
        // Whole, though within a part, rather than at the dot and cut.
        assert_eq!(two_lines("one · two three four", 12), ["one · two", "three four"]);
        assert_eq!(two_lines("one two three", 9), ["one two", "three"]);
        assert_eq!(two_lines("one two three four", 8), ["one two", "thre…our"]);
        assert_eq!(two_lines("日本語 日本語", 8), ["日本語", "日本語"]);
        assert_eq!(two_lines("one · three", 6), ["one", "three"]);
        // No word has room.
        assert_eq!(two_lines("a_long_name · b", 6), ["a_l… b"]);
    }
}
