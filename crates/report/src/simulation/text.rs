//! Simulated runs as a table for terminals.

use std::fmt::Write;

use numapilot_simulator::{Report, program::Origin};
use numapilot_text::style::Look;
use numapilot_text::style::{clean, wrap};
use numapilot_text::table::{Align, Table};
use numapilot_text::units;

use super::{Comparison, OF_ONE_RUN, population};

/// Renders the comparison for a terminal.
#[must_use]
pub fn render(comparison: &Comparison<'_>, look: Look) -> String {
    let first = &comparison.runs[comparison.base];
    let mut out = String::new();
    let threads = units::counted(first.threads.len() as u64, "thread", "threads");
    let nodes = units::counted(first.nodes.len() as u64, "node", "nodes");
    let _ = writeln!(
        out,
        "{}",
        look.strong(&clean(&format!("{} on {}, {nodes}, {threads}: simulated", first.program, first.machine)))
    );
    for line in wrap(&clean(&origin(first)), look.width) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    let mut table = Table::new().flexible("POLICY", 12);
    for title in ["RUN TIME", "GAIN", "LOCAL", "LATENCY", "CTRL IMB", "LINKS", "LINK IMB", "MOVED", "COST"] {
        table = table.column(title, Align::Right);
    }
    for (index, run) in comparison.runs.iter().enumerate() {
        table.row(row(comparison, index, run));
    }
    out.push_str(&table.render(look, 0));
    let base = &first.policy;
    let legend = format!(
        "All figures are simulated. GAIN: how much faster than {base}, {OF_ONE_RUN}. LOCAL: local access ratio. LATENCY: mean of a memory access, loaded. \
         CTRL IMB, LINK IMB: standard deviation over mean (population) of accesses served per controller, of link utilisation. LINKS: mean \
         utilisation. MOVED: pages moved and copies made. COST: processor time that the policy took from the program, of all its threads' time."
    );
    for line in wrap(&legend, look.width.saturating_sub(2)) {
        let _ = writeln!(out, "  {}", look.faint(&line));
    }
    for note in notes(comparison) {
        for (index, line) in wrap(&clean(&note), look.width.saturating_sub(2)).iter().enumerate() {
            let _ = writeln!(out, "{} {}", if index == 0 { "!" } else { " " }, look.warning(line));
        }
    }
    out
}

/// The source of the program, a description or a recording, in one sentence.
pub(super) fn origin(run: &Report) -> String {
    match &run.origin {
        Origin::Synthetic { file } => format!("Described by {file}; seed {}.", run.options.seed),
        Origin::Recorded { trace, machine, recorded_ns, repeated_from_ns, .. } => {
            let repeated = repeated_from_ns
                .map_or_else(String::new, |from| format!(" The part after {} is repeated.", units::time_ns(from)));
            format!("Recorded in {trace} on {machine}: {} of program time.{repeated}", units::time_ns(*recorded_ns))
        }
    }
}

/// The notes of all runs, each once.
pub(super) fn notes(comparison: &Comparison<'_>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in comparison.runs {
        let assumed: &[String] = if let Origin::Recorded { assumptions, .. } = &run.origin { assumptions } else { &[] };
        for note in run.notes.iter().chain(assumed) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
    }
    notes
}

fn row(comparison: &Comparison<'_>, index: usize, run: &Report) -> Vec<String> {
    let metrics = &run.total.metrics;
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), units::whole_percent);
    let local = match metrics.local_access_ratio {
        Some(part) if part > 0.0 && part < 0.005 || units::is_not_quite_all(part, 0.995) => units::short_percent(part),
        other => share(other),
    };
    let gain = if index == comparison.base {
        "-".to_owned()
    } else {
        comparison.gain(index).map_or_else(|| "?".to_owned(), units::signed_percent)
    };
    let time = format!("{}{}", if run.finished { "" } else { "> " }, units::time_ns(run.run_time_ns as u64));
    let moved = run.moves.pages() + run.moves.copies_made;
    let busy: f64 = run.threads.iter().map(|thread| thread.busy_ns).sum();
    let cost = if busy > 0.0 { run.cost.total_ns() / busy } else { 0.0 };
    vec![
        run.policy.clone(),
        time,
        gain,
        local,
        metrics.memory_latency_ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0} ns")),
        share(population(metrics.controller_imbalance)),
        share(metrics.interconnect_usage),
        share(population(metrics.interconnect_imbalance)),
        if moved == 0 { "-".to_owned() } else { units::count(moved as f64) },
        if run.cost.total_ns() > 0.0 { units::percent(cost) } else { "-".to_owned() },
    ]
}
