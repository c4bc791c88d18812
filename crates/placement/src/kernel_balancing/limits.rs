//! How fast memory may be scanned.

/// The kernel's settings in debugfs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimits {
    pub delay_ms: u64,
    pub period_min_ms: u64,
    pub period_max_ms: u64,
    pub size_mb: u64,
    pub ns_per_page: u64,
}
