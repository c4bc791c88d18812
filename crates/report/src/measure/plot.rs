//! A frame for curves: two axes, linear or logarithmic, with ticks, and lines in the colours of nodes.

use crate::pictures::axis::ticks;
use crate::pictures::palette::{FAINT, GRID, INK, node};
use crate::svg_writer::{SvgWriter, Type};

/// Width of every plot.
pub const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 100.0;
const HEIGHT: f64 = 330.0;
const FOOT: f64 = 88.0;
const LINES_PER_KEY_ROW: usize = 3;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Linear, from 0 to this value.
    Linear(f64),
    /// Logarithmic, from the first value to the second, which is greater.
    Log2(f64, f64),
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Scale::Linear(most) => (value / most).clamp(0.0, 1.0),
            Scale::Log2(least, most) => ((value / least).ln() / (most / least).ln()).clamp(0.0, 1.0),
        }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear(most) => ticks(most, 6),
            Scale::Log2(least, most) => {
                let octaves = (most / least).log2();
                let step = (octaves / 9.0).ceil().max(1.0) as i32;
                let first = least.log2().ceil() as i32;
                (0..)
                    .map(|index| 2_f64.powi(first + index * step))
                    .take_while(|value| *value <= most * 1.0001)
                    .collect()
            }
        }
    }
}

/// An axis with its title and labels.
pub struct Axis {
    /// The scale of the axis.
    pub scale: Scale,
    /// What it shows, with the unit.
    pub title: String,
    /// Formats the values at the ticks.
    pub words: fn(f64) -> String,
}

/// A curve of a plot, with its points and its name.
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points of the curve in order, in data coordinates.
    pub points: Vec<(f64, f64)>,
    /// What the pointer tells of each point.
    pub stories: Vec<String>,
}

/// Draws lines over two axes, with marks at heights of their own (`(value, words)`).
pub fn draw(
    title: &str,
    finding: &str,
    foot: &str,
    (across, up): (&Axis, &Axis),
    lines: &[Line],
    marks: &[(f64, String)],
) -> String {
    let key_rows = lines.len().div_ceil(LINES_PER_KEY_ROW);
    let height = TOP + HEIGHT + FOOT + 18.0 * key_rows as f64;
    let mut writer = SvgWriter::new(WIDTH, height, title);
    writer.text((LEFT, 36.0), Type::new(20.0, INK).bold(), title);
    writer.text((LEFT, 60.0), Type::new(14.0, INK), &numapilot_text::style::shorten(finding, 110));
    let (width, base) = (WIDTH - LEFT - RIGHT, TOP + HEIGHT);
    let x = |value: f64| LEFT + across.scale.place(value) * width;
    let y = |value: f64| base - up.scale.place(value) * HEIGHT;
    let grid = format!(r#"stroke="{GRID}" stroke-width="1""#);
    for value in up.scale.ticks() {
        writer.line((LEFT, y(value)), (LEFT + width, y(value)), &grid);
        writer.text((LEFT - 8.0, y(value) + 4.0), Type::new(11.0, FAINT).anchored("end"), &(up.words)(value));
    }
    for value in across.scale.ticks() {
        writer.line((x(value), base), (x(value), base + 5.0), &grid);
        writer.text((x(value), base + 18.0), Type::new(11.0, FAINT).anchored("middle"), &(across.words)(value));
    }
    writer.text((LEFT - 8.0, TOP - 8.0), Type::new(11.5, FAINT), &up.title);
    writer.text((LEFT + width, base + 36.0), Type::new(11.5, FAINT).anchored("end"), &across.title);
    for (value, words) in marks {
        let style = format!(r#"stroke="{FAINT}" stroke-width="1" stroke-dasharray="4 4""#);
        writer.line((LEFT, y(*value)), (LEFT + width, y(*value)), &style);
        writer.text((LEFT + 6.0, y(*value) - 4.0), Type::new(11.0, INK), words);
    }
    for (index, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> = line.points.iter().map(|point| (x(point.0), y(point.1))).collect();
        writer.polyline(&points, &format!(r#"stroke="{}" stroke-width="2"{}"#, node(index % 8), dash(index)));
        for (at, story) in points.iter().zip(&line.stories) {
            writer.titled_rect(
                (at.0 - 3.0, at.1 - 3.0),
                (6.0, 6.0),
                &format!(r#"rx="3" fill="{}""#, node(index % 8)),
                story,
            );
        }
        let key = (
            LEFT + (index % LINES_PER_KEY_ROW) as f64 * 250.0,
            base + 58.0 + 18.0 * (index / LINES_PER_KEY_ROW) as f64,
        );
        let sample = format!(r#"stroke="{}" stroke-width="2.5"{}"#, node(index % 8), dash(index));
        writer.line((key.0, key.1 - 4.0), (key.0 + 22.0, key.1 - 4.0), &sample);
        writer.text((key.0 + 28.0, key.1), Type::new(11.5, INK), &numapilot_text::style::shorten(&line.name, 36));
    }
    writer.text((LEFT, height - 14.0), Type::new(10.5, FAINT), &numapilot_text::style::shorten(foot, 138));
    writer.finish()
}

/// Beyond the eighth, lines are told apart by dashes.
fn dash(index: usize) -> &'static str {
    ["", r#" stroke-dasharray="7 3""#, r#" stroke-dasharray="2 3""#, r#" stroke-dasharray="8 3 2 3""#][index / 8 % 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_handful_of_round_ticks() {
        assert_eq!(Scale::Log2(4096.0, 65536.0).ticks(), [4096.0, 8192.0, 16384.0, 32768.0, 65536.0]);
        let wide = Scale::Log2(4096.0, 4e9).ticks();
        assert!((5..=12).contains(&wide.len()), "{wide:?}");
        assert_eq!(Scale::Linear(100.0).place(50.0), 0.5);
        assert_eq!(Scale::Log2(1.0, 16.0).place(4.0), 0.5);
    }
}
