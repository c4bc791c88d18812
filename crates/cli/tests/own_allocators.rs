//! Allocators that a program carries itself: engine `emulate` records each of their blocks, and the others say which allocator they cannot see.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_flows::Object;
use numapilot_flows::ObjectKind;
use numapilot_flows::Site;
use numapilot_flows::Trace;

const SOURCE: &str = include_str!("programs/own_allocator.c");
const GO_SOURCE: &str = include_str!("programs/go_heap.c");
const WRAPPING_SOURCE: &str = include_str!("programs/wrapping_malloc.c");
const NAMES_SOURCE: &str = include_str!("programs/allocator_names.c");
/// Libraries that `tools/setup test` installs, and what the program is compiled with to call them.
const LIBRARIES: [(&str, &str); 3] =
    [("libmimalloc.so", "-DMI"), ("libtcmalloc_minimal.so", "-DTC"), ("libjemalloc.so", "-DJE")];
const BYTES: u64 = 1 << 20;
/// Blocks that the program allocates at each marked line, and the bytes of each.
const EXPECTED: [(&str, u64, u64); 6] = [
    ("first", 1, BYTES),
    ("cleared", 1, BYTES),
    ("grown", 1, 2 * BYTES),
    ("aligned", 1, BYTES),
    ("small", 1000, 100),
    ("by_thread", 1, BYTES),
];

fn line_in(source: &str, mark: &str) -> u32 {
    let wanted = format!("LINE {mark} */");
    1 + source.lines().position(|line| line.contains(&wanted)).expect("the mark") as u32
}

fn line(mark: &str) -> u32 {
    line_in(SOURCE, mark)
}

fn program(folder: &Path, replaces: bool) -> PathBuf {
    let name = if replaces { "replacing" } else { "prefixed" };
    let flags: &[&str] = if replaces { &["-fno-builtin", "-DREPLACES"] } else { &["-fno-builtin"] };
    build_plain(folder, name, SOURCE, flags)
}

/// The file that [`program`] is compiled from has the program's name.
fn is_at(site: &Site, mark: &str, name: &str) -> bool {
    site.line == line(mark) && site.file.ends_with(&format!("/{name}.c"))
}

/// The objects whose site is one of those wanted.
fn objects_at(trace: &Trace, is_wanted: impl Fn(&Site) -> bool) -> Vec<&Object> {
    trace.objects().iter().filter(|object| trace.site(object.site).is_some_and(&is_wanted)).collect()
}

/// Every block, by line: as many as were made, of their size, and none that outlives the program.
fn check_blocks(trace: &Trace, what: &str) {
    for (mark, count, bytes) in EXPECTED {
        let blocks = objects_at(trace, |site| is_at(site, mark, what));
        assert_eq!(blocks.len() as u64, count, "{what}: {mark}");
        for block in blocks {
            let site = trace.site(block.site).expect("a site");
            assert_eq!((site.kind, block.bytes), (ObjectKind::Heap, bytes), "{what}: {mark}");
            assert!(block.death.is_some(), "{what}: {mark} was freed");
        }
    }
}

/// What the program writes to a block is of that block: every line of it once, as no cache held it before.
fn check_accesses(trace: &Trace, what: &str) {
    for mark in ["first", "aligned", "by_thread"] {
        let mut accesses = 0;
        for access in trace.accesses() {
            let Some(object) = access.object.and_then(|object| trace.object(object)) else { continue };
            if trace.site(object.site).is_some_and(|site| is_at(site, mark, what)) {
                accesses += u64::from(access.weight);
            }
        }
        let lines = BYTES / 64;
        assert!(accesses > lines * 9 / 10 && accesses < lines * 11 / 10, "{what}, {mark}: {accesses} of {lines}");
    }
}

#[test]
fn an_emulated_programs_own_allocator_is_followed() {
    let folder = scratch();
    for replaces in [false, true] {
        let program = program(folder.path(), replaces);
        let trace = folder.path().join("emulated.numatrace");
        let options = ["--engine", "emulate", "--machine", "opteron-8385", "--period", "1", "--lines", "1"];
        let ran = record::<&str>(&trace, &options, &program, &[]);
        if has_no_emulator(&ran) {
            return;
        }
        assert_eq!(ran.succeeded().stdout, "3\n");
        let what = if replaces { "replacing" } else { "prefixed" };
        let opened = Trace::open(&trace).expect("the trace opens");
        check_blocks(&opened, what);
        check_accesses(&opened, what);
        assert_eq!((opened.losses().reentrant, opened.losses().inconsistent_records), (0, 0), "{what}");
        let marks: Vec<&String> = opened.marks().iter().map(|(_, text)| text).collect();
        assert!(!marks.iter().any(|text| text.contains("its own malloc")), "{what}: {marks:?}");
        let notes = report_json(&trace, &[]).to_string();
        assert!(!notes.contains("allocator of its own") && !notes.contains("code without a name"), "{what}: {notes}");
    }
}

/// The next malloc is the tracker's hook, which records the blocks: the emulator's plugin recorded them once more. And the tracker's start was the end of the
/// program, which looked for the next free while the loader freed the message of the tracker's own look for something else.
#[test]
fn blocks_of_a_malloc_that_wraps_the_next_are_recorded_once() {
    let folder = scratch();
    let program = build_plain(folder.path(), "wrapping", WRAPPING_SOURCE, &["-fno-builtin"]);
    for engine in ["track", "emulate"] {
        let path = folder.path().join(format!("{engine}.numatrace"));
        let ran = record::<&str>(&path, &["--engine", engine, "--machine", "opteron-8385"], &program, &[]);
        if engine == "emulate" && has_no_emulator(&ran) {
            return;
        }
        assert_eq!(ran.succeeded().stdout, "10\n", "{engine}");
        let trace = Trace::open(&path).expect("the trace opens");
        for bytes in 123_457..123_467 {
            let blocks: Vec<_> = trace.objects().iter().filter(|object| object.bytes == bytes).collect();
            assert_eq!(blocks.len(), 1, "{engine}, {bytes}: {blocks:?}");
            assert!(blocks[0].death.is_some(), "{engine}: {blocks:?}");
        }
        let losses = trace.losses();
        assert_eq!((losses.reentrant, losses.inconsistent_records, losses.unmatched_frees), (0, 0, 0), "{engine}");
    }
}

/// Its functions have no names by which they could be found, and the report says what that means.
#[test]
fn a_stripped_program_may_carry_an_allocator_that_is_not_found() {
    let folder = scratch();
    let program = program(folder.path(), false);
    finish(Command::new("strip").arg(&program)).succeeded();
    let trace = folder.path().join("stripped.numatrace");
    let ran = record::<&str>(&trace, &["--engine", "emulate", "--machine", "opteron-8385"], &program, &[]);
    if has_no_emulator(&ran) {
        return;
    }
    assert_eq!(ran.succeeded().stdout, "3\n");
    let report = report_json(&trace, &[]).to_string();
    assert!(report.contains("most accesses are to memory that code without a name in prefixed has mapped"), "{report}");
}

/// As distributions package it.
#[test]
fn a_debug_file_tells_where_a_stripped_program_has_its_allocator() {
    let folder = scratch();
    let program = build_plain(folder.path(), "prefixed", SOURCE, &["-fno-builtin", "-Wl,--build-id"]);
    let notes = finish(Command::new("readelf").env("LC_ALL", "C").arg("-n").arg(&program)).succeeded().stdout;
    let id = notes.split_once("Build ID: ").expect("a build id").1;
    let id = id.split_whitespace().next().expect("its digits");
    let own = folder.path().join("debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&own).expect("a folder");
    let debug = own.join(format!("{}.debug", &id[2..]));
    finish(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug])).succeeded();
    finish(Command::new("strip").arg(&program)).succeeded();
    let trace = folder.path().join("debug.numatrace");
    let mut command = numapilot(&["record", "--quiet", "--force", "--engine", "emulate", "--machine", "opteron-8385"]);
    command.env("NUMAPILOT_DEBUG_DIRS", folder.path().join("debug"));
    let ran = finish(command.arg("-o").arg(&trace).arg("--").arg(&program));
    if has_no_emulator(&ran) {
        return;
    }
    assert_eq!(ran.succeeded().stdout, "3\n");
    check_blocks(&Trace::open(&trace).expect("the trace opens"), "prefixed");
}

#[test]
fn other_engines_name_the_allocator_that_they_do_not_see() {
    let folder = scratch();
    for (replaces, named) in [(false, "je_malloc in prefixed"), (true, "malloc in replacing")] {
        let program = program(folder.path(), replaces);
        let trace = folder.path().join("tracked.numatrace");
        assert_eq!(record::<&str>(&trace, &["--engine", "track"], &program, &[]).succeeded().stdout, "3\n");
        let report = report_json(&trace, &[]).to_string();
        assert!(report.contains(named) && report.contains("--engine emulate records them"), "{report}");
        let seen = Trace::open(&trace).expect("the trace opens");
        let name = if replaces { "replacing" } else { "prefixed" };
        let first = objects_at(&seen, |site| is_at(site, "first", name));
        assert!(first.is_empty(), "a native engine that sees them needs no note");
    }
}

/// What Go's heap makes has the line of the program, also on a goroutine's stack, and ends where something else comes to lie.
#[test]
fn blocks_of_gos_heap_end_where_others_begin() {
    if !cfg!(target_arch = "x86_64") {
        numapilot_not_run::not_run!(QemuPlugins, "the program is written for x86-64");
        return;
    }
    let folder = scratch();
    let program = build_plain(folder.path(), "go_heap", GO_SOURCE, &["-fno-omit-frame-pointer", "-mno-red-zone"]);
    let path = folder.path().join("go.numatrace");
    let options = ["--engine", "emulate", "--machine", "opteron-8385", "--period", "1", "--lines", "1"];
    let ran = record::<&str>(&path, &options, &program, &[]);
    if has_no_emulator(&ran) {
        return;
    }
    assert_eq!(ran.succeeded().stdout, "6\n");
    let trace = Trace::open(&path).expect("the trace opens");
    let one = |mark: &str| {
        let place = format!("go_heap.c:{}", line_in(GO_SOURCE, mark));
        let blocks = objects_at(&trace, |site| site.place() == place);
        assert_eq!(blocks.len(), 1, "{mark}: {blocks:?}");
        let site = trace.site(blocks[0].site).expect("a site");
        assert_eq!((site.kind, site.name.to_string()), (ObjectKind::Pool, format!("{mark} in Go's heap")));
        blocks[0]
    };
    let (first, second, third) = (one("first"), one("second"), one("third"));
    assert_eq!([first.bytes, second.bytes, third.bytes], [BYTES, BYTES, 2 * BYTES]);
    for swept in [first, second] {
        assert!(swept.death.is_some_and(|death| death <= third.birth), "{swept:?} and {third:?}");
    }
    assert_eq!(trace.losses().reentrant, 0);
}

/// What `strip` leaves is Go's own table of functions: by it the heap's function is found, wherever the table says that the code begins.
#[test]
fn gos_heap_is_followed_in_stripped_programs() {
    if !cfg!(target_arch = "x86_64") {
        numapilot_not_run::not_run!(QemuPlugins, "the program is written for x86-64");
        return;
    }
    let folder = scratch();
    for (table, position) in [("-DTABLE=1", "-no-pie"), ("-DTABLE=2", "-pie")] {
        let flags = ["-fno-omit-frame-pointer", "-mno-red-zone", "-fno-toplevel-reorder", table, position];
        let program = build_plain(folder.path(), "go_stripped", GO_SOURCE, &flags);
        finish(Command::new("strip").arg(&program)).succeeded();
        let path = folder.path().join("stripped.numatrace");
        let ran = record::<&str>(&path, &["--engine", "emulate", "--machine", "opteron-8385"], &program, &[]);
        if has_no_emulator(&ran) {
            return;
        }
        assert_eq!(ran.succeeded().stdout, "6\n");
        let trace = Trace::open(&path).expect("the trace opens");
        let blocks = objects_at(&trace, |site| site.place() == "main.go:12" && site.kind == ObjectKind::Pool);
        let sizes: Vec<u64> = blocks.iter().map(|block| block.bytes).collect();
        assert_eq!(sizes, [BYTES, BYTES, 2 * BYTES], "{table} {position}: {:?}", trace.sites());
        let site = trace.site(blocks[0].site).expect("a site");
        assert!(site.name.to_string().ends_with("in Go's heap"), "{table} {position}: {site:?}");
    }
}

/// Path of a library of this architecture, whatever its version.
fn installed(library: &str) -> String {
    let known = finish(Command::new("/sbin/ldconfig").arg("-p")).succeeded().stdout;
    let line =
        known.lines().find(|line| line.trim_start().starts_with(&format!("{library}.")) && line.contains("x86-64"));
    let path = line.and_then(|line| line.split_once(" => "));
    path.unwrap_or_else(|| panic!("the linker knows no {library}: run `tools/setup test`")).1.to_owned()
}

/// Names of their own that libraries offer beside `malloc`, which the tracker takes for itself: each block is recorded once.
#[test]
fn names_that_libraries_offer_beside_malloc_are_followed() {
    if !cfg!(target_arch = "x86_64") {
        numapilot_not_run::not_run!(QemuPlugins, "engine emulate runs on x86-64");
        return;
    }
    let folder = scratch();
    for (library, flag) in LIBRARIES {
        let program = build_plain(folder.path(), "names", NAMES_SOURCE, &["-fno-builtin", flag, &installed(library)]);
        let path = folder.path().join("names.numatrace");
        let ran = record::<&str>(&path, &["--engine", "emulate", "--machine", "opteron-8385"], &program, &[]);
        if has_no_emulator(&ran) {
            return;
        }
        ran.succeeded();
        let trace = Trace::open(&path).expect("the trace opens");
        for (mark, count, bytes) in
            [("large", 1, 4 << 20), ("made", 100, 1000), ("resized", 100, 5000), ("ordinary", 1, 3 << 20)]
        {
            let place = format!("names.c:{}", line_in(NAMES_SOURCE, mark));
            let blocks = objects_at(&trace, |site| site.place() == place && site.kind == ObjectKind::Heap);
            let sizes: Vec<u64> = blocks.iter().map(|block| block.bytes).collect();
            assert_eq!(sizes, (bytes..bytes + count).collect::<Vec<u64>>(), "{library}, {mark}");
            assert!(blocks.iter().all(|block| block.death.is_some()), "{library}, {mark}: {blocks:?}");
        }
        assert_eq!(trace.losses().reentrant, 0, "{library}");
    }
}
