//! One object's flow (OEF): its allocations, accesses by thread over time, pages, and the code that accesses it.

use numapilot_flows::Trace;
use numapilot_insight::CallerRow;
use numapilot_insight::ObjectDetail;
use numapilot_insight::ObjectThread;
use numapilot_insight::PageRow;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::style::wrap;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use super::code::code;
use super::code::stack_frames;
use super::objects::objects;
use super::objects::size_words;
use super::timeline;
use crate::counted::Counted;
use crate::estimates;

/// Renders one object: its row, sizes, allocations, threads over time, pages and code.
#[must_use]
pub fn object(detail: &ObjectDetail, trace: &Trace, nodes: &[NodeId], top: usize, look: Look) -> String {
    let counted = Counted::of(trace);
    let mut text = objects(std::slice::from_ref(&detail.row), nodes, 1, look, counted);
    text.push('\n');
    text.push_str(&look.heading("SIZE\n"));
    for line in wrap(&size_words(&detail.row, counted), look.width.saturating_sub(2)) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push('\n');
    text.push_str(&look.heading("ALLOCATED\n"));
    text.push_str(&allocations(detail, trace, top, look));
    if !detail.callers.is_empty() {
        text.push('\n');
        text.push_str(&look.heading("BY CALLER\n"));
        text.push_str(&callers(&detail.callers, top, look));
    }
    text.push('\n');
    text.push_str(&look.heading("BY THREAD, OVER PROGRAM TIME\n"));
    text.push_str(&by_thread(detail, trace, top.max(16), look));
    text.push('\n');
    if !detail.pages.is_empty() {
        text.push_str(&look.heading("PAGES\n"));
        text.push_str(&pages(&detail.pages, nodes, look));
        text.push('\n');
    }
    text.push_str(&look.heading(counted.or_faults("CODE THAT ACCESSES IT\n", "CODE THAT FAULTS ON IT\n")));
    text.push_str(&code(&detail.code, trace, top, look));
    text
}

fn allocations(detail: &ObjectDetail, trace: &Trace, top: usize, look: Look) -> String {
    let mut text = String::new();
    for id in detail.objects.iter().take(top) {
        let Some(object) = trace.object(*id) else { continue };
        let by = object.thread.map_or_else(String::new, |thread| format!(" by thread {thread}"));
        let on = object.node.map_or_else(String::new, |node| format!(" on node {node}"));
        let end = object
            .death
            .map_or_else(|| "lives to the end".to_owned(), |death| format!("freed at {}", units::time_ns(death.0)));
        let line = format!(
            "  {id}: {} at {:#x}, at {}{by}{on}; {end}",
            units::bytes(object.bytes),
            object.address.0,
            units::time_ns(object.birth.0)
        );
        text.push_str(&shorten(&line, look.width));
        text.push('\n');
    }
    if detail.objects.len() > top {
        let more = units::counted((detail.objects.len() - top) as u64, "more instance", "more instances");
        text.push_str(&look.faint(&format!("  and {more}\n")));
    }
    if let Some(object) = detail.objects.first().and_then(|id| trace.object(*id)) {
        for (depth, frame) in stack_frames(trace, object.stack).iter().enumerate() {
            text.push_str(&shorten(&clean(&format!("    {depth:>2}  {frame}")), look.width));
            text.push('\n');
        }
    }
    text
}

fn callers(rows: &[CallerRow], top: usize, look: Look) -> String {
    let mut table = Table::new()
        .column("SHARE%", Align::Right)
        .column("REMOTE%", Align::Right)
        .column("INSTANCES", Align::Right)
        .column("BYTES", Align::Right)
        .flexible("CALLED FROM, WHERE CALL STACKS PART", 24);
    for row in rows.iter().take(top) {
        table.row([
            units::percent_number(row.share.value),
            if row.samples == 0 { "-".to_owned() } else { estimates::bare_remote(&row.remote) },
            units::count(row.instances as f64),
            units::bytes(row.bytes),
            if row.path.is_empty() { "(unknown)".to_owned() } else { row.path.join(" < ") },
        ]);
    }
    let mut text = table.render(look, 2);
    if rows.len() > top {
        text.push_str(&look.faint(&format!(
            "  and {} more\n",
            units::counted((rows.len() - top) as u64, "call stack", "call stacks")
        )));
    }
    text
}

fn by_thread(detail: &ObjectDetail, trace: &Trace, top: usize, look: Look) -> String {
    let most = timeline::greatest(detail.threads.iter().flat_map(|thread| thread.over_time.iter().copied()));
    let mut table = Table::new()
        .dense()
        .column("THREAD", Align::Right)
        .flexible("NAME", 4)
        .column("NODE", Align::Right)
        .column("SHARE%", Align::Right)
        .column("REMOTE%", Align::Right)
        .column("WRITES%", Align::Right)
        .column("FIRST", Align::Right)
        .column("LAST", Align::Right)
        .column("TIME", Align::Left);
    for thread in detail.threads.iter().take(top) {
        table.row(thread_cells(thread, trace, most));
    }
    let mut text = table.render(look, 2);
    if detail.threads.len() > top {
        let more = units::counted((detail.threads.len() - top) as u64, "more thread", "more threads");
        text.push_str(&look.faint(&format!("  and {more}\n")));
    }
    let counted = Counted::of(trace);
    let mut note = format!("One block is {}.", units::time_ns(detail.series.bin_ns));
    if let Some(handover) = detail.mean_handover_ns {
        note.push_str(&format!(
            " Mean time between {} by different threads: {} (an upper bound, because {}).",
            counted.sampled(),
            units::time_ns(handover as u64),
            counted.or_faults("sampling misses hand-overs", "most uses of a page are no faults")
        ));
    }
    for line in wrap(&note, look.width.saturating_sub(2)) {
        text.push_str(&look.faint(&format!("  {line}\n")));
    }
    text
}

fn thread_cells(thread: &ObjectThread, trace: &Trace, most: f64) -> Vec<String> {
    let name = trace.thread(thread.thread).map_or_else(String::new, |t| {
        if t.name.is_empty() { t.start_function.to_string() } else { t.name.to_string() }
    });
    vec![
        thread.thread.to_string(),
        name,
        thread.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
        units::percent_number(thread.share.value),
        estimates::bare_remote(&thread.remote),
        units::bare_percent(thread.writes.value),
        units::time_ns(thread.first.0),
        units::time_ns(thread.last.0),
        timeline::blocks(&thread.over_time, most),
    ]
}

fn pages(rows: &[PageRow], nodes: &[NodeId], look: Look) -> String {
    let mut table = Table::new()
        .dense()
        .column("ADDRESS", Align::Left)
        .column("PAGES", Align::Right)
        .column("SHARE%", Align::Right)
        .column("REMOTE%", Align::Right)
        .column("WRITES%", Align::Right)
        .flexible("ON", 8)
        .flexible("FROM", 8)
        .column("THREADS", Align::Right);
    for row in rows {
        table.row([
            format!("{:#x}", row.address.0),
            row.pages.to_string(),
            units::percent_number(row.share.value),
            estimates::bare_remote(&row.remote),
            units::bare_percent(row.writes.value),
            parts(&row.on_node, nodes),
            parts(&row.from_node, nodes),
            row.threads.len().to_string(),
        ]);
    }
    table.render(look, 2)
}

/// `n0 60 n2 40`: shares in percent by node, largest first, at most four.
fn parts(values: &[f64], nodes: &[NodeId]) -> String {
    let all: f64 = values.iter().sum();
    let mut parts: Vec<(f64, NodeId)> =
        values.iter().copied().zip(nodes.iter().copied()).filter(|(v, _)| *v > 0.0).collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut words: Vec<String> =
        parts.iter().take(4).map(|(v, node)| format!("n{node} {}", units::bare_percent(v / all))).collect();
    if parts.len() > 4 {
        words.push(format!("+{}", parts.len() - 4));
    }
    words.join(" ")
}
