//! The exact counts of a lab's command: as a file, and in a few lines.

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

/// Of a core whose model tells no clock.
const CLOCK_MHZ: f64 = 2_500.0;
/// An out-of-order core's misses that overlap, where nobody knows the program: between a chase (1) and a stream (10 and more).
const OUTSTANDING: f64 = 2.0;

/// Writes the counts, whole or not at all.
pub fn write(path: &Path, truth: &Truth) -> anyhow::Result<()> {
    write_bytes(path, serde_json::to_string(&truth.to_json())?.as_bytes())
}

/// Writes a file, whole or not at all.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, bytes).with_context(|| format!("cannot write {}", unfinished.display()))?;
    fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Says what was counted.
pub fn tell(path: &Path, truth: &Truth, topology: &Topology, model: Option<&str>) -> anyhow::Result<()> {
    let matrix = truth.matrix();
    let all: u64 = matrix.iter().flatten().sum();
    let what = if truth.cache.is_some() { "accesses that missed the private caches" } else { "accesses" };
    eprintln!(
        "numapilot-lab: {all} {what} of user code, every one counted (CPU: by node), pages in {}",
        path.display()
    );
    for (cpu, row) in matrix.iter().enumerate().filter(|(_, row)| row.iter().any(|&n| n > 0)) {
        let cells: Vec<String> = row.iter().map(|n| format!("{n:>12}")).collect();
        eprintln!("  CPU {cpu:>3}: {}", cells.join(" "));
    }
    if truth.without_page + truth.regions_lost > 0 {
        eprintln!("  {} accesses are in no page's count, {} regions are lost", truth.without_page, truth.regions_lost);
    }
    if let Some(model) = model {
        tell_time(truth, topology, model)?;
    }
    Ok(())
}

/// Modelled time: one instruction per cycle beside the misses.
fn tell_time(truth: &Truth, topology: &Topology, model: &str) -> anyhow::Result<()> {
    let machine = Machine::load(model)?;
    let system = MemorySystem::new(&machine)?;
    anyhow::ensure!(
        system.nodes() == topology.nodes(),
        "{model} has {} nodes and the guest {}: give --nodes {}",
        system.nodes(),
        topology.nodes(),
        system.nodes()
    );
    let core = Core { instructions_per_s: machine.clock_mhz().unwrap_or(CLOCK_MHZ) * 1e6, outstanding: OUTSTANDING };
    let mut solver = Solver::default();
    for region in 0..truth.regions.len() {
        let seconds = phase_time_s(&system, &mut solver, &truth.work(region, topology), core)?;
        eprintln!(
            "  region {region}: modelled {:.3} ms on {model} (one instruction a cycle, {OUTSTANDING} misses at once)",
            seconds * 1e3
        );
    }
    Ok(())
}
