//! Accesses and tables of traces as streams of the Arrow C data interface, which pyarrow, pandas, Polars, DuckDB, nanoarrow and others import. The C API
//! and the Python package use it.
//!
//! A stream keeps its trace in memory, so it still works after the trace is closed. Errors and panics become the interface's error numbers and messages;
//! nothing panics across the C boundary.

mod abi;
mod accesses;
mod column;
mod stream;
mod tables;

pub use abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
pub use accesses::{AccessBatches, access_columns};
pub use column::{Cell, Column, Field};
pub use stream::{BATCH_ROWS, Batches, schema, stream};
pub use tables::{table, table_fields, table_names};
