//! Who steers the loop and hears what it does. Everything that comes in or goes out passes here: the loop knows no signal, no socket and no file but those
//! of the kernel.

use std::time::Duration;

use crate::balancing_loop::Tunables;
use crate::event::Sink;
use crate::status::Status;
use crate::status::Steering;
use crate::system::undo_log::UndoLog;

/// See the module. Calls come from the loop's thread.
pub trait ControlPort: Sink + UndoLog {
    /// Waits for something to do, `wait` at most. The loop sleeps nowhere else.
    fn next(&mut self, wait: Duration) -> Option<Steering>;

    /// What the loop is doing, once per observation.
    fn status(&mut self, status: Status);

    /// Reads the configuration again, after a [`crate::status::Command::Reload`]. `None`: there is none to read.
    ///
    /// # Errors
    /// It is wrong, in words; then nothing changes.
    fn reload(&mut self) -> Result<Option<Tunables>, String>;
}
