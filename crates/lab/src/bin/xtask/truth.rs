//! Output of the exact counts of a lab's command: a file, and a short summary.

use std::fs;
use std::path::Path;

use anyhow::Context;
use numapilot_lab::Topology;
use numapilot_lab::Truth;
use numapilot_machine::Machine;
use numapilot_traffic::Core;
use numapilot_traffic::MemorySystem;
use numapilot_traffic::Solver;
use numapilot_traffic::phase_time_s;
use serde_json::json;

/// Default clock in MHz, for a model without one.
const CLOCK_MHZ: f64 = 2_500.0;
/// An out-of-order core's misses that overlap, for an unknown program: between a chase (1) and a stream (10 and more).
const OUTSTANDING: f64 = 2.0;

/// How long each region would take on a machine, by the traffic model: one instruction per cycle beside the misses.
pub struct Modelled {
    machine: String,
    system: MemorySystem,
    core: Core,
    /// Modelled seconds of each region; filled by [`Modelled::price`].
    seconds: Vec<f64>,
    /// How far the model was from converging for the worst of them, 0 where it did for all.
    residual: f64,
}

impl Modelled {
    /// On this machine, a model's name or file, which must have as many nodes as the guest: said before that has run for long.
    pub fn on(model: &str, topology: &Topology) -> anyhow::Result<Modelled> {
        let machine = Machine::load(model)?;
        let system = MemorySystem::new(&machine)?;
        let (has, guest) = (system.nodes(), topology.nodes());
        anyhow::ensure!(has == guest, "{model} has {has} nodes, but the guest has {guest}: give --nodes {has}");
        let instructions_per_s = machine.clock_mhz().unwrap_or(CLOCK_MHZ) * 1e6;
        let core = Core { instructions_per_s, outstanding: OUTSTANDING };
        Ok(Modelled { machine: model.to_owned(), system, core, seconds: Vec::new(), residual: 0.0 })
    }

    /// Prices what was counted.
    pub fn price(&mut self, truth: &Truth, topology: &Topology) -> anyhow::Result<()> {
        let mut solver = Solver::default();
        for region in 0..truth.regions.len() {
            let work = truth.work(region, topology);
            let time = phase_time_s(&self.system, &mut solver, &work, self.core)?;
            self.seconds.push(time.seconds);
            self.residual = self.residual.max(time.residual);
        }
        Ok(())
    }
}

/// Writes the counts, and what was modelled of them, whole or not at all.
pub fn write(path: &Path, truth: &Truth, modelled: Option<&Modelled>) -> anyhow::Result<()> {
    let mut all = truth.to_json();
    if let Some(modelled) = modelled {
        all["modelled"] = json!({
            "what": "modelled time of each region by the traffic model, not measured",
            "machine": modelled.machine,
            "instructions_per_s": modelled.core.instructions_per_s,
            "outstanding": modelled.core.outstanding,
            "seconds_by_region": modelled.seconds,
            "converged": modelled.residual == 0.0,
        });
    }
    write_bytes(path, serde_json::to_string(&all)?.as_bytes())
}

/// Writes a file, whole or not at all.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, bytes).with_context(|| format!("cannot write {}", unfinished.display()))?;
    fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints a summary of the counts.
pub fn print(path: &Path, truth: &Truth, modelled: Option<&Modelled>) {
    let matrix = truth.matrix();
    let all: u64 = matrix.iter().flatten().sum();
    let what = if truth.cache.is_some() { "accesses that missed the private caches" } else { "accesses" };
    eprintln!(
        "numapilot-lab: {all} {what} of user code, counted exactly (rows: CPU, columns: home node); pages in {}",
        path.display()
    );
    for (cpu, row) in matrix.iter().enumerate().filter(|(_, row)| row.iter().any(|&n| n > 0)) {
        let cells: Vec<String> = row.iter().map(|n| format!("{n:>12}")).collect();
        eprintln!("  CPU {cpu:>3}: {}", cells.join(" "));
    }
    if truth.without_page + truth.regions_lost > 0 {
        eprintln!(
            "  {} accesses are not attributed to a page, {} marked regions were lost",
            truth.without_page, truth.regions_lost
        );
    }
    for (region, seconds) in modelled.iter().flat_map(|modelled| modelled.seconds.iter().enumerate()) {
        let model = modelled.map_or("", |modelled| modelled.machine.as_str());
        eprintln!(
            "  region {region}: modelled {:.3} ms on {model} (1 instruction per cycle, {OUTSTANDING} outstanding misses)",
            seconds * 1e3
        );
    }
}
