//! The text of a description, for messages with lines.

use std::ops::Range;

use crate::error::SimulatorError;

/// A description and what errors call it.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a str,
}

impl Source<'_> {
    pub(super) fn error(&self, span: Range<usize>, why: impl Into<String>) -> SimulatorError {
        let line = self.text.bytes().take(span.start).filter(|&byte| byte == b'\n').count() + 1;
        SimulatorError::Description { file: self.file.to_owned(), line, why: why.into() }
    }
}
