//! What a recording came to: sizes, losses, and the notes for the user.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use numapilot_apply::Outcome;
use numapilot_launch::Exit;
use numapilot_text::units;
use numapilot_trace::unrecorded::UnrecordedProgram;

use crate::engine::Engine;
use crate::engine::Refusal;

/// Records lost, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records of threads that found no slot.
    pub no_slot: u64,
    /// Records lost because a ring stayed full.
    pub ring_full: u64,
    /// Records lost because recording had stopped.
    pub stopped: u64,
    /// Bytes of records that the recorder threw away: damaged rings, or a disk that took no more.
    pub discarded_bytes: u64,
    /// Slots whose contents were damaged by the program.
    pub quarantined_slots: u64,
    /// Call stacks cut short (nothing else is missing).
    pub failed_unwinds: u64,
    /// Of threads that had already ended: what the C library frees after them.
    pub after_end: u64,
}

impl Losses {
    /// Records lost, as far as they were counted one by one.
    pub fn records(&self) -> u64 {
        self.no_slot.saturating_add(self.ring_full).saturating_add(self.stopped).saturating_add(self.after_end)
    }
}

/// Why recording stopped before the program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The trace could not be written any further: the system's answer.
    WriteFailed(String),
    /// The limit on the trace's size was reached.
    BytesLimit,
    /// The limit on the recording's time was reached.
    TimeLimit,
    /// The main process ended, and only it was to be followed, or only daemons were left.
    MainEnded,
    /// The user interrupted the recording of processes that the program had left behind.
    Interrupted,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::WriteFailed(error) => write!(f, "write failed: {error}"),
            StopReason::BytesLimit => f.write_str("limit on bytes"),
            StopReason::TimeLimit => f.write_str("limit on time"),
            StopReason::MainEnded => f.write_str("main process ended"),
            StopReason::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// A finished recording: raw chunks in `dir`, to be decoded by `flows`.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Folder of the trace.
    pub dir: PathBuf,
    /// How the program ended.
    pub exit: Exit,
    /// The engine that recorded.
    pub engine: Engine,
    /// Better engines that refused, and why.
    pub refusals: Vec<Refusal>,
    /// Counts of lost records.
    pub losses: Losses,
    /// Size of the records in bytes, before compression.
    pub bytes: u64,
    /// Size of the trace on disk in bytes.
    pub disk_bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Number of records that are sampled accesses.
    pub samples: u64,
    /// Number of threads seen.
    pub threads: u64,
    /// Program time at the end: of the thread that went furthest (`instrument`, `emulate`), real time (`track`).
    pub program_time: Duration,
    /// Real time from the program's start to its end.
    pub wall_time: Duration,
    /// Why recording stopped early, if it did.
    pub stopped: Option<StopReason>,
    /// What is worth telling the user, in whole sentences.
    pub notes: Vec<String>,
    /// Counts of the kernel's events, for `meta.json`; `None` for engines that open none.
    pub events: Option<serde_json::Value>,
    /// What the plan did, where there was one.
    pub plan: Option<Outcome>,
    /// Processor time by process, for `meta.json`.
    pub processor_times: serde_json::Value,
    /// The program that did most of the work, where nothing of it was recorded.
    pub unrecorded_program: Option<UnrecordedProgram>,
}

/// Puts losses and early stops into words, with the remedy.
///
/// `survivors`: names of the processes that the program left behind.
pub(crate) fn explain(recording: &mut Recording, survivors: Option<String>) {
    let losses = recording.losses;
    let notes = &mut recording.notes;
    if let Some(names) = survivors {
        notes.push(format!("after the program had ended, processes that it left behind were recorded: {names}"));
    }
    match &recording.stopped {
        None => {}
        Some(StopReason::WriteFailed(error)) => notes.push(format!(
            "recording stopped early because the trace could not be written ({error}); the rest of the run was not recorded; free disk space, or record \
             to another disk with `--output`"
        )),
        Some(StopReason::BytesLimit) => notes.push("recording stopped at the limit on its size; the rest of the run was not recorded".to_owned()),
        Some(StopReason::TimeLimit) => notes.push("recording stopped at the limit on its time; the rest of the run was not recorded".to_owned()),
        Some(StopReason::MainEnded) => {
            notes.push("recording stopped while processes that the program left behind were still running".to_owned());
        }
        Some(StopReason::Interrupted) => {
            notes.push("recording was stopped by a signal; processes that the program left behind continue".to_owned());
        }
    }
    if losses.ring_full > 0 {
        notes.push(format!(
            "{} lost because rings were full; raise `--ring-size`, or sample less with `--period`",
            units::counted(losses.ring_full, "record was", "records were")
        ));
    }
    if losses.no_slot > 0 {
        notes.push(format!(
            "{} lost because the program had more threads than `--max-threads`; raise it",
            units::counted(losses.no_slot, "record was", "records were")
        ));
    }
    if losses.after_end > 0 {
        notes.push(format!(
            "{} lost because the thread had already ended (frees by the C library after a thread's end); the report shows these blocks as never freed",
            units::counted(losses.after_end, "record was", "records were")
        ));
    }
    if losses.quarantined_slots > 0 {
        notes.push(format!(
            "the program overwrote the recorder's memory of {} (perhaps by a stray write): {} bytes of records could not be used",
            units::counted(losses.quarantined_slots, "thread", "threads"),
            losses.discarded_bytes
        ));
    }
}

/// That so many waits timed out too early in program time, in a whole sentence.
pub(crate) fn early_timeouts(count: u64) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{} out too early: the time-out had passed on the host, but not in program time, because the other threads run more slowly while they are \
             recorded; in the recording such a wait takes only as long as the other threads worked meanwhile, and what the program does at a time-out \
             happens more often than it would without recording",
            units::counted(count, "wait timed", "waits timed")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_timeouts_are_told() {
        assert_eq!(early_timeouts(0), None);
        let told = |count| early_timeouts(count).expect("a note");
        assert!(told(1).starts_with("1 wait timed out too early: the time-out had passed on the host"), "{}", told(1));
        assert!(told(12).starts_with("12 waits timed out too early"), "{}", told(12));
    }
}
