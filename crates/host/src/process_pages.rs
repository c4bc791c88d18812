//! The file `/proc/PID/statm` (`Documentation/filesystems/proc.rst`, table 1-3): how much memory a process has, in pages of the base size.

use crate::Pid;
use crate::Root;
use crate::number;

/// Numbers of pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessPages {
    /// Pages of its address space, whether there is memory behind them or not.
    pub mapped: u64,
    /// Pages that are in memory.
    pub resident: u64,
}

impl ProcessPages {
    /// Parses a line; `None`: it does not have the kernel's format.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<ProcessPages> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        Some(ProcessPages { mapped: number(words.next()?)?, resident: number(words.next()?)? })
    }

    /// Reads those of a process; `None`: it has ended, or is not shown.
    #[must_use]
    pub fn read(root: &Root, pid: Pid) -> Option<ProcessPages> {
        ProcessPages::parse(root.read(&format!("proc/{pid}/statm"), &mut Vec::new()).ok()?)
    }

    /// Reads those of this process; `None`: `/proc` is not there.
    #[must_use]
    pub fn read_own(root: &Root) -> Option<ProcessPages> {
        ProcessPages::parse(root.read("proc/self/statm", &mut Vec::new()).ok()?)
    }
}

/// Whether a process has memory of its own: kernel threads have none, nor has one that has ended.
#[must_use]
pub fn has_memory(root: &Root, pid: Pid) -> bool {
    ProcessPages::read(root, pid).is_some_and(|pages| pages.mapped > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_and_the_dead_have_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (task, text) in [("7", "5000 420 100 3 0 900 0\n"), ("8", "0 0 0 0 0 0 0\n"), ("9", ""), ("self", "6 5 4")]
        {
            let of_task = folder.path().join("proc").join(task);
            std::fs::create_dir_all(&of_task).unwrap();
            std::fs::write(of_task.join("statm"), text).unwrap();
        }
        assert_eq!(ProcessPages::read(&root, Pid(7)), Some(ProcessPages { mapped: 5000, resident: 420 }));
        assert_eq!(ProcessPages::read_own(&root), Some(ProcessPages { mapped: 6, resident: 5 }));
        assert_eq!([7, 8, 9, 10].map(|pid| has_memory(&root, Pid(pid))), [true, false, false, false]);
        assert_eq!((ProcessPages::parse(b"5"), ProcessPages::parse(b"many 5")), (None, None));
        let own = ProcessPages::read_own(&Root::default()).unwrap();
        assert!(own.resident > 0 && own.mapped >= own.resident && has_memory(&Root::default(), Pid::own()));
    }
}
