//! One process: its threads by node, and its memory according to one source: objects by accesses, mappings by samples, or mappings by node.

use std::collections::BTreeMap;

use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::style::wrap;
use numapilot_text::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Constraint;
use ratatui::layout::Layout;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::text::Span;
use ratatui::widgets::Block;
use ratatui::widgets::Borders;
use ratatui::widgets::Paragraph;
use ratatui::widgets::Widget;

use super::app::App;
use super::style::Palette;
use super::style::bar;
use crate::figures::AreaFigures;

/// Maximum number of nodes with a column of their own.
const NODE_COLUMNS: usize = 4;
/// Screen columns up to the end of an area's bar.
const BAR_END: u16 = 18;
/// Maximum number of rows for notes.
const NOTE_ROWS: usize = 4;

/// Draws the view of one process.
pub fn draw(app: &mut App, pid: Pid, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let [head, rest] = Layout::vertical([Constraint::Length(2), Constraint::Min(2)]).areas(area);
    heading(app, pid, palette, head, buffer);
    let threads = app.frame.threads.get(&pid).map_or(0, Vec::len);
    let thread_rows = u16::try_from(threads).unwrap_or(u16::MAX).saturating_add(2).min(rest.height / 2).max(3);
    let [threads_at, areas_at] = Layout::vertical([Constraint::Length(thread_rows), Constraint::Min(2)]).areas(rest);
    draw_threads(app, pid, palette, threads_at, buffer);
    draw_areas(app, pid, palette, areas_at, buffer);
}

fn heading(app: &App, pid: Pid, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Some(process) = app.frame.interval.processes.iter().find(|process| process.pid == pid) else {
        let words = format!("process {pid} did nothing in this interval, or has ended (Esc goes back)");
        return Line::styled(words, palette.warning()).render(area, buffer);
    };
    let local = process.local_share.value();
    let line = vec![
        Span::styled(format!("{} (process {pid})", clean(&process.name)), palette.title()),
        Span::raw(format!(
            ": {:.2} CPUs, {}, {}",
            process.cpus,
            units::counted(u64::from(process.threads), "thread", "threads"),
            units::bytes(process.resident_bytes)
        )),
        Span::styled(
            local.map_or(String::new(), |share| format!(", {} local", units::part_percent(share))),
            palette.local(local.unwrap_or(1.0)),
        ),
    ];
    Line::from(line).render(area, buffer);
    let mut by_node: BTreeMap<NodeId, f64> = BTreeMap::new();
    for thread in app.frame.threads.get(&pid).into_iter().flatten() {
        thread.node.into_iter().for_each(|node| *by_node.entry(node).or_default() += thread.cpus);
    }
    let words: Vec<String> = by_node.iter().map(|(node, cpus)| format!("node {node}: {cpus:.2} CPUs")).collect();
    let words = match words.is_empty() {
        true => "where its threads run is not known (yet)".to_owned(),
        false => format!("runs on {}", words.join(", ")),
    };
    let at = Rect { y: area.y + 1, height: 1, ..area };
    Line::styled(words, palette.faint()).render(at, buffer);
}

fn draw_threads(app: &App, pid: Pid, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let block = Block::new().borders(Borders::TOP).title(" threads ").border_style(palette.faint());
    let inner = block.inner(area);
    block.render(area, buffer);
    let mut threads = app.frame.threads.get(&pid).cloned().unwrap_or_default();
    threads.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then(a.tid.cmp(&b.tid)));
    let lines = threads.iter().take(usize::from(inner.height)).map(|thread| {
        let node = thread.node.map_or("-".to_owned(), |node| node.to_string());
        let cpu = thread.cpu.map_or(String::new(), |cpu| format!("CPU {cpu}"));
        Line::from(vec![
            Span::raw(format!("{:>8}  node {node:<3} {cpu:<9}", thread.tid)),
            Span::styled(bar(thread.cpus, 12), palette.load(0.0)),
            Span::raw(format!(" {:>5.2}  {}", thread.cpus, shorten(&clean(&thread.name), 30))),
        ])
    });
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buffer);
}

fn draw_areas(app: &mut App, pid: Pid, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let count = app.frame.views.get(&pid).map_or(0, Vec::len);
    let view = app.memory(pid).cloned().unwrap_or_default();
    let more = if count > 1 { format!("{} of {count}, o: next ", app.memory_view % count + 1) } else { String::new() };
    let room = usize::from(area.width).saturating_sub(more.len() + 3);
    let title = if view.title.is_empty() { "memory" } else { &view.title };
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {} ", shorten(&clean(title), room)))
        .title(Line::from(more).right_aligned())
        .border_style(palette.faint());
    let inner = block.inner(area);
    block.render(area, buffer);
    let mut notes: Vec<String> =
        view.notes.iter().flat_map(|note| wrap(&clean(note), usize::from(inner.width))).collect();
    if notes.len() > NOTE_ROWS {
        let more = notes.len() + 1 - NOTE_ROWS;
        notes.truncate(NOTE_ROWS - 1);
        notes.push(format!("({more} more lines of notes)"));
    }
    let note_rows = (notes.len() as u16).min(inner.height.saturating_sub(2));
    let [list, below] = Layout::vertical([Constraint::Min(1), Constraint::Length(note_rows)]).areas(inner);
    let height = usize::from(list.height);
    let offset = app.selected.saturating_sub(height.saturating_sub(1));
    app.spots.rows = Some((list.y, list.height, offset));
    let nodes: Vec<NodeId> = app.frame.interval.nodes.iter().map(|node| node.node).collect();
    for (row, figures) in view.areas.iter().enumerate().skip(offset).take(height) {
        let at = Rect { y: list.y + (row - offset) as u16, height: 1, ..list };
        area_line(figures, &nodes, usize::from(list.width), palette).render(at, buffer);
        if row == app.selected {
            // A bar in reversed colours would be misleading.
            let bar_end = if figures.share.is_some() { BAR_END.min(at.width) } else { 0 };
            buffer.set_style(Rect { x: at.x + bar_end, width: at.width - bar_end, ..at }, palette.chosen());
        }
    }
    if view.areas.is_empty() {
        Line::styled("its memory is not known (yet)", palette.faint()).render(list, buffer);
    }
    let notes: Vec<Line<'_>> = notes.into_iter().map(|line| Line::styled(line, palette.faint())).collect();
    Paragraph::new(notes).render(below, buffer);
}

fn area_line(figures: &AreaFigures, nodes: &[NodeId], width: usize, palette: Palette) -> Line<'static> {
    if let Some(share) = figures.share {
        let local = match figures.local_share {
            Some(local) => Span::styled(format!(" {:>7} local  ", units::part_percent(local)), palette.local(local)),
            None => Span::styled(format!(" {:>7} local  ", "-"), palette.faint()),
        };
        let bytes = match figures.bytes + figures.bytes_by_node.iter().sum::<u64>() {
            0 => String::new(),
            bytes => format!("{:>9}  ", units::bytes(bytes)),
        };
        let name = shorten(&clean(&figures.name), width.saturating_sub(34 + bytes.len()));
        return Line::from(vec![
            Span::raw(format!("{:>7} ", units::part_percent(share))),
            Span::styled(bar(share, 10), palette.load(0.0)),
            local,
            Span::raw(bytes + &name),
        ]);
    }
    let mut parts: Vec<(u64, NodeId)> = figures.bytes_by_node.iter().copied().zip(nodes.iter().copied()).collect();
    let all = figures.bytes + figures.bytes_by_node.iter().sum::<u64>();
    if nodes.len() > NODE_COLUMNS {
        parts.sort_by_key(|(bytes, node)| (std::cmp::Reverse(*bytes), *node));
        parts.truncate(NODE_COLUMNS);
    }
    let words: String = parts
        .iter()
        .map(|(bytes, node)| match bytes {
            0 => format!("{:>13}", format!("{node}: .")),
            bytes => format!("{:>13}", format!("{node}: {}", units::bytes(*bytes))),
        })
        .collect();
    let used = 11 + words.len();
    Line::from(vec![
        Span::raw(format!("{:>9}", units::bytes(all))),
        Span::raw(words),
        Span::raw(format!("  {}", shorten(&clean(&figures.name), width.saturating_sub(used)))),
    ])
}
