//! A table of a trace or a fleet, as the engine reads it: one Parquet file per trace, each checked against its `meta.json` before it is read, and whether it
//! claims more than our own reader would read: the engine takes as much memory as a file claims.
//!
//! Columns are those of the trace format; a file of an older minor version lacks some, which read as nulls. `accesses` has one more, `access`, the row's
//! number in its file; in a fleet every table has `host` and `run`, from the folders' names. Conditions on these two choose files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::{ObjectMeta, path::Path as StorePath};
use datafusion::parquet::arrow::RowNumber;
use datafusion::physical_plan::{ExecutionPlan, empty::EmptyExec};
use numapilot_host::workers;
use numapilot_trace::tables::schema::{Column, ColumnType};
use numapilot_trace::tables::{AccessColumns, Table};

use crate::source::{PARTITIONS, Recording, Source};

/// The column that numbers the rows of `accesses`.
pub const ROW: &str = "access";

/// One table of a trace or a fleet, as the engine's table provider.
#[derive(Debug)]
pub struct TraceTable {
    name: &'static str,
    columns: &'static [Column],
    source: Arc<Source>,
    schema: TableSchema,
    /// Columns that hold numbers of another table's rows, with that table.
    references: Vec<(&'static str, &'static str)>,
}

impl TraceTable {
    /// The table of this name over `source`.
    #[must_use]
    pub fn new(name: &'static str, columns: &'static [Column], source: Arc<Source>) -> TraceTable {
        let file = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let mut schema = TableSchema::builder(Arc::new(file));
        if source.is_fleet {
            schema = schema.with_table_partition_cols(partition_fields());
        }
        if name == AccessColumns::NAME {
            let row = Field::new(ROW, DataType::Int64, false).with_extension_type(RowNumber);
            schema = schema.with_virtual_columns(vec![Arc::new(row)]);
        }
        let references =
            columns.iter().filter_map(|column| Some((column.name, column.unit.split_once('.')?.0))).collect();
        TraceTable { name, columns, source, schema: schema.build(), references }
    }

    /// The recordings that meet the conditions on host and run.
    fn matching(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<&Recording>> {
        let mut chosen: Vec<&Recording> = self.source.recordings.iter().collect();
        for filter in filters.iter().filter(|filter| self.is_of_partitions(filter)) {
            let schema = Arc::new(Schema::new(partition_fields()));
            let column = |value: fn(&Recording) -> &str| -> ArrayRef {
                Arc::new(chosen.iter().map(|recording| Some(value(recording))).collect::<StringArray>())
            };
            let columns = vec![column(|recording| &recording.host), column(|recording| &recording.run)];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
            let condition = state.create_physical_expr(filter.clone(), &DFSchema::try_from(schema)?)?;
            let passes = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            let passes = passes
                .as_boolean_opt()
                .ok_or_else(|| DataFusionError::Internal(format!("{filter} is no condition")))?;
            let mut next = passes.iter();
            chosen.retain(|_| next.next().flatten() == Some(true));
        }
        Ok(chosen)
    }

    /// How many different values a column has at most: of a number of another table's rows, as many as that table has; of host and run, one per recording.
    /// `None` for others, of which the engine assumes one per row.
    fn most_distinct(&self, column: &str, recordings: &[&Recording]) -> Option<usize> {
        if self.source.is_fleet && PARTITIONS.contains(&column) {
            return Some(recordings.len());
        }
        let (_, table) = self.references.iter().find(|(name, _)| *name == column)?;
        let rows = |recording: &&Recording| recording.reader.meta().tables.get(*table).map_or(0, |info| info.rows);
        // Tables that the query does not read were not checked, and may claim anything.
        Some(recordings.iter().map(rows).fold(0, u64::saturating_add) as usize)
    }

    /// Statistics of all these recordings together. Without the numbers of different values, the engine takes a join of `accesses` with `threads` for one
    /// that has no more rows than `threads`, and keeps it in memory to look the rows of `objects` up in it, instead of the other way round.
    fn statistics(&self, rows: u64, bytes: u64, recordings: &[&Recording]) -> Statistics {
        let schema = self.schema.table_schema();
        let mut all = statistics(schema, rows, bytes);
        for (field, column) in schema.fields().iter().zip(&mut all.column_statistics) {
            if let Some(most) = self.most_distinct(field.name(), recordings) {
                column.distinct_count = Precision::Inexact(most.max(1));
            }
        }
        all
    }

    fn is_of_partitions(&self, filter: &Expr) -> bool {
        let columns = filter.column_refs();
        let all = columns.iter().all(|column| PARTITIONS.contains(&column.name.as_str()));
        self.source.is_fleet && !columns.is_empty() && all && !filter.is_volatile()
    }

    /// The recording's file, checked; `None` where it has no rows.
    fn file(&self, recording: &Recording) -> Result<Option<PartitionedFile>> {
        // Older traces lack the tables that later minor versions added.
        let Some(info) = recording.reader.meta().tables.get(self.name).filter(|info| info.rows > 0) else {
            return Ok(None);
        };
        let checked = recording.reader.checked_for_engines(self.name, self.columns);
        let (path, file, _) = checked.map_err(|error| DataFusionError::External(Box::new(error)))?;
        self.source.reads(&path, &file).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let location =
            StorePath::from_absolute_path(&path).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let object =
            ObjectMeta { location, last_modified: Default::default(), size: info.bytes, e_tag: None, version: None };
        let mut file = PartitionedFile::new_from_meta(object);
        if self.source.is_fleet {
            let values = [&recording.host, &recording.run].map(|value| ScalarValue::from(value.as_str()));
            file = file.with_partition_values(values.to_vec());
        }
        Ok(Some(file.with_statistics(Arc::new(statistics(self.schema.file_schema(), info.rows, info.bytes)))))
    }

    /// The recordings' files, in their order, checked by this many threads: each is read whole.
    fn files(&self, recordings: &[&Recording], threads: usize) -> Vec<Result<Option<PartitionedFile>>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(recording) = recordings.get(at) else { return done };
                done.push((at, self.file(recording)));
            }
        };
        let of_threads = workers::together(threads.min(recordings.len()), work).into_iter();
        let mut files: Vec<_> =
            of_threads.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
        files.sort_by_key(|(at, _)| *at);
        files.into_iter().map(|(_, file)| file).collect()
    }
}

#[async_trait]
impl TableProvider for TraceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let kind = |filter: &&Expr| match self.is_of_partitions(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(kind).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut files = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        let recordings = self.matching(state, filters)?;
        for (recording, file) in recordings.iter().zip(self.files(&recordings, state.config().target_partitions())) {
            if let Some(file) = file? {
                rows += recording.reader.meta().tables[self.name].rows;
                bytes += file.object_meta.size;
                files.push(file);
            }
        }
        if files.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema().project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        // What page indexes and Bloom filters claim is not checked. Our files have none, but for page indexes of the first version's.
        let mut parquet =
            ParquetSource::new(self.schema.clone()).with_enable_page_index(false).with_bloom_filter_on_read(false);
        let others: Vec<Expr> = filters.iter().filter(|filter| !self.is_of_partitions(filter)).cloned().collect();
        if let Some(condition) = others.into_iter().reduce(Expr::and) {
            let schema = DFSchema::try_from(self.schema())?;
            parquet = parquet.with_predicate(state.create_physical_expr(condition, &schema)?);
        }
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(parquet))
            .with_file_groups(groups)
            .with_statistics(self.statistics(rows, bytes, &recordings))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// A file's statistics, from `meta.json`.
fn statistics(schema: &Schema, rows: u64, bytes: u64) -> Statistics {
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Exact(rows as usize);
    statistics.total_byte_size = Precision::Inexact(bytes as usize);
    statistics
}

fn partition_fields() -> Vec<FieldRef> {
    PARTITIONS.map(|name| Arc::new(Field::new(name, DataType::Utf8, false))).to_vec()
}

fn field(column: &Column) -> Field {
    let kind = match column.kind {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::U8 => DataType::UInt8,
        ColumnType::U16 => DataType::UInt16,
        ColumnType::U32 => DataType::UInt32,
        ColumnType::U64 => DataType::UInt64,
        ColumnType::Text => DataType::Utf8View,
    };
    Field::new(column.name, kind, column.nullable)
}
