//! Python's `Trace`: opening, closing, and all queries on a trace.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numapilot_flows::{Filter, LocationId};
use numapilot_trace::ids::StackId;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ffi::{Code, closed, detached, error, flow_error};
use crate::figures::{self, PyStatistics};
use crate::filter::{filter_of, row};
use crate::flow::PyFlow;
use crate::machine::PyMachine;
use crate::opened::Opened;
use crate::predict;
use crate::rows::{PyFrame, PyRows, Rows};
use crate::shown::{PyDocument, PyPicture, as_python};
use crate::table::{PyTable, Source};

/// Opens a trace: the folder that `numapilot record` wrote. If its recorder was killed, this first writes the tables into the folder.
#[pyfunction]
pub fn open(py: Python<'_>, path: PathBuf) -> PyResult<PyTrace> {
    let opened = detached(py, || Opened::open(&path))?.map_err(|found| flow_error(&path, &found))?;
    Ok(PyTrace { held: Mutex::new(Some(Arc::new(opened))) })
}

/// An open trace.
#[pyclass(name = "Trace", module = "numapilot", frozen, weakref)]
pub struct PyTrace {
    held: Mutex<Option<Arc<Opened>>>,
}

impl PyTrace {
    fn opened(&self) -> PyResult<Arc<Opened>> {
        // Only threads that hold the GIL take this lock, and only while they copy a pointer: so no thread waits, and it is free at every fork.
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)
    }

    fn rows(&self, rows: Rows) -> PyResult<PyRows> {
        Ok(PyRows { opened: self.opened()?, rows })
    }
}

#[pymethods]
impl PyTrace {
    /// Closes the trace. Objects, flows and streams of it keep the data that they need, and still work.
    fn close(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.opened().is_err()
    }

    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        Ok(self.opened()?.path.clone())
    }

    /// The content of meta.json: facts about the whole recording.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, self.opened()?.meta())
    }

    #[getter]
    fn losses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, self.opened()?.losses())
    }

    #[getter]
    fn engine(&self) -> PyResult<String> {
        Ok(self.opened()?.meta().engine.name().to_owned())
    }

    /// What the samples are evidence of: "accesses", "page-faults" or "none". If not "accesses", no figure about accesses is known.
    #[getter]
    fn evidence(&self) -> PyResult<&'static str> {
        Ok(self.opened()?.evidence().name())
    }

    #[getter]
    fn command(&self) -> PyResult<Vec<String>> {
        Ok(self.opened()?.meta().command.clone())
    }

    #[getter]
    fn is_simulated(&self) -> PyResult<bool> {
        Ok(self.opened()?.meta().simulated)
    }

    #[getter]
    fn duration_ns(&self) -> PyResult<u64> {
        Ok(self.opened()?.meta().duration_ns)
    }

    #[getter]
    fn line_sampling(&self) -> PyResult<u64> {
        Ok(self.opened()?.line_sampling())
    }

    #[getter]
    fn nodes(&self) -> PyResult<Vec<u16>> {
        let opened = self.opened()?;
        let analysis = opened.analysis(Filter::default());
        Ok(analysis.nodes().iter().map(|node| node.0).collect())
    }

    #[getter]
    fn machine(&self) -> PyResult<Option<PyMachine>> {
        Ok(self.opened()?.machine.clone().map(PyMachine::new))
    }

    /// Number of sampled accesses.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.opened()?.accesses().len())
    }

    /// Always true, even for a trace without accesses.
    fn __bool__(&self) -> bool {
        true
    }

    #[getter]
    fn objects(&self) -> PyResult<PyRows> {
        self.rows(Rows::Objects)
    }

    #[getter]
    fn sites(&self) -> PyResult<PyRows> {
        self.rows(Rows::Sites)
    }

    #[getter]
    fn threads(&self) -> PyResult<PyRows> {
        self.rows(Rows::Threads)
    }

    #[getter]
    fn processes(&self) -> PyResult<PyRows> {
        self.rows(Rows::Processes)
    }

    /// A call stack's functions, innermost first, inlined ones before those that they were inlined into.
    fn stack(&self, number: &Bound<'_, PyAny>) -> PyResult<Vec<PyFrame>> {
        let opened = self.opened()?;
        let stack = StackId(row("stack", number, opened.stack_count())?);
        let locations = opened.stack(stack).iter();
        Ok(locations.flat_map(|&location| PyFrame::all_at(opened.location(location))).collect())
    }

    /// The functions at a code address.
    fn location(&self, number: &Bound<'_, PyAny>) -> PyResult<Vec<PyFrame>> {
        let opened = self.opened()?;
        let location = LocationId(row("location", number, opened.locations().len())?);
        Ok(PyFrame::all_at(opened.location(location)).collect())
    }

    /// The accesses that pass the filter, in order of program time.
    #[pyo3(signature = (**filter))]
    fn flow(&self, filter: Option<&Bound<'_, PyDict>>) -> PyResult<PyFlow> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        Ok(PyFlow::new(opened, filter))
    }

    /// The accesses that pass the filter, in bulk, as an Arrow stream.
    #[pyo3(signature = (columns = None, **filter))]
    fn accesses(&self, columns: Option<Vec<String>>, filter: Option<&Bound<'_, PyDict>>) -> PyResult<PyTable> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        PyTable::new(Source::Accesses { opened, filter, columns })
    }

    /// A table of the trace as stored on disk, as an Arrow stream.
    fn table(&self, name: String) -> PyResult<PyTable> {
        let folder = self.opened()?.path.clone();
        PyTable::new(Source::Table { folder, name })
    }

    /// Figures over the accesses that pass the filter, with their 95 % intervals.
    #[pyo3(signature = (**filter))]
    fn statistics(&self, py: Python<'_>, filter: Option<&Bound<'_, PyDict>>) -> PyResult<PyStatistics> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        detached(py, || figures::statistics(&opened, &filter))
    }

    /// The report: what `numapilot report --json` prints.
    #[pyo3(signature = (top = 20, **filter))]
    fn report(&self, py: Python<'_>, top: usize, filter: Option<&Bound<'_, PyDict>>) -> PyResult<PyDocument> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        detached(py, || figures::report(&opened, filter, top))
    }

    /// One object in detail (a name, "S3" for a site, "17" for an instance), as `numapilot report --object NAME --json` prints it.
    #[pyo3(signature = (name, **filter))]
    fn detail(&self, py: Python<'_>, name: &str, filter: Option<&Bound<'_, PyDict>>) -> PyResult<PyDocument> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        let named = opened.named(name)?;
        detached(py, || figures::detail(&opened, filter, &named))?
            .ok_or_else(|| error(Code::NotFound, format!("{name:?}: no sampled access to it (with these filters)")))
    }

    /// The findings: each problem with its evidence, and the predicted gain of its fix.
    fn findings(&self, py: Python<'_>) -> PyResult<PyDocument> {
        let opened = self.opened()?;
        detached(py, || predict::findings(&opened))
    }

    /// The predicted gain of other home nodes for some objects: `whatif({"block": "interleave"})`.
    #[pyo3(signature = (homes, *, machine = None, seed = 1, progress = None))]
    fn whatif(
        &self,
        py: Python<'_>,
        homes: &Bound<'_, PyDict>,
        machine: Option<&PyMachine>,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyDocument> {
        let opened = self.opened()?;
        predict::whatif(py, &opened, homes, machine.map(|machine| machine.machine().clone()), seed, progress)
    }

    /// A picture of the report: traffic, matrix, objects, timeline, pages, flame or imbalance.
    #[pyo3(signature = (view = "traffic", *, object = None, **filter))]
    fn picture(
        &self,
        py: Python<'_>,
        view: &str,
        object: Option<&str>,
        filter: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyPicture> {
        let opened = self.opened()?;
        let filter = filter_of(&opened, filter)?;
        PyPicture::draw(py, &opened, view, object, filter)
    }

    fn __repr__(&self) -> String {
        match self.opened() {
            Ok(opened) => {
                let (accesses, objects, threads) =
                    (opened.accesses().len(), opened.objects().len(), opened.threads().len());
                let path = opened.path.display();
                format!("<numapilot.Trace {path}: {accesses} samples, {objects} objects, {threads} threads>")
            }
            Err(_) => "<numapilot.Trace, closed>".to_owned(),
        }
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let opened = self.opened()?;
        detached(py, || figures::overview(&opened).to_html())
    }
}
