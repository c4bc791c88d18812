//! The machine as its topology: a box for each node (processors, memory, controller), arrows with their load between adjacent boxes, and a list of the other
//! links.

use numapilot_machine::Endpoint;
use numapilot_machine::Link;
use numapilot_text::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::text::Span;
use ratatui::widgets::Block;
use ratatui::widgets::Paragraph;
use ratatui::widgets::Widget;

use super::app::App;
use super::style::Palette;
use super::style::bar;
use crate::figures::NodeFigures;

/// Size of a box with its border, and of the gaps for arrows, in cells.
const BOX_WIDTH: u16 = 31;
const BOX_HEIGHT: u16 = 5;
const GAP_WIDTH: u16 = 13;
const GAP_HEIGHT: u16 = 1;

/// Layout of the nodes.
struct Grid {
    columns: usize,
    rows: usize,
}

/// The most square layout that the width allows; `None`: the boxes do not fit.
fn grid(nodes: usize, width: u16, height: u16) -> Option<Grid> {
    let most = usize::from((width + GAP_WIDTH) / (BOX_WIDTH + GAP_WIDTH)).max(1);
    let columns =
        (1..=most.min(nodes.max(1))).find(|columns| columns * columns >= nodes).unwrap_or(most.min(nodes.max(1)));
    let rows = nodes.div_ceil(columns);
    let needed = rows * usize::from(BOX_HEIGHT) + rows.saturating_sub(1) * usize::from(GAP_HEIGHT);
    (needed <= usize::from(height) && width >= BOX_WIDTH).then_some(Grid { columns, rows })
}

/// Number of rows that the machine takes, at most `height`.
pub fn rows(app: &App, width: u16, height: u16) -> u16 {
    let nodes = app.frame.interval.nodes.len();
    let others = |grid: &Grid| u16::from(listed(app, grid).next().is_some()) * 2;
    match grid(nodes, width, height) {
        Some(grid) => {
            let rows = grid.rows as u16;
            (rows * BOX_HEIGHT + rows.saturating_sub(1) * GAP_HEIGHT + others(&grid)).min(height)
        }
        None => (nodes as u16 + u16::from(!app.machine.links().is_empty()) * 2).min(height),
    }
}

/// Draws the machine: boxes if they fit, otherwise one line per node.
pub fn draw(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    match grid(app.frame.interval.nodes.len(), area.width, area.height) {
        Some(grid) => boxes(app, &grid, palette, area, buffer),
        None => lines(app, palette, area, buffer),
    }
}

fn boxes(app: &App, grid: &Grid, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let place = |index: usize| {
        let (column, row) = ((index % grid.columns) as u16, (index / grid.columns) as u16);
        Rect {
            x: area.x + column * (BOX_WIDTH + GAP_WIDTH),
            y: area.y + row * (BOX_HEIGHT + GAP_HEIGHT),
            width: BOX_WIDTH,
            height: BOX_HEIGHT,
        }
    };
    for (index, node) in app.frame.interval.nodes.iter().enumerate() {
        node_box(app, index, node, palette, place(index), buffer);
    }
    for link in app.machine.links() {
        let Some((from, to)) = ends(app, link) else { continue };
        let Some(load) = app.frame.interval.links.get(usize::from(link.id.0)).map(|link| link.load) else { continue };
        let words = Span::styled(percent(load), palette.load(load));
        if is_beside(grid, from, to) {
            let (left, arrow) = if from < to { (place(from), "──▶") } else { (place(to), "◀──") };
            let y = left.y + if from < to { 1 } else { 3 };
            let at = Rect { x: left.right() + 1, y, width: GAP_WIDTH - 2, height: 1 };
            Line::from(vec![Span::styled(arrow, palette.load(load)), Span::raw(" "), words]).render(at, buffer);
        } else if is_below(grid, from, to) {
            let (upper, arrow, shift) = if from < to { (place(from), "▼", 3) } else { (place(to), "▲", 16) };
            let at = Rect { x: upper.x + shift, y: upper.bottom(), width: 11, height: 1 };
            Line::from(vec![Span::styled(arrow, palette.load(load)), Span::raw(" "), words]).render(at, buffer);
        }
    }
    let others: Vec<Span<'_>> = listed(app, grid).flat_map(|(name, load)| link_words(&name, load, palette)).collect();
    let used = grid.rows as u16 * BOX_HEIGHT + (grid.rows as u16).saturating_sub(1) * GAP_HEIGHT;
    let rest = Rect { y: area.y + used.min(area.height), height: area.height.saturating_sub(used), ..area };
    if !others.is_empty() {
        wrapped(others, rest, buffer);
    }
}

fn percent(load: f64) -> String {
    format!("{:>5}", units::whole_percent(load))
}

fn link_words(name: &str, load: f64, palette: Palette) -> [Span<'static>; 2] {
    [Span::raw(format!("{name} ")), Span::styled(format!("{}  ", percent(load)), palette.load(load))]
}

/// Names and loads of the links that no arrow shows.
fn listed<'a>(app: &'a App, grid: &Grid) -> impl Iterator<Item = (String, f64)> + 'a {
    let (columns, rows) = (grid.columns, grid.rows);
    app.machine.links().iter().zip(&app.frame.interval.links).filter_map(move |(link, figures)| {
        let grid = Grid { columns, rows };
        let drawn = ends(app, link).is_some_and(|(from, to)| is_beside(&grid, from, to) || is_below(&grid, from, to));
        (!drawn).then(|| (figures.name.clone(), figures.load))
    })
}

fn ends(app: &App, link: &Link) -> Option<(usize, usize)> {
    let of = |end: Endpoint| match end {
        Endpoint::Node(node) => app.machine.node_index(node).map(|index| index.0),
        Endpoint::Router(_) => None,
    };
    of(link.from).zip(of(link.to))
}

fn is_beside(grid: &Grid, from: usize, to: usize) -> bool {
    from.abs_diff(to) == 1 && from / grid.columns == to / grid.columns
}

fn is_below(grid: &Grid, from: usize, to: usize) -> bool {
    from.abs_diff(to) == grid.columns
}

fn node_box(app: &App, index: usize, node: &NodeFigures, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let kind = match (node.cpus, node.memory_bytes) {
        (0, _) => ", no CPUs",
        (_, 0) => ", no memory",
        _ => "",
    };
    let local =
        node.local_share.value().map_or(String::new(), |share| format!(", {} local", units::short_percent(share)));
    // Only where there are several.
    let tier = node.tier.filter(|_| !app.frame.interval.tiers().is_empty());
    let tier = tier.map_or(String::new(), |tier| format!(", tier {tier}"));
    let title = format!(" node {}{kind}{tier}{local} ", node.node);
    let block = Block::bordered().title(title).border_style(palette.faint());
    let inner = block.inner(area);
    block.render(area, buffer);
    let lines: Vec<Line<'_>> = node_lines(app, index, node, palette, 11);
    Paragraph::new(lines).render(inner, buffer);
}

/// Lines of a node: processors, memory and controller, with a bar and a figure each.
fn node_lines(app: &App, index: usize, node: &NodeFigures, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let line = |title: &str, share: Option<f64>, words: String| {
        let filled = share.map_or_else(|| " ".repeat(width), |share| bar(share, width));
        let style = palette.load(share.unwrap_or(0.0));
        Line::from(vec![Span::raw(format!("{title:<4}")), Span::styled(filled, style), Span::raw(format!(" {words}"))])
    };
    let busy = node.busy_cpus.map(|busy| busy / node.cpus.max(1) as f64);
    let cpus = match (node.cpus, node.busy_cpus) {
        (0, _) => "-".to_owned(),
        (cpus, Some(busy)) => format!("{busy:.1} of {cpus} CPUs"),
        (cpus, None) => format!("{cpus} CPUs"),
    };
    let used = node.free_bytes.filter(|_| node.memory_bytes > 0).map(|free| node.memory_bytes.saturating_sub(free));
    let memory = used.map(|used| used as f64 / node.memory_bytes as f64);
    let amount = match node.memory_bytes {
        0 => "none".to_owned(),
        bytes => format!("of {}", units::bytes(bytes)),
    };
    let controller = match (node.controller_load, node.controller_bytes_per_s.value()) {
        (Some(_), Some(rate)) => format!("{}/s", units::bytes(rate as u64)),
        (Some(load), None) => percent(load),
        (None, Some(rate)) => format!("{}/s", units::bytes(rate as u64)),
        (None, None) => "unknown".to_owned(),
    };
    let load = node.controller_load.or_else(|| app.node_history.get(index)?.back()?.controller);
    vec![line("CPU", busy, cpus), line("mem", memory, amount), line("ctl", load, controller)]
}

/// Draws one line per node, if the boxes do not fit.
fn lines(app: &App, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let nodes = &app.frame.interval.nodes;
    let has_links = !app.frame.interval.links.is_empty();
    let room = usize::from(area.height).saturating_sub(usize::from(has_links) * 2);
    // If there are more nodes than rows, the busiest are shown, and the last row says how many are not.
    let load = |node: &NodeFigures| {
        let busy = node.busy_cpus.map_or(0.0, |busy| busy / node.cpus.max(1) as f64);
        node.controller_load.unwrap_or(0.0).max(busy)
    };
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    let is_cut = nodes.len() > room;
    if is_cut {
        order.sort_by(|a, b| load(&nodes[*b]).total_cmp(&load(&nodes[*a])).then(a.cmp(b)));
        order.truncate(room.saturating_sub(1));
        order.sort_unstable();
    }
    for (row, index) in order.iter().enumerate() {
        let node = &nodes[*index];
        let mut spans = vec![Span::raw(format!("node {:<4}", node.node.to_string()))];
        for line in node_lines(app, *index, node, palette, 6) {
            let words: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
            spans.push(Span::styled(format!("{words:<25}"), line.spans[1].style));
        }
        let at = Rect { y: area.y + row as u16, height: 1, ..area };
        Line::from(spans).render(at, buffer);
    }
    let mut links: Vec<(String, f64)> =
        app.frame.interval.links.iter().map(|link| (link.name.clone(), link.load)).collect();
    links.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let spans = links.iter().flat_map(|(name, load)| link_words(name, *load, palette)).collect();
    let mut used = order.len() as u16;
    if is_cut && room > 0 {
        let hidden = units::counted((nodes.len() - order.len()) as u64, "node", "nodes");
        let at = Rect { y: area.y + used, height: 1, ..area };
        Line::styled(format!("not shown: {hidden}, less busy"), palette.faint()).render(at, buffer);
        used += 1;
    }
    wrapped(spans, Rect { y: area.y + used, height: area.height.saturating_sub(used), ..area }, buffer);
}

/// Draws pairs of spans in lines, broken between pairs; those that do not fit are counted.
fn wrapped(spans: Vec<Span<'_>>, area: Rect, buffer: &mut Buffer) {
    let (mut x, mut y) = (area.x, area.y);
    let count = spans.len() / 2;
    for (index, pair) in spans.chunks(2).enumerate() {
        let width: u16 = pair.iter().map(|span| span.width() as u16).sum();
        if x + width > area.right() {
            (x, y) = (area.x, y + 1);
        }
        if y >= area.bottom() {
            return;
        }
        let is_last_place = y + 1 == area.bottom() && x + 2 * width > area.right();
        if is_last_place && index + 1 < count {
            Line::from(format!("+{}", count - index)).render(Rect { x, y, width: area.right() - x, height: 1 }, buffer);
            return;
        }
        Line::from(pair.to_vec()).render(Rect { x, y, width, height: 1 }, buffer);
        x += width;
    }
}
