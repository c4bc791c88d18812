//! Tables as CSV (RFC 4180): one header, CRLF, quotes where they are needed. Field names carry their units, as in the JSON report; an
//! estimate takes three columns, `x`, `x_low` and `x_high`; unknown is empty.
//!
//! Text that a spreadsheet would take for a formula gets an apostrophe in front: names come from programs, and may be hostile.

mod rows;
mod tables;

use std::io::Write;

use super::{Export, ExportError};

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
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 12] = [
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
    let sheet = &mut Sheet { out: &mut out, line: String::new(), is_first: true };
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
    }?;
    out.flush()?;
    Ok(())
}

/// A sheet while it is written, cell by cell.
pub(super) struct Sheet<'a> {
    out: &'a mut dyn Write,
    line: String,
    is_first: bool,
}

impl Sheet<'_> {
    /// Writes the header line.
    pub fn header<S: AsRef<str>>(&mut self, names: impl IntoIterator<Item = S>) -> Result<(), ExportError> {
        for name in names {
            self.separate();
            self.line.push_str(name.as_ref());
        }
        self.end()
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.line.push(',');
        }
        self.is_first = false;
    }

    /// A number, or a word of ours.
    pub fn plain(&mut self, value: impl std::fmt::Display) {
        use std::fmt::Write as _;
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{value}");
    }

    /// Adds a cell with a number, or an empty one.
    pub fn maybe(&mut self, value: Option<impl std::fmt::Display>) {
        match value {
            Some(value) => self.plain(value),
            None => self.separate(),
        }
    }

    /// Adds a cell with text, which may come from the program.
    pub fn text(&mut self, text: &str) {
        self.separate();
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        let mark = if is_formula { "'" } else { "" };
        if text.contains(['"', ',', '\r', '\n']) {
            self.line.push('"');
            self.line.push_str(mark);
            self.line.push_str(&text.replace('"', "\"\""));
            self.line.push('"');
        } else {
            self.line.push_str(mark);
            self.line.push_str(text);
        }
    }

    /// Adds three cells: value, low and high end of the interval.
    pub fn estimate(&mut self, estimate: &numapilot_insight::Estimate) {
        self.plain(estimate.value);
        self.plain(estimate.low);
        self.plain(estimate.high);
    }

    /// Three cells, or three empty ones.
    pub fn maybe_estimate(&mut self, estimate: Option<&numapilot_insight::Estimate>) {
        match estimate {
            Some(estimate) => self.estimate(estimate),
            None => (0..3).for_each(|_| self.separate()),
        }
    }

    /// Ends the line and writes it.
    pub fn end(&mut self) -> Result<(), ExportError> {
        self.line.push_str("\r\n");
        self.out.write_all(self.line.as_bytes())?;
        self.line.clear();
        self.is_first = true;
        Ok(())
    }
}

/// The column names of an estimate: `share`, `share_low`, `share_high`.
pub(super) fn three(name: &str) -> [String; 3] {
    [name.to_owned(), format!("{name}_low"), format!("{name}_high")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_are_only_text() {
        let mut out = Vec::new();
        let mut sheet = Sheet { out: &mut out, line: String::new(), is_first: true };
        sheet.header(["a", "b"]).expect("memory");
        for text in ["plain", "a,b", "say \"x\"", "two\nlines", "=1+1", "-2", "@x,\"y\"", ""] {
            sheet.text(text);
        }
        sheet.plain(-1.5);
        sheet.maybe(None::<u32>);
        sheet.end().expect("memory");
        let expected = "a,b\r\nplain,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",'=1+1,'-2,\"'@x,\"\"y\"\"\",,-1.5,\r\n";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
    }

    #[test]
    fn every_table_has_a_name_of_its_own() {
        assert!(Table::ALL.into_iter().all(|table| Table::from_word(table.word()) == Some(table)));
        assert_eq!(Table::from_word("nonsense"), None);
    }
}
