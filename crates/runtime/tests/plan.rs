//! The planner's allocator and hooks, alone: every policy under torture, and programs of every kind that must not notice it.
//!
//! Plan images come from `programs/plan_image.c`, on one node: where pages go is tested in `crates/cli/tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{Arena, compile, programs, record_with, scratch, tracker};

const POLICIES: [(&str, u32); 7] = [
    ("node", 1),
    ("interleave", 2),
    ("weighted-interleave", 3),
    ("local", 4),
    ("first-use", 5),
    ("split", 6),
    ("hand-over", 8),
];

/// The C constant `NP_PLAN_TWINS`.
const TWINS: u32 = 1;

pub(super) fn planner() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| numapilot_runtime::unpack(&scratch().join("cache")).expect("unpack").planner)
}

/// A plan image for blocks of these sizes.
pub(super) fn image(name: &str, least: u64, most: u64, policy: u32) -> PathBuf {
    image_with(name, least, most, policy, 0)
}

fn image_with(name: &str, least: u64, most: u64, policy: u32, flags: u32) -> PathBuf {
    image_of(name, &[least, most, policy.into(), flags.into()])
}

/// The arguments of `programs/plan_image.c` behind the file's name.
pub(super) fn image_of(name: &str, arguments: &[u64]) -> PathBuf {
    static MAKER: OnceLock<PathBuf> = OnceLock::new();
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let maker = MAKER.get_or_init(|| compile("plan_image.c", "plan_image", &[&include]));
    let path = scratch().join(name);
    let arguments: Vec<String> = arguments.iter().map(u64::to_string).collect();
    assert!(Command::new(maker).arg(&path).args(arguments).status().expect("the maker runs").success());
    path
}

pub(super) fn under(image: &Path, command: &mut Command) -> Output {
    command.env("LD_PRELOAD", planner()).env("NUMAPILOT_PLAN", image).output().expect("the program starts")
}

/// The tracker stands before the planner.
fn give_both(command: &mut Command, image: &Path) {
    let preload = format!("{}:{}", tracker().display(), planner().display());
    command.env("LD_PRELOAD", preload).env("NUMAPILOT_PLAN", image);
}

/// Counters of the image's only rule: objects, bytes, passed, failures.
pub(super) fn counters(image: &Path) -> [u64; 4] {
    let bytes = fs::read(image).expect("the image");
    let at = bytes.len() - 48;
    [0, 1, 2, 3].map(|i| u64::from_le_bytes(bytes[at + i * 8..at + i * 8 + 8].try_into().expect("eight bytes")))
}

/// Objects that the rule took, and those of them for which there was no memory. Where the kernel refuses to place anything (containers), what is not placed
/// was taken all the same.
fn taken(image: &Path) -> (u64, u64) {
    let [placed, _, passed, failures] = counters(image);
    if failures > 0 { (placed + passed, 0) } else { (placed, passed) }
}

#[test]
fn blocks_keep_bytes_alignment_and_errno_under_every_policy() {
    let torture = compile("plan_torture.c", "plan_torture", &["-O1", "-fno-builtin"]);
    for (name, policy) in POLICIES {
        let image = image(&format!("torture-{name}"), 0, 1 << 62, policy);
        let seed = (policy * 7 + 1).to_string();
        let output = under(&image, Command::new(&torture).args(["6", "12000", &seed]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}, seed {seed}: {} {said}", output.status);
        assert_eq!(output.stdout, b"torture ok\n");
        let (placed, passed) = taken(&image);
        assert!(placed > 10_000 && passed == 0, "{name}: {placed} objects, {passed} passed");
    }
}

/// Plans that are measured: every block lies beside one of the program's own allocator.
#[test]
fn blocks_with_twins_keep_bytes_alignment_and_errno_under_every_policy() {
    let torture = compile("plan_torture.c", "plan_torture_twins", &["-O1", "-fno-builtin"]);
    for (name, policy) in POLICIES {
        let image = image_with(&format!("twins-{name}"), 0, 1 << 62, policy, TWINS);
        let seed = (policy * 11 + 1).to_string();
        let output = under(&image, Command::new(&torture).args(["6", "12000", &seed]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}, seed {seed}: {} {said}", output.status);
        assert_eq!(output.stdout, b"torture ok\n");
        let (placed, passed) = taken(&image);
        assert!(placed > 10_000 && passed == 0, "{name}: {placed} objects, {passed} passed");
    }
}

/// Offsets within 64 KiB and sizes of blocks, line by line: those under a measured plan are those without one.
#[test]
fn blocks_with_twins_lie_as_the_programs_own_allocator_has_them() {
    let offsets = compile("plan_offsets.c", "plan_offsets", &["-O1", "-fno-builtin"]);
    let alone = Command::new(&offsets).output().expect("it runs");
    assert!(alone.status.success() && alone.stdout.len() > 1000);
    let image = image_with("offsets", 0, 1 << 62, 2, TWINS);
    let planned = under(&image, &mut Command::new(&offsets));
    let lines =
        |output: &Output| String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    for (own, ours) in lines(&alone).iter().zip(lines(&planned)) {
        assert_eq!(*own, ours);
    }
    assert_eq!(lines(&alone).len(), lines(&planned).len());
    assert!(taken(&image).0 > 100 && taken(&image).1 == 0, "{:?}", counters(&image));
}

/// The kernel does not empty locked pages at a plain request: what calloc then hands out must be zero all the same, and no longer locked.
#[test]
fn calloc_is_zero_where_a_locked_block_was() {
    let locked = compile("plan_locked.c", "plan_locked", &["-O1", "-fno-builtin"]);
    for (name, policy) in POLICIES {
        for flags in [0, TWINS] {
            let image = image_with(&format!("locked-{name}-{flags}"), 1 << 20, 1 << 62, policy, flags);
            let output = under(&image, &mut Command::new(&locked));
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{name}, flags {flags}: {} {said}", output.status);
            assert!(taken(&image).0 >= 4, "{name}: {:?}", counters(&image));
        }
    }
}

/// Such a library calls the C library's own free, past the planner: a planned block that it is given must not end the program. It is named without a
/// path, and found by the program's own RUNPATH alone: the loader must see the program as its caller.
#[test]
fn libraries_that_prefer_their_own_symbols_may_free_blocks() {
    let deep = compile("plan_deep.c", "plan_deep", &["-O1", "-fno-builtin", "-Wl,-rpath,$ORIGIN"]);
    let fixed = compile(
        "plan_deep.c",
        "plan_deep_fixed",
        &["-O1", "-fno-builtin", "-fno-pie", "-no-pie", "-Wl,-rpath,$ORIGIN"],
    );
    let image = image("deep", 0, 1 << 62, 1);
    for (kind, flag) in [("now", "-Wl,-z,now"), ("lazy", "-Wl,-z,lazy")] {
        let name = format!("libplan_deep_{kind}.so");
        compile("plan_deep.c", &name, &["-O1", "-fno-builtin", "-DLIBRARY", "-shared", "-fPIC", flag]);
        for binding in ["now", "lazy"] {
            for program in [&deep, &fixed] {
                let output = under(&image, Command::new(program).args([&name, binding]));
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}, {kind}, {binding}: {} {said}", program.display(), output.status);
            }
        }
    }
    assert!(taken(&image).0 > 4);
}

/// As `threads_that_a_constructor_waits_for_do_not_wait_for_the_loader` of the tracker.
#[test]
fn threads_that_a_constructor_waits_for_are_served() {
    let library = compile("early_threads.cpp", "early_threads.so", &["-shared", "-fPIC", "-O1", "-std=c++20"]);
    let program = compile("early_host.c", "early-host", &["-O1"]);
    let image = image("early", 0, 1 << 62, 1);
    let output = under(&image, Command::new(&program).arg(&library));
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stderr));
    let library = library.to_str().expect("UTF-8");
    let run = record_with(Arena::new(32, 1 << 20), &program, &[library], |command| give_both(command, &image));
    run.assert_success();
}

/// The tracker has libnuma's functions, and passes them on where no machine is simulated; the planner must not take that for a kernel that cannot place.
/// And it asks the kernel for mappings itself, past the planner's hook: the planner places them all the same.
#[test]
fn blocks_and_mappings_are_placed_under_a_recording_of_a_program_without_libnuma() {
    let program = compile("plan_limit.c", "plan-no-libnuma", &["-O1", "-fno-builtin"]);
    let image = image("no-libnuma", 1 << 20, 1 << 62, 1);
    let run = record_with(Arena::new(8, 1 << 20), &program, &["8"], |command| give_both(command, &image));
    run.assert_success();
    let [placed, _, _, failures] = counters(&image);
    let bytes = fs::read(&image).expect("the image");
    let at = bytes.len() - 16;
    let error = i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    // Containers may forbid it; that is an answer of the kernel's.
    assert_ne!(error, i64::from(libc::ENOSYS), "{placed} placed, {failures} failures");
    assert!(placed + failures >= 2, "a block and a mapping: {placed} placed, {failures} failures");
}

/// The tracker stands before the planner, whether it records or finds no arena to record to: its functions are found first, and its search for functions goes
/// past the planner's.
#[test]
fn libraries_that_prefer_their_own_symbols_may_free_blocks_under_a_recording() {
    let deep = compile("plan_deep.c", "plan_deep", &["-O1", "-fno-builtin", "-Wl,-rpath,$ORIGIN"]);
    let image = image("deep-recorded", 0, 1 << 62, 1);
    for (kind, flag) in [("now", "-Wl,-z,now"), ("lazy", "-Wl,-z,lazy")] {
        let name = format!("libplan_deep_{kind}.so");
        compile("plan_deep.c", &name, &["-O1", "-fno-builtin", "-DLIBRARY", "-shared", "-fPIC", flag]);
        for binding in ["now", "lazy"] {
            let with_plan = |command: &mut Command| give_both(command, &image);
            record_with(Arena::new(192, 4 << 20), &deep, &[&name, binding], with_plan).assert_success();
            let mut unrecorded = Command::new(&deep);
            with_plan(unrecorded.args([&name, binding]));
            let output = unrecorded.output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{kind}, {binding}: {} {said}", output.status);
        }
    }
    assert!(taken(&image).0 > 4);
}

#[test]
fn blocks_go_between_the_planner_and_the_programs_allocator() {
    let torture = compile("plan_torture.c", "plan_torture_sizes", &["-O1", "-fno-builtin"]);
    let image = image("torture-sizes", 1000, 30_000, 2);
    let output = under(&image, Command::new(&torture).args(["4", "12000", "5"]));
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(taken(&image).0 > 100);
}

/// Reserving addresses fails, then little by little memory does: the program goes on.
#[test]
fn a_program_with_little_room_runs_on() {
    let torture = compile("plan_torture.c", "plan_torture_room", &["-O1", "-fno-builtin"]);
    let image = image("torture-room", 0, 1 << 62, 2);
    let limited = format!("ulimit -v 400000; exec {} 2 2000 3", torture.display());
    let output = Command::new("sh")
        .args([
            "-c",
            &format!(
                "LD_PRELOAD={} NUMAPILOT_PLAN={}; export LD_PRELOAD NUMAPILOT_PLAN; {limited}",
                planner().display(),
                image.display()
            ),
        ])
        .output()
        .expect("sh");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn programs_of_every_kind_do_not_notice_it() {
    let image = image("programs", 0, 1 << 62, 4);
    let source = programs().join("plan_torture.c");
    let commands: [(&str, Vec<String>); 5] = [
        (
            "sort",
            vec!["-c".into(), "seq 30000 | sort -R --random-source=/dev/zero | sort -n --parallel=4 | cksum".into()],
        ),
        (
            "python",
            vec![
                "-c".into(),
                "python3 -c 'import json,threading,subprocess,ctypes\n\
                 t=[threading.Thread(target=lambda: json.dumps(list(range(9999)))) for _ in range(4)]\n\
                 [x.start() for x in t]; [x.join() for x in t]\n\
                 print(subprocess.check_output([\"echo\",\"child\"]))'"
                    .into(),
            ],
        ),
        ("gcc", vec!["-c".into(), format!("gcc -O2 -S -o - {} | cksum", source.display())]),
        ("signal", vec!["-c".into(), "kill -TERM $$".into()]),
        ("status", vec!["-c".into(), "exit 41".into()]),
    ];
    for (name, arguments) in commands {
        let plain = Command::new("sh").args(&arguments).output().expect("sh");
        let planned = under(&image, Command::new("sh").args(&arguments));
        assert_eq!(planned.status, plain.status, "{name}: {}", String::from_utf8_lossy(&planned.stderr));
        assert_eq!(String::from_utf8_lossy(&planned.stdout), String::from_utf8_lossy(&plain.stdout), "{name}");
        assert_eq!(planned.stderr, plain.stderr, "{name}");
    }
    assert!(taken(&image).0 > 1000);
}

/// Node 63, which no machine of ours has: the kernel refuses to place anything there, so nothing may count as placed.
#[test]
fn what_the_kernel_refuses_to_place_does_not_count_as_placed() {
    let torture = compile("plan_torture.c", "plan_torture_refused", &["-O1", "-fno-builtin"]);
    for policy in [1, 2, 6] {
        for flags in [0, TWINS] {
            let image =
                image_of(&format!("refused-{policy}-{flags}"), &[0, 1 << 62, policy, flags.into(), 0, 1, 1 << 63]);
            let output = under(&image, Command::new(&torture).args(["2", "2000", "9"]));
            assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
            let [placed, bytes, passed, failures] = counters(&image);
            assert_eq!((placed, bytes), (0, 0), "policy {policy}, flags {flags}");
            assert!(passed > 500 && failures > 0, "policy {policy}: {passed} passed, {failures} calls");
        }
    }
}

/// MiB moved, the peak of resident memory in KiB, and page faults, by a program that grows two buffers in steps.
fn grown(command: &mut Command) -> [u64; 3] {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    std::array::from_fn(|_| words.next().expect("three numbers"))
}

/// A copy at each step moved 64 GiB, and took twice the memory of the same without the planner.
#[test]
fn buffers_that_grow_in_steps_are_not_copied_at_each() {
    let grow = compile("plan_grow.c", "plan_grow", &["-O1", "-fno-builtin"]);
    let [_, plain_peak, plain_faults] = grown(&mut Command::new(&grow));
    for (name, policy) in POLICIES {
        let image = image(&format!("grow-{name}"), 0, 1 << 62, policy);
        let mut planned = Command::new(&grow);
        planned.env("LD_PRELOAD", planner()).env("NUMAPILOT_PLAN", &image);
        let [moved, peak, _] = grown(&mut planned);
        assert!(moved < 1024, "{name}: {moved} MiB were moved");
        assert!(peak * 10 < plain_peak * 13, "{name}: {peak} KiB, {plain_peak} KiB without the planner");
        // With few addresses for the planner they end with the program's own allocator, which moves pages without a copy.
        for kib in [300_000, 600_000] {
            let [preload, plan, program] = [planner(), &image, &grow].map(|path| path.display());
            let script = format!("ulimit -v {kib}; LD_PRELOAD={preload} NUMAPILOT_PLAN={plan} exec {program}");
            let [_, _, faults] = grown(Command::new("sh").args(["-c", &script]));
            assert!(
                faults < 10 * plain_faults.max(3000),
                "{name}, {kib} KiB: {faults} faults, {plain_faults} without the planner"
            );
        }
    }
}

/// A ratio within one run: a search through all free places made it 40 times dearer.
#[test]
fn many_free_places_do_not_make_blocks_dearer() {
    let holes = compile("plan_holes.c", "plan_holes", &["-O1", "-fno-builtin"]);
    for (name, policy) in [("node", 1), ("first-use", 5)] {
        let image = image(&format!("holes-{name}"), 0, 1 << 62, policy);
        let once = |count: &str| -> u64 {
            let output = under(&image, Command::new(&holes).arg(count));
            String::from_utf8_lossy(&output.stdout).trim().parse().expect("nanoseconds")
        };
        // Processor time, of which a hypervisor may have taken some in one of them.
        let price = |count: &str| (0..3).map(|_| once(count)).min().expect("three prices");
        let (few, many) = (price("1000"), price("50000"));
        assert!(many < 10 * few + 1000, "{name}: {few} ns among 1,000, {many} ns among 50,000");
    }
}

/// Affinities are inherited: the rule for one thread would confine all that it creates.
#[test]
fn threads_and_children_of_a_pinned_thread_are_not_pinned_with_it() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let pins = compile("plan_pins.c", "plan_pins", &["-pthread", &include]);
    let image = scratch().join("pins");
    let plain = Command::new(&pins).output().expect("it runs");
    let words = String::from_utf8_lossy(&plain.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let cpus: usize = words[1].parse().expect("a number of CPUs");
    assert!(Command::new(&pins).arg("image").arg(&image).status().expect("it runs").success());
    let output = under(&image, &mut Command::new(&pins));
    let said = String::from_utf8_lossy(&output.stdout);
    let first = said.lines().next().unwrap_or_default();
    assert_eq!(first, format!("main 1 worker {cpus} its child {cpus} child of main 1"), "{said}");
    // With two CPUs or more: those that the program asked for itself.
    let second = said.lines().nth(1).unwrap_or_default();
    assert!(cpus < 2 || second == "by attribute 2 after moving 2", "{said}");
}

/// In which order threads begin is the scheduler's choice: a rule for the second thread pinned another one in each run.
#[test]
fn threads_are_numbered_as_they_are_created() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let program = compile("plan_pins.c", "plan_late", &["-pthread", "-rdynamic", &include]);
    let shim = compile("plan_pins.c", "plan_late.so", &["-shared", "-fPIC", "-DSHIM", &include]);
    let image = scratch().join("late");
    assert!(Command::new(&program).arg("second").arg(&image).status().expect("it runs").success());
    let mut command = Command::new(&program);
    command.arg("late").env("LD_PRELOAD", format!("{}:{}", planner().display(), shim.display()));
    let output = command.env("NUMAPILOT_PLAN", &image).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let cpus: Vec<u32> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [first, second, third, fourth] = cpus[..] else { panic!("{said}, {}", output.status) };
    assert_eq!((second, third, fourth), (1, first, first), "{said}");
    assert!(first > 1 || std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1), "{said}");
}

/// Threads that the tracker has no slot for, and those that they create, are not recorded: their rules hold all the same.
#[test]
fn threads_that_cannot_be_recorded_are_pinned() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let program = compile("plan_pins.c", "plan_nested", &["-pthread", &include]);
    let image = scratch().join("nested");
    assert!(Command::new(&program).arg("second").arg(&image).status().expect("it runs").success());
    for slots in [1, 8] {
        let run = record_with(Arena::new(slots, 4 << 20), &program, &["nested"], |command| give_both(command, &image));
        run.assert_success();
        assert_eq!(run.arena.losses().lost_no_slot > 0, slots == 1, "{slots} slots");
        assert_eq!(String::from_utf8_lossy(&run.output.stdout), "1\n", "{slots} slots");
    }
}

/// The kernel takes a policy for the pages of a regular file, and does not go by it.
#[test]
fn pages_of_regular_files_do_not_count_as_placed() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let files = compile("plan_files.c", "plan_files", &[&include]);
    let image = scratch().join("files");
    assert!(Command::new(&files).arg("image").arg(&image).status().expect("it runs").success());
    let output = under(&image, &mut Command::new(&files));
    let expected: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    let [placed, _, passed, failures] = counters(&image);
    assert_eq!(placed + passed, 3, "{failures} calls failed");
    assert!(placed == expected || failures > 0, "{placed} placed, {expected} expected");
}

/// The kernel keeps 15 bytes of a name, and so do recordings, from which rules are made.
#[test]
fn names_of_threads_are_those_that_the_kernel_keeps() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let pins = compile("plan_pins.c", "plan_pins", &["-pthread", &include]);
    let image = scratch().join("named");
    assert!(Command::new(&pins).arg("named").arg(&image).status().expect("it runs").success());
    let output = under(&image, Command::new(&pins).arg("rename"));
    assert_eq!(output.stdout, b"1\n");
}

#[test]
fn objects_are_handed_over_to_a_thread_that_its_creator_names() {
    let named = compile("plan_named.c", "plan_named", &["-O1", "-fno-builtin", "-pthread"]);
    let image = image("named-by-another", 1 << 20, 1 << 20, 8);
    let output = under(&image, &mut Command::new(&named));
    assert!(output.status.success(), "{}", output.status);
    let bytes = fs::read(&image).expect("the image");
    let moved = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().expect("eight bytes"));
    assert!(moved == 1 || counters(&image)[3] > 0, "handed over {moved} times");
}

/// A fork and the program that the child executes are one process: counted as two, every second number was nobody's, and all went to one CPU.
#[test]
fn a_process_keeps_its_number_when_it_executes_a_program() {
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("c").display());
    let ranks = compile("plan_ranks.c", "plan_ranks", &[&include]);
    let image = scratch().join("ranks");
    let made = Command::new(&ranks).arg("image").arg(&image).status().expect("it runs");
    if made.code() == Some(77) {
        return; // one CPU: there is nothing to spread over
    }
    assert!(made.success());
    let output = under(&image, &mut Command::new(&ranks));
    let said = String::from_utf8_lossy(&output.stdout);
    let cpus: Vec<&str> = said.split_whitespace().collect();
    let [a, b, c, d] = cpus.as_slice() else { panic!("{said}") };
    assert!(a != b && a == c && b == d, "{said}");
}

/// What a filter of system calls would kill the program for is left out: nothing is placed then, and that is counted.
#[test]
fn a_program_that_restricts_its_system_calls_is_not_killed_for_ours() {
    let program = compile("confined.c", "plan-confined", &["-O1", "-fno-builtin"]);
    for (by, most) in [("prctl", 3000), ("seccomp", 3000), ("number", 3000), ("prctl", 1 << 62), ("seccomp", 1 << 62)] {
        let image = image(&format!("confined-{by}-{most}"), 500, most, 1);
        let output = under(&image, Command::new(&program).args([by, "return"]));
        assert!(output.status.success(), "{by}, to {most}: {}", output.status);
        let [_, _, passed, _] = counters(&image);
        assert!(passed >= 2000, "{by}: {passed} blocks went elsewhere");
    }
    let still = compile("confined.c", "plan-still", &["-O1", "-DSTILL", "-static", "-nostdlib"]);
    let image = image("confined-exec", 500, 3000, 1);
    let output = under(&image, Command::new(&program).args(["prctl", "exec"]).arg(&still));
    assert!(output.status.success(), "it becomes another program: {}", output.status);
}

/// As `a_child_that_restricts_its_system_calls_does_not_restrict_its_parents` of the tracker.
#[test]
fn a_child_that_restricts_its_system_calls_leaves_its_parents_plan() {
    let program = compile("confined_child.c", "plan-confined-child", &["-O1", "-fno-builtin"]);
    let still = compile("confined.c", "plan-still-child", &["-O1", "-DSTILL", "-static", "-nostdlib"]);
    for becomes in [false, true] {
        let image = image(&format!("confined-child-{becomes}"), 900, 1100, 1);
        let output = under(&image, Command::new(&program).args(becomes.then_some(&still)));
        assert!(output.status.success(), "{becomes}: {}", output.status);
        assert_eq!(taken(&image), (100, 0), "{becomes}: {:?}", counters(&image));
    }
}

/// As `a_limit_that_a_program_sets_itself_is_its_own` of the tracker.
#[test]
fn addresses_that_serve_no_block_go_when_a_program_limits_itself() {
    let program = compile("limits.c", "plan-limits", &["-O1"]);
    let plain = Command::new(&program).output().expect("program starts");
    let image = image("limits", 0, 1 << 62, 1);
    let output = under(&image, &mut Command::new(&program));
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&plain.stdout));
    let run = record_with(Arena::new(1024, 1 << 20), &program, &[], |command| give_both(command, &image));
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), String::from_utf8_lossy(&plain.stdout));
}

/// Make sure that the addresses which the planner reserves are not missing where they are limited (batch systems: `ulimit -v`).
#[test]
fn a_limit_on_addresses_is_the_programs() {
    let program = compile("plan_limit.c", "plan_limit", &["-O1", "-fno-builtin"]);
    let image = image("limit", 1 << 20, 2 << 20, 1);
    for gib in [2, 8, 20] {
        // Overcommitting such sizes is refused on some systems, and then it is in both cases.
        for percent in [70, 95, 120] {
            let script = format!("ulimit -v {}; exec {} {}", gib << 20, program.display(), (gib << 10) * percent / 100);
            let plain = Command::new("sh").args(["-c", &script]).output().expect("sh");
            let preload = format!("export LD_PRELOAD={} NUMAPILOT_PLAN={}; ", planner().display(), image.display());
            let limited = script.replace("exec", &format!("{preload}exec"));
            let planned = Command::new("sh").args(["-c", &limited]).output().expect("sh");
            assert!(plain.status.success() && planned.status.success());
            let (plain, planned) = (String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&planned.stdout));
            assert_eq!(plain, planned, "{percent} % of {gib} GiB");
        }
    }
}

/// A mapping gets the addresses that the planner has reserved and does not use, also behind the tracker, which asks the kernel past the planner's hooks.
#[test]
fn mappings_get_the_addresses_that_serve_no_block() {
    const LIMIT_GIB: u64 = 8;
    let program = compile("limit_mappings.c", "limit_mappings", &["-O1"]);
    let image = image("limit-mappings", 1 << 20, 2 << 20, 1);
    let [planner, image] = [planner(), &image].map(|path| path.display());
    let planned = format!("LD_PRELOAD={planner} NUMAPILOT_PLAN={image}");
    let both = format!("LD_PRELOAD={}:{planner} NUMAPILOT_PLAN={image}", tracker().display());
    for how in ["mmap", "mremap"] {
        for (percent, expected) in [(90, "has it\n"), (120, "fails\n")] {
            let mib = (LIMIT_GIB << 10) * percent / 100;
            let script =
                |with: &str| format!("ulimit -v {}; {with} exec {} {mib} {how}", LIMIT_GIB << 20, program.display());
            let plain = Command::new("sh").args(["-c", &script("")]).output().expect("sh");
            let expected = if plain.stdout == b"fails\n" { "fails\n" } else { expected }; // strict accounting refuses it in any case
            let alone = Command::new("sh").args(["-c", &script(&planned)]).output().expect("sh");
            assert_eq!(String::from_utf8_lossy(&alone.stdout), expected, "{how}, {percent} %");
            let run = record_with(Arena::new(64, 1 << 20), Path::new("/bin/sh"), &["-c", &script(&both)], |command| {
                command.env_remove("LD_PRELOAD");
            });
            assert_eq!(String::from_utf8_lossy(&run.output.stdout), expected, "recorded: {how}, {percent} %");
            assert_eq!(run.arena.limited_processes(), 0);
        }
    }
}

/// Make sure that a limit on memory that may be written (`ulimit -d`; the kernel's strict accounting is the same) is the program's: neither the planner's table
/// nor what a block of a rule gave back counts against it.
#[test]
fn a_limit_on_writable_memory_is_the_programs() {
    let program = compile("plan_charged.c", "plan_charged", &["-O1", "-fno-builtin"]);
    for (name, policy) in POLICIES {
        let image = image(&format!("charged-{name}"), 100 << 20, 100 << 20, policy);
        let [preload, plan, program] = [planner(), &image, &program].map(|path| path.display());
        let script = format!("ulimit -d 160000; LD_PRELOAD={preload} NUMAPILOT_PLAN={plan} exec {program}");
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "both\n", "{name}: {}", output.status);
        assert_eq!(taken(&image), (3, 0), "{name}: {:?}", counters(&image));
    }
}

/// Such a handler comes while its thread has locks of the planner, and waited for that thread without end.
#[test]
fn signal_handlers_that_come_into_the_planner_do_not_wait_for_it() {
    let program = compile("plan_handlers.c", "plan_handlers", &["-O1", "-fno-builtin", "-rdynamic"]);
    for flags in [0, TWINS] {
        let image = image_with(&format!("handlers-{flags}"), 0, 1 << 62, 1, flags);
        let output = under(&image, &mut Command::new(&program));
        assert!(output.status.success(), "flags {flags}: {}", output.status);
    }
}

/// The thread counted as being in the planner for the rest of its life: nothing of its was placed any more.
#[test]
fn signal_handlers_may_jump_out_of_a_mapping_that_is_placed() {
    let program = compile("plan_jumps.c", "plan_jumps", &["-O1", "-fno-builtin", "-rdynamic"]);
    let image = image("jumps", 1 << 20, 1 << 20, 1);
    for stack in [&[][..], &["alternate"]] {
        let output = under(&image, Command::new(&program).args(stack));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "10 1 10 within 0\n", "{stack:?}: {}", output.status);
    }
}

/// What the program at `path` prints where its addresses are limited to 4 GiB.
fn limited(image: &Path, path: &Path) -> String {
    let [preload, plan, program] = [planner(), image, path].map(Path::display);
    let script = format!("ulimit -v 4194304; LD_PRELOAD={preload} NUMAPILOT_PLAN={plan} exec {program}");
    let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
    assert!(output.status.success(), "{}: {}", path.display(), output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// As above, where memory is short: the planner looks for some to give back.
#[test]
fn signal_handlers_that_find_no_memory_do_not_wait_for_the_planner() {
    let program = compile("plan_limited_handler.c", "plan_limited_handler", &["-O1", "-fno-builtin"]);
    limited(&image("limited-handler", 0, 1 << 62, 1), &program);
}

/// The first of several threads took all that the planner had in reserve; the others were told that there is no memory.
#[test]
fn threads_that_find_no_memory_at_once_all_get_what_was_in_reserve() {
    let program = compile("plan_rush.c", "plan_rush", &["-O1"]);
    assert_eq!(limited(&image("rush", 1 << 20, 2 << 20, 1), &program), "0\n");
}

/// Other libraries' handlers ran while the planner had its locks for the fork: they waited for them, or for a thread that did.
#[test]
fn handlers_of_other_libraries_may_allocate_at_forks() {
    let flags = ["-O1", "-fno-builtin", "-shared", "-fPIC", "-DLIBRARY", "-Wl,-z,initfirst"];
    let library = compile("plan_forks.c", "libplan_forks.so", &flags);
    let library = library.to_str().expect("UTF-8");
    let program = compile("plan_forks.c", "plan_forks", &["-O1", "-fno-builtin", library]);
    let image = image("forks", 0, 1 << 62, 1);
    let output = under(&image, &mut Command::new(&program));
    assert!(output.status.success(), "{}", output.status);
}

/// A child whose parent's other thread chose a node at the moment of the fork waited for that thread, which it does not have.
#[test]
fn children_of_threads_that_map_memory_do_not_wait_for_them() {
    let program = compile("plan_turns.c", "plan_turns", &["-O1"]);
    let image = image_of("turns", &[65536, 65536, 6, 0, 0, 2]);
    let output = under(&image, &mut Command::new(&program));
    assert!(output.status.success(), "{}", output.status);
}

/// How `programs/plan_counts.c` ends. Bare: it starts the next program with an empty environment, where the plan was not found.
const WAYS_TO_END: [&str; 11] =
    ["_exit", "quick", "exec", "bare", "bare spawned", "failed", "vfork", "spawned", "fork", "raw", "threads"];

/// What a thread had counted and not yet told was lost where its process became another program, and told twice by a child that passed no handlers.
#[test]
fn blocks_are_counted_once_however_a_process_ends() {
    let program = compile("plan_counts.c", "plan_counts", &["-O1", "-fno-builtin"]);
    for how in WAYS_TO_END {
        let image = image(&format!("counts-{how}").replace(' ', "-"), 1000, 1000, 1);
        let output = under(&image, Command::new(&program).arg(how));
        assert!(output.status.success(), "{how}: {}", output.status);
        let made: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        assert_eq!(taken(&image), (made, 0), "{how}: {:?}", counters(&image));
    }
}

/// The tracker stands before the planner, and leaves past it.
#[test]
fn blocks_are_counted_once_however_a_recorded_process_ends() {
    let program = compile("plan_counts.c", "plan_counts_recorded", &["-O1", "-fno-builtin"]);
    for how in WAYS_TO_END {
        let image = image(&format!("counts-recorded-{how}").replace(' ', "-"), 1000, 1000, 1);
        let run = record_with(Arena::new(16, 1 << 20), &program, &[how], |command| give_both(command, &image));
        run.assert_success();
        let made: u64 = String::from_utf8_lossy(&run.output.stdout).trim().parse().expect("a number");
        assert_eq!(taken(&image), (made, 0), "{how}: {:?}", counters(&image));
    }
}

/// The C constants `NP_PLAN_HUGE` and `NP_PLAN_NO_HUGE`.
const HUGE_PAGES: [u64; 2] = [2, 4];

/// The kernel has no advice that takes another one back: what followed at the same addresses, of another rule, had huge pages, or none, with the first.
#[test]
fn advice_about_huge_pages_ends_with_the_block() {
    let program = compile("plan_advice.c", "plan_advice", &["-O1", "-fno-builtin"]);
    for policy in [1, 5] {
        for flag in HUGE_PAGES {
            let image = image_of(&format!("advice-{policy}-{flag}"), &[1 << 20, 1 << 62, policy, 0, 0, 1, 1, flag]);
            let output = under(&image, &mut Command::new(&program));
            let said = String::from_utf8_lossy(&output.stdout);
            // A kernel without huge pages takes no advice, and that is counted.
            let refused = counters(&image)[3] > 0 && said == "0 0\n";
            assert!(said == "1 0\n" || refused, "policy {policy}, flag {flag}: {said}");
        }
    }
}

/// Requests for 4 KiB are errors on kernels with pages of 64 KiB (arm64): nothing was placed there by `split` or weights.
#[test]
fn memory_is_placed_by_the_kernels_pages() {
    let program = compile("plan_pages.c", "plan_pages", &["-O1", "-fno-builtin", "-rdynamic"]);
    for policy in [1, 3, 6] {
        for flags in [0, TWINS] {
            let image = image_of(&format!("pages-{policy}-{flags}"), &[0, 1 << 62, policy, flags.into(), 0, 2]);
            let output = under(&image, &mut Command::new(&program));
            let said = String::from_utf8_lossy(&output.stdout);
            let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
            let [requests, wrong] = numbers[..] else { panic!("policy {policy}: {said}, {}", output.status) };
            assert!(requests > 20 && wrong == 0, "policy {policy}, flags {flags}: {wrong} of {requests} were wrong");
        }
    }
}

/// Runs `programs/plan_mbind.c` under weights 3 and 1, or equal parts: in how many pieces the memory was cut, and the share of node 0.
fn cut(name: &str, policy: u64, sizes: &[(&str, &str)]) -> (u64, f64) {
    let program = compile("plan_mbind.c", &format!("plan_many-{name}"), &["-O1", "-fno-builtin"]);
    let shim = compile("plan_mbind.c", &format!("plan_shim-{name}.so"), &["-shared", "-fPIC", "-O1", "-DSHIM"]);
    let image = image_of(&format!("cut-{name}"), &[0, 1 << 62, policy, 0, 0, 2]);
    let mut command = Command::new(&program);
    for (mib, bytes) in sizes {
        command.args([mib, bytes]);
    }
    command.env("LD_PRELOAD", format!("{}:{}", planner().display(), shim.display())).env("NUMAPILOT_PLAN", &image);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{name}: {}", output.status);
    let said = String::from_utf8_lossy(&output.stderr);
    let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [pieces, first, second] = numbers[..] else { panic!("{said}") };
    (pieces, first as f64 / (first + second) as f64)
}

/// The kernel allows a process so many mappings, and fails the program's own calls beyond: weights and splits must not use them up, and still hold.
#[test]
fn policies_that_cut_memory_leave_the_program_its_mappings() {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").expect("the limit");
    let most: u64 = limit.trim().parse::<u64>().expect("a number") / 4;
    let weighted = [("100", "1024"), ("600", "65536"), ("1200", "131072"), ("1000", "2097152")];
    for (name, policy, share, sizes) in [("weights", 3, 0.75, &weighted[..]), ("splits", 6, 0.5, &[("1200", "65536")])]
    {
        let (pieces, found) = cut(name, policy, sizes);
        assert!(pieces > 1000 && pieces < most + most / 8, "{name}: {pieces} of {most}");
        assert!((found - share).abs() < 0.02, "{name}: {found} of the memory is on node 0");
    }
}

/// A block that grows in place is placed in parts, and each is cut anew.
#[test]
fn blocks_that_grow_in_steps_take_few_mappings() {
    let (pieces, found) = cut("grown", 3, &[("256", "0")]);
    assert!(pieces < 9000, "{pieces} pieces"); // a block of 256 MiB is cut into 512; step by step it were 32,768
    assert!((found - 0.75).abs() < 0.02, "{found} of the memory is on node 0");
}

/// Make sure that what is known of loaded libraries does not pile up in a program that loads and unloads plug-ins for ever.
#[test]
fn libraries_that_come_and_go_leave_no_memory_behind() {
    let program = compile("plan_plugins.c", "plan_plugins", &["-O1", "-fno-builtin"]);
    let library = compile("modules_race.c", "plan_plugin.so", &["-shared", "-fPIC", "-O1", "-DLIBRARY"]);
    let image = image_of("plugins.plan", &[1000, 1000, 1, 0, 1]);
    let output = under(&image, Command::new(&program).arg(&library).arg("5000"));
    assert!(output.status.success(), "{}", output.status);
    let grown: i64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    assert!(grown < 1024, "{grown} KiB");
}

/// Make sure that a call stack is not followed by the tables of a library that went unseen, where other code has its addresses by now: they are not there any
/// more, and the program ended.
#[test]
fn code_in_the_place_of_a_library_that_went_unseen_may_allocate() {
    let program = compile("plan_stale.c", "plan_stale", &["-O1", "-fno-builtin"]);
    let library = compile("plan_stale.c", "plan_stale.so", &["-shared", "-fPIC", "-O1", "-DLIBRARY"]);
    let image = image_of("stale.plan", &[1000, 1 << 20, 1, 0, 1]);
    let output = under(&image, Command::new(&program).arg(&library));
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.stdout, b"stale ok\n");
}

#[test]
fn cpp_operators_and_their_exceptions_are_served() {
    let program = compile("alloc_new.cpp", "plan_new", &["-O1", "-std=c++20", "-fno-builtin"]);
    let image = image("operators", 0, 1 << 62, 2);
    let truth = scratch().join("operators.truth");
    let plain = Command::new(&program).env("NP_TRUTH", &truth).output().expect("it runs");
    let planned = under(&image, Command::new(&program).env("NP_TRUTH", &truth));
    assert_eq!(planned.status, plain.status, "{}", String::from_utf8_lossy(&planned.stderr));
}

#[test]
fn a_missing_or_foreign_plan_leaves_the_program_alone() {
    let foreign = scratch().join("foreign");
    fs::write(&foreign, vec![0x55; 100_000]).expect("written");
    for image in [Path::new("/nonexistent"), &foreign, Path::new("/dev/zero")] {
        let output = under(image, Command::new("sh").args(["-c", "echo hello; exit 3"]));
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(3), b"hello\n".as_slice()),
            "{}",
            image.display()
        );
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn the_library_needs_no_loader_for_its_thread_local_storage() {
    let output = Command::new("readelf").args(["-rW"]).arg(planner()).output().expect("readelf (binutils)");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("TPOFF"), "{text}");
    for relocation in ["DTPMOD", "DTPOFF", "TLSDESC"] {
        assert!(!text.contains(relocation), "{relocation}");
    }
}
