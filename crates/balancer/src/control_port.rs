//! The port by which the loop is controlled and reports. All input and output of the loop passes here: it uses no signal, socket or file other than the
//! kernel's.

use std::time::Duration;

use crate::balancing_loop::Tunables;
use crate::event::Sink;
use crate::status::Status;
use crate::status::Steering;
use crate::system::undo_log::UndoLog;

/// The loop's connection to the rest of the program. All methods are called from the loop's thread.
pub trait ControlPort: Sink + UndoLog {
    /// Waits for a control command, at most `wait`. The loop sleeps nowhere else.
    fn next(&mut self, wait: Duration) -> Option<Steering>;

    /// Receives the loop's status, once per observation.
    fn status(&mut self, status: Status);

    /// Reads the configuration again, after a [`crate::status::Command::Reload`]. `None`: there is no configuration file.
    ///
    /// # Errors
    /// The configuration has an error, which the message describes; then nothing changes.
    fn reload(&mut self) -> Result<Option<Tunables>, String>;
}
