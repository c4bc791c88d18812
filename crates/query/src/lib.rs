//! SQL over a trace, or over a fleet of traces: the tables and views, the ready-made queries, and the engine (DataFusion) that runs them.
//!
//! [`source`] says what is on disk, [`table`] hands it to the engine (checked against `meta.json` first), [`views`] and [`ready`] are the SQL that we
//! ship, [`session`] runs a query, [`output`] writes what comes out, [`elsewhere`] tells other engines the same views. `docs/query.md` is the way in.

pub mod elsewhere;
pub mod error;
pub mod output;
pub mod place;
pub mod ready;
pub mod session;
pub mod source;
pub mod table;
pub mod views;
