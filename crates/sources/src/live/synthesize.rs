//! Synthesizes records from /proc for processes that are already running, as the kernel's side band would have written them: threads and mappings. Also
//! lists which pages are in memory.

use numapilot_host::Members;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::census;
use numapilot_kernel::maps;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::memory::PageState;
use numapilot_kernel::pagemap::PageMap;
use numapilot_kernel::task;
use numapilot_machine::NodeId;
use numapilot_perf::Mapping;
use numapilot_perf::SampleId;
use numapilot_perf::SideBand;
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::wire::layout;

use super::attach::Known;
use super::drain::Reader;
use super::time::ClockPair;

/// A page of the trace. The kernel's may be larger (64 KiB, 16 KiB on arm64).
const PAGE_BYTES: u64 = 1 << layout::PAGE_SHIFT;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;

/// What became of a look at a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspected {
    /// It has ended, or is one of the kernel's own threads, which have no memory and no faults.
    Absent,
    /// This user may not look.
    Closed,
    Open,
}

impl Inspected {
    /// `text`: what was read.
    fn of(read: &Result<(), KernelError>, text: &[u8]) -> Inspected {
        match read {
            Ok(()) if text.is_empty() => Inspected::Absent,
            Ok(()) => Inspected::Open,
            Err(KernelError::Gone { .. }) => Inspected::Absent,
            Err(_) => Inspected::Closed,
        }
    }
}

/// Buffers for looking into one process after the other.
#[derive(Default)]
struct Look {
    text: Vec<u8>,
    addresses: Vec<u64>,
    states: Vec<PageState>,
    query: PageQuery,
    known: Known,
}

impl Reader<'_> {
    /// Synthesizes records of the processes to record, as they are now; `None`: of all of this machine.
    ///
    /// # Errors
    /// The trace cannot be written. Processes that cannot be inspected are counted; a process that has ended is not an error.
    pub fn synthesize(&mut self, members: Option<&Members>, order: u64) -> Result<Known, ChunkError> {
        let own = Pid::own();
        let all = || task::processes().unwrap_or_default().into_iter().filter(|&pid| pid != own).collect();
        self.synthesize_processes(&members.map_or_else(all, Members::pids), order)
    }

    /// [`Reader::synthesize`] for these processes.
    ///
    /// # Errors
    /// As of [`Reader::synthesize`].
    pub fn synthesize_processes(&mut self, pids: &[Pid], order: u64) -> Result<Known, ChunkError> {
        let mut look = Look::default();
        for &pid in pids {
            self.process(pid, order, &mut look)?;
        }
        Ok(look.known)
    }

    fn process(&mut self, pid: Pid, order: u64, look: &mut Look) -> Result<(), ChunkError> {
        // What happens later is in the kernel's records, which are on already; what happened before, /proc shows.
        let began = ClockPair::now().order;
        let Ok(threads) = task::threads_of(pid) else { return Ok(()) };
        let read = maps::read(pid, "smaps", &mut look.text);
        match Inspected::of(&read, &look.text) {
            Inspected::Absent => return Ok(()),
            Inspected::Closed => {
                look.known.closed += 1;
                look.text.clear();
            }
            Inspected::Open => {}
        }
        look.known.processes += 1;
        look.known.threads += threads.len() as u64;
        for tid in threads {
            let name = task::name_of(pid, tid);
            let record = SideBand::Comm { pid, tid, name: name.as_bytes(), by_exec: false };
            self.tell(&record, order)?;
        }
        let text = std::mem::take(&mut look.text);
        if !text.is_empty() {
            self.samples().described(pid, began);
        }
        for (line, used) in maps::uses(&text) {
            let mapping = Mapping {
                pid,
                tid: Tid::first_of(pid),
                addr: line.start.0,
                len: line.bytes(),
                file_offset: line.offset,
                protection: Some(line.protection()),
                flags: Some(if line.is_shared() { MAP_SHARED } else { MAP_PRIVATE }),
                is_executable: line.is_executable(),
                path: if line.path.is_empty() { b"//anon" } else { line.path },
                ..Mapping::default()
            };
            self.samples().found_mapping(&mapping, line.inode, order)?;
            if used.resident_kib > 0 {
                self.pages(pid, line.start, line.end, order, look)?;
            }
        }
        look.text = text;
        Ok(())
    }

    fn tell(&mut self, record: &SideBand<'_>, order: u64) -> Result<(), ChunkError> {
        self.samples().side_band(record, &SampleId::default(), order)
    }

    /// Tells of the pages of a mapping that are in memory.
    fn pages(
        &mut self,
        pid: Pid,
        start: VirtAddr,
        end: VirtAddr,
        order: u64,
        look: &mut Look,
    ) -> Result<(), ChunkError> {
        let Ok(mut map) = PageMap::open(pid) else { return Ok(()) };
        let mut written = Ok(());
        // What has ended meanwhile has no more pages.
        let _ = census::present(&mut map, start, end, &mut |addresses| {
            if written.is_ok() {
                look.addresses.clear();
                look.addresses.extend_from_slice(addresses);
                look.known.pages += addresses.len() as u64;
                written = self.place(pid, order, look);
            }
        });
        written
    }

    /// Writes where the pages at `look.addresses` are, runs of one node together.
    fn place(&mut self, pid: Pid, order: u64, look: &mut Look) -> Result<(), ChunkError> {
        look.states.clear();
        match self.samples().only_node() {
            Some(node) => look.states.resize(look.addresses.len(), PageState::On(node)),
            None if look.query.states(pid, &look.addresses, &mut look.states).is_err() => return Ok(()),
            None => {}
        }
        for run in runs(&look.addresses, &look.states, page_bytes()) {
            self.samples().found(pid, run, order)?;
        }
        Ok(())
    }
}

/// Runs of neighbouring pages of one node: first address, number of the trace's pages, node. `size`: bytes of a page of the kernel's.
fn runs(addresses: &[u64], states: &[PageState], size: u64) -> Vec<(u64, u32, NodeId)> {
    let each = u32::try_from(size / PAGE_BYTES).unwrap_or(1).max(1);
    let mut runs: Vec<(u64, u32, NodeId)> = Vec::new();
    for (&address, state) in addresses.iter().zip(states) {
        let Some(node) = state.node() else { continue };
        match runs.last_mut() {
            Some((first, pages, on)) if *on == node && address == *first + u64::from(*pages) * PAGE_BYTES => {
                *pages += each;
            }
            _ => runs.push((address, each, node)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also after a process that may not be inspected: system-wide, each later thread of the kernel's was counted as a process.
    #[test]
    fn threads_of_the_kernel_are_no_processes() {
        let denied = Err(KernelError::Denied { pid: Pid(7), source: std::io::ErrorKind::PermissionDenied.into() });
        let seen = [(Ok(()), "7f00-7f01 rw-p"), (denied, ""), (Ok(()), "")];
        let seen = seen.map(|(read, text)| Inspected::of(&read, text.as_bytes()));
        assert_eq!(seen, [Inspected::Open, Inspected::Closed, Inspected::Absent]);
        assert_eq!(Inspected::of(&Err(KernelError::Gone { pid: Pid(7) }), b""), Inspected::Absent);
    }

    #[test]
    fn pages_of_any_size_become_runs_of_the_traces_pages() {
        let [first, second] = [PageState::On(NodeId(0)), PageState::On(NodeId(1))];
        for (size, each) in [(4096, 1), (16 << 10, 4), (64 << 10, 16)] {
            let addresses = [1, 2, 3, 5].map(|page| page * size);
            let found = runs(&addresses, &[first, first, second, second], size);
            let want = [(size, 2 * each, NodeId(0)), (3 * size, each, NodeId(1)), (5 * size, each, NodeId(1))];
            assert_eq!(found, want, "{size}");
        }
    }
}
