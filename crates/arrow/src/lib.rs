//! Accesses and tables of traces as streams of the Arrow C data interface: pyarrow, pandas, Polars, DuckDB, nanoarrow and others take them as they
//! are. For the C API and the Python package.
//!
//! A stream holds what it reads from; closing a trace leaves it working. Errors and mistakes become the interface's error numbers and messages; nothing
//! panics across the border.

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
