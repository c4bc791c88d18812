//! Tables as CSV (RFC 4180): one header, CRLF, quotes where they are needed. Field names carry their units, as in the JSON report; an
//! estimate takes three columns, `x`, `x_low` and `x_high`; unknown is empty.
//!
//! Text that a spreadsheet would take for a formula gets an apostrophe in front: names come from programs, and may be hostile.

mod heap;
mod rows;
mod sheet;
mod tables;

use std::io::Write;

use super::{Export, ExportError};
use sheet::Sheet;

/// A table that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Table {
    Objects,
    Sites,
    Instances,
    Threads,
    Functions,
    Stacks,
    Matrix,
    Links,
    Pages,
    Series,
    Accesses,
    Losses,
    Heap,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 13] = [
        Table::Objects,
        Table::Sites,
        Table::Instances,
        Table::Threads,
        Table::Functions,
        Table::Stacks,
        Table::Matrix,
        Table::Links,
        Table::Pages,
        Table::Series,
        Table::Accesses,
        Table::Losses,
        Table::Heap,
    ];

    /// The name of the table on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Table::Objects => "objects",
            Table::Sites => "sites",
            Table::Instances => "instances",
            Table::Threads => "threads",
            Table::Functions => "functions",
            Table::Stacks => "stacks",
            Table::Matrix => "matrix",
            Table::Links => "links",
            Table::Pages => "pages",
            Table::Series => "series",
            Table::Accesses => "accesses",
            Table::Losses => "losses",
            Table::Heap => "heap",
        }
    }

    /// The table with this name; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.word() == word)
    }
}

pub(super) fn write(export: &Export<'_>, table: Table, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut out = std::io::BufWriter::with_capacity(256 << 10, out);
    let sheet = &mut Sheet::new(&mut out);
    match table {
        Table::Objects => tables::objects(export, sheet),
        Table::Sites => rows::decisions(export, &export.analysis.sites(), sheet),
        Table::Instances => rows::decisions(export, &export.analysis.objects(None, usize::MAX), sheet),
        Table::Threads => rows::threads(export, sheet),
        Table::Functions => rows::functions(export, sheet),
        Table::Stacks => rows::stacks(export, sheet),
        Table::Matrix => tables::matrix(export, sheet),
        Table::Links => tables::links(export, sheet),
        Table::Pages => tables::pages(export, sheet),
        Table::Series => tables::series(export, sheet),
        Table::Accesses => tables::accesses(export, sheet),
        Table::Losses => tables::losses(export, sheet),
        Table::Heap => heap::sites(export, sheet),
    }?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_name_of_its_own() {
        assert!(Table::ALL.into_iter().all(|table| Table::from_word(table.word()) == Some(table)));
        assert_eq!(Table::from_word("nonsense"), None);
    }
}
