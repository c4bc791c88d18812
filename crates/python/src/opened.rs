//! A trace in memory as every object of Python shares it.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use numapilot_flows::{Filter, Named, Trace};
use numapilot_insight::Analysis;
use numapilot_machine::Machine;
use numapilot_report::Heading;
use numapilot_trace::name::find;
use pyo3::PyResult;

use crate::ffi::{Code, error};

/// A trace in memory, with its machine and the heading of its reports.
pub struct Opened {
    trace: Trace,
    pub path: PathBuf,
    pub machine: Option<Machine>,
    pub heading: Heading,
}

impl Deref for Opened {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl Opened {
    /// Opens the folder of a trace.
    pub fn open(path: &Path) -> Result<Opened, numapilot_flows::FlowError> {
        let trace = Trace::open(path)?;
        let machine = trace.machine();
        let heading = Heading::of(path, &trace, machine.as_ref());
        // Tables and simulations read it again, when the program may be in another folder. The name may have been given without its ending.
        let found = find(path);
        let path = std::path::absolute(&found).unwrap_or(found);
        Ok(Opened { trace, path, machine, heading })
    }

    /// The analysis of the accesses that pass a filter.
    pub fn analysis(&self, filter: Filter) -> Analysis<'_> {
        Analysis::on(&self.trace, self.machine.as_ref(), filter)
    }

    /// The objects that a name denotes, as on the command line.
    pub fn named(&self, name: &str) -> PyResult<Vec<Named>> {
        self.trace.objects_named(name).map_err(|why| error(Code::NotFound, format!("{name:?}: {why}")))
    }
}
