//! Checks pages between Parquet's page reader and its decoders.
//!
//! The decoders reserve memory for as many values as a page's header claims, and an allocation that fails aborts the process. So the claimed count is
//! first checked against the number of values that the page's bytes and the row group can hold.

use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// Fewest bytes of a value in a dictionary (a 32-bit integer, or the length before a text).
const DICTIONARY_VALUE_BYTES: usize = 4;

pub(super) struct CheckedPages {
    pages: Box<dyn PageReader>,
    rows: usize,
}

impl CheckedPages {
    /// `rows`: number of rows in the row group.
    pub(super) fn new(pages: Box<dyn PageReader>, rows: usize) -> Box<CheckedPages> {
        Box::new(CheckedPages { pages, rows })
    }

    fn check(&self, page: Page) -> Result<Page> {
        let values = page.num_values() as usize;
        let most = match &page {
            Page::DictionaryPage { buf, .. } => buf.len() / DICTIONARY_VALUE_BYTES,
            Page::DataPage { .. } | Page::DataPageV2 { .. } => self.rows,
        };
        if values <= most {
            return Ok(page);
        }
        Err(ParquetError::General(format!("a page claims {values} values where at most {most} can be")))
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;
    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.pages.get_next_page()?.map(|page| self.check(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}
