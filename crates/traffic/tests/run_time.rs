//! Predicted run times, and that a solver at work allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::random_class;
use numapilot_machine::Machine;
use numapilot_random::Random;
use numapilot_traffic::{Background, Class, Load, MemorySystem, Solver, TrafficError, finish_times_s};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting on each thread.
struct Counting;

// SAFETY: hands every call to the system's allocator unchanged; the counter is a plain thread-local without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's own contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_warm_solver_allocates_nothing() {
    for name in ["opteron-8385", "memprof-c"] {
        let machine = Machine::load(name).unwrap();
        let system = MemorySystem::new(&machine).unwrap();
        let nodes = system.nodes();
        let mut random = Random::new(11);
        let classes = (0..48).map(|index| random_class(nodes, index % nodes, 0.3, &mut random)).collect();
        let background = vec![Background { source: 0, target: 1, bytes_per_s: 1e9 }];
        let mut load = Load { classes, background };
        let mut solver = Solver::default();
        solver.solve(&system, &load).unwrap();
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..5 {
            load.classes.iter_mut().for_each(|class| class.outstanding *= 1.2);
            solver.solve(&system, &load).unwrap();
        }
        solver.forget();
        solver.solve(&system, &load).unwrap();
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "{name}");
    }
}

/// Two threads on one controller: the second goes faster once the first is done, as fast as if it were alone.
#[test]
fn who_is_left_goes_on_faster() {
    let machine = Machine::load("memprof-b").unwrap();
    let system = MemorySystem::new(&machine).unwrap();
    let reads = vec![1.0, 0.0, 0.0, 0.0];
    let class = Class { from: 0, threads: 3.0, outstanding: 10.0, think_ns: 0.0, reads, writes: vec![0.0; 4] };
    let load = Load { classes: vec![class.clone(), class.clone()], background: Vec::new() };
    let mut solver = Solver::default();
    let together = system.solve(&load).unwrap().throughput_per_s[0];
    let alone = system.solve(&Load { classes: vec![class], background: Vec::new() }).unwrap().throughput_per_s[0];
    let mut finish = |accesses: &[f64]| {
        let found = finish_times_s(&system, &mut solver, &load, accesses).unwrap();
        assert_eq!(found.residual, 0.0, "every load is solved");
        found.times_s
    };
    let times = finish(&[1e6, 3e6]);
    let (first, second) = (1e6 / together, 1e6 / together + 2e6 / alone);
    assert!((times[0] / first - 1.0).abs() < 1e-6 && (times[1] / second - 1.0).abs() < 1e-6, "{times:?}");
    let equal = finish(&[1e6, 1e6]);
    assert!((equal[0] / first - 1.0).abs() < 1e-6 && (equal[1] / first - 1.0).abs() < 1e-6, "{equal:?}");
    let without = finish(&[0.0, 1e6]);
    assert_eq!(without[0], 0.0);
    assert!((without[1] / (1e6 / alone) - 1.0).abs() < 1e-6, "{without:?}");
}

#[test]
fn work_without_threads_never_ends_and_no_work_is_refused() {
    let machine = Machine::load("memprof-b").unwrap();
    let system = MemorySystem::new(&machine).unwrap();
    let mut class = random_class(4, 0, 0.0, &mut Random::new(1));
    class.threads = 0.0;
    let load = Load { classes: vec![class], background: Vec::new() };
    let mut solver = Solver::default();
    assert_eq!(finish_times_s(&system, &mut solver, &load, &[1.0]).unwrap().times_s, [f64::INFINITY]);
    for accesses in [&[][..], &[f64::NAN][..], &[-1.0][..]] {
        let error = finish_times_s(&system, &mut solver, &load, accesses).unwrap_err();
        assert!(matches!(error, TrafficError::Work { .. }), "{error}");
    }
}
