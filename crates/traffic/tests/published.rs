//! Published figures that the model must come to, and arithmetic that every metric must satisfy.

use numapilot_machine::{Machine, builtin_names};
use numapilot_traffic::{Class, Imbalance, Load, MemorySystem, Metrics, Solution, metrics};

/// Threads on `from` whose accesses go to `to` in equal shares; `writes` of them write.
fn class(nodes: usize, from: usize, threads: f64, outstanding: f64, think_ns: f64, to: &[usize], writes: f64) -> Class {
    let share = |node: usize| if to.contains(&node) { 1.0 / to.len() as f64 } else { 0.0 };
    Class {
        from,
        threads,
        outstanding,
        think_ns,
        reads: (0..nodes).map(|n| share(n) * (1.0 - writes)).collect(),
        writes: (0..nodes).map(|n| share(n) * writes).collect(),
    }
}

fn solve(machine: &Machine, classes: Vec<Class>) -> (Load, Solution, Metrics) {
    let system = MemorySystem::new(machine).unwrap();
    let load = Load { classes, background: Vec::new() };
    let solution = system.solve(&load).unwrap();
    assert!(solution.residual < 1e-9);
    let metrics = metrics(&system, &load, &solution, None);
    (load, solution, metrics)
}

/// "Exploring NUMA on Amazon instances" (2016): every figure of its x1.32xlarge. STREAM is Triad: of three accesses per 192 bytes counted, one
/// writes. Its latencies are of a chase with a prefetchable stride: the time per element is the latency over what is outstanding.
#[test]
fn the_x1_32xlarge_is_as_measured() {
    let machine = Machine::load("x1-32xlarge").unwrap();
    let figures = *machine.traffic();
    let (stream_outstanding, own_ns) = (figures.stream_outstanding.unwrap(), figures.stream_own_ns.unwrap());
    let (alone, beside) = (figures.stride_outstanding.unwrap(), figures.stride_outstanding_loaded.unwrap());
    let stream = |threads: f64, to: &[usize]| class(4, 0, threads, stream_outstanding, own_ns, to, 1.0 / 3.0);
    let chase = |outstanding: f64, to: &[usize]| class(4, 0, 1.0, outstanding, 0.0, to, 0.0);
    let idle_ns = |to: &[usize]| solve(&machine, vec![chase(alone, to)]).1.latency_ns[0] / alone;
    let loaded_ns = |to: &[usize]| solve(&machine, vec![chase(beside, to), stream(7.0, to)]).1.latency_ns[0] / beside;
    let gb_per_s =
        |threads: f64, to: &[usize]| solve(&machine, vec![stream(threads, to)]).1.throughput_per_s[0] * 64.0 / 1e9;
    let all = [0, 1, 2, 3];
    let rows = [
        ("idle, local, ns", 14.0, idle_ns(&[0])),
        ("idle, remote, node 1, ns", 21.0, idle_ns(&[1])),
        ("idle, remote, node 2, ns", 23.0, idle_ns(&[2])),
        ("idle, remote, node 3, ns", 21.0, idle_ns(&[3])),
        ("idle, interleaved, ns", 20.0, idle_ns(&all)),
        ("7 STREAM, local, ns", 40.0, loaded_ns(&[0])),
        ("7 STREAM, remote, ns", 107.0, loaded_ns(&[1])),
        ("7 STREAM, interleaved, ns", 43.0, loaded_ns(&all)),
        ("16 threads, local, GB/s", 46.0, gb_per_s(16.0, &[0])),
        ("16 threads, remote, GB/s", 13.0, gb_per_s(16.0, &[1])),
        ("1 thread, local, GB/s", 8.5, gb_per_s(1.0, &[0])),
        ("1 thread, remote, GB/s", 6.5, gb_per_s(1.0, &[1])),
    ];
    eprintln!("x1.32xlarge                 measured    model    error");
    for (what, measured, model) in rows {
        eprintln!("{what:<28}{measured:8.1} {model:8.1} {:7.1} %", (model / measured - 1.0) * 100.0);
    }
    for (what, measured, model) in rows {
        assert!((model / measured - 1.0).abs() <= 0.15, "{what}: {measured} measured, {model} by the model");
    }
}
