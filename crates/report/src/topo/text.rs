//! The machine drawn in a terminal.

use anstyle::AnsiColor;
use numapilot_machine::{Machine, MachineSource, Node, NodeId};
use numapilot_text::style::{clean, shorten};
use numapilot_text::units::short_number;
use unicode_width::UnicodeWidthStr;

use super::paper::{Paper, wrap};
use super::{diagram, words};

/// Narrower than this nothing is drawn: lines then run over.
const WIDTH_MIN: usize = 40;
/// Two boxes stand side by side if each has at least this.
const BOX_MIN: usize = 36;
/// Latencies up to this many times local are middling, above it far.
const FAR_RATIO: f64 = 1.5;

/// Draws the machine within `width` columns (at least 40), with colour sequences if `colour`.
pub fn text(machine: &Machine, width: usize, colour: bool) -> String {
    let paper = Paper { width: width.max(WIDTH_MIN), colour };
    let mut out = header(machine, paper);
    out.push('\n');
    out.push_str(&boxes(machine, paper));
    if machine.nodes().len() > 1 {
        out.push_str(&links(machine, paper));
        out.push_str(&latencies(machine, paper));
        out.push_str(&distances(machine, paper));
    } else if let Some(node) = machine.nodes().first()
        && let Some(ns) = machine.idle_latency_ns(node.id, node.id)
    {
        out.push_str(&format!("\nIdle latency: {} ns\n", short_number(ns)));
    }
    out.push_str(&offline(machine, paper));
    for note in machine.notes() {
        out.push_str(&wrap("\nNote: ", &clean(note), paper.width));
    }
    out
}

fn header(machine: &Machine, paper: Paper) -> String {
    let source = match machine.source() {
        MachineSource::Live { root } if root.as_os_str() == "/" => "the running system".to_owned(),
        MachineSource::Live { root } => format!("read from {}", root.display()),
        MachineSource::Model { path } => format!("model file {}", path.display()),
        MachineSource::Builtin => "built-in model".to_owned(),
        MachineSource::Recording { host } => format!("from a recording on {host}"),
    };
    let cpu = machine.cpu_model().map_or_else(|| "processor unknown".to_owned(), clean);
    let name = shorten(&clean(machine.name()), paper.width);
    let rest = shorten(&format!("{cpu} ({})", clean(&source)), paper.width.saturating_sub(name.width() + 2));
    let gap = if rest.is_empty() { "" } else { "  " };
    let mut out = format!("{}{gap}{rest}\n", paper.bold(&name));
    if let Some(description) = machine.description() {
        out.push_str(&wrap("", &clean(description), paper.width));
    }
    out.push_str(&wrap("", &words::totals(machine).join(" · "), paper.width));
    let estimates = machine.figures().iter().filter(|f| f.estimate).count();
    if estimates > 0 {
        let all = machine.figures().len();
        let line = format!("{estimates} of {all} figures are estimates; --json shows each with its source.");
        out.push_str(&paper.faint(wrap("", &line, paper.width).trim_end()));
        out.push('\n');
    }
    out
}

/// A box per node, two side by side where there is room.
fn boxes(machine: &Machine, paper: Paper) -> String {
    let columns = if machine.nodes().len() > 1 && (paper.width - 2) / 2 >= BOX_MIN { 2 } else { 1 };
    let box_width = ((paper.width - 2 * (columns - 1)) / columns).min(60);
    let mut out = String::new();
    for row in machine.nodes().chunks(columns) {
        let contents: Vec<Vec<String>> = row.iter().map(|node| box_lines(machine, node, box_width - 4)).collect();
        let height = contents.iter().map(Vec::len).max().unwrap_or(0);
        let line = |cells: Vec<String>| cells.join("  ") + "\n";
        out.push_str(&line(row.iter().map(|node| box_top(node, box_width, paper)).collect()));
        for i in 0..height {
            let cell = |content: &Vec<String>| {
                let text = shorten(content.get(i).map_or("", String::as_str), box_width - 4);
                format!("│ {text}{} │", " ".repeat((box_width - 4).saturating_sub(text.width())))
            };
            out.push_str(&line(contents.iter().map(cell).collect()));
        }
        out.push_str(&line(row.iter().map(|_| format!("└{}┘", "─".repeat(box_width - 2))).collect()));
    }
    out
}

fn box_top(node: &Node, width: usize, paper: Paper) -> String {
    let title = format!("node {}", node.id);
    let mut rest = node.socket.map(|s| format!(" · socket {s}")).unwrap_or_default();
    if let Some(kind) = words::kind(node) {
        rest.push_str(&format!(" · {kind}"));
    }
    let used = title.width() + rest.width() + 5;
    format!("┌─ {}{rest} {}┐", paper.bold(&title), "─".repeat(width.saturating_sub(used)))
}

fn box_lines(machine: &Machine, node: &Node, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if node.has_cpus() {
        let (list, amount) = (words::online_list(machine, node), words::amount(machine, node));
        let line = format!("CPUs {list} ({amount})");
        if line.width() <= width {
            lines.push(line);
        } else {
            lines.extend([format!("CPUs {list}"), format!("  {amount}")]);
        }
        let offline = words::offline(machine, node);
        if !offline.is_empty() {
            lines.push(format!("Offline {}", words::cpu_list(offline)));
        }
        let caches = words::caches(machine, node);
        let (small, large): (Vec<String>, Vec<String>) = caches.into_iter().partition(|c| c.contains("per core"));
        if !small.is_empty() {
            lines.push(format!("{} per core", small.join(", ").replace(" per core", "")));
        }
        if !large.is_empty() {
            lines.push(large.join(", "));
        }
    }
    lines.push(format!("Memory {}", words::memory(node)));
    lines.extend(node.memory_kind.as_deref().map(|kind| format!("  {}", clean(kind))));
    lines.extend(words::ports(node));
    lines
}

fn links(machine: &Machine, paper: Paper) -> String {
    if machine.links().is_empty() {
        return wrap(
            "\nLinks: ",
            "unknown. The kernel does not show how nodes are connected; a model file can (docs/machine-model.md).",
            paper.width,
        );
    }
    let mut out = format!("\n{}\n", paper.bold("Links (peak, each way)"));
    out.push_str(&diagram::links(machine, paper));
    let detours = words::detours(machine);
    if !detours.is_empty() {
        out.push_str(&format!("\n{}\n", paper.bold("Routes over more than one link")));
        for (via, pairs) in detours {
            let pairs: Vec<String> = pairs.iter().map(|(from, to)| format!("{from}→{to}")).collect();
            out.push_str(&wrap("  over ", &format!("{via}: {}", pairs.join(" ")), paper.width));
        }
    }
    out
}

fn latencies(machine: &Machine, paper: Paper) -> String {
    let ids: Vec<NodeId> = machine.nodes().iter().map(|n| n.id).collect();
    let estimated = machine.figures().iter().any(|f| f.estimate && f.place.starts_with("idle_latency"));
    let is_told = |from: &NodeId| ids.iter().any(|&to| machine.idle_latency_ns(*from, to).is_some());
    let from: Vec<NodeId> = ids.iter().copied().filter(is_told).collect();
    if from.is_empty() {
        return wrap("\nIdle latency: ", "unknown (the firmware does not report it).", paper.width);
    }
    let with_ratio = ids.len() <= 12;
    let cell = |from: NodeId, to: NodeId| match (machine.idle_latency_ns(from, to), words::local_ns(machine, from)) {
        (Some(ns), Some(local)) => {
            let ratio = ns / local;
            let colour = match ratio {
                r if r <= 1.0 => AnsiColor::Green,
                r if r <= FAR_RATIO => AnsiColor::Yellow,
                _ => AnsiColor::Red,
            };
            let words = if with_ratio { format!("{} {ratio:.2}x", short_number(ns)) } else { short_number(ns) };
            (words, Some(colour))
        }
        (Some(ns), None) => (short_number(ns), None),
        (None, _) => ("-".to_owned(), None),
    };
    let title = match (estimated, with_ratio) {
        (true, true) => "Idle latency from CPUs to memory, ns and times the local one (estimates)",
        (true, false) => "Idle latency from CPUs to memory, ns (estimates)",
        (false, true) => "Idle latency from CPUs to memory, ns and times the local one",
        (false, false) => "Idle latency from CPUs to memory, ns",
    };
    matrix(title, &from, &ids, paper, &cell)
}

fn distances(machine: &Machine, paper: Paper) -> String {
    let ids: Vec<NodeId> = machine.nodes().iter().map(|n| n.id).collect();
    if ids.iter().all(|&from| ids.iter().all(|&to| machine.distance(from, to).is_none())) {
        return "\nDistances: unknown.\n".to_owned();
    }
    let cell = |from: NodeId, to: NodeId| (machine.distance(from, to).map_or("-".to_owned(), |d| d.to_string()), None);
    matrix("Distances from row to column (ACPI, 10 is local)", &ids, &ids, paper, &cell)
}

/// A matrix with nodes on both sides, cut into bands of columns that fit.
fn matrix(
    title: &str,
    rows: &[NodeId],
    columns: &[NodeId],
    paper: Paper,
    cell: &dyn Fn(NodeId, NodeId) -> (String, Option<AnsiColor>),
) -> String {
    let label = |id: &NodeId| format!("node {id}");
    let left = rows.iter().map(|id| label(id).len()).max().unwrap_or(0) + 2;
    let cells = rows.iter().flat_map(|&from| columns.iter().map(move |&to| cell(from, to).0.width()));
    let widest = cells.max().unwrap_or(0).max(columns.iter().map(|id| id.to_string().len()).max().unwrap_or(0)) + 2;
    let per_band = ((paper.width.saturating_sub(left + 2)) / widest).max(1);
    let mut out = format!("\n{}\n", paper.bold(&shorten(title, paper.width)));
    for band in columns.chunks(per_band) {
        out.push_str(&" ".repeat(left + 2));
        for id in band {
            out.push_str(&format!("{:>widest$}", id.to_string()));
        }
        out.push('\n');
        for from in rows {
            out.push_str(&format!("  {:<left$}", label(from)));
            for &to in band {
                let (text, colour) = cell(*from, to);
                out.push_str(&" ".repeat(widest.saturating_sub(text.width())));
                out.push_str(&colour.map_or(text.clone(), |c| paper.in_colour(c, &text)));
            }
            out.push('\n');
        }
    }
    out
}

/// CPUs offline of which no node is known; the others stand in their boxes.
fn offline(machine: &Machine, paper: Paper) -> String {
    let strays: Vec<_> = machine.cpus().iter().filter(|c| c.node.is_none()).map(|c| c.id).collect();
    if strays.is_empty() {
        return String::new();
    }
    wrap("\nCPUs of unknown node (offline): ", &words::cpu_list(strays), paper.width)
}
