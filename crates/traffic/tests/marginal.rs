//! The marginal cost of a path against finite differences of the solver: a sliver of a class that accesses along this path only, and what it
//! costs everybody else.

use crate::common::{scenario, scenario_of, with_crowding, with_flow_control, with_ports};
use numapilot_machine::Machine;
use numapilot_traffic::{Class, Load, MemorySystem, Solver};
use proptest::prelude::*;

/// Nanoseconds that all classes of `load` lose per access of a sliver from node to node.
fn delay_by_difference(system: &MemorySystem, load: &Load, from: usize, to: usize) -> f64 {
    let mut with = load.clone();
    let mut reads = vec![0.0; system.nodes()];
    reads[to] = 1.0;
    // Few enough not to change what it measures by more than 1 %, many enough to rise above the solver's tolerance.
    let writes = vec![0.0; system.nodes()];
    with.classes.push(Class { from, threads: 1e-4, outstanding: 1.0, think_ns: 0.0, reads, writes });
    let mut solver = Solver::default();
    let before = solver.solve(system, load).unwrap().clone();
    let after = solver.solve(system, &with).unwrap();
    let rate = after.throughput_per_s[load.classes.len()];
    let lost: f64 = (0..load.classes.len())
        .map(|class| before.throughput_per_s[class] * (after.latency_ns[class] - before.latency_ns[class]))
        .sum();
    lost / rate
}

fn check(machine: &Machine, load: &Load, tolerance: f64) -> Result<(), TestCaseError> {
    check_of(&MemorySystem::new(machine).unwrap(), load, tolerance)
}

fn check_of(system: &MemorySystem, load: &Load, tolerance: f64) -> Result<(), TestCaseError> {
    let solution = system.solve(load).unwrap();
    for from in 0..system.nodes() {
        for to in 0..system.nodes() {
            let caused = solution.marginal_ns[from][to] - solution.path_ns[from][to];
            let difference = delay_by_difference(system, load, from, to);
            let scale = difference.abs().max(0.01 * solution.path_ns[from][to]);
            let error = (caused - difference).abs() / scale;
            prop_assert!(error < tolerance, "{from} to {to}: {caused} ns, by difference {difference} ns");
        }
    }
    Ok(())
}

/// Four threads on each node of a machine that broadcasts, whose queues are shorter or longer than the model's.
#[test]
fn also_where_queues_are_taken_times() {
    let machine = Machine::load("opteron-8385").unwrap();
    let class = |from: usize| {
        let (reads, writes) = (vec![0.4, 0.2, 0.1, 0.1], vec![0.1, 0.05, 0.05, 0.0]);
        Class { from, threads: 4.0, outstanding: 2.0, think_ns: 60.0, reads, writes }
    };
    let load = Load { classes: (0..4).map(class).collect(), background: Vec::new() };
    for queues in [0.76, 1.32] {
        check_of(&MemorySystem::new(&machine).unwrap().with_queues(queues), &load, 0.01).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn marginal_costs_are_derivatives((machine, load) in scenario("directory")) {
        check(&machine, &load, 0.01)?;
    }

    #[test]
    fn also_where_probes_are_broadcast((machine, load) in scenario("broadcast")) {
        check(&machine, &load, 0.01)?;
    }

    #[test]
    fn also_where_links_carry_flow_control((machine, load) in scenario_of("broadcast", with_flow_control)) {
        prop_assume!(MemorySystem::new(&machine).is_ok());
        check(&machine, &load, 0.01)?;
    }

    #[test]
    fn also_where_accesses_wait_beside_queues((machine, load) in scenario_of("directory", with_crowding)) {
        check(&machine, &load, 0.01)?;
    }

    #[test]
    fn also_where_they_race_probes_meanwhile((machine, load) in scenario_of("broadcast", with_crowding)) {
        check(&machine, &load, 0.01)?;
    }

    #[test]
    fn also_where_cpus_have_limits_of_their_own((machine, load) in scenario_of("directory", with_ports)) {
        check(&machine, &load, 0.01)?;
    }
}
