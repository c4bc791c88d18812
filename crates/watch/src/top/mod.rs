//! `numapilot top`: the machine, its processes and their memory, live on a terminal.
//!
//! [`App`] is what is shown (pure: frames and keys in, a picture out by [`draw`]), [`Source`] gives frames (the running machine, or a replayed trace), and
//! [`run`] is the terminal: it is left as it was found whatever happens.

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

/// Where frames come from.
pub trait Source {
    /// The machine that is shown.
    fn machine(&self) -> &Machine;

    /// What is shown, in a few words.
    fn label(&self) -> String;

    /// What happened since the last time; `detail`: the process that is looked at closely. `None`: it is over, the last frame stays.
    fn next(&mut self, detail: Option<u32>) -> Option<Frame>;

    /// Between two frames, some times a second: what must not wait for the next.
    fn idle(&mut self) {}

    /// What the reader must know, in whole sentences.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A replay as a source: a frame each time, until its end.
pub struct ReplaySource {
    replay: Replay,
    next: usize,
}

impl ReplaySource {
    /// From its beginning. What is left after the last look at the program, less than an interval, is not shown.
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

    fn next(&mut self, _: Option<u32>) -> Option<Frame> {
        let frame = self.replay.frames.get(self.next).cloned();
        self.next += 1;
        frame
    }

    fn notes(&self) -> Vec<String> {
        self.replay.notes.clone()
    }
}

/// How the screen is run.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Time between two frames.
    pub interval: Duration,
    /// Colours.
    pub palette: Palette,
    /// End after so many frames.
    pub count: Option<u64>,
}

#[cfg(test)]
mod tests;
