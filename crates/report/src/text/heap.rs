//! The heap: its totals in sentences, a table of allocation sites and one of threads.

use numapilot_flows::Object;
use numapilot_flows::ObjectKind;
use numapilot_flows::Site;
use numapilot_flows::SiteId;
use numapilot_flows::Trace;
use numapilot_insight::HeapProfile;
use numapilot_insight::HeapRow;
use numapilot_insight::HeapUse;
use numapilot_text::style::Look;
use numapilot_text::style::legend;
use numapilot_text::style::more_rows;
use numapilot_text::style::wrap;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use super::objects::short_function;
use super::threads::name_of;

const LEGEND: &str = "AT PEAK: bytes of the site that were live when the whole heap was at its peak; PEAK: most bytes of its own that were live at one moment; \
    ALLOCS: blocks allocated, /S of them per second; TOTAL: bytes allocated, whatever was freed; LEFT: bytes never freed; LIFE: median time from allocation to \
    free; THR: threads that allocated > threads that freed; RFREE: of the frees, % by another thread than the one that allocated.";

/// The totals, the first `top` sites and the first `top` threads.
#[must_use]
pub fn heap(profile: &HeapProfile, trace: &Trace, top: usize, look: Look) -> String {
    let mut text = String::new();
    let says = [vec![sentences(profile)], left_out(trace)].concat().join(" ");
    for line in wrap(&says, look.width.saturating_sub(2)) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push('\n');
    text.push_str(&sites(&profile.sites, top, look));
    if profile.threads.len() > 1 {
        text.push('\n');
        text.push_str(&look.heading("THREADS THAT ALLOCATE AND FREE\n"));
        text.push_str(&threads(profile, trace, top, look));
    }
    text
}

/// The top of the report of a recording of allocations alone.
#[must_use]
pub fn heap_headline(engine: &str, look: Look) -> String {
    let says = format!(
        "Engine {engine} recorded allocations and no memory accesses, so this report shows the heap alone. To see which memory is far from the threads that \
         use it, record accesses: `numapilot doctor` says which engines can here; `--engine emulate` needs neither a PMU nor several nodes."
    );
    wrap(&says, look.width).iter().map(|line| format!("{line}\n")).collect()
}

/// Memory that is a heap's, and not of malloc's family: blocks of pools, and of Go's heap; arenas of a Python interpreter. Blocks of which only a sample is
/// recorded have a table of their own.
fn left_out(trace: &Trace) -> Vec<String> {
    let kind_of = |object: &Object| trace.site(object.site).map(|site| site.kind);
    let is_pools = |object: &&Object| object.sample.is_none() && kind_of(object) == Some(ObjectKind::Pool);
    let count = trace.objects().iter().filter(is_pools).count() as u64;
    let mut parts = Vec::new();
    if count > 0 {
        let blocks = units::counted(count, "block", "blocks");
        let are = if count == 1 { "is" } else { "are" };
        parts.push(format!(
            "{blocks} of pools, or of a heap other than malloc's, {are} not counted here: they are objects of kind pool."
        ));
    }
    let arenas = (0..).map(SiteId).zip(trace.sites()).filter(|(_, site)| &*site.name == Site::PYTHON_ARENAS);
    let bytes: u64 = arenas.map(|(id, _)| trace.site_size(id).peak_live_bytes).sum();
    if bytes > 0 {
        parts.push(format!(
            "{} are not counted here: the interpreter has mapped up to {} at a time for them.",
            Site::PYTHON_ARENAS,
            units::bytes(bytes)
        ));
    }
    parts
}

/// How much, how often, and what happened to it.
fn sentences(profile: &HeapProfile) -> String {
    let total = &profile.total;
    let at = profile.peak_time.map_or_else(String::new, |time| format!(" at {}", units::time_ns(time.0)));
    let blocks = |count: u64| units::counted(count, "block", "blocks");
    let mut parts = vec![format!(
        "At its peak{at} the heap held {} in {}.",
        units::bytes(profile.peak_bytes),
        blocks(profile.peak_blocks)
    )];
    let rate =
        total.allocations_per_second.map_or_else(String::new, |rate| format!(" ({} per second)", units::count(rate)));
    parts.push(format!(
        "{} allocated, {} in all{rate}; {} by realloc.",
        units::counted(total.allocations, "block was", "blocks were"),
        units::bytes(total.allocated_bytes),
        units::count(total.reallocations as f64)
    ));
    parts.push(match total.median_lifetime_ns {
        None if total.allocations == 1 => "It was never freed.".to_owned(),
        None => "None of them was freed.".to_owned(),
        Some(life) => {
            let left = format!("{} in {} never freed", units::bytes(total.left_bytes), blocks(total.left_blocks));
            format!("Half of the freed ones lived for less than {}; {left}.", units::time_ns(life))
        }
    });
    if total.frees > 0 {
        parts.push(match total.remote_frees {
            Some(remote) => format!(
                "{} of the frees were by another thread than the one that had allocated the block.",
                units::part_percent(remote as f64 / total.frees as f64)
            ),
            None => "This trace does not say which threads freed them (recorded by an older numapilot).".to_owned(),
        });
    }
    parts.join(" ")
}

fn sites(rows: &[HeapRow], top: usize, look: Look) -> String {
    if rows.is_empty() {
        return "  no block was allocated in the selected part of the recording\n".to_owned();
    }
    let has_rates = look.width >= 96;
    let mut table = Table::new()
        .dense()
        .column("ID", Align::Left)
        .flexible("OBJECT", 6)
        .column("AT PEAK", Align::Right)
        .column("PEAK", Align::Right)
        .column("ALLOCS", Align::Right);
    if has_rates {
        table = table.column("/S", Align::Right).column("TOTAL", Align::Right);
    }
    table = table.column("LEFT", Align::Right).column("LIFE", Align::Right).column("THR", Align::Right);
    table = table.column("RFREE", Align::Right);
    for row in rows.iter().take(top) {
        let usage = &row.usage;
        let mut cells = vec![
            format!("S{}", row.site.0),
            row.name.clone(),
            units::bytes(row.at_peak_bytes),
            units::bytes(row.peak_live_bytes),
            units::count(usage.allocations as f64),
        ];
        if has_rates {
            cells.push(usage.allocations_per_second.map_or_else(|| "-".to_owned(), units::count));
            cells.push(units::bytes(usage.allocated_bytes));
        }
        cells.push(units::bytes(usage.left_bytes));
        cells.push(usage.median_lifetime_ns.map_or_else(|| "-".to_owned(), units::time_ns));
        cells.push(thread_counts(usage));
        cells.push(remote_frees(usage));
        table.row(cells);
        table.remark(&row.place, &remark(row));
    }
    table.render(look, 0) + &more_rows(rows.len(), top, look) + &legend(LEGEND, look)
}

fn thread_counts(usage: &HeapUse) -> String {
    let freeing = usage.freeing_threads.map_or_else(|| "?".to_owned(), |count| count.to_string());
    format!("{}>{freeing}", usage.allocating_threads)
}

fn remote_frees(usage: &HeapUse) -> String {
    match usage.remote_frees {
        Some(remote) if usage.frees > 0 => units::bare_percent(remote as f64 / usage.frees as f64),
        _ => "-".to_owned(),
    }
}

/// The function, and how large blocks are.
fn remark(row: &HeapRow) -> String {
    let usage = &row.usage;
    // Code without names has a module and an offset for a function, and often for an object's name as well.
    let is_told = row.function.is_empty() || row.function == row.name || row.function == row.place;
    let function = match (row.place.is_empty(), is_told) {
        (false, false) if row.function.contains("+0x") => format!(" at {}, ", row.function),
        (false, false) => format!(" in {}(), ", short_function(&row.function)),
        (true, false) => format!("{}, ", row.function),
        (false, true) => ", ".to_owned(),
        (true, true) => String::new(),
    };
    let mean = usage.allocated_bytes / usage.allocations.max(1);
    let live = units::counted(row.peak_live_blocks, "block", "blocks");
    let again = match usage.reallocations {
        0 => String::new(),
        count => format!(", {} by realloc", units::count(count as f64)),
    };
    format!("{function}{} a block, {live} live at its peak{again}", units::bytes(mean))
}

fn threads(profile: &HeapProfile, trace: &Trace, top: usize, look: Look) -> String {
    let mut table = Table::new()
        .dense()
        .column("THREAD", Align::Right)
        .flexible("NAME", 4)
        .column("ALLOCS", Align::Right)
        .column("BYTES", Align::Right)
        .column("FREED BY OTHERS", Align::Right)
        .column("FREES", Align::Right)
        .column("OF OTHERS", Align::Right);
    let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| units::count(count as f64));
    for row in profile.threads.iter().take(top) {
        table.row([
            row.thread.to_string(),
            name_of(trace, row.thread),
            units::count(row.allocations as f64),
            units::bytes(row.allocated_bytes),
            count(row.freed_by_others),
            count(row.frees),
            count(row.frees_of_others),
        ]);
    }
    table.render(look, 2) + &more_rows(profile.threads.len(), top, look)
}
