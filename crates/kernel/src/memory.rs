//! Queries the kernel for the nodes of pages and for memory policies: `move_pages` and `get_mempolicy`. Moving pages is the same call with destinations,
//! and gives the same result per page ([`PageState`]).

use std::io;
use std::path::Path;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use crate::error::KernelError;
use crate::task::stand_in;

/// Pages per system call: the kernel works through them in pieces of some dozens anyway, and a signal need not wait for long.
const BATCH: usize = 16 << 10;

/// What the kernel says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageState {
    /// In memory of this node.
    On(NodeId),
    /// Nothing there: never touched, given back, or swapped out (-ENOENT).
    Absent,
    /// No such mapping, or the kernel's shared page of zeroes, which belongs to no process (-EFAULT).
    Unmapped,
    /// It stays where it is: shared by processes, and the caller may not move such pages (-EACCES).
    Shared,
    /// It stays where it is for now: in use by a device or the kernel (-EBUSY).
    Busy,
    /// Another answer, as a negated errno.
    Other(i32),
}

impl PageState {
    fn of_status(status: i32) -> PageState {
        match (u16::try_from(status), -status) {
            (Ok(node), _) => PageState::On(NodeId(node)),
            (_, libc::ENOENT) => PageState::Absent,
            (_, libc::EFAULT) => PageState::Unmapped,
            (_, libc::EACCES) => PageState::Shared,
            (_, libc::EBUSY) => PageState::Busy,
            _ => PageState::Other(status),
        }
    }

    /// The node, if the page is in memory.
    #[must_use]
    pub fn node(self) -> Option<NodeId> {
        match self {
            PageState::On(node) => Some(node),
            _ => None,
        }
    }
}

/// Asks for (and one day orders) the places of pages; holds the buffers that the calls need.
#[derive(Debug, Default)]
pub struct PageQuery {
    pages: Vec<usize>,
    status: Vec<libc::c_int>,
}

impl PageQuery {
    /// A query with empty buffers, which later calls reuse.
    #[must_use]
    pub fn new() -> PageQuery {
        PageQuery::default()
    }

    /// Appends to `out` the state of the page at each of `addresses` in process `pid` (0: this one), in their order. Nothing moves.
    ///
    /// # Errors
    /// The process has ended, may not be looked into, or the kernel has no NUMA support. `out` is then as it was.
    pub fn states(&mut self, pid: Pid, addresses: &[u64], out: &mut Vec<PageState>) -> Result<(), KernelError> {
        let before = out.len();
        for part in addresses.chunks(BATCH) {
            if let Err(error) = self.part(pid, part, out) {
                out.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }

    fn part(&mut self, pid: Pid, addresses: &[u64], out: &mut Vec<PageState>) -> Result<(), KernelError> {
        self.pages.clear();
        self.pages.extend(addresses.iter().map(|&address| address as usize));
        self.status.clear();
        self.status.resize(addresses.len(), -libc::ENOENT);
        move_pages(pid, &self.pages, None, &mut self.status, 0)
            .map_err(|source| KernelError::of_call("move_pages", pid, source))?;
        out.extend(self.status.iter().map(|&status| PageState::of_status(status)));
        Ok(())
    }
}

/// `move_pages(2)` on pages of a process (0: this one), by their addresses: to the node that `nodes` has for each, or, without, where each lies. The statuses
/// are per page; the result is the number of pages that were not moved. The kernel answers EINVAL for a task that has no memory (`find_mm_struct` in
/// `mm/migrate.c`): the first thread has ended before others, which have it still, or the whole process is ending. The latter is ESRCH here, as it is a moment
/// later.
pub(crate) fn move_pages(
    pid: Pid,
    pages: &[usize],
    nodes: Option<&[libc::c_int]>,
    status: &mut [libc::c_int],
    flags: libc::c_int,
) -> io::Result<libc::c_long> {
    assert!(
        status.len() == pages.len() && nodes.is_none_or(|nodes| nodes.len() == pages.len()),
        "an element for each page"
    );
    if numapilot_host::is_locked(pid) {
        return Err(numapilot_host::locked_error());
    }
    let nodes = nodes.map_or(std::ptr::null(), <[libc::c_int]>::as_ptr);
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let mut answer = |task: Tid| -> io::Result<libc::c_long> {
        let task = libc::pid_t::try_from(task.0).map_err(|_| gone())?;
        let (count, addresses) = (pages.len() as libc::c_ulong, pages.as_ptr());
        // SAFETY: the arrays have as many elements as the call is told, and live through it; the addresses are the other process's and are not followed
        // here. Without nodes nothing moves, and moving a page keeps its contents.
        let result =
            unsafe { libc::syscall(libc::SYS_move_pages, task, count, addresses, nodes, status.as_mut_ptr(), flags) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    };
    let has_no_memory = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match answer(Tid::first_of(pid)) {
        // Where others end meanwhile, too, it is the whole process that ends.
        Err(error) if has_no_memory(&error) => answer(stand_in(Path::new("/"), pid).ok_or_else(gone)?)
            .map_err(|error| if has_no_memory(&error) { gone() } else { error }),
        other => other,
    }
}

/// Mode of a memory policy (`MPOL_*` in `linux/mempolicy.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyMode {
    /// On the node of the CPU that touches first.
    Default,
    /// On one node while it has room.
    Preferred,
    /// On the policy's nodes only (`MPOL_BIND`).
    Bind,
    /// Round robin.
    Interleave,
    /// On the node of the CPU that first touches the page, set explicitly.
    Local,
    /// On these nodes while they have room (Linux 5.15).
    PreferredMany,
    /// Round robin by weights (Linux 6.9).
    WeightedInterleave,
    /// One that is not known here.
    Other(i32),
}

/// A memory policy of this thread, or of a mapping of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The policy's mode.
    pub mode: PolicyMode,
    /// Nodes that the policy names, ascending.
    pub nodes: Vec<NodeId>,
}

/// Words of a node mask: the kernel's largest (CONFIG_NODES_SHIFT 10).
const MASK_WORDS: usize = 1024 / 64;

/// The policy of this thread (`None`), or that of the memory at an address of this process.
///
/// # Errors
/// There is no memory at that address, or the kernel has no NUMA support.
pub fn policy(address: Option<VirtAddr>) -> Result<Policy, KernelError> {
    const MPOL_F_ADDR: libc::c_ulong = 2;
    const MODE_FLAGS: i32 = 0xe000;
    let mut mode: libc::c_int = 0;
    let mut mask = [0_u64; MASK_WORDS];
    let flags = if address.is_some() { MPOL_F_ADDR } else { 0 };
    // SAFETY: the mask has as many bits as the call is told; the address is only looked up.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            (MASK_WORDS * 64) as libc::c_ulong,
            address.map_or(0, |address| address.0),
            flags,
        )
    };
    if result < 0 {
        return Err(KernelError::of_call("get_mempolicy", Pid::own(), io::Error::last_os_error()));
    }
    let mode = match mode & !MODE_FLAGS {
        0 => PolicyMode::Default,
        1 => PolicyMode::Preferred,
        2 => PolicyMode::Bind,
        3 => PolicyMode::Interleave,
        4 => PolicyMode::Local,
        5 => PolicyMode::PreferredMany,
        6 => PolicyMode::WeightedInterleave,
        other => PolicyMode::Other(other),
    };
    let is_set = |node: &u16| mask[usize::from(*node) / 64] >> (*node % 64) & 1 != 0;
    Ok(Policy { mode, nodes: (0..(MASK_WORDS * 64) as u16).filter(is_set).map(NodeId).collect() })
}

#[cfg(test)]
mod tests {
    //! Pages of this process, and answers that the kernel gives.

    use super::*;

    /// The call waits for the lock of the address space, and nothing ends it.
    #[test]
    fn a_process_that_does_not_answer_is_not_asked() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let ask = || PageQuery::new().states(Pid::of_child(&child), &[0x1000], &mut Vec::new());
        let locked = numapilot_host::locked_for_test(Pid::of_child(&child));
        let map = crate::pagemap::PageMap::open(Pid::of_child(&child)).unwrap().read(0, 1, &mut Vec::new());
        let (asked, read) = (ask(), crate::maps::read(Pid::of_child(&child), "maps", &mut Vec::new()));
        drop(locked);
        let later = ask();
        child.kill().unwrap();
        child.wait().unwrap();
        for answer in [asked, read, map] {
            assert!(answer.as_ref().is_err_and(KernelError::is_unanswered), "{answer:?}");
        }
        assert!(later.as_ref().err().is_none_or(|error| !error.is_unanswered()), "{later:?}");
    }

    #[test]
    fn touched_pages_are_on_a_node_and_others_are_not() {
        const PAGES: usize = 40_000;
        let bytes = PAGES * 4096;
        // SAFETY: a fresh private mapping; every second page of it is written, and it is unmapped at the end.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: as above.
        unsafe {
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            for page in (0..PAGES).step_by(2) {
                base.cast::<u8>().add(page * 4096).write_volatile(1);
            }
        }
        let addresses: Vec<u64> = (0..PAGES as u64).map(|page| base as u64 + page * 4096).collect();
        let mut states = Vec::new();
        let answer = PageQuery::new().states(Pid::CALLING, &addresses, &mut states);
        // SAFETY: as above.
        unsafe { libc::munmap(base, bytes) };
        if let Err(KernelError::Unavailable { .. }) = answer {
            return numapilot_not_run::not_run!(MovePages, "{answer:?}");
        }
        answer.unwrap();
        assert_eq!(states.len(), PAGES);
        for (page, state) in states.iter().enumerate() {
            assert_eq!(state.node().is_some(), page % 2 == 0, "page {page}: {state:?}");
        }
    }

    #[test]
    fn answers_have_names_and_the_dead_are_gone() {
        assert_eq!(PageState::of_status(3), PageState::On(NodeId(3)));
        assert_eq!(PageState::of_status(-libc::ENOENT), PageState::Absent);
        assert_eq!(PageState::of_status(-libc::EBUSY), PageState::Busy);
        assert_eq!(PageState::of_status(-libc::EIO), PageState::Other(-libc::EIO));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let mut out = vec![PageState::Absent];
        let answer = PageQuery::new().states(Pid::of_child(&child), &[4096], &mut out);
        assert!(matches!(answer, Err(KernelError::Gone { .. } | KernelError::Unavailable { .. })), "{answer:?}");
        assert_eq!(out.len(), 1);
    }

    /// A process that has ended and that nobody has waited for has no memory: the kernel answers EINVAL, which was taken for a failure.
    #[test]
    fn who_is_ending_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let begun = std::time::Instant::now();
        while crate::task::stat(pid).unwrap().state != b'Z' {
            assert!(begun.elapsed().as_secs() < 60, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let answer = PageQuery::new().states(pid, &[4096], &mut Vec::new());
        child.wait().unwrap();
        assert!(matches!(answer, Err(KernelError::Gone { .. } | KernelError::Unavailable { .. })), "{answer:?}");
    }

    #[test]
    fn this_thread_has_a_policy() {
        match policy(None) {
            Ok(policy) => assert!(!matches!(policy.mode, PolicyMode::Other(_)), "{policy:?}"),
            Err(error) => numapilot_not_run::not_run!(BoundMemory, "{error}"),
        }
        assert!(policy(Some(VirtAddr(0))).is_err());
    }
}
