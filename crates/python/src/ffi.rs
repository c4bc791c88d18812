//! The border to Python: what went wrong as an exception with a code, long work without Python's lock, no panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use numapilot_flows::FlowError;
use numapilot_trace::name::find;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    numapilot,
    Error,
    PyException,
    "What went wrong: `code` is one of numapilot.Code, the text says the rest."
);
create_exception!(numapilot, ClosedError, Error, "The trace was closed.");

/// Codes, those of the C API (`numapilot.h`).
#[derive(Clone, Copy, Debug)]
pub enum Code {
    BadArgument = 1,
    BadHandle = 2,
    Io = 3,
    BadTrace = 4,
    NotFound = 5,
    Busy = 6,
    Internal = 8,
    /// The model cannot answer; C has none of it.
    Model = 9,
}

/// An exception with its code.
pub fn error(code: Code, message: impl Into<String>) -> PyErr {
    with_code(Error::new_err(message.into()), code)
}

/// The exception of a trace that was closed.
pub fn closed() -> PyErr {
    with_code(ClosedError::new_err("the trace was closed"), Code::BadHandle)
}

fn with_code(error: PyErr, code: Code) -> PyErr {
    Python::attach(|py| {
        // Without memory for the attribute, the message alone must do.
        let _ = error.value(py).setattr("code", code as u8);
    });
    error
}

/// The exception of what the flows say.
pub fn flow_error(path: &std::path::Path, found: &FlowError) -> PyErr {
    let said = found.to_string();
    let is_of_the_system = |error: &(dyn std::error::Error + 'static)| error.is::<std::io::Error>();
    let mut causes = std::iter::successors(Some(found as &(dyn std::error::Error + 'static)), |error| error.source());
    if matches!(found, FlowError::StillRecording { .. } | FlowError::MayBeRecording { .. }) {
        return error(Code::Busy, said);
    }
    let code = if !find(path).exists() || causes.any(is_of_the_system) { Code::Io } else { Code::BadTrace };
    error(code, said)
}

/// Runs long work while other threads of Python go on. A panic becomes an exception.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        error(Code::Internal, format!("mistake in numapilot, please report it: {said}"))
    })
}
