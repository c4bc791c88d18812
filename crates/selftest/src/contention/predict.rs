//! Predicts slow-downs: pure, from the machine's model and what each program did alone.
//!
//! A program alone gives one figure, its accesses per second. One unknown of its class in the model is set so that the model, with that class alone, gives
//! the same: accesses outstanding where the program is faster than one access after another, else its own work between two of them. Then all classes
//! are solved together.

use numapilot_traffic::{Class, Load, MemorySystem, Solver, TrafficError};

/// Most accesses that a thread of the model keeps outstanding.
const OUTSTANDING_MAX: f64 = 1000.0;
/// Longest own work per access, nanoseconds.
const THINK_MAX_NS: f64 = 1e6;
const BISECTIONS: usize = 60;

/// A program and what it did alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// Node of its CPUs, as an index into the model's nodes.
    pub from: usize,
    /// Node of its memory, the same.
    pub to: usize,
    /// Number of threads.
    pub threads: usize,
    /// Share of its accesses that write.
    pub write_share: f64,
    /// Accesses per second, all threads together.
    pub per_s: f64,
}

/// The class that does alone what the program did. Where the model's memory cannot serve as much, the class that comes nearest.
///
/// # Errors
/// The model has no such way.
pub fn class_of(system: &MemorySystem, alone: &Alone) -> Result<Class, TrafficError> {
    let mut shares = (vec![0.0; system.nodes()], vec![0.0; system.nodes()]);
    if let (Some(read), Some(write)) = (shares.0.get_mut(alone.to), shares.1.get_mut(alone.to)) {
        (*read, *write) = (1.0 - alone.write_share, alone.write_share);
    }
    let class = |outstanding: f64, think_ns: f64| Class {
        from: alone.from,
        threads: alone.threads as f64,
        outstanding,
        think_ns,
        reads: shares.0.clone(),
        writes: shares.1.clone(),
    };
    let mut solver = Solver::default();
    let mut per_s = |class: Class| -> Result<f64, TrafficError> {
        let load = Load { classes: vec![class], background: Vec::new() };
        Ok(solver.solve(system, &load)?.throughput_per_s[0])
    };
    if per_s(class(1.0, 0.0))? < alone.per_s {
        let outstanding =
            bisect(1.0, OUTSTANDING_MAX, |outstanding| Ok(per_s(class(outstanding, 0.0))? < alone.per_s))?;
        return Ok(class(outstanding, 0.0));
    }
    let think_ns = bisect(0.0, THINK_MAX_NS, |think_ns| Ok(per_s(class(1.0, think_ns))? > alone.per_s))?;
    Ok(class(1.0, think_ns))
}

/// Where `goes_on` turns from true to false; an end where it does not.
fn bisect(
    low: f64,
    high: f64,
    mut goes_on: impl FnMut(f64) -> Result<bool, TrafficError>,
) -> Result<f64, TrafficError> {
    let (mut low, mut high) = (low, high);
    for _ in 0..BISECTIONS {
        let middle = if low > 0.0 { (low * high).sqrt() } else { f64::midpoint(low, high) };
        if goes_on(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(f64::midpoint(low, high))
}

/// By which factor each of these programs is slower beside the others than alone.
///
/// # Errors
/// The model has no such way.
pub fn slowdowns(system: &MemorySystem, programs: &[Alone]) -> Result<Vec<f64>, TrafficError> {
    let classes: Vec<Class> = programs.iter().map(|alone| class_of(system, alone)).collect::<Result<_, _>>()?;
    let mut solver = Solver::default();
    let together = solver.solve(system, &Load { classes: classes.clone(), background: Vec::new() })?;
    let together = together.throughput_per_s.clone();
    let mut alone_per_s = Vec::with_capacity(classes.len());
    for class in classes {
        let alone = Solver::default().solve(system, &Load { classes: vec![class], background: Vec::new() })?.clone();
        alone_per_s.push(alone.throughput_per_s[0]);
    }
    Ok(alone_per_s.iter().zip(&together).map(|(alone, together)| alone / together).collect())
}

#[cfg(test)]
mod tests {
    //! Made-up figures on a published machine: what is put in comes out, and what must be slow is.

    use numapilot_machine::Machine;
    use proptest::prelude::*;

    use super::*;

    fn system() -> MemorySystem {
        MemorySystem::new(&Machine::load("opteron-8385").expect("a model")).expect("whole")
    }

    fn alone(from: usize, to: usize, write_share: f64, per_s: f64) -> Alone {
        Alone { from, to, threads: 1, write_share, per_s }
    }

    fn per_s(system: &MemorySystem, class: Class) -> f64 {
        let load = Load { classes: vec![class], background: Vec::new() };
        system.solve(&load).expect("possible").throughput_per_s[0]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_class_does_alone_what_the_program_did(share in 1e-3_f64..0.95, write_share in 0.0_f64..1.0, to in 0_usize..4) {
            let system = system();
            // Of what the model's memory and links can serve at most.
            let most = per_s(&system, class_of(&system, &alone(0, to, write_share, 1e12)).expect("possible"));
            let rate = share * most;
            let class = class_of(&system, &alone(0, to, write_share, rate)).expect("possible");
            let found = per_s(&system, class);
            prop_assert!((found / rate - 1.0).abs() < 1e-6, "{found} for {rate}");
        }

        #[test]
        fn nobody_gains_by_company(rates in prop::collection::vec((1e6_f64..1e8, 0.0_f64..1.0), 2..4)) {
            let programs: Vec<Alone> = rates.iter().map(|(rate, writes)| alone(0, 0, *writes, *rate)).collect();
            for slowdown in slowdowns(&system(), &programs).expect("possible") {
                prop_assert!(slowdown >= 1.0 - 1e-6, "{slowdown}");
            }
        }
    }

    #[test]
    fn a_full_memory_is_shared_and_an_idle_one_costs_nothing() {
        let system = system();
        let most = per_s(&system, class_of(&system, &alone(0, 0, 0.0, 1e12)).expect("possible"));
        let full =
            slowdowns(&system, &[alone(0, 0, 0.0, 0.999 * most), alone(0, 0, 0.0, 0.999 * most)]).expect("possible");
        assert!(full.iter().all(|slowdown| (1.9..2.05).contains(slowdown)), "half each: {full:?}");
        let idle = slowdowns(&system, &[alone(0, 0, 0.0, 1e5), alone(1, 1, 0.0, 1e5)]).expect("possible");
        assert!(idle.iter().all(|slowdown| (slowdown - 1.0).abs() < 1e-3), "{idle:?}");
    }

    #[test]
    fn a_chase_suffers_from_a_stream_more_than_from_a_chase() {
        let system = system();
        let chase = 1e9 / 120.0;
        let beside =
            |other: f64| slowdowns(&system, &[alone(0, 0, 0.0, chase), alone(0, 0, 0.0, other)]).expect("possible")[0];
        assert!(beside(1.2e8) > beside(chase) + 0.05, "{} {}", beside(1.2e8), beside(chase));
    }

    #[test]
    fn a_way_that_is_not_there_is_an_error() {
        assert!(class_of(&system(), &alone(9, 0, 0.0, 1e6)).is_err());
        assert!(class_of(&system(), &alone(0, 9, 0.0, 1e6)).is_err());
    }
}
