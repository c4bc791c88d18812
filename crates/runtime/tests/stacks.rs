//! Call stacks: exact return addresses however the code was compiled, one number per stack, bounded depth.

use std::collections::HashSet;

use crate::support::Run;
use crate::support::compile;
use crate::support::record;
use numapilot_trace::record::Event;

const MAX_DEPTH: usize = 128;

/// Compares each `stack ADDRESS RETURN...` of the program with what was recorded for the block at that address. Returns how many there were.
fn check_stacks(run: &Run, what: &str) -> usize {
    let stacks = run.stacks();
    let mut checked = 0;
    for line in run.truth.iter().filter_map(|line| line.strip_prefix("stack ")) {
        let numbers: Vec<u64> =
            line.split(' ').map(|word| u64::from_str_radix(word, 16).expect("hexadecimal")).collect();
        let candidates = run.events(|event| match event {
            Event::Alloc { address, stack, .. } if address.0 == numbers[0] => Some(stack.0),
            _ => None,
        });
        let found = candidates
            .iter()
            .any(|id| stacks.get(id).is_some_and(|frames| frames.len() > 11 && frames[1..12] == numbers[1..12]));
        assert!(
            found,
            "{what}: no stack of {:x} is {:x?}; there are {:x?}",
            numbers[0],
            &numbers[1..],
            candidates.iter().map(|id| &stacks[id]).collect::<Vec<_>>()
        );
        checked += 1;
    }
    checked
}

#[test]
fn return_addresses_are_exact_however_the_code_was_compiled() {
    let ways: &[(&str, &[&str])] = &[
        ("no frame pointers", &["-O2", "-fomit-frame-pointer"]),
        ("frame pointers", &["-O2", "-fno-omit-frame-pointer"]),
        ("no optimisation", &["-O0"]),
        ("realigned stacks", &["-O2", "-fomit-frame-pointer", "-DWIDE"]),
        ("realigned stacks, unoptimised", &["-O0", "-DWIDE"]),
        ("variable frames", &["-O2", "-fomit-frame-pointer", "-DVARIABLE"]),
        (
            "no unwinding data, only frame pointers",
            &["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
        ),
        ("no position independence", &["-O2", "-no-pie", "-fno-pie"]),
    ];
    for (index, (what, flags)) in ways.iter().enumerate() {
        let mut flags = flags.to_vec();
        flags.push("-fno-optimize-sibling-calls");
        let program = compile("stacks.c", &format!("stacks{index}"), &flags);
        let run = record(&program, &[]);
        run.assert_success().assert_no_loss();
        assert_eq!(check_stacks(&run, what), 2, "{what}");
        assert_eq!(run.arena.losses().failed_unwinds, 0, "{what}");
    }
}

#[test]
fn a_stack_is_written_once_and_cut_at_the_depth_limit() {
    let program = compile("stacks.c", "stacks-once", &["-O2", "-fno-optimize-sibling-calls"]);
    let run = record(&program, &[]);
    run.assert_success();
    let mut ids = HashSet::new();
    let mut contents = HashSet::new();
    let mut cut = 0;
    run.events(|event| {
        if let Event::Stack { id, frames, truncated, .. } = event {
            assert!(ids.insert(id.0), "stack {} was written twice", id.0);
            assert!(contents.insert(frames.clone()), "two numbers for one stack: {frames:x?}");
            assert!(frames.len() <= MAX_DEPTH);
            assert!(!truncated || frames.len() == MAX_DEPTH);
            cut += usize::from(*truncated);
        }
        None::<()>
    });
    assert_eq!(cut, 1, "the deep recursion, and nothing else");
    let used = run.events(|event| if let Event::Alloc { stack, .. } = event { Some(stack.0) } else { None });
    assert!(used.iter().all(|id| ids.contains(id)), "a block's stack was never written");
}

#[test]
fn no_frame_of_ours_appears() {
    let program = compile("stacks.c", "stacks-ours", &["-O2"]);
    let run = record(&program, &[]);
    let ours = run.events(|event| match event {
        Event::Module { address, bytes, path, .. } if path.ends_with("libnumapilot-track.so") => {
            Some((address.0, address.0 + bytes))
        }
        _ => None,
    });
    assert_eq!(ours.len(), 1, "the tracker announces itself like any module");
    for frames in run.stacks().values() {
        assert!(frames.iter().all(|frame| *frame < ours[0].0 || *frame >= ours[0].1), "{frames:x?} in {ours:x?}");
    }
}
