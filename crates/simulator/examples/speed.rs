//! How fast the simulator is: simulated seconds per second of the host, and how that changes with threads, nodes and pages. For `tools/bench`.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use numapilot_machine::Machine;
use numapilot_placement::policy_by_name;
use numapilot_simulator::{Options, Simulation, synthetic};

/// A minute of `threads` threads on parts of their own and a shared table, `mib` in all, with a barrier every 50 ms.
fn description(threads: u32, mib: u32) -> String {
    format!(
        "format = 1\nname = 'speed'\nrepeat = 1200\n[[region]]\nname = 'own'\nmib = {own}\nfirst_touch = 'parts'\ngroup = 'g'\n\
         [[region]]\nname = 'table'\nmib = {table}\nfirst_touch = 'first'\ngroup = 'g'\n[[group]]\nname = 'g'\nthreads = {threads}\n\
         [[phase]]\nname = 'p'\n[[phase.work]]\ngroup = 'g'\nms = 50\naccesses_per_us = 5\noutstanding = 3\njitter = 0.03\n\
         [[phase.work.on]]\nregion = 'own'\npattern = 'parts'\nwrites = 0.3\n\
         [[phase.work.on]]\nregion = 'table'\npattern = 'zipf'\nexponent = 0.7\nwrites = 0.1\n",
        own = mib / 4 * 3,
        table = mib / 4,
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let runs = [
        ("opteron-8385", 16, 1_024),
        ("memprof-c", 48, 1_024),
        ("memprof-c", 48, 4_096),
        ("memprof-c", 48, 16_384),
        ("memprof-c", 96, 4_096),
    ];
    for policy_name in ["first-touch", "carrefour"] {
        for (machine_name, threads, mib) in runs {
            let machine = Machine::load(machine_name)?;
            let program = synthetic::parse(&description(threads, mib), "speed")?;
            let mut policy = policy_by_name(policy_name, &machine, 1)?;
            let options = Options { until_ns: Some(60e9), ..Options::default() };
            let start = Instant::now();
            let report = Simulation::new(&program, &machine, options)?.run(policy.as_mut(), &mut |_| true)?;
            let host_s = start.elapsed().as_secs_f64();
            let simulated_s = report.run_time_ns / 1e9;
            let (nodes, millions) = (machine.nodes().len(), f64::from(mib) / 4.0 * 1024.0 / 1e6);
            writeln!(
                out,
                "{policy_name:<12} {threads:>3} threads, {nodes} nodes, {millions:>4.1} million pages: {simulated_s:.0} s in {host_s:.2} s, \
                 {:.0} simulated seconds per second; {} epochs, {} solutions, {} pages moved",
                simulated_s / host_s,
                report.convergence.epochs,
                report.convergence.solves,
                report.moves.pages(),
            )?;
        }
    }
    Ok(())
}
