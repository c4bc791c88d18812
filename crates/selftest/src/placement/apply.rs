//! Applies a policy to a fresh mapping of this process: a new thread sets the policy, touches the pages, and asks the kernel for their nodes.

use std::collections::BTreeMap;
use std::io;

use numapilot_apply::{MemoryPolicy, ProcessPolicy, apply_here};
use numapilot_kernel::KernelError;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::task::Pid;
use numapilot_machine::NodeId;
use thiserror::Error;

use super::{PAGES, Policy};

/// Why a policy could not be tried: a limit of this machine's kernel or of this process's rights, not an error of the policy.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The kernel refused the policy.
    #[error(transparent)]
    Refused(#[from] numapilot_apply::ApplyError),
    /// The kernel does not say where pages are.
    #[error(transparent)]
    Unanswered(#[from] KernelError),
    /// Memory could not be mapped.
    #[error("cannot map {bytes} bytes of memory ({error}); free some memory")]
    NoMemory {
        /// Size of the mapping in bytes.
        bytes: usize,
        /// The system's error.
        error: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread ({0}); raise `ulimit -u`")]
    NoThread(io::Error),
}

/// Applies it to [`PAGES`] fresh pages, touches them, and counts them by node; `None`: in no node's memory.
///
/// # Errors
/// The kernel refuses, or does not answer.
pub fn pages_under(policy: &Policy) -> Result<BTreeMap<Option<NodeId>, usize>, ApplyError> {
    let policy = match policy {
        Policy::Bind(bound) => {
            let memory = MemoryPolicy::Bind { nodes: vec![*bound], balancing: false };
            ProcessPolicy { memory: Some(memory), cpus: None }
        }
        Policy::Interleave(nodes) => {
            ProcessPolicy { memory: Some(MemoryPolicy::Interleave(nodes.clone())), cpus: None }
        }
        Policy::FirstTouch(cpu, _) => ProcessPolicy { memory: Some(MemoryPolicy::Local), cpus: Some(vec![*cpu]) },
    };
    // Policies and CPUs are a thread's: they end with it, and nothing else here has them.
    let thread = std::thread::Builder::new().spawn(move || {
        apply_here(&policy)?;
        let pages = FreshPages::map()?;
        pages.touch();
        let mut states = Vec::with_capacity(PAGES);
        PageQuery::new().states(Pid::CALLING, &pages.addresses(), &mut states)?;
        let mut found = BTreeMap::new();
        states.iter().for_each(|state| *found.entry(state.node()).or_insert(0) += 1);
        Ok(found)
    });
    thread.map_err(ApplyError::NoThread)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Untouched pages; unmapped when dropped.
struct FreshPages {
    base: *mut libc::c_void,
    page_bytes: usize,
}

impl FreshPages {
    fn map() -> Result<FreshPages, ApplyError> {
        let page_bytes = numapilot_kernel::actuator::page_bytes() as usize;
        let bytes = PAGES * page_bytes;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh private mapping, owned by the value made below.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(ApplyError::NoMemory { bytes, error: io::Error::last_os_error() });
        }
        // Page by page is how policies deal: a large page would take one turn for all of its parts.
        // SAFETY: the mapping just made; a hint that a kernel without large pages refuses, which changes nothing.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(FreshPages { base, page_bytes })
    }

    fn touch(&self) {
        for page in 0..PAGES {
            // SAFETY: within the mapping, which only this thread has.
            unsafe { self.base.cast::<u8>().add(page * self.page_bytes).write_volatile(1) };
        }
    }

    fn addresses(&self) -> Vec<u64> {
        (0..PAGES).map(|page| (self.base as usize + page * self.page_bytes) as u64).collect()
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nobody else's.
        unsafe { libc::munmap(self.base, PAGES * self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_pages_of_this_process_are_where_they_were_bound() {
        let permit = numapilot_measure::Permit::of_this_process();
        let node = *permit.memory_nodes.iter().next().expect("a node");
        match pages_under(&Policy::Bind(node)) {
            Ok(found) => assert_eq!(found, [(Some(node), PAGES)].into()),
            Err(error) => numapilot_not_run::not_run!(BoundMemory, "{error}"),
        }
        assert!(pages_under(&Policy::Bind(NodeId(1023))).is_err(), "a node that is not there");
    }
}
