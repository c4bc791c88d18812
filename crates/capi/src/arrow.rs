//! Accesses in bulk, through the Arrow C stream interface (<https://arrow.apache.org/docs/format/CStreamInterface.html>): pyarrow, Polars, DuckDB, nanoarrow
//! and others import them without a copy. A stream keeps its trace in memory, so it still works after the trace is closed.

use std::ffi::c_int;
use std::ops::Deref;
use std::ptr;

use numapilot_arrow::{AccessBatches, ArrowArrayStream, stream as stream_of};
use numapilot_flows::Trace;

use crate::ffi::*;
use crate::filter::{FilterRow, filter_of};
use crate::handles::Held;
use crate::trace::{OpenTrace, TraceHandle, opened};

/// An open trace that dereferences to its flows.
struct Flows(Held<OpenTrace>);

impl Deref for Flows {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.0.trace
    }
}

/// Exports the accesses that pass the filter (null: all) as an Arrow stream. The caller releases it, as the interface says.
///
/// # Safety
/// `filter` is null or points to a struct whose `type_size` is set; `stream` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_export_accesses(
    trace: TraceHandle,
    filter: *const FilterRow,
    stream: *mut ArrowArrayStream,
) -> c_int {
    guarded(|| {
        let trace = opened(trace)?;
        // SAFETY: by this function's contract.
        let filter = unsafe { filter_of(&trace.trace, filter)? };
        if stream.is_null() {
            return Err(failure(NUMAPILOT_BAD_ARGUMENT, "stream is null"));
        }
        let made = stream_of(Box::new(AccessBatches::new(Flows(trace), filter)));
        // SAFETY: not null, so good for a write. What was there is the caller's to release.
        unsafe { ptr::write_unaligned(stream, made) };
        Ok(())
    })
}
