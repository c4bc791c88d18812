//! The simulated memory system against what is known to be true: programs whose every access is known (`sim/direct.c` calls the entry points itself),
//! run under a small recorder (`sim/harness.c`: four nodes of four CPUs, private filters of 9,216 lines, 9 ways).

use std::path::Path;
use std::process::Command;

use crate::sim::lab::*;
use object::Object;
use object::ObjectSection;
use object::SectionKind;

/// Lines of a private filter: 1024 sets of 9 ways.
const PRIVATE_LINES: f64 = 9216.0;
/// The harness's machine, threads spread over its nodes: thread k runs on node k % 4. Accesses of the program's start that are not the test's: a few
/// block copies and string lengths of `main`.
const SLACK: u64 = 16;

fn about(found: u64, expected: u64) {
    assert!(
        found >= expected && found <= expected + SLACK,
        "{found}, not {expected} (up to {SLACK} more for the program's start)"
    );
}

#[test]
fn a_working_set_that_fits_misses_once_per_line() {
    let lab = Lab::new();
    let outcome = lab.record(100, &[], &lab.direct(), &["fit"]);
    about(outcome.number("total", "accesses"), 101_000);
    about(outcome.number("total", "memory"), 1000);
    about(outcome.nodes("home", None)[0], 1000);
    // They were read line by line: all but a stream's first lines come at an eighth of the local latency of 230 cycles.
    let (memory, streamed) = (outcome.number("total", "memory"), outcome.number("total", "streamed"));
    assert!(streamed + SLACK >= 1000 && streamed < memory, "{streamed} of {memory}");
    assert_eq!(outcome.number("total", "cycles"), (memory - streamed) * 230 + streamed * (230 / 8));
}

/// Independent uniform accesses to W lines hit a full cache of C lines with probability C / W, whatever is replaced.
#[test]
fn uniform_accesses_hit_in_proportion_to_the_capacity() {
    let lab = Lab::new();
    let program = lab.direct();
    for seed in ["1", "2", "3"] {
        let outcome = lab.record(100, &[("SEED", seed)], &program, &["uniform", seed]);
        let cold = PRIVATE_LINES * 4.0;
        let expected = 1e6 * (1.0 - PRIVATE_LINES / cold);
        // Filling up adds at most the capacity in misses. The deviation of the mean of a million draws is below 500, set imbalance aside.
        let found = outcome.number("total", "l3") as f64;
        assert!(
            found > expected - 3000.0 && found < expected + PRIVATE_LINES + 3000.0,
            "seed {seed}: {found} of {expected}"
        );
        // 2.3 MB of lines fit the L3 of 6 MiB, but for crowded sets: memory is asked about once per line.
        let memory = outcome.number("total", "memory") as f64;
        assert!(memory >= cold && memory < cold * 1.2, "seed {seed}: {memory} memory accesses for {cold} lines");
        let streamed = outcome.number("total", "streamed");
        assert!((streamed as f64) < memory * 0.02, "seed {seed}: {streamed} of {memory} look like streams");
        assert_eq!(outcome.number("total", "cycles"), (memory as u64 - streamed) * 230 + streamed * (230 / 8));
    }
}

#[test]
fn false_sharing_shows_as_cache_transfers_and_private_lines_do_not() {
    let lab = Lab::new();
    let program = lab.direct();
    let together = lab.record(100, &[], &program, &["ping-pong"]);
    assert_eq!(together.number("total", "peer"), 1999, "every write but the first finds the line written by the other");
    assert_eq!(together.nodes("thread 1", Some("home"))[1], 1000, "counted at the home of the page");
    let apart = lab.record(100, &[], &program, &["apart"]);
    assert_eq!(apart.number("total", "peer"), 0);
    about(apart.number("total", "memory"), 2);
    let shared = lab.record(100, &[], &program, &["shared"]);
    assert_eq!(shared.number("total", "peer"), 0, "lines that are only read are shared in peace");
    about(shared.number("total", "memory"), 8000);
}

#[test]
fn pages_live_where_they_are_touched_first() {
    let lab = Lab::new();
    let program = lab.direct();
    let outcome = lab.record(100, &[], &program, &["first-touch"]);
    for thread in 1..=4 {
        let key = format!("thread {thread}");
        assert_eq!(outcome.nodes(&key, Some("home"))[thread % 4], 64, "{key} touches its own pages");
    }
    let placed = outcome.nodes("placed", None);
    assert_eq!(placed[1..], [64, 64, 64]);
    // Beside them, what main's start had touched unseen: told when the first thread was made.
    assert!((64..=64 + 8 * SLACK).contains(&placed[0]), "{placed:?}");
    assert_eq!(outcome.nodes("thread 0", Some("home"))[1..], [4096, 4096, 4096], "then one thread reads them all");
    // A node without memory: its threads' pages go to the nearest that has some.
    let without = lab.record(100, &[("MEMORYLESS", "2")], &program, &["first-touch"]);
    assert_eq!(without.nodes("thread 2", Some("home")), [0, 0, 0, 64]);
}

#[test]
fn unmapped_pages_are_forgotten_and_forked_ones_inherited_until_they_are_written() {
    let lab = Lab::new();
    let program = lab.direct();
    let forget = lab.record(100, &[], &program, &["forget"]);
    assert_eq!(forget.nodes("thread 1", Some("home")), [0, 64, 0, 0], "the same addresses, mapped anew");
    let fork = lab.record(100, &[], &program, &["fork"]);
    assert_eq!(
        fork.nodes("thread 1", Some("home")),
        [64, 128, 0, 0],
        "what it reads is where its parent put it, what it writes are copies on its node, as its own pages are"
    );
}

/// With one line in eight simulated, tags have no room for the top bits of an address.
#[test]
fn unmapped_lines_leave_the_private_filter_wherever_they_lie() {
    let lab = Lab::new();
    let program = lab.direct();
    for lines in ["1", "8"] {
        let outcome = lab.record(100, &[("LINES", lines)], &program, &["lives"]);
        let placed: u64 = outcome.nodes("placed", None).iter().sum();
        assert!(placed >= 2 * 50 * 256, "lines {lines}: {placed} first touches, one in each page of each life");
        let (asked, left) = (outcome.number("total", "l2"), outcome.number("total", "l3"));
        assert!(left > 10_000 && asked - left < 8 * SLACK, "lines {lines}: {left} of {asked} look-ups find no line");
    }
}

/// Whichever line a thread touches first after another thread has sent it to a CPU, it is there by then.
#[test]
fn threads_are_where_others_sent_them() {
    let lab = Lab::new();
    let program = lab.direct();
    for seed in ["1", "2", "3"] {
        for lines in ["1", "8"] {
            let outcome = lab.record(100, &[("LINES", lines), ("SEED", seed)], &program, &["sent"]);
            let placed = outcome.nodes("placed", None);
            assert!(placed[3] >= 4 * 64, "lines {lines}, seed {seed}: {placed:?}, CPU 15 is on node 3");
        }
    }
}

/// Reads of memory that nobody has written hit the cache, which holds the zero page, and the kernel is not asked about each.
#[test]
fn reads_of_the_zero_page_cost_what_hits_cost() {
    let lab = Lab::new();
    let program = lab.direct();
    for lines in ["1", "8"] {
        let polled = lab.record(100, &[("LINES", lines)], &program, &["polled"]);
        let asked = polled.number("total", "l2");
        assert!(asked < 8 * SLACK, "lines {lines}: {asked} of a million reads of one word left the first stage");
        assert!(polled.number("total", "written") >= 1, "lines {lines}: the first write after them goes to memory");
        // Processor time, of which a hypervisor may have taken some in one of the two passes. To ask the kernel each time would take longer in every run.
        let run = || {
            let passes = lab.record(100, &[("LINES", lines)], &program, &["unwritten"]);
            (passes.first("unwritten"), passes.number("unwritten", "written"))
        };
        let is_cheap = |(unwritten, written): &(u64, u64)| *unwritten < 2 * written;
        let (unwritten, written) = (0..4).map(|_| run()).find(is_cheap).unwrap_or_else(run);
        assert!(is_cheap(&(unwritten, written)), "lines {lines}: {unwritten} us, and {written} us where it is written");
    }
}

#[test]
fn accesses_are_counted_line_by_line() {
    let lab = Lab::new();
    let outcome = lab.record(100, &[], &lab.direct(), &["ranges"]);
    about(outcome.number("total", "memory"), 200 + 1700 + 200);
    assert_eq!(outcome.number("total", "written"), 100);
}

/// The sum of weights can differ from the exact count by less than a period per thread; shares of nodes are within three standard deviations, for
/// fixed and for adapted periods.
#[test]
fn samples_are_unbiased() {
    let lab = Lab::new();
    let program = lab.direct();
    let mut deviations = Vec::new();
    for seed in 1..=8 {
        let (text, period) = (seed.to_string(), if seed % 2 == 0 { 0 } else { 97 });
        let outcome = lab.record(period, &[("SEED", &text)], &program, &["mixed", &text]);
        let exact = outcome.number("total", "memory");
        let weight: u64 = outcome.nodes("samples", Some("weight")).iter().sum();
        let largest = if period == 0 { exact / 20 } else { period * 5 };
        assert!(exact.abs_diff(weight) < largest, "seed {seed}: {weight} of {exact}");
        let samples = outcome.first("samples") as f64;
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let written = share(outcome.number("total", "written"), exact);
        let estimate = share(outcome.number("samples", "written"), weight);
        let sigma = (written * (1.0 - written) / samples).sqrt();
        // Adapted periods weight samples unequally: fewer effective ones.
        let z = (estimate - written) / (sigma * if period == 0 { 2.0 } else { 1.0 });
        assert!(z.abs() < 4.0, "seed {seed}: writes {estimate} of {written}, {z} deviations");
        deviations.push(z);
    }
    let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
    assert!(mean.abs() < 3.0 / (deviations.len() as f64).sqrt(), "biased: {deviations:?}");
}

/// Time limits and interpreters jump out of plain computation by a signal handler, and so out of our own calls in it.
#[test]
fn a_thread_that_jumps_out_of_a_call_out_is_simulated_on() {
    let lab = Lab::new();
    let program = lab.build("gcc", GCC, &source("jumps.c"), "jumps");
    let outcome = lab.record(100, &[], &program, &[]);
    let lines = (4 << 20) / 64;
    let memory = outcome.number("total", "memory");
    assert!(memory >= lines && memory < 2 * lines, "{memory} accesses to memory, of which {lines} are known");
}

const CLANG: &[&str] =
    &["-Xclang", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0", WIDE_ATOMICS, "-w"];

fn compilers() -> Vec<(&'static str, &'static [&'static str])> {
    let all = [("gcc", GCC), ("clang", CLANG)];
    all.into_iter()
        .filter(|(name, _)| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()))
        .collect()
}

#[test]
fn atomics_are_atomic_recorded_or_not() {
    let lab = Lab::new();
    assert!(!compilers().is_empty());
    for (compiler, options) in compilers() {
        for level in ["-O0", "-O2"] {
            let options: Vec<&str> = options.iter().copied().chain([level]).collect();
            let program = lab.build(compiler, &options, &source("atomics.c"), &format!("atomics-{compiler}{level}"));
            check(&Command::new(&program).output().expect("it runs alone"), compiler);
            let outcome = lab.record(100, &[], &program, &[]);
            assert!(outcome.number("total", "peer") > 0, "{compiler} {level}: four threads write the same lines");
        }
    }
}

/// `numapilot-symbols` leaves these sections out when it judges how much of a program is instrumented; code elsewhere would count as the program's.
#[test]
fn all_code_of_the_archive_lies_in_sections_of_its_own() {
    let lab = Lab::new();
    let data = std::fs::read(&lab.callouts).expect("the archive");
    let archive = object::read::archive::ArchiveFile::parse(&*data).expect("an archive");
    let (mut own, mut other) = (0, Vec::new());
    for member in archive.members() {
        let member = member.expect("a member");
        let file = object::File::parse(member.data(&*data).expect("its bytes")).expect("an object");
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text && section.size() > 0) {
            match section.name().expect("a name") {
                "np_callouts_text" | "np_callouts_wrapped" => own += section.size(),
                name => other.push((name.to_owned(), section.size())),
            }
        }
    }
    assert!(own > 10_000 && other.is_empty(), "{own} bytes, and elsewhere {other:?}");
}

/// Whatever the compilers call at any level of optimisation, the archive has.
#[test]
fn no_entry_point_is_missing() {
    let lab = Lab::new();
    let symbols = |path: &Path, wanted: fn(&str) -> bool| -> Vec<String> {
        let output = Command::new("nm").arg(path).output().expect("nm");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let named = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        });
        named.filter(|(name, kind)| name.starts_with("__tsan_") && wanted(kind)).map(|(name, _)| name).collect()
    };
    let defined = symbols(&lab.callouts, |kind| kind != "U");
    assert!(defined.len() > 150, "{} entry points", defined.len());
    for (compiler, options) in compilers() {
        for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            for (file, extra) in
                [("atomics.c", "-g"), ("direct.c", "-g"), ("harness.c", "-g"), ("accesses.cpp", "-std=c++17")]
            {
                let object = lab.path("x.o");
                let mut command = Command::new(compiler);
                command.args(options).args([level, extra, concat!("-I", env!("CARGO_MANIFEST_DIR"), "/c"), "-c"]);
                check(&command.arg(source(file)).arg("-o").arg(&object).output().expect("a compiler"), file);
                for name in symbols(&object, |kind| kind == "U") {
                    assert!(defined.contains(&name), "{compiler} {level} {file}: {name} is not in the archive");
                }
            }
        }
    }
}

/// Recordings of which the mean is judged: only a few misses are asked whether another waits for them (`overlap.c`, leaders), and which ones depends on the
/// seed and on where the system puts the heap. One recording of `buckets` is off by 0.03 (one standard deviation), the mean of these by 0.011.
const RECORDINGS: u32 = 8;

/// Recordings of one of the programs of misses that hang together in a known way, on a core that looks 49 accesses ahead and keeps 10 misses
/// outstanding: the share of dependent ones, and cycles for each.
fn hanging_together(lab: &Lab, program: &Path, case: &str, lines: &str) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for seed in 1..=RECORDINGS {
        let settings = [("LOOKAHEAD", "49"), ("LINES", lines), ("SEED", &seed.to_string())];
        let outcome = lab.record(1000, &settings, program, &[case]);
        let of = |name| outcome.number("total", name) as f64;
        let scattered = of("memory") - of("streamed");
        assert!(of("streamed") < 0.2 * scattered, "{case}: {} of {} look like streams", of("streamed"), of("memory"));
        let cycles = of("cycles") - of("streamed") * (230.0 / 8.0);
        sums = (sums.0 + of("dependent") / scattered, sums.1 + cycles / scattered);
    }
    (sums.0 / f64::from(RECORDINGS), sums.1 / f64::from(RECORDINGS))
}

/// Where each address comes from the line before, each miss costs its whole latency; where none does, ten go on at a time; with a hundred accesses between
/// them, hardly two are within reach.
#[test]
fn misses_overlap_as_far_as_their_addresses_allow() {
    let lab = Lab::new();
    let program = lab.direct();
    for lines in ["1", "8"] {
        let (dependent, cycles) = hanging_together(&lab, &program, "chase", lines);
        assert!(dependent > 0.99 && cycles > 0.97 * 230.0, "chase, lines {lines}: {dependent}, {cycles} cycles");
        let (dependent, cycles) = hanging_together(&lab, &program, "listed", lines);
        // One line in nine is the table's, and others wait for each of those.
        assert!(dependent < 0.2 && cycles < 1.1 * 23.0, "listed, lines {lines}: {dependent}, {cycles} cycles");
        let (dependent, cycles) = hanging_together(&lab, &program, "gather", lines);
        assert!(dependent < 0.02 && cycles < 1.1 * 23.0, "gather, lines {lines}: {dependent}, {cycles} cycles");
        let (dependent, cycles) = hanging_together(&lab, &program, "sparse", lines);
        let expected = 230.0 / (1.0 + 49.0 / 101.0);
        assert!(
            dependent < 0.02 && (cycles / expected - 1.0).abs() < 0.05,
            "sparse, lines {lines}: {dependent}, {cycles} cycles, not {expected}"
        );
        let (dependent, _) = hanging_together(&lab, &program, "buckets", lines);
        assert!((dependent - 0.5).abs() < 0.07, "buckets, lines {lines}: {dependent}");
    }
}
