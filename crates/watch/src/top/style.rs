//! Colours, and the attributes that replace them on terminals without colours.

use ratatui::style::Color;
use ratatui::style::Modifier;
use ratatui::style::Style;

/// Which colours the terminal may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// The terminal's own sixteen colours.
    #[default]
    Colour,
    /// No colours (NO_COLOR, `--color never`): bold, dim and reversed text.
    Plain,
}

/// Load from which a controller or link counts as busy.
const BUSY: f64 = 0.5;
/// Load from which it counts as the bottleneck, because queueing delay grows steeply there.
const FULL: f64 = 0.8;

impl Palette {
    fn coloured(self, colour: Color, otherwise: Modifier) -> Style {
        match self {
            Palette::Colour => Style::new().fg(colour),
            Palette::Plain => Style::new().add_modifier(otherwise),
        }
    }

    /// Style of a utilisation between 0 and 1.
    #[must_use]
    pub fn load(self, load: f64) -> Style {
        match load {
            load if load >= FULL => self.coloured(Color::Red, Modifier::BOLD),
            load if load >= BUSY => self.coloured(Color::Yellow, Modifier::empty()),
            _ => self.coloured(Color::Green, Modifier::empty()),
        }
    }

    /// Style of a local access ratio between 0 and 1: low values are highlighted.
    #[must_use]
    pub fn local(self, share: f64) -> Style {
        self.load(1.0 - share)
    }

    /// Style of unknown values and remarks.
    #[must_use]
    pub fn faint(self) -> Style {
        self.coloured(Color::DarkGray, Modifier::DIM)
    }

    /// Style of titles.
    #[must_use]
    pub fn title(self) -> Style {
        self.coloured(Color::Cyan, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    /// Style of warnings.
    #[must_use]
    pub fn warning(self) -> Style {
        self.coloured(Color::Yellow, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    /// Style of the selected row.
    #[must_use]
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// A bar of `width` characters for a share between 0 and 1, by eighths.
#[must_use]
pub fn bar(share: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let full = eighths / 8;
    let mut out: String = "█".repeat(full);
    if full < width {
        out.push(PARTS[eighths % 8]);
        out.extend(std::iter::repeat_n(' ', width - full - 1));
    }
    out
}

/// The last `width` values as a row of blocks, scaled to `most`; unknown values are blanks.
#[must_use]
pub fn sparkline(values: &[Option<f64>], width: usize, most: f64) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &values[values.len().saturating_sub(width)..];
    let level = |value: &Option<f64>| match value {
        Some(value) if most > 0.0 => LEVELS[((value / most).clamp(0.0, 1.0) * 7.0).round() as usize],
        Some(_) => LEVELS[0],
        None => ' ',
    };
    shown.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_sparklines_have_their_width() {
        for (share, text) in [(0.0, "    "), (0.5, "██  "), (0.53125, "██▏ "), (1.0, "████"), (7.0, "████")]
        {
            assert_eq!(bar(share, 4), text);
        }
        assert_eq!(sparkline(&[Some(0.0), None, Some(1.0), Some(0.5)], 3, 1.0), " █▅");
    }
}
