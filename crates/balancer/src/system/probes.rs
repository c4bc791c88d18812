//! Loaded latencies, measured by a pointer chase of some microseconds from a CPU of one node through memory of another. It shows congestion without hardware
//! counters.
//!
//! This thread moves to a CPU of the node, follows [`STEPS`] pointers in random order through [`BUFFER_BYTES`] on each node in turn, and moves back. The
//! smallest time of four pieces counts, so that interruptions do not matter. The buffers are larger than most L2 caches and smaller than most L3: where the L3
//! holds them all, the probes measure the L3, and their values show no effect of placement.
//!
//! Memory is asked for with MPOL_PREFERRED and then looked at. With MPOL_BIND the kernel would end a program, this one or another, to have room on a full node,
//! such as one whose memory is reserved for huge pages.

use std::io;
use std::ptr::NonNull;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::memory::PageQuery;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;

/// Size of the buffer on each node, in bytes.
const BUFFER_BYTES: usize = 4 << 20;
const LINE: usize = 64;
const LINES: usize = BUFFER_BYTES / LINE;
/// Number of pointers followed per pair of nodes and probe, in [`PIECES`] pieces.
const STEPS: usize = 256;
const PIECES: usize = 4;
/// Number of attempts to get a node's memory, and the time between two of them.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// Weight of a new probe in the running mean.
const WEIGHT: f64 = 0.5;

/// A cycle of pointers through memory of one node; unmapped on drop.
#[derive(Debug)]
struct Ring {
    base: NonNull<usize>,
    at: usize,
}

// SAFETY: memory of our own, reached through `&mut self` only.
unsafe impl Send for Ring {}

impl Ring {
    fn new(node: NodeId, seed: u64) -> io::Result<Ring> {
        for left in (0..TRIES).rev() {
            if let Some(ring) = Ring::try_new(node, seed)? {
                return Ok(ring);
            }
            // The kernel makes room in the background once a node has little left (kswapd).
            std::thread::sleep(if left > 0 { TRY_AGAIN } else { Duration::ZERO });
        }
        Err(io::Error::other(format!("node {node} has no {} MiB of free memory", BUFFER_BYTES >> 20)))
    }

    /// `None`: a part of it is on another node.
    fn try_new(node: NodeId, seed: u64) -> io::Result<Option<Ring>> {
        // SAFETY: a fresh private mapping.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), BUFFER_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        let base = match NonNull::new(base.cast::<usize>()) {
            Some(at) if base != libc::MAP_FAILED => at,
            _ => return Err(io::Error::last_os_error()),
        };
        let mut ring = Ring { base, at: 0 };
        ring.prefer(node)?;
        // A random cycle through all lines (Sattolo's algorithm): it visits every line once before any is visited again.
        let mut order: Vec<u32> = (0..LINES as u32).collect();
        let mut state = seed | 1;
        for last in (1..LINES).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(last, (state >> 33) as usize % last);
        }
        for (line, next) in order.iter().enumerate() {
            // SAFETY: both are lines of the mapping.
            unsafe { ring.base.add(line * LINE / size_of::<usize>()).write(*next as usize) };
        }
        ring.at = (seed as usize) % LINES;
        Ok(ring.is_on(node)?.then_some(ring))
    }

    /// Whether all of its pages are on a node.
    fn is_on(&self, node: NodeId) -> io::Result<bool> {
        let first = self.base.as_ptr() as u64;
        let addresses: Vec<u64> = (0..BUFFER_BYTES as u64).step_by(4096).map(|at| first + at).collect();
        let mut states = Vec::with_capacity(addresses.len());
        PageQuery::new().states(Pid::CALLING, &addresses, &mut states).map_err(io::Error::other)?;
        Ok(states.iter().all(|state| state.node() == Some(node)))
    }

    fn prefer(&mut self, node: NodeId) -> io::Result<()> {
        const MPOL_PREFERRED: libc::c_int = 1;
        let mut mask = [0_u64; 16];
        mask[usize::from(node.0) / 64 % 16] |= 1 << (node.0 % 64);
        // SAFETY: the range is our mapping, and the mask has as many bits as are passed to the call.
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), BUFFER_BYTES, MPOL_PREFERRED, mask.as_ptr(), 1024, 0)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Follows pointers. Returns nanoseconds per step.
    fn chase(&mut self) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..PIECES {
            let begun = Instant::now();
            for _ in 0..STEPS / PIECES {
                // SAFETY: `at` is the number of a line, as is every value that is stored there.
                self.at = unsafe { self.base.add(self.at * LINE / size_of::<usize>()).read_volatile() };
            }
            best = best.min(begun.elapsed().as_nanos() as f64 / (STEPS / PIECES) as f64);
        }
        best
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this length.
        unsafe { libc::munmap(self.base.as_ptr().cast(), BUFFER_BYTES) };
    }
}

/// Probes every pair of nodes, one accessing node at a time.
#[derive(Debug)]
pub struct Probes {
    rings: Vec<Option<Ring>>,
    cpus: Vec<CpuMask>,
    turn: usize,
    /// Latency in nanoseconds by accessing node and home node; `None`: not probed yet, or not possible.
    pub latency_ns: Vec<Vec<Option<f64>>>,
    /// Smallest latency measured for each pair: approximately the idle latency.
    pub least_ns: Vec<Vec<Option<f64>>>,
}

impl Probes {
    /// Allocates memory on every node.
    ///
    /// # Errors
    /// A node's memory cannot be allocated: a cpuset forbids it, or the kernel has no NUMA support.
    pub fn new(machine: &Machine, seed: u64) -> io::Result<Probes> {
        let allowed = affinity::of_thread(Tid::CALLING).map_err(io::Error::other)?;
        let ring =
            |node: &numapilot_machine::Node| node.has_memory().then(|| Ring::new(node.id, seed ^ u64::from(node.id.0)));
        let rings = machine.nodes().iter().map(|node| ring(node).transpose()).collect::<io::Result<Vec<_>>>()?;
        let cpus = machine.nodes().iter().map(|node| node.cpus.iter().copied().collect::<CpuMask>().and(&allowed));
        let unknown = vec![vec![None; rings.len()]; rings.len()];
        Ok(Probes { cpus: cpus.collect(), turn: 0, latency_ns: unknown.clone(), least_ns: unknown, rings })
    }

    /// Probes from the next accessing node.
    pub fn probe(&mut self) {
        let nodes = self.rings.len();
        let Some(from) = (0..nodes).map(|step| (self.turn + step) % nodes).find(|node| !self.cpus[*node].is_empty())
        else {
            return;
        };
        self.turn = from + 1;
        let Ok(before) = affinity::of_thread(Tid::CALLING) else { return };
        if affinity::set_thread(Tid::CALLING, &self.cpus[from]).is_err() {
            return;
        }
        for (home, ring) in self.rings.iter_mut().enumerate() {
            let Some(ring) = ring else { continue };
            let found = ring.chase();
            let known = &mut self.latency_ns[from][home];
            *known = Some(known.map_or(found, |known| known + WEIGHT * (found - known)));
            let least = &mut self.least_ns[from][home];
            *least = Some(least.map_or(found, |least| least.min(found)));
        }
        // A failure here means that another program changed the affinity meanwhile, which then stays.
        let _ = affinity::set_thread(Tid::CALLING, &before);
    }
}

#[cfg(test)]
mod tests {
    //! This machine.

    use super::*;

    #[test]
    fn every_pair_gets_a_latency_and_this_thread_stays_where_it_may_be() {
        let machine = Machine::live().unwrap();
        let before = affinity::of_thread(Tid::CALLING).unwrap();
        let mut probes = match Probes::new(&machine, 7) {
            Ok(probes) => probes,
            Err(error) => return numapilot_not_run::not_run!(BoundMemory, "{error}"),
        };
        for _ in machine.nodes() {
            probes.probe();
        }
        for (from, node) in machine.nodes().iter().enumerate().filter(|(_, node)| node.has_cpus()) {
            for (home, _) in machine.nodes().iter().enumerate().filter(|(_, node)| node.has_memory()) {
                let latency = probes.latency_ns[from][home].expect("probed");
                assert!(latency > 0.1 && latency < 1e6, "{latency} ns from {}", node.id);
            }
        }
        assert_eq!(affinity::of_thread(Tid::CALLING).unwrap(), before);
    }

    /// It was bound to its node: where that had no free memory, the kernel ended a program that had some there.
    #[test]
    fn a_ring_takes_no_memory_that_its_node_does_not_have() {
        let ring = match Ring::new(NodeId(0), 3) {
            Ok(ring) => ring,
            Err(error) => return numapilot_not_run::not_run!(BoundMemory, "{error}"),
        };
        let (start, mut text, mut policy) = (ring.base.as_ptr() as u64, Vec::new(), Vec::new());
        numapilot_kernel::maps::read(Pid::own(), "numa_maps", &mut text).unwrap();
        numapilot_kernel::maps::numa_maps(&text, |line, _| {
            // Neighbours under the same policy are one mapping.
            if line.start.0 <= start {
                policy = line.policy.to_vec();
            }
        });
        assert_eq!(String::from_utf8(policy).unwrap(), "prefer:0");
        assert!(ring.is_on(NodeId(0)).unwrap() && !ring.is_on(NodeId(999)).unwrap());
    }

    #[test]
    fn a_ring_meets_every_line_before_any_again() {
        let mut ring = match Ring::new(NodeId(0), 3) {
            Ok(ring) => ring,
            Err(error) => return numapilot_not_run::not_run!(BoundMemory, "{error}"),
        };
        let mut met = vec![false; LINES];
        for _ in 0..LINES {
            assert!(!std::mem::replace(&mut met[ring.at], true));
            // SAFETY: as in `chase`.
            ring.at = unsafe { ring.base.add(ring.at * LINE / size_of::<usize>()).read() };
        }
        assert!(met.iter().all(|met| *met));
    }
}
