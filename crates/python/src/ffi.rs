//! The Python boundary: errors as exceptions with a code, long work without the GIL, and no panics.

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
    "An error: `code` is one of numapilot.Code, and the text is the message."
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
    /// A prediction is not possible. The C API has no predictions, and so no such code.
    Model = 9,
}

/// Makes an exception with this code and message.
pub fn error(code: Code, message: impl Into<String>) -> PyErr {
    with_code(Error::new_err(message.into()), code)
}

/// Makes the exception for the use of a closed trace.
pub fn closed() -> PyErr {
    with_code(ClosedError::new_err("the trace was closed"), Code::BadHandle)
}

fn with_code(error: PyErr, code: Code) -> PyErr {
    Python::attach(|py| {
        // If the attribute cannot be set for lack of memory, the exception has only its message.
        let _ = error.value(py).setattr("code", code as u8);
    });
    error
}

/// Converts an error of opening the trace at `path` to an exception.
pub fn flow_error(path: &std::path::Path, found: &FlowError) -> PyErr {
    let code = match found {
        FlowError::StillRecording { .. } | FlowError::MayBeRecording { .. } => Code::Busy,
        FlowError::Worker(_) => Code::Internal,
        _ if !find(path).exists() || found.is_io() => Code::Io,
        _ => Code::BadTrace,
    };
    error(code, found.to_string())
}

/// Runs long work without the GIL, so that other Python threads run meanwhile. A panic becomes an exception.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        error(Code::Internal, format!("internal error in numapilot, please report it: {said}"))
    })
}
