//! Virtual time of real multi-threaded programs, with sixteen threads on however few CPUs this host has. The programs are in `tests/vtime`; they
//! do work of a known program length and print the clocks that they saw.

use crate::vtime::bench::*;

/// Make sure that threads without shared locks take a sixteenth of the serial time.
#[test]
fn independent_threads_overlap() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let course = bench.course(&program, "share");
    assert_near(course.elapsed(), 10_000_000, 5, "sixteen threads of 10 M cycles");
    for (end, _) in &course.threads {
        assert_near(*end, 10_000_000, 5, "each thread");
    }
    assert_near(bench.course(&program, "readers").elapsed(), 1_000_000, 5, "readers of one lock");
    assert_near(bench.course(&program, "touch_lock").elapsed(), 5_000_000, 5, "a lock that is rarely held");
}

/// Make sure that a lock which is wanted four times over hands out one cycle of hold per cycle: no more, and hardly less.
#[test]
fn saturated_locks_serialise() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    for case in ["saturate", "spin"] {
        let elapsed = bench.course(&program, case).elapsed();
        assert!((8_000_000..11_000_000).contains(&elapsed), "{case}: 16 x 500 holds of 1,000 cycles took {elapsed}");
    }
    let elapsed = bench.course(&program, "writers").elapsed();
    assert!((6_400_000..8_000_000).contains(&elapsed), "16 x 200 write holds of 2,000 cycles took {elapsed}");
}

/// Make sure that work taken from a shared queue or counter goes evenly to sixteen CPUs.
#[test]
fn dynamic_work_is_even() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    for case in ["queue", "counter"] {
        let course = bench.course(&program, case);
        course.assert_even();
        assert_near(course.elapsed(), 10_000_000, 5, case);
    }
}

/// Make sure that a barrier lets all go at the latest arrival, and that nothing is received before it was sent.
#[test]
fn waits_order_clocks() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let course = bench.course(&program, "barrier");
    assert!(course.threads.iter().all(|thread| thread.0 == course.threads[0].0), "{:?}", course.threads);
    assert_eq!(bench.course(&program, "sem").values["early"], 0);
    // Under a mutex alone a consumer that does not wait may see an item of the same window.
    assert!(bench.course(&program, "cond").values["early"] <= 2 * u64::from(WINDOW_CYCLES));
}

/// Make sure that threads of one virtual CPU share its time.
#[test]
fn one_virtual_cpu_is_shared() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "threads.c", "threads");
    let output = bench.run(Setting { cpus: 1, ..Setting::default() }, &program, &["share"]);
    let elapsed = parse(&output).elapsed();
    assert_near(elapsed, 160_000_000, 10, "sixteen threads on one CPU");
}

/// Make sure that OpenMP regions, loops, barriers, tasks and critical sections follow program time under both libraries.
#[test]
fn openmp_overlaps() {
    let bench = Bench::new();
    for compiler in ["gcc", "clang"] {
        let program = bench.compile(compiler, &["-fopenmp"], "omp.c", compiler);
        assert_near(bench.course(&program, "static").elapsed(), 2_000_000, 5, compiler);
        let dynamic = bench.course(&program, "dynamic");
        dynamic.assert_even();
        assert_near(dynamic.elapsed(), 10_000_000, 5, compiler);
        assert_eq!(bench.course(&program, "regions").values["wrong"], 0, "{compiler}");
        assert_eq!(bench.course(&program, "barrier").values["wrong"], 0, "{compiler}");
        let critical = bench.course(&program, "critical").elapsed();
        assert!((3_200_000..4_200_000).contains(&critical), "{compiler}: 16 x 100 critical sections took {critical}");
        for case in ["fortran-locks", "fortran-tests"] {
            let elapsed = bench.course(&program, case).elapsed();
            assert!(
                (1_600_000..2_400_000).contains(&elapsed),
                "{compiler}, {case}: 16 x 50 holds of two locks took {elapsed}"
            );
        }
        // The host says which thread takes a task: one that it does not run takes none, whatever its clock. So the best of some runs is judged; clocks
        // that do not overlap would show in each.
        let tasks = (0..5).map(|_| bench.course(&program, "tasks").elapsed()).min().unwrap_or(0);
        assert!((3_200_000..12_000_000).contains(&tasks), "{compiler}: 512 tasks of 100,000 cycles took {tasks}");
    }
}

/// Make sure that nothing ever hangs, whatever threads wait for.
#[test]
fn torture_ends() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-pthread"], "torture.c", "torture");
    for cpus in [17, 2] {
        bench.run(Setting { cpus, ..Setting::default() }, &program, &[]);
    }
}
