//! A program's demand on memory, as far as placement is concerned: groups of threads, groups of pages, and how much of what each group of threads
//! accesses in each phase.

use numapilot_machine::NodeIndex;
use serde::{Deserialize, Serialize};

use crate::error::PlacementError;
use crate::nodes::NodeFacts;

/// Bytes of a page, the unit in which placements are counted.
pub(crate) const PAGE_BYTES: u64 = numapilot_host::PageNumber::BYTES;
/// Tolerance of the sum of shares, which should be 1.
const SHARE_TOLERANCE: f64 = 1e-6;

/// A program's demand. Phases follow one another; each ends when all its work is done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Groups of alike threads.
    pub threads: Vec<ThreadGroup>,
    /// Groups of alike pages.
    pub pages: Vec<PageGroup>,
    /// Phases of the program, in order.
    pub phases: Vec<Phase>,
}

/// Threads that run on one node and behave alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroup {
    /// Node on which they run.
    pub node: NodeIndex,
    /// Number of threads in the group.
    pub threads: f64,
}

/// Pages that are accessed alike, such as an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageGroup {
    /// Size in bytes; counted in whole pages of 4 KiB.
    pub bytes: u64,
    /// Share of its pages that first touch puts on each node, by index; sums to 1.
    pub first_touch: Vec<f64>,
}

impl PageGroup {
    /// Pages of 4 KiB that it has; at least one.
    pub fn page_count(&self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES).max(1)
    }
}

/// A stretch of time between two barriers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Work of each group of threads, in the order of the groups.
    pub work: Vec<Work>,
}

/// Work of one group of threads in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Memory accesses that all its threads together make; 0: it waits for the others.
    pub accesses: f64,
    /// Memory accesses that one thread keeps outstanding, on average.
    pub outstanding: f64,
    /// Nanoseconds of a thread's own work per memory access.
    pub think_ns: f64,
    /// Share of the accesses that read from each group of pages.
    pub reads: Vec<f64>,
    /// Share that writes to each. `reads` and `writes` together sum to 1 (if there are accesses).
    pub writes: Vec<f64>,
}

impl Demand {
    /// Whether a group of pages is read and never written in a phase.
    pub fn is_read_only(&self, phase: usize, pages: usize) -> bool {
        self.phases[phase].work.iter().all(|w| w.accesses <= 0.0 || w.writes[pages] <= 0.0)
    }

    /// Checks that everything fits together on this machine.
    pub(crate) fn check(&self, facts: &NodeFacts) -> Result<(), PlacementError> {
        let nodes = facts.count();
        for (index, group) in self.threads.iter().enumerate() {
            let place = format!("threads[{index}]");
            let can_run = facts.cpus.get(group.node.0).is_some_and(|&cpus| cpus > 0);
            ensure(
                can_run,
                &place,
                || format!("node {} has no CPUs, or does not exist", group.node.0),
                "name the index of a node with CPUs",
            )?;
            ensure(is_amount(group.threads), &place, || format!("{} threads", group.threads), "give a number from 0")?;
        }
        for (index, group) in self.pages.iter().enumerate() {
            let place = format!("pages[{index}].first_touch");
            let is_complete = group.first_touch.len() == nodes && group.first_touch.iter().all(|s| is_amount(*s));
            ensure(
                is_complete,
                &place,
                || format!("{:?}", group.first_touch),
                &format!("give {nodes} shares from 0, one per node"),
            )?;
            let sum: f64 = group.first_touch.iter().sum();
            ensure(
                (sum - 1.0).abs() <= SHARE_TOLERANCE,
                &place,
                || format!("shares sum to {sum}"),
                "make them sum to 1",
            )?;
        }
        for (index, phase) in self.phases.iter().enumerate() {
            let counts = (phase.work.len(), self.threads.len());
            let place = format!("phases[{index}].work");
            ensure(
                counts.0 == counts.1,
                &place,
                || format!("{} entries for {} groups of threads", counts.0, counts.1),
                "give one for each",
            )?;
            for (group, work) in phase.work.iter().enumerate() {
                self.check_work(work, self.threads[group].threads, &format!("{place}[{group}]"))?;
            }
        }
        Ok(())
    }

    fn check_work(&self, work: &Work, threads: f64, place: &str) -> Result<(), PlacementError> {
        ensure(is_amount(work.accesses), place, || format!("{} accesses", work.accesses), "give a number from 0")?;
        if work.accesses == 0.0 {
            return Ok(());
        }
        ensure(
            threads > 0.0,
            place,
            || format!("{} accesses of a group without threads", work.accesses),
            "give the group threads, or no accesses",
        )?;
        let is_sound = work.outstanding.is_finite() && work.outstanding > 0.0 && is_amount(work.think_ns);
        let figures = || format!("outstanding {}, think_ns {}", work.outstanding, work.think_ns);
        ensure(is_sound, place, figures, "give outstanding above 0 and think_ns from 0")?;
        let is_complete = work.reads.len() == self.pages.len() && work.writes.len() == self.pages.len();
        let lengths =
            || format!("{} and {} shares of {} groups of pages", work.reads.len(), work.writes.len(), self.pages.len());
        ensure(is_complete, place, lengths, "give reads and writes one share for each group of pages")?;
        let shares = || work.reads.iter().chain(&work.writes);
        let sum: f64 = shares().sum();
        let adds_up = shares().all(|s| is_amount(*s)) && (sum - 1.0).abs() <= SHARE_TOLERANCE;
        ensure(
            adds_up,
            place,
            || format!("shares sum to {sum}"),
            "make reads and writes together sum to 1, each from 0",
        )
    }
}

fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn ensure(holds: bool, place: &str, what: impl FnOnce() -> String, remedy: &str) -> Result<(), PlacementError> {
    if holds {
        return Ok(());
    }
    Err(PlacementError::Demand { place: place.to_owned(), what: what(), remedy: remedy.to_owned() })
}
