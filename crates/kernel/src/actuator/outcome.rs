//! What came of requests to move pages: one by one, and counted.

/// Outcome of a request to move a page: the kernel's answer. Policies, which know no kernel, get their own `Refusal` from who asked (the balancer converts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MoveOutcome {
    /// Not tried: the rate limit, a stop or an error came first.
    #[default]
    NotTried,
    /// The page is on the target node now.
    Moved,
    /// The page was on the target node already.
    AlreadyThere,
    /// There is no page: never touched, unmapped, swapped out, or the process has ended.
    Gone,
    /// The kernel or a device was using the page at every try.
    Busy,
    /// The target node has no free memory, or would keep less than [`super::MoveOptions::keep_bytes`].
    NoRoom,
    /// Not permitted: other processes map the page, and the caller may not move such pages (CAP_SYS_NICE); or nothing of the process may be moved.
    NotPermitted,
    /// Not a movable page: the kernel's zero page, device memory, or an address that is not mapped.
    Unmovable,
    /// The kernel refused with another error number (errno).
    Other(i32),
}

impl MoveOutcome {
    /// Every outcome, in the order in which they are shown. `Other(0)` stands for any error number.
    pub const ALL: [MoveOutcome; 9] = [
        MoveOutcome::Moved,
        MoveOutcome::AlreadyThere,
        MoveOutcome::Gone,
        MoveOutcome::Busy,
        MoveOutcome::NoRoom,
        MoveOutcome::NotPermitted,
        MoveOutcome::Unmovable,
        MoveOutcome::Other(0),
        MoveOutcome::NotTried,
    ];

    /// The outcome in words, as `numapilot move` shows it. There, nothing but another process's share of a page is not permitted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MoveOutcome::Moved => "moved",
            MoveOutcome::AlreadyThere => "already there",
            MoveOutcome::Gone => "gone",
            MoveOutcome::Busy => "busy",
            MoveOutcome::NoRoom => "no room",
            MoveOutcome::NotPermitted => "shared",
            MoveOutcome::Unmovable => "not movable",
            MoveOutcome::Other(_) => "other",
            MoveOutcome::NotTried => "not tried",
        }
    }
}

/// Counts of pages by outcome; their sum is the number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageOutcomes {
    /// Pages with outcome [`MoveOutcome::Moved`].
    pub moved: u64,
    /// Pages with outcome [`MoveOutcome::AlreadyThere`].
    pub already_there: u64,
    /// Pages with outcome [`MoveOutcome::Gone`].
    pub gone: u64,
    /// Pages with outcome [`MoveOutcome::Busy`].
    pub busy: u64,
    /// Pages with outcome [`MoveOutcome::NoRoom`].
    pub no_room: u64,
    /// Pages with outcome [`MoveOutcome::NotPermitted`].
    pub not_permitted: u64,
    /// Pages with outcome [`MoveOutcome::Unmovable`].
    pub unmovable: u64,
    /// Pages with outcome [`MoveOutcome::Other`].
    pub other: u64,
    /// Pages with outcome [`MoveOutcome::NotTried`].
    pub not_tried: u64,
}

impl PageOutcomes {
    /// Counts outcomes.
    #[must_use]
    pub fn of(outcomes: &[MoveOutcome]) -> PageOutcomes {
        let mut pages = PageOutcomes::default();
        outcomes.iter().for_each(|outcome| *pages.count_mut(*outcome) += 1);
        pages
    }

    /// The count to which pages with this outcome belong.
    pub fn count_mut(&mut self, outcome: MoveOutcome) -> &mut u64 {
        match outcome {
            MoveOutcome::NotTried => &mut self.not_tried,
            MoveOutcome::Moved => &mut self.moved,
            MoveOutcome::AlreadyThere => &mut self.already_there,
            MoveOutcome::Gone => &mut self.gone,
            MoveOutcome::Busy => &mut self.busy,
            MoveOutcome::NoRoom => &mut self.no_room,
            MoveOutcome::NotPermitted => &mut self.not_permitted,
            MoveOutcome::Unmovable => &mut self.unmovable,
            MoveOutcome::Other(_) => &mut self.other,
        }
    }

    /// Number of pages with this outcome; those with any error number count together.
    #[must_use]
    pub fn count(mut self, outcome: MoveOutcome) -> u64 {
        *self.count_mut(outcome)
    }

    /// Names and counts, in the order in which they are shown.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 9] {
        MoveOutcome::ALL.map(|outcome| (outcome.name(), self.count(outcome)))
    }

    /// Adds other counts to these.
    pub fn add(&mut self, other: &PageOutcomes) {
        MoveOutcome::ALL.iter().for_each(|outcome| *self.count_mut(*outcome) += other.count(*outcome));
    }

    /// Number of pages, whatever their outcome.
    #[must_use]
    pub fn total(&self) -> u64 {
        MoveOutcome::ALL.iter().map(|outcome| self.count(*outcome)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted_once_and_adds_up() {
        let mut twice = PageOutcomes::of(&MoveOutcome::ALL);
        assert_eq!(twice.by_name().map(|(_, count)| count), [1; 9]);
        twice.add(&PageOutcomes::of(&[MoveOutcome::Busy, MoveOutcome::Other(5)]));
        assert_eq!((twice.total(), twice.busy, twice.other), (11, 2, 2));
    }
}
