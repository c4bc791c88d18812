//! How fast NUMA balancing may scan memory: the kernel's settings, with the kernel's bounds (`kernel/sched/fair.c`).

use numapilot_host::PageNumber;

use crate::error::PlacementError;
use crate::options::{OptionInfo, Options};

/// Never more than this many MiB per second (`MAX_SCAN_WINDOW`).
const MAX_SCAN_MB_PER_S: u64 = 2560;
/// Pages of 4 KiB in a MiB.
const PAGES_PER_MB: u64 = (1 << 20) / PageNumber::BYTES;
/// A task runs this many times as long as its scan took before it scans again (`task_numa_work`: "to limit NUMA PTE scanning overhead to 3% max").
pub(crate) const RUN_PER_SCAN: u64 = 32;
/// Two scheduler ticks in nanoseconds, at 250 per second: what keeps one task from doing all scans of its process.
pub(crate) const TWO_TICKS_NS: u64 = 8_000_000;

/// The kernel's settings in debugfs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimits {
    pub delay_ms: u64,
    pub period_min_ms: u64,
    pub period_max_ms: u64,
    pub size_mb: u64,
    pub ns_per_page: u64,
}

impl ScanLimits {
    pub const DELAY: OptionInfo = OptionInfo::new(
        "scan-delay-ms",
        "1000",
        "milliseconds before a process is first scanned (numa_balancing/scan_delay_ms)",
    );
    pub const PERIOD_MIN: OptionInfo = OptionInfo::new(
        "scan-period-min-ms",
        "1000",
        "shortest time to scan a task's memory once, milliseconds (scan_period_min_ms)",
    );
    pub const PERIOD_MAX: OptionInfo = OptionInfo::new(
        "scan-period-max-ms",
        "60000",
        "longest time to scan a task's memory once, milliseconds (scan_period_max_ms)",
    );
    pub const SIZE: OptionInfo = OptionInfo::new("scan-size-mb", "256", "MiB unmapped in one scan (scan_size_mb)");
    pub const NS_PER_PAGE: OptionInfo = OptionInfo::new(
        "scan-ns-per-page",
        "76",
        "nanoseconds that unmapping a page of 4 KiB takes; a task runs 32 times as long as it scanned before it scans again",
    );

    /// Reads them off the options, which are those above.
    pub fn new(options: &Options) -> Result<Self, PlacementError> {
        let limits = Self {
            delay_ms: options.whole(Self::DELAY.key, 0, 3_600_000)?,
            period_min_ms: options.whole(Self::PERIOD_MIN.key, 1, 3_600_000)?,
            period_max_ms: options.whole(Self::PERIOD_MAX.key, 1, 3_600_000)?,
            size_mb: options.whole(Self::SIZE.key, 1, 1 << 20)?,
            ns_per_page: options.whole(Self::NS_PER_PAGE.key, 0, 1_000_000_000)?,
        };
        if limits.period_max_ms < limits.period_min_ms {
            let what = format!("{} is below scan-period-min-ms, {}", limits.period_max_ms, limits.period_min_ms);
            return Err(options.bad("scan-period-max-ms", what, "give at least that".to_owned()));
        }
        Ok(limits)
    }

    /// Pages of 4 KiB that one scan unmaps at most.
    pub fn piece_pages(&self) -> u64 {
        self.size_mb * PAGES_PER_MB
    }

    /// Pieces that so much memory has, in pages of 4 KiB (`task_nr_scan_windows`).
    pub fn windows(&self, resident_pages: u64) -> u64 {
        resident_pages.div_ceil(self.piece_pages()).max(1)
    }

    /// Shortest period between scans of a task with so much memory, in milliseconds (`task_scan_min`).
    pub fn shortest_ms(&self, resident_pages: u64) -> u64 {
        let floor = 1000 / (MAX_SCAN_MB_PER_S / self.size_mb).max(1);
        (self.period_min_ms / self.windows(resident_pages)).max(floor)
    }
}
