//! The queue of commands from the control socket's clients to the loop, which is woken after each command.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::TrySendError;
use std::sync::mpsc::sync_channel;

use numapilot_balancer::status::Steering;

/// Maximum number of waiting commands.
const QUEUE: usize = 16;

/// The sending end of the queue.
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

/// Makes both ends. `wake` is called after each command, from the client's thread.
#[must_use]
pub fn line(wake: Arc<dyn Fn() + Send + Sync>) -> (Line, Receiver<Steering>) {
    let (queue, commands) = sync_channel(QUEUE);
    (Line { queue, wake }, commands)
}

impl Line {
    /// Sends a command without waiting.
    ///
    /// # Errors
    /// The queue is full, or the loop has ended.
    pub(super) fn send(&self, steering: Steering) -> Result<(), &'static str> {
        match self.queue.try_send(steering) {
            Ok(()) => {
                (self.wake)();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err("too many commands wait for the balancing loop; try again"),
            Err(TrySendError::Disconnected(_)) => Err("the balancing loop has ended"),
        }
    }
}
