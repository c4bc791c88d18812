//! Links in characters: two nodes in a row, four on a square; a matrix of bandwidths where there are more, or routers.

use numapilot_machine::{Endpoint, Link, Machine, NodeId};
use numapilot_text::units::short_number;
use unicode_width::UnicodeWidthStr;

use super::layout::{Sizes, layout};
use super::paper::{Paper, wrap};
use super::words;

/// A matrix of more ends than this would not be read: the links are listed by kind instead.
const MATRIX_MAX: usize = 12;
/// Drawings of nodes and wires need this many columns.
const DRAWING_WIDTH: usize = 66;
const NODE_WIDTH: usize = 10;
const WIRE_WIDTH: usize = 24;

/// Draws the links.
pub fn links(machine: &Machine, paper: Paper) -> String {
    let plain = paper.width >= DRAWING_WIDTH
        && machine.routers().is_empty()
        && machine.links().iter().all(|l| matches!(l.from, Endpoint::Node(_)));
    match machine.nodes().len() {
        2 if plain => row(machine),
        4 if plain => square(machine, paper),
        n if n + machine.routers().len() <= MATRIX_MAX => bandwidths(machine, paper),
        _ => list(machine, paper),
    }
}

fn between(machine: &Machine, a: NodeId, b: NodeId) -> (Option<&Link>, Option<&Link>) {
    let find = |from: NodeId, to: NodeId| {
        machine.links().iter().find(|l| l.from == Endpoint::Node(from) && l.to == Endpoint::Node(to))
    };
    (find(a, b), find(b, a))
}

/// `4 GB/s` where both ways are alike or there is only one, `4→ ←3 GB/s` where they differ.
fn label(forth: Option<&Link>, back: Option<&Link>) -> String {
    let gb = |link: &Link| short_number(link.bandwidth_bytes_per_s / 1e9);
    match (forth.map(gb), back.map(gb)) {
        (Some(forth), Some(back)) if forth != back => format!("{forth}→ ←{back} GB/s"),
        (Some(only), _) | (None, Some(only)) => format!("{only} GB/s"),
        (None, None) => String::new(),
    }
}

fn node_cell(id: NodeId) -> String {
    format!("{:^NODE_WIDTH$}", format!("[node {id}]"))
}

/// A horizontal wire with its label, or blanks.
fn wire(forth: Option<&Link>, back: Option<&Link>) -> String {
    if forth.is_none() && back.is_none() {
        return " ".repeat(WIRE_WIDTH);
    }
    let label = format!(" {} ", label(forth, back));
    let dashes = (WIRE_WIDTH - 2).saturating_sub(label.width());
    let (left, right) = (dashes / 2, dashes - dashes / 2);
    let head = if back.is_some() { "◄" } else { "─" };
    let tail = if forth.is_some() { "►" } else { "─" };
    format!("{head}{}{label}{}{tail}", "─".repeat(left), "─".repeat(right))
}

fn row(machine: &Machine) -> String {
    let (a, b) = (machine.nodes()[0].id, machine.nodes()[1].id);
    let (forth, back) = between(machine, a, b);
    format!("  {}{}{}\n", node_cell(a), wire(forth, back), node_cell(b)).trim_end().to_owned() + "\n"
}

/// Four nodes on the corners that the picture gives them too; diagonals as a cross with their bandwidth below.
fn square(machine: &Machine, paper: Paper) -> String {
    let places = layout(machine, Sizes { card_width: 1.0, card_height: 1.0, gap: 1.0 }).nodes;
    let mut order: Vec<usize> = (0..4).collect();
    order.sort_by(|&a, &b| places[a].1.total_cmp(&places[b].1).then(places[a].0.total_cmp(&places[b].0)));
    if places[order[0]].1 != places[order[1]].1 || places[order[2]].1 != places[order[3]].1 {
        return list(machine, paper);
    }
    let corner: Vec<NodeId> = order.iter().map(|&i| machine.nodes()[i].id).collect();
    let joined = |a: usize, b: usize| between(machine, corner[a], corner[b]);
    let any = |pair: (Option<&Link>, Option<&Link>)| pair.0.is_some() || pair.1.is_some();
    let horizontal = |a: usize, b: usize| {
        let (forth, back) = joined(a, b);
        format!("  {}{}{}", node_cell(corner[a]), wire(forth, back), node_cell(corner[b])).trim_end().to_owned() + "\n"
    };
    let (left, right) = (joined(0, 2), joined(1, 3));
    let (down, up) = (joined(0, 3), joined(1, 2));
    let cross = match (any(down), any(up)) {
        (true, true) => ["╲       ╱", "╳", "╱       ╲"],
        (true, false) => ["╲        ", "╲", "        ╲"],
        (false, true) => ["        ╱", "╱", "╱        "],
        (false, false) => ["", "", ""],
    };
    let stroke =
        |pair: (Option<&Link>, Option<&Link>), mark: &str| if any(pair) { mark.to_owned() } else { " ".to_owned() };
    let side = |pair: (Option<&Link>, Option<&Link>)| if any(pair) { label(pair.0, pair.1) } else { String::new() };
    let head = |pair: (Option<&Link>, Option<&Link>), up: bool| match (pair, up) {
        ((_, Some(_)), true) => "▲",
        ((Some(_), _), false) => "▼",
        (pair, _) if any(pair) => "│",
        _ => " ",
    };
    let line = |l: String, middle: &str, r: String, words: (String, String)| {
        let inner = WIRE_WIDTH + NODE_WIDTH - 1;
        let beside = format!(" {}", words.0);
        let room = inner.saturating_sub(beside.width());
        let shift = inner.saturating_sub(middle.width()) / 2;
        let pad = shift.saturating_sub(beside.width());
        let filled = format!("{}{middle}", " ".repeat(pad));
        let text =
            format!("      {l}{beside}{filled}{}{r} {}", " ".repeat(room.saturating_sub(filled.width())), words.1);
        text.trim_end().to_owned() + "\n"
    };
    let none = || (String::new(), String::new());
    let mut out = horizontal(0, 1);
    out.push_str(&line(head(left, true).into(), cross[0], head(right, true).into(), none()));
    out.push_str(&line(stroke(left, "│"), cross[1], stroke(right, "│"), (side(left), side(right))));
    out.push_str(&line(head(left, false).into(), cross[2], head(right, false).into(), none()));
    out.push_str(&horizontal(2, 3));
    for (pair, (a, b)) in [(down, (0, 3)), (up, (1, 2))] {
        if any(pair) {
            let arrow = match pair {
                (Some(_), Some(_)) => "↔",
                (Some(_), None) => "→",
                _ => "←",
            };
            out.push_str(&format!("  {}{arrow}{}: {}\n", corner[a], corner[b], label(pair.0, pair.1)));
        }
    }
    out
}

/// Bandwidths in GB/s, from each end (rows) to each other.
fn bandwidths(machine: &Machine, paper: Paper) -> String {
    let mut ends: Vec<Endpoint> = machine.nodes().iter().map(|n| Endpoint::Node(n.id)).collect();
    ends.extend((0..machine.routers().len()).map(|r| Endpoint::Router(numapilot_machine::RouterId(r as u16))));
    let name = |end: Endpoint| match end {
        Endpoint::Node(id) => format!("node {id}"),
        Endpoint::Router(_) => words::end(machine, end),
    };
    let cell = |from: Endpoint, to: Endpoint| {
        let link = machine.links().iter().find(|l| l.from == from && l.to == to);
        link.map_or(".".to_owned(), |l| short_number(l.bandwidth_bytes_per_s / 1e9))
    };
    let corner = "GB/s to";
    let left = ends.iter().map(|&e| name(e).width()).fold(corner.width(), usize::max);
    let header = |end: Endpoint| words::end(machine, end);
    let column =
        |to: Endpoint| ends.iter().map(|&from| cell(from, to).width()).max().unwrap_or(0).max(header(to).width()) + 2;
    let total: usize = left + 2 + ends.iter().map(|&to| column(to)).sum::<usize>();
    if total > paper.width {
        return list(machine, paper);
    }
    let pad = |text: &str, width: usize| format!("{}{text}", " ".repeat(width.saturating_sub(text.width())));
    let mut out = format!("  {corner:<left$}");
    ends.iter().for_each(|&to| out.push_str(&pad(&header(to), column(to))));
    out.push('\n');
    for &from in &ends {
        let words = name(from);
        out.push_str(&format!("  {words}{}", " ".repeat(left.saturating_sub(words.width()))));
        ends.iter().for_each(|&to| out.push_str(&pad(&cell(from, to), column(to))));
        out.push('\n');
    }
    for (kind, rate, _) in kinds(machine) {
        out.push_str(&paper.faint(&format!("  {rate}: {kind}")));
        out.push('\n');
    }
    out
}

/// Kinds of link with their bandwidth, and the connections of each.
fn kinds(machine: &Machine) -> Vec<(String, String, Vec<String>)> {
    let mut kinds: Vec<(String, String, Vec<String>)> = Vec::new();
    for connection in words::connections(machine) {
        let link = connection.forth;
        let rate = label(Some(link), connection.back);
        let kind = numapilot_text::style::clean(&link.kind);
        let arrow = if connection.back.is_some() { "↔" } else { "→" };
        let pair = format!("{}{arrow}{}", words::end(machine, link.from), words::end(machine, link.to));
        match kinds.iter_mut().find(|(k, r, _)| *k == kind && *r == rate) {
            Some((_, _, pairs)) => pairs.push(pair),
            None => kinds.push((kind, rate, vec![pair])),
        }
    }
    kinds
}

fn list(machine: &Machine, paper: Paper) -> String {
    let line = |(kind, rate, pairs): (String, String, Vec<String>)| {
        wrap(&format!("  {rate}: "), &format!("{} ({kind})", pairs.join(" ")), paper.width)
    };
    kinds(machine).into_iter().map(line).collect()
}
