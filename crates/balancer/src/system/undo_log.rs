//! The record of previous values of what the loop changes, from which they are restored even if this process is killed; and claims on processes against other
//! numapilot daemons.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_kernel::affinity::CpuMask;

/// Identifies a thread even if its id is reused later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// A thread's affinity before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The thread.
    pub thread: ThreadId,
    /// Affinity before the change.
    pub was: CpuMask,
    /// Affinity after the change.
    pub now: CpuMask,
}

/// Records changes before they are made, and claims processes.
pub trait UndoLog {
    /// Records a setting that is about to change. When this returns, its previous and new values are stored safely.
    ///
    /// # Errors
    /// The value cannot be recorded, or another numapilot changes settings: the setting must not be changed. The message gives the reason.
    fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String>;

    /// Registers that a setting has its previous value again.
    fn restored(&mut self, file: &str);

    /// Records threads that are about to be bound to CPUs, or have inherited such a binding. When this returns, the affinities to restore are on disk, with
    /// one write for all of them.
    ///
    /// # Errors
    /// They cannot be recorded: the threads must not be bound. The message gives the reason.
    fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String>;

    /// Registers threads whose affinities are restored, or are no longer to be restored.
    fn unbound(&mut self, threads: &[ThreadId]);

    /// Claims a process (`None`: every process of the machine) for this program.
    ///
    /// # Errors
    /// Another numapilot manages it; the message names that one.
    fn claim(&mut self, pid: Option<Pid>) -> Result<(), String>;

    /// Releases the claim on a process.
    fn unclaim(&mut self, pid: Pid);
}

#[cfg(test)]
pub(crate) mod tests {
    //! An undo log in memory, for tests.

    use super::*;

    /// An undo log in memory.
    #[derive(Debug, Default)]
    pub(crate) struct Kept {
        /// Files with their first recorded values.
        pub files: Vec<(String, String)>,
        /// Threads with their first recorded affinities.
        pub threads: Vec<(ThreadId, CpuMask)>,
        /// Whether recording fails, as on a full disk.
        pub is_full: bool,
    }

    impl UndoLog for Kept {
        fn will_change(&mut self, file: &str, was: &str, _: &str) -> Result<(), String> {
            let held = std::fs::read_to_string(file).unwrap();
            assert_eq!(held.trim(), was, "kept before it is changed");
            if !self.files.iter().any(|(kept, _)| kept == file) {
                self.files.push((file.to_owned(), was.to_owned()));
            }
            Ok(())
        }

        fn restored(&mut self, file: &str) {
            self.files.retain(|(kept, _)| kept != file);
        }

        fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String> {
            if self.is_full {
                return Err("no space left".to_owned());
            }
            for binding in bindings {
                let held = numapilot_kernel::affinity::of_thread(binding.thread.tid).unwrap();
                // Or it was inherited from a thread that is kept already.
                let is_now = |mask| numapilot_kernel::affinity::is_still(&held, mask);
                assert!(is_now(&binding.was) || is_now(&binding.now), "kept before it is changed: {held:?}");
                if !self.threads.iter().any(|(kept, _)| *kept == binding.thread) {
                    self.threads.push((binding.thread, binding.was.clone()));
                }
            }
            Ok(())
        }

        fn unbound(&mut self, threads: &[ThreadId]) {
            self.threads.retain(|(kept, _)| !threads.contains(kept));
        }

        fn claim(&mut self, _: Option<Pid>) -> Result<(), String> {
            Ok(())
        }

        fn unclaim(&mut self, _: Pid) {}
    }
}
