//! Blocks: every allocation function in C and C++, beside every allocator, recorded once and exactly.

use std::process::Command;

use crate::support;
use crate::support::Arena;
use crate::support::compile;
use crate::support::record;
use crate::support::record_with;
use numapilot_trace::record::Event;

#[test]
fn every_c_function_is_recorded_exactly() {
    let program = compile("alloc_all.c", "alloc_all", &["-O1", "-fno-builtin"]);
    let run = record(&program, &[]);
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    run.check_lives();
    for line in run.truth.iter().filter_map(|line| line.strip_prefix("address ")) {
        let address = u64::from_str_radix(line, 16).expect("hexadecimal");
        let seen = run.events(|event| {
            if let Event::Alloc { address: at, .. } = event { (at.0 == address).then_some(()) } else { None }
        });
        assert!(!seen.is_empty(), "the block {line} that the C library made is not recorded");
    }
}

#[test]
fn every_cpp_operator_is_recorded_once() {
    let program = compile("alloc_new.cpp", "alloc_new", &["-O1", "-std=c++17", "-fno-builtin"]);
    let run = record(&program, &[]);
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    let (made, freed) = run.check_lives();
    assert!(made > 1000 && freed > 1000, "{made} made, {freed} freed");
}

/// The allocators of `tools/setup test`, as a program links or preloads them. Their versions are the distribution's.
const ALLOCATORS: &[&str] = &["libjemalloc.so", "libtcmalloc_minimal.so", "libmimalloc.so"];

/// The library's path, from what `ldconfig -p` prints: lines such as `libjemalloc.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libjemalloc.so.2`.
fn path_in<'a>(known: &'a str, library: &str) -> Option<&'a str> {
    let is_it = |name: &str| name.strip_prefix(library).is_some_and(|rest| rest.starts_with('.'));
    known.lines().find_map(|line| {
        let (what, path) = line.trim().split_once(" => ")?;
        let (name, kind) = what.split_once(' ')?;
        (is_it(name) && kind.contains("x86-64")).then_some(path)
    })
}

fn installed(library: &str) -> String {
    let output = Command::new("/sbin/ldconfig").arg("-p").output().expect("ldconfig");
    let known = String::from_utf8(output.stdout).expect("text");
    let path = path_in(&known, library);
    path.unwrap_or_else(|| panic!("the linker knows no {library}: run `tools/setup test`")).to_owned()
}

#[test]
fn an_allocator_is_found_whatever_its_version() {
    let known = "3 libs found in cache `/etc/ld.so.cache'\n\
        \tlibmimalloc.so.3 (libc6,x86-64) => /lib/x86_64-linux-gnu/libmimalloc.so.3\n\
        \tlibjemalloc.so.2 (libc6) => /lib/i386-linux-gnu/libjemalloc.so.2\n\
        \tlibjemalloc.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libjemalloc.so.2\n";
    assert_eq!(path_in(known, "libmimalloc.so"), Some("/lib/x86_64-linux-gnu/libmimalloc.so.3"));
    assert_eq!(path_in(known, "libjemalloc.so"), Some("/lib/x86_64-linux-gnu/libjemalloc.so.2"));
    assert_eq!((path_in(known, "libmimalloc.so.3.1"), path_in(known, "libtcmalloc_minimal.so")), (None, None));
}

#[test]
fn works_beside_other_allocators_when_linked() {
    for library in ALLOCATORS {
        let path = installed(library);
        let linked = compile(
            "alloc_churn.cpp",
            &format!("churn-{library}"),
            &["-O1", "-fno-builtin", "-Wl,--no-as-needed", &path],
        );
        let run = record(&linked, &["8", "20000"]);
        run.assert_success().assert_no_loss().assert_blocks_match_truth();
        let (made, _) = run.check_lives();
        assert!(made > 8 * 20000, "{library}: only {made} blocks");
    }
}

#[test]
fn works_beside_other_allocators_when_preloaded() {
    let program = compile("alloc_churn.cpp", "churn", &["-O1", "-fno-builtin"]);
    for library in ALLOCATORS {
        let both = format!("{}:{}", support::tracker().display(), installed(library));
        let run = record_with(Arena::new(64, 4 << 20), &program, &["4", "20000"], |command| {
            command.env("LD_PRELOAD", &both);
        });
        run.assert_success().assert_no_loss().assert_blocks_match_truth();
        run.check_lives();
    }
}

#[test]
fn says_so_when_the_program_brings_its_own_malloc() {
    let program = compile("own_malloc.c", "own_malloc", &["-O1", "-fno-builtin", "-rdynamic"]);
    let run = record(&program, &[]);
    run.assert_success();
    let marks = run.events(|event| if let Event::Mark { text } = event { Some(text.clone()) } else { None });
    assert!(marks.iter().any(|text| text.contains("its own malloc")), "{marks:?}");
}

#[test]
fn sixty_four_threads_hand_blocks_around() {
    let program = compile("alloc_churn.cpp", "churn64", &["-O2", "-fno-builtin"]);
    let run = record(&program, &["64", "5000"]);
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    let (made, freed) = run.check_lives();
    assert!(made >= 64 * 5000 && freed >= 64 * 5000, "{made} made, {freed} freed");
    let starts = run.events(|event| if let Event::ThreadStart { tid, .. } = event { Some(*tid) } else { None });
    let ends = run.events(|event| if let Event::ThreadEnd { index } = event { Some(index.0) } else { None });
    assert_eq!((starts.len(), ends.len()), (65, 65));
}
