//! Whoever keeps what was before the loop changed it, so that it can be put back even if this process is killed; and who else is at work on the machine.

use numapilot_kernel::affinity::CpuMask;

/// A thread, whoever has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// Its process.
    pub pid: u32,
    /// Its number in the kernel.
    pub tid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// A thread's CPUs, before a change and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Whose.
    pub thread: ThreadId,
    /// Where it may run now.
    pub was: CpuMask,
    /// And then.
    pub now: CpuMask,
}

/// See the module.
pub trait UndoLog {
    /// A setting is about to be changed, for the first time or once more. When this returns, what it was and will be is kept safely.
    ///
    /// # Errors
    /// It cannot be kept, or another process of ours changes settings: it must be left as it is. In words.
    fn will_change(&mut self, file: &str, was: &str, now: &str) -> Result<(), String>;

    /// It is as it was again.
    fn restored(&mut self, file: &str);

    /// Threads are about to be bound to CPUs. When this returns, what they may do now is kept safely, with the disk once for all of them.
    ///
    /// # Errors
    /// It cannot be kept: they must be left as they are. In words.
    fn will_bind(&mut self, bindings: &[Binding]) -> Result<(), String>;

    /// These may run where they might before, or are no longer ours to put back.
    fn unbound(&mut self, threads: &[ThreadId]);

    /// From now on this process (`None`: every process of the machine) is ours to place.
    ///
    /// # Errors
    /// Another numapilot looks after it; in words that name that one.
    fn claim(&mut self, pid: Option<u32>) -> Result<(), String>;

    /// It has ended, or is no longer ours.
    fn unclaim(&mut self, pid: u32);
}

#[cfg(test)]
pub(crate) mod tests {
    //! A keeper that remembers what it was told, for the tests of those who tell it.

    use super::*;

    /// See the module.
    #[derive(Debug, Default)]
    pub(crate) struct Kept {
        /// Files with what they held first.
        pub files: Vec<(String, String)>,
        /// Threads with where they might run first.
        pub threads: Vec<(ThreadId, CpuMask)>,
        /// It can keep nothing: a full disk.
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
                assert_eq!(held, binding.was, "kept before it is changed");
                if !self.threads.iter().any(|(kept, _)| *kept == binding.thread) {
                    self.threads.push((binding.thread, binding.was.clone()));
                }
            }
            Ok(())
        }

        fn unbound(&mut self, threads: &[ThreadId]) {
            self.threads.retain(|(kept, _)| !threads.contains(kept));
        }

        fn claim(&mut self, _: Option<u32>) -> Result<(), String> {
            Ok(())
        }

        fn unclaim(&mut self, _: u32) {}
    }
}
