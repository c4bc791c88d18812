//! `numapilot simulate`: runs a recorded or described program on a simulated machine, under one policy or several.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use numapilot_flows::Instrumentation;
use numapilot_insight::blindness_of;
use numapilot_machine::{Bind, Machine};
use numapilot_placement::{policies, policy_by_name};
use numapilot_report::simulation::{Comparison, OF_ONE_RUN, bars_svg, html, render, series_svg, traffic_svg};
use numapilot_simulator::arrange::{OptimalPlacement, optimal};
use numapilot_simulator::program::Program;
use numapilot_simulator::recorded::{self, RecordedOptions, Repeat};
use numapilot_simulator::{Layout, Options, Progress, Report, Simulation, synthetic};
use numapilot_text::csv::quoted;
use numapilot_text::units::part_percent_to;
use numapilot_trace::meta::Meta;
use serde_json::json;

use crate::args::{SimulateArgs, SimulateBind, SimulateView};
use crate::output;

/// Simulates under each policy in turn and renders the comparison.
pub fn run(arguments: &SimulateArgs) -> Result<()> {
    if arguments.list {
        return list(arguments);
    }
    let Some(input) = &arguments.input else {
        bail!("name a trace or a description (.toml) to simulate, or use --list")
    };
    let is_taken = output::takes_standard_output(&[&arguments.html, &arguments.svg, &arguments.placement])?;
    let specs = split_policies(&arguments.policy);
    if specs.is_empty() {
        bail!("--policy {}: name a policy (`numapilot simulate --list`)", arguments.policy);
    }
    let loaded = load(input, arguments.repeat, arguments.run_for.map(in_ns))?;
    let machine = machine_for(&loaded, arguments.machine.as_deref())?;
    let (mut runs, mut taken_ns) = (Vec::new(), Vec::new());
    for spec in specs {
        let mut report = simulated(&loaded.program, &machine, arguments, (&spec, false))?;
        if arguments.dynamic_work {
            let taken = simulated(&loaded.program, &machine, arguments, (&spec, true))?;
            report.notes.extend(taken_note(&spec, &report, &taken));
            taken_ns.push(taken.finished.then_some(taken.run_time_ns));
        }
        report.policy = spec;
        runs.push(report);
    }
    if let Some(path) = &arguments.placement {
        output::write_file(path, &placement(&runs, &loaded.program))?;
    }
    show(arguments, &machine, (&Comparison::new(&runs), &taken_ns), is_taken)
}

/// The run under a policy; `takes_work`: with all of the work taken by whichever thread is free.
fn simulated(
    program: &Program,
    machine: &Machine,
    arguments: &SimulateArgs,
    (spec, takes_work): (&str, bool),
) -> Result<Report> {
    let bar = progress(arguments.quiet, spec);
    let mut on_step = |progress: Progress| {
        bar.set_position((progress.share * 1000.0) as u64);
        true
    };
    let options = options(arguments, takes_work);
    let report = if spec == OPTIMUM {
        best(program, machine, &options, &mut on_step)?
    } else {
        let mut policy = policy_by_name(spec, machine, arguments.seed)?;
        Simulation::new(program, machine, options)?.run(policy.as_mut(), &mut on_step)?
    };
    bar.finish_and_clear();
    Ok(report)
}

/// What `--dynamic-work` adds to a run: the run time of the other division of work. `None` where a run was ended.
fn taken_note(spec: &str, recorded: &Report, taken: &Report) -> Option<String> {
    (recorded.finished && taken.finished).then(|| {
        format!(
            "{spec}: {:.2} s if each thread does what it did in the recording, {:.2} s if all of the work goes to whichever thread is free. The recording \
             does not show how the program divides its work, so its run time is between the two.",
            recorded.run_time_ns / 1e9,
            taken.run_time_ns / 1e9
        )
    })
}

/// Name of the offline optimum in `--policy`. It is not a policy, because it knows the whole run in advance.
const OPTIMUM: &str = "optimum";
const OPTIMUM_SUMMARY: &str =
    "not a policy: the best static placement found with the whole run known in advance, to compare the policies with";

/// The best static placement: every page where the offline search puts it, from the first touch to the end; or first touch or interleaving, if their
/// simulated run is shorter. The search ignores that threads wait for each other, the simulation does not.
fn best(
    program: &Program,
    machine: &Machine,
    options: &Options,
    on_step: &mut dyn FnMut(Progress) -> bool,
) -> Result<Report> {
    let mut placed = program.clone();
    let found = optimal(&mut placed, machine, options.layout)?;
    let mut best: Option<(Report, &str)> = None;
    let tries = [
        (&placed, "first-touch", "the search"),
        (program, "first-touch", "first touch"),
        (program, "interleave", "interleaving"),
    ];
    for (program, policy, whose) in tries {
        let mut policy = policy_by_name(policy, machine, options.seed)?;
        let run = Simulation::new(program, machine, options.clone())?.run(policy.as_mut(), on_step)?;
        if best.as_ref().is_none_or(|(best, _)| run.run_time_ns < best.run_time_ns) {
            best = Some((run, whose));
        }
    }
    let Some((mut report, whose)) = best else { bail!("no placement was simulated") };
    report.notes.push(optimum_note(&found, whose));
    Ok(report)
}

/// What the optimum is, and what is not sure about it.
fn optimum_note(found: &OptimalPlacement, whose: &str) -> String {
    let budget = if found.out_of_budget { "; the search ended at its limit of evaluations" } else { "" };
    let approximate = if found.is_approximate() {
        format!(
            " The model did not converge for the search's placement (its last step changed a figure by {}): its time is approximate.",
            part_percent_to(found.residual, 2)
        )
    } else {
        String::new()
    };
    format!(
        "The optimum is the best static placement that was found, without moving threads or making copies: here that of {whose}. By the model without \
         synchronisation, the search's placement takes {:.2} s, and no static placement takes less than {:.2} s{budget}.{approximate}",
        found.predicted_s, found.bound_s
    )
}

/// The home node of every page at the end of each run, as CSV: a row for each range of adjacent pages on one node. All figures are simulated.
fn placement(runs: &[Report], program: &Program) -> String {
    let mut text = "policy,process,address,pages,node\n".to_owned();
    for run in runs {
        for row in &run.homes {
            let process = program.processes.get(row.process as usize).map_or("", String::as_str);
            let node = run.nodes.get(row.node.0).map_or_else(String::new, ToString::to_string);
            let fields = [quoted(&run.policy), quoted(process), format!("{:#x}", row.first_page.address())];
            text.push_str(&format!("{},{},{node}\n", fields.join(","), row.pages));
        }
    }
    text
}

/// With the runs, their times where all of the work is taken by whichever thread is free. `is_taken`: one of the files is standard output.
fn show(
    arguments: &SimulateArgs,
    machine: &Machine,
    (comparison, taken_ns): (&Comparison<'_>, &[Option<f64>]),
    is_taken: bool,
) -> Result<()> {
    if let Some(path) = &arguments.html {
        output::write_file(path, &html(comparison, machine))?;
    }
    if let Some(path) = &arguments.svg {
        output::write_file(path, &picture(arguments.view, machine, comparison))?;
    }
    if is_taken {
        return Ok(());
    }
    if arguments.json {
        let gains: Vec<Option<f64>> = (0..comparison.runs.len()).map(|run| comparison.gain(run)).collect();
        let base = &comparison.runs[comparison.base].policy;
        let mut found = json!({
            "simulated": true, "base": base, "gains": gains, "gains_are": OF_ONE_RUN, "runs": comparison.runs,
        });
        if arguments.dynamic_work {
            found["dynamic_run_times_ns"] = json!(taken_ns);
        }
        return output::print_json(&found);
    }
    output::print(&render(comparison, output::look(&arguments.look)))?;
    for (what, path) in
        [("Page", &arguments.html), ("Picture", &arguments.svg), ("Final placement (simulated)", &arguments.placement)]
    {
        if let Some(path) = path {
            output::print(&format!("\n{what}: {}\n", path.display()))?;
        }
    }
    Ok(())
}

fn picture(view: SimulateView, machine: &Machine, comparison: &Comparison<'_>) -> String {
    let last = &comparison.runs[comparison.runs.len() - 1];
    match view {
        SimulateView::Bars => bars_svg(comparison),
        SimulateView::Series => series_svg(comparison),
        SimulateView::Before => {
            traffic_svg(last, machine, last.before.as_ref().unwrap_or(&last.total), &format!("{}, before", last.policy))
        }
        SimulateView::After => traffic_svg(
            last,
            machine,
            last.after.as_ref().unwrap_or(&last.total),
            &format!("{}, at the end", last.policy),
        ),
    }
}

/// A program, and the machine on which it was recorded.
struct Loaded {
    program: Program,
    machine: Option<Machine>,
}

/// The program that a path names: a trace's folder or a description.
fn load(input: &Path, repeat: Option<u32>, run_for_ns: Option<f64>) -> Result<Loaded> {
    let input = &numapilot_trace::name::find(input);
    if input.is_dir() {
        let repeat = match (repeat, run_for_ns) {
            (Some(times), _) => Repeat::Times(times),
            (None, Some(length_ns)) => Repeat::UntilNs(length_ns),
            (None, None) => Repeat::Once,
        };
        let recorded = recorded::load(input, &RecordedOptions { repeat, ..RecordedOptions::default() })?;
        let seen = Meta::read(input).ok().and_then(|meta| Instrumentation::read(&meta.more));
        if let Some(blindness) = seen.as_ref().and_then(blindness_of) {
            bail!("{}: {}", input.display(), blindness.says());
        }
        return Ok(Loaded { program: recorded.program, machine: Some(recorded.machine) });
    }
    if input.extension().is_none_or(|extension| extension != "toml") {
        let what = if input.exists() {
            "neither a trace (a folder NAME.numatrace) nor a description (a file NAME.toml)"
        } else {
            "there is no such trace or description: give the folder NAME.numatrace that `numapilot record` wrote, or a description NAME.toml \
             (docs/simulator.md)"
        };
        bail!("{}: {what}", input.display());
    }
    let mut program = synthetic::load(input)?;
    if let Some(times) = repeat {
        program.repeat = times;
    } else if let Some(length_ns) = run_for_ns.filter(|_| program.body_ns > 0.0) {
        program.repeat = (length_ns / program.body_ns).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
    }
    Ok(Loaded { program, machine: None })
}

/// The machine asked for, else the one on which the program was recorded.
fn machine_for(loaded: &Loaded, asked: Option<&str>) -> Result<Machine> {
    match (asked, &loaded.machine) {
        (Some(name), _) => Machine::load(name).with_context(|| format!("--machine {name}")),
        (None, Some(machine)) => Ok(machine.clone()),
        (None, None) => {
            bail!("a description has no machine of its own: add --machine NAME|FILE (`numapilot topo --list`)")
        }
    }
}

fn in_ns(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn options(arguments: &SimulateArgs, takes_work: bool) -> Options {
    let layout = match arguments.bind {
        SimulateBind::Recorded => Layout::Recorded,
        SimulateBind::Spread => Layout::Ordered(Bind::Spread),
        SimulateBind::Pack => Layout::Ordered(Bind::Pack),
    };
    let defaults = Options::default();
    Options {
        seed: arguments.seed,
        layout,
        series_ns: arguments.series.map_or(defaults.series_ns, in_ns),
        until_ns: arguments.until.map(in_ns),
        takes_work,
        ..defaults
    }
}

/// Splits a list of policies. Commas separate policies and a policy's options alike; a part `KEY=VALUE` without a policy's name belongs to the policy before.
fn split_policies(list: &str) -> Vec<String> {
    let mut specs: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let is_option = part.contains('=')
            && part.find(':').is_none_or(|colon| part.find('=').is_some_and(|equals| equals < colon));
        match specs.last_mut().filter(|last| is_option && last.contains(':')) {
            Some(last) => *last = format!("{last},{part}"),
            None => specs.push(part.to_owned()),
        }
    }
    specs
}

/// A bar on a terminal's standard error; nothing elsewhere.
pub fn progress(quiet: bool, what: &str) -> ProgressBar {
    if output::hides_progress(quiet) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{msg:24} [{bar:40}] {percent:>3} % {eta:>5}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}

fn list(arguments: &SimulateArgs) -> Result<()> {
    if arguments.json {
        let mut all: Vec<_> =
            policies().iter().map(|policy| json!({ "name": policy.name, "summary": policy.summary })).collect();
        all.push(json!({ "name": OPTIMUM, "summary": OPTIMUM_SUMMARY }));
        return output::print_json(&json!(all));
    }
    let look = output::look(&arguments.look);
    let mut text = String::new();
    for policy in policies() {
        text.push_str(&format!("{}  {}\n", look.strong(policy.name), policy.summary));
        for option in policy.options() {
            text.push_str(&format!("    {}={}  {}\n", option.key, option.default, option.help));
        }
    }
    text.push_str(&format!("{}  {OPTIMUM_SUMMARY}\n", look.strong(OPTIMUM)));
    output::print(&text)
}

#[cfg(test)]
mod tests {
    use super::{OptimalPlacement, optimum_note, split_policies};

    /// The optimum's time was told as if the model had converged for it, whether or not it had.
    #[test]
    fn an_optimum_for_which_the_model_did_not_converge_says_so() {
        let found = OptimalPlacement { predicted_s: 2.0, bound_s: 1.5, out_of_budget: false, residual: 0.0 };
        let note = optimum_note(&found, "the search");
        assert!(note.ends_with("no static placement takes less than 1.50 s."), "{note}");
        let note = optimum_note(&OptimalPlacement { residual: 0.031, ..found }, "the search");
        let told = "1.50 s. The model did not converge for the search's placement (its last step changed a figure by 3.10 %): its time is approximate.";
        assert!(note.ends_with(told), "{note}");
    }

    #[test]
    fn a_policys_options_stay_with_it() {
        assert_eq!(split_policies("first-touch, interleave"), ["first-touch", "interleave"]);
        assert_eq!(
            split_policies("carrefour:local-ratio=70,period-ms=500,pilot:replicate=off"),
            ["carrefour:local-ratio=70,period-ms=500", "pilot:replicate=off"]
        );
    }
}
