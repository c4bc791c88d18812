//! A screen as an SVG picture, for documents: what a terminal would show, cell by cell.

use std::fmt::Write;

use numapilot_text::markup::escaped_line;
use numapilot_text::style::clean;
use ratatui::buffer::Buffer;
use ratatui::buffer::Cell;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::style::Modifier;

use super::app::App;
use super::draw::draw;
use super::style::Palette;

/// Width and height of a cell, and the margin, in the picture's units.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 17.0;
const MARGIN: f64 = 10.0;
const INK: &str = "#d8dee9";
const PAPER: &str = "#1b2028";

/// Draws the whole screen at a size of `columns` by `rows` cells, as SVG.
#[must_use]
pub fn picture(app: &mut App, palette: Palette, columns: u16, rows: u16) -> String {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    draw(app, palette, area, &mut buffer);
    svg(&buffer, &format!("numapilot top: {}", app.label))
}

/// Converts a drawn screen to SVG.
#[must_use]
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) =
        (f64::from(area.width) * WIDTH + 2.0 * MARGIN, f64::from(area.height) * HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n",
        escaped_line(&clean(title))
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let first = &buffer[(x, y)];
            let mut text = String::new();
            let from = x;
            // Adjacent cells of one style are one text, stretched to its width independently of the font.
            while x < area.width && alike(first, &buffer[(x, y)]) {
                text.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            run(&mut out, first, &text, (from, x, y));
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn alike(a: &Cell, b: &Cell) -> bool {
    (a.fg, a.bg, a.modifier) == (b.fg, b.bg, b.modifier)
}

fn run(out: &mut String, cell: &Cell, text: &str, (from, to, y): (u16, u16, u16)) {
    let (mut ink, mut paper) = (colour(cell.fg, INK), colour(cell.bg, PAPER));
    if cell.modifier.contains(Modifier::REVERSED) {
        (ink, paper) = (paper, ink);
    }
    let left = MARGIN + f64::from(from) * WIDTH;
    let width = f64::from(to - from) * WIDTH;
    let top = MARGIN + f64::from(y) * HEIGHT;
    if paper != PAPER {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{paper}\"/>"
        );
    }
    let shown = text.trim_end();
    if shown.trim_start().is_empty() {
        return;
    }
    let columns = shown.chars().count();
    let bold = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let faint = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{ink}\"{bold}{faint}>{}</text>",
        top + HEIGHT * 0.76,
        columns as f64 * WIDTH,
        escaped_line(shown).replace(' ', "\u{a0}")
    );
}

fn colour(colour: Color, otherwise: &'static str) -> &'static str {
    match colour {
        Color::Red => "#ef6b73",
        Color::Green => "#8fca7c",
        Color::Yellow => "#ecc664",
        Color::Cyan => "#7cc5d9",
        Color::DarkGray => "#7d8799",
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XML forbids control characters, also as references.
    #[test]
    fn a_hostile_title_leaves_the_picture_readable() {
        let picture = svg(&Buffer::empty(Rect::new(0, 0, 2, 1)), "top: \u{1b}[31m<b>");
        assert!(picture.contains("<title>top: \\u{1b}[31m&lt;b&gt;</title>"), "{picture}");
    }
}
