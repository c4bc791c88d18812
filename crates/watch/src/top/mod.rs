//! `numapilot top`: the machine, its processes and their memory, live on a terminal.
//!
//! [`App`] is the state of the screen (pure: frames and input in, a drawing out by [`draw`]), [`Source`] provides frames (the running machine, or a replayed
//! trace), and [`run`] runs the terminal, which it restores in all cases.

mod app;
mod draw;
mod live;
mod machine;
mod memory;
mod picture;
mod process;
mod style;
mod table;
mod terminal;

use std::time::Duration;

use numapilot_host::Pid;
use numapilot_machine::Machine;

pub use app::App;
pub use app::Input;
pub use app::SortKey;
pub use app::View;
pub use draw::draw;
pub use live::LiveSource;
pub use picture::picture;
pub use picture::svg;
pub use style::Palette;
pub use terminal::run;

use crate::replay::Frame;
use crate::replay::Replay;

/// A source of frames.
pub trait Source {
    /// The machine that is shown.
    fn machine(&self) -> &Machine;

    /// Label of the source, in a few words.
    fn label(&self) -> String;

    /// The frame since the last call; `detail`: the process shown in detail. `None`: the source has ended, and the last frame stays.
    fn next(&mut self, detail: Option<Pid>) -> Option<Frame>;

    /// Called between two frames, several times a second, for work that must not wait for the next frame.
    fn idle(&mut self) {}

    /// Notes for the reader, in whole sentences.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A replay as a source: one frame per call, until its end.
pub struct ReplaySource {
    replay: Replay,
    next: usize,
}

impl ReplaySource {
    /// Starts at the beginning of the replay. The rest after its last interval is not shown.
    #[must_use]
    pub fn new(mut replay: Replay) -> ReplaySource {
        while replay.frames.pop_if(|frame| frame.interval.processes.is_empty()).is_some() {}
        ReplaySource { replay, next: 0 }
    }
}

impl Source for ReplaySource {
    fn machine(&self) -> &Machine {
        &self.replay.machine
    }

    fn label(&self) -> String {
        let title = self.replay.frames.first().and_then(|frame| frame.interval.simulated.clone());
        format!("SIMULATED {}", title.unwrap_or_default())
    }

    fn next(&mut self, _: Option<Pid>) -> Option<Frame> {
        let frame = self.replay.frames.get(self.next).cloned();
        self.next += 1;
        frame
    }

    fn notes(&self) -> Vec<String> {
        self.replay.notes.clone()
    }
}

/// Options of the screen.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Time between two frames.
    pub interval: Duration,
    /// Colours that the terminal is sent.
    pub palette: Palette,
    /// Number of frames after which it ends; `None`: no limit.
    pub count: Option<u64>,
}

#[cfg(test)]
mod tests;
