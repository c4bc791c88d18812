//! The text of `numapilot explain`: a table of decisions, or each decision in full.

use std::fmt::Write;

use numapilot_balancer::event::Action;
use numapilot_balancer::event::Batch;
use numapilot_balancer::event::Comparison;
use numapilot_balancer::event::CopyDone;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Observation;
use numapilot_balancer::event::PageDecision;
use numapilot_balancer::event::by_group;
use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_service::explain::Explanation;
use numapilot_service::explain::Run;
use numapilot_service::explain::Story;
use numapilot_text::date;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

/// Greatest number of page ranges shown for one decision; the JSON has all.
const RANGES: usize = 20;
/// Greatest number of notes shown for the last run, the latest ones.
const NOTES: usize = 8;

/// The answer as text: each decision in full if `is_detailed`, else the runs and a table of decisions.
pub fn text(answer: &Explanation, is_detailed: bool, look: Look) -> String {
    let mut out = String::new();
    if is_detailed {
        for story in &answer.decisions {
            out.push_str(&story_text(story, answer, look));
        }
        if answer.decisions.is_empty() {
            out.push_str("no decision in the journal is about it\n");
        }
    } else {
        for run in &answer.runs {
            out.push_str(&run_text(run, look));
        }
        if let Some(run) = answer.runs.last() {
            out.push_str(&notes(run));
        }
        out.push_str(&table(answer, look));
    }
    out.push_str(&remarks(answer));
    out
}

fn run_text(run: &Run, look: Look) -> String {
    let start = &run.start;
    let dry = if start.dry_run { ", dry run" } else { "" };
    let end = match &run.stop {
        Some(stop) => format!("ended: {}", clean(&stop.because)),
        None => "still running, or its end is not in the journal".to_owned(),
    };
    let mut out = format!(
        "{} began {}: policy {}{dry}, {}, Linux {}; {}; {end}\n",
        look.heading(&format!("Run {}", clean(&start.run))),
        date::utc(run.unix_ns),
        clean(&start.policy),
        units::counted(start.nodes.len() as u64, "node", "nodes"),
        clean(&start.kernel),
        units::counted(run.decisions, "decision", "decisions"),
    );
    for source in &start.evidence {
        let how = if source.used { "evidence from" } else { "no evidence from" };
        let _ = writeln!(out, "  {how} {}: {}", clean(&source.name), clean(&source.detail));
    }
    out
}

fn notes(run: &Run) -> String {
    let mut out = String::new();
    for note in run.notes.iter().skip(run.notes.len().saturating_sub(NOTES)) {
        let text = match &note.event {
            Event::BackOff(e) => {
                format!("observes every {} (was {}): {}", units::time_ns(e.now_ns), units::time_ns(e.was_ns), e.because)
            }
            Event::Pressure(e) => e.words(),
            Event::Setting(e) => format!("{} {}: {} to {}", e.name, e.done.words(), e.was, e.now),
            Event::Targets(e) => {
                let added = units::counted(e.added.len() as u64, "process", "processes");
                format!("{added} added, {} removed: {}", e.removed.len(), e.because)
            }
            Event::Steered(e) => format!(
                "{}{}: {}",
                e.command,
                e.by_uid.map(|uid| format!(" by user {uid}")).unwrap_or_default(),
                e.answer
            ),
            Event::Losses(e) => {
                e.lost.iter().map(|loss| format!("lost {} {}", loss.count, loss.what)).collect::<Vec<_>>().join(", ")
            }
            Event::Copies(e) => {
                let count = |done: CopyDone| e.processes.iter().filter(|one| one.done == done).count();
                let (copied, back, left) = (count(CopyDone::Copied), count(CopyDone::GivenBack), count(CopyDone::Left));
                let because = e.processes.iter().map(|one| one.because.as_str()).find(|why| !why.is_empty());
                let because = because.map(|why| format!(" ({why})")).unwrap_or_default();
                let of = if e.decision > 0 { format!(" of decision {}", e.decision) } else { String::new() };
                format!(
                    "{}{of}: {copied} mappings use a copy, {back} use the file again, {left} unchanged{because}",
                    e.file
                )
            }
            Event::Trouble(e) => format!("{} ({} times)", e.what, e.times),
            _ => continue,
        };
        let _ = writeln!(out, "  {}  {}", date::utc(note.unix_ns), clean(&text));
    }
    out
}

fn table(answer: &Explanation, look: Look) -> String {
    if answer.decisions.is_empty() {
        return "no decision in the journal\n".to_owned();
    }
    let mut table = Table::new()
        .column("decision", Align::Right)
        .column("time (UTC)", Align::Left)
        .column("ordered", Align::Right)
        .column("moved", Align::Right)
        .column("moved back", Align::Right)
        .column("verdict", Align::Left)
        .flexible("why", 20);
    for story in &answer.decisions {
        let moved =
            |undo: bool| story.actions.iter().filter(|a| a.undo == undo).map(|a| a.pages.moved).sum::<u64>() as f64;
        let back = moved(true);
        table.row([
            story.decision.decision.to_string(),
            date::time_of_day(story.unix_ns),
            units::count(story.decision.pages as f64),
            units::count(moved(false)),
            if back > 0.0 { units::count(back) } else { String::new() },
            story.comparisons.last().map_or("", |comparison| comparison.verdict.word()).to_owned(),
            story.decision.because.clone(),
        ]);
    }
    format!("\n{}", table.render(look, 0))
}

fn story_text(story: &Story, answer: &Explanation, look: Look) -> String {
    let decision = &story.decision;
    let head = format!("Decision {} of run {}", decision.decision, clean(&story.run));
    let mut out = format!("{}, {}\n", look.heading(&head), date::utc(story.unix_ns));
    match &story.observation {
        Some(observation) => out.push_str(&seen(observation)),
        None => out.push_str("  Evidence unknown: the observation is not in the journal\n"),
    }
    if !decision.because.is_empty() {
        let _ = writeln!(out, "  Policy   {}", clean(&decision.because));
    }
    let bytes = if decision.bytes > 0 { format!(" ({})", units::bytes(decision.bytes)) } else { String::new() };
    let (pages, threads) = (decision.pages, decision.threads);
    let _ = write!(
        out,
        "  Ordered  {}{bytes}, {}",
        units::counted(pages, "page", "pages"),
        units::counted(threads, "thread", "threads")
    );
    if let Some(gain) = decision.predicted_gain_ns_per_s {
        let _ = write!(out, "; predicted to save {} of thread time per second", units::time_ns(gain.max(0.0) as u64));
    }
    if let Some(cost) = decision.predicted_cost_ns {
        let _ = write!(out, " for {}", units::time_ns(cost.max(0.0) as u64));
    }
    out.push('\n');
    if !decision.held_back.is_empty() {
        let _ = writeln!(out, "  Withheld not carried out: {}", clean(&decision.held_back));
    }
    let name = |pid: Pid| names(answer, story, pid);
    for batch in story.batches.iter().take(RANGES) {
        let _ = writeln!(out, "    {}", range(batch, &name(batch.pid)));
    }
    let more = story.batches.len().saturating_sub(RANGES);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more ranges (--json has all)");
    }
    if story.other_batches > 0 {
        let _ = writeln!(out, "    and {} ranges that belong to other pages or processes", story.other_batches);
    }
    for order in &story.threads {
        let threads = order.tid.map_or("all threads".to_owned(), |tid| format!("thread {tid}"));
        let _ = writeln!(
            out,
            "    {threads} of {}{} to node {}  {}",
            order.pid,
            name(order.pid),
            list(&order.nodes),
            clean(&order.because)
        );
    }
    story.actions.iter().for_each(|action| out.push_str(&done(action)));
    for ping_pong in &story.ping_pongs {
        let _ = writeln!(
            out,
            "  Stopped  {} pages at {:#x} of process {} moved back and forth {} times and are not moved for now",
            ping_pong.pages, ping_pong.first, ping_pong.pid, ping_pong.moves
        );
    }
    story.comparisons.iter().for_each(|comparison| out.push_str(&judged(comparison)));
    out.push('\n');
    out
}

fn seen(observation: &Observation) -> String {
    let of_files = match observation.file_uses {
        0 => String::new(),
        uses => format!(", {} uses of files", units::count(uses as f64)),
    };
    let mut out = format!(
        "  Evidence of {}: {} samples ({} lost), {} hinting faults{of_files}, {}; {} pages known\n",
        units::time_ns(observation.elapsed_ns),
        units::count(observation.samples as f64),
        units::count(observation.samples_lost as f64),
        units::count(observation.hint_faults as f64),
        units::counted(observation.threads, "thread", "threads"),
        units::count(observation.pages_known as f64),
    );
    for node in observation.nodes.iter().filter(|node| node.to.iter().any(|count| *count > 0.0)) {
        let to: Vec<String> = observation
            .nodes
            .iter()
            .zip(&node.to)
            .map(|(home, count)| format!("{} to {}", units::count(*count), home.node))
            .collect();
        let _ = writeln!(out, "             from node {}: {}", node.node, to.join(", "));
    }
    out
}

fn range(batch: &Batch, name: &str) -> String {
    let order = match &batch.order {
        PageDecision::Move { from, to } => {
            format!("node {} to {to}", from.map_or("?".to_owned(), |from| from.to_string()))
        }
        PageDecision::Copy { nodes } => format!("copies on nodes {}", list(nodes)),
        PageDecision::Split => "split".to_owned(),
        PageDecision::Unmap => "unmapped, to sample its next access".to_owned(),
    };
    let seen: Vec<String> = batch
        .seen
        .iter()
        .map(|seen| {
            format!("node {}: {} reads {} writes", seen.node, units::count(seen.reads), units::count(seen.writes))
        })
        .collect();
    let because = if batch.because.is_empty() { String::new() } else { format!("; {}", clean(&batch.because)) };
    format!(
        "{:#x}-{:#x} ({} x {}) of {}{name}: {order}; seen from {}{because}",
        batch.first,
        batch.end(),
        batch.pages,
        units::bytes(batch.page_bytes),
        batch.pid,
        if seen.is_empty() { "nowhere".to_owned() } else { seen.join(", ") },
    )
}

fn done(action: &Action) -> String {
    let counts: Vec<String> = by_group(&action.pages)
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    format!(
        "  {}  {counts}; threads: {} moved, {} refused; {} moved in {}\n",
        if action.undo { "Undone " } else { "Done   " },
        action.threads_moved,
        action.threads_refused,
        units::bytes(action.moved_bytes),
        units::time_ns(action.took_ns),
    )
}

fn judged(comparison: &Comparison) -> String {
    let because =
        if comparison.because.is_empty() { String::new() } else { format!(" ({})", clean(&comparison.because)) };
    let (with, without) = (comparison.with, comparison.without);
    let measure = clean(&comparison.measure);
    let compared = match comparison.change() {
        Some(change) => format!(
            "{measure} {change} with the changes (mean {:.4} in {} windows) against without them ({:.4} in {})",
            with.mean, with.windows, without.mean, without.windows
        ),
        None => format!(
            "{measure} was not compared, because there were too few windows: {} with the changes, {} without them",
            with.windows, without.windows
        ),
    };
    format!("  Verdict  {}{because}: {compared}\n", comparison.verdict.word())
}

/// The name of a process as ` (name)`, if the journal has it; else empty.
fn names(answer: &Explanation, story: &Story, pid: Pid) -> String {
    let Some(run) = answer.runs.iter().find(|run| run.start.run == story.run) else { return String::new() };
    let came =
        run.notes.iter().rev().filter(|note| note.unix_ns <= story.unix_ns).filter_map(|note| match &note.event {
            Event::Targets(targets) => Some(targets.added.iter()),
            _ => None,
        });
    let known = came.flatten().chain(&run.start.targets).find(|target| target.pid == pid);
    known.map(|target| format!(" ({})", clean(&target.name))).unwrap_or_default()
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(",")
}

fn remarks(answer: &Explanation) -> String {
    let mut out = String::new();
    let reading = &answer.reading;
    if answer.left_out > 0 {
        let earlier = units::counted(answer.left_out, "earlier decision is", "earlier decisions are");
        let _ = writeln!(out, "{earlier} left out (-n shows more)");
    }
    for (count, what) in [
        (reading.unreadable, "skipped, because they are damaged"),
        (reading.later, "skipped, because a later version of numapilot wrote them"),
        (reading.missing, "lost, because the disk was full or too slow"),
    ] {
        if count > 0 {
            let _ = writeln!(out, "journal lines {what}: {count}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! Verdicts.

    use super::*;

    #[test]
    fn what_was_not_measured_is_no_change_of_0() {
        let with = numapilot_balancer::event::Windows { windows: 8, mean: 5.0, ..Default::default() };
        let first = Comparison { measure: "x".to_owned(), with, ..Comparison::default() };
        let said = judged(&first);
        assert!(said.contains("x was not compared") && said.contains("8 with the changes, 0 without"), "{said}");
        let said = judged(&Comparison { change_percent: 1.5, plus_minus_percent: Some(0.5), ..first });
        assert!(said.contains("x +1.5 ± 0.5 % with the changes (mean 5.0000 in 8 windows)"), "{said}");
    }
}
