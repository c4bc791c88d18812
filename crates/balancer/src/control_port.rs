//! The port by which the loop is controlled and reports. All input and output of the loop passes here: it uses no signal, socket or file other than the
//! kernel's.

use std::collections::VecDeque;
use std::time::Duration;

use crate::balancing_loop::Tunables;
use crate::event::Event;
use crate::event::Sink;
use crate::event::Steered;
use crate::status::Command;
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

/// Answers the commands that came while the last step of a loop was at work, which ends now. That is all that a stop asks for.
pub(crate) fn answer_last(waiting: &mut VecDeque<Steering>, control_port: &mut dyn ControlPort) {
    for steering in waiting.drain(..) {
        let answer = match steering.command {
            Command::Stop => Ok("stopping".to_owned()),
            _ => Err("the balancing loop ends, and has not carried out the command".to_owned()),
        };
        answered(steering, answer, control_port);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! A control port in memory, for tests.

    use std::sync::mpsc::channel;

    use numapilot_host::Pid;

    use super::*;
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

    /// They got no answer, and whoever had given them waited until the process had ended.
    #[test]
    fn commands_that_the_last_step_kept_waiting_are_answered_at_the_end() {
        let mut desk = Desk::default();
        let (answer, answers) = channel();
        let steering = |command| Steering { command, by_uid: Some(7), answer: Some(answer.clone()) };
        let mut waiting = VecDeque::from([Command::Stop, Command::Reload].map(steering));
        answer_last(&mut waiting, &mut desk);
        let told: Vec<Result<String, String>> = answers.try_iter().collect();
        assert_eq!(told[0].as_deref(), Ok("stopping"));
        assert!(told[1].as_ref().is_err_and(|why| why.contains("has not carried out the command")), "{told:?}");
        assert!(waiting.is_empty() && desk.events.len() == 2);
    }
}
