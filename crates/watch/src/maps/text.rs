//! A process's memory as text: where its threads run, where its memory lies, and what lies far from them.

use std::fmt::Write;

use numapilot_machine::NodeId;
use numapilot_machine::format_cpu_list;
use numapilot_text::style::{Look, clean, wrap};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::MemoryMap;
use super::object::Object;

/// Maximum number of nodes with a column each; more would leave no space for names.
pub(super) const COLUMNS_MAX: usize = 8;

/// Least width of the column that names nodes in their place.
pub(super) const BY_NODE: usize = 36;

/// Number of nodes that are named beyond that, those with most memory first.
const NAMED_MAX: usize = 3;

/// Options of the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// Maximum number of objects; 0: all.
    pub top: usize,
    /// Whether pages are shown instead of bytes.
    pub pages: bool,
}

/// A process's memory, with `objects` in their order.
#[must_use]
pub fn text(map: &MemoryMap, objects: &[Object], options: TextOptions, look: Look) -> String {
    let mut out = heading(map, look);
    let shown = if options.top == 0 { objects.len() } else { options.top.min(objects.len()) };
    let is_wide = map.nodes.len() <= COLUMNS_MAX;
    let mut table = Table::new()
        .dense()
        .flexible("object", if is_wide { 22 } else { 12 })
        .column("kind", Align::Left)
        .column("policy", Align::Left);
    for title in ["mapped", "in memory", "huge", "far"] {
        table = table.column(title, Align::Right);
    }
    if is_wide {
        for node in &map.nodes {
            table = table.column(&format!("node {node}"), Align::Right);
        }
    } else {
        table = table.flexible("by node", BY_NODE);
    }
    for object in &objects[..shown] {
        table.row(row(map, object, options, is_wide));
    }
    table.row(total(map, options, is_wide));
    out.push_str(&table.render(look, 0));
    if shown < objects.len() {
        let rest: u64 = objects[shown..].iter().map(Object::bytes).sum();
        let _ = writeln!(
            out,
            "{}",
            look.faint(&format!(
                "and {}, {}",
                units::counted((objects.len() - shown) as u64, "more object", "more objects"),
                units::bytes(rest)
            ))
        );
    }
    out.push_str(&advice(map, look));
    for line in map.notes.iter().flat_map(|note| wrap(&clean(note), look.width)) {
        let _ = writeln!(out, "{}", look.warning(&line));
    }
    out
}

fn heading(map: &MemoryMap, look: Look) -> String {
    let threads = if map.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", map.threads) };
    let runs: Vec<String> =
        map.runs_on.iter().map(|(node, share)| format!("{} on node {node}", units::part_percent(*share))).collect();
    let runs = if runs.is_empty() { "on unknown nodes".to_owned() } else { runs.join(", ") };
    format!(
        "{}\n",
        look.heading(&format!("{} (process {}): {threads}; processor time: {runs}", clean(&map.name), map.pid))
    )
}

fn row(map: &MemoryMap, object: &Object, options: TextOptions, is_wide: bool) -> Vec<String> {
    let or_dot = |bytes: u64| if bytes == 0 { ".".to_owned() } else { units::bytes(bytes) };
    let mut cells = vec![
        object.title(),
        object.kind.word().to_owned(),
        object.policy.clone(),
        or_dot(object.mapped_bytes),
        or_dot(object.bytes()),
        or_dot(object.huge_bytes),
        or_dot(object.far_bytes),
    ];
    let on = |node: &NodeId| {
        let amounts = if options.pages { &object.pages_by_node } else { &object.bytes_by_node };
        amounts.get(node).copied().unwrap_or(0)
    };
    cells.extend(by_node(map, on, options, is_wide));
    cells
}

fn total(map: &MemoryMap, options: TextOptions, is_wide: bool) -> Vec<String> {
    let sum = |of: fn(&super::Area) -> u64| map.areas.iter().map(of).sum::<u64>();
    let mut cells = vec!["total".to_owned(), String::new(), String::new()];
    let huge = sum(|area| area.huge_kib * 1024);
    let amounts = [sum(super::Area::mapped_bytes), sum(super::Area::bytes), huge, map.far_bytes()];
    cells.extend(amounts.map(|bytes| if bytes == 0 { ".".to_owned() } else { units::bytes(bytes) }));
    let on = |node: &NodeId| -> u64 {
        map.areas.iter().map(|area| if options.pages { area.pages_on(*node) } else { area.bytes_on(*node) }).sum()
    };
    cells.extend(by_node(map, on, options, is_wide));
    cells
}

fn by_node(map: &MemoryMap, on: impl Fn(&NodeId) -> u64, options: TextOptions, is_wide: bool) -> Vec<String> {
    let amount = |value: u64| match (value, options.pages) {
        (0, _) => ".".to_owned(),
        (pages, true) => pages.to_string(),
        (bytes, false) => units::bytes(bytes),
    };
    if is_wide {
        return map.nodes.iter().map(|node| amount(on(node))).collect();
    }
    vec![largest(&map.nodes, on, amount)]
}

/// The nodes that have most, and how many others have some: `8: 3 MiB, 0: 2 MiB, 5: 1 MiB, 4 more`.
pub(super) fn largest(nodes: &[NodeId], on: impl Fn(&NodeId) -> u64, amount: impl Fn(u64) -> String) -> String {
    let mut most: Vec<(u64, &NodeId)> = nodes.iter().map(|node| (on(node), node)).filter(|(on, _)| *on > 0).collect();
    most.sort_by_key(|(amount, node)| (std::cmp::Reverse(*amount), *node));
    let rest = most.len().saturating_sub(NAMED_MAX);
    let mut parts: Vec<String> =
        most.iter().take(NAMED_MAX).map(|(on, node)| format!("{node}: {}", amount(*on))).collect();
    if rest > 0 {
        parts.push(format!("{rest} more"));
    }
    parts.join(", ")
}

/// The memory that is far from the threads.
fn advice(map: &MemoryMap, look: Look) -> String {
    let far = map.far_bytes();
    let all: u64 = map.bytes_by_node().iter().sum();
    if far == 0 || all == 0 {
        return String::new();
    }
    let nodes: Vec<u32> = map.nodes.iter().filter(|node| map.is_far(**node)).map(|node| u32::from(node.0)).collect();
    let share = far as f64 / all as f64;
    let noun = if nodes.len() == 1 { "node" } else { "nodes" };
    let lead = format!(
        "{} ({}) is far from its threads: on {noun} {}.",
        units::bytes(far),
        units::part_percent(share),
        format_cpu_list(nodes)
    );
    format!("{}\n", look.strong(&lead))
}
