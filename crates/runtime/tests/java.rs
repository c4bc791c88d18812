//! The agent for Java virtual machines, without one: what it tells the tracker is recorded, and its table of objects follows references that change.

use std::process::Command;

use crate::support::compile;
use crate::support::record;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::record::BlockSample;
use numapilot_trace::record::Event;
use numapilot_trace::wire::layout::CODE_JAVA;
use numapilot_trace::wire::layout::CODE_SHIFT;
use numapilot_trace::wire::layout::JAVA_FRAME;

#[test]
fn methods_stacks_and_moving_objects_are_recorded() {
    let run = record(&compile("java.c", "java", &["-O1"]), &[]);
    run.assert_success().assert_no_loss();
    let methods = run.events(|event| if let Event::Code(code) = event { Some(code.clone()) } else { None });
    assert_eq!(methods.len(), 2, "{methods:?}");
    let (fill, main) = (&methods[0], &methods[1]);
    assert_eq!((fill.minor, &*fill.name, &*fill.file), (CODE_JAVA, "a.B.fill", "a/B.java"));
    assert_eq!((&*fill.table, &*main.table), (&[9, 0, 14, 0, 0, 0, 12, 0][..], &[][..]));
    let made = run.events(|event| match event {
        Event::PoolAlloc { address, bytes, stack, thread, sample, .. } => {
            Some((address.0, *bytes, stack.0, *thread, *sample))
        }
        _ => None,
    });
    let gone = run.events(|event| if let Event::PoolFree { address, .. } = event { Some(address.0) } else { None });
    let [(first, 80, stack, None, one), (second, 80, same, Some(ThreadIndex(1)), other)] = made[..] else {
        panic!("{made:?}")
    };
    let sample = |is_moved| Some(BlockSample { interval_bytes: 4096, is_moved });
    assert_eq!((one, other), (sample(false), sample(true)));
    assert_eq!((run.truth.as_slice(), second, same), (&[format!("made {first:x}")][..], first + 160, stack));
    assert_eq!(gone, [first]);
    let frame = |id: u64, index: u64| JAVA_FRAME | id << CODE_SHIFT | index;
    assert_eq!(run.stacks()[&stack], [frame(fill.id, 10), frame(main.id, 0)]);
    let marks = run.events(|event| if let Event::Mark { text } = event { Some(text.clone()) } else { None });
    assert_eq!(marks, ["warning: many"]);
    let names = run.events(|event| if let Event::ThreadName { name } = event { Some(name.clone()) } else { None });
    assert_eq!(names.last().map(String::as_str), Some("a name of many words"), "longer than the kernel's: {names:?}");
}

/// Make sure that a class whose name could not be recorded is not taken for one that was.
#[test]
fn a_pool_that_was_not_recorded_has_no_number() {
    let run = record(&compile("java_late.c", "java_late", &["-O1"]), &[]);
    run.assert_success();
    let named = run.events(|event| matches!(event, Event::Pool { .. }).then_some(()));
    assert_eq!((run.truth.as_slice(), named.len()), (&["ended 4".to_owned()][..], 3));
}

#[test]
fn objects_are_found_again_after_each_collection() {
    passes("java_objects");
}

#[test]
fn texts_of_the_virtual_machine_are_utf8_and_short_enough() {
    passes("java_names");
}

/// Compiles and runs a program that checks a part of the agent.
#[track_caller]
fn passes(name: &str) {
    let program = compile(&format!("{name}.c"), name, &["-O1"]);
    let output = Command::new(&program).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
