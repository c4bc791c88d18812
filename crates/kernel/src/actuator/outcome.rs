//! What came of requests to move pages: one by one, and counted.

/// Outcome of a request to move a page.
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
    /// Other processes map the page, and the caller may not move such pages (CAP_SYS_NICE).
    Shared,
    /// Not a movable page: the kernel's zero page, device memory, or an address that is not mapped.
    Unmovable,
    /// The kernel refused with another error number (errno).
    Other(i32),
}

/// Counts of pages (of the system's base size) by outcome; their sum is the number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
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
    /// Pages with outcome [`MoveOutcome::Shared`].
    pub shared: u64,
    /// Pages with outcome [`MoveOutcome::Unmovable`].
    pub unmovable: u64,
    /// Pages with outcome [`MoveOutcome::Other`].
    pub other: u64,
    /// Pages with outcome [`MoveOutcome::NotTried`].
    pub not_tried: u64,
}

impl Tally {
    /// Counts outcomes.
    #[must_use]
    pub fn of(outcomes: &[MoveOutcome]) -> Tally {
        let mut tally = Tally::default();
        outcomes.iter().for_each(|outcome| *tally.of_fate(*outcome) += 1);
        tally
    }

    fn of_fate(&mut self, outcome: MoveOutcome) -> &mut u64 {
        match outcome {
            MoveOutcome::NotTried => &mut self.not_tried,
            MoveOutcome::Moved => &mut self.moved,
            MoveOutcome::AlreadyThere => &mut self.already_there,
            MoveOutcome::Gone => &mut self.gone,
            MoveOutcome::Busy => &mut self.busy,
            MoveOutcome::NoRoom => &mut self.no_room,
            MoveOutcome::Shared => &mut self.shared,
            MoveOutcome::Unmovable => &mut self.unmovable,
            MoveOutcome::Other(_) => &mut self.other,
        }
    }

    /// Outcomes and counts; those with any error number stand together, as `Other(0)`.
    #[must_use]
    pub fn by_outcome(&self) -> [(MoveOutcome, u64); 9] {
        [
            (MoveOutcome::Moved, self.moved),
            (MoveOutcome::AlreadyThere, self.already_there),
            (MoveOutcome::Gone, self.gone),
            (MoveOutcome::Busy, self.busy),
            (MoveOutcome::NoRoom, self.no_room),
            (MoveOutcome::Shared, self.shared),
            (MoveOutcome::Unmovable, self.unmovable),
            (MoveOutcome::Other(0), self.other),
            (MoveOutcome::NotTried, self.not_tried),
        ]
    }

    /// Names and counts, in the order in which they are shown.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 9] {
        [
            ("moved", self.moved),
            ("already there", self.already_there),
            ("gone", self.gone),
            ("busy", self.busy),
            ("no room", self.no_room),
            ("shared", self.shared),
            ("not movable", self.unmovable),
            ("other", self.other),
            ("not tried", self.not_tried),
        ]
    }

    /// Adds another tally's counts to these.
    pub fn add(&mut self, other: &Tally) {
        self.moved += other.moved;
        self.already_there += other.already_there;
        self.gone += other.gone;
        self.busy += other.busy;
        self.no_room += other.no_room;
        self.shared += other.shared;
        self.unmovable += other.unmovable;
        self.other += other.other;
        self.not_tried += other.not_tried;
    }

    /// Number of pages, whatever their outcome.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }
}
