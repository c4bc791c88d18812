//! Objects, sites, threads and processes, as sequences of rows that refer to the trace in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use numapilot_flows::{Filter, Location, Object, Process, Site, SiteId, Thread};
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex};
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use crate::flow::PyFlow;
use crate::opened::Opened;

/// Which kind of rows a sequence has.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    Objects,
    Sites,
    Threads,
    Processes,
}

/// A sequence of rows, by number.
#[pyclass(name = "Rows", module = "numapilot", frozen, sequence)]
pub struct PyRows {
    pub opened: Arc<Opened>,
    pub rows: Rows,
}

impl PyRows {
    fn len(&self) -> usize {
        match self.rows {
            Rows::Objects => self.opened.objects().len(),
            Rows::Sites => self.opened.sites().len(),
            Rows::Threads => self.opened.threads().len(),
            Rows::Processes => self.opened.processes().len(),
        }
    }

    /// The row, whose number is below [`PyRows::len`].
    fn row<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let opened = self.opened.clone();
        Ok(match self.rows {
            Rows::Objects => Bound::new(py, PyObject { opened, index })?.into_any(),
            Rows::Sites => Bound::new(py, PySite { opened, index })?.into_any(),
            Rows::Threads => Bound::new(py, PyThread { opened, index })?.into_any(),
            Rows::Processes => Bound::new(py, PyProcess { opened, index })?.into_any(),
        })
    }
}

#[pymethods]
impl PyRows {
    fn __len__(&self) -> usize {
        self.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.len() as isize;
        if let Ok(slice) = key.cast::<PySlice>() {
            let at = slice.indices(count)?;
            let indexes = (0..at.slicelength as isize).map(|step| (at.start + step * at.step) as usize);
            let rows = indexes.map(|index| self.row(py, index)).collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, rows)?.into_any());
        }
        let beyond = || PyIndexError::new_err(format!("there are {count} rows"));
        let index = match key.extract::<isize>() {
            Err(why) if why.is_instance_of::<PyOverflowError>(py) => return Err(beyond()),
            index => index?,
        };
        let index = if index < 0 { index + count } else { index };
        if !(0..count).contains(&index) {
            return Err(beyond());
        }
        self.row(py, index as usize)
    }

    fn __iter__(this: Py<Self>) -> PyRowsIterator {
        PyRowsIterator { rows: this, next: AtomicUsize::new(0) }
    }

    fn __repr__(&self) -> String {
        let what = match self.rows {
            Rows::Objects => "objects",
            Rows::Sites => "sites",
            Rows::Threads => "threads",
            Rows::Processes => "processes",
        };
        format!("<{} {what} of {}>", self.len(), self.opened.path.display())
    }
}

/// Iterator over a sequence of rows.
#[pyclass(name = "RowsIterator", module = "numapilot", frozen)]
pub struct PyRowsIterator {
    rows: Py<PyRows>,
    next: AtomicUsize,
}

#[pymethods]
impl PyRowsIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = self.rows.get();
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= rows.len() {
            // Stays at the end, however often it is asked.
            self.next.store(rows.len(), Ordering::Relaxed);
            return Ok(None);
        }
        rows.row(py, index).map(Some)
    }
}

/// An object instance.
#[pyclass(name = "Object", module = "numapilot", frozen)]
pub struct PyObject {
    opened: Arc<Opened>,
    index: usize,
}

impl PyObject {
    fn get(&self) -> &Object {
        &self.opened.objects()[self.index]
    }

    fn site_row(&self) -> Site {
        self.opened.site(self.get().site).cloned().unwrap_or_default()
    }
}

#[pymethods]
impl PyObject {
    #[getter]
    fn number(&self) -> usize {
        self.index
    }
    #[getter]
    fn site(&self) -> u32 {
        self.get().site.0
    }
    #[getter]
    fn kind(&self) -> &'static str {
        self.opened.kind_of(Some(self.get().id)).word()
    }
    #[getter]
    fn name(&self) -> String {
        self.site_row().name.to_string()
    }
    #[getter]
    fn function(&self) -> String {
        self.site_row().function.to_string()
    }
    #[getter]
    fn file(&self) -> String {
        self.site_row().file.to_string()
    }
    #[getter]
    fn line(&self) -> u32 {
        self.site_row().line
    }
    #[getter]
    fn module(&self) -> String {
        self.site_row().module.to_string()
    }
    #[getter]
    fn address(&self) -> u64 {
        self.get().address.0
    }
    #[getter]
    fn bytes(&self) -> u64 {
        self.get().bytes
    }
    #[getter]
    fn process(&self) -> u32 {
        self.get().process.0
    }
    #[getter]
    fn thread(&self) -> Option<u32> {
        self.get().thread.map(|thread| thread.0)
    }
    #[getter]
    fn cpu(&self) -> Option<u32> {
        self.get().cpu.map(|cpu| cpu.0)
    }
    #[getter]
    fn node(&self) -> Option<u16> {
        self.get().node.map(|node| node.0)
    }
    #[getter]
    fn birth_ns(&self) -> u64 {
        self.get().birth.0
    }
    #[getter]
    fn death_ns(&self) -> Option<u64> {
        self.get().death.map(|time| time.0)
    }
    #[getter]
    fn stack(&self) -> u32 {
        self.get().stack.0
    }

    /// The object's accesses in order of program time: its Object Event Flow.
    fn flow(&self) -> PyFlow {
        let filter = Filter { object: Some(ObjectId(self.index as u32)), ..Filter::default() };
        PyFlow::new(self.opened.clone(), filter)
    }

    /// Number of sampled accesses to the object.
    fn __len__(&self) -> usize {
        self.opened.oef(ObjectId(self.index as u32)).len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let site = self.site_row();
        format!("<Object {}: {} ({}), {} bytes>", self.index, site.name, site.place(), self.get().bytes)
    }
}

/// A site (object type): what the objects from one place in the source share.
#[pyclass(name = "Site", module = "numapilot", frozen)]
pub struct PySite {
    opened: Arc<Opened>,
    index: usize,
}

impl PySite {
    fn get(&self) -> &Site {
        &self.opened.sites()[self.index]
    }
}

#[pymethods]
impl PySite {
    #[getter]
    fn number(&self) -> usize {
        self.index
    }
    #[getter]
    fn kind(&self) -> &'static str {
        self.get().kind.word()
    }
    #[getter]
    fn name(&self) -> &str {
        &self.get().name
    }
    #[getter]
    fn function(&self) -> &str {
        &self.get().function
    }
    #[getter]
    fn file(&self) -> &str {
        &self.get().file
    }
    #[getter]
    fn line(&self) -> u32 {
        self.get().line
    }
    #[getter]
    fn module(&self) -> &str {
        &self.get().module
    }

    /// The accesses to all its instances, in order of program time.
    fn flow(&self) -> PyFlow {
        let filter = Filter { site: Some(SiteId(self.index as u32)), ..Filter::default() };
        PyFlow::new(self.opened.clone(), filter)
    }

    fn __repr__(&self) -> String {
        let site = self.get();
        format!("<Site {}: {} ({}), {}>", self.index, site.name, site.place(), site.kind.word())
    }
}

/// A thread.
#[pyclass(name = "Thread", module = "numapilot", frozen)]
pub struct PyThread {
    opened: Arc<Opened>,
    index: usize,
}

impl PyThread {
    fn get(&self) -> &Thread {
        &self.opened.threads()[self.index]
    }
}

#[pymethods]
impl PyThread {
    #[getter]
    fn number(&self) -> usize {
        self.index
    }
    #[getter]
    fn process(&self) -> u32 {
        self.get().process.0
    }
    #[getter]
    fn tid(&self) -> u32 {
        self.get().tid.0
    }
    #[getter]
    fn name(&self) -> &str {
        &self.get().name
    }
    #[getter]
    fn start_function(&self) -> &str {
        &self.get().start_function
    }
    #[getter]
    fn parent(&self) -> Option<u32> {
        self.get().parent.map(|parent| parent.0)
    }
    #[getter]
    fn cpu(&self) -> Option<u32> {
        self.get().cpu.map(|cpu| cpu.0)
    }
    #[getter]
    fn node(&self) -> Option<u16> {
        self.get().node.map(|node| node.0)
    }
    #[getter]
    fn start_ns(&self) -> u64 {
        self.get().start.0
    }
    #[getter]
    fn end_ns(&self) -> Option<u64> {
        self.get().end.map(|time| time.0)
    }
    #[getter]
    fn stack_object(&self) -> Option<u32> {
        self.get().stack_object.map(|object| object.0)
    }
    /// Number of all its memory accesses, whether sampled or not; None if the engine does not count.
    #[getter]
    fn memory_accesses(&self) -> Option<u64> {
        self.get().counters.as_ref().map(|counters| counters.memory_accesses)
    }

    /// The thread's accesses in order of program time: its Thread Event Flow.
    fn flow(&self) -> PyFlow {
        let filter = Filter { thread: Some(ThreadIndex(self.index as u32)), ..Filter::default() };
        PyFlow::new(self.opened.clone(), filter)
    }

    /// Number of sampled accesses of the thread.
    fn __len__(&self) -> usize {
        self.opened.tef(ThreadIndex(self.index as u32)).len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let thread = self.get();
        let name = if thread.name.is_empty() { &thread.start_function } else { &thread.name };
        format!("<Thread {}: {name}, tid {}>", self.index, thread.tid)
    }
}

/// A process image.
#[pyclass(name = "Process", module = "numapilot", frozen)]
pub struct PyProcess {
    opened: Arc<Opened>,
    index: usize,
}

impl PyProcess {
    fn get(&self) -> &Process {
        &self.opened.processes()[self.index]
    }
}

#[pymethods]
impl PyProcess {
    #[getter]
    fn number(&self) -> usize {
        self.index
    }
    #[getter]
    fn pid(&self) -> u32 {
        self.get().pid.0
    }
    #[getter]
    fn parent(&self) -> Option<u32> {
        self.get().parent.map(|parent| parent.0)
    }
    #[getter]
    fn exe(&self) -> &str {
        &self.get().exe
    }
    #[getter]
    fn arguments(&self) -> Vec<String> {
        self.get().arguments.clone()
    }
    #[getter]
    fn start_ns(&self) -> u64 {
        self.get().start.0
    }
    #[getter]
    fn end_ns(&self) -> Option<u64> {
        self.get().end.map(|time| time.0)
    }

    /// The accesses of all its threads, in order of program time.
    fn flow(&self) -> PyFlow {
        let filter = Filter { process: Some(ProcessIndex(self.index as u32)), ..Filter::default() };
        PyFlow::new(self.opened.clone(), filter)
    }

    fn __repr__(&self) -> String {
        format!("<Process {}: {}, pid {}>", self.index, self.get().exe, self.get().pid)
    }
}

/// A function at a code address.
#[pyclass(name = "Frame", module = "numapilot", frozen, get_all)]
pub struct PyFrame {
    function: String,
    file: String,
    line: u32,
    is_inlined: bool,
    module: String,
}

impl PyFrame {
    /// The functions at a location, the innermost inlined one first.
    pub fn all_at(location: &Location) -> impl Iterator<Item = PyFrame> + '_ {
        location.frames.iter().map(|frame| PyFrame {
            function: frame.function.to_string(),
            file: frame.file.to_string(),
            line: frame.line,
            is_inlined: frame.inlined,
            module: location.module.to_string(),
        })
    }
}

#[pymethods]
impl PyFrame {
    fn __repr__(&self) -> String {
        format!("<Frame {} ({}:{})>", self.function, self.file, self.line)
    }
}
