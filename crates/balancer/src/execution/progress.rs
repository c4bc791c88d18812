//! What work that may take minutes asks while it is done: whether it is to go on. Whoever answers keeps the service manager's watchdog quiet meanwhile.

use crate::system::undo_log::UndoLog;

/// Asked by work within a step, many times a second.
pub trait Progress {
    /// Whether to go on; false: the step is to end now, and to account for what it has done. Once false, it stays so.
    fn goes_on(&mut self) -> bool;

    /// The record of what is changed.
    fn undo_log(&mut self) -> &mut dyn UndoLog;
}

#[cfg(test)]
pub(crate) mod tests {
    //! Progress in memory, for tests.

    use super::*;
    use crate::system::undo_log::tests::Kept;

    /// Goes on `left` times.
    #[derive(Debug, Default)]
    pub(crate) struct Until {
        /// The undo log.
        pub kept: Kept,
        /// How often it still says that the work is to go on.
        pub left: u64,
        /// How often it was asked.
        pub asked: u64,
    }

    impl Until {
        /// One that never ends the work.
        pub(crate) fn ever() -> Until {
            Until { left: u64::MAX, ..Until::default() }
        }
    }

    impl Progress for Until {
        fn goes_on(&mut self) -> bool {
            self.asked += 1;
            self.left = self.left.saturating_sub(1);
            self.left > 0
        }

        fn undo_log(&mut self) -> &mut dyn UndoLog {
            &mut self.kept
        }
    }
}
