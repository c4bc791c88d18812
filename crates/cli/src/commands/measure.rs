//! `numapilot measure`: measures this machine's memory system, and writes a machine model of it.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use numapilot_machine::{CpuId, Machine, NodeId, parse_cpu_list};
use numapilot_measure::{
    Calibration, Isa, Kernel, Options, Order, Pages, Part, Permit, Plan, Progress, Results, Task, calibrate, model_text,
};
use numapilot_report::measure::{Picture, html, render, svg, walk_words};
use numapilot_text::units;

use crate::args::{MeasureArgs, MeasureIsa, MeasureOrder, MeasurePages, MeasurePart, MeasurePicture};
use crate::output;

/// Plans the measurements, runs them, and writes the results.
pub fn run(arguments: &MeasureArgs) -> Result<()> {
    let is_taken = output::takes_standard_output(&[&arguments.model, &arguments.html, &arguments.svg])?;
    let machine = Machine::live()?;
    let permit = Permit::of_this_process();
    let options = options(arguments)?;
    let plan = Plan::new(&machine, &permit, &options)?;
    if arguments.dry_run {
        return output::print(&plan_text(&plan));
    }
    if arguments.model.is_some() && !options.parts.is_superset(&[Part::Latency, Part::Bandwidth].into()) {
        bail!("--model needs latency and bandwidth: leave --only out, or name both");
    }
    let bar = progress(arguments.quiet);
    let mut on_step = |step: Progress| {
        bar.set_length(step.of as u64);
        bar.set_position(step.done as u64);
        bar.set_message(step.now);
    };
    let results = numapilot_measure::run(&machine, &permit, &options, &plan, &mut on_step);
    bar.finish_and_clear();
    let results = results?;
    let calibration = arguments.model.as_ref().map(|_| calibrate(&machine, &results)).transpose()?;
    if let (Some(path), Some(calibration)) = (&arguments.model, &calibration) {
        let text = model_text(&machine, &results, calibration, &arguments.name);
        // Check that the model can be read back before it is written.
        Machine::from_model_text(&text, &path.display().to_string())?;
        output::write_file(path, &text)?;
    }
    show(arguments, &results, calibration.as_ref(), is_taken)
}

/// `is_taken`: one of the files is standard output.
fn show(arguments: &MeasureArgs, results: &Results, calibration: Option<&Calibration>, is_taken: bool) -> Result<()> {
    if let Some(path) = &arguments.html {
        output::write_file(path, &html(results, calibration))?;
    }
    if let Some(path) = &arguments.svg {
        let picture = picture(arguments.picture);
        let drawn = svg(picture, results);
        let drawn = drawn
            .with_context(|| format!("nothing was measured for the picture `{}`; leave --only out", picture.title()))?;
        output::write_file(path, &drawn)?;
    }
    let files = [("Model", &arguments.model), ("Page", &arguments.html), ("Picture", &arguments.svg)];
    if is_taken {
        return Ok(());
    }
    if arguments.json {
        let mut value = serde_json::to_value(results).context("JSON")?;
        value["calibration"] = calibration.map_or(serde_json::Value::Null, fitted);
        return output::print_json(&value);
    }
    output::print(&render(results, calibration, output::look(&arguments.look)))?;
    for (what, path) in files {
        if let Some(path) = path {
            output::print(&format!("{what}: {}\n", path.display()))?;
        }
    }
    Ok(())
}

/// The fit as JSON: tables with pairs as keys become lists.
fn fitted(calibration: &Calibration) -> serde_json::Value {
    let controllers =
        calibration.controllers.iter().map(|(node, limit)| serde_json::json!({ "node": node, "limit": limit }));
    let ports = calibration.read_ports.iter().map(|(node, limit)| serde_json::json!({ "node": node, "limit": limit }));
    let links = calibration
        .links
        .iter()
        .map(|((from, to), limit)| serde_json::json!({ "from": from, "to": to, "limit": limit }));
    serde_json::json!({
        "controllers": controllers.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "read_ports": ports.collect::<Vec<_>>(),
        "stream_outstanding": calibration.stream_outstanding,
        "write_turnaround": calibration.write_turnaround,
        "crowding": calibration.crowding,
        "fits": calibration.fits,
        "queueing_delay": calibration.queueing_delay,
    })
}

fn progress(quiet: bool) -> ProgressBar {
    if output::hides_progress(quiet) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn options(arguments: &MeasureArgs) -> Result<Options> {
    let mut options = Options {
        full: arguments.full,
        budget: arguments.budget,
        cpu_nodes: nodes(arguments.cpu_nodes.as_deref(), "--cpu-nodes")?,
        memory_nodes: nodes(arguments.nodes.as_deref(), "--nodes")?,
        cpus: list(arguments.cpus.as_deref(), "--cpus")?.into_iter().map(CpuId).collect(),
        size_bytes: arguments.size,
        stride_bytes: arguments.stride,
        seed: arguments.seed,
        weights: arguments.weights.as_deref().map(weights).transpose()?.unwrap_or_default(),
        load_kernel: Kernel::from_word(&arguments.load).unwrap_or(Kernel::Read),
        ..Options::default()
    };
    if !arguments.only.is_empty() {
        options.parts = arguments.only.iter().map(|part| self::part(*part)).collect();
    }
    options.pages = match arguments.pages {
        MeasurePages::Base => Pages::Base,
        MeasurePages::Large => Pages::Large,
        MeasurePages::Huge => Pages::Huge,
    };
    options.order = match arguments.order {
        MeasureOrder::Random => Order::Random,
        MeasureOrder::Page => Order::Page,
    };
    options.isa = arguments.isa.map(|isa| match isa {
        MeasureIsa::Portable => Isa::Portable,
        MeasureIsa::Avx2 => Isa::Avx2,
        MeasureIsa::Avx512 => Isa::Avx512,
        MeasureIsa::Neon => Isa::Neon,
        MeasureIsa::Sve => Isa::Sve,
    });
    Ok(options)
}

fn part(part: MeasurePart) -> Part {
    match part {
        MeasurePart::Latency => Part::Latency,
        MeasurePart::Caches => Part::Caches,
        MeasurePart::Bandwidth => Part::Bandwidth,
        MeasurePart::Loaded => Part::Loaded,
        MeasurePart::Handoff => Part::Handoff,
    }
}

fn picture(picture: MeasurePicture) -> Picture {
    match picture {
        MeasurePicture::Staircase => Picture::Staircase,
        MeasurePicture::Latency => Picture::Latency,
        MeasurePicture::Bandwidth => Picture::Bandwidth,
        MeasurePicture::Loaded => Picture::Loaded,
        MeasurePicture::Handoff => Picture::Handoff,
    }
}

fn list(text: Option<&str>, option: &str) -> Result<Vec<u32>> {
    text.map(parse_cpu_list).transpose().with_context(|| option.to_owned()).map(Option::unwrap_or_default)
}

fn nodes(text: Option<&str>, option: &str) -> Result<BTreeSet<NodeId>> {
    let numbers = list(text, option)?;
    let node =
        |number: u32| u16::try_from(number).map(NodeId).with_context(|| format!("{option}: there is no node {number}"));
    numbers.into_iter().map(node).collect()
}

/// Parses weights of nodes, such as `0:3,1:1`.
fn weights(text: &str) -> Result<Vec<(NodeId, u32)>> {
    let pair = |pair: &str| {
        let (node, weight) = pair.split_once(':')?;
        Some((NodeId(node.trim().parse().ok()?), weight.trim().parse().ok()?))
    };
    let pairs: Option<Vec<(NodeId, u32)>> = text.split(',').map(pair).collect();
    pairs.with_context(|| format!("--weights {text}: write NODE:WEIGHT,... such as 0:3,1:1"))
}

/// The plan as text: for each memory node, the measurements, their CPUs and their estimated times.
fn plan_text(plan: &Plan) -> String {
    let mut out = format!("The measurements take about {:.0} s.\n", plan.estimate().as_secs_f64());
    for group in &plan.groups {
        let _ = match &group.target {
            Some(target) => writeln!(
                out,
                "\nMemory on {target}: {} for chases, {} for arrays",
                units::bytes(group.chase_bytes as u64),
                units::bytes(3 * group.array_bytes as u64)
            ),
            None => writeln!(out, "\nBetween CPUs"),
        };
        for step in &group.steps {
            let _ = writeln!(out, "  {:>6.2} s  {}", step.time.as_secs_f64(), task(&step.task));
        }
    }
    for note in plan.notes.iter().chain(&plan.left_out) {
        let _ = writeln!(out, "! {note}");
    }
    out
}

fn task(task: &Task) -> String {
    match task {
        Task::Latency { from, cpu, walk } => format!("latency from CPU {cpu} of node {from}, {}", walk_words(*walk)),
        Task::Stairs { cpu, walk, sizes, .. } => {
            format!("cache steps of CPU {cpu}, {} sizes, {}", sizes.len(), walk_words(*walk))
        }
        Task::Bandwidth { from, cpus, kernel } => {
            format!("bandwidth of `{}` on {} CPUs of node {from}", kernel.word(), cpus.len())
        }
        Task::Loaded { from, cpu, neighbours, shares } => format!(
            "latency from CPU {cpu} of node {from}, while {} other CPUs load the memory, at {} levels of load",
            neighbours.len(),
            shares.len()
        ),
        Task::Handoff { a, b, relation } => format!("hand-off between CPUs {a} and {b}, {}", relation.words()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_pairs() {
        assert_eq!(weights("0:3, 1:1").expect("pairs"), [(NodeId(0), 3), (NodeId(1), 1)]);
        for wrong in ["", "0", "0:x", "0:1,", "70000:1"] {
            assert!(weights(wrong).is_err(), "{wrong}");
        }
    }
}
