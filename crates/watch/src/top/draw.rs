//! The screen: heading, metrics with their histories, the view, keys. The layout fits 80 columns and 24 rows, and uses more if available.

use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::style::wrap;
use ratatui::buffer::Buffer;
use ratatui::layout::Constraint;
use ratatui::layout::Layout;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::text::Span;
use ratatui::widgets::Block;
use ratatui::widgets::Clear;
use ratatui::widgets::Paragraph;
use ratatui::widgets::Widget;

use super::app::App;
use super::app::View;
use super::machine;
use super::process;
use super::style::Palette;
use super::style::sparkline;
use super::table;
use crate::figures::Metric;
use crate::figures::MetricValue;

const HELP: &[(&str, &str)] = &[
    ("1 2 3, Tab", "overview, machine, processes"),
    ("↑ ↓ j k PgUp PgDn", "choose a row (also with the mouse wheel)"),
    ("Enter, click twice", "a process: its threads, where its memory is"),
    ("o", "in a process: next source for its memory"),
    ("Esc", "go back; clear the filter"),
    ("s S, click a heading", "next, previous sort key"),
    ("r", "reverse the order"),
    ("/", "filter by name or number; Enter keeps it"),
    ("p, space", "pause"),
    ("q, Ctrl-C", "end"),
    ("Ctrl-Z", "suspend"),
];

/// Width of a metric's title.
const TITLE: usize = 23;
/// Width below which the metrics are in one column: two have no room for the values.
const NARROW: u16 = 72;

/// Draws the screen, and sets the positions of clickable elements in `app`.
pub fn draw(app: &mut App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    app.spots = super::app::Spots::default();
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    heading(app, palette, top, buffer);
    footer(app, palette, bottom, buffer);
    match app.view {
        View::Overview => {
            let metric_rows = metric_rows(body.width);
            let machine_rows = machine::rows(app, body.width, body.height.saturating_sub(metric_rows + 5));
            let parts = [Constraint::Length(metric_rows), Constraint::Length(machine_rows), Constraint::Min(3)];
            let [metrics_at, machine_at, table_at] = Layout::vertical(parts).areas(body);
            metrics(app, palette, metrics_at, buffer);
            machine::draw(app, palette, machine_at, buffer);
            table::draw(app, palette, table_at, buffer);
        }
        View::Machine => {
            let metric_rows = metric_rows(body.width);
            let machine_rows = machine::rows(app, body.width, body.height.saturating_sub(metric_rows));
            let parts = [Constraint::Length(metric_rows), Constraint::Length(machine_rows), Constraint::Min(0)];
            let [metrics_at, machine_at, rest] = Layout::vertical(parts).areas(body);
            metrics(app, palette, metrics_at, buffer);
            machine::draw(app, palette, machine_at, buffer);
            sources(app, palette, rest, buffer);
        }
        View::Processes => table::draw(app, palette, body, buffer),
        View::Process(pid) => process::draw(app, pid, palette, body, buffer),
    }
    if app.help {
        help(app, palette, area, buffer);
    }
}

fn heading(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let time = format!("{:.1} s", app.frame.interval.to_ns as f64 / 1e9);
    let state = match (app.over, app.paused) {
        (true, _) => " · at its end",
        (_, true) => " · paused",
        _ => "",
    };
    let style = if app.frame.interval.simulated.is_some() { palette.warning() } else { palette.title() };
    let room = usize::from(area.width).saturating_sub(time.len() + state.len() + 17);
    let line = Line::from(vec![
        Span::styled("numapilot top ", palette.title()),
        Span::styled(shorten(&clean(&app.label), room), style),
        Span::raw(format!(" · {time}{state}")),
    ]);
    line.render(area, buffer);
}

fn footer(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let line = match app.editing {
        true => Line::from(format!("filter: {}▏ (Enter keeps it, Esc clears it)", clean(&app.filter))),
        false => {
            let filter =
                if app.filter.is_empty() { String::new() } else { format!("  filter: {}", clean(&app.filter)) };
            Line::styled(
                format!("q end  ? help  Tab view  Enter open  / filter  s sort  p pause{filter}"),
                palette.faint(),
            )
        }
    };
    line.render(area, buffer);
}

/// Rows that the metrics take.
fn metric_rows(width: u16) -> u16 {
    if width < NARROW { Metric::ALL.len() as u16 } else { 4 }
}

/// The metrics in two columns, or one, each with its history.
fn metrics(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(metric_rows(area.width));
    let count = Metric::ALL.len().div_ceil(rows);
    let columns = Layout::horizontal(vec![Constraint::Ratio(1, count as u32); count]).split(area);
    for (index, metric) in Metric::ALL.into_iter().enumerate() {
        let column = columns[index / rows];
        let row = Rect { y: column.y + (index % rows) as u16, height: 1, ..column };
        if row.y >= area.bottom() {
            continue;
        }
        let told = app.frame.interval.metrics.get(metric);
        let title = if metric == Metric::L3Mpki { "L3 misses/1,000 instr." } else { metric.title() };
        let mut spans = vec![Span::raw(format!("{title:<TITLE$}"))];
        match told {
            MetricValue::Value { value, is_estimate, .. } => {
                let style = match metric {
                    Metric::LocalShare => palette.local(*value),
                    Metric::LinkUsage | Metric::ControllerImbalance | Metric::LinkImbalance => palette.load(*value),
                    _ => palette.load(0.0),
                };
                let mark = if *is_estimate { "~" } else { "" };
                spans.push(Span::styled(format!("{:>11} ", format!("{mark}{}", metric.format(*value))), style));
                let width = usize::from(row.width).saturating_sub(TITLE + 13);
                let values = app.history_of(metric);
                let most = match metric {
                    Metric::LocalShare | Metric::LinkUsage => 1.0,
                    _ => values.iter().flatten().copied().fold(0.0, f64::max),
                };
                spans.push(Span::styled(sparkline(&values, width, most), palette.faint()));
            }
            // A truncated reason would not help: the machine's view shows them in full.
            MetricValue::Missing(_) => spans.push(Span::styled("not available (2: why)", palette.faint())),
        }
        Line::from(spans).render(row, buffer);
    }
}

/// The source of each metric, or the reason why it is missing; and the notes.
fn sources(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut lines = Vec::new();
    let width = usize::from(area.width);
    for metric in Metric::ALL {
        let words = match app.frame.interval.metrics.get(metric) {
            MetricValue::Value { source, is_estimate: true, .. } => format!("{}: estimate, {source}", metric.title()),
            MetricValue::Value { source, .. } => format!("{}: {source}", metric.title()),
            MetricValue::Missing(why) => format!("{}: not available here, because {why}", metric.title()),
        };
        lines.extend(wrap(&clean(&words), width));
    }
    let of_interval = app.frame.interval.notes.iter().filter(|note| !app.notes.contains(note));
    app.notes.iter().chain(of_interval).for_each(|note| lines.extend(wrap(&clean(note), width)));
    let lines: Vec<Line<'_>> = lines.into_iter().map(|line| Line::styled(line, palette.faint())).collect();
    Paragraph::new(lines).render(area, buffer);
}

fn help(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (area.width.min(70), area.height.min(HELP.len() as u16 + 7));
    let at = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(at, buffer);
    let block = Block::bordered().title(" keys ").border_style(palette.title());
    let inner = block.inner(at);
    block.render(at, buffer);
    let mut lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(keys, what)| Line::from(vec![Span::styled(format!(" {keys:<21}"), palette.title()), Span::raw(*what)]))
        .collect();
    lines.push(Line::default());
    let nature = match app.frame.interval.simulated {
        Some(_) => "Nothing here is measured: a trace is replayed on a simulated machine.",
        None => "~ marks estimates; view 2 says where each figure is from.",
    };
    lines.extend(
        wrap(nature, usize::from(inner.width).saturating_sub(2)).into_iter().map(|line| Line::from(format!(" {line}"))),
    );
    lines.push(Line::from(" Any key closes this."));
    Paragraph::new(lines).render(inner, buffer);
}
