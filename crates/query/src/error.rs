//! Errors of a query, with messages for the user.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use numapilot_trace::meta::MetaError;
use numapilot_trace::tables::TableError;

use crate::place;

/// What to do where the system refuses threads.
pub const MORE_THREADS: &str = "raise `ulimit -u`, or the limit of processes of the cgroup or container";

/// What can go wrong with a query.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The folder is neither a trace nor a fleet.
    #[error(
        "{} is neither a trace nor a fleet: a trace has a meta.json, a fleet has traces in host=HOST/run=RUN/ (docs/query.md)", .0.display()
    )]
    NotATrace(PathBuf),
    /// The fleet holds no complete trace.
    #[error("{} holds no complete trace: none of its {found} folders host=HOST/run=RUN has a meta.json", folder.display())]
    EmptyFleet {
        /// Folder of the fleet.
        folder: PathBuf,
        /// Number of its folders `host=HOST/run=RUN`.
        found: usize,
    },
    /// Two traces of a fleet have the same host and run.
    #[error(
        "{} and {} are the same host and run, when the escapes in their names are decoded: rename one, so that their rows can be told apart",
        .0.display(), .1.display()
    )]
    SameRun(PathBuf, PathBuf),
    /// The name of a host or a run is no text.
    #[error("the name of {} is no UTF-8: rename it, or move it out of the fleet", .0.display())]
    NoText(PathBuf),
    /// A trace or one of its tables cannot be read.
    #[error(transparent)]
    Trace(#[from] TableError),
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `read`.
        action: &'static str,
        /// File or folder of the operation.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The SQL is invalid; the text shows the place in it.
    #[error("{0}")]
    Sql(String),
    /// There is no ready-made query of that name, or it is for a fleet and a trace was opened, or the other way round.
    #[error("{0}")]
    Ready(String),
    /// The query needs more memory than its limit.
    #[error(
        "the query needs more memory than its limit of {limit_mib} MiB: raise it with --memory MIB, or make the query read less (where, fewer groups)\n({why})"
    )]
    Memory {
        /// The limit, MiB.
        limit_mib: u64,
        /// The engine's message.
        why: String,
    },
    /// The system lets this process have too few threads.
    #[error("the query engine needs {needed} threads more, and the system allows {allowed}: {}", MORE_THREADS)]
    Threads {
        /// Fewest threads that it needs.
        needed: usize,
        /// Threads that can be started.
        allowed: usize,
    },
    /// A file was replaced or changed between its check and the end of the query.
    #[error(
        "{} was replaced while the query read it, so that the result would be partly of the old trace and partly of the new one: run the query again",
        .0.display()
    )]
    Replaced(PathBuf),
    /// Any other error of the engine.
    #[error("the query failed: {0}")]
    Engine(String),
    /// The result cannot be written.
    #[error("cannot write {what}: {why}")]
    Write {
        /// Where the result goes: a path, or "standard output".
        what: String,
        /// The reason.
        why: String,
    },
}

impl QueryError {
    /// Converts the engine's error about `sql`; `limit_mib` is the query's memory limit.
    pub(crate) fn of_engine(error: &DataFusionError, sql: &str, limit_mib: u64) -> QueryError {
        for part in error.iter() {
            match part.find_root() {
                DataFusionError::External(inner) => {
                    if let Some(table_error) = inner.downcast_ref::<TableError>() {
                        return QueryError::Engine(table_error.to_string());
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
