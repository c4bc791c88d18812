//! SQL over a trace, or over a fleet of traces: the tables and views, the ready-made queries, and the engine (DataFusion) that runs them.
//!
//! [`source`] finds the traces on disk, [`table`] gives their tables to the engine (checked against `meta.json` first), [`views`] and [`ready`] are the SQL
//! that ships with numapilot, [`session`] runs a query, [`output`] writes the result, [`elsewhere`] defines the same views in other engines. `docs/query.md`
//! is the manual.

pub mod elsewhere;
pub mod error;
pub mod output;
pub mod place;
pub mod ready;
pub mod session;
pub mod source;
pub mod table;
pub mod views;
