//! Nothing that goes wrong with the recording may reach the program: missing or foreign arenas, a dead or stopped recorder, signals anywhere.
//! And what the built library must never contain.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::support::Arena;
use crate::support::arena;
use crate::support::compile;
use crate::support::record_with;
use crate::support::scratch;
use crate::support::tracker;
use numapilot_trace::record::Event;
use numapilot_trace::wire;
use numapilot_trace::wire::layout;

#[test]
fn the_library_needs_no_loader_for_its_thread_local_storage() {
    let output = Command::new("readelf").args(["-rW"]).arg(tracker()).output().expect("readelf (binutils)");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let ours = if cfg!(target_arch = "aarch64") { "TLS_TPREL" } else { "TPOFF" };
    assert!(text.contains(ours), "there is thread-local storage, and readelf shows how it is reached: {text}");
    for relocation in ["DTPMOD", "DTPOFF", "TLSDESC"] {
        assert!(
            !text.contains(relocation),
            "{relocation}: a thread-local access would call the loader, which may call malloc"
        );
    }
}

#[test]
fn the_library_needs_only_libc_and_the_loader() {
    let output = Command::new("readelf").args(["-dW"]).arg(tracker()).output().expect("readelf (binutils)");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for line in text.lines().filter(|line| line.contains("(NEEDED)")) {
        assert!(line.contains("[libc.so") || line.contains("[ld-linux"), "{line}");
    }
    assert!(text.contains("BIND_NOW"), "bound at load: {text}");
}

#[test]
fn programs_run_the_same_without_a_usable_arena() {
    let program = compile("alloc_all.c", "alloc-plain", &["-O1", "-fno-builtin"]);
    let garbage = scratch().join("garbage");
    fs::write(&garbage, vec![0x5a; 1 << 20]).expect("file");
    let short = scratch().join("short");
    fs::write(&short, layout::ARENA_MAGIC.to_le_bytes()).expect("file");
    let damaged: Vec<Arena> = (0..6)
        .map(|way| {
            let arena = Arena::new(4, 1 << 16);
            arena.edit(|header| match way {
                0 => header.version += 1,
                1 => header.ring_bytes = 1000,
                2 => header.slot_count = u32::MAX,
                3 => header.slots_offset = u64::MAX - 63,
                4 => header.config.mode = 77,
                _ => header.arena_bytes = u64::MAX,
            });
            arena
        })
        .collect();
    let mut values = vec![
        "/does/not/exist".to_owned(),
        "/proc/self/mem".to_owned(),
        "/dev/null".to_owned(),
        "/tmp".to_owned(),
        String::new(),
    ];
    values.extend([garbage.display().to_string(), short.display().to_string(), "x".repeat(5000)]);
    values.extend(damaged.iter().map(Arena::path));
    for value in values.iter().map(Some).chain([None]) {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", tracker()).env("NP_TRUTH", "/dev/null").env_remove("NUMAPILOT_ARENA");
        if let Some(value) = value {
            command.env("NUMAPILOT_ARENA", value);
        }
        let output = command.output().expect("program starts");
        assert!(output.status.success(), "{value:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{value:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(damaged.iter().all(|arena| arena.slots_used() == 0));
}

#[test]
fn a_program_that_asks_for_libnuma_and_has_none_is_told_so() {
    let program = compile("weak_numa.c", "weak-numa", &["-O1"]);
    let plain = Command::new(&program).env("LD_PRELOAD", tracker()).env_remove("NUMAPILOT_ARENA").status();
    let plain = plain.expect("program starts");
    assert!(plain.success(), "{plain}");
    record_with(Arena::new(4, 1 << 16), &program, &[], |_| {}).assert_success();
}

#[test]
fn a_dead_recorder_stops_the_recording_and_not_the_program() {
    let program = compile("alloc_churn.cpp", "churn-dead", &["-O1", "-fno-builtin"]);
    let mut gone = Command::new("true").spawn().expect("true");
    gone.wait().expect("true ends");
    let arena = Arena::new(64, 1 << 16);
    arena.edit(|header| header.recorder_pid = gone.id());
    let begin = Instant::now();
    let run = record_with(arena, &program, &["8", "20000"], |_| {});
    run.assert_success();
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    assert_eq!(run.arena.state(), layout::STATE_STOPPED);
    assert!(run.arena.losses().lost_stopped > 0);
}

/// How many naps of 2 ms this thread takes until then.
fn naps_until(is_over: &AtomicBool) -> u32 {
    let mut naps = 0;
    while !is_over.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(2));
        naps += 1;
    }
    naps
}

#[test]
fn a_recorder_that_does_not_drain_delays_for_a_bounded_time() {
    let program = compile("alloc_churn.cpp", "churn-stuck", &["-O1", "-fno-builtin"]);
    let is_over = AtomicBool::new(false);
    let (run, naps) = thread::scope(|scope| {
        let naps = scope.spawn(|| naps_until(&is_over));
        // After a panic, too, the other thread is to end.
        let run = std::panic::catch_unwind(|| record_with(Arena::new(64, 1 << 16), &program, &["4", "20000"], |_| {}));
        is_over.store(true, Ordering::Release);
        (run, naps.join().expect("a count"))
    });
    let run = run.expect("the program ran");
    run.assert_success();
    // The program waits for ten seconds, by naps of 2 ms that are longer where other programs have the CPUs: as these are. Thirty seconds' worth.
    assert!(naps < 15_000, "{naps} naps of 2 ms");
    assert!(run.arena.losses().lost_full > 0);
    assert!(run.rings.iter().all(|ring| !ring.is_empty()), "what was written before stays readable");
}

/// A recorder in miniature: small rings are drained while the program runs, slots are used again, and nothing is missing.
#[test]
fn a_drained_small_ring_loses_nothing() {
    let program = compile("alloc_churn.cpp", "churn-drained", &["-O1", "-fno-builtin"]);
    let arena = Arena::new(16, 1 << 16);
    let done = AtomicBool::new(false);
    let mut blocks = (0u64, 0u64);
    thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            let mut rings: Vec<Option<(u64, wire::RingState)>> = vec![None; 16];
            let mut counts = (0, 0);
            loop {
                let last = done.load(Ordering::Acquire);
                let bytes = arena.drain_once(|index, generation, bytes| {
                    let ring = rings[index as usize]
                        .get_or_insert((generation, wire::RingState::new(wire::Clock::NANOSECONDS)));
                    if ring.0 != generation {
                        *ring = (generation, wire::RingState::new(wire::Clock::NANOSECONDS));
                    }
                    for record in arena::decode(bytes, &mut ring.1) {
                        counts.0 += u64::from(matches!(record.event, Event::Alloc { .. }));
                        counts.1 += u64::from(matches!(record.event, Event::Free { .. }));
                    }
                });
                if last && bytes == 0 {
                    return counts;
                }
                if bytes == 0 {
                    thread::yield_now();
                }
            }
        });
        let output = Command::new(&program)
            .args(["8", "50000"])
            .env("LD_PRELOAD", tracker())
            .env("NUMAPILOT_ARENA", arena.path())
            .output()
            .expect("program starts");
        done.store(true, Ordering::Release);
        blocks = drainer.join().expect("drainer");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    let losses = arena.losses();
    assert_eq!((losses.lost_no_slot, losses.lost_full, losses.lost_stopped), (0, 0, 0));
    // One per round, one per realloc's first block, and an array every 16 rounds; of which all are given back.
    assert!(blocks.0 >= 8 * 50_000 * 17 / 16 && blocks.1 >= 8 * 50_000 * 17 / 16, "{blocks:?}");
}

#[test]
fn signal_handlers_that_allocate_break_nothing() {
    let allocator = compile("atomic_malloc.c", "libatomic_malloc.so", &["-shared", "-fPIC", "-O1", "-fno-builtin"]);
    let program = compile("signals.c", "signals", &["-O1", "-fno-builtin"]);
    let both = format!("{}:{}", tracker().display(), allocator.display());
    for way in ["same", "alternate"] {
        let run = record_with(Arena::new(16, 64 << 20), &program, &[way], |command| {
            command.env("LD_PRELOAD", &both);
        });
        run.assert_success();
        let number = |prefix: &str| -> u64 {
            run.truth.iter().find_map(|line| line.strip_prefix(prefix)).expect(prefix).parse().expect("number")
        };
        let made = run.events(|event| matches!(event, Event::Alloc { bytes: 64..=199, .. }).then_some(())).len() as u64;
        let lost: u64 = run
            .events(|event| if let Event::Lost { count, .. } = event { Some(*count) } else { None })
            .into_iter()
            .sum();
        let (rounds, handled) = (number("rounds "), number("handled "));
        assert!(
            made <= rounds + handled && made + lost >= rounds + handled,
            "{way}: {made} recorded, {lost} lost of {rounds} + {handled}"
        );
    }
}

/// Coroutines, fibers and signal handlers have small stacks, on which the program has measured its own calls.
#[test]
fn hooks_take_little_of_the_callers_stack() {
    let program = compile("stack_use.c", "stack-use", &["-O1", "-fno-builtin"]);
    let measured = |output: &[u8]| -> Vec<(String, i64)> {
        let text = String::from_utf8_lossy(output).into_owned();
        let lines = text.lines().map(|line| line.split_once(' ').expect("name and number"));
        lines.map(|(name, bytes)| (name.to_owned(), bytes.parse().expect("a number"))).collect()
    };
    let plain = Command::new(&program).env("LD_BIND_NOW", "1").output().expect("program starts");
    let plain = measured(&plain.stdout);
    assert_eq!(plain.len(), 15);
    for limit in ["8192", "unlimited"] {
        let script = format!("ulimit -S -s {limit}; exec {}", program.display());
        let run = record_with(Arena::new(32, 1 << 20), Path::new("/bin/sh"), &["-c", &script], |command| {
            command.env("LD_BIND_NOW", "1");
        });
        run.assert_success();
        for ((name, own), (same, with)) in plain.iter().zip(measured(&run.output.stdout)) {
            assert_eq!(*name, same);
            // On the thread's own stack, code that was not met before has its unwinding rules looked up.
            let most = if name.ends_with("own") { 1700 } else { 1024 };
            assert!(with - own < most, "{name}: {own} bytes without the tracker, {with} with it (stack limit {limit})");
        }
    }
}

/// A library's constructor runs with the loader's lock held: a thread that it waits for must not need that lock for a hook's sake.
#[test]
fn threads_that_a_constructor_waits_for_do_not_wait_for_the_loader() {
    let library = compile("early_threads.cpp", "early_threads.so", &["-shared", "-fPIC", "-O1", "-std=c++20"]);
    let program = compile("early_host.c", "early-host", &["-O1"]);
    let library = library.to_str().expect("UTF-8");
    let plain = Command::new(&program).arg(library).status().expect("program starts");
    assert!(plain.success(), "{plain} without the tracker");
    let unrecorded = Command::new(&program)
        .arg(library)
        .env("LD_PRELOAD", tracker())
        .env_remove("NUMAPILOT_ARENA")
        .status()
        .expect("program starts");
    assert!(unrecorded.success(), "{unrecorded} without an arena");
    for mode in [layout::MODE_TRACK, layout::MODE_INSTRUMENT] {
        let run = record_with(Arena::simulating(32, 1 << 20, mode), &program, &[library], |_| {});
        run.assert_success();
        let threads = run.events(|event| matches!(event, Event::ThreadStart { .. }).then_some(()));
        assert_eq!(threads.len(), 7, "the first, and six that the library started");
    }
}

/// As above: the loader must not be asked by the region's other threads, which come to most of OpenMP's functions first.
#[test]
fn a_region_in_a_constructor_does_not_wait_for_the_loader() {
    let library = compile("early_omp.c", "early_omp.so", &["-shared", "-fPIC", "-O1", "-fopenmp"]);
    let program = compile("early_host.c", "early-host", &["-O1"]);
    let library = library.to_str().expect("UTF-8");
    let plain = Command::new(&program).arg(library).status().expect("program starts");
    assert!(plain.success(), "{plain} without the tracker");
    for mode in [layout::MODE_TRACK, layout::MODE_INSTRUMENT] {
        record_with(Arena::simulating(32, 1 << 20, mode), &program, &[library], |_| {}).assert_success();
    }
}

/// Servers and real-time programs lock their memory, and most of them end where that fails.
#[test]
fn memory_that_a_program_locks_is_its_own() {
    let program = compile("locked.c", "locked", &["-O1"]);
    let numbers = |output: &[u8]| -> Vec<(i32, i32, i64)> {
        let text = String::from_utf8_lossy(output).into_owned();
        let lines = text.lines().map(|line| line.split(' ').map(|word| word.parse().expect("a number")).collect());
        lines.map(|words: Vec<i64>| (words[0] as i32, words[1] as i32, words[2])).collect()
    };
    for arguments in [&[][..], &["limited"]] {
        let plain = Command::new(&program).args(arguments).output().expect("program starts");
        let plain = numbers(&plain.stdout);
        assert_eq!(plain.len(), 6);
        let run = record_with(Arena::new(64, 1 << 20), &program, arguments, |_| {});
        run.assert_success();
        for (own, with) in plain.iter().zip(numbers(&run.output.stdout)) {
            assert_eq!((own.0, own.1), (with.0, with.1), "{arguments:?}: {plain:?}");
            assert!((with.2 - own.2).abs() < 4096, "{arguments:?}: {} KiB are locked, not {}", with.2, own.2);
        }
    }
}

/// Make sure that a process which could run out of addresses by the recording's shared memory runs without it, and that this is counted.
#[test]
fn a_limit_on_addresses_is_not_used_up_by_the_recording() {
    let program = compile("plan_limit.c", "limit-tracked", &["-O1", "-fno-builtin"]);
    let script = format!("ulimit -v {}; exec {} 1500", 2 << 20, program.display());
    let run = record_with(Arena::new(1024, 1 << 20), Path::new("/bin/sh"), &["-c", &script], |_| {});
    run.assert_success();
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "malloc has it 0\nmmap has it\n");
    assert_eq!(run.arena.limited_processes(), 1);
}

/// The arena is there already when a program limits its own addresses: it gets what it asked for, and is told so.
#[test]
fn a_limit_that_a_program_sets_itself_is_its_own() {
    let program = compile("limits.c", "limits", &["-O1"]);
    let plain = Command::new(&program).output().expect("program starts");
    let run = record_with(Arena::new(1024, 1 << 20), &program, &[], |_| {});
    run.assert_success();
    let said = String::from_utf8_lossy(&run.output.stdout);
    assert_eq!(said, String::from_utf8_lossy(&plain.stdout));
    assert!(said.contains("300 MiB: 1\n200 MiB more: 0\n") && said.ends_with("80 MiB more: 1\n"), "{said}");
}

/// A core file may be limited, and holds the program's memory first of all.
#[test]
fn the_arena_is_not_part_of_core_files() {
    let script = "grep -A 40 test-arena /proc/self/smaps | grep -m 1 VmFlags";
    let run = record_with(Arena::new(8, 1 << 20), Path::new("/bin/sh"), &["-c", script], |_| {});
    let said = String::from_utf8_lossy(&run.output.stdout);
    assert!(said.split_whitespace().any(|flag| flag == "dd"), "not left out of dumps: {said}");
}

/// The arena goes with the image that had it.
#[test]
fn a_limit_on_addresses_is_passed_on_as_it_was_set() {
    let script = "ulimit -S -v 3000000; sh -c 'ulimit -v'; ulimit -v; exec /nonexistent";
    let after = "ulimit -S -v 3000000; exec sh -c 'ulimit -v'";
    for (script, said) in [(script, "3000000\n3000000\n"), (after, "3000000\n")] {
        let run = record_with(Arena::new(1024, 1 << 20), Path::new("/bin/sh"), &["-c", script], |_| {});
        assert_eq!(String::from_utf8_lossy(&run.output.stdout), said, "{script}");
    }
}

/// Sandboxed children of servers are killed for any system call that they do not make themselves.
#[test]
fn a_program_that_restricts_its_system_calls_is_not_killed_for_ours() {
    let program = compile("confined.c", "confined", &["-O1", "-fno-builtin"]);
    for by in ["prctl", "seccomp", "number"] {
        for end in ["return", "_exit"] {
            let plain = Command::new(&program).args([by, end]).output().expect("program starts");
            assert!(plain.status.success(), "{by} {end}: {} without the tracker", plain.status);
            let run = record_with(Arena::new(8, 4 << 20), &program, &[by, end], |_| {});
            run.assert_success();
            let blocks = run.events(|event| matches!(event, Event::Alloc { bytes: 1000..2000, .. }).then_some(()));
            assert_eq!(blocks.len(), 4 * 1000, "{by} {end}: of all three threads, and a child");
            let marks = run.events(|event| if let Event::Mark { text } = event { Some(text.clone()) } else { None });
            assert!(marks.iter().any(|mark| mark.contains("seccomp")), "{marks:?}");
        }
    }
}

/// The filter goes with it: neither a look at the program nor what the tracker would call in it is on its list.
#[test]
fn a_program_that_restricts_its_system_calls_may_become_another() {
    let program = compile("confined.c", "confined", &["-O1", "-fno-builtin"]);
    let still = compile("confined.c", "still", &["-O1", "-DSTILL", "-static", "-nostdlib"]);
    let still = still.to_str().expect("UTF-8");
    for by in ["prctl", "seccomp", "number"] {
        let plain = Command::new(&program).args([by, "exec", still]).output().expect("program starts");
        assert!(plain.status.success(), "{by}: {} without the tracker", plain.status);
        let run = record_with(Arena::new(8, 4 << 20), &program, &[by, "exec", still], |_| {});
        run.assert_success();
        assert_eq!(run.arena.unrecorded_programs(layout::UNRECORDED_CLOSED), 1, "{by}");
    }
}

/// A vfork child runs in its parent's memory, and the filter is the child's alone.
#[test]
fn a_child_that_restricts_its_system_calls_does_not_restrict_its_parents() {
    let program = compile("confined_child.c", "confined-child", &["-O1", "-fno-builtin"]);
    let still = compile("confined.c", "still-child", &["-O1", "-DSTILL", "-static", "-nostdlib"]);
    let still = still.to_str().expect("UTF-8");
    for arguments in [&[][..], &[still], &[still, "/nonexistent"]] {
        let plain = Command::new(&program).args(arguments).output().expect("program starts");
        assert!(plain.status.success(), "{arguments:?}: {} without the tracker", plain.status);
        let run = record_with(Arena::new(8, 4 << 20), &program, arguments, |_| {});
        run.assert_success();
        // The path is asked for: it is left out where the program is confined.
        let mapped = run.events(|event| match event {
            Event::Map { path, flags, .. } => (path.ends_with("/confined-child") && flags & 64 == 0).then_some(()),
            _ => None,
        });
        assert_eq!(mapped.len(), 1, "{arguments:?}");
        let blocks = run.events(|event| matches!(event, Event::Alloc { bytes: 1000, .. }).then_some(()));
        assert_eq!(blocks.len(), 100, "{arguments:?}: the parent has not ended");
        let marks = run.events(|event| if let Event::Mark { text } = event { Some(text.clone()) } else { None });
        assert!(!marks.iter().any(|mark| mark.contains("seccomp")), "{marks:?}");
    }
}

/// Valgrind looks at each system call, and ends where one has arguments that it does not expect.
#[test]
fn programs_run_under_valgrind_with_the_tracker() {
    let program = compile("plan_limit.c", "under-valgrind", &["-O1", "-fno-builtin"]);
    let arguments = ["--quiet", program.to_str().expect("UTF-8"), "8"];
    let run = record_with(Arena::new(16, 1 << 20), Path::new("valgrind"), &arguments, |_| {});
    run.assert_success();
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "malloc has it 0\nmmap has it\n");
    assert!(run.rings.iter().any(|ring| !ring.is_empty()), "it was not recorded");
}

/// Their programs end where another library was loaded before the sanitizer's.
#[test]
fn programs_with_sanitizers_run_without_the_tracker() {
    let addresses = compile("plan_limit.c", "sanitized-addresses", &["-O1", "-fsanitize=address"]);
    let threads = compile("plan_limit.c", "sanitized-threads", &["-O1", "-fsanitize=thread"]);
    let script = format!("{} 8; exec {} 8", addresses.display(), threads.display());
    // Looking for leaks asks for rights that containers do not give.
    let leaks = ("ASAN_OPTIONS", "detect_leaks=0");
    let mut plain = Command::new("/bin/sh");
    let plain = plain.args(["-c", &script]).env(leaks.0, leaks.1).output().expect("program starts");
    let run = record_with(Arena::new(16, 1 << 20), Path::new("/bin/sh"), &["-c", &script], |command| {
        command.env(leaks.0, leaks.1);
    });
    let said = String::from_utf8_lossy(&run.output.stdout);
    assert_eq!((run.output.status, &*said), (plain.status, &*String::from_utf8_lossy(&plain.stdout)));
    assert!(said.starts_with("malloc has it 0\nmmap has it\n"), "{said}");
    assert_eq!(run.arena.unrecorded_programs(layout::UNRECORDED_FOREIGN), 2);
}

/// The C library of Ubuntu 24.04, where a thread-local access of the dynamic kind may allocate. `NUMAPILOT_LIBC239` names a directory with
/// an unpacked libc6 2.39 package; where there is none, this says so and checks the same with the system's own loader.
#[test]
fn runs_under_another_c_library_by_its_loader() {
    let program = compile("alloc_churn.cpp", "churn-libc", &["-O1", "-fno-builtin"]);
    let (loader, libraries) = match std::env::var("NUMAPILOT_LIBC239") {
        Ok(root) => (
            format!("{root}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
            format!("{root}/usr/lib/x86_64-linux-gnu:"),
        ),
        Err(_) => ("/lib64/ld-linux-x86-64.so.2".to_owned(), String::new()),
    };
    assert!(Path::new(&loader).exists(), "{loader}");
    let libraries = format!("{libraries}/usr/lib/x86_64-linux-gnu");
    let arguments = [
        "--library-path",
        &libraries,
        "--preload",
        tracker().to_str().expect("UTF-8"),
        program.to_str().expect("UTF-8"),
        "8",
        "5000",
    ];
    let run = record_with(Arena::new(32, 4 << 20), Path::new(&loader), &arguments, |command| {
        command.env_remove("LD_PRELOAD");
    });
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    let (made, _) = run.check_lives();
    assert!(made > 8 * 5000, "{made}");
}
