//! What became of a recording's samples.

use numapilot_perf::{SampleId, SideBand};
use numapilot_text::units;

/// Counts of a recording's samples by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples in the file, or in the rings.
    pub samples: u64,
    /// Samples that became accesses.
    pub accesses: u64,
    /// Samples without a data address: the instruction accesses no memory, or the event records no address.
    pub without_address: u64,
    /// Samples of accesses by guests of the machine, whose addresses are not those of the process that runs them.
    pub of_guests: u64,
    /// Samples of accesses to kernel memory.
    pub kernel_addresses: u64,
    /// Samples of accesses to addresses beyond those that the trace's format holds (2^48).
    pub beyond_addresses: u64,
    /// Samples without a thread id, or with one that names no thread.
    pub without_thread: u64,
    /// Samples of the tracker's own code, which are not the program's.
    pub trackers: u64,
    /// Samples of events that do not sample memory accesses.
    pub other_events: u64,
    /// Samples of accesses to device registers, which are not memory.
    pub device: u64,
    /// Accesses that the core's own caches answered: L1, L2, line fill buffer.
    pub core_cached: u64,
    /// Accesses that a cache answered that the cores of a node share (L3).
    pub shared_cached: u64,
    /// Accesses that another core's cache answered (cache-to-cache transfers).
    pub transfers: u64,
    /// Transfers that are known to come from another node.
    pub transfers_other_node: u64,
    /// Transfers that are known to come from the accessing node.
    pub transfers_own_node: u64,
    /// Accesses whose sample does not say which level answered.
    pub level_unknown: u64,
    /// Accesses of events whose period counts something else (cycles), so that the number of accesses that each represents is unknown.
    pub of_unknown_weight: u64,
    /// Accesses that each represent more than a trace's weight can say (2^32 - 1), and count as that many.
    pub of_more_weight: u64,
    /// Accesses of operations that did not retire (SPE samples those, too).
    pub not_retired: u64,
    /// Accesses whose latency is known.
    pub with_latency: u64,
    /// Accesses whose home node is known.
    pub with_home: u64,
    /// Accesses whose home node was derived from the page's first touch.
    pub home_by_first_touch: u64,
    /// Home nodes that the kernel reported (`move_pages`).
    pub home_by_query: u64,
    /// Page faults among the samples.
    pub faults: u64,
    /// Accesses whose CPU is known.
    pub with_cpu: u64,
    /// Accesses whose CPU was derived from the event's id.
    pub cpu_by_id: u64,
    /// Accesses whose call stacks are in records of their own, which are not read.
    pub deferred_stacks: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
    /// Places at which the recording is damaged.
    pub damaged_places: u64,
    /// Bytes skipped at damaged places.
    pub damaged_bytes: u64,
    /// Whole records among the skipped bytes, as far as their ends were known.
    pub damaged_records: u64,
    /// Records that were lost because perf or the recorder could not keep up.
    pub lost: u64,
    /// Samples that the filter of perf's user dropped (`perf record --filter`).
    pub filtered: u64,
    /// Times that the kernel slowed sampling down.
    pub throttled: u64,
    /// AUX buffers that were truncated or had collisions.
    pub aux_flagged: u64,
    /// Bytes of AUX traces that were not decoded: of another format, or not a whole record.
    pub aux_bytes_unread: u64,
}

impl Counts {
    /// A note on samples of guests; `None`: there are none.
    pub fn guests_note(&self) -> Option<String> {
        (self.of_guests > 0).then(|| {
            format!(
                "{} of virtual machines that ran here, and left out: the addresses of a virtual machine are not those of this machine's programs; record \
                 inside of the virtual machine",
                units::counted(self.of_guests, "sample is", "samples are")
            )
        })
    }

    /// A note on samples that the trace cannot hold; `None`: there are none.
    pub fn beyond_note(&self) -> Option<String> {
        let count = self.beyond_addresses;
        let words = "samples access addresses of more than 48 bits, which a trace cannot hold, and are left out";
        (count > 0).then(|| format!("{count} {words}"))
    }

    /// A note on samples that stand for more accesses than a trace can say; `None`: there are none.
    pub fn weight_note(&self) -> Option<String> {
        (self.of_more_weight > 0).then(|| {
            format!(
                "{} for more than {} accesses each, the most that a trace can hold, so that shares of threads, objects and nodes with such samples are too \
                 low; record with a shorter period or a higher frequency",
                units::counted(self.of_more_weight, "sample stands", "samples stand"),
                u32::MAX
            )
        })
    }

    /// A note on accesses that the program's own instructions did not make in the end; `None`: there are none.
    pub fn retired_note(&self) -> Option<String> {
        (self.not_retired > 0).then(|| {
            format!(
                "{} of {} sampled accesses are of operations that did not retire (on the path of a mispredicted branch, say): they used caches and memory, but \
                 their addresses may be none that the program means",
                self.not_retired, self.accesses
            )
        })
    }

    /// A note on samples whose weight is unknown; `None`: there are none.
    pub fn cycles_note(&self) -> Option<String> {
        (self.of_unknown_weight > 0).then(|| {
            format!(
                "{} samples of accesses were taken with a period in cycles: the number of accesses that each represents is unknown, so each counts as one",
                self.of_unknown_weight
            )
        })
    }

    /// A note on call stacks that are in records of their own; `None`: there are none.
    pub fn stacks_note(&self) -> Option<String> {
        (self.deferred_stacks > 0).then(|| {
            format!(
                "the call stacks of {} are in records of their own, which numapilot does not read (`--call-graph fp,defer`): of these only the accessing \
                 function is known; record with `--call-graph fp`",
                units::counted(self.deferred_stacks, "access", "accesses")
            )
        })
    }

    /// A note on samples that the user's filter dropped; `None`: there are none.
    pub fn filtered_note(&self) -> Option<String> {
        (self.filtered > 0).then(|| {
            format!(
                "the filter of the recording (`perf record --filter`) dropped {}: what they would have shown is missing, so shares are only of what the filter \
                 let pass, and total access counts are not available",
                units::counted(self.filtered, "sample", "samples")
            )
        })
    }

    /// A note on sampling that the kernel slowed down; `None`: it did not.
    pub fn throttling_note(&self) -> Option<String> {
        (self.throttled > 0).then(|| {
            let times = units::counted(self.throttled, "time", "times");
            format!("the kernel slowed sampling down {times}: shares over time are skewed there")
        })
    }
}

/// Counts of one event's samples by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of samples.
    pub samples: u64,
    /// Those that are memory accesses (or page faults), with an address in memory of the program or without.
    pub accesses: u64,
    /// Sum of their periods: events for which they stand.
    pub period: u64,
}

/// Losses as records tell of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Records that found no room in a ring, as the ring itself tells once there is room.
    told: u64,
    /// The same as the events' own counts have them at the end, which perf reads (since Linux 6.0) and writes without a time.
    summed: u64,
    /// Samples that the processor lost.
    by_hardware: u64,
}

impl Losses {
    /// Takes a record into account; all losses so far.
    pub fn take(&mut self, record: &SideBand<'_>, id: &SampleId) -> u64 {
        let (total, count) = match record {
            SideBand::Lost { count, .. } => (&mut self.told, *count),
            SideBand::LostSamples { count } if id.time == Some(0) => (&mut self.summed, *count),
            SideBand::LostSamples { count } => (&mut self.by_hardware, *count),
            _ => return self.all(),
        };
        *total = total.saturating_add(count);
        self.all()
    }

    /// Both counts of full rings are of the same records (`perf_output_begin`): the ring's own lacks what was lost last, the events' what older kernels lost.
    fn all(&self) -> u64 {
        self.told.max(self.summed).saturating_add(self.by_hardware)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// perf since 6.1 writes what full rings lost twice: `record__read_lost_samples` in `tools/perf/builtin-record.c`.
    #[test]
    fn what_a_full_ring_lost_counts_once() {
        let at = |time| SampleId { time: Some(time), ..SampleId::default() };
        let mut losses = Losses::default();
        losses.take(&SideBand::Lost { id: 1, count: 10 }, &at(100));
        losses.take(&SideBand::Lost { id: 1, count: 5 }, &at(200));
        // Of two events on two CPUs: more than the rings have told, as their last losses found no room either.
        assert_eq!(losses.take(&SideBand::LostSamples { count: 12 }, &at(0)), 15);
        assert_eq!(losses.take(&SideBand::LostSamples { count: 6 }, &at(0)), 18);
        // `perf_log_lost_samples`: PEBS records that the kernel could not tell apart.
        assert_eq!(losses.take(&SideBand::LostSamples { count: 3 }, &at(300)), 21);
        assert_eq!(losses.take(&SideBand::FinishedRound, &at(0)), 21);
    }
}
