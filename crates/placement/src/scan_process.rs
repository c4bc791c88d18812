//! How far the scans of a process have come: the kernel's state in `mm_struct`, whichever memory a scan unmaps.

use numapilot_host::PageNumber;

/// State of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScannedProcess {
    /// Program time from which on the next scan may begin (`numa_next_scan`).
    pub next_scan_ns: u64,
    /// Next page to scan, over 4,096.
    pub offset: PageNumber,
    /// Completed passes over the address space (`numa_scan_seq`).
    pub passes: u64,
    /// Mapped pages of 4 KiB, taken for the resident ones.
    pub resident: u64,
}

impl ScannedProcess {
    /// One that was first seen at a time, and is not scanned for a while.
    pub fn new(start_ns: u64, delay_ms: u64) -> ScannedProcess {
        ScannedProcess { next_scan_ns: start_ns + delay_ms * 1_000_000, ..ScannedProcess::default() }
    }

    /// Whether a task of this period scans now; then no other does before the period has passed.
    pub fn begins_scan(&mut self, now_ns: u64, period_ms: u64) -> bool {
        let is_due = now_ns >= self.next_scan_ns;
        if is_due {
            self.next_scan_ns = now_ns + period_ms.max(1) * 1_000_000;
        }
        is_due
    }

    /// All of its memory has been scanned.
    pub fn end_pass(&mut self) {
        self.passes += 1;
        self.offset = PageNumber::default();
    }
}
