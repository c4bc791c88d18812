//! A CSV file while it is written, cell by cell.

use std::io::Write;

use numapilot_text::csv::append_text;

use crate::export::ExportError;

/// A sheet while it is written, cell by cell.
pub(super) struct Sheet<'a> {
    out: &'a mut dyn Write,
    line: String,
    is_first: bool,
}

impl<'a> Sheet<'a> {
    pub fn new(out: &'a mut dyn Write) -> Sheet<'a> {
        Sheet { out, line: String::new(), is_first: true }
    }

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
        append_text(&mut self.line, text);
    }

    /// Adds three cells: value, low and high end of the interval.
    pub fn estimate(&mut self, estimate: &numapilot_insight::Estimate) {
        self.plain(estimate.value);
        self.plain(estimate.low);
        self.plain(estimate.high);
    }

    /// Adds three cells of a share; empty ones where it is a share of nothing.
    pub fn share(&mut self, share: &numapilot_insight::Estimate) {
        self.maybe_estimate(Some(share).filter(|share| !share.is_share_of_nothing()));
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
        let mut sheet = Sheet::new(&mut out);
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
}
