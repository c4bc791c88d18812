//! Results that notebooks and terminals show: documents (data and text) and pictures.

use std::io::Write;
use std::path::{Path, PathBuf};

use numapilot_flows::{Filter, Named};
use numapilot_report::export::Export;
use numapilot_report::pictures::{View, svg};
use numapilot_text::destination::PendingFile;
use numapilot_text::markup::escaped;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use serde::Serialize;

use crate::ffi::{Code, detached, error};
use crate::opened::Opened;

/// Converts a value that serialises to JSON to Python's dictionaries and lists.
pub fn as_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|why| error(Code::Internal, why.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// A result: `data` as dictionaries and lists, and the same as text.
#[pyclass(name = "Document", module = "numapilot", frozen)]
pub struct PyDocument {
    value: serde_json::Value,
    text: String,
    data: PyOnceLock<Py<PyAny>>,
}

impl PyDocument {
    pub fn new(value: serde_json::Value, text: String) -> PyDocument {
        PyDocument { value, text, data: PyOnceLock::new() }
    }

    pub fn to_html(&self) -> String {
        format!("<pre>{}</pre>", escaped(&self.text))
    }
}

#[pymethods]
impl PyDocument {
    /// The result as dictionaries, lists, numbers and strings.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let made = self.data.get_or_try_init(py, || as_python(py, &self.value).map(Bound::unbind))?;
        Ok(made.bind(py).clone())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.data(py)?.get_item(key)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.data(py)?.contains(key)
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.data(py)?.call_method0("keys")
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> &str {
        &self.text
    }

    fn _repr_html_(&self) -> String {
        self.to_html()
    }
}

/// A picture in SVG.
#[pyclass(name = "Picture", module = "numapilot", frozen)]
pub struct PyPicture {
    #[pyo3(get)]
    svg: String,
}

impl PyPicture {
    pub fn draw(
        py: Python<'_>,
        opened: &Opened,
        view: &str,
        object: Option<&str>,
        mut filter: Filter,
    ) -> PyResult<PyPicture> {
        let known = || View::ALL.map(View::word).join(", ");
        let unknown = || error(Code::NotFound, format!("unknown picture {view:?}; known pictures: {}", known()));
        let view = View::from_word(view).ok_or_else(unknown)?;
        let mut scope = if filter.is_empty() { String::new() } else { "filtered".to_owned() };
        if let Some(name) = object {
            match opened.named(name)?.as_slice() {
                [Named::Site(site)] => filter.site = Some(*site),
                [Named::Object(object)] => filter.object = Some(*object),
                several => {
                    let numbers = several.iter().map(|named| match named {
                        Named::Site(site) => format!("S{}", site.0),
                        Named::Object(object) => object.0.to_string(),
                    });
                    let numbers: Vec<String> = numbers.collect();
                    let why = format!(
                        "{name:?}: several have that name; a picture shows one of them: {}",
                        numbers.join(", ")
                    );
                    return Err(error(Code::BadArgument, why));
                }
            }
            scope = format!("object {name}{}{scope}", if scope.is_empty() { "" } else { ", " });
        }
        let drawn = detached(py, || {
            let analysis = opened.analysis(filter);
            let (heading, machine) = (&opened.heading, opened.machine.as_ref());
            let export = Export { heading, analysis: &analysis, machine, scope: &scope };
            svg(view, &export).map_err(|why| error(Code::BadArgument, why.to_string()))
        })?;
        Ok(PyPicture { svg: drawn? })
    }
}

#[pymethods]
impl PyPicture {
    /// Writes the SVG to a file, atomically: the file is complete, or is not changed.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || write(&path, &self.svg))?
            .map_err(|why| error(Code::Io, format!("{}: cannot be written: {why}", path.display())))
    }

    fn __str__(&self) -> &str {
        &self.svg
    }

    fn __repr__(&self) -> String {
        format!("<numapilot.Picture, {} bytes of SVG>", self.svg.len())
    }

    fn _repr_svg_(&self) -> &str {
        &self.svg
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = PendingFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.finish()
}

/// An HTML table.
pub fn html_table(names: &[&str], rows: &[Vec<String>]) -> String {
    let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let head = line("th", &mut names.iter().copied());
    let body: String = rows.iter().map(|row| line("td", &mut row.iter().map(String::as_str))).collect();
    format!("<table><thead>{head}</thead><tbody>{body}</tbody></table>")
}
