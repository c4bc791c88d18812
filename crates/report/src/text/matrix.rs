//! The node-to-node matrix, the accesses that each node serves, and the traffic of the links.

use numapilot_insight::LinkTraffic;
use numapilot_insight::Matrix;
use numapilot_machine::Endpoint;
use numapilot_machine::Machine;
use numapilot_text::style::Look;
use numapilot_text::style::wrap;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use crate::counted::Counted;
use crate::estimates;

/// The matrix in percent of all accesses, local ones in brackets.
#[must_use]
pub fn matrix(matrix: &Matrix, look: Look, counted: Counted) -> String {
    let all: f64 = matrix.accesses.iter().flatten().map(|accesses| accesses.value).sum();
    if all <= 0.0 {
        return format!("  no {}\n", counted.in_full());
    }
    let share = |value: f64| if value > 0.0 { units::percent_number(value / all) } else { ".".to_owned() };
    let mut table = Table::new().column("FROM \\ ON", Align::Left);
    for node in &matrix.nodes {
        table = table.column(&format!("node {node}"), Align::Right);
    }
    table = table.column("ALL", Align::Right);
    for (row, node) in matrix.nodes.iter().enumerate() {
        let cells = matrix.accesses[row].iter().enumerate().map(|(column, accesses)| {
            let text = share(accesses.value);
            if row == column { format!("[{text}]") } else { format!("{text} ") }
        });
        let sum: f64 = matrix.accesses[row].iter().map(|accesses| accesses.value).sum();
        table.row([format!("node {node}")].into_iter().chain(cells).chain([share(sum)]));
    }
    let served = (0..matrix.nodes.len()).map(|column| matrix.accesses.iter().map(|row| row[column].value).sum::<f64>());
    let served: Vec<String> = served.map(|sum| format!("{} ", share(sum))).collect();
    table.row(["ALL".to_owned()].into_iter().chain(served).chain(["100.0".to_owned()]));
    let how = estimates::found(matrix.source);
    let (known, unknown) = match units::count(matrix.unknown) {
        _ if matrix.unknown <= 0.0 => ("", String::new()),
        unknown => (" with known home", format!("; {unknown} more are in no cell, because their home node is unknown")),
    };
    let note = format!("% of {} {}{known}, {how}; [local]{unknown}", units::count(all), counted.in_full());
    let lines = wrap(&note, look.width.saturating_sub(2));
    table.render(look, 2) + &lines.iter().map(|line| look.faint(&format!("  {line}\n"))).collect::<String>()
}

/// Renders the directed links, those with most data first. Page faults move no data that is known, so that only their number is shown. Then accesses that
/// are on no link: because no route between their nodes is known, and because their home node is unknown.
#[must_use]
pub fn links(
    links: &[LinkTraffic],
    machine: &Machine,
    (unrouted, unknown): (f64, f64),
    look: Look,
    counted: Counted,
) -> String {
    if links.is_empty() {
        return "  the machine model has no links\n".to_owned();
    }
    let mut table =
        Table::new().column("LINK", Align::Left).column(counted.or_faults("ACCESSES", "PAGE FAULTS"), Align::Right);
    if !counted.is_faults() {
        table = table.column("DATA", Align::Right).column("DEMAND%", Align::Right);
    }
    let mut sorted: Vec<&LinkTraffic> = links.iter().collect();
    sorted.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    for link in sorted {
        let mut cells =
            vec![format!("{} → {}", end(machine, link.from), end(machine, link.to)), units::count(link.accesses)];
        if !counted.is_faults() {
            cells.push(units::bytes(link.bytes as u64));
            cells.push(link.utilisation.map_or_else(|| "-".to_owned(), |use_| format!("{:.1}", use_ * 100.0)));
        }
        table.row(cells);
    }
    let mut note = match counted {
        Counted::Accesses => {
            "Only the data of accesses is counted (64 bytes each, from home to thread), without probes, write-backs and \
                    prefetches. DEMAND: share of the link's peak bandwidth, over program time. Program time is recorded without \
                    congestion, so above 100 the link would slow the program down."
        }
        Counted::PageFaults => {
            "Page faults between the home node of a page and the node of the thread. How much data crosses a link is not known from them."
        }
    }
    .to_owned();
    if unrouted > 0.0 {
        let many = counted.many();
        note.push_str(&format!(" {} {many} are between nodes without a known route.", units::count(unrouted)));
    }
    if unknown > 0.0 {
        let many = counted.many();
        note.push_str(&format!(" {} {many} have an unknown home node and are on no link here.", units::count(unknown)));
    }
    let mut text = table.render(look, 2);
    for line in wrap(&note, look.width.saturating_sub(2)) {
        text.push_str(&look.faint(&format!("  {line}\n")));
    }
    text
}

/// An end of a link: `node 2`, or the name of a router.
#[must_use]
pub fn end(machine: &Machine, end: Endpoint) -> String {
    match end {
        Endpoint::Node(node) => format!("node {node}"),
        Endpoint::Router(router) => {
            machine.routers().get(usize::from(router.0)).map_or_else(|| "?".to_owned(), |router| router.name.clone())
        }
    }
}
