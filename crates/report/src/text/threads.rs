//! Threads, and one thread's flow (TEF).

use numapilot_flows::Trace;
use numapilot_insight::ThreadDetail;
use numapilot_insight::ThreadRow;
use numapilot_machine::NodeId;
use numapilot_text::style::Look;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::ThreadIndex;

use super::code::code;
use super::objects::objects;
use super::timeline;
use crate::counted::Counted;
use crate::estimates;

/// Name and start function of a thread; a name that only repeats the program's is left out.
pub(super) fn name_of(trace: &Trace, index: ThreadIndex) -> String {
    let Some(thread) = trace.thread(index) else { return String::new() };
    let (name, start) = (&*thread.name, &*thread.start_function);
    let exe = trace.process(thread.process).map_or("", |process| process.command());
    // The kernel keeps 15 bytes of a name.
    let is_program = !name.is_empty() && (exe == name || (name.len() >= 15 && exe.starts_with(name)));
    match (name.is_empty() || is_program, start.is_empty()) {
        (false, false) => format!("{name} ({start})"),
        (true, false) => start.to_owned(),
        (_, true) => name.to_owned(),
    }
}

/// Renders a table of all threads, in creation order. `clock_khz` converts waits to time; without it they are shown as unknown.
#[must_use]
pub fn threads(rows: &[ThreadRow], trace: &Trace, clock_khz: Option<f64>, look: Look) -> String {
    let mut table = Table::new()
        .dense()
        .column("THREAD", Align::Right)
        .flexible("NAME", 4)
        .column("PID", Align::Right)
        .column("NODE", Align::Right)
        .column("CPU", Align::Right)
        .column("START", Align::Right)
        .column("END", Align::Right)
        .column("WAITED", Align::Right)
        .column(Counted::of(trace).or_faults("ACCESSES", "FAULTS"), Align::Right)
        .column("REMOTE%", Align::Right)
        .flexible("TOP OBJECT", 6);
    // A recording of allocations alone counts no accesses: 0 would say that the threads made none.
    let has_accesses = trace.meta().engine != Engine::Track;
    for row in rows {
        let process = trace.process(row.process).map_or_else(String::new, |process| process.pid.to_string());
        let waited =
            row.wait_cycles.zip(clock_khz).map(|(cycles, khz)| units::time_ns((cycles as f64 * 1e6 / khz) as u64));
        table.row([
            row.thread.to_string(),
            name_of(trace, row.thread),
            process,
            row.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
            row.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
            units::time_ns(row.start.0),
            row.end.map_or_else(|| "-".to_owned(), |end| units::time_ns(end.0)),
            waited.unwrap_or_else(|| "-".to_owned()),
            if has_accesses { units::count(row.accesses.value) } else { "-".to_owned() },
            estimates::bare_remote(&row.remote),
            row.top_site.and_then(|id| trace.site(id).map(|s| format!("S{} {}", id.0, s.name))).unwrap_or_default(),
        ]);
    }
    if table.is_empty() { "  no threads\n".to_owned() } else { table.render(look, 2) }
}

/// Renders one thread: its row, its accesses over time, the objects that it accesses, and the code that accesses them.
#[must_use]
pub fn thread(detail: &ThreadDetail, trace: &Trace, nodes: &[NodeId], top: usize, look: Look) -> String {
    let mut text = look.heading(&format!("THREAD {}\n", detail.row.thread));
    text.push_str(&threads(std::slice::from_ref(&detail.row), trace, None, look));
    text.push('\n');
    text.push_str(&look.heading("OVER PROGRAM TIME\n"));
    let accesses: Vec<f64> = detail.series.bins.iter().map(|bin| bin.accesses.value).collect();
    let remote: Vec<f64> = detail.series.bins.iter().map(|bin| bin.accesses.value * bin.remote.value).collect();
    let most = timeline::greatest(accesses.iter().copied());
    let counted = Counted::of(trace);
    text.push_str(&format!("  {:<10}{}\n", counted.or_faults("accesses", "faults"), timeline::blocks(&accesses, most)));
    let is_unknown = detail.row.remote.is_share_of_nothing();
    let remote = if is_unknown { "unknown".to_owned() } else { timeline::blocks(&remote, most) };
    text.push_str(&format!("  remote    {remote}\n"));
    text.push_str(&look.faint(&format!("            one block is {}\n", units::time_ns(detail.series.bin_ns))));
    text.push('\n');
    text.push_str(&look.heading(&format!("OBJECTS IT ACCESSES (shares are of this thread's {})\n", counted.many())));
    text.push_str(&objects(&detail.sites, nodes, top, look, counted));
    text.push('\n');
    text.push_str(&look.heading("CODE\n"));
    text.push_str(&code(&detail.code, trace, top, look));
    text
}
