//! Recordings of page faults: first touches by node, pages used from other nodes, and the source lines that touched them first.

use numapilot_flows::Trace;
use numapilot_insight::FileFaults;
use numapilot_insight::TouchSite;
use numapilot_insight::Touches;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

/// Largest number of source lines that are shown for a site.
const LINES: usize = 4;

/// Largest number of files that are named.
const FILES: usize = 3;

/// Size of a page in KiB.
const PAGE_KIB: u64 = 4;

fn pages(count: u64) -> String {
    let what = if count == 1 { "page" } else { "pages" };
    format!("{} {what} ({})", units::count(count as f64), units::bytes(count * PAGE_KIB * 1024))
}

/// First touches, later use, and how pages are shared: what the recording holds in place of memory accesses.
#[must_use]
pub fn touches(touches: &Touches, nodes: &[NodeId]) -> String {
    let mut out = String::new();
    let mut line = |title: &str, text: String| out.push_str(&format!("  {title:<22}{text}\n"));
    let mut kinds = vec![format!("{} on pages that were in memory already", units::count(touches.later as f64))];
    if touches.shared_before > 0 {
        kinds.push(format!(
            "{} on pages of shared memory from before the recording (in memory already or new: unknown)",
            units::count(touches.shared_before as f64)
        ));
    }
    if touches.present > 0 {
        kinds.push(format!(
            "{} on pages whose placement was not recorded (populated without faults, or huge pages of unknown size; first toucher unknown)",
            units::count(touches.present as f64)
        ));
    }
    if touches.on_files > 0 {
        kinds.push(format!("{} on files and code", units::count(touches.on_files as f64)));
    }
    line("Page faults", format!("{}, of which {}", units::count(touches.faults as f64), kinds.join(", ")));
    let by_node = nodes.iter().zip(&touches.on_node).filter(|(_, count)| **count > 0);
    let by_node: Vec<String> = by_node.map(|(node, count)| format!("node {node}: {}", pages(*count))).collect();
    line("Touched first", if by_node.is_empty() { "no page".to_owned() } else { by_node.join(", ") });
    if touches.placed_elsewhere > 0 {
        line(
            "Placed elsewhere",
            format!(
                "{} not on the first toucher's node, because of a memory policy or a lack of free memory",
                pages(touches.placed_elsewhere)
            ),
        );
    }
    if touches.found > 0 {
        line("In memory before", pages(touches.found));
    }
    if touches.moved > 0 {
        line("Moved", format!("{} were later found on another node", pages(touches.moved)));
    }
    if touches.on_files > 0 {
        let of = |file: &FileFaults| format!("{} {}", clean(&file.path), units::count(file.faults as f64));
        let named: Vec<String> = touches.files.iter().take(FILES).map(of).collect();
        let rest: u64 = touches.files.iter().skip(FILES).map(|file| file.faults).sum();
        let rest = if rest > 0 { format!(", others {}", units::count(rest as f64)) } else { String::new() };
        line("Faults on files", format!("{}{rest}", named.join(", ")));
    }
    for away in &touches.away {
        let text =
            format!("used from node {}: {}, {} faults", away.node, pages(away.pages), units::count(away.faults as f64));
        line(&format!("On node {}", away.home), text);
    }
    let uses = &touches.uses;
    let kinds = [
        (uses.once, "seen once"),
        (uses.one_thread, "by one thread"),
        (uses.one_node, "by threads of one node"),
        (uses.several_nodes, "from several nodes"),
        (uses.unknown_nodes, "by several threads, on nodes that are not known"),
    ];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(count, what)| format!("{} {what}", units::count(*count as f64))).collect();
    line("Pages by use", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") });
    out
}

/// Objects by pages, with the lines and threads that touched them first.
#[must_use]
pub fn touched_objects(rows: &[TouchSite], trace: &Trace, nodes: &[NodeId], top: usize, look: Look) -> String {
    let mut table = Table::new().column("PAGES", Align::Right);
    for node in nodes {
        table = table.column(&format!("ON {node}"), Align::Right);
    }
    table = table
        .column("LATER FROM", Align::Left)
        .column("SHARED", Align::Right)
        .flexible("OBJECT", 12)
        .flexible("TOUCHED FIRST BY", 24);
    for row in rows.iter().take(top) {
        let object = if row.place.is_empty() { row.name.clone() } else { format!("{} ({})", row.name, row.place) };
        let later = nodes.iter().zip(&row.later_from).filter(|(_, count)| **count > 0);
        let later: Vec<String> = later.map(|(node, count)| format!("{node}:{}", units::count(*count as f64))).collect();
        let mut cells = vec![units::count(row.pages as f64)];
        cells.extend(
            row.on_node.iter().map(|count| if *count == 0 { "-".to_owned() } else { units::count(*count as f64) }),
        );
        cells.push(if later.is_empty() { "-".to_owned() } else { later.join(" ") });
        cells.push(units::count((row.uses.one_node + row.uses.several_nodes + row.uses.unknown_nodes) as f64));
        cells.push(object);
        let lines: Vec<String> = row.lines.iter().take(LINES).map(|line| touch_line(line, trace)).collect();
        cells.push(lines.join("; "));
        table.row(cells);
    }
    if table.is_empty() { "  no page was touched\n".to_owned() } else { table.render(look, 2) }
}

fn touch_line(line: &numapilot_insight::TouchLine, trace: &Trace) -> String {
    let file = line.file.rsplit('/').next().unwrap_or("");
    let place = match (file, line.line, &*line.function) {
        ("", _, "") => "unknown code".to_owned(),
        ("", _, function) => function.to_owned(),
        (file, 0, "") => file.to_owned(),
        (file, 0, function) => format!("{function} ({file})"),
        (file, number, _) => format!("{file}:{number}"),
    };
    let thread = trace.thread(line.thread);
    let name = thread.map_or("", |thread| &*thread.name);
    format!(
        "{place} thread {}{} {}",
        line.thread.0,
        if name.is_empty() { String::new() } else { format!(" {name}") },
        units::count(line.pages as f64)
    )
}
