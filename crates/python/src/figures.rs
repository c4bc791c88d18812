//! Figures: estimates with their intervals, statistics over a filter, the report and its drill-down.

use numapilot_flows::{Evidence, Filter, Named};
use numapilot_insight::{Analysis, Estimate, Statistics, link_traffic};
use numapilot_report::Counted;
use numapilot_report::estimates;
use numapilot_report::json;
use numapilot_report::text;
use numapilot_text::style::Look;
use pyo3::prelude::*;
use serde_json::{Value, json as value};

use crate::opened::Opened;
use crate::shown::PyDocument;

/// Number of time slices and of page ranges in a drill-down, as on the command line.
const TIME_SLICES: usize = 32;
const PAGE_STRETCHES: usize = 16;
/// Rows of objects in the text of a report.
const ROWS: usize = 10;

/// A figure with its 95 % interval; the interval is a point if the figure was counted and not sampled.
#[pyclass(name = "Estimate", module = "numapilot", frozen, get_all)]
#[derive(Clone, Copy)]
pub struct PyEstimate {
    value: f64,
    low: f64,
    high: f64,
}

impl From<Estimate> for PyEstimate {
    fn from(estimate: Estimate) -> PyEstimate {
        PyEstimate { value: estimate.value, low: estimate.low, high: estimate.high }
    }
}

#[pymethods]
impl PyEstimate {
    fn __float__(&self) -> f64 {
        self.value
    }

    fn __repr__(&self) -> String {
        format!("{} [{}, {}]", self.value, self.low, self.high)
    }
}

/// Figures over the accesses that pass a filter. Shares are between 0 and 1. If the trace's `evidence` is not "accesses", samples are counted and every
/// estimate is NaN: unknown.
#[pyclass(name = "Statistics", module = "numapilot", frozen, get_all)]
pub struct PyStatistics {
    samples: u64,
    remote_samples: u64,
    write_samples: u64,
    accesses: PyEstimate,
    remote: PyEstimate,
    writes: PyEstimate,
    share: PyEstimate,
}

#[pymethods]
impl PyStatistics {
    fn __repr__(&self) -> String {
        let percent = |estimate: &PyEstimate| match estimate.value.is_nan() {
            true => "an unknown share".to_owned(),
            false => estimates::share(&Estimate { value: estimate.value, low: estimate.low, high: estimate.high }),
        };
        let [writes, share, remote] = [&self.writes, &self.share, &self.remote].map(percent);
        let (accesses, samples) = (self.accesses.value, self.samples);
        format!(
            "<Statistics: {accesses:.0} accesses ({samples} samples), {share} of all, {remote} remote, {writes} writes>"
        )
    }
}

/// Computes the statistics of the accesses that pass the filter.
pub fn statistics(opened: &Opened, filter: &Filter) -> PyStatistics {
    let found = Statistics::of(opened, filter);
    PyStatistics {
        samples: found.samples,
        remote_samples: found.remote_samples,
        write_samples: found.write_samples,
        accesses: found.accesses.into(),
        remote: found.remote.into(),
        writes: found.writes.into(),
        share: found.share.into(),
    }
}

/// Makes the report of the accesses that pass the filter, with `top` rows of objects in the text.
pub fn report(opened: &Opened, filter: Filter, top: usize) -> PyDocument {
    let analysis = opened.analysis(filter);
    let headline = analysis.headline();
    let machine = opened.machine.as_ref();
    let links = machine.map(|machine| link_traffic(&analysis.matrix(), machine, headline.totals.duration.0).0);
    let mut data = json::overview(&opened.heading, &analysis, &links.unwrap_or_default(), top);
    if let Some(touches) = analysis.touches() {
        data["page_faults"] = value!(touches);
    }
    PyDocument::new(data, in_words(opened, &analysis, top))
}

/// Makes the overview that a notebook shows for a trace.
pub fn overview(opened: &Opened) -> PyDocument {
    PyDocument::new(Value::Null, in_words(opened, &opened.analysis(Filter::default()), ROWS))
}

fn in_words(opened: &Opened, analysis: &Analysis<'_>, top: usize) -> String {
    let look = Look::default();
    let head = match analysis.touches() {
        Some(touches) => text::touches(&touches, analysis.nodes()),
        None => text::headline(&analysis.headline(), analysis.nodes(), look),
    };
    if opened.evidence() == Evidence::Other {
        return [head, text::heading(&opened.heading, look)].join("\n");
    }
    if let Some(touches) = analysis.touches() {
        let objects = text::touched_objects(&touches.sites, opened, analysis.nodes(), top, look);
        return [head, text::heading(&opened.heading, look), objects].join("\n");
    }
    let sites = analysis.sites();
    // What shows the rest is an option of the command there, and an argument here.
    let option = format!("`-n {}`", sites.len());
    let objects = text::objects(&sites, analysis.nodes(), top, look, Counted::of(opened))
        .replace(&option, &format!("`report(top={})`", sites.len()));
    [head, text::heading(&opened.heading, look), objects].join("\n")
}

/// Makes the drill-down of the objects that a name denotes, without those that no access passing the filter reached; `None` if that is all of them.
pub fn detail(opened: &Opened, filter: Filter, named: &[Named]) -> Option<PyDocument> {
    let analysis = opened.analysis(filter);
    let mut details = Vec::new();
    let mut texts = Vec::new();
    for name in named {
        let found = match name {
            Named::Site(site) => analysis.site_detail(*site, TIME_SLICES, PAGE_STRETCHES),
            Named::Object(object) => analysis.object_detail(*object, TIME_SLICES, PAGE_STRETCHES),
        };
        let Some(found) = found else { continue };
        texts.push(text::object(&found, opened, analysis.nodes(), ROWS, Look::default()));
        details.push(value!(found));
    }
    (!details.is_empty()).then(|| PyDocument::new(value!({ "objects": details }), texts.join("\n")))
}
