//! Synthesizes records from /proc for processes that are already running, as the kernel's side band would have written them: threads and mappings. Also
//! lists which pages are in memory.

use numapilot_host::Members;
use numapilot_kernel::KernelError;
use numapilot_kernel::maps;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::memory::PageState;
use numapilot_kernel::pagemap::PageMap;
use numapilot_kernel::task;
use numapilot_machine::NodeId;
use numapilot_perf::Mapping;
use numapilot_perf::SampleId;
use numapilot_perf::SideBand;

use super::attach::Known;
use super::drain::Reader;
use crate::error::SourceError;

const PAGE_BYTES: u64 = 4096;
/// Pages looked at in one call.
const BATCH_PAGES: u64 = 64 << 10;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;

/// Buffers for looking into one process after the other.
#[derive(Default)]
struct Look {
    text: Vec<u8>,
    entries: Vec<numapilot_kernel::pagemap::PageEntry>,
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
    pub fn synthesize(&mut self, members: Option<&Members>, order: u64) -> Result<Known, SourceError> {
        let own = std::process::id();
        let all = || task::processes().unwrap_or_default().into_iter().filter(|&pid| pid != own).collect();
        self.synthesize_processes(&members.map_or_else(all, Members::pids), order)
    }

    /// [`Reader::synthesize`] for these processes.
    ///
    /// # Errors
    /// As above.
    pub fn synthesize_processes(&mut self, pids: &[u32], order: u64) -> Result<Known, SourceError> {
        let mut look = Look::default();
        for &pid in pids {
            self.process(pid, order, &mut look)?;
        }
        Ok(look.known)
    }

    fn process(&mut self, pid: u32, order: u64, look: &mut Look) -> Result<(), SourceError> {
        let Ok(threads) = task::threads_of(pid) else { return Ok(()) };
        match maps::read(pid, "smaps", &mut look.text) {
            Ok(()) => {}
            Err(KernelError::Gone { .. }) => return Ok(()),
            Err(_) => {
                look.known.closed += 1;
                look.text.clear();
            }
        }
        // The kernel's own threads have no memory, and no faults.
        let is_kernels = look.text.is_empty() && look.known.closed == 0;
        if is_kernels {
            return Ok(());
        }
        look.known.processes += 1;
        look.known.threads += threads.len() as u64;
        for tid in threads {
            let name = task::name_of(pid, tid);
            let record = SideBand::Comm { pid, tid, name: name.as_bytes(), by_exec: false };
            self.tell(&record, order)?;
        }
        let text = std::mem::take(&mut look.text);
        for (line, used) in maps::uses(&text) {
            let mapping = Mapping {
                pid,
                tid: pid,
                addr: line.start,
                len: line.end - line.start,
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

    fn tell(&mut self, record: &SideBand<'_>, order: u64) -> Result<(), SourceError> {
        self.samples().side_band(record, &SampleId::default(), order)
    }

    /// Tells of the pages of a mapping that are in memory.
    fn pages(&mut self, pid: u32, start: u64, end: u64, order: u64, look: &mut Look) -> Result<(), SourceError> {
        let Ok(mut map) = PageMap::open(pid) else { return Ok(()) };
        let mut page = start / PAGE_BYTES;
        while page < end / PAGE_BYTES {
            let count = BATCH_PAGES.min(end / PAGE_BYTES - page);
            look.entries.clear();
            if map.read(page, count as usize, &mut look.entries).is_err() || look.entries.is_empty() {
                return Ok(());
            }
            look.addresses.clear();
            let present = look.entries.iter().zip(page..).filter(|(entry, _)| entry.is_present());
            look.addresses.extend(present.map(|(_, page)| page * PAGE_BYTES));
            look.known.pages += look.addresses.len() as u64;
            self.place(pid, order, look)?;
            page += count;
        }
        Ok(())
    }

    /// Writes where the pages at `look.addresses` are, runs of one node together.
    fn place(&mut self, pid: u32, order: u64, look: &mut Look) -> Result<(), SourceError> {
        look.states.clear();
        match self.samples().only_node() {
            Some(node) => look.states.resize(look.addresses.len(), PageState::On(node)),
            None if look.query.states(pid, &look.addresses, &mut look.states).is_err() => return Ok(()),
            None => {}
        }
        let mut run: Option<(u64, u32, NodeId)> = None;
        for (&address, state) in look.addresses.iter().zip(&look.states) {
            let Some(node) = state.node() else { continue };
            match &mut run {
                Some((first, pages, on)) if *on == node && address == *first + u64::from(*pages) * PAGE_BYTES => {
                    *pages += 1;
                }
                _ => {
                    if let Some(run) = run.replace((address, 1, node)) {
                        self.samples().found(pid, run, order)?;
                    }
                }
            }
        }
        run.map_or(Ok(()), |run| self.samples().found(pid, run, order))
    }
}
