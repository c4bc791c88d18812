//! `numapilot ctl`: queries and controls a running `balance` through its control socket.

use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use numapilot_balancer::status::ResourcePressure;
use numapilot_balancer::status::State;
use numapilot_balancer::status::Status;
use numapilot_machine::format_cpu_list;
use numapilot_service::Places;
use numapilot_service::SYSTEM_CONTROL;
use numapilot_service::control::Client;
use numapilot_service::control::Report;
use numapilot_service::control::Request;
use numapilot_text::style::Look;
use numapilot_text::style::clean;
use numapilot_text::table::Align;
use numapilot_text::table::Table;
use numapilot_text::units;

use crate::args::CtlArgs;
use crate::args::CtlCommand;
use crate::output;

/// Sends the command to the daemon and prints its answer.
pub fn run(arguments: &CtlArgs) -> Result<()> {
    let socket = arguments.socket.clone().unwrap_or_else(default_socket);
    let request = match arguments.command {
        CtlCommand::Status { watch, json, max_age, ref look } => {
            let look = output::look(look);
            loop {
                show(&socket, json, max_age, look)?;
                let Some(pause) = watch else { return Ok(()) };
                std::thread::sleep(pause);
            }
        }
        CtlCommand::Pause => Request::Pause,
        CtlCommand::Resume => Request::Resume,
        CtlCommand::Reload => Request::Reload,
        CtlCommand::Stop => Request::Stop,
        CtlCommand::Add { pid } => Request::Add { pid },
        CtlCommand::Remove { pid } => Request::Remove { pid },
    };
    let mut is_told = false;
    // Once: it says the same every few seconds.
    let mut tell = |says: &str| {
        if !std::mem::replace(&mut is_told, true) {
            output::tell!("numapilot: {says}");
        }
    };
    let answer = Client::connect(&socket)?.demand_patiently(request, &mut tell)?;
    output::print(&format!("{}\n", clean(&answer.says)))
}

/// The default socket: the system daemon's if only that exists, else this user's own.
pub fn default_socket() -> PathBuf {
    let own = Places::usual().control;
    if !own.exists() && Path::new(SYSTEM_CONTROL).exists() { PathBuf::from(SYSTEM_CONTROL) } else { own }
}

fn show(socket: &Path, json: bool, max_age: Option<Duration>, look: Look) -> Result<()> {
    let answer = Client::connect(socket)?.demand(Request::Status)?;
    let Some(report) = answer.status else { bail!("{}: the answer holds no status", socket.display()) };
    if json {
        output::print(&format!("{}\n", serde_json::to_string(&report).context("JSON")?))?;
    } else {
        output::print(&text(&report, look))?;
    }
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    match max_age.and_then(|max_age| too_old(&report.pilot, max_age, now_ns)) {
        Some(why) => bail!("{}: {why}", socket.display()),
        None => Ok(()),
    }
}

/// Why figures are too old; `None`: they are not, or the first are not due yet, which come an interval after the start.
fn too_old(status: &Status, max_age: Duration, now_ns: u64) -> Option<String> {
    let most_ns = (max_age.as_nanos() as u64).saturating_add(status.interval_ns.saturating_mul(2));
    let age_ns = now_ns.saturating_sub(status.unix_ns);
    let age = units::time_ns(age_ns);
    // Without a time, a loop that starts has not begun yet.
    let has_begun = status.unix_ns > 0 || status.state != State::Starting;
    (has_begun && age_ns > most_ns).then(|| match status.state {
        State::Starting => {
            format!("there are no figures {age} after the start: the balancing loop hangs in its first step, or that takes so long")
        }
        _ => format!("the last figures are {age} old: the balancing loop hangs, or one step of it takes that long"),
    })
}

fn text(report: &Report, look: Look) -> String {
    let status = &report.pilot;
    if status.state == State::Starting {
        let starting = look.strong(status.state.name());
        let due = match status.interval_ns {
            0 => "ask again in a moment".to_owned(),
            interval_ns => format!("the first come {} after the start", units::time_ns(interval_ns)),
        };
        return format!("{starting}, process {}: no figures yet; {due}\n", status.pid);
    }
    let because = if status.because.is_empty() { String::new() } else { format!(" ({})", clean(&status.because)) };
    let dry = if status.dry_run { ", dry run" } else { "" };
    let mut out = format!(
        "{}{because}, policy {}{dry}, process {} for {}\n",
        look.strong(status.state.name()),
        clean(&status.policy),
        status.pid,
        units::time_ns(status.unix_ns.saturating_sub(status.started_unix_ns)),
    );
    if !status.policy_says.is_empty() {
        let _ = writeln!(out, "  policy    {}", clean(&status.policy_says));
    }
    out.push_str(&totals(report));
    out.push_str(&pressure(status));
    for source in status.evidence.iter().filter(|source| source.used) {
        let _ = writeln!(out, "  evidence  {}: {}", clean(&source.name), clean(&source.detail));
    }
    let losses = status.losses.iter().filter(|loss| loss.count > 0).map(|loss| format!("{} {}", loss.count, loss.what));
    let mut losses: Vec<String> = losses.collect();
    if let Some(journal) = &report.journal
        && journal.lost > 0
    {
        losses.push(format!("{} journal lines ({})", journal.lost, journal.trouble));
    }
    if report.clients_refused > 0 {
        losses.push(format!("{} refused clients", report.clients_refused));
    }
    if !losses.is_empty() {
        let _ = writeln!(out, "  lost      {}", clean(&losses.join(", ")));
    }
    out.push_str(&nodes(report, look));
    out.push_str(&targets(report, look));
    out
}

fn totals(report: &Report) -> String {
    let status = &report.pilot;
    let (counters, rates, own) = (&status.counters, &status.rates, &status.own);
    let local = rates.local_share.map(|share| format!(", {} local", units::part_percent(share))).unwrap_or_default();
    format!(
        "  observes  {:.0} samples and {:.0} hinting faults per second, at intervals of {}{local}\n  \
           actions   {} decisions; pages: {} moved, {} stayed, {} moved back ({} copied from node to node); changes: {} kept, {} undone; \
           {} page ranges excluded for moving back and forth\n  \
           costs     {} of a CPU, {} of memory, {} open files\n",
        rates.samples_per_s,
        rates.hint_faults_per_s,
        units::time_ns(status.interval_ns),
        counters.decisions,
        units::count(counters.pages.moved as f64),
        units::count((counters.pages.total() - counters.pages.moved) as f64),
        units::count(counters.pages_undone as f64),
        units::bytes(counters.moved_bytes),
        counters.kept,
        counters.undone,
        counters.ping_pongs,
        units::part_percent_to(own.cpu_percent / 100.0, 2),
        units::bytes(own.resident_bytes),
        own.open_files,
    )
}

/// How long tasks of the system wait for what; empty where that is not counted.
fn pressure(status: &Status) -> String {
    if status.pressure.is_empty() {
        return String::new();
    }
    let share = |one: &ResourcePressure| format!("{} {}", clean(&one.resource), units::part_percent(one.some));
    let shares: Vec<String> = status.pressure.iter().map(share).collect();
    // A dry run moves nothing anyway.
    let is_put_off = status.is_put_off && !status.dry_run;
    let meaning = if is_put_off { "; moves are put off until memory pressure falls" } else { "" };
    format!("  pressure  tasks waited in the last 10 s for {}{meaning}\n", shares.join(", "))
}

fn nodes(report: &Report, look: Look) -> String {
    let mut table = Table::new()
        .column("node", Align::Right)
        .column("memory", Align::Right)
        .column("available", Align::Right)
        .column("local", Align::Right);
    let share = |share: Option<f64>| share.map_or("-".to_owned(), units::part_percent);
    for node in &report.pilot.nodes {
        table.row([
            node.node.to_string(),
            units::bytes(node.memory_bytes),
            node.available_bytes.map_or("-".to_owned(), units::bytes),
            share(node.local_share),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(look, 2)) }
}

fn targets(report: &Report, look: Look) -> String {
    let whose = if report.only_own { " of yours" } else { "" };
    let targets = &report.pilot.targets;
    if targets.is_empty() {
        return format!("\n  no process{whose} is managed\n");
    }
    let mut table = Table::new()
        .column("pid", Align::Right)
        .flexible("name", 8)
        .column("user", Align::Right)
        .column("threads", Align::Right)
        .column("samples", Align::Right)
        .column("local", Align::Right)
        .column("copied", Align::Right);
    for target in targets {
        table.row([
            target.target.pid.to_string(),
            target.target.name.clone(),
            target.target.uid.to_string(),
            target.threads.map_or("-".to_owned(), |threads| threads.to_string()),
            target.samples.map_or("-".to_owned(), |samples| units::count(samples as f64)),
            target.local_share.map_or("-".to_owned(), units::part_percent),
            target.moved_bytes.map_or("-".to_owned(), units::bytes),
        ]);
    }
    let mut out = format!("\n{}", table.render(look, 2));
    for target in targets {
        let pid = target.target.pid;
        if target.chosen_bytes > 0 {
            let bytes = units::bytes(target.chosen_bytes);
            let _ = writeln!(
                out,
                "  process {pid}: {bytes} stay in place: the program has set a memory policy for them (--bound-memory moves them)"
            );
        }
        if target.is_put_off {
            let _ = writeln!(out, "  process {pid}: its pages stay for now: memory pressure is high in its cgroup");
        }
        if !target.forbidden_nodes.is_empty() {
            let nodes = format_cpu_list(target.forbidden_nodes.iter().map(|node| u32::from(node.0)));
            let _ = writeln!(out, "  process {pid}: nothing is moved to nodes {nodes}: its cpuset forbids these nodes");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Ask again in a moment" was said of figures that were due in an hour.
    #[test]
    fn before_the_first_figures_it_is_told_when_they_come() {
        let look = Look { width: 100, colour: false };
        let told = |interval_ns| {
            let pilot = Status { interval_ns, ..Status::default() };
            text(&Report { pilot, ..Report::default() }, look)
        };
        assert!(told(90_000_000_000).ends_with("no figures yet; the first come 1 min 30 s after the start\n"));
        assert!(told(0).ends_with("ask again in a moment\n"));
    }

    #[test]
    fn figures_are_old_after_a_time_and_two_intervals() {
        const SECOND: u64 = 1_000_000_000;
        let status = |state| Status { state, unix_ns: 100 * SECOND, interval_ns: 30 * SECOND, ..Status::default() };
        let after = |state, seconds: u64| too_old(&status(state), Duration::from_secs(10), (100 + seconds) * SECOND);
        assert_eq!((after(State::Running, 0), after(State::Running, 70)), (None, None));
        assert!(after(State::Idle, 71).is_some_and(|why| why.contains("1 min 11 s old")));
        // A loop that hung in its first step was never found to.
        assert_eq!(after(State::Starting, 70), None, "the first are not due yet");
        assert!(after(State::Starting, 71).is_some_and(|why| why.contains("no figures 1 min 11 s after the start")));
        let unknown = Status { unix_ns: 0, ..status(State::Starting) };
        assert_eq!(too_old(&unknown, Duration::ZERO, 1000 * SECOND), None, "it has not begun");
        assert_eq!(too_old(&status(State::Running), Duration::ZERO, 0), None, "a clock that was set back");
    }

    #[test]
    fn pressure_puts_nothing_off_in_a_dry_run_which_moves_nothing_anyway() {
        let memory = ResourcePressure { resource: "memory".to_owned(), some: 0.5, full: None };
        let told = |dry_run| {
            let resources = vec![memory.clone()];
            pressure(&Status { dry_run, is_put_off: true, pressure: resources, ..Status::default() })
        };
        let waited = "  pressure  tasks waited in the last 10 s for memory 50.0 %";
        assert_eq!(told(true), format!("{waited}\n"));
        assert_eq!(told(false), format!("{waited}; moves are put off until memory pressure falls\n"));
    }
}
