//! Costs of carrying out fixes. The figures and their sources are those of `numapilot_simulator::Costs`.

/// Nanoseconds to move a page of 4 KiB (`move_pages`, 512 pages per call, 2017 hardware).
pub(crate) const MOVE_SMALL_NS: f64 = 3_900.0;
/// Nanoseconds that a writer loses when its write ends the copies of a page: a fault and a TLB shootdown (estimate).
pub(crate) const COLLAPSE_NS: f64 = 5_000.0;
/// Bytes of a small page.
pub(crate) const PAGE_BYTES: f64 = numapilot_host::PageNumber::BYTES as f64;
/// Bytes per second at which memory is copied where the machine does not tell its bandwidth: that of `move_pages` above.
pub(crate) const COPY_BYTES_PER_S: f64 = PAGE_BYTES / MOVE_SMALL_NS * 1e9;
