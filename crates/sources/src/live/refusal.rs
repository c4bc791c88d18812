//! Why the kernel did not open an event, in words, with the remedy.

use std::io;

use numapilot_kernel::sysctl;

use super::open::Scope;
use crate::error::SourceError;

/// What stood in the way of an event, and what to do about it.
pub fn explain(event: &str, scope: &Scope, source: io::Error) -> SourceError {
    let (reason, remedy) = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => denied(scope),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => (
            "this machine (or virtual machine) does not offer the event".to_owned(),
            "`numapilot doctor` lists the engines that work here".to_owned(),
        ),
        Some(libc::EMFILE | libc::ENFILE) => (
            "an event per thread and CPU takes more open files than the limit".to_owned(),
            "raise `ulimit -n` (or fs.file-max)".to_owned(),
        ),
        Some(libc::EINVAL) => (
            "this kernel does not know the event, or not with these settings".to_owned(),
            "Linux 4.8 or later is needed; `numapilot doctor` lists the engines that work here".to_owned(),
        ),
        Some(libc::E2BIG) => (
            "this kernel's events have fewer settings than this one needs".to_owned(),
            "a newer kernel is needed".to_owned(),
        ),
        Some(libc::EBUSY) => (
            "another program is using the hardware".to_owned(),
            "end the other profiler (`perf`, a monitoring agent, the NMI watchdog)".to_owned(),
        ),
        Some(libc::ENOSYS) => (
            "this kernel was built without performance events".to_owned(),
            "CONFIG_PERF_EVENTS is needed; in a container, its seccomp profile must allow perf_event_open".to_owned(),
        ),
        _ => ("the kernel refused".to_owned(), "`numapilot doctor` lists the engines that work here".to_owned()),
    };
    SourceError::Event { event: event.to_owned(), source, reason, remedy }
}

fn denied(scope: &Scope) -> (String, String) {
    let level = sysctl::perf_event_paranoid();
    let limit = if *scope == Scope::System { 0 } else { 2 };
    let rights = "run as root, or give the recorder CAP_PERFMON (`setcap cap_perfmon,cap_sys_ptrace+ep`; before Linux 5.8 CAP_SYS_ADMIN)";
    match (level, scope) {
        (None, _) => (
            "this kernel offers no performance events to this process".to_owned(),
            "a container's seccomp profile may forbid perf_event_open: allow it there, or record outside".to_owned(),
        ),
        (Some(level), Scope::System) if level > limit => (
            format!("events of the whole system need more rights (kernel.perf_event_paranoid is {level})"),
            format!("{rights}, or set `sysctl kernel.perf_event_paranoid={limit}`"),
        ),
        (Some(level), _) if level > limit => (
            format!("users may open no events here (kernel.perf_event_paranoid is {level})"),
            format!("{rights}, or set `sysctl kernel.perf_event_paranoid={limit}`"),
        ),
        (Some(level), Scope::Processes(_)) => (
            format!("these processes may not be looked into (kernel.perf_event_paranoid is {level}, so it is not that)"),
            "run as the processes' user or as root; processes with more rights than yours need CAP_SYS_PTRACE or CAP_PERFMON".to_owned(),
        ),
        (Some(level), _) => (
            format!("something other than kernel.perf_event_paranoid (which is {level}) forbids it: a seccomp profile or a security module"),
            "allow perf_event_open in the container's seccomp profile, or record outside".to_owned(),
        ),
    }
}
