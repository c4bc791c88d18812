//! What is missing from a trace, counted.

/// Counts of what was lost or is unknown, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Losses {
    /// Records dropped because a ring stayed full.
    pub ring_full: u64,
    /// Records dropped because a thread found no slot.
    pub no_slot: u64,
    /// Records not written because recording had stopped (disk full, recorder gone).
    pub stopped: u64,
    /// Records of threads that had already ended, such as the C library's frees of their memory.
    pub after_end: u64,
    /// Stacks dropped because the stack table was full.
    pub stack_table: u64,
    /// Chunks with a wrong checksum, skipped.
    pub damaged_chunks: u64,
    /// Chunks cut off by a crash, at the end of a file.
    pub torn_chunks: u64,
    /// Stacks that ended early because unwinding failed.
    pub failed_unwinds: u64,
    /// Stacks cut at the maximum depth.
    pub truncated_stacks: u64,
    /// Code addresses without a function name.
    pub unresolved_locations: u64,
    /// Sampled accesses that no object covers.
    pub accesses_without_object: u64,
    /// Sampled accesses whose page has no known home.
    pub accesses_without_home: u64,
    /// Frees of addresses at which no block was known (allocated before recording began, or lost).
    pub unmatched_frees: u64,
    /// Records that contradict each other or name ids that do not exist; skipped.
    pub inconsistent_records: u64,
    /// Of an imported recording: records that perf lost or that cannot be decoded, and damaged stretches of any number of records.
    pub unread: u64,
}

impl Losses {
    /// Whether records are missing, so that totals are lower bounds.
    #[must_use]
    pub fn records_lost(&self) -> bool {
        let rings = self.ring_full + self.no_slot + self.stopped + self.after_end;
        rings + self.damaged_chunks + self.torn_chunks + self.unread > 0
    }
}
