//! The frame of every picture: title, finding, and the line that says where the figures come from.

use numapilot_text::elide::elide_all;
use numapilot_text::style::{clean, shorten};

use crate::export::Export;
use crate::svg_writer::{SvgWriter, Type, columns, two_lines};

use super::palette::{FAINT, INK};

/// Width of every picture but the traffic's: two columns of a paper.
pub const WIDTH: f64 = 860.0;
/// Width of the left and right margin, in pixels.
pub const MARGIN: f64 = 40.0;
/// Height of the head above the drawing, in pixels.
pub const TOP: f64 = 96.0;
/// Height of the foot below the drawing, in pixels.
const FOOT: f64 = 44.0;

/// Text that fits, with nothing in it that a reader could take for something else.
pub fn fit(text: &str, width: f64, size: f64) -> String {
    shorten(&clean(text), columns(width, size))
}

/// Texts that fit, of which different ones stay different.
pub fn fit_all(texts: &[&str], width: f64, size: f64) -> Vec<String> {
    let clean: Vec<String> = texts.iter().map(|text| clean(text)).collect();
    elide_all(&clean.iter().map(String::as_str).collect::<Vec<_>>(), columns(width, size))
}

/// A picture with a drawing of this height between its title and its foot.
pub fn begin(export: &Export<'_>, title: &str, finding: &str, height: f64) -> SvgWriter {
    let mut writer = SvgWriter::new(WIDTH, TOP + height + FOOT, &clean(&shorten(title, 300)));
    let room = WIDTH - 2.0 * MARGIN;
    let title = two_lines(&clean(title), columns(room, 20.0));
    // A second line takes the room above the first; that of the finding, the room above the drawing.
    let y = if title.len() > 1 { 24.0 } else { 40.0 };
    writer.lines((MARGIN, y), 22.0, Type::new(20.0, INK).bold(), &title);
    writer.lines((MARGIN, 65.0), 17.0, Type::new(14.0, INK), &two_lines(&clean(finding), columns(room, 14.0)));
    let part = export.part().map_or_else(String::new, |part| format!("{part} · "));
    let line = format!("{part}{} · {}", export.heading.command_line(), export.heading.provenance());
    writer.text((MARGIN, TOP + height + FOOT - 14.0), Type::new(10.5, FAINT), &fit(&line, room, 9.8));
    writer
}

/// That no access, or page fault, was seen.
pub fn no_access(export: &Export<'_>) -> &'static str {
    export.counted().or_faults("no sampled memory access", "no page fault")
}

/// Why nothing can be drawn of where accesses go: the home nodes of most are unknown, or there are none.
pub fn no_homes(export: &Export<'_>) -> String {
    match export.analysis.totals().samples {
        0 => no_access(export).to_owned(),
        _ => format!("the home node of most {} is unknown", export.counted().many()),
    }
}

/// What is drawn where there is nothing to draw, and why.
pub fn nothing(export: &Export<'_>, title: &str, why: &str) -> String {
    let mut writer = begin(export, title, why, 60.0);
    writer.text((WIDTH / 2.0, TOP + 34.0), Type::new(14.0, FAINT).anchored("middle"), "nothing to draw");
    writer.finish()
}

/// A short line across a bar's end: the 95 % interval.
pub fn whisker(writer: &mut SvgWriter, y: f64, low: f64, high: f64) {
    let style = format!(r#"stroke="{INK}" stroke-width="1.1""#);
    if high - low < 0.5 {
        return;
    }
    writer.line((low, y), (high, y), &style);
    for x in [low, high] {
        writer.line((x, y - 3.5), (x, y + 3.5), &style);
    }
}

/// Swatches with their words, from left to right; where the next one would begin.
pub fn key(writer: &mut SvgWriter, x: f64, y: f64, entries: &[(&str, String)]) -> f64 {
    let mut x = x;
    for (colour, words) in entries {
        writer.rect((x, y - 9.0), (11.0, 11.0), 1.5, &format!(r#"fill="{colour}""#));
        writer.text((x + 16.0, y + 0.5), Type::new(11.5, INK), words);
        x += 16.0 + crate::svg_writer::text_width(words, 11.5) + 16.0;
    }
    x
}
