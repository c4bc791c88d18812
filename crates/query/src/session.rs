//! A session: the engine with the tables and views of one source, within its limits of memory and threads. It only reads.

use std::sync::Arc;

use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::datasource::ViewTable;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{DiskManager, SendableRecordBatchStream};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use numapilot_trace::tables::all_tables;

use crate::error::QueryError;
use crate::source::Source;
use crate::table::TraceTable;
use crate::views;

/// Named parameters of a query (`$site`), each a number or null.
pub type Parameters = Vec<(String, Option<i64>)>;

/// Resource limits of a query.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory for sorting, grouping and joining, MiB; what does not fit is spilled to temporary files where the engine supports it.
    pub memory_mib: u64,
    /// Number of worker threads.
    pub threads: usize,
}

/// An engine over one source.
pub struct Query {
    context: SessionContext,
    limits: Limits,
}

impl Query {
    /// Creates an engine, and registers the tables and views of `source` in it.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn new(source: Arc<Source>, limits: Limits) -> Result<Query, QueryError> {
        let engine = |error: DataFusionError| QueryError::of_engine(&error, "", limits.memory_mib);
        let mut config = SessionConfig::new().with_information_schema(true).with_target_partitions(limits.threads);
        config.options_mut().sql_parser.collect_spans = true;
        // The engine's guess that a condition keeps a fifth of the rows would make `accesses` the smaller side of a join, which is kept in memory.
        config.options_mut().optimizer.default_filter_selectivity = 100;
        let bytes = usize::try_from(limits.memory_mib << 20).unwrap_or(usize::MAX);
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().map_err(engine)?;
        let context = SessionContext::new_with_config_rt(config, runtime);
        for (name, columns) in all_tables() {
            let table = TraceTable::new(name, columns, Arc::clone(&source));
            context.register_table(name, Arc::new(table)).map_err(engine)?;
        }
        for view in views::ALL {
            let sql = view.query(source.is_fleet);
            let plan = context.state().create_logical_plan(&sql).await.map_err(engine)?;
            context.register_table(view.name, Arc::new(ViewTable::new(plan, Some(sql)))).map_err(engine)?;
        }
        Ok(Query { context, limits })
    }

    /// The keeper of the engine's temporary files. It removes them with the session; who ends the program before that does it instead.
    #[must_use]
    pub fn temporary_files(&self) -> Arc<DiskManager> {
        Arc::clone(&self.context.runtime_env().disk_manager)
    }

    /// Starts `sql`, one read-only statement, and returns the stream of its result.
    ///
    /// # Errors
    /// If the statement is invalid (the message shows the place), or a table that it reads is damaged.
    pub async fn run(&self, sql: &str, parameters: &Parameters) -> Result<SendableRecordBatchStream, QueryError> {
        let convert = |error: DataFusionError| self.error(&error, sql);
        self.plan(sql, parameters).await.map_err(convert)?.execute_stream().await.map_err(convert)
    }

    /// The logical and physical plans of `sql`, as text, without running it.
    ///
    /// # Errors
    /// If the statement is invalid (the message shows the place).
    pub async fn explain(&self, sql: &str, parameters: &Parameters) -> Result<String, QueryError> {
        let plans = async {
            let rows = self.plan(sql, parameters).await?.explain(false, false)?.collect().await?;
            let mut text = String::new();
            for batch in &rows {
                for row in 0..batch.num_rows() {
                    let cell = |column: usize| array_value_to_string(batch.column(column), row);
                    text.push_str(&format!("{}:\n{}\n", cell(0)?, cell(1)?));
                }
            }
            Ok::<String, DataFusionError>(text)
        };
        plans.await.map_err(|error: DataFusionError| self.error(&error, sql))
    }

    /// Converts an error of the engine about `sql` to one with a message for the user.
    #[must_use]
    pub fn error(&self, error: &DataFusionError, sql: &str) -> QueryError {
        QueryError::of_engine(error, sql, self.limits.memory_mib)
    }

    async fn plan(&self, sql: &str, parameters: &Parameters) -> Result<DataFrame, DataFusionError> {
        let reads_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let frame = self.context.sql_with_options(sql, reads_only).await?;
        if parameters.is_empty() {
            return Ok(frame);
        }
        let values: Vec<(String, ScalarValue)> =
            parameters.iter().map(|(name, value)| (name.clone(), ScalarValue::Int64(*value))).collect();
        frame.with_param_values(values)
    }
}
