//! The filter of accesses, from Python's keyword arguments.

use numapilot_flows::{Filter, ObjectKind, SiteId, Trace};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ffi::{Code, error};

const KNOWN: &str = "time, thread, process, object, site, kind, node, home, write, remote";

/// Makes the filter; a keyword whose value is None is ignored. A number that the trace does not have is an error, because it is a mistake of the caller.
pub fn filter_of(trace: &Trace, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Filter> {
    let mut filter = Filter::default();
    for (key, value) in keywords.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        let key: String = key.extract()?;
        match key.as_str() {
            "time" => filter.time = Some(time(&value)?),
            "thread" => filter.thread = Some(ThreadIndex(row(&key, &value, trace.threads().len())?)),
            "process" => filter.process = Some(ProcessIndex(row(&key, &value, trace.processes().len())?)),
            "object" => filter.object = Some(ObjectId(row(&key, &value, trace.objects().len())?)),
            "site" => filter.site = Some(SiteId(row(&key, &value, trace.sites().len())?)),
            "kind" => filter.kind = Some(kind(&value)?),
            "node" => filter.node = Some(NodeId(value.extract()?)),
            "home" => filter.home = Some(NodeId(value.extract()?)),
            "write" => filter.is_write = Some(value.extract()?),
            "remote" => filter.is_remote = Some(value.extract()?),
            _ => return Err(PyTypeError::new_err(format!("unknown filter {key:?}; known filters: {KNOWN}"))),
        }
    }
    Ok(filter)
}

/// Converts a row's number, which must be below `count`.
pub fn row(what: &str, value: &Bound<'_, PyAny>, count: usize) -> PyResult<u32> {
    match value.extract::<u32>() {
        Ok(number) if (number as usize) < count => Ok(number),
        Err(why) if !why.is_instance_of::<PyOverflowError>(value.py()) => Err(why),
        // Negative numbers, and those of more than 32 bits, are no rows either.
        _ => {
            let why = format!("the trace has no {what} {value}; it has {count}, numbered from 0");
            Err(error(Code::NotFound, why))
        }
    }
}

fn kind(value: &Bound<'_, PyAny>) -> PyResult<ObjectKind> {
    let word: String = value.extract()?;
    let known = || ObjectKind::ALL.map(ObjectKind::word).join(", ");
    let unknown = || error(Code::NotFound, format!("unknown kind of object {word:?}; known kinds: {}", known()));
    ObjectKind::from_word(&word).ok_or_else(unknown)
}

/// Converts (from, to), a half-open range of program time in nanoseconds; None at either end means no limit there.
fn time(value: &Bound<'_, PyAny>) -> PyResult<std::ops::Range<TimeNs>> {
    let (from, to): (Option<u64>, Option<u64>) = value.extract()?;
    let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
    if from >= to {
        return Err(error(Code::BadArgument, format!("time=({from}, {to}): the first must be less than the second")));
    }
    Ok(TimeNs(from)..TimeNs(to))
}
