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
    /// Records of a signal handler that came into the middle of another record, or of the allocator.
    pub reentrant: u64,
    /// Records without time, because the chunk before them is missing.
    pub no_stamps: u64,
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
        self.records() > 0 || self.damaged_chunks > 0 || self.torn_chunks > 0
    }

    /// How many records are known to be missing; those in damaged and torn chunks are not counted.
    #[must_use]
    pub fn records(&self) -> u64 {
        [self.ring_full, self.no_slot, self.stopped, self.after_end, self.reentrant, self.no_stamps, self.unread]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
