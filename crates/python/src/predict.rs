//! Predictions: findings with the gains of their fixes, and the gain of other home nodes. Every result is marked as predicted.

use std::io::Write;
use std::sync::Mutex;

use numapilot_flows::Filter;
use numapilot_insight::whatif::PlacementOverride;
use numapilot_machine::Machine;
use numapilot_report::findings;
use numapilot_report::simulation::{Prediction, prediction};
use numapilot_simulator::whatif::{PageOverride, Question};
use numapilot_text::style::Look;
use numapilot_text::units::whole_percent;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ffi::{Code, detached, error};
use crate::opened::Opened;
use crate::shown::PyDocument;

/// The findings: recognised patterns with their fixes and predicted gains.
pub fn findings(opened: &Opened) -> PyDocument {
    let analysis = opened.analysis(Filter::default());
    let machine = opened.machine.as_ref();
    let found = analysis.findings(machine);
    let data = findings::json(&found, opened, machine);
    PyDocument::new(data, findings::text(&found, opened, machine, true, Look::default()))
}

/// Predicts the program's run with other home nodes for some objects.
pub fn whatif(
    py: Python<'_>,
    opened: &Opened,
    homes: &Bound<'_, PyDict>,
    machine: Option<Machine>,
    seed: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<PyDocument> {
    if let Some(blindness) = opened.analysis(Filter::default()).blindness() {
        return Err(error(Code::Model, blindness.says()));
    }
    let asked: Vec<String> = homes
        .iter()
        .map(|(name, place)| Ok(format!("{}={}", name.extract::<String>()?, place.extract::<String>()?)))
        .collect::<PyResult<_>>()?;
    let reporter = ProgressReporter::new(py, "predicting", progress)?;
    let found = match machine {
        None => priced(py, opened, &asked).inspect(|_| reporter.report(1.0))?,
        Some(machine) => {
            let read = |text: &String| PageOverride::read(opened, text).map_err(|why| bad(text, &why));
            let overrides = asked.iter().map(read).collect::<PyResult<Vec<_>>>()?;
            let question = Question { trace: opened.path.clone(), overrides, machine: Some(machine), seed };
            let answer = detached(py, || question.ask(&|share| reporter.report(share)))?;
            let answer = answer.map_err(|why| error(Code::Model, why.to_string()))?;
            Prediction::simulated(&question.overrides, &answer)
        }
    };
    reporter.finish()?;
    Ok(PyDocument::new(found.json(), prediction(&found, Look::default())))
}

fn bad(text: &str, why: &dyn std::fmt::Display) -> PyErr {
    error(Code::BadArgument, format!("{text:?}: {why}"))
}

/// Predicts on the machine of the recording, with the model that also predicts the gains of findings.
fn priced(py: Python<'_>, opened: &Opened, asked: &[String]) -> PyResult<Prediction> {
    let read = |text: &String| PlacementOverride::read(opened, text).map_err(|why| bad(text, &why));
    let asks = asked.iter().map(read).collect::<PyResult<Vec<_>>>()?;
    let Some(machine) = &opened.machine else {
        return Err(error(
            Code::Model,
            "the trace holds no description of its machine; pass one as `machine`".to_owned(),
        ));
    };
    let answer = detached(py, || opened.analysis(Filter::default()).what_if(machine, &asks))?;
    let answer = answer.map_err(|why| error(Code::Model, why.to_string()))?;
    Ok(Prediction::priced(&numapilot_trace::name::stem(&opened.path), machine.name(), answer))
}

/// Reports the progress of long work: to a Python function, as text on standard error, or not at all.
struct ProgressReporter {
    what: &'static str,
    callback: Option<Py<PyAny>>,
    to_stderr: bool,
    failed: Mutex<Option<PyErr>>,
}

impl ProgressReporter {
    /// `progress`: a function that takes the share that is done, True for text on standard error, or None.
    fn new(py: Python<'_>, what: &'static str, progress: Option<Py<PyAny>>) -> PyResult<ProgressReporter> {
        let asked = progress.filter(|progress| !progress.is_none(py));
        let flag = asked.as_ref().and_then(|asked| asked.extract::<bool>(py).ok());
        let callback = asked.filter(|_| flag.is_none());
        if callback.as_ref().is_some_and(|callback| !callback.bind(py).is_callable()) {
            let why = "progress must be a function that takes the share that is done (0 to 1), or True, or None";
            return Err(pyo3::exceptions::PyTypeError::new_err(why));
        }
        Ok(ProgressReporter { what, callback, to_stderr: flag == Some(true), failed: Mutex::new(None) })
    }

    /// Reports that the share `share`, from 0 to 1, is done. May be called from any thread, without the GIL.
    fn report(&self, share: f64) {
        if self.to_stderr {
            let _ = write!(std::io::stderr(), "\rnumapilot: {} {}", self.what, whole_percent(share));
        }
        let Some(callback) = &self.callback else { return };
        let failed = Python::attach(|py| callback.call1(py, (share,)).err());
        if let (Some(failed), Ok(mut first)) = (failed, self.failed.lock()) {
            first.get_or_insert(failed);
        }
    }

    /// Ends the progress text, and returns the first exception that the Python function raised.
    fn finish(self) -> PyResult<()> {
        if self.to_stderr {
            let _ = writeln!(std::io::stderr());
        }
        self.failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}
