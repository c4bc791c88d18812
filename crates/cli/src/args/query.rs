//! Arguments of `query`. They are those of `numapilot-query`, a program of its own, and are handed to it as they are.

use std::ffi::OsString;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  numapilot query --list                                the ready-made queries and the views
  numapilot query app.numatrace --run types             object types by their accesses
  numapilot query app.numatrace --run types -o types.csv
  numapilot query app.numatrace 'select name, sum(weight) from oef where is_remote group by name order by 2 desc'
  numapilot query /srv/fleet --run fleet-types          traces of many hosts: host=HOST/run=RUN/ (docs/query.md)
  numapilot query app.numatrace --views-for duckdb      the same views for DuckDB

The SQL engine is a separate program, numapilot-query, in the same folder as this one: `make query` builds it. Its --help has every option.")]
pub struct QueryArgs {
    /// Arguments of numapilot-query: TRACE or FLEET, SQL, options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}
