//! How long the scan period has been short.

use std::time::Duration;
use std::time::Instant;

/// The scan period, and how long it has been short.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    pub(super) may: bool,
    pub(super) fast_since: Option<Instant>,
    pub(super) fast: Duration,
    pub(super) asked_at: Option<Instant>,
    /// The delay before the first scan is still shortened.
    pub(super) is_young: bool,
}
