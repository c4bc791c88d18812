//! The rarer paths of virtual time. First of all, that no program notices: what it returns, sees in `errno` and prints is the same alone, tracked
//! and instrumented. Then that clocks still join where program threads meet, and that nobody is left waiting.

use std::time::Duration;
use std::time::Instant;

use crate::vtime::bench::*;

const SETTINGS: [(u32, u32); 5] =
    [(TRACK, SPREAD), (TRACK, NONE), (INSTRUMENT, SPREAD), (INSTRUMENT, PACK), (INSTRUMENT, NONE)];

const WIRE: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/c");
const ESCAPES: &[&str] = &["-pthread", WIRE];

fn setting(mode: u32, bind: u32, cpus: usize) -> Setting {
    Setting { mode, bind, cpus, ..Setting::default() }
}

fn text(output: std::process::Output) -> String {
    String::from_utf8(output.stdout).expect("text")
}

/// What a run printed; on a machine that is busy with other things, the first of five that was not late.
fn on_time(run: impl Fn() -> String) -> String {
    (0..4).map(|_| run()).find(|printed| !printed.contains("on time 0")).unwrap_or_else(run)
}

/// Make sure that every interposed function returns what it returns alone, with the same `errno`, and times out on time.
#[test]
fn programs_see_no_difference() {
    let bench = Bench::new();
    let plain = bench.compile("gcc", &["-pthread", "-w"], "sameness.c", "sameness");
    let instrumented = bench.instrument("gcc", &["-w"], "sameness.c", "sameness-instrumented");
    let groups = [
        "mutexes",
        "robust",
        "rwlocks",
        "conditions",
        "semaphores",
        "lives",
        "c11",
        "sleeping",
        "interrupted",
        "readiness",
        "transfers",
        "rarer",
        "queues",
        "children",
    ];
    for program in [plain, instrumented] {
        for group in groups {
            let alone = on_time(|| text(bench.run_alone(&program, &[group])));
            assert!(alone.lines().count() > 5 && !alone.contains("on time 0"), "{group} alone: {alone}");
            for (mode, bind) in SETTINGS {
                let recorded = on_time(|| text(bench.run(setting(mode, bind, 4), &program, &[group])));
                for (expected, actual) in alone.lines().zip(recorded.lines()) {
                    assert_eq!(actual, expected, "{group} in mode {mode}, bind {bind}");
                }
                assert_eq!(recorded.lines().count(), alone.lines().count(), "{group} in mode {mode}, bind {bind}");
            }
        }
    }
}

/// Make sure that cancellation, jumps out of signal handlers, forks with locks held, bare clones and 300 threads leave nobody waiting.
#[test]
fn nobody_is_left_waiting() {
    let bench = Bench::new();
    let plain = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    let instrumented = bench.instrument("gcc", &[WIRE], "escapes.c", "escapes-instrumented");
    let cases = [
        ("cancelled", "finished 4 cleaned 2 trylock 0\n"),
        ("jumped", "finished 8\n"),
        ("forked", "passed 10 failed 0\n"),
        ("clones", "cloned 3 finished 1\n"),
        ("many", "finished 300\n"),
    ];
    for program in [plain, instrumented] {
        for (case, expected) in cases {
            for (mode, bind) in SETTINGS {
                let began = Instant::now();
                let printed = text(bench.run(setting(mode, bind, THREADS + 1), &program, &[case]));
                assert_eq!(printed, expected, "{case} in mode {mode}, bind {bind}");
                assert!(began.elapsed() < Duration::from_secs(30), "{case} took {:?}", began.elapsed());
            }
        }
    }
}

/// Make sure that threads which exec, the end of their process or a kill ended leave nothing behind on their CPUs.
#[test]
fn threads_that_end_without_a_word_count_no_more() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    for bind in [SPREAD, NONE] {
        for case in ["equals", "replaced", "exited", "killed"] {
            let course = parse(&bench.run(setting(INSTRUMENT, bind, THREADS + 1), &program, &[case]));
            assert_near(course.elapsed(), 1_000_000, 10, &format!("{case}, bind {bind}: a million cycles of work"));
        }
    }
}

/// Make sure that attributes which ask for no affinity give none, whatever those did that lay at their address before.
#[test]
fn attributes_are_forgotten_when_others_take_their_place() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    let cpus = parse(&bench.run(setting(INSTRUMENT, SPREAD, THREADS), &program, &["attributes"])).values;
    // Of eight threads in a row on sixteen CPUs none has the thirteenth by itself: they are the third to the tenth.
    assert_eq!((cpus["first"], cpus["others"]), (13, 0));
}

/// Make sure that a thread which sleeps, in a wait that is followed or in one that nothing sees, takes no time of its CPU from others.
#[test]
fn sleeping_threads_leave_their_cpus() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    for case in ["sigwait", "asleep"] {
        let elapsed = parse(&bench.run(setting(INSTRUMENT, SPREAD, THREADS), &program, &[case])).elapsed();
        assert_near(elapsed, 8_000_000, 12, &format!("{case}: sixteen times 8 M cycles on sixteen CPUs"));
    }
}

/// Make sure that a thread which waits for a file's lock counts as waiting at once, and need not be found asleep by those that wait for its clock.
#[test]
fn waits_for_file_locks_are_known() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    assert_eq!(bench.course(&program, "file-lock").values["known"], 1);
}

/// Make sure that a time-out of `poll` that passes while nobody is behind costs no look at the handlers of all signals.
#[test]
fn idle_waits_ask_for_no_handlers() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    assert_eq!(bench.course(&program, "idle-poll").values["over"], 1);
}

/// Make sure that nobody waits for the clock of a thread that got no slot, and so has none. Each such wait took up to 100 ms.
#[test]
fn threads_without_a_slot_hold_nobody_up() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    let run = || {
        let took = parse(&bench.run(setting(INSTRUMENT, SPREAD, THREADS + 1), &program, &["without-slots"])).values;
        (took["with"], took["without"])
    };
    // Both are times of this machine, which may have other things to do during one of them.
    let is_alike = |(with, without): &(u64, u64)| *without < 5 * with + 500_000;
    let (with, without) = (0..4).map(|_| run()).find(is_alike).unwrap_or_else(run);
    assert!(is_alike(&(with, without)), "40 threads without a slot take {without} us, with one {with} us");
}

/// Make sure that a program begins with clock, memory policy and affinity of the one that started it, or that it replaces, as `numactl` and `taskset` do.
#[test]
fn programs_begin_with_what_their_starters_give_them() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    for bind in [SPREAD, NONE] {
        let on = setting(INSTRUMENT, bind, THREADS + 1);
        let starts = parse(&bench.run(on, &program, &["starts"]));
        for way in ["way0", "way1", "way2"] {
            assert_near(
                starts.values[way],
                1_000_000,
                30,
                &format!("{way}, bind {bind}: a child with a million cycles of work"),
            );
        }
        assert_eq!(starts.values["failed"], 0, "bind {bind}");
        let bound = parse(&bench.run(on, &program, &["bound"]));
        let of = |name: &str| bound.values[name];
        assert_eq!((of("mode"), of("nodes"), of("cpus"), of("cpu")), (3, 5, 1, 5), "bind {bind}");
        assert!(of("begin") >= 1_000_000, "bind {bind}: begins at {}, before the exec", of("begin"));
    }
}

/// Make sure that processes share one program time: what comes by a pipe is not earlier than it was sent.
#[test]
fn processes_share_time() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    for bind in [SPREAD, NONE] {
        let course = parse(&bench.run(setting(INSTRUMENT, bind, THREADS + 1), &program, &["pool"]));
        assert_eq!((course.values["early"], course.values["failed"]), (0, 0), "bind {bind}");
        let elapsed = course.elapsed();
        assert!((5_000_000..=20_500_000).contains(&elapsed), "20 tasks of 1 M cycles by 4 processes took {elapsed}");
    }
}

/// Make sure that of several writers who are the first to write to a pipe none undoes what another said of its clock.
#[test]
fn first_writers_of_a_pipe_keep_the_latest_clock() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "escapes.c", "escapes");
    let course = parse(&bench.run(setting(INSTRUMENT, SPREAD, THREADS + 1), &program, &["first-writers"]));
    assert_eq!(course.values["early"], 0);
}

/// Make sure that clocks join through release and acquire, futexes and what C++20 builds on them, and that a pool's work goes round evenly.
#[test]
fn cpp_synchronisation_joins_clocks() {
    let bench = Bench::new();
    let program = bench.instrument("g++", &["-std=c++20", "-w"], "orders.cpp", "orders");
    for bind in [SPREAD, NONE] {
        let on = setting(INSTRUMENT, bind, THREADS + 1);
        for case in ["flag", "wait", "semaphore"] {
            assert_eq!(parse(&bench.run(on, &program, &[case])).values["early"], 0, "{case}, bind {bind}");
        }
        // Made of read-modify-writes, which take no clock over: not exact, but within the window.
        let early = parse(&bench.run(on, &program, &["meeting"])).values["early"];
        assert!(early <= 2 * u64::from(WINDOW_CYCLES), "left a barrier {early} cycles before the last arrival");
        let course = parse(&bench.run(on, &program, &["pool"]));
        course.assert_even();
        assert_near(course.elapsed(), 10_000_000, 10, "1,600 tasks of 100,000 cycles by 16 threads");
    }
}

/// Make sure that the rarer forms of OpenMP compute what they should, and that nested regions and those with reductions overlap.
#[test]
fn openmp_forms_work() {
    let bench = Bench::new();
    for compiler in ["gcc", "clang"] {
        let program = bench.compile(compiler, &["-fopenmp"], "omp_forms.c", compiler);
        for (mode, bind) in SETTINGS {
            let course = parse(&bench.run(setting(mode, bind, 33), &program, &[]));
            assert_eq!(course.values["wrong"], 0, "{compiler} in mode {mode}, bind {bind}");
            if mode == TRACK {
                continue;
            }
            let nested = course.values["nested"];
            assert!((1_000_000..4_000_000).contains(&nested), "{compiler}, bind {bind}: 4 x 4 of 1 M took {nested}");
            // Serial: at least 4 M and 8 M. A busy host may keep threads from running for longer than the others wait for them.
            let reduction = course.values["reduction"];
            assert!((1_000_000..4_000_000).contains(&reduction), "{compiler}, bind {bind}: 8 of 1 M took {reduction}");
            if let Some(old) = course.values.get("old") {
                assert_near(*old, 500_000, 10, "a region of an old compiler");
            }
        }
    }
}

/// Make sure that a wait whose time-out passes in host time goes on while the thread that will end it is behind in program time, so that it takes what that
/// thread takes; and that it takes its whole time-out where no thread ends it in that time. One that would go on for more than a hundred times its time-out
/// ends, and is counted. A signal whose handler is due between two parts of such a wait for descriptors ends it.
#[test]
fn time_outs_pass_in_program_time() {
    let bench = Bench::new();
    let program = bench.compile("gcc", ESCAPES, "timeouts.c", "timeouts");
    let ended = ["condition", "semaphore", "mutex", "rwlock", "futex", "poll", "join"];
    let is_right = |course: &Course| {
        let took = |name: &str| course.values[name];
        // 20 rounds of 25,000 cycles, of which a time-out of 4 ms would make at least 9 M; and that time-out.
        ended.iter().all(|name| (450_000..1_000_000).contains(&took(name)))
            && ["idle", "passing", "checked", "fine"].iter().all(|name| (9_000_000..10_500_000).contains(&took(name)))
            // Those by the system's own clock took as long as the host let them.
            && ["semaphores", "queue", "suspended"].iter().all(|name| took(name) >= 9_000_000)
            // Of 500,000 cycles the other thread had 80,000 at most.
            && took("early") <= 100_000
            && took("counted") == 1
            // `poll`, `ppoll`, `epoll_wait`, `epoll_pwait`.
            && (took("interrupted"), took("cleaned")) == (4, 1)
    };
    // A host that keeps the slow thread from running for 100 ms makes it count as lost, and time-outs pass.
    let run = || bench.course(&program, "");
    let course = (0..4).map(|_| run()).find(&is_right).unwrap_or_else(run);
    assert!(is_right(&course), "{:?}", course.values);
}

/// Make sure that instrumented code in all waits at once never hangs, however threads are laid out.
#[test]
fn instrumented_torture_ends() {
    let bench = Bench::new();
    let program = bench.instrument("gcc", &[], "torture.c", "torture");
    for bind in [SPREAD, PACK, NONE] {
        for cpus in [17, 2] {
            bench.run(setting(INSTRUMENT, bind, cpus), &program, &[]);
        }
    }
}
