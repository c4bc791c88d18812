//! `numapilot move`: moves a process's pages from some nodes to others.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use anyhow::anyhow;
use numapilot_host::Pid;
use numapilot_kernel::actuator::MoveOptions;
use numapilot_kernel::actuator::MoveOutcome;
use numapilot_kernel::actuator::Mover;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::migrate;
use numapilot_kernel::migrate::Migration;
use numapilot_kernel::migrate::Route;
use numapilot_kernel::task;
use numapilot_launch::signals::Guard;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_text::units;
use serde_json::json;

use super::exit::BEYOND_LIMITS;
use super::group::named;
use crate::args::MoveArgs;
use crate::output;

/// Moves the pages; exit status 3 if some stayed that could have moved.
pub fn run(arguments: &MoveArgs) -> Result<ExitCode> {
    let machine = Machine::live()?;
    let from = nodes(&arguments.from, "--from", &machine)?;
    let to = nodes(&arguments.to, "--to", &machine)?;
    let mut route = Route::new(&from, &to).ok_or_else(|| anyhow!("--from and --to need at least one node each"))?;
    task::require_own_proc()?;
    let process = named(arguments.pid)?;
    let mut mover = Mover::new(MoveOptions {
        bytes_per_s: arguments.rate,
        keep_bytes: arguments.keep,
        shared: arguments.shared,
        ..MoveOptions::default()
    });
    // Ctrl-C ends the migration between two system calls; the outcome so far is printed.
    let signals = Guard::install()?;
    let begun = Instant::now();
    let shows = std::io::stderr().is_terminal() && !arguments.json && !output::hides_progress(arguments.quiet);
    let mut goes_on = |so_far: &Migration| {
        if shows {
            let bytes = so_far.pages.moved * page_bytes();
            let rate = bytes as f64 / begun.elapsed().as_secs_f64().max(1e-3);
            eprint!("\r{} moved, {}/s \x1b[K", units::bytes(bytes), units::bytes(rate as u64));
        }
        signals.arrived().is_empty()
    };
    let (mut done, mover) = (Migration::default(), (!arguments.dry_run).then_some(&mut mover));
    let result = migrate::run_into(&mut done, &process, &mut route, mover, &mut goes_on);
    if shows {
        eprint!("\r\x1b[K");
    }
    if has_account(&done, result.is_ok()) {
        if arguments.json {
            let failed = result.as_ref().err().map(ToString::to_string);
            output::print_json(&as_json(&done, arguments.pid, arguments.dry_run, failed.as_deref()))?;
        } else {
            output::print(&text(&done, arguments))?;
        }
    }
    result?;
    let stayed = done.pages.busy + done.pages.no_room + done.pages.not_permitted + done.pages.not_tried;
    Ok(if stayed > 0 { ExitCode::from(BEYOND_LIMITS) } else { ExitCode::SUCCESS })
}

/// Whether there is an account to print: where an error ended the migration, what has moved before stays where it is.
fn has_account(done: &Migration, is_complete: bool) -> bool {
    is_complete || done.pages.moved > 0
}

/// Parses a list of nodes that have memory; `all` means all of these.
fn nodes(text: &str, option: &str, machine: &Machine) -> Result<Vec<NodeId>> {
    let with_memory: Vec<NodeId> =
        machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    if text == "all" {
        return Ok(with_memory);
    }
    let listed = numapilot_machine::parse_cpu_list(text)
        .map_err(|error| anyhow!("{option} {text}: {error}; give nodes such as 0, 0,2 or 1-3, or `all`"))?;
    let there = || numapilot_machine::format_cpu_list(with_memory.iter().map(|node| u32::from(node.0)));
    let node = |number: u32| {
        let found = with_memory.iter().find(|node| u32::from(node.0) == number).copied();
        found.ok_or_else(|| {
            anyhow!("{option} {text}: there is no node {number} with memory here; nodes with memory: {}", there())
        })
    };
    listed.into_iter().map(node).collect()
}

/// The account as JSON. `failed`: the error that ended the migration half-way.
fn as_json(done: &Migration, pid: Pid, dry_run: bool, failed: Option<&str>) -> serde_json::Value {
    let wanted = |((from, to), pages): (&(NodeId, NodeId), &u64)| json!({ "from": from.0, "to": to.0, "pages": pages });
    let pages: serde_json::Map<String, serde_json::Value> =
        done.pages.by_name().iter().map(|(name, count)| (name.replace(' ', "_"), json!(count))).collect();
    json!({
        "pid": pid, "dry_run": dry_run, "page_bytes": page_bytes(), "looked_at": done.looked_at,
        "elsewhere": done.elsewhere, "hugetlb_bytes": done.hugetlb_bytes, "wanted": done.wanted.iter().map(wanted).collect::<Vec<_>>(), "pages": pages,
        "moving_s": done.moving.as_secs_f64(), "took_s": done.took.as_secs_f64(), "ended": done.ended, "stopped": done.stopped,
        "failed": failed,
    })
}

fn text(done: &Migration, arguments: &MoveArgs) -> String {
    let size = |pages: u64| units::bytes(pages * page_bytes());
    let noun = |pages: u64| if pages == 1 { "page" } else { "pages" };
    let mut out = String::new();
    for ((from, to), pages) in &done.wanted {
        out.push_str(&format!("node {from} to {to}: {pages} {}, {}\n", noun(*pages), size(*pages)));
    }
    if done.wanted.is_empty() {
        out.push_str(&format!("nothing to move: none of the process's {} pages is on these nodes\n", done.looked_at));
    }
    if arguments.dry_run {
        out.push_str("nothing was moved (--dry-run)\n");
    } else if !done.wanted.is_empty() {
        let counted: Vec<(MoveOutcome, u64)> = MoveOutcome::ALL
            .map(|outcome| (outcome, done.pages.count(outcome)))
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        let rate = (done.pages.moved * page_bytes()) as f64 / done.moving.as_secs_f64().max(1e-9);
        let width = counted.iter().map(|(outcome, _)| outcome.name().len()).max().unwrap_or(0);
        for (outcome, count) in counted {
            let (name, hint) = (outcome.name(), hint(outcome));
            out.push_str(&format!("  {name:width$}  {count} {}, {}{hint}\n", noun(count), size(count)));
        }
        let (moving, took) = (done.moving.as_secs_f64(), done.took.as_secs_f64());
        out.push_str(&format!("{}/s while moving: {moving:.3} s of {took:.3} s\n", units::bytes(rate as u64)));
    }
    out.push_str(&reserved(done));
    for (node, why) in &done.refused {
        out.push_str(&format!("no page was moved to node {node}: {}\n", why.error(arguments.pid, *node)));
    }
    if done.ended {
        out.push_str("the process ended meanwhile\n");
    }
    if done.stopped {
        out.push_str("stopped: pages moved so far stay where they are\n");
    }
    out
}

/// How much was not looked at, as a line; empty where that is nothing.
fn reserved(done: &Migration) -> String {
    match done.hugetlb_bytes {
        0 => String::new(),
        bytes => {
            format!("{} in reserved huge pages (hugetlb) not looked at: they are not moved\n", units::bytes(bytes))
        }
    }
}

/// Why pages stayed and what to do; empty where the outcome's name says it.
fn hint(outcome: MoveOutcome) -> &'static str {
    match outcome {
        MoveOutcome::NotPermitted => " (other processes map them too; --shared moves them, with CAP_SYS_NICE)",
        MoveOutcome::NoRoom => " (the target node has no memory available beyond what --keep reserves)",
        MoveOutcome::Busy => " (in use by the kernel; try again)",
        MoveOutcome::Gone => " (freed or swapped out meanwhile)",
        MoveOutcome::Unmovable => " (the kernel's shared zero page, or device memory)",
        MoveOutcome::Moved | MoveOutcome::AlreadyThere | MoveOutcome::Other(_) | MoveOutcome::NotTried => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_moved_before_an_error_is_told() {
        let pages = numapilot_kernel::actuator::PageOutcomes { moved: 1, ..Default::default() };
        let some = Migration { pages, ..Migration::default() };
        assert_eq!([true, false].map(|is_complete| has_account(&some, is_complete)), [true; 2]);
        assert_eq!([true, false].map(|is_complete| has_account(&Migration::default(), is_complete)), [true, false]);
        let shown = as_json(&some, Pid(7), false, Some("process 7 may not be moved"));
        assert_eq!((&shown["pages"]["moved"], &shown["failed"]), (&json!(1), &json!("process 7 may not be moved")));
        assert!(as_json(&some, Pid(7), false, None)["failed"].is_null());
    }

    #[test]
    fn reserved_huge_pages_that_stay_are_told() {
        assert_eq!(reserved(&Migration::default()), "");
        let line = reserved(&Migration { hugetlb_bytes: 6 << 30, ..Migration::default() });
        assert!(line.starts_with("6.00 GiB in reserved huge pages") && line.ends_with('\n'), "{line}");
    }
}
