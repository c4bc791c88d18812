//! `move_pages(2)` itself.

use std::io;

use numapilot_host::Pid;
use numapilot_machine::NodeId;

use super::interpret::Batch;
use super::interpret::CallEnd;
use super::interpret::Calls;
use crate::error::KernelError;
use crate::memory::PageQuery;
use crate::memory::PageState;
use crate::memory::move_pages;

/// Only pages that the process alone maps, and all.
const MPOL_MF_MOVE: libc::c_int = 2;
const MPOL_MF_MOVE_ALL: libc::c_int = 4;

/// The running kernel, with the buffers that its calls take.
#[derive(Debug, Default)]
pub(super) struct System {
    shared: bool,
    query: PageQuery,
    pages: Vec<usize>,
    nodes: Vec<libc::c_int>,
}

impl System {
    /// `shared`: pages that other processes map too are moved as well.
    pub fn new(shared: bool) -> System {
        System { shared, ..System::default() }
    }
}

impl Calls for System {
    fn query(&mut self, pid: Pid, addresses: &[u64]) -> Result<Vec<PageState>, KernelError> {
        let mut out = Vec::with_capacity(addresses.len());
        self.query.states(pid, addresses, &mut out)?;
        Ok(out)
    }

    fn move_to(&mut self, batch: &Batch<'_>, status: &mut [i32]) -> Result<CallEnd, KernelError> {
        self.pages.clear();
        self.pages.extend(batch.addresses.iter().map(|&address| address as usize));
        self.nodes.clear();
        self.nodes.resize(batch.addresses.len(), libc::c_int::from(batch.to.0));
        let flags = if self.shared { MPOL_MF_MOVE_ALL } else { MPOL_MF_MOVE };
        match move_pages(batch.pid, &self.pages, Some(&self.nodes), status, flags) {
            Ok(0) => Ok(CallEnd::Complete),
            Ok(_) => Ok(CallEnd::Partial),
            Err(source) => refused(batch.pid, batch.to, source),
        }
    }
}

fn refused(pid: Pid, to: NodeId, source: io::Error) -> Result<CallEnd, KernelError> {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => Ok(CallEnd::NoMemory),
        Some(libc::EACCES) => Err(KernelError::ForbiddenNode { pid, node: to }),
        Some(libc::ENODEV) => Err(KernelError::NoMemoryNode { node: to }),
        Some(libc::EPERM) => Err(KernelError::MayNotMove { pid, source }),
        _ => Err(KernelError::of_call("move_pages", pid, source)),
    }
}
