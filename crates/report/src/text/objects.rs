//! The objects table: MemProf's decision row in one line, and what it means in the next.

use numapilot_insight::DecisionRow;
use numapilot_insight::Estimate;
use numapilot_insight::Pattern;
use numapilot_insight::RowKey;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use numapilot_text::style::legend;
use numapilot_text::style::more_rows;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use crate::counted::Counted;
use crate::estimates;

/// More nodes than this do not fit a line one by one: the largest is named.
const NODES_IN_COLUMNS: usize = 4;

/// The table of the first `top` rows, with a legend. `counted`: what the rows count.
#[must_use]
pub fn objects(rows: &[DecisionRow], nodes: &[NodeId], top: usize, look: Look, counted: Counted) -> String {
    if rows.is_empty() {
        return format!("  no {}\n", counted.sampled());
    }
    let columns = Columns { nodes, has_nodes: look.width >= 96, has_avoidable: look.width >= 72 };
    let mut table = columns.table();
    for row in rows.iter().take(top) {
        table.row(columns.cells(row));
        let (place, rest) = remark(row);
        table.remark(&place, &rest);
    }
    table.render(look, 0) + &more_rows(rows.len(), top, look) + &legend(&legend_words(counted), look)
}

fn legend_words(counted: Counted) -> String {
    let many = counted.many();
    format!(
        "PEAK: most bytes of it live at one moment. All else in %. SHARE of all {} (± half the 95 % interval), of all REMote ones; LOCal part of the object's \
         own. Of its remote {many}, avoidable by PINning the allocating thread, by allocating ELSEwhere on one node. FROM, ON: its {many} by accessing and by \
         home node. OWN: by the allocating thread; 1ST: by that thread before any other. -: unknown.",
        counted.in_full()
    )
}

/// Which columns the width has room for: narrow terminals lose the per-node ones first, then what could be avoided.
struct Columns<'a> {
    nodes: &'a [NodeId],
    has_nodes: bool,
    has_avoidable: bool,
}

impl Columns<'_> {
    fn table(&self) -> Table {
        let mut table = Table::new()
            .dense()
            .column("ID", Align::Left)
            .flexible("OBJECT", 6)
            .column("PEAK", Align::Right)
            .column("SHARE", Align::Right)
            .column("±", Align::Right)
            .column("REM", Align::Right)
            .column("LOC", Align::Right);
        if self.has_avoidable {
            table = table.column("PIN", Align::Right).column("ELSE", Align::Right);
        }
        if self.has_nodes {
            table = table.column(&per_node_title("FROM", self.nodes), Align::Right);
            table = table.column(&per_node_title("ON", self.nodes), Align::Right);
        }
        table.column("OWN", Align::Right).column("1ST", Align::Right)
    }

    fn cells(&self, row: &DecisionRow) -> Vec<String> {
        // What follows from home nodes is unknown where they are: a 0 would read as "nothing is remote".
        let if_known = |share: &Estimate| {
            if row.knows_homes() { units::bare_percent(share.value) } else { "-".to_owned() }
        };
        let mut cells = vec![
            key(row.key),
            row.name.clone(),
            units::bytes(row.size.peak_live_bytes),
            units::percent_number(row.share.value),
            margin(&row.share),
            if_known(&row.share_of_remote),
            if_known(&row.local),
        ];
        if self.has_avoidable {
            cells.push(row.avoidable_by_pinning.as_ref().map_or_else(|| "-".to_owned(), if_known));
            cells.push(if_known(&row.avoidable_by_allocating_elsewhere));
        }
        if self.has_nodes {
            cells.push(per_node(&row.from_node, self.nodes));
            cells.push(if row.knows_homes() { per_node(&row.on_node, self.nodes) } else { "-".to_owned() });
        }
        cells.push(optional(row.by_allocator.as_ref()));
        cells.push(optional(row.before_others.as_ref()));
        cells
    }
}

fn per_node_title(word: &str, nodes: &[NodeId]) -> String {
    if nodes.len() > NODES_IN_COLUMNS || nodes.len() < 2 {
        return word.to_owned();
    }
    // Each title has its cells' width; the word stands before the numbers, in the room that short words leave.
    let numbers: Vec<String> = nodes.iter().map(|node| format!("{:>3}", format!("n{node}"))).collect();
    format!("{word} {}", numbers.join(" "))
}

/// `25 25 25 25` for few nodes; `n3 40` (the largest, and its share) for many; `-` where no node is known.
fn per_node(shares: &[Estimate], nodes: &[NodeId]) -> String {
    if shares.iter().all(Estimate::is_share_of_nothing) {
        return "-".to_owned();
    }
    if nodes.len() <= NODES_IN_COLUMNS {
        let cells: Vec<String> = shares.iter().map(|s| format!("{:>3}", units::bare_percent(s.value))).collect();
        return cells.join(" ");
    }
    let largest = shares.iter().zip(nodes).max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    largest.map_or_else(String::new, |(s, node)| format!("n{node} {}", units::bare_percent(s.value)))
}

/// `S3` for a site, the bare number for an instance.
#[must_use]
pub fn key(key: RowKey) -> String {
    match key {
        RowKey::Site(site) => format!("S{}", site.0),
        RowKey::Object(object) => object.to_string(),
        RowKey::Unknown => "-".to_owned(),
    }
}

fn margin(estimate: &Estimate) -> String {
    if estimate.is_exact() { ".".to_owned() } else { format!("{:.1}", estimates::margin_percent(estimate)) }
}

fn optional(estimate: Option<&Estimate>) -> String {
    estimate.map_or_else(|| "-".to_owned(), |e| units::bare_percent(e.value))
}

/// Where the object comes from; and by which function, and how it is used.
fn remark(row: &DecisionRow) -> (String, String) {
    let function = match (row.place.is_empty(), row.function.is_empty()) {
        (false, false) => format!(" in {}()", short_function(&row.function)),
        (true, false) => row.function.clone(),
        (_, true) => String::new(),
    };
    let mut parts = vec![row.kind.word().to_owned()];
    parts.extend(instances(row));
    parts.push(usage(row));
    if let Some(cycles) = row.mean_latency_cycles {
        parts.push(format!("latency {cycles:.0} cycles (mean, measured)"));
    }
    let separator = if row.place.is_empty() && function.is_empty() { "" } else { ", " };
    (row.place.clone(), format!("{function}{separator}{}", parts.join(", ")))
}

/// How many instances there were, where there is more than one.
fn instances(row: &DecisionRow) -> Option<String> {
    let (all, live) = (row.size.allocated_instances, row.size.peak_live_instances);
    match (all, live) {
        (0 | 1, _) => None,
        (all, live) if all == live => Some(format!("{all} instances")),
        (all, live) => Some(format!("{all} instances, {live} live at the peak")),
    }
}

/// The sizes of the row's objects in words: live at the peak, allocated in all, and accessed.
#[must_use]
pub fn size_words(row: &DecisionRow, counted: Counted) -> String {
    let size = &row.size;
    let instances = |count: u64| if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") };
    format!(
        "{} live at the peak, in {}; {} allocated in all, in {}; {} reached {}",
        units::bytes(size.peak_live_bytes),
        instances(size.peak_live_instances),
        units::bytes(size.total_allocated_bytes),
        instances(size.allocated_instances),
        counted.sampled(),
        instances(row.instances)
    )
}

/// The function's own name: without parameters, and without template arguments where there are any.
pub(super) fn short_function(function: &str) -> &str {
    // Go's `main.(*Grid).fill` has a receiver in brackets, not parameters.
    let begins = |&(at, _): &(usize, &str)| at > 0 && !function[..at].ends_with('.');
    let end = function.match_indices(['(', '<']).find(begins).map_or(function.len(), |(at, _)| at);
    &function[..end]
}

/// The pattern of use in words, with its figures.
#[must_use]
pub fn usage(row: &DecisionRow) -> String {
    let writes = match row.read_only_bound {
        Some(bound) => format!("writes below {} (95 %)", estimates::bound_percent(bound)),
        None => format!("{} writes", units::part_percent(row.writes.value)),
    };
    let threads = if row.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", row.threads) };
    // From where they make their accesses may not be known.
    let users = match row.nodes {
        0 => threads,
        1 => format!("{threads} on 1 node"),
        nodes => format!("{threads} on {nodes} nodes"),
    };
    match row.pattern {
        Pattern::TooFewSamples if row.samples == 1 => "only 1 sample".to_owned(),
        Pattern::TooFewSamples => format!("only {} samples", row.samples),
        Pattern::HomesUnknown => format!("its home node is unknown; used by {users}; {writes}"),
        Pattern::Local => format!("local already; {writes}"),
        Pattern::PrivateRemote => format!("used by its allocating thread, from another node; {writes}"),
        Pattern::UsedElsewhere => match row.best_node {
            Some(node) => format!("used from node {node}, placed on another; {writes}"),
            None => format!("used from a node without memory; {writes}"),
        },
        Pattern::SharedRead | Pattern::SharedWritten if row.threads == 1 => format!("used by {users}; {writes}"),
        Pattern::SharedRead => format!("read by {users}; {writes}"),
        Pattern::SharedWritten => format!("shared by {users}; {writes}"),
    }
}

#[cfg(test)]
mod tests {
    use numapilot_flows::Filter;

    use super::*;
    use crate::fixture::of_unknown_homes;

    #[test]
    fn what_follows_from_homes_is_a_dash_where_these_are_unknown() {
        let table = of_unknown_homes().with(Filter::default(), |export| {
            objects(&export.analysis.sites(), export.analysis.nodes(), 9, Look::default(), Counted::Accesses)
        });
        let cells = |name: &str| -> Vec<&str> {
            let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
            line.unwrap_or_else(|| panic!("no {name} in {table}")).split_whitespace().collect()
        };
        let titles = cells("OBJECT");
        // One further: the size before has a unit.
        let at =
            |name: &str, title: &str| cells(name)[titles.iter().position(|own| *own == title).expect("a column") + 1];
        assert_eq!((at("known", "REM"), at("known", "LOC")), ("100", "50"), "{table}");
        for title in ["REM", "LOC", "PIN", "ELSE"] {
            assert_eq!(at("unknown", title), "-", "{title}: {table}");
        }
        assert!(table.contains("its home node is unknown"), "{table}");
    }

    #[test]
    fn accesses_from_unknown_nodes_are_from_none_and_one_thread_shares_nothing() {
        of_unknown_homes().with(Filter::default(), |export| {
            let mut row = export.analysis.sites().into_iter().find(|row| row.name == "known").expect("the object");
            let nodes = export.analysis.nodes();
            assert_eq!(per_node(&row.from_node, nodes), " 50  50   .   .");
            assert!(usage(&row).starts_with("read by 2 threads on 2 nodes"), "{}", usage(&row));
            row.threads = 1;
            assert!(usage(&row).starts_with("used by 1 thread on 2 nodes"), "{}", usage(&row));
            row.from_node.fill(Estimate { value: 0.0, low: 0.0, high: 1.0 });
            assert_eq!(per_node(&row.from_node, nodes), "-");
        });
    }
}
