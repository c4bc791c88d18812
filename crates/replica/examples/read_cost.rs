//! What a read section costs, beside a plain read and a read-write lock, in one run: `tools/bench NUMAPILOT BUILD replica` prints it.
//!
//! One JSON object a line: what is read through, threads that read at once, ns of a thread's CPU time per read (the median of several rounds, peers taking
//! turns; CPU time, so that other programs on the machine count little). On a machine with one node a section needs no look-up of the node; the
//! look-up is measured by itself.

use std::hint::black_box;
use std::io;
use std::io::Write;
use std::sync::Barrier;
use std::sync::RwLock;
use std::thread;

use numapilot_replica::Replicated;

const READS: u32 = 2_000_000;
const ROUNDS: usize = 9;

/// CPU time of the calling thread.
fn cpu_ns() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result goes to a live value of the type that is asked for.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// ns per call of `read`, made by `threads` threads at once: the slowest thread counts.
fn time(threads: usize, read: &(dyn Fn(usize) -> u64 + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let start = cpu_ns();
                    for i in 0..READS {
                        black_box(read(i as usize % 512));
                    }
                    (cpu_ns() - start) / f64::from(READS)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a reader")).fold(0.0, f64::max)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let content: Vec<u64> = (0..512).collect();
    let replica = Replicated::new(&content)?;
    let lock = RwLock::new(content.clone());
    let plain: &(dyn Fn(usize) -> u64 + Sync) = &|i| black_box(&content)[i];
    let section: &(dyn Fn(usize) -> u64 + Sync) = &|i| black_box(&replica).read()[i];
    let locked: &(dyn Fn(usize) -> u64 + Sync) = &|i| black_box(&lock).read().map_or(0, |content| content[i]);
    // SAFETY: sched_getcpu has no conditions.
    let look_up: &(dyn Fn(usize) -> u64 + Sync) = &|_| unsafe { libc::sched_getcpu() } as u64;
    let peers = [("plain", plain), ("section", section), ("rwlock", locked), ("node look-up alone", look_up)];
    let cpus = thread::available_parallelism()?.get();
    for threads in if cpus > 1 { vec![1, cpus] } else { vec![1] } {
        let mut times = vec![Vec::new(); peers.len()];
        for _ in 0..ROUNDS {
            for (peer, (_, read)) in peers.iter().enumerate() {
                times[peer].push(time(threads, read));
            }
        }
        for ((name, _), times) in peers.iter().zip(times) {
            let (nodes, ns) = (replica.info().nodes, median(times));
            writeln!(
                io::stdout(),
                "{{\"read\": \"{name}\", \"threads\": {threads}, \"nodes\": {nodes}, \"ns\": {ns:.2}}}"
            )?;
        }
    }
    Ok(())
}
