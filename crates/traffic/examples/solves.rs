//! How fast loads are solved: cold (from an idle system) and warm (from the solution of a slightly different load), and how the time grows with
//! classes and nodes. Prints one JSON object per case; `tools/bench traffic` reads them.

use std::io::Write;
use std::time::Instant;

use numapilot_machine::Machine;
use numapilot_random::{Xorshift, unit_of};
use numapilot_traffic::{Class, Load, MemorySystem, Solver};

/// Machines, with the number of classes into which one thread per core is divided: the load is the same, only described in more or less detail.
const CASES: [(&str, usize); 7] = [
    ("opteron-8385", 4),
    ("opteron-8385", 16),
    ("memprof-b", 24),
    ("memprof-c", 8),
    ("memprof-c", 24),
    ("memprof-c", 48),
    ("xeon-2s-snc4", 112),
];
/// How many different loads per case.
const LOADS: usize = 40;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut random = uniform(0x5eed);
    for (name, classes) in CASES {
        let machine = Machine::load(name)?;
        let system = MemorySystem::new(&machine)?;
        let loads: Vec<Load> = (0..LOADS).map(|_| load(&machine, classes, &mut random)).collect();
        let (cold_us, cold_iterations, worst_cold) = time(&system, &loads, true)?;
        let (warm_us, warm_iterations, worst_warm) = time(&system, &nearby(&loads, &mut random), false)?;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{{\"machine\": \"{name}\", \"nodes\": {}, \"stations\": {}, \"classes\": {classes}, \"cold_us\": {cold_us:.1}, \"warm_us\": {warm_us:.1}, \
             \"cold_iterations\": {cold_iterations:.1}, \"warm_iterations\": {warm_iterations:.1}, \"worst_iterations\": {}}}",
            system.nodes(),
            system.stations(),
            worst_cold.max(worst_warm)
        )?;
    }
    Ok(())
}

/// Median microseconds of a solve, mean iterations and most iterations.
fn time(system: &MemorySystem, loads: &[Load], cold: bool) -> Result<(f64, f64, u32), Box<dyn std::error::Error>> {
    let mut solver = Solver::default();
    let mut times = Vec::new();
    let (mut iterations, mut most) = (0, 0);
    solver.solve(system, &loads[0])?;
    for load in loads.iter().cycle().take(loads.len() * ROUNDS) {
        if cold {
            solver.forget();
        }
        let start = Instant::now();
        let solution = solver.solve(system, load)?;
        times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        if !(solution.residual < 1e-9 && solution.adjoint_residual < 1e-6) {
            return Err(format!("not converged: {} and {}", solution.residual, solution.adjoint_residual).into());
        }
        iterations += solution.iterations;
        most = most.max(solution.iterations);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], f64::from(iterations) / times.len() as f64, most))
}

/// Threads on all nodes in turn, with random overlap, own work and placement.
fn load(machine: &Machine, classes: usize, random: &mut impl FnMut() -> f64) -> Load {
    let nodes = machine.nodes().len();
    let class = |index: usize| {
        let hot = (random() * nodes as f64) as usize;
        let weights: Vec<f64> = (0..nodes).map(|n| random() + if n == hot { 4.0 * random() } else { 0.0 }).collect();
        let writes = 0.3 * random();
        let sum: f64 = weights.iter().sum();
        Class {
            from: index % nodes,
            threads: machine.online_core_count() as f64 / classes as f64,
            outstanding: 1.0 + 8.0 * random(),
            think_ns: 100.0 * random(),
            reads: weights.iter().map(|w| w / sum * (1.0 - writes)).collect(),
            writes: weights.iter().map(|w| w / sum * writes).collect(),
        }
    };
    Load { classes: (0..classes).map(class).collect(), background: Vec::new() }
}

/// The first load, with each class's own work changed by up to 5 % from one load to the next: a simulation's epochs.
fn nearby(loads: &[Load], random: &mut impl FnMut() -> f64) -> Vec<Load> {
    let mut load = loads[0].clone();
    let mut next = |_: &Load| {
        load.classes.iter_mut().for_each(|class| class.think_ns *= 0.95 + 0.1 * random());
        load.clone()
    };
    loads.iter().map(&mut next).collect()
}

/// Uniform numbers from 0 to 1 by a multiplicative generator (xorshift64*): the loads are the same in every run.
fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut random = Xorshift::new(seed);
    move || unit_of(random.bits())
}
