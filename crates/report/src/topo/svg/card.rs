//! A node's card: its CPUs as squares (split where hardware threads share a core), framed by the L3 that they share, and its memory.

use numapilot_machine::{CpuId, Machine, Node};
use numapilot_text::style::{clean, shorten};
use numapilot_text::units::short_bytes;

use super::super::layout::Point;
use super::super::words;
use crate::svg_writer::{SvgWriter, Type, text_width};

/// Width of every card.
pub const WIDTH: f64 = 244.0;
const PADDING: f64 = 14.0;
const HEADER: f64 = 48.0;
const CACHE_LINE: f64 = 18.0;
const MEMORY: f64 = 46.0;
const GROUP_GAP: f64 = 6.0;
const GROUP_PADDING: f64 = 5.0;
const GROUP_LABEL: f64 = 13.0;
const PITCH_MAX: f64 = 30.0;

pub use crate::svg_writer::{FAINT, INK};
pub const CORE: &str = "#5b8fc7";
pub const MEMORY_FILL: &str = "#e4efe6";
const MEMORY_INK: &str = "#27593a";

/// Cores that share one L3 (or all of the node, where there is none), and its label.
struct Group {
    cells: Vec<Cell>,
    label: Option<String>,
}

struct Cell {
    first: CpuId,
    threads: usize,
    online: bool,
}

/// A group's squares: how many columns, and how far apart.
struct Grid {
    columns: usize,
    rows: usize,
    pitch: f64,
}

/// Height that the tallest node needs.
pub fn height(machine: &Machine) -> f64 {
    let cores = machine.nodes().iter().map(|n| groups_height(&groups(machine, n))).fold(30.0, f64::max);
    HEADER + cores + CACHE_LINE + MEMORY + PADDING
}

/// Draws a node centred at a point.
pub fn draw(writer: &mut SvgWriter, machine: &Machine, node: &Node, centre: Point, height: f64) {
    let (left, top) = (centre.0 - WIDTH / 2.0, centre.1 - height / 2.0);
    writer.rect((left + 1.5, top + 2.5), (WIDTH, height), 10.0, r##"fill="#000000" fill-opacity="0.07""##);
    writer.rect((left, top), (WIDTH, height), 10.0, r##"fill="#ffffff" stroke="#c3cad2" stroke-width="1.2""##);
    let x = left + PADDING;
    writer.text((x, top + 24.0), Type::new(16.0, INK).bold(), &format!("Node {}", node.id));
    let mut side = node.socket.map(|s| format!("socket {s}")).unwrap_or_default();
    if let Some(kind) = words::kind(node) {
        side = kind.to_owned();
    }
    writer.text((left + WIDTH - PADDING, top + 24.0), Type::new(12.0, FAINT).anchored("end"), &side);
    let groups = groups(machine, node);
    if node.has_cpus() {
        let cores = words::cores(machine, node).len();
        let list = format!("CPUs {} · {}", words::online_list(machine, node), words::plural(cores, "core", "cores"));
        writer.text((x, top + 41.0), Type::new(11.0, FAINT), &shorten(&list, 36));
        draw_groups(writer, &groups, (x, top + HEADER));
    } else {
        let middle = (centre.0, top + HEADER + (height - HEADER - MEMORY - PADDING) / 2.0);
        let what = if node.has_memory() { "no CPUs, only memory" } else { "no CPUs, no memory" };
        writer.text(middle, Type::new(12.0, FAINT).anchored("middle"), what);
    }
    let memory_top = top + height - MEMORY - 10.0;
    let caches: Vec<String> = words::caches(machine, node).into_iter().filter(|c| c.contains("per core")).collect();
    if !caches.is_empty() {
        let line = format!("{} per core", caches.join(", ").replace(" per core", ""));
        writer.text((x, memory_top - 7.0), Type::new(10.5, FAINT), &shorten(&line, 40));
    }
    draw_memory(writer, node, (x, memory_top));
}

fn draw_memory(writer: &mut SvgWriter, node: &Node, at: Point) {
    let size = (WIDTH - 2.0 * PADDING, MEMORY);
    if !node.has_memory() {
        writer.rect(at, size, 6.0, r##"fill="none" stroke="#c3cad2" stroke-dasharray="4 3""##);
        writer.text((at.0 + size.0 / 2.0, at.1 + 27.0), Type::new(12.0, FAINT).anchored("middle"), "no memory");
        return;
    }
    writer.rect(at, size, 6.0, &format!(r##"fill="{MEMORY_FILL}" stroke="#a9c9b1""##));
    writer.text((at.0 + 10.0, at.1 + 19.0), Type::new(13.0, MEMORY_INK).bold(), &short_bytes(node.memory_bytes));
    if let Some(bandwidth) = node.memory_bandwidth_bytes_per_s {
        let right = at.0 + size.0 - 10.0;
        writer.text((right, at.1 + 19.0), Type::new(13.0, MEMORY_INK).anchored("end"), &words::rate(bandwidth));
    }
    let below = match (&node.memory_kind, node.free_bytes) {
        (Some(kind), _) => clean(kind),
        (None, Some(free)) => format!("{} free", short_bytes(free)),
        (None, None) => "memory".to_owned(),
    };
    writer.text((at.0 + 10.0, at.1 + 36.0), Type::new(11.0, MEMORY_INK), &shorten(&below, 32));
}

fn groups(machine: &Machine, node: &Node) -> Vec<Group> {
    let mut cells: Vec<Cell> = words::cores(machine, node)
        .into_iter()
        .map(|core| Cell { first: core[0], threads: core.len(), online: true })
        .collect();
    cells.extend(words::offline(machine, node).into_iter().map(|cpu| Cell { first: cpu, threads: 1, online: false }));
    cells.sort_by_key(|cell| cell.first);
    let l3s = machine.l3_caches();
    let mut groups: Vec<(Option<usize>, Group)> = Vec::new();
    for cell in cells {
        // Offline CPUs tell no caches: they stay with their neighbours by number.
        let l3 = if cell.online { machine.l3_index(cell.first) } else { groups.last().and_then(|g| g.0) };
        match groups.iter_mut().find(|g| g.0 == l3) {
            Some((_, group)) => group.cells.push(cell),
            None => {
                let label = l3.map(|i| {
                    let beyond = l3s[i].cpus.iter().any(|c| !node.cpus.contains(c));
                    format!(
                        "L3 {}{}",
                        short_bytes(l3s[i].size_bytes),
                        if beyond { ", shared with other nodes" } else { "" }
                    )
                });
                groups.push((l3, Group { cells: vec![cell], label }));
            }
        }
    }
    groups.into_iter().map(|g| g.1).collect()
}

fn columns(groups: &[Group]) -> usize {
    groups.len().clamp(1, 4)
}

fn group_width(groups: &[Group]) -> f64 {
    let columns = columns(groups) as f64;
    (WIDTH - 2.0 * PADDING - (columns - 1.0) * GROUP_GAP) / columns
}

/// The fewest rows at which squares are still large enough to see.
fn grid(cells: usize, width: f64, grouped: bool) -> Grid {
    let least = if grouped { 9.5 } else { 13.5 };
    let inner = width - 2.0 * GROUP_PADDING;
    let fit = |rows: usize| Grid {
        columns: cells.div_ceil(rows),
        rows,
        pitch: (inner / cells.div_ceil(rows) as f64).min(PITCH_MAX),
    };
    (1..=cells.max(1)).map(fit).find(|grid| grid.pitch >= least).unwrap_or_else(|| fit(cells.max(1)))
}

fn group_height(group: &Group, width: f64, grouped: bool) -> f64 {
    let grid = grid(group.cells.len(), width, grouped);
    grid.rows as f64 * grid.pitch + 2.0 * GROUP_PADDING + GROUP_LABEL
}

fn groups_height(groups: &[Group]) -> f64 {
    let width = group_width(groups);
    let tallest = groups.iter().map(|g| group_height(g, width, groups.len() > 2)).fold(0.0, f64::max);
    groups.len().div_ceil(columns(groups)) as f64 * (tallest + GROUP_GAP)
}

fn draw_groups(writer: &mut SvgWriter, groups: &[Group], at: Point) {
    let width = group_width(groups);
    let grouped = groups.len() > 2;
    let tallest = groups.iter().map(|g| group_height(g, width, grouped)).fold(0.0, f64::max);
    for (index, group) in groups.iter().enumerate() {
        let left = at.0 + (index % columns(groups)) as f64 * (width + GROUP_GAP);
        let top = at.1 + (index / columns(groups)) as f64 * (tallest + GROUP_GAP);
        writer.rect((left, top), (width, tallest), 5.0, r##"fill="#f0f3f7" stroke="#d7dde4""##);
        let grid = grid(group.cells.len(), width, grouped);
        let start = left + (width - grid.columns as f64 * grid.pitch) / 2.0;
        for (i, cell) in group.cells.iter().enumerate() {
            let x = start + (i % grid.columns) as f64 * grid.pitch;
            let y = top + GROUP_PADDING + (i / grid.columns) as f64 * grid.pitch;
            draw_cell(writer, cell, (x, y), grid.pitch);
        }
        if let Some(label) = &group.label {
            let size = if text_width(label, 10.0) > width { 8.5 } else { 10.0 };
            writer.text((left + width / 2.0, top + tallest - 5.0), Type::new(size, FAINT).anchored("middle"), label);
        }
    }
}

fn draw_cell(writer: &mut SvgWriter, cell: &Cell, at: Point, pitch: f64) {
    let gap = if pitch > 18.0 { 4.0 } else { 2.0 };
    let side = pitch - gap;
    let corner = (at.0 + gap / 2.0, at.1 + gap / 2.0);
    let style = if cell.online {
        format!(r#"fill="{CORE}""#)
    } else {
        r##"fill="#ffffff" stroke="#9aa4af" stroke-dasharray="2 1.5""##.to_owned()
    };
    writer.rect(corner, (side, side), if side > 14.0 { 3.0 } else { 1.5 }, &style);
    for thread in 1..cell.threads {
        let x = corner.0 + side * thread as f64 / cell.threads as f64;
        writer.line((x, corner.1), (x, corner.1 + side), r##"stroke="#f0f3f7" stroke-width="1""##);
    }
    if side >= 17.0 && cell.threads == 1 {
        let colour = if cell.online { "#ffffff" } else { FAINT };
        writer.text(
            (corner.0 + side / 2.0, corner.1 + side / 2.0 + 3.5),
            Type::new(10.0, colour).anchored("middle"),
            &cell.first.to_string(),
        );
    }
}
