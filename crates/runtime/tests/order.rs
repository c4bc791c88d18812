//! Order stamps: an event that happens before another of another thread has the earlier stamp, so that each block's end is its own.

use std::collections::HashMap;
use std::collections::HashSet;

use crate::support::Arena;
use crate::support::Run;
use crate::support::compile;
use crate::support::record_with;
use numapilot_trace::record::Event;
use numapilot_trace::wire::layout;

/// Size of a block, as in `handover.c`.
const BLOCK_BYTES: u64 = 72;

/// Which block ended how, by the stamps alone, against what the program itself noted.
#[derive(Debug, Default)]
struct Verdict {
    /// Number of blocks that were freed.
    freed: usize,
    /// Of these, blocks that by their stamps were not alive, or another one. Not where the address was used anew within one tick of the counter, on several
    /// threads: then no stamp can say which block it was, and nothing depends on it, as all of them lived and died within that tick.
    wrong: usize,
    /// Pairs of stamps of different threads that are equal.
    ties: usize,
}

/// Numbers of one line of the program's own account.
fn numbers(line: &str) -> Vec<u32> {
    line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect()
}

/// Follows the lives of the handed-over blocks in the order of the stamps.
fn judge(run: &Run) -> Verdict {
    let tids: HashMap<u32, u32> = run
        .truth
        .iter()
        .filter(|line| line.starts_with("thread "))
        .map(|line| numbers(line))
        .map(|words| (words[1], words[0]))
        .collect();
    let mut gone: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    for words in run.truth.iter().filter(|line| line.starts_with("gone ")).map(|line| numbers(line)) {
        gone.entry(words[0]).or_default().push((words[1], words[2]));
    }
    let starts = run.events(|event| match event {
        Event::ThreadStart { index, tid, .. } => Some((index.0, tids.get(&tid.0).copied())),
        _ => None,
    });
    let worker: HashMap<u32, u32> = starts.into_iter().filter_map(|(index, worker)| Some((index, worker?))).collect();
    let (mut made, mut ended) = (HashMap::new(), HashMap::new());
    let mut live: HashMap<u64, ((u32, u32), u64)> = HashMap::new();
    let mut verdict = Verdict::default();
    let mut last = (0, 0);
    let reused = reused_within_a_tick(run);
    for record in run.ordered() {
        let Some(&thread) = worker.get(&record.thread.0) else { continue };
        verdict.ties += usize::from(last.0 == record.stamp.order.0 && last.1 != thread);
        last = (record.stamp.order.0, thread);
        match &record.event {
            Event::Alloc { address, bytes: BLOCK_BYTES, .. } => {
                let number: &mut u32 = made.entry(thread).or_default();
                live.insert(address.0, ((thread, *number), record.stamp.order.0));
                *number += 1;
            }
            Event::Free { address } => {
                let nth: &mut usize = ended.entry(thread).or_default();
                // What the C library frees at a thread's end is no block of ours.
                let Some(truth) = gone[&thread].get(*nth) else { continue };
                *nth += 1;
                verdict.freed += 1;
                let is_wrong = live.remove(&address.0).is_none_or(|(block, tick)| {
                    block != *truth
                        && !reused.contains(&(address.0, tick))
                        && !reused.contains(&(address.0, record.stamp.order.0))
                });
                verdict.wrong += usize::from(is_wrong);
            }
            _ => {}
        }
    }
    verdict
}

/// Addresses at which several threads began blocks with the same stamp, and that stamp.
fn reused_within_a_tick(run: &Run) -> HashSet<(u64, u64)> {
    let mut first: HashMap<(u64, u64), u32> = HashMap::new();
    let mut reused = HashSet::new();
    for record in run.ordered() {
        let Event::Alloc { address, .. } = &record.event else { continue };
        let at = (address.0, record.stamp.order.0);
        if *first.entry(at).or_insert(record.thread.0) != record.thread.0 {
            reused.insert(at);
        }
    }
    reused
}

/// Runs, as threads that share this host with others do not always run at the same time.
const RUNS: usize = 4;

fn hand_over(source: u32) -> Verdict {
    let program = compile("handover.c", "handover", &["-O2", "-fno-builtin"]);
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let (threads, rounds) = ((2 * cpus).clamp(4, 64), if cpus > 16 { 5_000 } else { 20_000 });
    let mut total = Verdict::default();
    for _ in 0..RUNS {
        let arena = Arena::new(u32::try_from(threads).expect("small") + 2, 4 << 20);
        arena.edit(|header| header.order_source = source);
        let run = record_with(arena, &program, &[&threads.to_string(), &rounds.to_string()], |_| {});
        run.assert_success().assert_no_loss();
        let verdict = judge(&run);
        assert!(verdict.freed > threads * rounds / 2, "{verdict:?}");
        total.freed += verdict.freed;
        total.wrong += verdict.wrong;
        total.ties += verdict.ties;
    }
    eprintln!("source {source}: {threads} threads on {cpus} CPUs: {total:?}");
    total
}

/// Make sure that the stamps of the processor's counter order what threads hand over: a read that is not fenced fails here by the hundred.
#[test]
fn stamps_of_the_counter_order_blocks_that_threads_hand_over() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return numapilot_not_run::not_run!(TwoCpus, "threads that take turns on one CPU read its counter in order");
    }
    for source in [layout::ORDER_COUNTER, layout::ORDER_COUNTER_P] {
        assert_eq!(hand_over(source).wrong, 0);
    }
}

/// Make sure that a machine whose counters cannot be compared has exact stamps too, and each of them once.
#[test]
fn stamps_of_the_sequence_order_blocks_that_threads_hand_over() {
    let verdict = hand_over(layout::ORDER_SEQUENCE);
    assert_eq!((verdict.wrong, verdict.ties), (0, 0));
}
