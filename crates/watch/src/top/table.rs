//! Processes as a table: the columns that fit, the selected row reversed, the sort key marked.

use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::text::Span;
use ratatui::widgets::Widget;
use unicode_width::UnicodeWidthStr;

use super::app::App;
use super::app::SortKey;
use super::style::Palette;
use crate::figures::ProcessFigures;

/// Columns: title, width in cells, sort key.
const COLUMNS: [(&str, usize, SortKey); 8] = [
    ("PID", 7, SortKey::Pid),
    ("CPUs", 6, SortKey::Cpu),
    ("node", 5, SortKey::Node),
    ("threads", 8, SortKey::Threads),
    ("memory", 10, SortKey::Memory),
    ("local", 8, SortKey::Local),
    ("accesses/s", 11, SortKey::Accesses),
    ("faults/s", 9, SortKey::Faults),
];

/// Least room for names.
const NAME: usize = 10;
/// Columns that are left out where names would have less, the first first.
const LEFT_OUT: [SortKey; 6] =
    [SortKey::Faults, SortKey::Accesses, SortKey::Threads, SortKey::Memory, SortKey::Node, SortKey::Local];

/// The columns that leave room for names, by their places in `COLUMNS`.
fn columns(width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    for key in LEFT_OUT {
        if width_of(&shown) + 1 + NAME <= width {
            break;
        }
        shown.retain(|&place| COLUMNS[place].2 != key);
    }
    shown
}

fn width_of(shown: &[usize]) -> usize {
    shown.iter().map(|&place| COLUMNS[place].1).sum()
}

/// Draws the table, and sets the positions of its rows and headings.
pub fn draw(app: &mut App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    heading(app, palette, Rect { height: 1, ..area }, buffer);
    let total = app.frame.total.clone().filter(|_| area.height > 2);
    let height = usize::from(area.height - 1 - u16::from(total.is_some()));
    let offset = app.selected.saturating_sub(height.saturating_sub(1));
    let shown: Vec<ProcessFigures> = app.processes().into_iter().skip(offset).take(height).cloned().collect();
    app.spots.rows = Some((area.y + 1, height as u16, offset));
    for (row, process) in shown.iter().enumerate() {
        let at = Rect { y: area.y + 1 + row as u16, height: 1, ..area };
        let chosen = row + offset == app.selected;
        let line = line(process, usize::from(area.width), palette);
        line.style(if chosen { palette.chosen() } else { Style::new() }).render(at, buffer);
        if chosen {
            buffer.set_style(at, palette.chosen());
        }
    }
    if let Some(total) = total {
        // Below the last row, or at the bottom.
        let at = Rect { y: area.y + 1 + shown.len() as u16, height: 1, ..area };
        let line = total_line(&total, usize::from(area.width), palette);
        line.style(palette.title()).render(at, buffer);
    }
    if shown.is_empty() {
        let words = match (app.filter.is_empty(), app.frame.interval.processes.is_empty()) {
            (false, _) => "no process matches the filter",
            (_, true) => "no process was observed in this interval",
            _ => "",
        };
        Line::styled(words, palette.faint()).render(Rect { y: area.y + 1, height: 1, ..area }, buffer);
    }
}

fn heading(app: &mut App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut spots = Vec::new();
    let mut x = area.x;
    let mark = if app.reversed { "▲" } else { "▼" };
    let mut spans = Vec::new();
    for (title, width, key) in columns(usize::from(area.width)).into_iter().map(|place| COLUMNS[place]) {
        let is_key = key == app.sort;
        let words = if is_key { format!("{mark}{title}") } else { title.to_owned() };
        let style = if is_key { palette.title() } else { Style::new().add_modifier(Modifier::BOLD) };
        spans.push(Span::styled(format!("{words:>width$}"), style));
        spots.push((x, x + width as u16, key));
        x += width as u16;
    }
    let is_key = app.sort == SortKey::Name;
    let words = if is_key { format!(" {mark}name") } else { " name".to_owned() };
    spans.push(Span::styled(words, if is_key { palette.title() } else { Style::new().add_modifier(Modifier::BOLD) }));
    spots.push((x, area.right().max(x), SortKey::Name));
    Line::from(spans).render(area, buffer);
    app.spots.heading = Some((area.y, spots));
}

fn line(process: &ProcessFigures, width: usize, palette: Palette) -> Line<'static> {
    row(process, process.pid.to_string(), width, palette)
}

/// The sum of the rows. Memory is what the processes have together if they share none.
fn total_line(total: &ProcessFigures, width: usize, palette: Palette) -> Line<'static> {
    row(total, "total".to_owned(), width, palette)
}

fn row(process: &ProcessFigures, head: String, width: usize, palette: Palette) -> Line<'static> {
    let dash = || "-".to_owned();
    let local = process.local_share.value();
    let cells = [
        head,
        format!("{:.2}", process.cpus),
        process.node.map_or_else(dash, |node| node.to_string()),
        process.threads.to_string(),
        units::bytes(process.resident_bytes),
        local.map_or_else(dash, units::part_percent),
        process.accesses_per_s.map_or_else(dash, units::count),
        if process.faults_per_s > 0.0 { units::count(process.faults_per_s.round()) } else { ".".to_owned() },
    ];
    let mut spans: Vec<Span<'static>> = Vec::new();
    let shown = columns(width);
    for &place in &shown {
        let ((_, wide, key), cell) = (COLUMNS[place], &cells[place]);
        let style = match (key, local) {
            (SortKey::Local, Some(share)) => palette.local(share),
            (SortKey::Cpu, _) if process.cpus >= 0.5 => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        let padding = wide.saturating_sub(cell.width());
        spans.push(Span::styled(format!("{}{cell}", " ".repeat(padding)), style));
    }
    let used = width_of(&shown) + 1;
    spans.push(Span::raw(format!(" {}", shorten(&clean(&process.name), width.saturating_sub(used)))));
    Line::from(spans)
}
