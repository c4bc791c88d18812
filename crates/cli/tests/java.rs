//! Objects of Java programs have their class and the line that allocates them, and their addresses follow them through collections: with every collector that
//! numapilot follows; with the others it says so.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use numapilot_flows::Object;
use numapilot_flows::ObjectKind;
use numapilot_flows::Site;
use numapilot_flows::Trace;
use numapilot_not_run::not_run;
use serde_json::Value;

const SOURCE: &str = include_str!("programs/Collected.java");
/// Collectors that move objects in pauses only.
const COLLECTORS: [&str; 3] = ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC"];
/// Bytes before the elements of a large array.
const HEADER_BYTES: u64 = 16;

fn line(mark: &str) -> u32 {
    let wanted = format!("// LINE {mark}");
    1 + SOURCE.lines().position(|line| line.ends_with(&wanted)).expect("the mark") as u32
}

/// Compiles the program into the folder; false, and said, where there is no Java 11 or later.
fn compiled(folder: &Path) -> bool {
    let file = folder.join("Collected.java");
    fs::write(&file, SOURCE).expect("the source is written");
    match Command::new("javac").args(["--release", "11", "-d"]).arg(folder).arg(&file).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            not_run!(Java, "javac: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            not_run!(Java, "javac: {error}");
            false
        }
    }
}

/// Records the compiled program.
fn recorded(folder: &Path, trace: &Path, options: &[&str], java: &[&str], arguments: &[&str]) -> Ran {
    let mut command = numapilot(&["record", "--force", "-o"]);
    command.arg(trace).args(options).args(["--", "java", "-Xms4m", "-Xmx64m"]).args(java).arg("-cp").arg(folder);
    finish(command.arg("Collected").args(arguments))
}

/// The site of an allocation.
fn site_of<'a>(trace: &'a Trace, object: &Object) -> &'a Site {
    trace.site(object.site).expect("a site")
}

/// Objects that were allocated at a marked line, by birth; each must be of this class and method.
#[track_caller]
fn at<'a>(trace: &'a Trace, mark: &str, class: &str, method: &str) -> Vec<&'a Object> {
    let place = format!("Collected.java:{}", line(mark));
    let is_there = |object: &&Object| {
        let site = site_of(trace, object);
        site.kind == ObjectKind::Pool && site.place() == place && *site.name == *class
    };
    let mut objects: Vec<&Object> = trace.objects().iter().filter(is_there).collect();
    let all = || trace.sites().iter().map(|site| format!("{} ({})", site.name, site.place())).collect::<Vec<_>>();
    assert!(!objects.is_empty(), "no {class} at {place}, but {:?}", all());
    let methods: BTreeSet<&str> = objects.iter().map(|object| &*site_of(trace, object).function).collect();
    assert_eq!(methods, BTreeSet::from([method]), "{class} at {place}");
    objects.sort_by_key(|object| object.birth);
    objects
}

/// The lives of one object at one address after the other: none begins before the last one has ended, and the last one does not end.
fn check_lives(lives: &[&Object], bytes: u64, collector: &str) {
    for pair in lives.windows(2) {
        assert!(pair[0].death.is_some_and(|death| death <= pair[1].birth), "{collector}: {pair:?}");
    }
    assert!(lives.iter().all(|life| (bytes..bytes + 8).contains(&life.bytes)), "{collector}: {bytes} bytes: {lives:?}");
    // Also where the collector's thread has put it.
    assert!(lives.iter().all(|life| life.thread == lives[0].thread), "{collector}: {lives:?}");
    assert!(lives.last().is_some_and(|last| last.death.is_none()), "{collector}: {lives:?}");
}

#[test]
fn objects_keep_class_and_line_through_every_collector() {
    let folder = scratch();
    if !compiled(folder.path()) {
        return;
    }
    for collector in COLLECTORS {
        let path = folder.path().join("track.numatrace");
        let options = ["--engine", "track", "--java=4K"];
        let ran = recorded(folder.path(), &path, &options, &[collector], &["50000", "20", "3000"]).succeeded();
        let numbers: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert!(numbers.len() == 2 && numbers[0] == 20 * 50_000 / 8, "{collector}: {}", ran.stdout);
        assert!(numbers[1] >= 20, "{collector}: {} collections", numbers[1]);
        assert!(!ran.stderr.contains("Java objects"), "{}", ran.stderr);
        let trace = Trace::open(&path).expect("the trace opens");
        let read = at(&trace, "read", "double[]", "Collected.fill");
        check_lives(&read, HEADER_BYTES + 50_000 * 8, collector);
        let places: BTreeSet<u64> = read.iter().map(|life| life.address.0).collect();
        assert!(places.len() >= 2, "{collector}: the first collection moves it: {read:?}");
        check_lives(&at(&trace, "quiet", "long[]", "Collected.main"), HEADER_BYTES + 50_000 / 4 * 8, collector);
        // The class library's own lines are passed over.
        let mut copies = at(&trace, "copies", "java.lang.Object[]", "Collected.main");
        copies.retain(|object| object.bytes >= 50_000 * 4);
        check_lives(&copies[copies.len() - 1..], HEADER_BYTES + 50_000 * 4, collector);
        let garbage = at(&trace, "garbage", "byte[]", "Collected.main");
        let alive = garbage.iter().filter(|object| object.death.is_none()).count();
        assert!(garbage.len() > 20_000 && alive <= 2_000, "{collector}: {alive} of {} alive", garbage.len());
        assert_eq!((trace.losses().unmatched_frees, trace.losses().inconsistent_records), (0, 0), "{collector}");
    }
}

/// The estimates of a class at a marked line.
#[track_caller]
fn estimated<'a>(heap: &'a Value, mark: &str, class: &str) -> &'a Value {
    let place = format!("Collected.java:{}", line(mark));
    let sites = heap["sites"].as_array().expect("sites");
    let found = sites.iter().find(|row| row["place"] == place.as_str() && row["name"] == class);
    found.unwrap_or_else(|| panic!("no {class} at {place} in {heap}"))
}

/// Blocks of 10,000 bytes and their headers that a recorded program allocates: enough samples to tell 1 % from 5 %.
const BLOCKS: f64 = 60_000.0;
/// Walks and blocks before each, as the program's arguments. One walk: the one thread that it begins would repeat random numbers.
const AT_ONCE: [&str; 2] = ["1", "60000"];

/// Make sure that estimates from samples hold what the program allocates, whatever was moved.
#[test]
fn the_heap_shows_estimates_by_class_and_line() {
    const BLOCK_BYTES: f64 = (10_000 + HEADER_BYTES) as f64;
    // 24 times the distance of samples: one that is missed once in 10^10 runs.
    const ARRAY_LENGTH: u64 = 200_000;
    let folder = scratch();
    if !compiled(folder.path()) {
        return;
    }
    let path = folder.path().join("track.numatrace");
    let options = ["--engine", "track", "--java=64K"];
    let length = ARRAY_LENGTH.to_string();
    // Buffers as large as a hundred blocks: HotSpot counts their unused ends as allocated.
    let buffers = ["-XX:+UseSerialGC", "-XX:TLABSize=1m", "-XX:-ResizeTLAB", "-Xmn16m"];
    recorded(folder.path(), &path, &options, &buffers, &[&length, AT_ONCE[0], AT_ONCE[1]]).succeeded();
    let report = report_json(&path, &["-n", "1000"]);
    let heap = &report["sampled_heap"];
    assert_eq!(heap["interval_bytes"], serde_json::json!([65_536, 65_536]), "{heap}");
    let garbage = estimated(heap, "garbage", "byte[]");
    let figure = |row: &Value, name: &str, part: &str| row[name][part].as_f64().expect("a number");
    let samples = garbage["samples"].as_f64().expect("a number");
    // p = 1 - exp(-10,016 / 65,536) = 0.142: some 8,500 samples, so 1.1 % for one standard error. Five of them: the program is the same, the draw is not.
    let bytes = figure(garbage, "allocated_bytes", "value");
    assert!((bytes / (BLOCKS * BLOCK_BYTES) - 1.0).abs() < 0.05, "{garbage}");
    assert!((figure(garbage, "allocations", "value") / BLOCKS - 1.0).abs() < 0.05, "{garbage}");
    assert!(samples > 7500.0 && samples < 9600.0, "{garbage}");
    let width = figure(garbage, "allocated_bytes", "high") - figure(garbage, "allocated_bytes", "low");
    assert!(width > bytes * 0.1 && width < bytes * 0.16, "{garbage}");
    assert!(figure(garbage, "at_peak_bytes", "value") < 80e6, "no more than the heap has: {garbage}");
    // It was sampled surely, has moved, and is one allocation all the same.
    let array = estimated(heap, "read", "double[]");
    assert_eq!((array["samples"].as_u64(), figure(array, "allocations", "value").round()), (Some(1), 1.0), "{array}");
    let array_bytes = (HEADER_BYTES + ARRAY_LENGTH * 8) as f64;
    assert!((figure(array, "left_bytes", "value") / array_bytes - 1.0).abs() < 0.01, "{array}");

    let name = path.to_str().expect("UTF-8");
    let text = run(&["report", name, "--width", "140"]).succeeded().stdout;
    for needed in
        ["AT PEAK", "OBJECTS OF JAVA, ESTIMATED FROM SAMPLES", "one for each 64.0 KiB", "Collected.java:", "±%"]
    {
        assert!(text.contains(needed), "no `{needed}` in\n{text}");
    }
    let own = run(&["report", name, "--object", "double[]", "--width", "140"]).succeeded().stdout;
    assert!(own.contains("double[]") && !own.contains("byte[]") && !own.contains("RFREE"), "{own}");
}

/// Ends and value of the estimated number of blocks of garbage that a recorded program allocates: low, value, high. `None`: there is no compiler.
fn garbage_blocks(java: &[&str], walks: [&str; 2]) -> Option<[f64; 3]> {
    let folder = scratch();
    if !compiled(folder.path()) {
        return None;
    }
    let path = folder.path().join("track.numatrace");
    let program = ["1000", walks[0], walks[1]];
    recorded(folder.path(), &path, &["--engine", "track", "--java=64K"], java, &program).succeeded();
    let report = report_json(&path, &["-n", "1000"]);
    let garbage = estimated(&report["sampled_heap"], "garbage", "byte[]");
    Some(["low", "value", "high"].map(|part| garbage["allocations"][part].as_f64().expect("a number")))
}

/// Make sure that the interval holds the truth also where the ends of the virtual machine's buffers count. Interpreted code makes most of these.
#[test]
fn intervals_of_the_heap_hold_the_ends_of_buffers() {
    let Some([low, value, high]) = garbage_blocks(&["-XX:+UseSerialGC", "-Xint"], AT_ONCE) else { return };
    // The interval has 2 standard errors of 1.1 % on each side; the draw gets five.
    let more = 3.0 * 0.011 * value;
    assert!(low - more < BLOCKS && BLOCKS < high + more, "{low} {value} {high}");
    assert!(low < value * 0.92, "{low} {value} {high}");
}

/// Make sure that intervals are wider where threads begin one after another, because each starts HotSpot's random numbers anew, with its address as the seed.
#[test]
fn intervals_of_the_heap_hold_repeated_draws() {
    let Some([low, value, high]) = garbage_blocks(&["-XX:+UseSerialGC"], ["20", "3000"]) else { return };
    // 1.1 % for one standard error of independent draws; what 20 rounds with the same draws tell is no more than what one does: 4.9 %.
    let above = high - value;
    assert!(above > value * 0.04 && above < value * 0.15, "{low} {value} {high}");
    // The interval has two standard errors on each side; the draw gets five.
    assert!(low - 1.5 * above < BLOCKS && BLOCKS < high + 1.5 * above, "{low} {value} {high}");
}

/// Make sure that a thread has the whole name that the program gave it, though the kernel keeps 15 bytes of it.
#[test]
fn threads_have_whole_names() {
    let folder = scratch();
    if !compiled(folder.path()) {
        return;
    }
    // Also with a collector whose objects are not followed.
    for collector in ["-XX:+UseSerialGC", "-XX:+UseZGC"] {
        let path = folder.path().join("named.numatrace");
        let options = ["--engine", "track", "--java"];
        recorded(folder.path(), &path, &options, &[collector], &["1000", "3", "0"]).succeeded();
        let trace = Trace::open(&path).expect("the trace opens");
        let named = |name: &str| trace.threads().iter().filter(|thread| &*thread.name == name).count();
        assert_eq!((named("reader with a long name"), named("reader with a l")), (3, 0), "{collector}");
    }
}

/// Make sure that accesses go to the array wherever it lies: each walk reads each of its lines once, and no cache holds them.
#[test]
fn accesses_belong_to_the_object_wherever_a_collection_has_put_it() {
    const LENGTH: u64 = 3 << 19; // 12 MiB
    const WALKS: u64 = 6;
    let folder = scratch();
    if !compiled(folder.path()) {
        return;
    }
    let path = folder.path().join("emulate.numatrace");
    let options = ["--engine", "emulate", "--machine", "opteron-8385", "--period", "1", "--lines", "1", "--java"];
    // Interpreted, so that each line is read by a load of its own.
    let java = ["-Xint", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=16m", "-XX:CompressedClassSpaceSize=16m"];
    let (length, walks) = (LENGTH.to_string(), WALKS.to_string());
    let ran = recorded(folder.path(), &path, &options, &java, &[&length, &walks, "0"]);
    if has_no_emulator(&ran) {
        return;
    }
    assert_eq!(ran.succeeded().stdout, format!("{} 0\n", WALKS * LENGTH / 8));
    let trace = Trace::open(&path).expect("the trace opens");
    let lives = at(&trace, "read", "double[]", "Collected.fill");
    check_lives(&lives, HEADER_BYTES + LENGTH * 8, "emulate");
    let places: BTreeSet<u64> = lives.iter().map(|life| life.address.0).collect();
    assert!(places.len() >= 2, "a collection moves it: {lives:?}");
    let (mut by_readers, mut by_others) = (0, 0);
    for access in trace.accesses() {
        let Some(object) = access.object.and_then(|object| trace.object(object)) else { continue };
        if !lives.iter().any(|life| life.id == object.id) {
            continue;
        }
        assert!((object.address.0..object.address.0 + object.bytes).contains(&access.address.0), "{access:?}");
        let is_reader = trace.thread(access.thread).is_some_and(|thread| *thread.name == *"reader with a long name");
        *(if is_reader { &mut by_readers } else { &mut by_others }) += u64::from(access.weight);
    }
    let walk = LENGTH / 8;
    assert!(by_readers > walk * WALKS * 9 / 10 && by_readers < walk * WALKS * 11 / 10, "{by_readers} of {WALKS} walks");
    // The virtual machine clears it, the program writes it once, and the collector once for each move.
    let most = walk * (2 + lives.len() as u64);
    assert!(by_others > walk * 9 / 10 && by_others < most, "{by_others}: {walk} and at most {most}");
}

#[test]
fn what_is_not_followed_is_told_with_the_remedy() {
    let folder = scratch();
    if !compiled(folder.path()) {
        return;
    }
    let path = folder.path().join("t.numatrace");
    let options = ["--engine", "track", "--java"];
    let ran = recorded(folder.path(), &path, &options, &["-XX:+UseZGC"], &["50000", "2", "10"]).succeeded();
    assert!(ran.stdout.starts_with("12500 "), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("moves them while the program runs") && ran.stderr.contains("-XX:+UseG1GC"),
        "{}",
        ran.stderr
    );
    let trace = Trace::open(&path).expect("the trace opens");
    assert!(trace.objects().iter().all(|object| site_of(&trace, object).kind != ObjectKind::Pool));
}

#[test]
fn java_is_only_followed_where_it_is_started() {
    let folder = scratch();
    let path = folder.path().join("t.numatrace");
    let trace = path.to_str().expect("UTF-8");
    let ran = run(&["record", "--force", "-o", trace, "--engine", "track", "--java", "--", "true"]).succeeded();
    assert!(ran.stderr.contains("no Java virtual machine loaded the agent"), "{}", ran.stderr);
    let own = std::process::id().to_string();
    let ran = run(&["record", "-o", trace, "--java", "--pid", &own, "--for", "1s"]);
    assert!(ran.code != 0 && ran.stderr.contains("numapilot record --java -- java"), "{}", ran.stderr);
    let ran = run(&["record", "-o", trace, "--java=2G", "--", "true"]);
    assert!(ran.code != 0 && ran.stderr.contains("0 (every object) to 1G"), "{}", ran.stderr);
}
