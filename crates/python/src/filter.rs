//! Which accesses to look at: Python's keywords as the flows' filter.

use numapilot_flows::{Filter, ObjectKind, SiteId, Trace};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ffi::{Code, error};

const KNOWN: &str = "time, thread, process, object, site, kind, node, home, write, remote";

/// The filter of these keywords; what is None is not asked for. Rows that the trace does not have are errors: nobody means to ask for them.
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
            _ => return Err(PyTypeError::new_err(format!("no filter is called {key:?}; there are: {KNOWN}"))),
        }
    }
    Ok(filter)
}

/// A row's number, or a row of the trace itself.
fn row(what: &str, value: &Bound<'_, PyAny>, count: usize) -> PyResult<u32> {
    let number: u32 = value.extract()?;
    if number as usize >= count {
        return Err(error(Code::NotFound, format!("the trace has no {what} {number}; it has {count}, from 0")));
    }
    Ok(number)
}

fn kind(value: &Bound<'_, PyAny>) -> PyResult<ObjectKind> {
    let word: String = value.extract()?;
    let known = || ObjectKind::ALL.map(ObjectKind::word).join(", ");
    let unknown = || error(Code::NotFound, format!("no kind of object is called {word:?}; there are: {}", known()));
    ObjectKind::from_word(&word).ok_or_else(unknown)
}

/// (from, to) in nanoseconds of program time, half open; None at either end: as far as it goes.
fn time(value: &Bound<'_, PyAny>) -> PyResult<std::ops::Range<TimeNs>> {
    let (from, to): (Option<u64>, Option<u64>) = value.extract()?;
    let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
    if from >= to {
        return Err(error(Code::BadArgument, format!("time=({from}, {to}) leaves no time between them")));
    }
    Ok(TimeNs(from)..TimeNs(to))
}
