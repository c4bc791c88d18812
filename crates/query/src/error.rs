//! What can go wrong, in words for the person who asked.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use numapilot_trace::meta::MetaError;
use numapilot_trace::tables::TableError;

use crate::place;

/// What can go wrong with a query.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The folder is neither a trace nor a fleet.
    #[error(
        "{} is no trace and no fleet: a trace has a meta.json, a fleet has traces in host=HOST/run=RUN/ (docs/query.md)", .0.display()
    )]
    NotATrace(PathBuf),
    /// A fleet without a complete trace.
    #[error("{} holds no complete trace: none of its {found} folders host=HOST/run=RUN has a meta.json", folder.display())]
    EmptyFleet {
        /// The fleet.
        folder: PathBuf,
        /// Folders that look like runs.
        found: usize,
    },
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TableError),
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The query is wrong; the text shows where.
    #[error("{0}")]
    Sql(String),
    /// There is no ready-made query of that name, or it does not go with what was opened.
    #[error("{0}")]
    Ready(String),
    /// The query needs more memory than it may have.
    #[error(
        "the query needs more than its {limit_mib} MiB of memory: give it more with --memory MIB, or let it look at less (where, fewer groups)\n({why})"
    )]
    Memory {
        /// The limit.
        limit_mib: u64,
        /// What the engine says.
        why: String,
    },
    /// Something else in the engine.
    #[error("the query failed: {0}")]
    Engine(String),
    /// The result cannot be written.
    #[error("cannot write {what}: {why}")]
    Write {
        /// Where to.
        what: String,
        /// Why not.
        why: String,
    },
}

impl QueryError {
    /// From what the engine says about `sql`; `limit_mib` is the memory that it had.
    pub(crate) fn of_engine(error: &DataFusionError, sql: &str, limit_mib: u64) -> QueryError {
        for part in error.iter() {
            match part.find_root() {
                DataFusionError::External(inner) => {
                    if let Some(told) = inner.downcast_ref::<TableError>() {
                        return QueryError::Engine(told.to_string());
                    }
                }
                DataFusionError::ResourcesExhausted(why) => {
                    return QueryError::Memory { limit_mib, why: first_line(why) };
                }
                _ => {}
            }
        }
        if let Some(text) = place::of(error, sql) {
            return QueryError::Sql(text);
        }
        match error.find_root() {
            DataFusionError::Plan(why) if ["DDL", "DML", "Statement"].iter().any(|what| why.starts_with(what)) => {
                QueryError::Sql(format!("a query only reads: {}", first_line(why)))
            }
            DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::NotImplemented(_) => {
                QueryError::Sql(error.strip_backtrace())
            }
            _ => QueryError::Engine(error.strip_backtrace()),
        }
    }
}

impl From<MetaError> for QueryError {
    fn from(error: MetaError) -> QueryError {
        QueryError::Trace(TableError::Meta(error))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
