//! The native module of the Python package: traces, flows, tables, figures, findings and predictions. The folder `python/numapilot/` has the rest of the
//! package: its names and its stubs. `docs/python.md` is the manual.
//!
//! Rules for every function: nothing panics across the boundary. Errors are exceptions with a code and a message. Long work releases the GIL. The use of a
//! closed trace raises. Locks are taken only by threads that hold the GIL, or are tried without waiting, so that objects work in a forked child.

mod ffi;
mod figures;
mod filter;
mod flow;
mod machine;
mod opened;
mod predict;
mod rows;
mod shown;
mod table;
mod trace;

use pyo3::prelude::*;

/// The module `numapilot._native`.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<ffi::Error>())?;
    module.add("ClosedError", module.py().get_type::<ffi::ClosedError>())?;
    module.add_class::<trace::PyTrace>()?;
    module.add_class::<rows::PyObject>()?;
    module.add_class::<rows::PySite>()?;
    module.add_class::<rows::PyThread>()?;
    module.add_class::<rows::PyProcess>()?;
    module.add_class::<rows::PyFrame>()?;
    module.add_class::<rows::PyRows>()?;
    module.add_class::<rows::PyRowsIterator>()?;
    module.add_class::<flow::PyAccess>()?;
    module.add_class::<flow::PyFlow>()?;
    module.add_class::<table::PyTable>()?;
    module.add_class::<figures::PyEstimate>()?;
    module.add_class::<figures::PyStatistics>()?;
    module.add_class::<shown::PyDocument>()?;
    module.add_class::<shown::PyPicture>()?;
    module.add_class::<machine::PyMachine>()?;
    module.add_function(wrap_pyfunction!(trace::open, module)?)?;
    module.add_function(wrap_pyfunction!(machine::machines, module)?)
}
