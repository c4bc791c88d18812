//! Functions and call stacks that access memory.

use numapilot_flows::Trace;
use numapilot_insight::CodeRow;
use numapilot_insight::FunctionRow;
use numapilot_insight::StackRow;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use crate::counted::Counted;
use crate::estimates;

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn place(file: &str, line: u32, module: &str) -> String {
    match (file.is_empty(), line) {
        (true, _) => base(module).to_owned(),
        (false, 0) => base(file).to_owned(),
        (false, line) => format!("{}:{line}", base(file)),
    }
}

fn site_name(trace: &Trace, site: Option<numapilot_flows::SiteId>) -> String {
    site.and_then(|id| trace.site(id).map(|site| format!("S{} {}", id.0, site.name))).unwrap_or_default()
}

fn nothing(trace: &Trace) -> String {
    format!("  no {}\n", Counted::of(trace).sampled())
}

/// A line above tables of shares where these are not of accesses; empty where they are.
fn of_faults(trace: &Trace, look: Look) -> String {
    match Counted::of(trace) {
        Counted::Accesses => String::new(),
        Counted::PageFaults => look.faint("  % of page faults, which say nothing of how often memory is accessed\n"),
    }
}

/// Renders the functions that access memory, those with most accesses first.
#[must_use]
pub fn functions(rows: &[FunctionRow], trace: &Trace, top: usize, look: Look) -> String {
    let mut table = Table::new()
        .column("SHARE%", Align::Right)
        .column("±", Align::Right)
        .column("REMOTE%", Align::Right)
        .column("WRITES%", Align::Right)
        .flexible("FUNCTION", 16)
        .flexible("WHERE", 12)
        .flexible("TOP OBJECT", 12);
    for row in rows.iter().take(top) {
        table.row([
            units::percent_number(row.share.value),
            format!("{:.1}", estimates::margin_percent(&row.share)),
            estimates::bare_remote(&row.remote),
            units::bare_percent(row.writes.value),
            row.function.clone(),
            place(&row.file, row.line, &row.module),
            site_name(trace, row.top_site),
        ]);
    }
    if table.is_empty() { nothing(trace) } else { of_faults(trace, look) + &table.render(look, 2) }
}

/// Call stacks, most accesses first, each with its frames, innermost first.
#[must_use]
pub fn stacks(rows: &[StackRow], trace: &Trace, top: usize, look: Look) -> String {
    if rows.is_empty() {
        return nothing(trace);
    }
    let mut text = String::new();
    for row in rows.iter().take(top) {
        let is_unknown = row.remote.is_share_of_nothing();
        let remote = if is_unknown { "unknown how many".to_owned() } else { units::part_percent(row.remote.value) };
        let site = match site_name(trace, row.top_site) {
            unknown if unknown.is_empty() => "memory of no known object".to_owned(),
            site => site,
        };
        let (share, many) = (estimates::share(&row.share), Counted::of(trace).many());
        let head = format!("  {share} of {many}, {remote} remote, mostly to {site}");
        text.push_str(&look.heading(&shorten(&clean(&head), look.width)));
        text.push('\n');
        let frames = stack_frames(trace, row.stack);
        for (depth, frame) in frames.iter().enumerate() {
            let line = format!("    {depth:>2}  {frame}");
            text.push_str(&shorten(&clean(&line), look.width));
            text.push('\n');
        }
        if frames.is_empty() {
            text.push_str("        (unknown call stack)\n");
        }
    }
    text
}

/// `function  file:line` for each frame, inlined ones marked.
#[must_use]
pub fn stack_frames(trace: &Trace, stack: numapilot_trace::ids::StackId) -> Vec<String> {
    let mut frames = Vec::new();
    for location in trace.stack(stack).iter().map(|&id| trace.location(id)) {
        for frame in &location.frames {
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            frames.push(format!("{}{inlined}  {}", frame.function, place(&frame.file, frame.line, &location.module)));
        }
    }
    frames
}

/// Renders the code that accesses one object, or that makes one thread's accesses.
#[must_use]
pub fn code(rows: &[CodeRow], trace: &Trace, top: usize, look: Look) -> String {
    let mut table = Table::new()
        .column("SHARE%", Align::Right)
        .column("REMOTE%", Align::Right)
        .column("WRITES%", Align::Right)
        .flexible("FUNCTION", 20)
        .flexible("WHERE", 16);
    for row in rows.iter().take(top) {
        let location = trace.location(row.location);
        let frame = location.frames.first();
        table.row([
            units::percent_number(row.share.value),
            estimates::bare_remote(&row.remote),
            units::bare_percent(row.writes.value),
            frame.map_or_else(|| "(unknown)".to_owned(), |frame| frame.function.to_string()),
            frame.map_or_else(String::new, |frame| place(&frame.file, frame.line, &location.module)),
        ]);
    }
    if table.is_empty() { nothing(trace) } else { of_faults(trace, look) + &table.render(look, 2) }
}

#[cfg(test)]
mod tests {
    use numapilot_fixtures::Kind;
    use numapilot_flows::Filter;
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::fixture::open;

    #[test]
    fn code_keeps_within_the_narrowest_width() {
        let look = Look { width: 80, ..Look::default() };
        for kind in [Kind::Big, Kind::HostileNames] {
            let shown = open(kind, 1000, 200, 8).with(Filter::default(), |export| {
                let (analysis, trace) = (export.analysis, export.analysis.trace());
                [functions(&analysis.functions(), trace, 50, look), stacks(&analysis.stacks(), trace, 50, look)]
            });
            for text in shown {
                assert!(text.lines().count() > 2, "{text}");
                for line in text.lines() {
                    assert!(line.width() <= 80, "{}: {line}", line.width());
                }
            }
        }
    }
}
