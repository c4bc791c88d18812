//! `numapilot balance`: runs the balancing loop, which signals control, and prints its events as text or JSON.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use numapilot_balancer::balancing_loop::Balancer;
use numapilot_balancer::balancing_loop::BalancerError;
use numapilot_balancer::balancing_loop::Options;
use numapilot_balancer::balancing_loop::Tunables;
use numapilot_balancer::balancing_loop::Who;
use numapilot_balancer::control_port::ControlPort;
use numapilot_balancer::event::Action;
use numapilot_balancer::event::Decision;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Sink;
use numapilot_balancer::event::Stop;
use numapilot_balancer::event::by_group;
use numapilot_balancer::evidence::estimate;
use numapilot_balancer::packer::Packer;
use numapilot_balancer::status::Command;
use numapilot_balancer::status::Status;
use numapilot_balancer::status::Steering;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::inherited;
use numapilot_launch::signals;
use numapilot_launch::signals::Guard;
use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_replica::mappings::Mappings;
use numapilot_replica::mappings::Preload;
use numapilot_replica::mappings::Rules;
use numapilot_service::Places;
use numapilot_service::config::MetricsSettings;
use numapilot_service::control::ControlSettings;
use numapilot_service::daemon::DaemonSettings;
use numapilot_service::journal::JournalSettings;
use numapilot_service::served::LocalPort;
use numapilot_service::served::Plan;
use numapilot_service::served::Served;
use numapilot_service::served::interval;
use numapilot_text::style::clean;
use numapilot_text::units;

use super::group::group;
use super::group::require_memory;
use super::model::with_figures;
use super::not_started::not_started;
use crate::args::BalanceArgs;
use crate::output;
use crate::output::tell;

/// Page faults show which threads use a page, not how often, so access rates are assumed. A predicted gain of a few per cent is within the error of that
/// assumption. So `pilot` gets this minimum gain (%), unless the user sets another.
const MIN_GAIN_PERCENT: &str = "4";

/// The policy's name and options, with the minimum gain that suits evidence without rates, and the bound on its memory that the table of pages has.
fn for_this_loop(policy: &str, table_pages: usize) -> String {
    let (name, options) = policy.split_once(':').unwrap_or((policy, ""));
    if name.trim() != "pilot" {
        return policy.to_owned();
    }
    let has =
        |key: &str| options.split(',').any(|option| option.split('=').next().is_some_and(|name| name.trim() == key));
    let bound = (!has("table-pages")).then(|| format!("table-pages={}", table_pages.clamp(1, 1 << 40)));
    let gain = (!has("min-gain")).then(|| format!("min-gain={MIN_GAIN_PERCENT}"));
    let own = (!options.trim().is_empty()).then(|| options.to_owned());
    let options: Vec<String> = own.into_iter().chain(gain).chain(bound).collect();
    format!("pilot:{}", options.join(","))
}

/// Why a policy is refused that needs page tables and accessed bits, which only a kernel reads.
const MODEL_OF_THE_KERNEL: &str = "--policy POLICY is a model of what the kernel does itself, for `numapilot simulate`. Here, turn on the kernel's own \
    (`sysctl kernel.numa_balancing=2` with `echo 1 > /sys/kernel/mm/numa/demotion_enabled`, or DAMON's schemes by damo), or take --policy tiering or pilot";

/// Runs the balancing loop. Returns the program's exit status if one was started.
pub fn run(arguments: &BalanceArgs) -> Result<ExitCode> {
    let plan = match &arguments.service.config {
        Some(file) => Plan::of_config(file, arguments.dry_run, arguments.until)?,
        None => plan_of(arguments, options(arguments)?),
    };
    let (machine, notes) = machine(plan.machine.as_deref())?;
    let copies = arguments.replicate.then(|| Mappings::prepare(Rules { by_order: true, ..Rules::default() }));
    let copies = copies.transpose().context("--replicate")?;
    let preload = copies.as_ref().map(Preload::of);
    let mut runner: Box<dyn Runner> = if plan.pack {
        Box::new(Packer::new(machine, plan.options.clone())?)
    } else {
        let policy = policy_by_name(
            &for_this_loop(&plan.options.policy, plan.options.table_pages),
            &machine,
            plan.options.seed,
        )?;
        if policy.requirements().homes {
            bail!(MODEL_OF_THE_KERNEL.replace("POLICY", policy.name()));
        }
        let balancer = Balancer::new(machine, policy, plan.options.clone(), &notes)?;
        match copies {
            Some(copies) => Box::new(balancer.with_copies(copies)),
            None => Box::new(balancer),
        }
    };
    let signals = Guard::install()?;
    let printer = EventPrinter {
        signals,
        child: None,
        pending: VecDeque::new(),
        json: arguments.json,
        quiet: arguments.quiet,
        line: 0,
        verbose: arguments.verbose,
        last_status: String::new(),
    };
    let is_of_pages = !plan.pack;
    let mut port = Served::start(printer, plan, signals::wake)?;
    if let Err(error) = runner.begin(&mut port) {
        port.end();
        return Err(error.into());
    }
    if !arguments.command.is_empty() {
        match start(&arguments.command, preload.as_ref(), &port.inner.signals) {
            Ok(child) => {
                runner.child(Pid::of_child(&child));
                port.inner.child = Some(child);
            }
            Err(error) => {
                runner.give_up("the program could not be started", &mut port);
                port.end();
                return Err(error);
            }
        }
    }
    let stop = runner.run(&mut port);
    port.end();
    let is_told = !arguments.json && !arguments.quiet;
    let printed = if is_told { output::print(&summary(&stop, is_of_pages)) } else { Ok(()) };
    let code = port.inner.exit_code()?;
    // The program's own status says more than that nobody reads ours.
    if port.inner.child.is_none() {
        printed?;
    }
    Ok(code)
}

/// What a run without a configuration file is to do.
fn plan_of(arguments: &BalanceArgs, options: Options) -> Plan {
    let service = &arguments.service;
    let metrics = |listen| MetricsSettings { listen, allow_remote: false, per_process: false };
    // What a dry run would change is not changed: nothing has to be kept.
    let state = (!options.dry_run).then(|| service.state_dir.clone().unwrap_or_else(|| Places::usual().state));
    let daemon = DaemonSettings {
        journal: service.journal.clone().map(JournalSettings::new),
        control: service.control.clone().map(|path| ControlSettings { path, mode: 0o666 }),
        metrics: service.metrics.clone().map(metrics),
        state,
        needs_state: service.state_dir.is_some(),
    };
    Plan::new(options, arguments.machine.clone(), arguments.pack, daemon)
}

/// A control loop that manages processes: the balancer places pages, the packer whole processes.
trait Runner {
    /// Changes the settings that the loop needs, before its first observation.
    fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError>;
    /// Manages the process that was started, by its process ID.
    fn child(&mut self, pid: Pid);
    /// Ends without running, and undoes what `begin` changed.
    fn give_up(&mut self, because: &str, control_port: &mut dyn ControlPort);
    /// Runs until it is stopped, its time is over or its processes have ended.
    fn run(&mut self, control_port: &mut dyn ControlPort) -> Stop;
}

impl Runner for Balancer {
    fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError> {
        Balancer::begin(self, control_port)
    }

    fn child(&mut self, pid: Pid) {
        // A child that has ended already cannot be managed: the loop then ends at once.
        let _ = Balancer::child(self, pid);
    }

    fn give_up(&mut self, because: &str, control_port: &mut dyn ControlPort) {
        Balancer::give_up(self, because, control_port);
    }

    fn run(&mut self, control_port: &mut dyn ControlPort) -> Stop {
        Balancer::run(self, control_port)
    }
}

impl Runner for Packer {
    fn begin(&mut self, control_port: &mut dyn ControlPort) -> Result<(), BalancerError> {
        Packer::begin(self, control_port)
    }

    fn child(&mut self, pid: Pid) {
        Packer::child(self, pid);
    }

    fn give_up(&mut self, because: &str, control_port: &mut dyn ControlPort) {
        Packer::end(self, because.to_owned(), control_port);
    }

    fn run(&mut self, control_port: &mut dyn ControlPort) -> Stop {
        Packer::run(self, control_port)
    }
}

/// This machine, completed with the figures that the traffic model needs, and notes on which of them are assumed or taken from a model.
fn machine(name: Option<&str>) -> Result<(Machine, Vec<String>)> {
    let live = Machine::live().context("this machine's topology")?;
    let Some(name) = name else {
        return Ok(estimate::completed(&live)?);
    };
    let (whole, mut notes) = estimate::completed(&with_figures(&live, name)?)?;
    notes.push(format!("latencies, bandwidths and links are those of model {name}"));
    Ok((whole, notes))
}

fn options(arguments: &BalanceArgs) -> Result<Options> {
    require_memory(&Root::default(), &arguments.pids)?;
    let who = match group(&Root::default(), &arguments.pids, &arguments.group, arguments.quiet)? {
        Some(group) => Who::Group(group),
        None if arguments.system => Who::System,
        None => Who::Child,
    };
    Ok(Options {
        who,
        policy: arguments.policy.clone(),
        tunables: Tunables {
            max_harm: arguments.max_harm,
            interval: interval(arguments.pack, arguments.interval),
            bytes_per_s: arguments.rate,
            keep_bytes: arguments.keep,
            max_pressure: arguments.max_pressure,
        },
        dry_run: arguments.dry_run,
        steers_scanning: !arguments.keep_settings,
        probes: !arguments.no_probes,
        samples: !arguments.no_samples,
        moves_bound: arguments.bound_memory,
        table_pages: arguments.table_pages,
        until: arguments.until,
        seed: arguments.seed,
    })
}

/// Starts the program that the loop manages, with the signal dispositions as they were before the loop changed them.
fn start(words: &[OsString], copies: Option<&Preload>, signals: &Guard) -> Result<Child> {
    let mut command = std::process::Command::new(&words[0]);
    // The daemon ignores SIGXFSZ, so that a file-size limit on its journal does not kill it, and SIGPIPE.
    inherited::restored(command.args(&words[1..]));
    if let Some(copies) = copies {
        copies.apply(&mut command);
    }
    let replaced = signals.replaced();
    // SAFETY: between fork and exec only signal(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for signal in &replaced {
                libc::signal(*signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command.spawn().map_err(|error| not_started(words, error))
}

/// Turns signals into commands for the loop, and prints the loop's events.
struct EventPrinter {
    signals: Guard,
    child: Option<Child>,
    pending: VecDeque<Command>,
    json: bool,
    quiet: bool,
    line: u64,
    verbose: bool,
    /// The policy's status text that was printed last.
    last_status: String,
}

impl EventPrinter {
    /// Waits for the program's end, and returns its exit status; success if no program was started.
    fn exit_code(&mut self) -> Result<ExitCode> {
        let Some(child) = &mut self.child else { return Ok(ExitCode::SUCCESS) };
        let status = child.wait().context("waiting for the program")?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }

    /// Forwards signals to the program if there is one; the loop then runs until the program ends. Otherwise SIGHUP reloads, and other signals stop the loop.
    fn handle_signals(&mut self) {
        for arrived in self.signals.arrived() {
            match &self.child {
                Some(child) => {
                    if arrived.forward {
                        // SAFETY: sends a signal to our own child, which has not been waited for.
                        unsafe { libc::kill(child.id().cast_signed(), arrived.signal) };
                    }
                }
                None if arrived.signal == libc::SIGHUP => self.pending.push_back(Command::Reload),
                None => self.pending.push_back(Command::Stop),
            }
        }
    }
}

impl Sink for EventPrinter {
    fn record(&mut self, event: Event) {
        let text = if self.json {
            let entry = numapilot_balancer::event::Entry {
                v: numapilot_balancer::event::VERSION,
                line: self.line,
                unix_ns: std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |since| since.as_nanos() as u64),
                event,
            };
            self.line += 1;
            serde_json::to_string(&entry).ok().map(|line| line + "\n")
        } else if self.quiet {
            None
        } else {
            shown(&event)
        };
        // The reader may have closed the pipe; the loop continues without it.
        match (text, self.json) {
            (Some(text), true) => drop(output::print(&text)),
            (Some(text), false) => drop(std::io::stderr().write_all(text.as_bytes())),
            _ => {}
        }
    }
}

impl LocalPort for EventPrinter {
    fn next(&mut self, wait: Duration) -> Option<Steering> {
        if self.pending.is_empty() {
            self.signals.wait(wait);
            self.handle_signals();
        }
        self.pending.pop_front().map(|command| Steering { command, by_uid: None, answer: None })
    }

    fn status(&mut self, status: Status) {
        if self.verbose && status.policy_says != self.last_status {
            tell!("numapilot: {}: {}", status.policy, status.policy_says);
            self.last_status = status.policy_says;
        }
    }
}

/// An event for the terminal; `None` for events that are in the journal only. Any user chooses the names of processes in it.
fn shown(event: &Event) -> Option<String> {
    let text = line(event)?;
    Some(format!("numapilot: {}\n", text.lines().map(clean).collect::<Vec<_>>().join("\n")))
}

/// The line of text for an event; `None` for events that are in the journal only.
fn line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Start(start) => {
            let assumed: Vec<&str> =
                start.evidence.iter().filter(|source| !source.used).map(|source| source.detail.as_str()).collect();
            let dry = if start.dry_run { " (dry run: nothing is moved)" } else { "" };
            let targets = units::counted(start.targets.len() as u64, "process", "processes");
            let head = format!("policy {}, {targets}{dry}", start.policy);
            std::iter::once(head.as_str()).chain(assumed).collect::<Vec<_>>().join("; ")
        }
        Event::Decision(decision) => decision_line(decision),
        Event::Action(action) => action_line(action),
        Event::Comparison(comparison) => {
            let decisions: Vec<String> = comparison.decisions.iter().map(u64::to_string).collect();
            let (measure, verdict) = (&comparison.measure, comparison.verdict.word());
            let change = match comparison.change() {
                Some(change) => format!("{measure} {change} with the changes"),
                None => format!("{measure} not compared, because there were too few windows"),
            };
            let because = match comparison.because.as_str() {
                "" => String::new(),
                because => format!(": {because}"),
            };
            format!("decisions {}: {verdict}: {change}{because}", decisions.join(", "))
        }
        Event::Copies(copies) => {
            let describe = |one: &numapilot_balancer::event::CopyTold| {
                let node = one.node.map_or_else(String::new, |node| format!(" node {node}"));
                let because = if one.because.is_empty() { String::new() } else { format!(" ({})", one.because) };
                format!("{} {}{node}{because}", one.pid, one.done.word())
            };
            let outcomes: Vec<String> = copies.processes.iter().map(describe).collect();
            format!("copies of {}: {}", copies.file, outcomes.join(", "))
        }
        Event::PingPong(page) => {
            format!(
                "{} pages of process {} at {:#x} are not moved for now, because they moved back and forth",
                page.pages, page.pid, page.first
            )
        }
        Event::Pressure(pressure) => pressure.words(),
        Event::Setting(setting) => {
            format!("{}: {} to {} ({})", setting.name, setting.was, setting.now, setting.done.words())
        }
        Event::Targets(targets) => {
            let named = |what: &str, list: &[numapilot_balancer::event::Target]| {
                let names: Vec<String> =
                    list.iter().map(|target| format!("{} ({})", target.pid, target.name)).collect();
                (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
            };
            let changes = [named("added", &targets.added), named("removed", &targets.removed)];
            let changes: Vec<String> = changes.into_iter().flatten().collect();
            format!("{}: {}", changes.join("; "), targets.because)
        }
        Event::Losses(losses) => {
            let lost: Vec<String> = losses.lost.iter().map(|loss| format!("{} {}", loss.count, loss.what)).collect();
            format!("lost: {}", lost.join(", "))
        }
        Event::Trouble(trouble) => trouble.what.clone(),
        _ => return None,
    })
}

fn decision_line(decision: &Decision) -> String {
    let held =
        if decision.held_back.is_empty() { String::new() } else { format!(", held back: {}", decision.held_back) };
    let (pages, bytes) = (decision.pages, units::bytes(decision.bytes));
    let threads = match decision.threads {
        0 => String::new(),
        threads => format!(", {}", units::counted(threads, "thread", "threads")),
    };
    format!("decision {}: {pages} pages ({bytes}){threads}{held}: {}", decision.decision, decision.because)
}

fn action_line(action: &Action) -> String {
    let counts = by_group(&action.pages).into_iter().filter(|(_, count)| *count > 0);
    let pages = counts.map(|(name, count)| format!("{count} {name}"));
    let threads =
        (action.threads_moved > 0).then(|| units::counted(action.threads_moved, "thread moved", "threads moved"));
    let done: Vec<String> = pages.chain(threads).collect();
    let done = if done.is_empty() { "nothing".to_owned() } else { done.join(", ") };
    let verb = if action.undo { "undone" } else { "done" };
    format!("decision {}: {verb}: {done} in {}", action.decision, units::time_ns(action.took_ns))
}

/// The last line of a run. `is_of_pages`: it placed pages, by their uses, and not whole processes.
fn summary(stop: &Stop, is_of_pages: bool) -> String {
    let counters = &stop.counters;
    let uses = counters.samples + counters.hint_faults + counters.file_uses;
    let unseen = if is_of_pages && uses == 0 { ", so what moves would gain is not known" } else { "" };
    let pages = by_group(&counters.pages);
    let pages: Vec<String> =
        pages.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    let pages = if pages.is_empty() { "none moved by numapilot".to_owned() } else { pages.join(", ") };
    let kernel = match counters.kernel_moved_bytes {
        None => "how much the kernel's NUMA balancing moved is not known".to_owned(),
        Some(0) => "the kernel's NUMA balancing moved none".to_owned(),
        Some(bytes) => {
            format!("the kernel's NUMA balancing moved {} on this machine in that time", units::bytes(bytes))
        }
    };
    format!(
        "{}: {} observation{}, {uses} page uses observed ({} lost){unseen}, {} decisions; pages: {pages}; {} moved by numapilot in all, {} pages moved back; \
         {kernel}; {} threads moved; numapilot itself used {} of processor time and {} of memory\n",
        stop.because,
        counters.observations,
        if counters.observations == 1 { "" } else { "s" },
        counters.samples_lost,
        counters.decisions,
        units::bytes(counters.moved_bytes),
        counters.pages_undone,
        counters.threads_moved,
        units::time_ns(stop.own.cpu_ns),
        units::bytes(stop.own.resident_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_moved_is_told_beside_what_we_moved() {
        let said = |kernel_moved_bytes: Option<u64>| {
            let counters = numapilot_balancer::status::Counters { kernel_moved_bytes, ..Default::default() };
            summary(&Stop { because: "the time is over".to_owned(), counters, own: Default::default() }, false)
        };
        let moved = said(Some(34 << 20));
        assert!(moved.contains("pages: none moved by numapilot;"), "{moved}");
        let once = numapilot_balancer::status::Counters { observations: 1, ..Default::default() };
        let once = Stop { because: "the time is over".to_owned(), counters: once, own: Default::default() };
        let once = summary(&once, true);
        assert!(
            once.contains("the time is over: 1 observation, 0 page uses") && moved.contains(": 0 observations, "),
            "{once}{moved}"
        );
        assert!(moved.contains("the kernel's NUMA balancing moved 34.0 MiB on this machine in that time"), "{moved}");
        assert!(said(Some(0)).contains("the kernel's NUMA balancing moved none"), "{}", said(Some(0)));
        assert!(said(None).contains("is not known"), "{}", said(None));
    }

    /// A run that saw nothing, for want of samples and faults, read as one with nothing to gain.
    #[test]
    fn a_run_that_saw_no_use_of_a_page_says_that_it_knows_nothing() {
        let said = |samples: u64, is_of_pages: bool| {
            let counters = numapilot_balancer::status::Counters { samples, ..Default::default() };
            summary(&Stop { because: "the end".to_owned(), counters, own: Default::default() }, is_of_pages)
        };
        assert!(said(0, true).contains("0 page uses observed (0 lost), so what moves would gain is not known, 0 dec"));
        assert!(!said(7, true).contains("not known,") && !said(0, false).contains("not known,"));
    }

    /// With `--system`, whoever started a process could give it a name that does something to the terminal of root.
    #[test]
    fn names_of_processes_do_not_talk_to_the_terminal() {
        use numapilot_balancer::event::{Target, Targets};
        let target = Target { pid: Pid(7), start_ticks: 1, uid: 1000, name: "\u{1b}]0;owned\u{7}".to_owned() };
        let targets = Targets { added: vec![target], removed: Vec::new(), because: "found".to_owned() };
        let told = shown(&Event::Targets(targets)).unwrap();
        assert!(told.starts_with("numapilot: added 7 (") && told.ends_with("owned\\u{7}): found\n"), "{told:?}");
        assert!(!told.contains(['\u{1b}', '\u{7}']), "{told:?}");
    }

    #[test]
    fn small_gains_of_assumed_rates_are_asked_for_by_users_only_and_memory_is_bounded() {
        let full = |policy: &str| for_this_loop(policy, 1024);
        assert_eq!(full("pilot"), "pilot:min-gain=4,table-pages=1024");
        assert_eq!(full("pilot:patience=1"), "pilot:patience=1,min-gain=4,table-pages=1024");
        assert_eq!(full("pilot:min-gain=0.5"), "pilot:min-gain=0.5,table-pages=1024");
        assert_eq!(full("pilot: table-pages=0 ,min-gain=1"), "pilot: table-pages=0 ,min-gain=1");
        assert_eq!(full("carrefour:gate=1"), "carrefour:gate=1");
        assert_eq!(for_this_loop("pilot:min-gain=1", 0), "pilot:min-gain=1,table-pages=1", "0 would be no bound");
        let machine = Machine::load("opteron-8385").unwrap();
        assert!(policy_by_name(&full("pilot"), &machine, 1).is_ok());
    }
}
