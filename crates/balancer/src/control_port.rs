//! The port by which the loop is controlled and reports. All input and output of the loop passes here: it uses no signal, socket or file other than the
//! kernel's.

use std::time::Duration;

use crate::balancing_loop::Tunables;
use crate::event::Event;
use crate::event::Sink;
use crate::event::Steered;
use crate::status::Status;
use crate::status::Steering;
use crate::system::undo_log::UndoLog;

/// The loop's connection to the rest of the program. All methods are called from the loop's thread.
pub trait ControlPort: Sink + UndoLog {
    /// Waits for a control command, at most `wait`; `Duration::ZERO`: only looks whether there is one. The loop sleeps nowhere else.
    fn next(&mut self, wait: Duration) -> Option<Steering>;

    /// Receives the loop's status, once per observation.
    fn status(&mut self, status: Status);

    /// Called many times a second by a step that takes long, which publishes no status meanwhile: the loop is alive.
    fn alive(&mut self);

    /// Reads the configuration again, after a [`crate::status::Command::Reload`]. `None`: there is no configuration file.
    ///
    /// # Errors
    /// The configuration has an error, which the message describes; then nothing changes.
    fn reload(&mut self) -> Result<Option<Tunables>, String>;
}

/// Records what a command came to, and answers whoever gave it.
pub(crate) fn answered(steering: Steering, answer: Result<String, String>, control_port: &mut dyn ControlPort) {
    let told = answer.clone().unwrap_or_else(|error| error);
    let command = steering.command.name().to_owned();
    control_port.record(Event::Steered(Steered { command, by_uid: steering.by_uid, answer: told }));
    if let Some(back) = steering.answer {
        // The client may have gone.
        let _ = back.send(answer);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! A control port in memory, for tests.

    use std::collections::VecDeque;

    use numapilot_host::Pid;

    use super::*;
    use crate::status::Command;
    use crate::system::undo_log::Binding;
    use crate::system::undo_log::ThreadId;
    use crate::system::undo_log::tests::Kept;

    /// Keeps what the loop tells, and hands out the commands that were put there.
    #[derive(Debug, Default)]
    pub(crate) struct Desk {
        /// Commands that have not been fetched.
        pub commands: VecDeque<Command>,
        /// How often the loop said that it is alive.
        pub alive: u64,
        /// The events, in their order.
        pub events: Vec<Event>,
        /// The last status.
        pub status: Option<Status>,
        /// The undo log.
        pub kept: Kept,
    }

    impl Desk {
        /// Puts a command into the queue that the loop reads.
        pub(crate) fn tell(&mut self, command: Command) {
            self.commands.push_back(command);
        }
    }

    impl Sink for Desk {
        fn record(&mut self, event: Event) {
            self.events.push(event);
        }
    }

    impl UndoLog for Desk {
        fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String> {
            self.kept.will_change(file, was, now)
        }

        fn restored(&mut self, file: &str) {
            self.kept.restored(file);
        }

        fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
            self.kept.will_bind(bindings)
        }

        fn unbound(&mut self, threads: &[ThreadId]) {
            self.kept.unbound(threads);
        }

        fn claim(&mut self, pid: Option<Pid>) -> Result<(), String> {
            self.kept.claim(pid)
        }

        fn unclaim(&mut self, pid: Pid) {
            self.kept.unclaim(pid);
        }
    }

    impl ControlPort for Desk {
        fn next(&mut self, _: Duration) -> Option<Steering> {
            self.commands.pop_front().map(|command| Steering { command, by_uid: None, answer: None })
        }

        fn status(&mut self, status: Status) {
            self.status = Some(status);
        }

        fn alive(&mut self) {
            self.alive += 1;
        }

        fn reload(&mut self) -> Result<Option<Tunables>, String> {
            Ok(None)
        }
    }
}
