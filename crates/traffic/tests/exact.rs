//! Against exact mean value analysis (Reiser and Lavenberg, JACM 27(2), 1980) of the same network, over the whole lattice of populations. Only reads, no
//! probes: then the network has a product form and the exact figures exist. What is left is the error of the approximation.

use crate::common::{demands, random_class, random_machine};
use numapilot_machine::Machine;
use numapilot_random::Random;
use numapilot_traffic::{Load, MemorySystem};

/// Exact throughputs per nanosecond and latencies at stations of each class.
fn exact(machine: &Machine, load: &Load) -> Vec<(f64, f64)> {
    let asked: Vec<_> = load.classes.iter().map(|class| demands(machine, class)).collect();
    let limits: Vec<usize> = load.classes.iter().map(|c| (c.threads * c.outstanding).round() as usize).collect();
    let stations = asked[0].waited.len();
    let strides: Vec<usize> =
        limits.iter().scan(1, |stride, n| Some(std::mem::replace(stride, *stride * (n + 1)))).collect();
    let size: usize = limits.iter().map(|n| n + 1).product();
    let mut queues = vec![vec![0.0; stations]; size];
    let mut last = Vec::new();
    for state in 0..size {
        last.clear();
        let counts: Vec<usize> = strides.iter().zip(&limits).map(|(s, n)| state / s % (n + 1)).collect();
        let mut here = vec![0.0; stations];
        for (class, asked) in asked.iter().enumerate() {
            if counts[class] == 0 {
                last.push((0.0, 0.0));
                continue;
            }
            let fewer = &queues[state - strides[class]];
            let sojourn = |s: usize| asked.waited[s] * (1.0 + fewer[s]);
            let residence: f64 = (0..stations).map(sojourn).sum();
            let per_ns = counts[class] as f64 / (asked.delay_ns + residence);
            (0..stations).for_each(|s| here[s] += per_ns * sojourn(s));
            last.push((per_ns, residence));
        }
        queues[state] = here;
    }
    last
}

struct Errors {
    all: Vec<f64>,
}

impl Errors {
    fn quantile(&mut self, share: f64) -> f64 {
        self.all.sort_by(f64::total_cmp);
        self.all[((self.all.len() - 1) as f64 * share) as usize]
    }
}

/// Relative errors of throughput over random networks with up to `classes` classes and `customers` each.
fn errors(cases: usize, classes: usize, customers: usize, think: f64, seed: u64) -> (Errors, f64) {
    let mut random = Random::new(seed);
    let (mut found, mut signed) = (Errors { all: Vec::new() }, 0.0);
    for _ in 0..cases {
        let nodes = 1 + (random.unit() * 4.0) as usize;
        let machine = random_machine(nodes, "directory", &mut random);
        let count = 1 + (random.unit() * classes as f64) as usize;
        let classes = (0..count).map(|index| {
            let mut class = random_class(nodes, index % nodes, 0.0, &mut random);
            class.threads = 1.0 + (random.unit() * customers as f64).floor();
            class.think_ns *= think;
            class
        });
        let load = Load { classes: classes.collect(), background: Vec::new() };
        let solution = MemorySystem::new(&machine).unwrap().solve(&load).unwrap();
        assert!(solution.residual < 1e-9, "seed {seed}");
        for (truth, per_s) in exact(&machine, &load).iter().zip(&solution.throughput_per_s) {
            let error = per_s / 1e9 / truth.0 - 1.0;
            found.all.push(error.abs());
            signed += error;
        }
    }
    let mean = signed / found.all.len() as f64;
    (found, mean)
}

#[test]
fn throughputs_are_near_the_exact_ones() {
    eprintln!("throughput against exact MVA       median    95 %     worst   mean signed");
    for (what, classes, customers, think) in [
        ("1 class, up to 40 customers", 1, 40, 1.0),
        ("up to 4 classes of up to 5", 4, 5, 1.0),
        ("up to 4 classes of up to 5, no own work", 4, 5, 0.0),
        ("up to 3 classes of up to 12", 3, 12, 0.3),
    ] {
        let (mut found, mean) = errors(150, classes, customers, think, 7);
        let (median, most, worst) = (found.quantile(0.5), found.quantile(0.95), found.quantile(1.0));
        eprintln!(
            "{what:<40} {:6.2} % {:6.2} % {:6.2} % {:6.2} %",
            median * 100.0,
            most * 100.0,
            worst * 100.0,
            mean * 100.0
        );
        assert!(median < 0.002 && most < 0.02 && worst < 0.06, "{what}");
    }
}

/// One customer alone meets nobody: exact.
#[test]
fn a_lone_customer_is_exact() {
    let mut random = Random::new(3);
    for _ in 0..20 {
        let machine = random_machine(3, "directory", &mut random);
        let mut class = random_class(3, 1, 0.0, &mut random);
        class.threads = 1.0;
        let load = Load { classes: vec![class], background: Vec::new() };
        let per_s = MemorySystem::new(&machine).unwrap().solve(&load).unwrap().throughput_per_s[0];
        let truth = exact(&machine, &load)[0].0 * 1e9;
        assert!((per_s / truth - 1.0).abs() < 1e-9, "{per_s} for {truth}");
    }
}
