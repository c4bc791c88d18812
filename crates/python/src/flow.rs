//! Flows: iterators over accesses in order of program time, which are fetched in batches.

use std::sync::{Arc, Mutex, TryLockError};

use numapilot_flows::{AccessRef, Cursor, Filter};
use pyo3::prelude::*;

use crate::ffi::{Code, detached, error};
use crate::opened::Opened;

/// Accesses that are fetched at a time, without the GIL.
const BATCH: usize = 4096;

/// One sampled access.
#[pyclass(name = "Access", module = "numapilot", frozen)]
pub struct PyAccess {
    access: AccessRef,
}

#[pymethods]
impl PyAccess {
    #[getter]
    fn row(&self) -> u32 {
        self.access.row
    }
    #[getter]
    fn time_ns(&self) -> u64 {
        self.access.time.0
    }
    #[getter]
    fn thread(&self) -> u32 {
        self.access.thread.0
    }
    #[getter]
    fn object(&self) -> Option<u32> {
        self.access.object.map(|object| object.0)
    }
    #[getter]
    fn address(&self) -> u64 {
        self.access.address.0
    }
    #[getter]
    fn cpu(&self) -> Option<u32> {
        self.access.cpu.map(|cpu| cpu.0)
    }
    #[getter]
    fn node(&self) -> Option<u16> {
        self.access.node.map(|node| node.0)
    }
    #[getter]
    fn home(&self) -> Option<u16> {
        self.access.home.map(|home| home.0)
    }
    /// Whether node and home differ; None if node or home is unknown.
    #[getter]
    fn is_remote(&self) -> Option<bool> {
        self.access.is_remote()
    }
    #[getter]
    fn is_write(&self) -> bool {
        self.access.is_write
    }
    #[getter]
    fn is_atomic(&self) -> bool {
        self.access.is_atomic
    }
    #[getter]
    fn is_range(&self) -> bool {
        self.access.is_range
    }
    /// False if one of the core's own caches served it, so that it is not a memory access.
    #[getter]
    fn is_memory_access(&self) -> bool {
        self.access.is_memory_access()
    }
    #[getter]
    fn level(&self) -> u8 {
        self.access.level as u8
    }
    #[getter]
    fn latency_cycles(&self) -> Option<u32> {
        self.access.latency_cycles
    }
    #[getter]
    fn location(&self) -> u32 {
        self.access.location.0
    }
    #[getter]
    fn stack(&self) -> u32 {
        self.access.stack.0
    }
    /// Number of memory accesses that the sample represents.
    #[getter]
    fn weight(&self) -> u32 {
        self.access.weight
    }

    fn __repr__(&self) -> String {
        let a = &self.access;
        let node =
            |node: Option<numapilot_machine::NodeId>| node.map_or_else(|| "?".to_owned(), |node| node.to_string());
        let object = a.object.map_or_else(|| "?".to_owned(), |object| object.0.to_string());
        let what = if a.is_write { "write" } else { "read" };
        let (time, thread, here, home) = (a.time.0, a.thread.0, node(a.node), node(a.home));
        format!(
            "<Access {}: {time} ns, thread {thread} on node {here}, {what} of object {object} on node {home}, weight {}>",
            a.row, a.weight
        )
    }
}

struct Walk {
    cursor: Cursor,
    batch: std::vec::IntoIter<AccessRef>,
}

/// A flow: an iterator over accesses. One thread at a time may advance it.
#[pyclass(name = "Flow", module = "numapilot", frozen)]
pub struct PyFlow {
    opened: Arc<Opened>,
    filter: Filter,
    walk: Mutex<Walk>,
}

impl PyFlow {
    pub fn new(opened: Arc<Opened>, filter: Filter) -> PyFlow {
        let walk = Mutex::new(Walk { cursor: Cursor::new(filter.clone()), batch: Vec::new().into_iter() });
        PyFlow { opened, filter, walk }
    }
}

#[pymethods]
impl PyFlow {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyAccess>> {
        // Tried, not waited for: whoever has it may be without Python's lock.
        let mut walk = match self.walk.try_lock() {
            Ok(walk) => walk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(error(Code::Busy, "another thread is using this flow; open one for each thread"));
            }
        };
        if let Some(access) = walk.batch.next() {
            return Ok(Some(PyAccess { access }));
        }
        let walk = &mut *walk;
        walk.batch = detached(py, || {
            let mut batch = Vec::with_capacity(BATCH);
            walk.cursor.walk(&self.opened, |access| {
                batch.push(access);
                batch.len() < BATCH
            });
            batch.into_iter()
        })?;
        Ok(walk.batch.next().map(|access| PyAccess { access }))
    }

    /// Number of accesses in the whole flow, counted without making Python objects.
    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        detached(py, || self.opened.filtered(&self.filter).count())
    }

    fn __repr__(&self) -> String {
        format!("<numapilot.Flow of {}>", self.opened.path.display())
    }
}
