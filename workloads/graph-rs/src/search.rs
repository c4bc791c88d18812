//! The two parallel algorithms. Their results do not depend on the number of threads or on timing.
//!
//! Breadth-first search, level by level, from the bottom up: each unreached vertex looks for a neighbour of the level before (Beamer,
//! Asanović, Patterson, SC 2012). Connected components by propagation of the lowest label until nothing changes, with
//! pointer jumping (Shiloach and Vishkin, 1982).

use crate::graph::Graph;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// Level of a vertex that the search did not reach.
pub const UNREACHED: u32 = u32::MAX;

/// Runs `work(part)` in one thread for each part, together.
fn in_parallel(threads: usize, work: impl Fn(usize) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        for part in 0..threads {
            scope.spawn(move || work(part));
        }
    });
}

/// Numbers that all threads may write, first touched by the calling thread or, with `by_owner`, by each part's thread.
pub fn shared_array(
    graph: &Graph,
    threads: usize,
    by_owner: bool,
    value: impl Fn(usize) -> u32 + Sync,
) -> Vec<AtomicU32> {
    // Zeros come from the system as untouched pages: the thread that stores first places them.
    let array: Vec<AtomicU32> = zeroed(graph.vertices());
    if by_owner {
        in_parallel(threads, |part| graph.part(part).for_each(|vertex| array[vertex].store(value(vertex), Relaxed)));
    } else {
        (0..graph.vertices()).for_each(|vertex| array[vertex].store(value(vertex), Relaxed));
    }
    array
}

fn zeroed(length: usize) -> Vec<AtomicU32> {
    let mut plain = std::mem::ManuallyDrop::new(vec![0u32; length]);
    // SAFETY: the memory comes from the global allocator with this length and capacity, and AtomicU32 has the size, alignment and valid
    // values of u32; `plain` is not used or dropped any more.
    unsafe { Vec::from_raw_parts(plain.as_mut_ptr().cast::<AtomicU32>(), length, plain.capacity()) }
}

/// Distance of every vertex from `root` in edges, [`UNREACHED`] where there is no path. `levels` holds [`UNREACHED`] everywhere.
pub fn breadth_first(graph: &Graph, threads: usize, root: usize, levels: &[AtomicU32]) {
    levels[root].store(0, Relaxed);
    let barrier = Barrier::new(threads);
    let found = [AtomicU64::new(0), AtomicU64::new(0)];
    in_parallel(threads, |part| {
        for level in 0.. {
            let mut found_here = 0;
            for vertex in graph.part(part) {
                if levels[vertex].load(Relaxed) != UNREACHED {
                    continue;
                }
                if graph.neighbours(vertex).iter().any(|&n| levels[n as usize].load(Relaxed) == level) {
                    levels[vertex].store(level + 1, Relaxed);
                    found_here += 1;
                }
            }
            let count = &found[level as usize % 2];
            count.fetch_add(found_here, Relaxed);
            barrier.wait();
            let none = count.load(Relaxed) == 0;
            // All threads read the other count two barriers ago, and none adds to it before the next barrier.
            if part == 0 {
                found[(level as usize + 1) % 2].store(0, Relaxed);
            }
            barrier.wait();
            if none {
                break;
            }
        }
    });
}

/// Lowers `labels`, which hold each vertex's own number, to the lowest number of its component. Returns the rounds that it took, which
/// (alone) depends on timing.
pub fn components(graph: &Graph, threads: usize, labels: &[AtomicU32]) -> u32 {
    let barrier = Barrier::new(threads);
    let changed = [AtomicU64::new(0), AtomicU64::new(0)];
    let rounds = AtomicU32::new(0);
    in_parallel(threads, |part| {
        for round in 0usize.. {
            let mut changes = 0;
            for vertex in graph.part(part) {
                let own = labels[vertex].load(Relaxed);
                let mut lowest = own;
                for &neighbour in graph.neighbours(vertex) {
                    lowest = lowest.min(labels[neighbour as usize].load(Relaxed));
                }
                // A label is a vertex of the same component, so its label is a candidate too.
                lowest = lowest.min(labels[lowest as usize].load(Relaxed));
                if lowest < own {
                    labels[vertex].fetch_min(lowest, Relaxed);
                    labels[own as usize].fetch_min(lowest, Relaxed);
                    changes += 1;
                }
            }
            let count = &changed[round % 2];
            count.fetch_add(changes, Relaxed);
            barrier.wait();
            let none = count.load(Relaxed) == 0;
            if part == 0 {
                changed[(round + 1) % 2].store(0, Relaxed);
                rounds.fetch_add(1, Relaxed);
            }
            barrier.wait();
            if none {
                break;
            }
        }
    });
    rounds.into_inner()
}
