//! Defines the same tables and views in other engines: the statements by which DuckDB, Spark and Polars read a trace or a fleet.

use std::fmt::Write;
use std::path::Path;

use numapilot_trace::tables::{AccessColumns, Table, all_tables};

use crate::source::Source;
use crate::table::ROW;
use crate::views;

/// A query engine that can read the tables itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum QueryEngine {
    /// SQL for DuckDB
    Duckdb,
    /// Python for Spark, which uses a session `spark`
    Spark,
    /// Python for Polars, which makes an SQLContext `ctx`
    Polars,
}

/// The statements that define the tables and views of `source` in that engine.
#[must_use]
pub fn text(engine: QueryEngine, source: &Source) -> String {
    match engine {
        QueryEngine::Duckdb => duckdb(source),
        QueryEngine::Spark => spark(source),
        QueryEngine::Polars => polars(source),
    }
}

/// The files of a table: one pattern, or, where that would match runs without a `meta.json`, those of the complete runs. Such a run may have some tables and
/// lack others, so what the engines count of it would fit neither itself nor our answers.
fn files(engine: QueryEngine, source: &Source, table: &str) -> Vec<String> {
    let file = |folder: &Path, between: &str| {
        let folder = folder.display().to_string();
        format!("{}{between}/{table}.parquet", as_pattern(engine, source.is_fleet, &folder))
    };
    let pattern = vec![file(&source.folder, if source.is_fleet { "/host=*/run=*" } else { "" })];
    if source.unfinished.is_empty() {
        return pattern;
    }
    // Older versions of the format lack some tables, for which a pattern finds no file.
    let complete = source.recordings.iter().map(|recording| &recording.folder);
    let complete = complete.filter(|folder| folder.join(format!("{table}.parquet")).exists());
    let complete: Vec<String> = complete.map(|folder| file(folder, "")).collect();
    if complete.is_empty() { pattern } else { complete }
}

/// The pattern that matches this path alone: all engines take paths for patterns, and would read the folder `a1` for one that is called `a[1]`.
fn as_pattern(engine: QueryEngine, is_fleet: bool, path: &str) -> String {
    let mut pattern = String::new();
    for character in path.chars() {
        match (engine, character) {
            // It reads a single trace without patterns.
            (QueryEngine::Polars, _) if !is_fleet => pattern.push(character),
            (QueryEngine::Duckdb | QueryEngine::Polars, '*' | '?' | '[') => pattern.extend(['[', character, ']']),
            (QueryEngine::Spark, '*' | '?' | '[' | ']' | '{' | '}' | '\\') => pattern.extend(['\\', character]),
            _ => pattern.push(character),
        }
    }
    pattern
}

/// One text, or a list of several in brackets.
fn listed(texts: &[String]) -> String {
    match texts {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn duckdb(source: &Source) -> String {
    let mut out = String::new();
    for (name, _) in all_tables() {
        let paths: Vec<String> = files(QueryEngine::Duckdb, source, name).iter().map(|path| quoted(path)).collect();
        let mut options = vec![listed(&paths)];
        if source.is_fleet {
            options.push("hive_partitioning = true, hive_types_autocast = false, union_by_name = true".to_owned());
        }
        let mut columns = "*".to_owned();
        if name == AccessColumns::NAME {
            options.push("file_row_number = true".to_owned());
            columns = format!("* exclude (file_row_number), file_row_number as {ROW}");
        }
        let _ = writeln!(
            out,
            "create or replace view {name} as select {columns} from read_parquet({});",
            options.join(", ")
        );
    }
    for view in views::ALL {
        let _ = writeln!(out, "create or replace view {} as\n{};", view.name, view.query(source.is_fleet));
    }
    out
}

fn spark(source: &Source) -> String {
    // Hosts and runs are strings, even if they look like numbers or dates.
    let mut out = "spark.conf.set(\"spark.sql.sources.partitionColumnTypeInference.enabled\", \"false\")\n".to_owned();
    let base = python_text(&source.folder.display().to_string());
    for (name, _) in all_tables() {
        let mut read = "spark.read".to_owned();
        if source.is_fleet {
            let _ = write!(read, ".option(\"basePath\", {base})");
        }
        let paths: Vec<String> = files(QueryEngine::Spark, source, name).iter().map(|path| python_text(path)).collect();
        let _ = write!(read, ".parquet({})", paths.join(", "));
        if name == AccessColumns::NAME {
            // The row index is available only where the files are read, not through a view.
            let _ = write!(read, ".selectExpr(\"*\", \"_metadata.row_index as {ROW}\")");
        }
        let _ = writeln!(out, "{read}.createOrReplaceTempView(\"{name}\")");
    }
    for view in views::ALL {
        let _ = writeln!(
            out,
            "spark.sql(\"\"\"\n{}\n\"\"\").createOrReplaceTempView(\"{}\")",
            view.query(source.is_fleet),
            view.name
        );
    }
    out
}

fn polars(source: &Source) -> String {
    let mut out = "import polars as pl\n\nctx = pl.SQLContext()\n".to_owned();
    for (name, _) in all_tables() {
        let paths: Vec<String> =
            files(QueryEngine::Polars, source, name).iter().map(|path| python_text(path)).collect();
        let path = listed(&paths);
        let mut scan = match source.is_fleet {
            true => format!(
                "pl.scan_parquet({path}, hive_partitioning=True, hive_schema={{\"host\": pl.String, \"run\": pl.String}})"
            ),
            false => format!("pl.scan_parquet({path}, glob=False)"),
        };
        if name == AccessColumns::NAME {
            let row = if source.is_fleet {
                "pl.int_range(pl.len()).over(\"host\", \"run\")"
            } else {
                "pl.int_range(pl.len())"
            };
            let _ = write!(scan, ".with_columns({row}.alias(\"{ROW}\"))");
        }
        let _ = writeln!(out, "ctx.register(\"{name}\", {scan})");
    }
    for view in views::ALL {
        let _ = writeln!(
            out,
            "ctx.register(\"{}\", ctx.execute(\"\"\"\n{}\n\"\"\"))",
            view.name,
            view.query(source.is_fleet)
        );
    }
    out
}

fn python_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_no_patterns() {
        let path = "/a[1]*?{b}\\c";
        assert_eq!(as_pattern(QueryEngine::Duckdb, false, path), "/a[[]1][*][?]{b}\\c");
        assert_eq!(as_pattern(QueryEngine::Polars, true, path), "/a[[]1][*][?]{b}\\c");
        assert_eq!(as_pattern(QueryEngine::Polars, false, path), path);
        assert_eq!(as_pattern(QueryEngine::Spark, true, path), "/a\\[1\\]\\*\\?\\{b\\}\\\\c");
    }
}
