//! Pools that a program carries itself: what it reports through `numapilot_pool.h` is recorded, each call once and in order.

use std::process::Command;

use crate::support::Run;
use crate::support::compile;
use crate::support::record;
use numapilot_trace::record::Event;
use numapilot_trace::record::PoolEvent;

const THREADS: usize = 8;
const EACH: usize = 2000;

fn recorded() -> Run {
    let run = record(&compile("pools.c", "pools", &["-O1"]), &[]);
    run.assert_success().assert_no_loss();
    run
}

fn described(event: &Event) -> Option<String> {
    Some(match event {
        Event::Pool { pool, what: PoolEvent::Created(name) } => format!("pool {pool} {name}"),
        Event::Pool { pool, what: PoolEvent::Reset } => format!("reset {pool}"),
        Event::Pool { pool, what: PoolEvent::Destroyed } => format!("destroyed {pool}"),
        Event::PoolAlloc { address, bytes, pool, .. } => format!("made {:x} {bytes} in {pool}", address.0),
        Event::PoolFree { address, pool } => format!("given {:x} in {pool}", address.0),
        _ => return None,
    })
}

#[test]
fn each_call_is_recorded_once_and_in_order() {
    let run = recorded();
    let is_first = |event: &Event| described(event).is_some_and(|text| text.ends_with(" first"));
    let main = run.rings.iter().find(|ring| ring.iter().any(|record| is_first(&record.event)));
    let main = main.expect("the main thread's ring");
    let found: Vec<String> = main.iter().filter_map(|record| described(&record.event)).collect();
    // The pools are made before the program says so.
    assert_eq!(found, run.truth);
}

#[test]
fn blocks_of_a_pool_have_the_stack_of_their_call() {
    let run = recorded();
    let blocks = run.events(|event| match event {
        Event::PoolAlloc { stack, bytes: 64, .. } => Some(stack.0),
        _ => None,
    });
    let other = run.events(|event| match event {
        Event::PoolAlloc { stack, bytes: 0, .. } => Some(stack.0),
        _ => None,
    });
    assert!(blocks.len() == 3 && blocks.iter().all(|stack| *stack == blocks[0] && *stack != 0), "{blocks:?}");
    assert!(other.len() == 1 && other[0] != blocks[0] && other[0] != 0, "{other:?}");
    // Both innermost frames are the call in the pool's own allocation function.
    let stacks = run.stacks();
    assert_eq!(stacks[&blocks[0]][0], stacks[&other[0]][0]);
    assert_ne!(stacks[&blocks[0]][1], stacks[&other[0]][1]);
}

#[test]
fn threads_and_forked_children_use_the_same_pools() {
    let run = recorded();
    let made = run.events(|event| matches!(event, Event::PoolAlloc { bytes: 32, .. }).then_some(()));
    let freed = run.events(|event| matches!(event, Event::PoolFree { .. }).then_some(()));
    assert_eq!((made.len(), freed.len()), (THREADS * EACH, THREADS * EACH / 2 + 2));
    let names = run.events(|event| match event {
        Event::Pool { what: PoolEvent::Created(name), .. } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(names.iter().filter(|name| *name == "of the child").count(), 1, "{names:?}");
    let resets = run.events(|event| matches!(event, Event::Pool { what: PoolEvent::Reset, .. }).then_some(()));
    assert_eq!(resets.len(), 2, "the parent's and the child's");
}

#[test]
fn without_a_recorder_there_are_no_pools() {
    let program = compile("pools.c", "pools", &["-O1"]);
    let status = Command::new(&program).arg("unrecorded").env_remove("NUMAPILOT_ARENA").status().expect("it runs");
    assert!(status.success());
    // Nor where the recorder's library is not there: a program that was started without it.
    let status = Command::new(&program).arg("unrecorded").env("NUMAPILOT_ARENA", "/proc/self/fd/9").status();
    assert!(status.expect("it runs").success());
}
