//! The way from the control socket's clients to the loop: a short queue, and a nudge so that the loop looks into it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::TrySendError;
use std::sync::mpsc::sync_channel;

use numapilot_balancer::status::Steering;

/// Commands that may wait.
const QUEUE: usize = 16;

/// The clients' end.
#[derive(Clone)]
pub struct Line {
    queue: SyncSender<Steering>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

/// Both ends. `wake` is called after each command, from the thread of whoever gave it.
#[must_use]
pub fn line(wake: Arc<dyn Fn() + Send + Sync>) -> (Line, Receiver<Steering>) {
    let (queue, commands) = sync_channel(QUEUE);
    (Line { queue, wake }, commands)
}

impl Line {
    /// Sends a command, or says why not; never waits.
    ///
    /// # Errors
    /// Too many wait already, or the loop has ended.
    pub(super) fn send(&self, steering: Steering) -> Result<(), &'static str> {
        match self.queue.try_send(steering) {
            Ok(()) => {
                (self.wake)();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err("the loop has many commands waiting; try again"),
            Err(TrySendError::Disconnected(_)) => Err("the loop has ended"),
        }
    }
}
