//! The file `/proc/PID/status` (`Documentation/filesystems/proc.rst`, table 1-2): a line `Name:\tvalue` for each field. The first has the program's name, any
//! bytes but line breaks, so the text as a whole need not be UTF-8; the values of the others are ASCII.

use crate::Pid;
use crate::Root;

/// The fields of the file. Borrows its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskStatus<'a>(&'a [u8]);

impl<'a> TaskStatus<'a> {
    /// The fields in a text that was read before.
    #[must_use]
    pub fn of(text: &'a [u8]) -> TaskStatus<'a> {
        TaskStatus(text)
    }

    /// Reads those of a process or thread into `buffer`; `None`: it has ended, or is not shown.
    pub fn read(root: &Root, pid: Pid, buffer: &'a mut Vec<u8>) -> Option<TaskStatus<'a>> {
        root.read(&format!("proc/{pid}/status"), buffer).ok().map(TaskStatus)
    }

    /// Reads those of this process into `buffer`; `None`: `/proc` is not there.
    pub fn read_own(root: &Root, buffer: &'a mut Vec<u8>) -> Option<TaskStatus<'a>> {
        root.read("proc/self/status", buffer).ok().map(TaskStatus)
    }

    /// The value of a field, named without its colon; `None`: the kernel does not write it.
    #[must_use]
    pub fn field(self, name: &str) -> Option<&'a str> {
        let of_line = |line: &'a [u8]| line.strip_prefix(name.as_bytes())?.strip_prefix(b":");
        let value = self.0.split(|&byte| byte == b'\n').find_map(of_line)?;
        std::str::from_utf8(value.trim_ascii()).ok()
    }

    /// A set in hexadecimal digits, such as `CapEff` or `SigIgn`.
    #[must_use]
    pub fn mask(self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// The process to which the task belongs (`Tgid`): of a process's file itself.
    #[must_use]
    pub fn process(self) -> Option<Pid> {
        self.field("Tgid")?.parse().ok()
    }

    /// The process that is told of its end (`PPid`).
    #[must_use]
    pub fn parent(self) -> Option<Pid> {
        self.field("PPid")?.parse().ok()
    }

    /// User ids: real, effective, saved and of the file system.
    #[must_use]
    pub fn users(self) -> Option<[u32; 4]> {
        let mut ids = self.field("Uid")?.split_ascii_whitespace().map_while(|id| id.parse().ok());
        Some([ids.next()?, ids.next()?, ids.next()?, ids.next()?])
    }

    /// Whether a signal is ignored; false where the kernel does not tell.
    #[must_use]
    pub fn ignores(self, signal: libc::c_int) -> bool {
        let bit = u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
        self.mask("SigIgn").unwrap_or(0) & bit != 0
    }

    /// List of the CPUs that it may run on, those that are offline or yet to come too.
    #[must_use]
    pub fn allowed_cpus(self) -> Option<&'a str> {
        self.field("Cpus_allowed_list")
    }

    /// List of the nodes that its memory may be on.
    #[must_use]
    pub fn allowed_nodes(self) -> Option<&'a str> {
        self.field("Mems_allowed_list")
    }

    /// The numbers that namespaces of processes give to the task (`NSpid`): first in the namespace of that `/proc`, last in its own, by which it knows itself.
    /// None where the kernel does not tell.
    pub fn numbers_by_namespace(self) -> impl Iterator<Item = u32> {
        let numbers = self.field("NSpid").unwrap_or_default();
        numbers.split_ascii_whitespace().map_while(|number| number.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    //! A text as kernels write it, names that programs choose, and any bytes.

    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"Name:\tUid:\xff 7\nTgid:\t4711\nPid:\t4712\nPPid:\t1\nUid:\t1000\t0\t33\t1000\nNSpid:\t4712\t12\nSigIgn:\t4000000000000002\n\
        CapEff:\t0000004000000000\nCpus_allowed:\tc\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t1\n";

    /// A process whose name is no UTF-8 was read as one that had ended: the balancer released it, and it was nobody's.
    #[test]
    fn fields_are_read_whatever_the_name_is() {
        let status = TaskStatus::of(TEXT);
        assert_eq!((status.process(), status.parent()), (Some(Pid(4711)), Some(Pid(1))));
        assert_eq!(status.users(), Some([1000, 0, 33, 1000]));
        assert_eq!((status.allowed_cpus(), status.allowed_nodes()), (Some("0-3,8"), Some("1")));
        assert_eq!(status.numbers_by_namespace().collect::<Vec<_>>(), [4712, 12]);
        assert_eq!((status.mask("CapEff"), status.mask("CapPrm"), status.mask("Uid")), (Some(1 << 38), None, None));
        assert_eq!((status.field("Name"), status.field("Cpus")), (None, None), "no text, and no field");
    }

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let status = TaskStatus::of(TEXT);
        assert!(status.ignores(2) && status.ignores(63) && !status.ignores(1) && !status.ignores(64));
        assert!(!status.ignores(0) && !status.ignores(-1) && !status.ignores(65) && !TaskStatus::default().ignores(2));
    }

    #[test]
    fn what_is_missing_or_cut_is_not_known() {
        let cut = TaskStatus::of(b"Name:\tx\nUid:\t1000\t0\nPPid:\t\nTgid:\tmany\n");
        assert_eq!((cut.users(), cut.parent(), cut.process()), (None, None, None));
        assert_eq!(cut.numbers_by_namespace().count(), 0);
    }

    #[test]
    fn files_are_read_under_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (task, text) in [("7", "PPid:\t5\n"), ("self", "PPid:\t6\n")] {
            let of_task = folder.path().join("proc").join(task);
            std::fs::create_dir_all(&of_task).unwrap();
            std::fs::write(of_task.join("status"), text).unwrap();
        }
        let mut buffer = Vec::new();
        assert_eq!(TaskStatus::read(&root, Pid(7), &mut buffer).unwrap().parent(), Some(Pid(5)));
        assert_eq!(TaskStatus::read_own(&root, &mut buffer).unwrap().parent(), Some(Pid(6)));
        assert_eq!(TaskStatus::read(&root, Pid(8), &mut buffer), None);
        let own = TaskStatus::read_own(&Root::default(), &mut buffer).unwrap();
        assert_eq!((own.process(), own.numbers_by_namespace().last()), (Some(Pid::own()), Some(std::process::id())));
        assert!(own.users().is_some() && own.allowed_cpus().is_some() && own.mask("SigIgn").is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(text in prop::collection::vec(any::<u8>(), 0..300), cut in 0..TEXT.len()) {
            for text in [&text[..], &TEXT[..cut]] {
                let status = TaskStatus::of(text);
                let _ = (status.process(), status.parent(), status.users(), status.ignores(1), status.mask("CapEff"));
                status.numbers_by_namespace().for_each(drop);
            }
        }
    }
}
