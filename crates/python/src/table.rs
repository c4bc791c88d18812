//! Tables and accesses in bulk: objects with `__arrow_c_stream__`, which pandas, Polars, DuckDB, pyarrow and others take without a copy.

use std::path::PathBuf;
use std::sync::Arc;

use numapilot_arrow::{
    AccessBatches, ArrowArrayStream, Batches, Cell, Field, access_columns, schema, stream, table, table_fields,
    table_names,
};
use numapilot_flows::{Filter, FlowError};
use numapilot_trace::tables::schema::ColumnType;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::ffi::{Code, detached, error};
use crate::opened::Opened;
use crate::shown::html_table;

/// Most rows that a notebook shows.
const ROWS_SHOWN: usize = 10;

/// Source of a table's rows.
pub enum Source {
    /// Accesses in memory that pass a filter, with these columns or all.
    Accesses { opened: Arc<Opened>, filter: Filter, columns: Option<Vec<String>> },
    /// A table on disk.
    Table { folder: PathBuf, name: String },
}

/// A table that Arrow consumers can import, any number of times.
#[pyclass(name = "Table", module = "numapilot", frozen)]
pub struct PyTable {
    source: Source,
    fields: Vec<Field>,
}

/// An open trace, which a stream keeps in memory.
struct Held(Arc<Opened>);

impl std::ops::Deref for Held {
    type Target = numapilot_flows::Trace;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl PyTable {
    pub fn new(source: Source) -> PyResult<PyTable> {
        let fields = match &source {
            Source::Accesses { .. } => batches(&source)?.fields(),
            Source::Table { name, .. } => table_fields(name).ok_or_else(|| no_table(name))?,
        };
        Ok(PyTable { source, fields })
    }
}

fn no_table(name: &str) -> PyErr {
    let known: Vec<&str> = table_names().collect();
    error(Code::NotFound, format!("unknown table {name:?}; known tables: {}", known.join(", ")))
}

fn batches(source: &Source) -> PyResult<Box<dyn Batches>> {
    match source {
        Source::Accesses { opened, filter, columns } => {
            let all = AccessBatches::new(Held(opened.clone()), filter.clone());
            let Some(columns) = columns else { return Ok(Box::new(all)) };
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            let known = || access_columns().collect::<Vec<_>>().join(", ");
            let selected = all.select(&names).map_err(|name| {
                error(Code::NotFound, format!("accesses have no column {name:?}; they have: {}", known()))
            })?;
            Ok(Box::new(selected))
        }
        Source::Table { folder, name } => {
            let opened = table(folder, name).ok_or_else(|| no_table(name))?;
            opened.map_err(|why| {
                let why = FlowError::from(why);
                error(if why.is_io() { Code::Io } else { Code::BadTrace }, why.to_string())
            })
        }
    }
}

#[pymethods]
impl PyTable {
    /// The Arrow PyCapsule interface: returns a new stream each time. A requested schema is ignored, as the interface allows: nothing is cast.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let made: ArrowArrayStream = stream(detached(py, || batches(&self.source))??);
        PyCapsule::new_with_value(py, made, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, schema(&self.fields), c"arrow_schema")
    }

    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name).collect()
    }

    fn __repr__(&self) -> String {
        let kind = |kind: ColumnType| match kind {
            ColumnType::Bool => "bool",
            ColumnType::U8 => "uint8",
            ColumnType::U16 => "uint16",
            ColumnType::U32 => "uint32",
            ColumnType::U64 => "uint64",
            ColumnType::Text => "text",
        };
        let columns: Vec<String> =
            self.fields.iter().map(|field| format!("{} {}", field.name, kind(field.kind))).collect();
        let name = match &self.source {
            Source::Accesses { .. } => "accesses",
            Source::Table { name, .. } => name,
        };
        format!("<numapilot.Table {name}: {}>", columns.join(", "))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || {
            let mut rows: Vec<Vec<String>> = Vec::new();
            let mut batches = batches(&self.source)?;
            if let Some((count, columns)) = batches.next().map_err(|why| error(Code::BadTrace, why))? {
                for row in 0..count.min(ROWS_SHOWN) {
                    rows.push(columns.iter().map(|column| words(column.cell(row))).collect());
                }
            }
            let names: Vec<&str> = self.fields.iter().map(|field| field.name).collect();
            Ok(html_table(&names, &rows))
        })?
    }
}

fn words(cell: Option<Cell<'_>>) -> String {
    match cell {
        None => String::new(),
        Some(Cell::Bool(value)) => if value { "true" } else { "false" }.to_owned(),
        Some(Cell::Number(value)) => value.to_string(),
        Some(Cell::Text(value)) => value.to_owned(),
    }
}
