//! The heap by allocation site.

use super::sheet::Sheet;
use crate::export::{Export, ExportError};

/// What each allocation site allocated and freed.
pub fn sites(export: &Export<'_>, sheet: &mut Sheet<'_>) -> Result<(), ExportError> {
    let profile = export.analysis.heap().ok_or(ExportError::NoHeap)?;
    sheet.header([
        "site",
        "name",
        "function",
        "file",
        "line",
        "at_peak_bytes",
        "peak_live_bytes",
        "peak_live_blocks",
        "allocations",
        "reallocations",
        "allocated_bytes",
        "allocations_per_second",
        "bytes_per_second",
        "frees",
        "remote_frees",
        "median_lifetime_ns",
        "left_blocks",
        "left_bytes",
        "allocating_threads",
        "freeing_threads",
    ])?;
    for row in &profile.sites {
        let (site, usage) = (export.trace().site(row.site).cloned().unwrap_or_default(), &row.usage);
        sheet.plain(row.site.0);
        for text in [&site.name, &site.function, &site.file] {
            sheet.text(text);
        }
        sheet.plain(site.line);
        for count in [row.at_peak_bytes, row.peak_live_bytes, row.peak_live_blocks] {
            sheet.plain(count);
        }
        for count in [usage.allocations, usage.reallocations, usage.allocated_bytes] {
            sheet.plain(count);
        }
        sheet.maybe(usage.allocations_per_second);
        sheet.maybe(usage.bytes_per_second);
        sheet.plain(usage.frees);
        sheet.maybe(usage.remote_frees);
        sheet.maybe(usage.median_lifetime_ns);
        for count in [usage.left_blocks, usage.left_bytes, usage.allocating_threads] {
            sheet.plain(count);
        }
        sheet.maybe(usage.freeing_threads);
        sheet.end()?;
    }
    Ok(())
}
