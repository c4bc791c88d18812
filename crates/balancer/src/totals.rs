//! What the loop has done and used since its start: in its status, and at the end of its journal.

use numapilot_host::ProcessPages;
use numapilot_host::Root;
use numapilot_kernel::actuator::PageOutcomes;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::inherited;
use serde::Deserialize;
use serde::Serialize;

use crate::page_groups;

/// Totals since the start; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// A journal of an older version lacks the newer totals.
#[serde(default)]
pub struct Counters {
    /// Observations made.
    pub observations: u64,
    /// Decisions that ordered something.
    pub decisions: u64,
    /// Sampled accesses.
    pub samples: u64,
    /// Samples lost.
    pub samples_lost: u64,
    /// Number of hinting faults.
    pub hint_faults: u64,
    /// Uses of file pages that processes only read, as the kernel reports them (`--replicate`).
    pub file_uses: u64,
    /// Pages by the outcome of their orders, without undo actions.
    #[serde(with = "page_groups")]
    pub pages: PageOutcomes,
    /// Pages moved back.
    pub pages_undone: u64,
    /// Bytes copied between nodes, including undo actions.
    pub moved_bytes: u64,
    /// Bytes that the kernel's own NUMA balancing moved in the same time, for all processes; `None`: the kernel has no such counter.
    pub kernel_moved_bytes: Option<u64>,
    /// Nanoseconds spent on moving.
    pub moving_ns: u64,
    /// Processor time spent in the policy, in nanoseconds.
    pub deciding_ns: u64,
    /// Processor time before the first observation in nanoseconds: opening events, reading the machine, allocating probe buffers.
    pub starting_ns: u64,
    /// Threads moved.
    pub threads_moved: u64,
    /// Comparisons after which changes were kept.
    pub kept: u64,
    /// Comparisons after which changes were undone.
    pub undone: u64,
    /// Ranges excluded from moves because they moved back and forth.
    pub ping_pongs: u64,
    /// Number of times that the loop lengthened its interval.
    pub back_offs: u64,
    /// Decisions of which all or some orders were put off because of memory pressure.
    pub put_offs: u64,
}

/// Resources that the loop itself uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnUse {
    /// Processor time since the start, user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Processor time over the last interval, in percent of one CPU.
    pub cpu_percent: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

impl OwnUse {
    /// Reads the present resource use of this process. `before` is the previous reading and its age in nanoseconds; without it `cpu_percent` is 0.
    #[must_use]
    pub fn now(before: Option<(OwnUse, u64)>) -> OwnUse {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the structure is large enough and plain data; RUSAGE_SELF is always valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let ns = |t: libc::timeval| {
            u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_usec).unwrap_or(0) * 1000
        };
        let cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        let root = Root::default();
        let pages = ProcessPages::read_own(&root).map_or(0, |pages| pages.resident);
        let open_files = inherited::open_files(&root) as u64;
        let share = |cpu: u64, elapsed: u64| if elapsed == 0 { 0.0 } else { 100.0 * cpu as f64 / elapsed as f64 };
        let cpu_percent =
            before.map_or(0.0, |(last, elapsed_ns)| share(cpu_ns.saturating_sub(last.cpu_ns), elapsed_ns));
        OwnUse { cpu_ns, cpu_percent, resident_bytes: pages * page_bytes(), open_files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_an_older_version_are_read() {
        let whole = Counters { samples: 7, kernel_moved_bytes: Some(1), back_offs: 2, ..Counters::default() };
        let text = serde_json::to_value(whole).unwrap();
        for name in text.as_object().unwrap().keys() {
            let mut older = text.clone();
            older.as_object_mut().unwrap().remove(name);
            let read: Counters =
                serde_json::from_value(older).unwrap_or_else(|error| panic!("without {name}: {error}"));
            assert_eq!(read.samples, if name == "samples" { 0 } else { 7 });
        }
        let own: OwnUse = serde_json::from_str("{\"cpu_ns\": 3}").unwrap();
        assert_eq!(own, OwnUse { cpu_ns: 3, ..OwnUse::default() });
    }
}
