//! The one error type of this crate.

use std::io;
use std::path::PathBuf;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::NodeId;
use thiserror::Error;

/// Why a question to the kernel, or a request, has no answer: which call or file failed, for which process, and the next step.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The process or thread has ended: an ordinary event.
    #[error("process {pid} has ended")]
    Gone {
        /// Process or thread id.
        pid: Pid,
    },
    /// The process runs, and the kernel shows no such file of it.
    #[error("process {pid} has no {name}: this kernel was built without it, or a container hides it")]
    NoFile {
        /// Process id.
        pid: Pid,
        /// Name of the file in the process's folder of /proc.
        name: String,
    },
    /// The caller may not look into that process.
    #[error(
        "process {pid} cannot be inspected ({source}); run as its user or as root, or with CAP_SYS_PTRACE (and see kernel.yama.ptrace_scope)"
    )]
    Denied {
        /// Process id.
        pid: Pid,
        /// The system's error.
        source: io::Error,
    },
    /// The caller may not move that process's pages.
    #[error(
        "pages of process {pid} may not be moved ({source}); run as its user or as root, or with CAP_SYS_NICE and CAP_SYS_PTRACE"
    )]
    MayNotMove {
        /// Process id.
        pid: Pid,
        /// The system's error.
        source: io::Error,
    },
    /// The caller may not look at the CPUs of that thread, or choose them.
    #[error(
        "the CPUs of thread {tid} may be neither read nor chosen ({source}); run as its user or as root, or with CAP_SYS_NICE"
    )]
    MayNotBind {
        /// Thread id.
        tid: Tid,
        /// The system's error.
        source: io::Error,
    },
    /// The process may not use that node's memory.
    #[error(
        "process {pid} may not have memory on node {node}: its cpuset excludes that node (`Mems_allowed_list` in /proc/{pid}/status); choose \
         another node or widen the cpuset"
    )]
    ForbiddenNode {
        /// Process id.
        pid: Pid,
        /// The node.
        node: NodeId,
    },
    /// The node has no memory.
    #[error("node {node} has no memory on this machine; `numapilot topo` lists its nodes")]
    NoMemoryNode {
        /// The node.
        node: NodeId,
    },
    /// /proc is that of another namespace of process ids: what it says of a process is about another one than the system calls act on.
    #[error(
        "/proc does not show the processes of this namespace of process ids, so nothing is moved: their numbers mean others here; mount it anew \
         (`mount -t proc proc /proc`, `unshare --mount-proc`), or run in the namespace that it shows (`nsenter -p`, `docker run --pid host`)"
    )]
    OtherProc,
    /// More items than this crate supports at once.
    #[error("more than {limit} {what} at once; name fewer of them")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The largest number that is allowed.
        limit: usize,
    },
    /// This kernel has no such call: built without NUMA support, say, or filtered in a container.
    #[error(
        "{call} is not available here ({source}); the kernel lacks it, or a container's seccomp profile forbids it"
    )]
    Unavailable {
        /// Name of the system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Anything else that a system call answered.
    #[error("{call} failed: {source}")]
    Call {
        /// Name of the system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that holds what the kernel never writes.
    #[error("{}, line {line}: {what}; the kernel never writes this: check what is mounted there", path.display())]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong, as a clause of the message.
        what: &'static str,
    },
}

impl KernelError {
    /// Whether the kernel did not answer, because a thread of the process has its address space locked.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, KernelError::File { source, .. } | KernelError::Call { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// The answer of a call about process `pid`.
    pub(crate) fn of_call(call: &'static str, pid: Pid, source: io::Error) -> KernelError {
        match source.raw_os_error() {
            Some(libc::ESRCH) => KernelError::Gone { pid },
            Some(libc::EPERM | libc::EACCES) => KernelError::Denied { pid, source },
            Some(libc::ENOSYS) => KernelError::Unavailable { call, source },
            _ => KernelError::Call { call, source },
        }
    }

    /// The answer of a call about the CPUs of thread `tid`.
    pub(crate) fn of_thread_call(call: &'static str, tid: Tid, source: io::Error) -> KernelError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => KernelError::MayNotBind { tid, source },
            _ => KernelError::of_call(call, Pid::of_task(tid), source),
        }
    }

    /// The answer to reading a file of process `pid`.
    pub(crate) fn of_file(path: PathBuf, pid: Pid, source: io::Error) -> KernelError {
        match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => KernelError::Gone { pid },
            Some(libc::EPERM | libc::EACCES) => KernelError::Denied { pid, source },
            _ => KernelError::File { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was called a process that cannot be inspected, with the right that reading another's memory takes: binding a thread takes another one.
    #[test]
    fn a_thread_that_may_not_be_bound_is_no_process_and_the_right_that_helps_is_named() {
        let refused =
            |number| KernelError::of_thread_call("sched_setaffinity", Tid(8), io::Error::from_raw_os_error(number));
        let text = refused(libc::EPERM).to_string();
        assert!(text.contains("thread 8 ") && text.contains("CAP_SYS_NICE") && !text.contains("process"), "{text}");
        assert!(matches!(refused(libc::ESRCH), KernelError::Gone { pid: Pid(8) }));
        assert!(matches!(refused(libc::EINVAL), KernelError::Call { call: "sched_setaffinity", .. }));
    }
}
