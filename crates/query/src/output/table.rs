//! A table for terminals: columns as wide as their values, numbers aligned right, the first rows, and the number of rows that are not shown.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::ArrayFormatter;
use numapilot_text::terminal::is_unsafe;
use unicode_width::UnicodeWidthStr;

use super::writer::{Sink, WriteError, options};

/// Columns of a value that are shown; longer values are cut.
const WIDEST: usize = 60;

/// Collects the rows, and writes the table at the end.
pub(super) struct TableSink<W> {
    out: W,
    /// Cells by line: the column names first, then the rows.
    lines: Vec<Vec<String>>,
    is_number: Vec<bool>,
    most: usize,
    rows: usize,
}

impl<W: Write> TableSink<W> {
    pub fn new(schema: &SchemaRef, most: usize, out: W) -> TableSink<W> {
        let names = schema.fields().iter().map(|field| shown(field.name())).collect();
        let is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        TableSink { out, lines: vec![names], is_number, most, rows: 0 }
    }
}

impl<W: Write> Sink for TableSink<W> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let room = self.most.saturating_sub(self.rows).min(batch.num_rows());
        self.rows += batch.num_rows();
        let options = options();
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<_, _>>()?;
        for row in 0..room {
            let mut line = Vec::with_capacity(columns.len());
            for column in &columns {
                line.push(shown(&column.value(row).try_to_string()?));
            }
            self.lines.push(line);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let widths: Vec<usize> = (0..self.is_number.len())
            .map(|column| self.lines.iter().map(|line| line[column].width()).max().unwrap_or(0))
            .collect();
        for (index, line) in self.lines.iter().enumerate() {
            let mut text = String::new();
            for (column, value) in line.iter().enumerate() {
                let pad = " ".repeat(widths[column] - value.width());
                let gap = if column > 0 { "  " } else { "" };
                match self.is_number[column] {
                    true => text.extend([gap, &pad, value]),
                    false => text.extend([gap, value, &pad]),
                }
            }
            writeln!(self.out, "{}", text.trim_end())?;
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
                writeln!(self.out, "{}", rule.join("  "))?;
            }
        }
        let more = self.rows - (self.lines.len() - 1);
        if more > 0 {
            let rows = if more == 1 { "row" } else { "rows" };
            writeln!(self.out, "... and {more} more {rows}: --rows N shows more, --format csv shows all")?;
        }
        Ok(self.out.flush()?)
    }
}

/// A value on one line: control characters escaped, long ones cut.
fn shown(value: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for character in value.chars() {
        let piece = match is_unsafe(character) {
            true => character.escape_default().to_string(),
            false => character.to_string(),
        };
        width += piece.width();
        if width > WIDEST {
            text.push('…');
            break;
        }
        text.push_str(&piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_to_their_line() {
        assert_eq!(shown("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown("exe\u{202e}gpj"), "exe\\u{202e}gpj", "not drawn backwards");
        assert_eq!(shown(&"x".repeat(61)).chars().count(), 61);
        assert!(shown(&"漢".repeat(40)).ends_with('…'));
    }
}
