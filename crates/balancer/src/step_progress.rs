//! Keeps a step that takes long in touch with the outside: the service manager hears that the loop is alive, and a stop or pause ends the step's work.

use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use crate::control_port::ControlPort;
use crate::execution::progress::Progress;
use crate::status::Command;
use crate::status::Steering;
use crate::system::undo_log::UndoLog;

/// Time between two looks for commands.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The progress of one step's work (see the module's documentation).
pub struct StepProgress<'p> {
    control_port: &'p mut dyn ControlPort,
    /// Commands that came during the step: the loop handles them after it.
    waiting: &'p mut VecDeque<Steering>,
    ends_at_pause: bool,
    /// When its time is used up; `None`: it may take any time.
    ends_at: Option<Instant>,
    is_over: bool,
    looked_at: Option<Instant>,
}

impl<'p> StepProgress<'p> {
    /// Work that a pause ends too. Commands that come meanwhile are put into `waiting`.
    pub fn new(control_port: &'p mut dyn ControlPort, waiting: &'p mut VecDeque<Steering>) -> StepProgress<'p> {
        StepProgress { control_port, waiting, ends_at_pause: true, ends_at: None, is_over: false, looked_at: None }
    }

    /// Work that only a stop ends: to undo what does harm is no change that a pause is to prevent.
    pub fn of_undoing(control_port: &'p mut dyn ControlPort, waiting: &'p mut VecDeque<Steering>) -> StepProgress<'p> {
        StepProgress { ends_at_pause: false, ..StepProgress::new(control_port, waiting) }
    }

    /// Work that ends after this time, too, counted from now: whoever is asked to go on then has made its last system call.
    #[must_use]
    pub fn within(self, time: Duration) -> StepProgress<'p> {
        StepProgress { ends_at: Instant::now().checked_add(time), ..self }
    }

    /// Whether the work was ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn ends(&self, steering: &Steering) -> bool {
        match steering.command {
            Command::Stop => true,
            Command::Pause => self.ends_at_pause,
            Command::Resume | Command::Reload | Command::AddTarget(_) | Command::RemoveTarget(_) => false,
        }
    }
}

impl Progress for StepProgress<'_> {
    fn goes_on(&mut self) -> bool {
        self.is_over |= self.ends_at.is_some_and(|end| Instant::now() >= end);
        if self.is_over || self.looked_at.is_some_and(|then| then.elapsed() < LOOK_EVERY) {
            return !self.is_over;
        }
        self.looked_at = Some(Instant::now());
        self.control_port.alive();
        while let Some(steering) = self.control_port.next(Duration::ZERO) {
            self.waiting.push_back(steering);
        }
        self.is_over = self.waiting.iter().any(|steering| self.ends(steering));
        !self.is_over
    }

    fn undo_log(&mut self) -> &mut dyn UndoLog {
        self.control_port
    }
}

#[cfg(test)]
mod tests {
    //! Commands that come while a step is at work.

    use super::*;
    use crate::control_port::tests::Desk;

    #[test]
    fn a_stop_or_pause_ends_the_work_and_every_command_waits_for_the_loop() {
        let mut desk = Desk::default();
        let mut waiting = VecDeque::new();
        assert!(StepProgress::new(&mut desk, &mut waiting).goes_on());
        assert_eq!(desk.alive, 1, "the watchdog hears of it");
        desk.tell(Command::Reload);
        assert!(StepProgress::new(&mut desk, &mut waiting).goes_on());
        desk.tell(Command::Pause);
        let mut progress = StepProgress::of_undoing(&mut desk, &mut waiting);
        assert!(progress.goes_on() && !progress.is_over());
        let mut progress = StepProgress::new(&mut desk, &mut waiting);
        assert!(!progress.goes_on() && !progress.goes_on() && progress.is_over());
        desk.tell(Command::Stop);
        assert!(!StepProgress::of_undoing(&mut desk, &mut waiting).goes_on());
        let commands: Vec<&str> = waiting.iter().map(|steering| steering.command.name()).collect();
        assert_eq!(commands, ["reload", "pause", "stop"], "in their order");
    }

    /// Whatever one decision ordered was carried out, however little was left of the time that it might take.
    #[test]
    fn work_ends_when_its_time_is_used_up() {
        let mut desk = Desk::default();
        let mut waiting = VecDeque::new();
        let hour = Duration::from_secs(3600);
        let mut progress = StepProgress::new(&mut desk, &mut waiting).within(hour);
        assert!(progress.goes_on() && !progress.is_over());
        let mut progress = StepProgress::new(&mut desk, &mut waiting).within(Duration::ZERO);
        assert!(!progress.goes_on() && !progress.goes_on() && progress.is_over());
    }

    #[test]
    fn it_looks_again_only_after_a_time_however_often_it_is_asked() {
        let mut desk = Desk::default();
        let mut waiting = VecDeque::new();
        let (begun, mut progress) = (Instant::now(), StepProgress::new(&mut desk, &mut waiting));
        (0..1000).for_each(|_| assert!(progress.goes_on()));
        let looks = 2 + begun.elapsed().as_millis() as u64 / LOOK_EVERY.as_millis() as u64;
        assert!(desk.alive <= looks, "{} looks", desk.alive);
    }
}
