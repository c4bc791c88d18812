//! The arguments of `numapilot query`.

use std::path::PathBuf;

use clap::Parser;
use numapilot_query::elsewhere::QueryEngine;
use numapilot_query::output::Format;

/// Ask a trace, or a fleet of traces, in SQL
#[derive(Debug, Parser)]
#[command(name = "numapilot query", bin_name = "numapilot query", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    /// The trace, or a fleet: a folder with traces in host=HOST/run=RUN/
    #[arg(value_name = "TRACE|FLEET", required_unless_present = "list")]
    pub trace: Option<PathBuf>,
    /// The query, one read-only statement; without SQL, --run and --file, it is read from standard input
    #[arg(value_name = "SQL", conflicts_with_all = ["run", "file"])]
    pub sql: Option<String>,
    /// Run a ready-made query (--list names them)
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub run: Option<String>,
    /// Read the query from this file (`-`: standard input)
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Set a parameter of the query, $NAME
    #[arg(long, value_name = "NAME=NUMBER", value_parser = parameter)]
    pub set: Vec<(String, Option<i64>)>,
    /// List the ready-made queries and the views
    #[arg(long)]
    pub list: bool,
    /// Format of the result [default: by the extension of -o FILE, else table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Write the result to this file (`-`: standard output); the file appears when it is complete
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show at most this many rows in a table
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    pub rows: usize,
    /// Show the query plan without running the query
    #[arg(long)]
    pub explain: bool,
    /// Print the statements that define the same tables and views in another engine
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = ["sql", "run", "file", "explain"])]
    pub views_for: Option<QueryEngine>,
    /// Memory limit of the query [default: half of this machine's, or of the control group's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub memory: Option<u64>,
    /// Worker threads of the query engine [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  numapilot query --list
  numapilot query app.numatrace --run types
  numapilot query app.numatrace --run pattern --set site=3 --format csv
  numapilot query app.numatrace 'describe oef'
  numapilot query app.numatrace \"select name, sum(weight) from oef where is_remote group by name order by 2 desc\"
  numapilot query app.numatrace -o remote.parquet 'select * from tef where is_remote'
  numapilot query /srv/fleet --run fleet-types
  numapilot query /srv/fleet \"select run, sum(weight) from tef where host = 'web1' group by run\"
  numapilot query app.numatrace --views-for duckdb >views.sql

A row of tef and oef is one sample: it stands for `weight` memory accesses, so sum weights (docs/query.md).";

/// Parses `NAME=NUMBER`; an empty number is null.
fn parameter(text: &str) -> Result<(String, Option<i64>), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=NUMBER")?;
    let name = name.trim().trim_start_matches('$');
    if name.is_empty() {
        return Err("write NAME=NUMBER".to_owned());
    }
    let value = match value.trim() {
        "" => None,
        // Sites are S3 in reports.
        number => Some(number.trim_start_matches('S').parse().map_err(|_| format!("`{number}` is not a number"))?),
    };
    Ok((name.to_owned(), value))
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("give a number from 1 to 1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn parameters_are_numbers_or_null() {
        assert_eq!(parameter("site=S3"), Ok(("site".to_owned(), Some(3))));
        assert_eq!(parameter("$object=17"), Ok(("object".to_owned(), Some(17))));
        assert_eq!(parameter("site="), Ok(("site".to_owned(), None)));
        for wrong in ["site", "=3", "site=x", "site=3.5"] {
            assert!(parameter(wrong).is_err(), "{wrong}");
        }
    }
}
