//! Pages per second of the actuator, beside the best that a plain loop of `move_pages` calls reaches on the same pages, in one run: `move_throughput [PAGES]`.
//! Needs two nodes with memory (the lab has them). Pages go to and fro; each way of moving has its turn in each round, and its fastest turn counts.

use std::io::Write;
use std::time::Instant;

use numapilot_host::VirtAddr;
use numapilot_kernel::actuator::MoveOptions;
use numapilot_kernel::actuator::MoveRequest;
use numapilot_kernel::actuator::Mover;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;

const ROUNDS: usize = 5;
const MPOL_MF_MOVE: libc::c_int = 2;

/// Seconds of a loop over all pages with so many per call; each page must arrive.
fn raw(addresses: &[u64], to: NodeId, batch: usize) -> f64 {
    let pages: Vec<usize> = addresses.iter().map(|&address| address as usize).collect();
    let nodes = vec![libc::c_int::from(to.0); pages.len()];
    let mut status = vec![libc::c_int::MIN; pages.len()];
    let begun = Instant::now();
    for first in (0..pages.len()).step_by(batch) {
        let count = batch.min(pages.len() - first);
        // SAFETY: three arrays with `count` elements from `first` on; moving pages keeps their contents.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                count as libc::c_ulong,
                pages.as_ptr().add(first),
                nodes.as_ptr().add(first),
                status.as_mut_ptr().add(first),
                MPOL_MF_MOVE,
            )
        };
        assert_eq!(result, 0, "move_pages: {}", std::io::Error::last_os_error());
    }
    let took = begun.elapsed().as_secs_f64();
    assert!(status.iter().all(|status| *status == i32::from(to.0)), "every page arrives");
    took
}

/// The same by the actuator: as `move` has it, which has just asked where the pages are, or asking first, as the loop does.
fn ours(mover: &mut Mover, addresses: &[u64], to: NodeId, asks: bool) -> f64 {
    let requests: Vec<MoveRequest> =
        addresses.iter().map(|&address| MoveRequest { to, address: VirtAddr(address) }).collect();
    let begun = Instant::now();
    let moved = if asks {
        mover.run(None, &requests, &[], &mut |_| true)
    } else {
        mover.run_known(None, &requests, &[], &mut |_| true)
    };
    let moved = moved.expect("our own pages may be moved");
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(moved.pages.moved as usize, addresses.len(), "{:?}", moved.pages);
    took
}

fn main() {
    let pages: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(16_384);
    let machine = Machine::live().expect("this machine");
    let nodes: Vec<NodeId> = machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    let [first, second, ..] = nodes[..] else { panic!("this takes two nodes with memory: run it in the lab") };
    let mut memory = vec![0_u8; (pages + 1) * 4096];
    let base = (memory.as_ptr() as u64).next_multiple_of(4096);
    // SAFETY: pages of our own vector, whole ones; small pages are what is measured.
    unsafe { libc::madvise(base as *mut libc::c_void, pages * 4096, libc::MADV_NOHUGEPAGE) };
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let addresses: Vec<u64> = (0..pages as u64).map(|page| base + page * 4096).collect();
    let mut mover = Mover::new(MoveOptions { keep_bytes: 0, ..MoveOptions::default() });
    let batches = [512, 4096, 16_384, pages];
    let (mut best_raw, mut best_ours) = ([f64::INFINITY; 4], [f64::INFINITY; 2]);
    // Wherever they are, they begin on the first node.
    mover
        .run(
            None,
            &addresses.iter().map(|&address| MoveRequest { to: first, address: VirtAddr(address) }).collect::<Vec<_>>(),
            &[],
            &mut |_| true,
        )
        .expect("pages may be moved");
    for _ in 0..ROUNDS {
        for (best, batch) in best_raw.iter_mut().zip(batches) {
            *best = best.min(raw(&addresses, second, batch));
            raw(&addresses, first, 4096);
        }
        for (best, asks) in best_ours.iter_mut().zip([false, true]) {
            *best = best.min(ours(&mut mover, &addresses, second, asks));
            raw(&addresses, first, 4096);
        }
    }
    let least = best_raw.iter().copied().fold(f64::INFINITY, f64::min);
    let rate = |seconds: f64| pages as f64 / seconds;
    let mut out = std::io::stdout().lock();
    for (batch, seconds) in batches.iter().zip(best_raw) {
        writeln!(out, "raw, {batch} per call: {:.0} pages/s", rate(seconds)).expect("stdout");
    }
    for (name, seconds) in
        ["actuator, as `move` uses it", "actuator, asking first where pages are"].iter().zip(best_ours)
    {
        let share = 100.0 * least / seconds;
        writeln!(out, "{name}: {:.0} pages/s, {share:.1} % of the best raw loop", rate(seconds)).expect("stdout");
    }
}
