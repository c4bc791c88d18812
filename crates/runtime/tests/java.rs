//! The agent for Java virtual machines, without one: what it tells the tracker is recorded, and its table of objects follows references that change.

use std::process::Command;

use crate::support::compile;
use crate::support::record;
use numapilot_trace::ids::ThreadIndex;
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
        Event::PoolAlloc { address, bytes, stack, thread, .. } => Some((address.0, *bytes, stack.0, *thread)),
        _ => None,
    });
    let gone = run.events(|event| if let Event::PoolFree { address, .. } = event { Some(address.0) } else { None });
    let [(first, 80, stack, None), (second, 80, same, Some(ThreadIndex(1)))] = made[..] else { panic!("{made:?}") };
    assert_eq!((run.truth.as_slice(), second, same), (&[format!("made {first:x}")][..], first + 160, stack));
    assert_eq!(gone, [first]);
    let frame = |id: u64, index: u64| JAVA_FRAME | id << CODE_SHIFT | index;
    assert_eq!(run.stacks()[&stack], [frame(fill.id, 10), frame(main.id, 0)]);
    let marks = run.events(|event| if let Event::Mark { text } = event { Some(text.clone()) } else { None });
    assert_eq!(marks, ["warning: many"]);
}

#[test]
fn objects_are_found_again_after_each_collection() {
    let program = compile("java_objects.c", "java_objects", &["-O1"]);
    let output = Command::new(&program).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
